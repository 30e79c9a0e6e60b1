from __future__ import annotations

import threading
import time
from contextlib import closing

import pytest

from momentalign.workflow.grid import cores, in_order


def test_results_come_in_order_whichever_part_is_slow():
    assert list(in_order(lambda part: (time.sleep(0.02 * (part == 0)), part)[1], range(6), threads=3)) == list(range(6))


def test_parts_are_read_no_further_ahead_than_there_are_threads():
    read = []

    def parts():
        for part in range(10):
            read.append(part)
            yield part

    with closing(in_order(lambda part: part, parts(), threads=2)) as results:
        assert next(results) == 0
        assert read == [0, 1, 2]


def test_the_error_of_the_first_part_that_fails_is_raised():
    def work(part: int) -> int:
        if part >= 2:
            raise ValueError(f"part {part}")
        return part

    with pytest.raises(ValueError, match="part 2"):
        list(in_order(work, range(5), threads=4))
    assert threading.active_count() < 50


def test_there_is_a_core():
    assert cores() >= 1
