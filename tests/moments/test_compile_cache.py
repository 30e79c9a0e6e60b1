"""Whatever happened to the files of compiled loops, what is computed is right and nothing but that is said."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import momentalign

pytestmark = pytest.mark.skipif(os.name != "posix", reason="folders that cannot be written to")

# A loop that is compiled in a second, in a module of its own, and a kernel of the training loops.
LOOP = """
import numpy as np
from momentalign.moments.loops import compiled

@compiled
def total(values):
    result = 0.0
    for value in values:
        result += value
    return result

if __name__ == "__main__":
    from loop import total as loop
    print(loop(np.arange(5.0)), sum(loop._cache_hits.values()) if hasattr(loop, "_cache_hits") else 0)
"""


def run(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    (folder / "loop.py").write_text(LOOP)
    os.utime(folder / "loop.py", (1, 1))  # The cache knows its source by the time it was written.
    source = str(Path(momentalign.__file__).parents[1])
    variables = {**os.environ, "NUMBA_CACHE_DIR": str(folder / "cache"), "PYTHONPATH": source, **environment}
    return subprocess.run(
        [sys.executable, folder / "loop.py"], env=variables, capture_output=True, text=True, cwd=folder, check=False
    )


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-200])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def replace_by_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGE = {
    "cut": cut,
    "flipped": flip,
    "empty": lambda path: path.write_bytes(b""),
    "text": lambda path: path.write_text("not a cache"),
    # Read by pickle this would interrupt the program.
    "hostile": lambda path: path.write_bytes(b"cbuiltins\nKeyboardInterrupt\n(tR."),
    "folder": replace_by_folder,
    "gone": Path.unlink,
}


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compiled")
    first, again = run(folder), run(folder)
    assert (first.stdout, again.stdout) == ("10.0 0\n", "10.0 1\n")
    return folder


@pytest.mark.parametrize("kind", [".nbi", ".nbc"])
@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_files_are_compiled_again_and_replaced(sound, name, kind):
    (path,) = (path for path in (sound / "cache").rglob(f"loop.total*{kind}"))
    DAMAGE[name](path)
    found = run(sound)
    assert (found.stdout, found.stderr) == ("10.0 0\n", "")
    if path.is_dir():
        path.rmdir()
        run(sound)
    assert run(sound).stdout == "10.0 1\n"


def test_without_a_folder_that_can_be_written_to_it_is_said_once(tmp_path):
    (tmp_path / "file").touch()  # Even root makes no folder below a file.
    nowhere = str(tmp_path / "file" / "below")
    found = run(tmp_path, NUMBA_CACHE_DIR=nowhere, NUMBA_CACHE_LOCATOR_CLASSES="UserProvidedCacheLocator")
    assert found.stdout == "10.0 0\n"
    assert found.stderr.count("there is no folder to keep compiled loops in") == 1
    assert "Traceback" not in found.stderr
