"""Files and folders are whole at any moment, whoever writes and whatever kills the writer."""

import fcntl
import json
import os
import stat
import subprocess
import sys
import threading

import numpy as np
import pytest

from momentalign.errors import DamagedFileError, InvalidInputError
from momentalign.files import check_folder, read_folder, remove_leftovers, replace_file, whole_file, write_folder

pytestmark = pytest.mark.skipif(os.name != "posix", reason="locks and rights of POSIX")

LEFTOVER = ".momentalign-0123456789abcdef"


def names(folder):
    return sorted(path.name for path in folder.iterdir())


# One file


def test_a_file_is_written_beside_its_path_and_takes_its_name_at_the_end(tmp_path):
    replace_file(tmp_path / "model", b"old")
    with whole_file(tmp_path / "model") as file:
        file.write(b"new")
        (hidden,) = {*names(tmp_path)} - {"model"}
        assert hidden.startswith(".model.")
        assert (tmp_path / "model").read_bytes() == b"old"
    assert (tmp_path / "model").read_bytes() == b"new"
    assert names(tmp_path) == ["model"]


def test_a_file_is_flushed_and_then_its_name(tmp_path, monkeypatch):
    flush, flushed = os.fsync, []

    def recording(handle):
        flushed.append(os.fstat(handle).st_ino)
        flush(handle)

    monkeypatch.setattr(os, "fsync", recording)
    replace_file(tmp_path / "model", b"content")
    assert flushed == [(tmp_path / "model").stat().st_ino, tmp_path.stat().st_ino]


def test_a_file_has_the_mode_that_the_umask_allows_and_the_umask_is_not_touched(tmp_path, monkeypatch):
    before = os.umask(0o027)
    try:
        with monkeypatch.context() as watched:
            # Even for an instant another thread could make a file that everybody may write.
            watched.setattr(os, "umask", lambda mask: pytest.fail(f"the umask of the process was set to {mask:o}"))
            replace_file(tmp_path / "file", b"content")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640


def test_what_killed_writers_left_is_removed_and_nothing_else(tmp_path):
    kept = [".model.abc", ".model.backup01", ".model.abcd_123", f".other{LEFTOVER}", f"model{LEFTOVER}"]
    for name in [*kept, f".model{LEFTOVER}", f".model{LEFTOVER[:-1]}0"]:
        (tmp_path / name).write_bytes(b"half a file")
    (tmp_path / f".model{LEFTOVER[:-1]}1").mkdir()  # not a file
    remove_leftovers(tmp_path, "model")
    assert names(tmp_path) == sorted([*kept, f".model{LEFTOVER[:-1]}1"])


def test_a_leftover_is_told_from_the_file_of_a_living_writer_by_its_lock(tmp_path):
    path = tmp_path / f".model{LEFTOVER}"
    with path.open("wb") as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)
        remove_leftovers(tmp_path, "model")
        assert path.exists()
    remove_leftovers(tmp_path, "model")
    assert not path.exists()


def test_a_file_is_locked_until_it_has_its_name(tmp_path):
    with whole_file(tmp_path / "model") as slow:
        slow.write(b"slow ")
        replace_file(tmp_path / "model", b"quick")
        remove_leftovers(tmp_path, "model")
        slow.write(b"but whole")
    assert (tmp_path / "model").read_bytes() == b"slow but whole"
    assert names(tmp_path) == ["model"]


@pytest.mark.parametrize("meddle", [os.unlink, lambda path: fcntl.flock(os.open(path, os.O_RDWR), fcntl.LOCK_EX)])
def test_a_file_that_another_process_took_for_a_leftover_before_the_lock_is_let_go(tmp_path, monkeypatch, meddle):
    lock, met = fcntl.flock, []

    def meddled(handle, how):
        if not met:
            met.extend(tmp_path.iterdir())
            monkeypatch.setattr(fcntl, "flock", lock)
            meddle(met[0])
        return lock(handle, how)

    monkeypatch.setattr(fcntl, "flock", meddled)
    replace_file(tmp_path / "model", b"content")
    assert (tmp_path / "model").read_bytes() == b"content"
    assert met


KILL = """
import os, signal, sys
from pathlib import Path
from momentalign.files import whole_file
for path in sys.argv[1:]:
    if os.fork() == 0:
        with whole_file(Path(path)) as file:
            file.write(b"half")
            file.flush()
            os.kill(os.getpid(), signal.SIGKILL)
    os.wait()
"""


def test_what_a_killed_writer_left_is_removed_by_the_next(tmp_path):
    weights = "weights-0123456789abcdef.safetensors"
    files = [tmp_path / name for name in ("page [1].html", "page [1].htm", "other", weights, "manifest.json")]
    subprocess.run([sys.executable, "-c", KILL, *files], check=True)
    assert len(names(tmp_path)) == 5
    replace_file(tmp_path / "page [1].html", b"whole")
    write_folder(tmp_path, {"a": np.zeros(3)}, {})
    left = sorted(name.partition(".momentalign-")[0] for name in names(tmp_path) if name.startswith("."))
    assert left == [".other", ".page [1].htm"]
    read_folder(tmp_path)


# A folder


def test_arrays_of_any_layout_are_written(tmp_path):
    arrays = {"transposed": np.arange(6.0).reshape(2, 3).T, "strided": np.arange(10)[::2], "empty": np.zeros((0, 3))}
    write_folder(tmp_path, arrays, {"text": "ü", "number": 1.5})
    loaded, description = read_folder(tmp_path)
    assert description == {"text": "ü", "number": 1.5}
    for name, array in arrays.items():
        np.testing.assert_array_equal(loaded[name], array)


SAVE = """
import sys
import numpy as np
from momentalign.files import read_folder, write_folder
print("ready", flush=True)
for count in range(int(sys.argv[3])):
    number = float(sys.argv[2]) + count % 5
    write_folder(sys.argv[1], {"a": np.full(5000, number)}, {"n": number})
    read_folder(sys.argv[1])
"""


def test_several_processes_save_to_one_folder_while_others_read(tmp_path):
    """At every moment the folder holds one whole model of somebody, and at the end nothing else."""
    folder = tmp_path / "model"
    savers = [
        subprocess.Popen([sys.executable, "-c", SAVE, folder, str(100 * number), "20"], stdout=-1, stderr=-1, text=True)
        for number in range(3)
    ]
    for saver in savers:
        assert saver.stdout.readline() == "ready\n"
    reads = 0
    while any(saver.poll() is None for saver in savers):
        if (folder / "manifest.json").exists():
            arrays, description = read_folder(folder)
            assert (arrays["a"] == description["n"]).all()
            reads += 1
    outputs = [saver.communicate() for saver in savers]
    assert all(saver.returncode == 0 for saver in savers), outputs
    assert reads > 1
    read_folder(folder)
    assert len(names(folder)) == 2


def test_a_reader_looks_again_where_a_writer_replaced_the_model(tmp_path, monkeypatch):
    write_folder(tmp_path, {"a": np.zeros(3)}, {"model": "old"})
    real, seen = os.open, []

    def opened(path, *arguments, **keywords):
        if str(path).endswith(".safetensors") and not seen:
            seen.append(path)
            write_folder(tmp_path, {"a": np.ones(3)}, {"model": "new"})
        return real(path, *arguments, **keywords)

    monkeypatch.setattr(os, "open", opened)
    assert read_folder(tmp_path)[1] == {"model": "new"}
    assert seen


def test_a_reader_that_was_refused_waits_for_the_writer(tmp_path):
    write_folder(tmp_path, {"a": np.zeros(3)}, {})
    (weights,) = tmp_path.glob("weights-*")
    content = weights.read_bytes()
    weights.unlink()
    handle = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    found = []
    reader = threading.Thread(target=lambda: found.append(read_folder(tmp_path)))
    reader.start()
    reader.join(0.2)
    assert reader.is_alive()
    weights.write_bytes(content)
    os.close(handle)
    reader.join(60)
    assert found[0][0]["a"].tolist() == [0.0, 0.0, 0.0]


FOREIGN = {
    "manifest.json": b'{"name": "the icons of a page"}',
    "weights-mine.safetensors": b"mine",
    "weights-0123456789abcdef.safetensors": b"not what the name says",
}


@pytest.mark.parametrize("beside_a_model", [False, True])
@pytest.mark.parametrize("name", FOREIGN)
def test_a_file_of_another_program_is_never_replaced_or_removed(tmp_path, name, beside_a_model):
    if beside_a_model:
        write_folder(tmp_path, {"a": np.zeros(3)}, {})
    (tmp_path / name).write_bytes(FOREIGN[name])
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    for attempt in (lambda: write_folder(tmp_path, {"a": np.ones(3)}, {}), lambda: check_folder(tmp_path)):
        with pytest.raises(InvalidInputError, match=rf"{name} momentalign did not write; give another folder"):
            attempt()
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("name", ["notes.txt", ".manifest.json.backup01", "weights.safetensors", ".hidden"])
def test_other_files_beside_a_model_are_left_alone(tmp_path, name):
    (tmp_path / name).write_text("mine")
    for value in (0.0, 1.0):
        write_folder(tmp_path, {"a": np.full(3, value)}, {})
    assert (tmp_path / name).read_text() == "mine"
    assert len(names(tmp_path)) == 3


@pytest.mark.parametrize("damage", ["manifest", "weights", "weights gone", "an unnamed leftover"])
def test_saving_again_mends_a_damaged_model(tmp_path, damage):
    write_folder(tmp_path, {"a": np.zeros(3)}, {"n": 1})
    (weights,) = tmp_path.glob("weights-*")
    if damage == "manifest":
        text = (tmp_path / "manifest.json").read_text()
        (tmp_path / "manifest.json").write_text(text.replace('"n": 1', '"n": 2'))
    elif damage == "weights":
        weights.write_bytes(b"damaged")
    elif damage == "weights gone":
        weights.unlink()
    else:
        (tmp_path / "manifest.json").unlink()
    if damage != "an unnamed leftover":
        with pytest.raises(DamagedFileError):
            read_folder(tmp_path)
    write_folder(tmp_path, {"a": np.ones(3)}, {})
    assert read_folder(tmp_path)[0]["a"].tolist() == [1.0, 1.0, 1.0]
    assert len(names(tmp_path)) == 2


def test_a_folder_is_checked_before_training_and_nothing_is_left(tmp_path):
    check_folder(tmp_path / "new" / "folder")
    write_folder(tmp_path / "model", {"a": np.zeros(3)}, {})
    check_folder(tmp_path / "model")
    assert names(tmp_path) == ["model"]
    assert json.loads((tmp_path / "model" / "manifest.json").read_text())["format_version"] == 1
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInputError, match=r"cannot be written to .*file/below \(Not a directory\)"):
        check_folder(tmp_path / "file" / "below")
