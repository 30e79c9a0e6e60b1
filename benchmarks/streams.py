"""Moments of a stream against moments of the whole array: 1,000,000 x 50 in batches of 10,000 rows, orders 2 to 5.

The bar is the library's own fast path for arrays in memory (``moments/loops.py``, one read about a rough mean) and, for
comparison, two passes in numpy, each on one thread and in turns with the stream.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

import momentalign as ma
from benchmarks.figure import Figure, interleaved
from momentalign.moments.loops import sample_statistics

ROWS, WIDTH, BATCH, ORDER = 1_000_000, 50, 10_000, 5


def figures() -> Iterator[Figure]:
    """Yield how fast the stream is, as a part of the speed of each of the two, and how far off its moments are."""
    for dtype in (np.float64, np.float32):
        sample = np.random.default_rng(0).random((ROWS, WIDTH)).astype(dtype)
        functions = {
            "stream": lambda sample=sample: stream(sample),
            "whole": lambda sample=sample: whole(sample),
            "two passes": lambda sample=sample: two_passes(sample),
        }
        seconds = interleaved(functions, repeats=5)
        name = np.dtype(dtype).name
        yield Figure("streams", f"{name}, speed over the fast path", seconds["whole"] / seconds["stream"], at_least=0.7)
        yield Figure("streams", f"{name}, speed over numpy", seconds["two passes"] / seconds["stream"], at_least=3.0)
        error = float(np.abs(stream(sample).central - two_passes(sample)).max())
        yield Figure("streams", f"{name}, largest error of a moment", error, at_most=1e-10)


def stream(sample: NDArray[Any]) -> ma.Moments:
    """Batch by batch."""
    moments = ma.Moments(ORDER)
    for start in range(0, ROWS, BATCH):
        moments.update(sample[start : start + BATCH])
    return moments


def whole(sample: NDArray[Any]) -> NDArray[np.float64]:
    """The statistics behind ``ma.cmd``, in one call."""
    shift, moments = np.empty(WIDTH, sample.dtype), np.empty((ORDER + ORDER % 2, WIDTH))
    sample_statistics(sample, 1.0, shift, moments)
    return moments


def two_passes(sample: NDArray[Any]) -> NDArray[np.float64]:
    """The mean, then powers of the centred rows, some rows at a time so that they stay in the cache."""
    mean = sample.mean(0, dtype=np.float64)
    sums = np.zeros((ORDER - 1, WIDTH))
    for start in range(0, ROWS, BATCH):
        centred = sample[start : start + BATCH] - mean
        power = centred.copy()
        for order in range(2, ORDER + 1):
            power *= centred
            sums[order - 2] += power.sum(0)
    return sums / ROWS
