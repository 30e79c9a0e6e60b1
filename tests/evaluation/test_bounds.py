"""The terms of the target error that a fitted model can be told, and their report."""

from __future__ import annotations

import json
import math
import sys
from typing import Any

import numpy as np
import pytest

from momentalign.errors import InvalidInputError
from momentalign.evaluation.bounds import KNOWN_PART, BoundReport, BoundRow, target_error_terms
from momentalign.theory.bounds import mean_deviation
from momentalign.theory.moment_bounds import GapBound, lipschitz_gap_bound

SURE, UNSURE = [0.9, 0.05, 0.05], [0.25, 0.35, 0.4]
OURS, CODES, THEIRS = [SURE, SURE, UNSURE, UNSURE] * 500, [0, 1, 2, 0] * 500, [UNSURE, UNSURE, SURE, UNSURE] * 250


def terms(source=OURS, codes=CODES, target=THEIRS, **changes: Any):
    given = {"cmd_terms": [0.2, 0.1, 0.05], "output_bound": GapBound(0.25, 0.125), "rows": "fresh"}
    return target_error_terms(source, codes, target, **{**given, **changes})


def test_the_source_error_is_the_part_predicted_wrong_and_at_most_hoeffdings():
    report = terms(confidence=0.9)
    assert report["source error"].value == 0.5
    deviation = mean_deviation(2000, confidence=0.9, statements=4 * 3 + 3)
    assert report["source error at most"].value == pytest.approx(0.5 + deviation)


def test_the_known_part_is_the_sum_of_its_parts():
    report = terms()
    parts = ("source error at most", "distance by moments", "deviation of moments", "smoothness")
    assert report[KNOWN_PART].value == pytest.approx(sum(report[name].value for name in parts))
    confidences = [np.max(part, axis=1) for part in (OURS, THEIRS)]
    bound = lipschitz_gap_bound(*confidences, 3, interval=(1 / 3, 1.0))
    assert report["distance by moments"].value == bound.polynomial
    assert report["smoothness"].value == bound.smoothness


def test_deviations_of_moments_count_both_samples_and_every_statement():
    apart = sum(mean_deviation(rows, interval=(-1.0, 1.0), statements=4 + 3) for rows in (2000, 1000))
    factor = (1 - 1 / 3) / 2 * math.pi / 4 / math.tan(math.pi / 4)  # Of degree 1.
    assert terms(cmd_terms=[0.1])["deviation of moments"].value == pytest.approx(factor * apart)


def test_what_probabilities_say_about_the_target():
    report = terms()
    unsure, rest = (3 * 0.6 + 0.1) / 4, (3 * 0.75 + 0.95) / 4
    assert report["error if calibrated"].value == pytest.approx(unsure)
    assert report["soft error at least"].value == pytest.approx(
        unsure - mean_deviation(1000, interval=(0.0, 2 / 3), statements=15)
    )
    assert report["soft error at most"].value == pytest.approx(
        rest + mean_deviation(1000, interval=(0.0, 1 / 3), statements=15)
    )


def test_few_rows_leave_the_trivial_bounds():
    report = terms([SURE, UNSURE], [1, 0], [SURE])
    assert report["source error at most"].value == 1.0
    assert report["soft error at least"].value == 0.0
    assert report["soft error at most"].value == 1.0


def test_shares_are_compared_class_by_class():
    # Labels 1/2, 1/4, 1/4; predictions 1/4, 0, 3/4.
    assert terms()["shift of class shares"].value == pytest.approx((0.25 + 0.25 + 0.5) / 2)


def test_moments_of_the_activations_are_reported_with_their_bound():
    report = terms(cmd_terms=[0.0, 0.25, 0.125])
    assert report["CMD"].value == 0.375
    assert report["polynomials of the activations"].value == 0.375
    # Of the first class: (0.9 + 0.9 + 0.25 + 0.25) / 4 in the source, (3 * 0.25 + 0.9) / 4 in the target.
    assert report["shift of an output"].value == pytest.approx(0.575 - 0.4125)
    assert report["shift of an output by moments"].value == 0.375
    assert "0.250 by the moments and 0.125 for the smoothness" in report["shift of an output by moments"].words
    assert terms(output_bound=None)["shift of an output by moments"].value is None


def test_kinds_of_fresh_and_of_seen_rows():
    fresh, seen = ({row.name: row.kind for row in terms(rows=rows)} for rows in ("fresh", "seen"))
    assert [name for name, kind in fresh.items() if kind == "unknown"] == ["labelling disagreement"]
    assert terms()["labelling disagreement"].value is None
    assert fresh[KNOWN_PART] == seen[KNOWN_PART] == "heuristic"
    changed = {"source error at most", "deviation of moments", "soft error at least", "soft error at most"}
    assert {name for name in fresh if fresh[name] != seen[name]} == changed
    assert {fresh[name] for name in changed} == {"bound"}
    assert {seen[name] for name in changed} == {"heuristic"}
    assert "trained or chosen on" in terms(rows="seen")["source error at most"].words


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rows": "held out"}, 'rows must be "fresh" or "seen", got \'held out\''),
        ({"confidence": 1.0}, "confidence must be a finite number above 0 and below 1"),
        ({"source": [[0.5, 0.5]], "codes": [0]}, "source_probabilities has 2 classes and target_probabilities 3"),
        ({"source": [[1.0]]}, r"source_probabilities must have shape \(rows, classes\) .* got \(1, 1\)"),
        ({"target": []}, r"target_probabilities must have shape"),
        ({"target": [[0.9, 0.9, 0.1]]}, "target_probabilities must be at least 0 and sum to 1"),
        ({"target": [[1.2, -0.1, -0.1]]}, "target_probabilities must be at least 0 and sum to 1"),
        ({"target": [[math.nan, 0.5, 0.5]]}, "target_probabilities must be at least 0 and sum to 1"),
        ({"codes": [0]}, r"source_codes must be 2000 whole numbers, got shape \(1,\)"),
        ({"codes": [0.0] * 2000}, "source_codes must be 2000 whole numbers, .* of float64"),
        ({"codes": [3] * 2000}, "source_codes must be class numbers from 0 to 2, got 3 to 3"),
        ({"codes": [-1] * 2000}, "source_codes must be class numbers from 0 to 2, got -1 to -1"),
        ({"cmd_terms": []}, "degree must be at least 1"),
    ],
)
def test_arguments_are_checked(changes: dict[str, Any], message: str):
    with pytest.raises(InvalidInputError, match=message):
        terms(**changes)


def report(value: float = 0.5) -> BoundReport:
    rows = (
        BoundRow("source error", "ε_S", 0.25, "measured", "part of 4 rows"),
        BoundRow("labelling disagreement", "E|g - g'|", None, "unknown", "not to be known"),
        BoundRow(KNOWN_PART, "ε_T", value, "heuristic", "their sum"),
    )
    return BoundReport(rows, 0.95)


def test_it_prints_as_a_table():
    assert str(report()).splitlines()[:3] == [
        "source error             0.250  measured   part of 4 rows",
        "labelling disagreement       ?  unknown    not to be known",
        "known part of Theorem 1  0.500  heuristic  their sum",
    ]


@pytest.mark.parametrize(("value", "vacuous"), [(0.99, False), (1.0, True), (2.5, True)])
def test_a_vacuous_bound_is_called_so(value: float, *, vacuous: bool):
    words = report(value).conclusion
    assert f"{value:.2f}" in words
    assert ("vacuous" in words) == vacuous
    assert "cannot be known without target labels" in words
    assert str(report(value)).endswith(words)


def test_rows_are_found_by_name():
    assert report()["source error"].value == 0.25
    assert next(row.name for row in report()) == "source error"
    with pytest.raises(InvalidInputError, match="there is no row 'risk'; the rows are source error, labelling"):
        report()["risk"]


def test_a_frame_has_a_line_per_row():
    frame = report().to_frame()
    assert list(frame.columns) == ["name", "symbol", "value", "kind", "words"]
    assert frame["value"].isna().tolist() == [False, True, False]


def test_without_pandas_the_frame_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ModuleNotFoundError, match="needs pandas"):
        report().to_frame()


def test_it_is_plain_json():
    found = report().to_dict()
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found["rows"][1]["value"] is None
    assert found["confidence"] == 0.95
