"""Attempts to break momentalign, a table for each kind; half of them here, all in ``make test-all``."""

from __future__ import annotations

import itertools

import pytest
from tests.attacks.attempts import KINDS, broken

# Of these, one in so many is made: environments are processes of their own, the others are many.
SLOW = {
    "environment": 11,
    "monitors and moments": 9,
    "manifests with right digests": 5,
    "readers of tables": 3,
    "parameters": 9,
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", ["quick", pytest.param("all", marks=pytest.mark.long)])
@pytest.mark.parametrize("kind", KINDS)
def test_every_attempt_is_held(kind, part):
    found = KINDS[kind]()
    if part == "quick":
        found = dict(itertools.islice(found.items(), None, None, SLOW.get(kind, 2)))
    assert broken(found) == {}


def test_what_breaks_is_seen(tmp_path):
    def lines(folder):
        raise ValueError("two\nlines")

    def wrong(folder):
        raise AssertionError("another value")

    assert list(broken({"foreign": lines, "wrong": wrong, "sound": lambda folder: None})) == ["foreign", "wrong"]
