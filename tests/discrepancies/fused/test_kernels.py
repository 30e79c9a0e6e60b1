"""How loops are compiled; what they compute is compared with plain torch in test_cpu.py and test_symmetric.py."""

import numpy as np
import pytest

from momentalign.moments.loops import compiled, reordered


def quotient(one, other):
    return one / other


@pytest.mark.parametrize(("compile_it", "freedom"), [(compiled, {"contract"}), (reordered, {"contract", "reassoc"})])
def test_loops_take_no_more_freedom_than_they_say(compile_it, freedom):
    """Other threads run meanwhile, zero divides as in numpy, and what is compiled is kept beside its source."""
    found = compile_it(quotient)
    options = {"nogil": True, "error_model": "numpy", "fastmath": freedom}
    assert {name: found.targetoptions[name] for name in options} == options
    assert found.stats.cache_path is not None
    assert np.isinf(found(1.0, 0.0))
