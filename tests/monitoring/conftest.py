from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from momentalign.monitoring.monitor import DriftMonitor


@pytest.fixture
def monitor(rng: np.random.Generator) -> Callable[..., DriftMonitor]:
    """A monitor of three normal features: ``monitor(reference=None, **settings)``."""

    def make(reference: object = None, **settings: object) -> DriftMonitor:
        rows = rng.normal(size=(1000, 3)) if reference is None else reference
        return DriftMonitor(rows, **{"window": 200, "n_resamples": 400, "random_state": 0, **settings})

    return make
