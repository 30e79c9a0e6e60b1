"""A minute of fuzzing for every reader of files, in ``make test-all``; fuzz/run.py says how to run one for longer."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

RUN = Path(__file__).parents[2] / "fuzz" / "run.py"


@pytest.mark.long
@pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="needs atheris")
@pytest.mark.parametrize(
    "name", ["csv", "npz", "npy", "svmlight", "manifest", "description", "tensors", "torch", "journal"]
)
def test_a_minute_of_any_bytes_gives_errors_of_ours_only(tmp_path, name):
    command = [sys.executable, RUN, name, "-max_total_time=60", "-rss_limit_mb=4096", "-timeout=30"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Done" in done.stderr
