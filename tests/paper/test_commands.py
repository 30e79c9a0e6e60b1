"""``momentalign datasets`` and ``reproduce`` as a user meets them: errors of one line, pages on disk, interruptions."""

import io
import json
import os
import pty
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import numpy as np
import pytest

from momentalign.cli import main
from momentalign.paper.catalogue import DATA_SETS, FILES, find_data_set
from momentalign.paper.problems import ARTIFICIAL_FILE

COMMAND = [sys.executable, "-m", "momentalign"]
NAMES = [data_set.name for data_set in DATA_SETS]
DATA = os.environ.get("MOMENTALIGN_DATA")


class Answer(NamedTuple):
    code: int
    output: str
    errors: str


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    """The command line in this process and in an empty folder: ``run("datasets", "list", data=FOLDER)``."""
    heard = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.chdir(tmp_path)

    def call(*arguments, data=None):
        monkeypatch.setattr(sys, "argv", ["momentalign", *map(str, arguments)])
        monkeypatch.setenv("MOMENTALIGN_DATA", str(data))
        if data is None:
            monkeypatch.delenv("MOMENTALIGN_DATA")
        with pytest.raises(SystemExit) as left:
            main()
        return Answer(left.value.code, *capsys.readouterr())

    yield call
    signal.signal(signal.SIGTERM, heard)


def refusal(answer):
    """The one line of a command that could not do what it was asked for."""
    assert (answer.code, answer.output, answer.errors.count("\n")) == (2, "", 1)
    assert answer.errors.startswith("momentalign: ")
    return answer.errors


@pytest.mark.parametrize("command", ["datasets list", "datasets path", "datasets get", *(
    f"reproduce {name}" for name in ("artificial", "overpenalization", "sentiment", "sensitivity", "objects", "digits")
)])  # fmt: skip
def test_help_says_how(run, command):
    answer = run(*command.split(), "--help")
    assert answer.code == 0
    assert " ".join(answer.output.split()).count(f"momentalign {command}") >= 2  # two examples
    assert "Usage:" in run(command.split()[0]).output


def test_list_tells_of_every_set_without_a_folder(run):
    answer = run("datasets", "list")
    assert answer.code == 0
    assert answer.output.startswith("folder: none; give --data DIR or set MOMENTALIGN_DATA")
    for data_set in DATA_SETS:
        assert f"\n{data_set.name}: not here\n" in answer.output
        assert data_set.licence in answer.output
        assert all(file.sha256[:12] in answer.output for file in data_set.files)


def test_list_as_json_holds_addresses_and_digests(run, tmp_path):
    (tmp_path / "artificial.npz").write_bytes(b"damaged")
    entries = {entry["name"]: entry for entry in json.loads(run("datasets", "list", "--json", data=tmp_path).output)}
    assert list(entries) == NAMES
    assert entries["artificial"]["state"] == "damaged"
    assert entries["artificial"]["paths"] == [str(tmp_path / "artificial.npz")]
    assert entries["artificial"]["files"][0]["sha256"] == FILES[ARTIFICIAL_FILE].sha256
    assert entries["mnist"]["state"] == "absent"
    assert entries["mnist"]["originals"] == [
        {"url": original.url, "sha256": original.sha256} for original in find_data_set("mnist").originals
    ]
    assert run("datasets", "path", data=tmp_path).output == f"{tmp_path}\n"


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("datasets path", "The folder is needed: give its folder as --data DIR or in MOMENTALIGN_DATA"),
        ("datasets path --data nowhere", "nowhere is not there; momentalign datasets get NAME makes it."),
        ("datasets path mnist --data .", "mnist in .: not here; momentalign datasets get mnist downloads it."),
        ("datasets path office-31-features --data .", "not here; computed, not published: get office-31"),
        ("datasets path emnist --data .", "name must be one of artificial, "),
        ("datasets get emnist --data .", "name must be one of artificial, "),
        ("datasets get artificial", "artificial is needed: give its folder as --data DIR"),
        ("datasets get office-31-features --data .", "office-31-features cannot be downloaded (computed"),
        ("datasets get artificial --data . --mirror file:///tmp", "mirror must start with http:// or https://"),
        ("datasets get", "Missing argument"),
        ("reproduce artificial", "--data DIR or in MOMENTALIGN_DATA"),
        ("reproduce artificial --data nowhere", "nowhere/artificial.npz is not there"),
        ("reproduce artificial --data . --setting best", "setting must be one of paper, momentalign, got 'best'"),
        ("reproduce sentiment", "--data DIR or in MOMENTALIGN_DATA"),
        ("reproduce sensitivity --data nowhere", "nowhere/amazon_reviews.npz is not there"),
        ("reproduce objects --methods nn,magic", "method 'magic' is not known; choose among nn, cnn"),
        ("reproduce objects --device abacus", "device 'abacus' cannot be used"),
        ("reproduce digits --tasks mnist:svhn", "task 'mnist->svhn' is not known; choose among svhn->mnist"),
    ],
)
def test_what_the_user_can_mend_is_one_line_and_exit_code_2(run, tmp_path, command, message):
    assert message in refusal(run(*command.split()))
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_get_tells_of_a_wrong_checksum_and_leaves_nothing(run, site, tmp_path):
    for original in find_data_set("mnist").originals:
        site.files[urlsplit(original.url).path] = b"not MNIST"
    message = refusal(run("datasets", "get", "mnist", "--data", tmp_path, "--mirror", site.address))
    assert "train-images-idx3-ubyte.gz is not the file it should be (SHA-256 " in message
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_an_interrupt_leaves_the_part_and_exit_code_130(run, site, tmp_path):
    path = urlsplit(find_data_set("svhn").originals[0].url).path
    site.files[path], site.cuts, site.silent = bytes(100_000), [60_000], threading.Event()
    arguments = ["datasets", "get", "svhn", "--data", str(tmp_path), "--mirror", site.address]
    with subprocess.Popen([*COMMAND, *arguments], stderr=subprocess.PIPE, text=True) as process:
        part = tmp_path / "train_32x32.mat.part"
        deadline = time.monotonic() + 60
        # Up to 8 kB may still be on their way to the file.
        while (not part.is_file() or part.stat().st_size < 50_000) and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert part.stat().st_size == 60_000
    site.silent.set()
    refusal(run(*arguments))
    assert site.asked[1][1] == "bytes=60000-"


def test_overpenalization_prints_every_metric(run, tmp_path):
    answer = run("reproduce", "overpenalization", "--out", "figure.html", "--no-open")
    closer = [line.split()[-1] for line in answer.output.splitlines()[:-1]]
    assert closer == ["left"] * 7 + ["right"]
    assert {path.name for path in tmp_path.iterdir()} == {"figure.html", "figure.json", "figure_2.svg"}
    assert (
        "nowhere/page.json cannot be written" in run("reproduce", "overpenalization", "--out", "nowhere/page.html")[2]
    )


@pytest.mark.data
def test_a_killed_run_goes_on_where_it_was(run, tmp_path, monkeypatch):
    """Killed once, the journal, the results and the page are those of a run that was left alone."""
    arguments = ["reproduce", "sentiment", "--methods", "nn", "--seeds", "1", "--jobs", "1", "--no-open"]
    folders = tmp_path / "killed", tmp_path / "alone"
    for folder in folders:
        folder.mkdir()
    journal = folders[0] / "momentalign-sentiment.jsonl"
    process = subprocess.Popen([*COMMAND, *arguments], cwd=folders[0], stdout=subprocess.DEVNULL)
    while process.poll() is None and (not journal.exists() or journal.read_bytes().count(b"\n") < 4):
        time.sleep(0.005)
    process.kill()
    process.wait()
    held = journal.read_bytes()
    assert 3 <= held.count(b"\n") < 13
    for folder in folders:
        monkeypatch.chdir(folder)
        assert "| Average |" in run(*arguments, data=DATA).output
    assert journal.read_bytes().startswith(held[: held.rfind(b"\n") + 1])
    files = [{path.name: path.read_bytes() for path in folder.iterdir()} for folder in folders]
    assert files[0] == files[1]
    names = (*(f"momentalign-sentiment.{kind}" for kind in ("html", "json", "jsonl")), "table_2.md", "table_2.tex")
    assert set(files[0]) == set(names)


def test_a_library_that_is_not_installed_is_named_in_one_line(tmp_path):
    program = (
        "import sys; sys.modules['pytorch_lightning'] = None; from momentalign.cli import main; "
        "sys.argv = ['momentalign', 'reproduce', 'digits']; main()"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
    remedy = 'pip install ".[deep]" in a checkout of momentalign.'
    assert done.stderr == f"momentalign: Networks are adapted by Lightning: {remedy}\n"


class TestRealFiles:
    """The artificial set is small enough to come in a blink."""

    pytestmark = pytest.mark.data

    @pytest.fixture
    def served(self, site):
        with np.load(Path(DATA) / ARTIFICIAL_FILE, allow_pickle=False) as arrays:
            for original, array in zip(find_data_set("artificial").originals, arrays.values(), strict=True):
                content = io.BytesIO()
                np.save(content, array)
                site.files[urlsplit(original.url).path] = content.getvalue()
        return site

    def test_get_list_and_path_agree(self, run, served, tmp_path):
        folder = tmp_path / "new" / "data"
        answer = run("datasets", "get", "artificial", "artificial", "--data", folder, "--mirror", served.address)
        assert answer == (0, f"artificial: here, checksums right, in {folder}\n", "")
        assert run("datasets", "path", "artificial", data=folder).output == f"{folder / 'artificial.npz'}\n"
        assert "\nartificial: here, checksums right\n" in run("datasets", "list", data=folder).output

    def test_a_terminal_sees_it_counting(self, served, tmp_path):
        leader, follower = pty.openpty()
        arguments = ["datasets", "get", "artificial", "--data", str(tmp_path), "--mirror", served.address]
        with os.fdopen(leader, "rb", buffering=0) as screen:
            subprocess.run([*COMMAND, *arguments], check=True, stdout=subprocess.PIPE, stderr=follower)
            os.close(follower)
            shown = screen.read(10_000)
        assert b"x_s.npy: 0.0 of 0.0 MB" in shown

    def test_the_benchmark_files_are_listed_as_right(self, run):
        entries = json.loads(run("datasets", "list", "--json", data=DATA).output)
        assert {entry["state"] for entry in entries} == {"right"}
