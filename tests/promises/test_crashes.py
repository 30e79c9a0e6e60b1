"""Whatever kills a run, at whatever moment: started again it ends with the same bits, and nothing is left over.

SIGTERM and ^C are asked, not killed: what is finished is saved, and the process leaves with 143 or 130 within seconds.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from momentalign.journal import Journal
from momentalign.workflow.model import load_model

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals and fork are of POSIX")

MODEL = Path(__file__).parents[1] / "golden" / "0.1.0" / "table"
WORKER = Path(__file__).with_name("crash_worker.py")
FILES = {
    "search": {"search.jsonl", "model/manifest.json"},
    "fit": {"source.csv", "target.csv", "model/manifest.json", "model/model_card.md", "model/report.html"},
    "reproduce": {"momentalign-sentiment.jsonl", "momentalign-sentiment.json", "momentalign-sentiment.html"},
}
FEW = 4  # kills in the ordinary run
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def disturbed(tmp_path_factory):
    """What became of all kinds of runs that were killed so many times each."""
    found = {}

    def run(kills):
        if kills not in found:
            # Deep runs are killed in test_deep_resume.py, reproductions in tests/test_cli.py too.
            kinds = [kind for kind in FILES if kills > FEW or kind in ("search", "fit")]
            kinds = [kind for kind in kinds if kind != "reproduce" or "MOMENTALIGN_DATA" in os.environ]
            folder = tmp_path_factory.mktemp("disturbed")
            command = [sys.executable, WORKER, folder, str(kills), *kinds]
            done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT)
            assert done.returncode == 0, done.stderr
            found[kills] = json.loads(done.stdout.splitlines()[-1])
        return found[kills]

    return run


LONG_RUN = [pytest.mark.long, pytest.mark.timeout(3600)]


@pytest.mark.parametrize(
    ("kind", "kills"),
    [
        ("search", FEW),
        ("fit", FEW),
        *[pytest.param(kind, 50, marks=LONG_RUN) for kind in ("search", "fit")],
        pytest.param("reproduce", 50, marks=[*LONG_RUN, pytest.mark.data]),
    ],
)
def test_killed_at_random_moments_a_run_ends_with_the_same_bits(disturbed, kind, kills):
    found = disturbed(kills)[kind]
    assert found["kills"] == kills
    assert FILES[kind] <= set(found["files"])
    assert not [name for name in found["files"] if Path(name).name.startswith(".")]
    assert found["different"] == []


@pytest.fixture(scope="module")
def commands(tmp_path_factory):
    """Files that keep every command busy for minutes, and a model."""
    folder = tmp_path_factory.mktemp("commands")
    rng = np.random.default_rng(0)
    for name in ("source", "target"):
        frame = pd.DataFrame(rng.normal(size=(20_000, 4)), columns=list("abcd"))
        frame.assign(y=np.where(frame["a"] > 0, "yes", "no")).to_csv(folder / f"{name}.csv", index=False)
    shutil.copytree(MODEL, folder / "model")
    return folder


SEARCH = """
import numpy as np, sys
from momentalign import MANNClassifier, ReverseValidationSearch
X = np.random.default_rng(0).normal(size=(4000, 5))
model = MANNClassifier((50,), max_epochs=30, patience=None, batch_size=30)
grid = {"weight": [0.1 * step for step in range(10_000)]}
ReverseValidationSearch(model, grid, random_state=0, resume="search.jsonl").fit(X, X[:, 0] > 0, X + 1.0)
"""
COMMAND = ["-m", "momentalign"]
# name -> command, and the file by which one sees that it is at work
LONG = {
    "fit": ([*COMMAND, "fit", "source.csv", "target.csv", "--label", "y", "--seeds", "100", "--out", "cut"], None),
    "predict": ([*COMMAND, "predict", "model", "many.csv", "--out", "p.csv"], ".p.csv.*"),
    "demo": ([*COMMAND, "demo", "--seeds", "1000", "--no-open"], None),
    "reproduce": (
        [*COMMAND, "reproduce", "sentiment", "--methods", "mmd", "--seeds", "9", "--no-open"],
        "momentalign-sentiment.jsonl",
    ),
    "search": (["-c", SEARCH], "search.jsonl"),
}


# The ordinary run has other commands' ^C in tests/test_cli.py and tests/test_table_commands.py.
@pytest.mark.parametrize(
    ("name", "number"),
    [
        pytest.param(
            name,
            number,
            marks=[
                *([pytest.mark.data] if name == "reproduce" else []),
                *([] if (name, number) == ("fit", signal.SIGTERM) else [pytest.mark.long]),
            ],
        )
        for name in LONG
        for number in (signal.SIGTERM, signal.SIGINT)
    ],
)
def test_asked_to_stop_a_command_leaves_within_seconds_and_nothing_half_written(commands, tmp_path, name, number):
    arguments, sign = LONG[name]
    if name == "predict":
        (commands / "many.csv").write_text("id,spend,visits,age,city\n" + "c1,0.5,0.25,0.125,Linz\n" * 4_000_000)
    before = {path.name for path in commands.iterdir()}
    with (tmp_path / "output").open("w") as output:
        process = subprocess.Popen(
            [sys.executable, *arguments], cwd=commands, env=ENVIRONMENT, stdout=output, stderr=output
        )
    _wait_for_work(process, commands, sign)
    seconds = _stop(process, number)
    text = (tmp_path / "output").read_text()
    assert process.returncode in _codes(name, number), text
    assert seconds < 5.0
    assert name == "search" or text.splitlines()[-1].startswith("momentalign: interrupted")
    assert name == "search" or "Traceback" not in text
    for path in [path for path in commands.iterdir() if path.name not in before]:
        _check_whole(path)


def _stop(process, number):
    """Send a signal and return the seconds of computing until the end; other processes may slow the clock."""
    before, deadline = _cpu_seconds(process.pid), time.monotonic() + 60
    process.send_signal(number)
    used = before
    while process.poll() is None and time.monotonic() < deadline:
        with suppress(OSError, IndexError):
            used = _cpu_seconds(process.pid)
        time.sleep(0.01)
    process.kill()
    process.wait()
    return used - before


def _check_whole(path):
    """What a command may leave: a journal whose every line is whole, or the model of what was finished."""
    if path.suffix == ".jsonl":
        identity = json.loads(path.read_bytes().splitlines()[0])["identity"]
        Journal(path, identity).done()
        path.unlink()
    else:
        assert path.name == "cut"
        load_model(path)
        shutil.rmtree(path)


def _codes(name, number):
    """A script that does not listen is ended by the signal itself, which a shell calls 143 or 130 as well."""
    return (-number, 128 + number) if name == "search" else (128 + number,)


def _wait_for_work(process, folder, sign):
    """Wait until a command is past its imports and at work: it has a file, or has used some seconds of a core."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        if sign is None and _cpu_seconds(process.pid) > 6.0:
            return
        if sign is not None and list(folder.glob(sign)):
            return
        time.sleep(0.05)
    process.kill()
    raise AssertionError(f"{process.args} did not begin")


def _cpu_seconds(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
