from __future__ import annotations

from typing import Any

import pytest

from momentalign.workflow.summary import verdict


def summary(**changes: Any) -> dict[str, Any]:
    def row(weight: float | None, source: float, target: float | None = None) -> dict[str, Any]:
        return {"weight": weight, "source_accuracy": source, "target_accuracy": target, "score": source}

    whole = {
        "rows": [row(0.0, 0.9, 0.6), row(1.0, 0.9, 0.8), row(None, 0.9, 0.8)],
        "distance": {"before": [1.0, 0.5], "after": [0.2, 0.1], "by_chance": 0.1},
        "shares": [{"class": "a", "target": 0.5}, {"class": "b", "target": 0.5}],
        "evaluation": None,
        "interrupted": False,
        "plain_kept": False,
    }
    return whole | changes


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "Alignment brings the hidden activations of the domains together: 1.50 apart (CMD) before, 0.30 after"),
        ({"distance": {"before": [1.0], "after": [2.0], "by_chance": 0.1}}, "Alignment does not bring"),
        ({"distance": {"before": [0.1], "after": [0.1], "by_chance": 0.1}}, "The domains look alike"),
        ({"distance": {"before": None, "after": [0.3], "by_chance": 0.1}}, "are 0.30 apart (CMD). The model"),
        ({"evaluation": {}}, "On the target it gets 80.0 % right, the plain network 60.0 %."),
        ({"interrupted": True}, "Training was interrupted"),
        ({"plain_kept": True}, "Alignment was left out: without it"),
        ({"shares": [{"class": "a", "target": 1.0}, {"class": "b", "target": 0.0}]}, "'a' for every target row"),
    ],
)
def test_the_sentences_follow_the_numbers(changes: dict[str, Any], words: str):
    assert words in verdict(summary(**changes))


def test_a_loss_on_the_source_is_said():
    costly = summary()
    costly["rows"][-1] |= {"source_accuracy": 0.8}
    assert "80.0 % of held-out source rows right, the plain network 90.0 %: alignment costs" in verdict(costly)
    assert "costs" not in verdict(summary())


def test_without_a_plain_network_nothing_is_said_of_it():
    alone = summary(evaluation={})
    del alone["rows"][0]
    assert "plain" not in verdict(alone)
