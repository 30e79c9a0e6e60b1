"""momentalign inside its peers: the tests of ``with_*.py``, run in an environment that has the peer."""

import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("program", "environment", "tests"),
    [("skada", "skada", 20), ("pot", "skada", 2), ("adapt", "adapt", 3), ("pytorch_adapt", "pytorch_adapt", 2)],
)
def test_what_works_inside(run_in_peer, program, environment, tests):
    # Neither our settings nor our fixtures: what they import is not installed there.
    alone = ["--noconftest", "--config-file", str(HERE / "inside.toml"), "-p", "no:cacheprovider"]
    printed = run_in_peer(environment, "-m", "pytest", "-q", *alone, str(HERE / f"with_{program}.py"))
    assert re.search(rf"^{tests} passed", printed, re.MULTILINE), printed
