"""The compiled loops give what the Python gives that they are written in, with Python's own index checks."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

SCRIPT = """
import json
import numpy as np
import momentalign as ma

random = np.random.default_rng(0)
found = []
for order in (1, 3, 5, 6):
    for rows, width in ((1, 2), (7, 2), (261, 1), (2, 515)):
        sample = random.gamma(2.0, size=(rows, width)).astype(np.float32)
        moments = ma.Moments(order, min(order, 2)).update(sample).update(sample + 1.0, weights=np.arange(rows) + 1.0)
        found.append([moments.mean.tolist(), moments.central.tolist()])
print(json.dumps(found))
"""


def run(**environment):
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_loops_are_the_python_they_are_written_in():
    plain = run(NUMBA_DISABLE_JIT="1")
    assert len(plain) == 16
    for one, other in zip(plain, run(), strict=True):
        for ours, theirs in zip(one, other, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-11, atol=1e-13)


def test_loops_keep_their_order_and_divide_as_numpy_does():
    """Other threads run meanwhile; what is compiled is kept beside its source."""
    from momentalign.moments.loops import compiled

    found = compiled(quotient)
    options = {"nogil": True, "error_model": "numpy", "fastmath": {"contract"}}
    assert {name: found.targetoptions[name] for name in options} == options
    assert found.stats.cache_path is not None
    assert np.isinf(found(1.0, 0.0))


def quotient(one, other):
    return one / other


def test_a_loop_sees_nan_and_keeps_it():
    from momentalign.moments.loops import centre

    mean, rest, sums = np.empty(1), np.empty(1), np.empty((1, 1))
    centre(2.0, np.zeros(1), np.full((2, 1), np.nan), mean, rest, sums)
    assert np.isnan(sums).all()
    assert mean[0] != pytest.approx(0.0)
