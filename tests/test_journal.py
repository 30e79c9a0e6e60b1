"""The journal keeps every finished cell, whatever kills its writers."""

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections import Counter

import numpy as np
import pytest

from momentalign.errors import DamagedFileError, InvalidInputError, InvalidTypeError
from momentalign.journal import Journal, cell_key

IDENTITY = {"what": "test", "versions": {"numpy": "2.0"}, "seeds": [0, 1]}

# Appends the cells that are missing, with long results, and says when it begins.
WRITER = """
import hashlib, sys
from momentalign.journal import Journal, cell_key

path, writer, count, length = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
journal = Journal(path, {"what": "test"})
done = journal.done()
print("ready", flush=True)
for index in range(count):
    cell = {"writer": writer, "index": index}
    if cell_key(cell) not in done:
        digest = hashlib.sha256(cell_key(cell).encode()).digest()
        journal.append(cell, {"values": [byte / 255 for byte in digest] * length})
"""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "deep" / "folder" / "cells.jsonl"


@pytest.fixture
def journal(path):
    journal = Journal(path, IDENTITY)
    for seed in range(3):
        journal.append({"seed": seed, "task": "a->b"}, {"accuracy": 0.1 * seed, "epochs": seed})
    return journal


def start_writer(path, writer="0", *, count=200, length=1):
    command = [sys.executable, "-c", WRITER, str(path), writer, str(count), str(length)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def cells_of(path):
    """The keys in the file as they stand there, one per line after the header."""
    return [cell_key(json.loads(line)["cell"]) for line in path.read_bytes().splitlines()[1:]]


def test_finished_cells_come_back_from_a_second_opening(path, journal):
    again = Journal(path, IDENTITY)
    assert again.done() == journal.done()
    assert again.done()[cell_key({"task": "a->b", "seed": 2})] == {"accuracy": 0.2, "epochs": 2}
    assert len(again.done()) == 3


def test_every_line_is_json_and_the_first_says_which_run_it_is(path, journal):
    lines = [json.loads(line) for line in path.read_text(encoding="ascii").splitlines()]
    assert lines[0]["identity"] == IDENTITY
    assert [line["result"]["epochs"] for line in lines[1:]] == [0, 1, 2]


def test_keys_do_not_depend_on_the_order_of_names():
    assert cell_key({"b": 1, "a": "ä"}) == cell_key({"a": "ä", "b": 1}) == '{"a":"\\u00e4","b":1}'


def test_a_cell_written_twice_counts_once_and_first(journal):
    journal.append({"task": "a->b", "seed": 0}, {"accuracy": 0.9})
    assert journal.done()[cell_key({"seed": 0, "task": "a->b"})] == {"accuracy": 0.0, "epochs": 0}
    assert len(journal.done()) == 3


@pytest.mark.parametrize("value", [math.nan, math.inf, [0.0, {"deep": -math.inf}]])
def test_numbers_that_are_not_finite_are_refused_and_nothing_is_written(path, journal, value):
    before = path.read_bytes()
    with pytest.raises(InvalidInputError, match=r"cell and result must hold plain finite values.*replace"):
        journal.append({"seed": 4}, {"accuracy": value})
    with pytest.raises(InvalidInputError, match="cell must hold plain finite"):
        cell_key({"seed": value})
    with pytest.raises(InvalidInputError, match="identity must hold plain finite"):
        Journal(path, {"share": value})
    assert path.read_bytes() == before


@pytest.mark.parametrize("value", [np.float32(0.5), np.arange(3), {1, 2}, b"bytes"])
def test_values_that_json_does_not_know_are_refused(journal, value):
    with pytest.raises(InvalidTypeError, match="into lists and floats"):
        journal.append({"seed": 4}, {"accuracy": value})


def test_a_torn_last_line_is_ignored_and_never_glued_to(path, journal):
    whole = path.read_bytes()
    expected = journal.done()
    start = whole[:-1].rfind(b"\n") + 1
    for end in range(start, len(whole)):  # the last one lacks its newline alone
        path.write_bytes(whole[:end])
        again = Journal(path, IDENTITY)
        assert len(again.done()) == 2
        again.append({"task": "a->b", "seed": 2}, {"accuracy": 0.2, "epochs": 2})
        assert path.read_bytes() == whole
        assert again.done() == expected


def test_a_torn_header_is_written_again(path, journal):
    header = path.read_bytes().split(b"\n")[0]
    for end in range(0, len(header) + 1, 7):
        path.write_bytes(header[:end])
        assert Journal(path, IDENTITY).done() == {}
        assert path.read_bytes() == header + b"\n"


def test_a_damaged_line_in_the_middle_is_an_error_that_names_it(path, journal):
    whole = path.read_bytes()
    lines = whole.split(b"\n")
    start = len(lines[0]) + 1 + len(lines[1]) + 1
    for position in range(start, start + len(lines[2])):
        damaged = bytearray(whole)
        damaged[position] ^= 1
        path.write_bytes(damaged)
        with pytest.raises(DamagedFileError, match=r"cells\.jsonl, line 3, is damaged .*remove that line"):
            Journal(path, IDENTITY)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b'{"cell":{"seed":0},"digest":"00","result":{}}', "its content does not match its digest"),
        (None, "it holds format, format_version, identity, not cell, result"),  # a second header
    ],
)
def test_a_damaged_line_is_named_with_what_is_wrong_and_what_to_do(path, journal, line, words):
    header = path.read_bytes().split(b"\n")[0]
    path.write_bytes(path.read_bytes() + (line or header) + b"\n")
    with pytest.raises(DamagedFileError) as caught:
        journal.done()
    assert str(caught.value) == f"{path}, line 5, is damaged ({words}); remove that line, or start over with --fresh."


@pytest.mark.parametrize("content", [b'{"results": 1}', b"some text\nof another file\n", b"\x00" * 40])
def test_a_file_that_is_no_journal_is_left_alone(path, content):
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    with pytest.raises(DamagedFileError, match=r"line 1, is damaged .*; give another folder\.$"):
        Journal(path, IDENTITY)
    with pytest.raises(InvalidInputError, match=r"cells\.jsonl is no journal of momentalign"):
        Journal(path, IDENTITY, fresh=True)
    assert path.read_bytes() == content


def test_another_identity_is_refused_with_what_differs_and_what_to_do(path, journal):
    before = path.read_bytes()
    other = {"what": "test", "versions": {"numpy": "2.1"}, "protocol": {}}
    with pytest.raises(InvalidInputError) as caught:
        Journal(path, other)
    assert str(caught.value) == (
        f"{path} belongs to another run: protocol is missing there and {{}} here; "
        'seeds is [0,1] there and missing here; versions.numpy is "2.0" there and "2.1" here; '
        "give another folder, or start over with --fresh."
    )
    assert path.read_bytes() == before


@pytest.mark.parametrize(("count", "rest"), [(5, "give"), (6, "and 1 more; give"), (9, "and 4 more; give")])
def test_many_differences_are_cut_short(path, count, rest):
    Journal(path, {f"name{index}": 0 for index in range(count)})
    with pytest.raises(InvalidInputError, match=f"name4 is 0 there and 1 here; {rest}"):
        Journal(path, {f"name{index}": 1 for index in range(count)})


def test_equal_identities_may_be_written_differently(path, journal):
    assert len(Journal(path, {"seeds": (0, 1), "versions": {"numpy": "2.0"}, "what": "test"}).done()) == 3


def test_a_journal_of_another_format_is_refused(path, journal, monkeypatch):
    monkeypatch.setattr("momentalign.journal.FORMAT_VERSION", 2)
    with pytest.raises(DamagedFileError) as caught:
        Journal(path, IDENTITY)
    assert str(caught.value) == (
        f"{path} has format 'momentalign journal' 1, this version reads 'momentalign journal' 2; "
        "give another folder, or start over with --fresh."
    )


@pytest.mark.parametrize("left", [slice(None), slice(0), slice(5), slice(40), slice(200)])
def test_fresh_begins_anew_whatever_a_journal_holds(path, journal, left):
    path.write_bytes(path.read_bytes()[left])
    assert Journal(path, {"what": "other"}, fresh=True).done() == {}
    assert Journal(path, {"what": "other"}).done() == {}


def test_a_journal_that_another_process_starts_anew_is_never_damaged(path):
    """Between the old and the new header the file is empty for an instant."""
    code = f"""
import sys, time
from momentalign.journal import Journal
end = time.monotonic() + 1.0
while time.monotonic() < end:
    Journal(sys.argv[1], {IDENTITY!r}, fresh=True)
"""
    journal = Journal(path, IDENTITY)
    other = subprocess.Popen([sys.executable, "-c", code, str(path)])
    reads = 0
    while other.poll() is None:
        assert journal.done() == {}
        reads += 1
    assert other.returncode == 0
    assert reads > 10


def test_what_the_system_refuses_is_said_in_a_sentence(path, tmp_path, journal):
    words = "cannot be read or written"
    with pytest.raises(
        InvalidInputError, match=rf"{tmp_path} {words} \(Is a directory\); give a folder that can be\.$"
    ):
        Journal(tmp_path, IDENTITY)
    path.unlink()
    with pytest.raises(InvalidInputError, match=rf"{path} {words} \(No such file"):
        journal.append({"seed": 5}, {})
    with pytest.raises(InvalidInputError, match=rf"{path} {words} \(No such file"):
        journal.done()


def test_an_append_does_not_read_what_is_there(journal, monkeypatch):
    """Else a journal of many cells would take a time that grows with their square."""
    read, sizes = os.read, []

    def counting(handle, size):
        content = read(handle, size)
        sizes.append(len(content))
        return content

    monkeypatch.setattr(os, "read", counting)
    journal.append({"seed": 3}, {"accuracy": 0.3})
    assert sizes == [1]


def test_a_line_that_did_not_fit_is_an_error_and_cut_by_the_next(path, journal):
    code = f"""
import resource, sys
from momentalign.journal import Journal
journal = Journal(sys.argv[1], {IDENTITY!r})
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, ({path.stat().st_size + 20}, hard))
try:
    journal.append({{"seed": 3}}, {{"accuracy": 0.3}})
finally:
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
"""
    before = path.read_bytes()
    failed = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False)
    assert "InvalidInputError: the journal" in failed.stderr
    assert "OSError: [Errno 28] No space left on device" in failed.stderr
    assert "(No space left on device); give a folder that can be" in failed.stderr
    assert len(path.read_bytes()) == len(before) + 20
    journal.append({"seed": 3}, {"accuracy": 0.3})
    assert path.read_bytes().startswith(before)
    assert journal.done()[cell_key({"seed": 3})] == {"accuracy": 0.3}


def test_ten_processes_lose_no_line(path):
    writers = [start_writer(path, str(writer)) for writer in range(10)]
    assert [writer.communicate(timeout=300)[0] for writer in writers] == ["ready\n"] * 10
    assert {writer.returncode for writer in writers} == {0}
    expected = {cell_key({"writer": str(writer), "index": index}) for writer in range(10) for index in range(200)}
    assert Counter(cells_of(path)) == dict.fromkeys(expected, 1)
    assert set(Journal(path, {"what": "test"}).done()) == expected


def test_a_writer_waits_for_the_one_before(path, journal):
    """The end of the file is looked at and mended by one process at a time."""
    import fcntl

    with path.open("r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0, os.SEEK_END)
        file.write(b'{"cell":{"wri')
        file.flush()
        other = subprocess.Popen(
            [
                sys.executable,
                "-c",
                "import sys; from momentalign.journal import Journal; "
                f"journal = Journal(sys.argv[1], {IDENTITY!r}); journal.append({{'seed': 9}}, {{}})",
                str(path),
            ]
        )
        time.sleep(1.0)
        assert other.poll() is None
        file.seek(-len(b'{"cell":{"wri'), os.SEEK_END)
        file.truncate()
    assert other.wait(60) == 0
    assert len(journal.done()) == 4


def test_killed_writers_cost_nothing_but_time(path, tmp_path):
    count, length = 1500, 5
    rng = np.random.default_rng(7)
    for _ in range(12):
        writer = start_writer(path, count=count, length=length)
        assert writer.stdout.readline() == "ready\n"
        time.sleep(rng.uniform(0, 0.03))
        writer.send_signal(signal.SIGKILL)
        writer.communicate()
        assert writer.returncode == -signal.SIGKILL
    finished = Journal(path, {"what": "test"}).done()
    assert 0 < len(finished) < count
    undisturbed = tmp_path / "undisturbed.jsonl"
    for goal in (path, undisturbed):
        assert start_writer(goal, count=count, length=length).communicate(timeout=300) == ("ready\n", None)
    assert Counter(cells_of(path)).most_common(1)[0][1] == 1
    resumed = Journal(path, {"what": "test"}).done()
    assert resumed == Journal(undisturbed, {"what": "test"}).done()
    assert {key: resumed[key] for key in finished} == finished
    assert len(resumed) == count
