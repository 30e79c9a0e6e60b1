"""The page of the sentiment experiment: every method on every task, ours beside the paper's.

Stands for Section 6.3 with Table 2 of Zellinger et al. (2019).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from momentalign.experiments.tables import compare
from momentalign.report.comparison import KEYS, Words, comparison_page, settings_words
from momentalign.report.page import read_result

__all__ = ["KEYS", "sentiment_page", "settings_words"]

WORDS = Words(
    title="Sentiment analysis of product reviews",
    before="nn",
    after="cmd",
    tested="Source → target; accuracy on the target's test reviews.",
)


def sentiment_page(result: Mapping[str, Any]) -> str:
    """Return the page of one result of ``momentalign reproduce sentiment``."""
    read_result(result, "sentiment", KEYS)
    return comparison_page(result, compare(result), WORDS)
