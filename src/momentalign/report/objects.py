"""The page of the experiment on objects: every method on every task, ours beside the paper's.

Stands for Section 6.4 with Table 4 of Zellinger et al. (2019).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from momentalign.experiments.paper_results import OBJECTS
from momentalign.experiments.tables import compare
from momentalign.report.comparison import KEYS, Words, comparison_page
from momentalign.report.page import read_result

__all__ = ["objects_page"]

WORDS = Words(
    title="Object recognition on Office-31",
    before="nn",
    after="fp-cmd",
    tested="Source → target; accuracy on all pictures of the target, whose labels were not used.",
)


def objects_page(result: Mapping[str, Any]) -> str:
    """Return the page of one result of ``momentalign reproduce objects``."""
    read_result(result, "objects", KEYS)
    return comparison_page(result, compare(result, OBJECTS), WORDS)
