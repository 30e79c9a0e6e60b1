"""Files that are whole at any moment, and what killed writers leave of them."""

import fcntl
import os
import tempfile

import pytest

from momentalign.files import remove_leftovers, replace_file, whole_file


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_written_beside_its_place_and_takes_its_name_at_the_end(tmp_path):
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


def test_what_killed_writers_left_is_removed_and_nothing_else(tmp_path):
    kept = [".model.abc", ".model.ABCDEFGH", ".other.abcd_123", "model.abcd_123", ".model.abcd_1234"]
    for name in [*kept, ".model.abcd_123", ".model.zzzzzzzz"]:
        (tmp_path / name).write_bytes(b"half a file")
    (tmp_path / ".model.a_folder").mkdir()  # not a file, so not ours
    remove_leftovers(tmp_path, "model")
    assert names(tmp_path) == sorted([*kept, ".model.a_folder"])


def test_a_leftover_is_told_from_the_file_of_a_living_writer_by_its_lock(tmp_path):
    path = tmp_path / ".model.abcdefgh"
    with path.open("wb") as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)
        remove_leftovers(tmp_path, "model")
        assert path.exists()
    remove_leftovers(tmp_path, "model")
    assert not path.exists()


def test_a_file_is_locked_until_it_has_its_name(tmp_path):
    with whole_file(tmp_path / "model") as file:
        remove_leftovers(tmp_path, "model")
        file.write(b"content")
    assert (tmp_path / "model").read_bytes() == b"content"


@pytest.mark.parametrize("meddle", [os.unlink, lambda path: fcntl.flock(os.open(path, os.O_RDWR), fcntl.LOCK_EX)])
def test_a_file_that_another_process_took_for_a_leftover_before_the_lock_is_let_go(tmp_path, monkeypatch, meddle):
    make, handles = tempfile.mkstemp, []

    def meddled(**options):
        handle, path = make(**options)
        if not handles:
            meddle(path)
        handles.append(handle)
        return handle, path

    monkeypatch.setattr(tempfile, "mkstemp", meddled)
    replace_file(tmp_path / "model", b"content")
    assert (tmp_path / "model").read_bytes() == b"content"
    assert len(handles) == 2
