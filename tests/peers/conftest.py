"""A virtual environment for each peer, made once: under pytest's cache, or in the folder MOMENTALIGN_PEERS names.

Where no package index can be reached the tests are skipped; where one can, a peer that does not install is a failure.
"""

import importlib.util
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from filelock import FileLock

ROOT = Path(__file__).parents[2]
TORCH = ("torch==2.13.0", "numpy==2.4.6", "scipy==1.17.1", "scikit-learn==1.9.1")
# What momentalign itself asks for, and what runs the tests there; its source is put on the path.
OURS = (*TORCH, *tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"], "pytest==9.2.0")


@pytest.fixture(scope="session")
def peer_python(pytestconfig: pytest.Config) -> Callable[[str], Path]:
    """``peer_python(name)`` is the interpreter of an environment with that peer and what momentalign needs."""
    environments = _environments(pytestconfig)

    def python(name: str) -> Path:
        with FileLock(environments.FOLDER / f"{name}.lock"):  # workers of one run share the folder
            try:
                environments.make_ready(name)
            except subprocess.CalledProcessError:
                if _reaches_an_index():
                    raise
                pytest.skip(f"no package index to install {name} from")
        return environments.python_of(name)

    return python


@pytest.fixture(scope="session")
def run_in_peer(peer_python: Callable[[str], Path]) -> Callable[..., str]:
    """``run_in_peer(name, *arguments)`` runs its Python and returns what it printed; what fails is shown."""

    def run(name: str, *arguments: str) -> str:
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
        command = [peer_python(name), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT, check=False)
        assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
        return done.stdout

    return run


def _environments(config: pytest.Config) -> ModuleType:
    """A copy of the benchmark's environments with a folder and packages of its own."""
    path = ROOT / "benchmarks" / "peers" / "environments.py"
    spec = importlib.util.spec_from_file_location("momentalign_peer_environments", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.FOLDER = Path(os.environ.get("MOMENTALIGN_PEERS") or config.cache.mkdir("peers")).absolute()
    module.FOLDER.mkdir(parents=True, exist_ok=True)
    module.PACKAGES = {
        "skada": [*module.PACKAGES["skada"], (*OURS, "pot==0.9.7.post1")],
        # TensorFlow 2.15, which the benchmark measures, wants numpy 1; from 2.16 on ADAPT needs the older Keras beside.
        "adapt": [
            (*OURS, "tensorflow==2.20.0", "tf-keras==2.20.1", "cvxopt==1.3.3"),
            ("--no-deps", "adapt==0.4.5", "scikeras==0.13.0"),
        ],
        "pytorch_adapt": [*module.PACKAGES["pytorch_adapt"], OURS],
    }
    return module


def _reaches_an_index() -> bool:
    download = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir", "--dest"]
    with tempfile.TemporaryDirectory() as folder:
        return subprocess.run([*download, folder, "packaging==26.3"], check=False).returncode == 0
