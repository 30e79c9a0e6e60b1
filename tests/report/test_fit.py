from __future__ import annotations

import copy
import html
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import momentalign as ma
from momentalign.errors import InvalidInputError
from momentalign.report.fit import KEYS, fit_page
from momentalign.report.page import percent
from momentalign.workflow.model import TableModel

HOSTILE = "<script>alert(1)</script>"


def summary(model: TableModel) -> dict[str, Any]:
    """What a fit says, as a file would hold it."""
    return json.loads(json.dumps(model.summary))


@pytest.fixture(scope="module")
def real(wines: tuple[pd.DataFrame, pd.DataFrame]) -> dict[str, Any]:
    options = {"label": "grape", "target_label": "grape", "method": "cmd", "max_epochs": 40, "device": "cpu"}
    return summary(ma.fit(*wines, **options))


@pytest.fixture
def portfolio(portfolio_of_wines: TableModel) -> dict[str, Any]:
    return summary(portfolio_of_wines)


@pytest.fixture
def result(real: dict[str, Any]) -> dict[str, Any]:
    return copy.deepcopy(real)


def rows_of(page: str, caption: str) -> list[list[str]]:
    (table,) = re.findall(rf"<caption>{caption}</caption>(.*?)</table>", page, re.S)
    rows = re.findall(r"<tr[^>]*>(.*?)</tr>", table, re.S)
    return [re.findall(r"<t[hd][^>]*>(?:<button[^>]*>)?(.*?)(?:</button>)?</t[hd]>", row, re.S) for row in rows]


def text_of(page: str, css: str) -> str:
    (text,) = re.findall(rf'<p class="{css}">(.*?)</p>', html.unescape(page))
    return text


def test_the_page_leads_with_the_answer_and_what_to_beware_of(portfolio: dict[str, Any]):
    estimate, gain = {"value": 0.8, "low": 0.7, "high": 0.9}, {"value": 0.021, "low": -0.01, "high": 0.05}
    decision = (
        "Adapted in part. Expected accuracy on the target 80 % (70 to 90), 2 points above. Plain models agree; so."
    )
    shares = [share | {"target": float(not code)} for code, share in enumerate(portfolio["shares"])]
    page = fit_page({**portfolio, "decision": decision, "estimate": estimate, "gain": gain, "shares": shares})
    lead = text_of(page, "lead").replace("\N{NO-BREAK SPACE}", " ")
    assert lead.startswith("Adapted in part: the expected accuracy on the target is 80 % (90 % interval 70 to 90), ")
    assert "+2.1 points (90 % interval -1.0 to +5.0) compared with not adapting" in lead
    assert f"On the labelled target rows the accuracy is {100 * portfolio['evaluation']['accuracy']:.1f} %." in lead
    assert text_of(page, "reason") == "Plain models agree; so."
    assert "for every target row; check the target" in text_of(page, "beware")
    assert "compared with not adapting" not in fit_page({**portfolio, "gain": None})


@pytest.mark.parametrize(
    ("decision", "done", "reason"),
    [
        ("Not adapted, as asked for.", "Not adapted, as asked for.", None),
        ("Not adapted: it costs 0.02 R2; so.", "Not adapted.", "It costs 0.02 R2; so."),
        ("", ".", None),
    ],
)
def test_a_decision_is_set_apart_from_its_reason(result: dict[str, Any], decision: str, done: str, reason: str | None):
    page = fit_page({**result, "decision": decision, "evaluation": None, "source_score": None})
    assert text_of(page, "lead") == done
    assert reason is None or text_of(page, "reason") == reason
    assert ('<p class="reason">' in page) == (reason is not None)


def test_the_candidates_of_a_portfolio_are_a_table(portfolio: dict[str, Any]):
    first = portfolio["portfolio"][0]
    rows = rows_of(fit_page(portfolio), "Candidates")
    assert len(rows) == 1 + len(portfolio["portfolio"])
    assert rows[1] == [
        first["name"],
        *(f"{first[part]:.3f}" for part in ("source_score", "estimated_target_score", "weight")),
    ]


def test_the_estimate_stands_beside_what_one_would_have_used(portfolio: dict[str, Any]):
    page = fit_page(portfolio)
    rows = rows_of(page, "Models and their accuracy")[1:]
    assert [row[0] for row in rows[1:]] == ["logistic regression", "gradient boosting", "not adapting", "this model"]
    estimate = portfolio["estimate"]
    assert rows[-1][2].startswith(f"{100 * estimate['value']:.0f}\N{NO-BREAK SPACE}% ({100 * estimate['low']:.0f} to ")
    assert rows[-1][4] == percent(portfolio["evaluation"]["accuracy"])
    assert rows[1][3] == percent(portfolio["baselines"][1]["source"])
    (bar,) = re.findall(r'class="ma-bar ma-mann" x="0.0%" width="([\d.]+)%"', rows[-1][1])
    assert float(bar) == pytest.approx(100 * estimate["value"], abs=0.01)
    whisker = re.findall(r'ma-whisker" x1="([\d.]+)%" x2="([\d.]+)%" y1="50%"', rows[-1][1])
    assert [float(end) for end in whisker[0]] == pytest.approx(
        [100 * estimate[end] for end in ("low", "high")], abs=0.01
    )


def test_details_are_folded(portfolio: dict[str, Any]):
    page = fit_page(portfolio)
    folded = re.findall(r'<section id="([a-z-]+)"[^>]* class="folded">', page)
    assert folded == ["all-candidates", "bounds-of-the-theory", "how-this-was-made"]
    assert page.count("<details>") == page.count("</details>") == len(folded)
    assert len(rows_of(page, "Parts of the bound")) == 1 + len(portfolio["bounds"]["rows"])


def test_columns_to_look_at_are_named(result: dict[str, Any]):
    result["columns"] = {
        "constant": [{"name": "fuel", "domain": "source"}],
        "unseen": [{"name": "city", "values": ["Graz"], "rows": 7}],
        "outside": [{"name": "age", "share": 0.25}],
    }
    page = html.unescape(fit_page(result))
    assert "Constant in the source alone: fuel." in page
    assert "Categories of 'city' that the source lacks, in 7 rows: Graz." in page
    assert "Target rows outside of the source's range: age (25\N{NO-BREAK SPACE}%)." in page


def test_target_labels_are_said_to_be_for_evaluation_only(result: dict[str, Any]):
    page = fit_page(result)
    assert "Target labels were used for evaluation only" in page
    assert percent(result["evaluation"]["accuracy"]) in page
    confusion = rows_of(page, "Target rows by true and predicted class")
    assert [[int(cell) for cell in row[1:]] for row in confusion[1:]] == result["evaluation"]["confusion"]


def test_classes_that_the_source_lacks_are_named(result: dict[str, Any]):
    result["evaluation"]["unseen"] = ["nebbiolo"]
    result["evaluation"]["confusion"].append([1, 2, 3])
    page = fit_page(result)
    assert "The source has no row of nebbiolo" in page
    assert rows_of(page, "Target rows by true and predicted class")[-1] == ["not in the source", "1", "2", "3"]


def test_of_many_classes_all_are_listed(result: dict[str, Any]):
    result["classes"] = [f"class {code}" for code in range(30)]
    one = result["shares"][0] | {"source": 1 / 30, "target": 1 / 30}
    result["shares"] = [one | {"class": name} for name in result["classes"]]
    page = fit_page(result)
    assert "Target rows by true" not in page
    assert len(rows_of(page, "Classes")) == 31


def test_values_are_shown_by_their_spread_and_error(wines: tuple[pd.DataFrame, pd.DataFrame]):
    options = {"label": "alcohol", "target_label": "alcohol", "regression": True, "method": "cmd", "max_epochs": 20}
    page = fit_page(summary(ma.fit(*wines, **options)))
    assert [row[0] for row in rows_of(page, "Values")[1:]] == ["source", "target, predicted"]
    assert "the root of the mean squared error" in page
    assert "softmax" not in page


@pytest.mark.parametrize("factor", [1.0, -1.0, 0.0])
def test_shifts_are_drawn_to_their_side(result: dict[str, Any], factor: float):
    for number, one in enumerate(result["shifted"]):
        one["mean_shift"] = factor * (2.0 - 0.1 * number)
    result["shifted"][-1]["source_deviation"] = 0.0
    rows = rows_of(fit_page(result), "Most shifted features")
    assert rows[1][2] == f"{factor * 2.0:+.2f}"
    assert re.findall(r'ma-bar ma-target" x="([\d.]+)%" width="([\d.]+)%"', rows[1][1]) == [
        ("0.0", "100.0" if factor else "0.3")
    ]
    assert rows[-1][-1] == "\N{EN DASH}"


def test_what_is_not_known_is_left_out(result: dict[str, Any]):
    result |= {"source_score": None, "evaluation": None}
    del result["seconds"]
    page = fit_page(result)
    for absent in ("held-out", "<dt>Time", "evaluation only", "compared-with-target-labels"):
        assert absent not in page.replace(result["decision"], "")
    assert not re.findall(r"\b(?:nan|None|inf)\b", page)


def test_notes_and_paths_are_shown(result: dict[str, Any]):
    result |= {"source": "a.csv", "target": "b.csv", "notes": ["column 'x' is left out."]}
    page = fit_page(result)
    assert "a.csv: 89 rows, labelled" in page
    assert "column &#39;x&#39; is left out." in page


def test_strings_are_escaped(result: dict[str, Any]):
    result |= {"label": HOSTILE, "source": HOSTILE, "target": HOSTILE, "notes": [HOSTILE], "decision": HOSTILE}
    result["classes"][0] = result["shares"][0]["class"] = result["shifted"][0]["name"] = HOSTILE
    result["evaluation"] |= {"label": HOSTILE, "unseen": [HOSTILE]}
    result["evaluation"]["confusion"].append([0, 0, 0])
    result["method"] = result["settings"]["device"] = HOSTILE
    assert fit_page(result).count("<script") == 1


@pytest.mark.parametrize("key", KEYS)
def test_a_result_that_lacks_something_is_refused(result: dict[str, Any], key: str):
    del result[key]
    with pytest.raises(InvalidInputError, match=f"result lacks {key}"):
        fit_page(result)


def test_a_part_that_lacks_something_is_a_lookup_error(result: dict[str, Any]):
    """So that a model of a damaged file says what is wrong with it."""
    del result["settings"]["device"]
    with pytest.raises(LookupError, match="device"):
        fit_page(result)


def test_the_page_is_small_deterministic_and_alone(result: dict[str, Any]):
    page = fit_page(result)
    assert page == fit_page(result)
    assert len(page.encode()) < 300_000
    assert set(re.findall(r"https?://[^\s\"'<]+", page)) == {"https://doi.org/10.1016/j.ins.2019.01.025"}
    assert not re.findall(r"(?:src|@import|url\()", page)
    ids = re.findall(r' id="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    pictures = re.findall(r'<svg class="ma-figure"[^>]*>', page)
    assert len(pictures) == len(result["units"]) == 5
    assert all(re.search(r'role="img" aria-label="[^"]{20,}"', picture) for picture in pictures)


def test_everyone_can_read_it(
    result: dict[str, Any], portfolio: dict[str, Any], page_faults: Callable[[Path, Path], list[str]], tmp_path: Path
):
    (tmp_path / "pages").mkdir()
    for name, found in (("fit", result), ("portfolio", portfolio)):
        (tmp_path / "pages" / f"{name}.html").write_text(fit_page(found), encoding="utf-8")
    assert page_faults(tmp_path / "pages", tmp_path / "profile") == []
