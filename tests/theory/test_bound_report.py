from __future__ import annotations

import json
import sys

import pytest

from momentalign.errors import InvalidInputError
from momentalign.evaluation.bounds import KNOWN_PART, BoundReport, BoundRow


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
    with pytest.raises(ModuleNotFoundError, match=r"pip install momentalign\[tables\]"):
        report().to_frame()


def test_it_is_plain_json():
    found = report().to_dict()
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found["rows"][1]["value"] is None
    assert found["confidence"] == 0.95
