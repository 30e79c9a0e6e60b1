"""What is published: wheel and sdist hold the tracked files, install alone, and run the demo."""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Kept out of what is published: tools of the project's home.
KEPT_HOME = (".ci/", ".github/")

pytestmark = pytest.mark.long


def tracked(dist, *folders):
    """The files of the commit that was built; what is not committed yet is no part of a release."""
    command = ["git", "-C", dist / "clone", "ls-files", *folders]
    return set(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines())


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    """Wheel and sdist of the last commit beside its clone, built as a release builds them."""
    folder = tmp_path_factory.mktemp("dist")
    clone = folder / "clone"
    subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    python = folder / "venv" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "build>=1.2"], check=True)
    subprocess.run([python, "-m", "build", "--quiet", "--outdir", folder, clone], check=True)
    return folder


def test_the_wheel_holds_the_package_and_nothing_else(dist):
    (wheel,) = dist.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert names == {name.removeprefix("src/") for name in tracked(dist, "src")}


def test_the_sdist_holds_the_tracked_files(dist):
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames() if "/" in name} - {"PKG-INFO"}
    folders = {name for name in names if any(other.startswith(f"{name}/") for other in names)}
    assert names - folders == {name for name in tracked(dist) if not name.startswith(KEPT_HOME)}


@pytest.mark.parametrize("kind", ["*.whl", "*.tar.gz"])
def test_it_installs_alone_and_runs_the_demo(dist, tmp_path, kind):
    (package,) = dist.glob(kind)
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    python, constraints = tmp_path / "venv" / "bin" / "python", dist / "clone" / "constraints.txt"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "-c", constraints, "torch"], check=True)
    subprocess.run([python, "-m", "pip", "install", "--quiet", "-c", constraints, package], check=True)
    subprocess.run([python, "-m", "momentalign", "demo", "--seeds", "1", "--no-open"], check=True, cwd=tmp_path)
    assert (tmp_path / "momentalign-demo.html").stat().st_size > 10_000
