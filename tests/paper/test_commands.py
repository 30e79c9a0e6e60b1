"""``momentalign datasets`` and ``reproduce`` as a user meets them: processes, errors of one line, pages on disk."""

import io
import json
import os
import pty
import runpy
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest

from momentalign.paper.catalogue import ARTIFICIAL, DATA_SETS, find_data_set

serve = runpy.run_path(str(Path(__file__).parents[1] / "local_server.py"))["serve"]
COMMAND = [sys.executable, "-m", "momentalign", "datasets"]
NAMES = [data_set.name for data_set in DATA_SETS]


def environment(folder=None):
    kept = {key: value for key, value in os.environ.items() if key != "MOMENTALIGN_DATA"}
    return {**kept, "no_proxy": "127.0.0.1", **({} if folder is None else {"MOMENTALIGN_DATA": str(folder)})}


def run(*arguments, folder=None, cwd=None):
    return subprocess.run(
        [*COMMAND, *map(str, arguments)], cwd=cwd, env=environment(folder), capture_output=True, text=True
    )


def fails(answer):
    assert answer.returncode == 2
    assert answer.stdout == ""
    assert answer.stderr.count("\n") == 1
    assert answer.stderr.startswith("momentalign: ")
    return answer.stderr


@pytest.fixture
def site():
    with serve() as site:
        yield site


@pytest.mark.parametrize("arguments", [(), ("list", "--help"), ("path", "--help"), ("get", "--help")])
def test_help_says_how(arguments):
    answer = run(*arguments)
    assert answer.returncode == 0
    words = " ".join(answer.stdout.split())
    assert "Usage:" in words
    if arguments:
        assert words.count(f"momentalign datasets {arguments[0]}") >= 3  # usage and two examples


def test_list_tells_of_every_set_without_a_folder():
    answer = run("list")
    assert answer.returncode == 0
    assert answer.stdout.startswith("folder: none; give --data DIR or set MOMENTALIGN_DATA")
    for data_set in DATA_SETS:
        assert f"\n{data_set.name}: not here\n" in answer.stdout
        assert data_set.licence in answer.stdout
        assert all(file.sha256[:12] in answer.stdout for file in data_set.files)


def test_list_as_json_holds_addresses_and_digests(tmp_path):
    (tmp_path / "artificial.npz").write_bytes(b"damaged")
    entries = {entry["name"]: entry for entry in json.loads(run("list", "--json", folder=tmp_path).stdout)}
    assert list(entries) == NAMES
    assert entries["artificial"]["state"] == "damaged"
    assert entries["artificial"]["paths"] == [str(tmp_path / "artificial.npz")]
    assert entries["artificial"]["files"][0]["sha256"] == ARTIFICIAL.sha256
    assert entries["mnist"]["state"] == "absent"
    assert entries["mnist"]["originals"] == [
        {"url": original.url, "sha256": original.sha256} for original in find_data_set("mnist").originals
    ]


def test_path_without_a_name_is_the_folder(tmp_path):
    assert run("path", folder=tmp_path).stdout == f"{tmp_path}\n"
    assert run("path", "--data", tmp_path).stdout == f"{tmp_path}\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("path",), "The folder is needed: give its folder as --data DIR or in MOMENTALIGN_DATA"),
        (("path", "--data", "nowhere"), "nowhere is not there; momentalign datasets get NAME makes it."),
        (("path", "mnist", "--data", "."), "mnist in .: not here; momentalign datasets get mnist downloads it."),
        (("path", "office-31-features", "--data", "."), "not here; computed, not published: get office-31"),
        (("path", "emnist", "--data", "."), "name must be one of artificial, "),
        (("get", "emnist", "--data", "."), "name must be one of artificial, "),
        (("get", "artificial"), "artificial is needed: give its folder as --data DIR"),
        (("get", "office-31-features", "--data", "."), "office-31-features cannot be downloaded (computed"),
        (("get", "artificial", "--data", ".", "--mirror", "file:///tmp"), "mirror must start with http:// or https://"),
        (("get",), "Missing argument"),
    ],
)
def test_what_the_user_can_mend_is_one_line_and_exit_code_2(arguments, words, tmp_path):
    assert words in fails(run(*arguments, cwd=tmp_path))


def test_get_tells_of_a_server_that_has_nothing(site, tmp_path):
    told = fails(run("get", "mnist", "--data", tmp_path, "--mirror", site.address))
    assert f"{site.address}/mnist/train-images-idx3-ubyte.gz answered 404" in told


def test_get_tells_of_a_wrong_checksum_and_leaves_nothing(site, tmp_path):
    for original in find_data_set("mnist").originals:
        site.files[urlsplit(original.url).path] = b"not MNIST"
    told = fails(run("get", "mnist", "--data", tmp_path, "--mirror", site.address))
    assert "train-images-idx3-ubyte.gz is not the file it should be (SHA-256 " in told
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_an_interrupt_leaves_the_part_and_exit_code_130(site, tmp_path):
    path = urlsplit(find_data_set("svhn").originals[0].url).path
    site.files[path], site.cuts, site.silent = bytes(100_000), [60_000], threading.Event()
    process = subprocess.Popen(
        [*COMMAND, "get", "svhn", "--data", str(tmp_path), "--mirror", site.address],
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
    )
    part = tmp_path / "train_32x32.mat.part"
    deadline = time.monotonic() + 30
    while not part.is_file() and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in told
    assert part.stat().st_size == 60_000
    site.silent.set()
    fails(run("get", "svhn", "--data", tmp_path, "--mirror", site.address))
    assert site.asked[1][1] == "bytes=60000-"


DATA = os.environ.get("MOMENTALIGN_DATA")
REPRODUCE = [sys.executable, "-m", "momentalign", "reproduce"]


def reproduce(*arguments, cwd=None, folder=DATA):
    return subprocess.run([*REPRODUCE, *arguments], cwd=cwd, env=environment(folder), capture_output=True, text=True)


@pytest.mark.parametrize("name", ["", "artificial", "sentiment", "sensitivity", "objects", "digits"])
def test_help_of_an_experiment_says_how(name):
    answer = reproduce(*([name, "--help"] if name else []))
    assert answer.returncode == 0
    assert "Usage:" in answer.stdout
    assert not name or " ".join(answer.stdout.split()).count("momentalign reproduce") >= 3  # usage and two examples


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("artificial",), "--data DIR or in MOMENTALIGN_DATA"),
        (("artificial", "--data", "nowhere"), "nowhere/artificial.npz is not there"),
        (("artificial", "--data", ".", "--setting", "best"), "paper, momentalign"),
        (("overpenalization", "--out", "nowhere/page.html"), "nowhere/page.json cannot be written"),
        (("sentiment",), "--data DIR or in MOMENTALIGN_DATA"),
        (("sensitivity", "--data", "nowhere"), "nowhere/amazon_reviews.npz is not there"),
    ],
)
def test_experiments_that_cannot_be_run_are_refused_in_one_line(arguments, words, tmp_path):
    answer = reproduce(*arguments, cwd=tmp_path, folder=None)
    assert answer.returncode == 2
    assert answer.stderr.count("\n") == 1
    assert words in answer.stderr
    assert not list(tmp_path.iterdir())


def test_damaged_benchmark_file_is_named(tmp_path):
    (tmp_path / "artificial.npz").write_bytes(b"not an archive")
    answer = reproduce("artificial", "--data", str(tmp_path))
    assert answer.returncode == 2
    assert "is not the file it should be" in answer.stderr


def test_overpenalization_prints_every_metric(tmp_path):
    answer = reproduce("overpenalization", "--out", "figure.html", cwd=tmp_path)
    assert answer.returncode == 0, answer.stderr
    closer = [line.split()[-1] for line in answer.stdout.splitlines()[:-1]]
    assert closer == ["left"] * 7 + ["right"]
    assert {path.name for path in tmp_path.iterdir()} == {"figure.html", "figure.json", "figure_2.svg"}


SENTIMENT = ["sentiment", "--methods", "nn", "--seeds", "1", "--jobs", "1", "--no-open"]


@pytest.mark.data
def test_a_killed_run_goes_on_where_it_was(tmp_path):
    """Killed once, the journal, the results and the page are those of a run that was left alone."""
    for name in ("killed", "alone"):
        (tmp_path / name).mkdir()
    journal = tmp_path / "killed" / "momentalign-sentiment.jsonl"
    process = subprocess.Popen([*REPRODUCE, *SENTIMENT], cwd=tmp_path / "killed", stdout=subprocess.DEVNULL)
    while process.poll() is None and (not journal.exists() or journal.read_bytes().count(b"\n") < 4):
        time.sleep(0.005)
    process.kill()
    process.wait()
    held = journal.read_bytes()
    assert 3 <= held.count(b"\n") < 13
    for name in ("killed", "alone"):
        answer = reproduce(*SENTIMENT, cwd=tmp_path / name)
        assert answer.returncode == 0, answer.stderr
        assert "| Average |" in answer.stdout
    assert journal.read_bytes().startswith(held[: held.rfind(b"\n") + 1])
    names = {path.name for path in (tmp_path / "alone").iterdir()}
    assert names == {
        "momentalign-sentiment.html", "momentalign-sentiment.json", "momentalign-sentiment.jsonl", "table_2.md",
        "table_2.tex",
    }  # fmt: skip
    for name in names:
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "alone" / name).read_bytes(), name


@pytest.mark.data
def test_what_cannot_be_run_is_named(tmp_path):
    answer = reproduce("sentiment", "--methods", "nn,magic", "--no-open", cwd=tmp_path)
    assert answer.returncode == 2
    assert "method 'magic' is not known" in answer.stderr
    answer = reproduce("sensitivity", "--panels", "left", "--no-open", cwd=tmp_path)
    assert answer.returncode == 2
    assert "panel 'left' is not known" in answer.stderr
    answer = reproduce("sentiment", "--device", "abacus", "--no-open", cwd=tmp_path)
    assert answer.returncode == 2
    assert "device 'abacus' cannot be used" in answer.stderr
    assert not list(tmp_path.iterdir())


def test_a_library_that_is_not_installed_is_named_in_one_line(tmp_path):
    program = (
        "import sys; sys.modules['pytorch_lightning'] = None; from momentalign.cli import main; "
        "sys.argv = ['momentalign', 'reproduce', 'digits']; main()"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == "momentalign: Networks are adapted by Lightning: pip install momentalign[deep]\n"


class TestRealFiles:
    """The artificial set is small enough to come in a blink."""

    pytestmark = pytest.mark.data

    @pytest.fixture
    def served(self, site):
        with np.load(Path(os.environ["MOMENTALIGN_DATA"]) / ARTIFICIAL.name, allow_pickle=False) as arrays:
            for original, array in zip(find_data_set("artificial").originals, arrays.values(), strict=True):
                content = io.BytesIO()
                np.save(content, array)
                site.files[urlsplit(original.url).path] = content.getvalue()
        return site

    def test_get_list_and_path_agree(self, served, tmp_path):
        folder = tmp_path / "new" / "data"
        answer = run("get", "artificial", "artificial", "--data", folder, "--mirror", served.address)
        assert (answer.returncode, answer.stderr) == (0, "")
        assert answer.stdout == f"artificial: here, checksums right, in {folder}\n"
        assert run("path", "artificial", folder=folder).stdout == f"{folder / 'artificial.npz'}\n"
        assert "\nartificial: here, checksums right\n" in run("list", folder=folder).stdout

    def test_a_terminal_sees_it_counting(self, served, tmp_path):
        leader, follower = pty.openpty()
        with os.fdopen(leader, "rb", buffering=0) as screen:
            answer = subprocess.run(
                [*COMMAND, "get", "artificial", "--data", str(tmp_path), "--mirror", served.address],
                env=environment(),
                stdout=subprocess.PIPE,
                stderr=follower,
            )
            os.close(follower)
            shown = screen.read(10_000)
        assert answer.returncode == 0
        assert b"x_s.npy: 0.0 of 0.0 MB" in shown

    def test_the_benchmark_files_are_listed_as_right(self):
        entries = json.loads(run("list", "--json", folder=os.environ["MOMENTALIGN_DATA"]).stdout)
        assert {entry["state"] for entry in entries} == {"right"}
