"""A disk that is full, read-only or gone: the model before still loads, nothing is left, one line names the path.

The limits are real ones: a quota of the system on the size of files, a small disk in memory, a folder without rights.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from momentalign.workflow.model import load_model

pytestmark = pytest.mark.skipif(os.name != "posix", reason="limits and rights of POSIX")

GOLDEN = Path(__file__).parents[1] / "golden" / "0.1.0"

# Saves a model, a checkpoint, weights, a page and predictions under one limit after the other; prints what was said.
WRITERS = """
import json, os, resource, shutil, signal, sys
from pathlib import Path
import torch
import momentalign as ma
from momentalign.errors import MomentAlignError
from momentalign.report.page import write_page
from momentalign.training.deep.checkpoint import SafetensorsIO
from momentalign.workflow.model import load_model
from momentalign.workflow.predict import predict_file

golden, place = Path(sys.argv[1]), Path(sys.argv[2])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
estimator, table, checkpoint = ma.load(golden / "labels"), load_model(golden / "table"), SafetensorsIO()
state = checkpoint.load_checkpoint(golden / "deep" / "last")
estimator.coefs_[0] = estimator.coefs_[0] + 1  # another model than the one that is there
table.estimator.coefs_[0] = table.estimator.coefs_[0] + 1
network = torch.nn.Linear(3, 400)
WRITE = {
    "classifier": lambda path: estimator.save(path),
    "table": table.save,
    "deep": lambda path: checkpoint.save_checkpoint(state, path),
    "network": lambda path: ma.save_weights(network, path),
    "page": lambda path: write_page("<p>text</p>" * 900, path),
    "predictions": lambda path: predict_file(table, place / "target.csv", out=path.with_suffix(".csv")),
}

def content(folder):
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}

def attempt(name, path):
    before = content(path.parent)
    try:
        WRITE[name](path)
        said = "written"
    except MomentAlignError as error:
        said = str(error)
    except BaseException as error:
        said = f"escaped: {error!r}"
    return {"name": name, "path": str(path), "said": said, "same": content(path.parent) == before}

ATTEMPTS
print(json.dumps(found))
"""
QUOTA = """
found, hard = [], resource.getrlimit(resource.RLIMIT_FSIZE)[1]
for name in WRITE:
    shutil.rmtree(place / "old", ignore_errors=True)
    (place / "old").mkdir()
    path = place / "old" / name
    WRITE[name](path)
    sizes = sorted({file.stat().st_size for file in (place / "old").rglob("*") if file.is_file()})
    estimator.coefs_[0] += 1
    table.estimator.coefs_[0] += 1
    steps = [part * size // 4 for size in sizes for part in range(4)] + [sizes[-1] - 1]
    for limit in sorted(set(steps)):
        for where in (path, place / "new" / name):
            where.parent.mkdir(exist_ok=True)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
            found.append({"limit": limit, "most": sizes[-1], **attempt(name, where)})
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
            shutil.rmtree(place / "new", ignore_errors=True)
"""
ONCE = """
found = [attempt(name, Path(sys.argv[3]) / name) for name in reversed(WRITE)]  # models, that make folders, last
"""
TABLE = "id,spend,visits,age,city\n" + "c1,0.5,0.25,0.125,Linz\n" * 300


def _run(attempts, place, *arguments, prefix=()):
    (place / "target.csv").write_text(TABLE)
    command = [*prefix, sys.executable, "-W", "ignore", "-c", WRITERS.replace("ATTEMPTS", attempts), GOLDEN, place]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def _check(entry, *reasons):
    assert any(f"({reason})" in entry["said"] for reason in reasons), entry
    assert entry["same"], entry
    assert entry["path"].rpartition(".")[0] in entry["said"] or entry["path"] in entry["said"]
    assert "\n" not in entry["said"]


def test_a_quota_that_is_reached_at_any_write_leaves_the_old_and_nothing_new(tmp_path):
    found = _run(QUOTA, tmp_path)
    assert {entry["name"] for entry in found} == {"classifier", "table", "deep", "network", "page", "predictions"}
    refused = [entry for entry in found if entry["said"] != "written"]
    assert len(refused) > 50
    for entry in refused:
        _check(entry, "File too large")
    # Limits below the largest file leave no room for it, wherever in the order of writing it comes.
    assert all(entry["said"] != "written" for entry in found if entry["limit"] < entry["most"] // 2)


def _can_mount():
    try:
        return subprocess.run(["unshare", "-rm", "true"], capture_output=True).returncode == 0
    except OSError:
        return False


@pytest.mark.skipif(not _can_mount(), reason="needs the right to mount a disk of its own")
@pytest.mark.parametrize(
    ("options", "filled", "reason"),
    [
        pytest.param("size=64k", 60_000, "No space left on device", marks=pytest.mark.long),
        ("size=64k,ro", 0, "Read-only file system"),
    ],
)
def test_a_disk_that_is_full_or_read_only_is_named(tmp_path, options, filled, reason):
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = f'mount -t tmpfs -o {options} none "$0" && {{ head -c {filled} /dev/zero > "$0/ballast"; "$@"; }}'
    if not filled:
        mount = f'mount -t tmpfs -o {options} none "$0" && "$@"'
    prefix = ["unshare", "-rm", "sh", "-c", mount, disk]
    for entry in _run(ONCE, tmp_path, disk, prefix=prefix):
        if filled and entry["name"] in ("classifier", "network", "predictions"):
            continue  # some kilobytes still fit
        _check(entry, reason)


@pytest.mark.long
def test_a_folder_that_is_gone_is_named_or_made_again(tmp_path):
    for entry in _run(ONCE, tmp_path, tmp_path / "gone" / "far"):
        if entry["name"] in ("classifier", "table", "deep"):
            assert entry["said"] == "written"
        else:
            _check(entry, "No such file or directory")


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("setpriv") is None, reason="needs root to give its rights up")
def test_a_folder_without_the_right_to_write_is_named(tmp_path):
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o555)
    for parent in (tmp_path, *tmp_path.parents):
        if "pytest" in parent.name:
            parent.chmod(0o755)
    keep_no_right = ["setpriv", "--bounding-set", "-all", "--inh-caps", "-all", "--reuid", "0", "--clear-groups"]
    for entry in _run(ONCE, tmp_path, closed, prefix=keep_no_right):
        _check(entry, "Permission denied")


@pytest.mark.long
def test_a_failed_save_by_a_command_leaves_the_model_before(tmp_path):
    """The command line under a quota: exit code 2, one line, and the old model predicts on."""
    model = tmp_path / "model"
    shutil.copytree(GOLDEN / "table", model)
    lines = ["a,b,y", *(f"{row % 7},{row % 5},{'yes' if row % 3 else 'no'}" for row in range(60))]
    (tmp_path / "rows.csv").write_text("\n".join(lines) + "\n")
    before = {file.name: file.read_bytes() for file in model.iterdir()}
    program = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
        "from momentalign.workflow import fit; from momentalign.report import fit; "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000)); from momentalign.cli import main; main()"
    )
    arguments = ["fit", "rows.csv", "rows.csv", "--label", "y", "--max-epochs", "2", "--method", "none"]
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments, "--out", model, "--no-open"], cwd=tmp_path, capture_output=True,
        text=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert f"momentalign: the model cannot be written to {model} (File too large)" in done.stderr
    assert "Traceback" not in done.stderr
    assert {file.name: file.read_bytes() for file in model.iterdir()} == before
    load_model(model)
