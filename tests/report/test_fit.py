from __future__ import annotations

import copy
import html
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_wine

import momentalign as ma
from momentalign.errors import InvalidInputError
from momentalign.report.fit import KEYS, fit_page
from momentalign.report.page import percent

HOSTILE = "<script>alert(1)</script>"
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def summary(**options: Any) -> dict[str, Any]:
    """What a fit of wines to shifted wines says, as a file would hold it."""
    frame, codes = load_wine(return_X_y=True, as_frame=True)
    random = np.random.default_rng(0)
    order = random.permutation(len(frame))
    frame["grape"] = np.array(["barolo", "grignolino", "barbera"])[codes.to_numpy()]
    numbers = frame.columns[:13]
    shifted = frame.copy()
    shifted[numbers] *= random.uniform(0.8, 1.25, 13)
    shifted[numbers] += frame[numbers].std() * random.normal(0, 0.7, 13)
    model = ma.fit(frame.iloc[order[:89]], shifted.iloc[order[89:]], **options)
    return json.loads(json.dumps(model.summary))


@pytest.fixture(scope="module")
def real() -> dict[str, Any]:
    return summary(label="grape", target_label="grape", method="cmd", max_epochs=300, device="cpu")


@pytest.fixture(scope="module")
def portfolio() -> dict[str, Any]:
    return summary(label="grape", target_label="grape")


@pytest.fixture
def result(real: dict[str, Any]) -> dict[str, Any]:
    return copy.deepcopy(real)


def rows_of(page: str, caption: str) -> list[list[str]]:
    (table,) = re.findall(rf"<caption>{caption}</caption>(.*?)</table>", page, re.S)
    rows = re.findall(r"<tr[^>]*>(.*?)</tr>", table, re.S)
    return [re.findall(r"<t[hd][^>]*>(?:<button[^>]*>)?(.*?)(?:</button>)?</t[hd]>", row, re.S) for row in rows]


def test_the_page_leads_with_the_decision_and_what_to_beware_of(result: dict[str, Any]):
    result["shares"] = [share | {"target": float(not code)} for code, share in enumerate(result["shares"])]
    page = html.unescape(fit_page(result))
    assert re.findall(r'<p class="lead">(.*?)</p>', page) == [result["decision"]]
    (warning,) = re.findall(r'<p class="beware">(.*?)</p>', page)
    assert "for every target row; check the target" in warning


def test_the_candidates_of_a_portfolio_are_a_table(portfolio: dict[str, Any]):
    first = portfolio["portfolio"][0]
    page = fit_page({**portfolio, "estimate": {"value": 0.8, "low": 0.7, "high": 0.9}})
    rows = rows_of(page, "Candidates")
    assert len(rows) == 1 + len(portfolio["portfolio"])
    assert rows[1] == [
        first["name"],
        *(f"{first[part]:.3f}" for part in ("source_score", "estimated_target_score", "weight")),
    ]
    assert "80\N{NO-BREAK SPACE}%</strong>" in page
    for absent in ("Hidden units", "central moment", "sigmoid"):
        assert absent not in page


def test_the_estimate_stands_beside_what_one_would_have_used(portfolio: dict[str, Any]):
    rows = rows_of(fit_page(portfolio), "Models and their accuracy")[1:]
    assert [row[0] for row in rows[1:]] == ["logistic regression", "gradient boosting", "not adapting", "this model"]
    estimate = portfolio["estimate"]
    assert rows[-1][2].startswith(f"{100 * estimate['value']:.0f}\N{NO-BREAK SPACE}% ({100 * estimate['low']:.0f} to ")
    assert rows[-1][3] == percent(portfolio["evaluation"]["accuracy"])
    assert rows[1][1] == percent(portfolio["baselines"][1]["source"])


def test_the_difference_to_not_adapting_is_shown_where_it_is_known(portfolio: dict[str, Any]):
    assert "difference" not in fit_page({**portfolio, "gain": None})
    page = fit_page({**portfolio, "gain": {"value": 0.021, "low": -0.01, "high": 0.05}})
    assert "<strong>+2.1 points</strong><span>expected difference to not adapting</span>" in page
    assert "90 % interval: -1.0 to +5.0" in page


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


def test_without_target_labels_nothing_is_said_of_accuracy_there(result: dict[str, Any]):
    result["evaluation"] = None
    page = fit_page(result)
    assert "evaluation only" not in page
    assert "compared-with-target-labels" not in page


def test_classes_that_the_source_lacks_are_named(result: dict[str, Any]):
    result["evaluation"]["unseen"] = ["nebbiolo"]
    result["evaluation"]["confusion"].append([1, 2, 3])
    page = fit_page(result)
    assert "The source has no row of nebbiolo" in page
    assert rows_of(page, "Target rows by true and predicted class")[-1] == ["not in the source", "1", "2", "3"]


def test_many_classes_are_listed_not_drawn(result: dict[str, Any]):
    result["classes"] = [f"class {code}" for code in range(30)]
    one = result["shares"][0] | {"source": 1 / 30, "target": 1 / 30}
    result["shares"] = [one | {"class": name} for name in result["classes"]]
    page = fit_page(result)
    assert "Shares of classes:" not in page
    assert "Target rows by true" not in page
    assert len(rows_of(page, "Classes")) == 31


def test_numbers_are_shown_by_their_spread_and_error():
    page = fit_page(summary(label="alcohol", target_label="alcohol", regression=True, method="cmd", max_epochs=20))
    assert [row[0] for row in rows_of(page, "Values")[1:]] == ["source", "target, predicted"]
    assert "the root of the mean squared error" in page
    for words in ("Predicted classes", "softmax"):
        assert words not in page


@pytest.mark.parametrize("sign", [1, -1])
def test_shifts_to_one_side_are_drawn(result: dict[str, Any], sign: int):
    for number, one in enumerate(result["shifted"]):
        one["mean_shift"] = sign * (2.0 - 0.1 * number)
    result["shifted"][-1]["source_deviation"] = 0.0
    page = fit_page(result)
    assert f"{sign * 2.0:+.2f}" in page
    assert rows_of(page, "Most shifted features")[-1][-1] == "\N{EN DASH}"


def test_no_shift_at_all_is_drawn_too(result: dict[str, Any]):
    for one in result["shifted"]:
        one["mean_shift"] = 0.0
    assert "+0.00" in fit_page(result)


def test_what_is_not_known_is_left_out(result: dict[str, Any]):
    result |= {"source_score": None, "evaluation": None}
    del result["seconds"]
    page = fit_page(result)
    assert "held-out" not in page.replace(result["decision"], "")
    assert "<dt>Time" not in page
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


def test_the_page_is_small_deterministic_and_alone(result: dict[str, Any]):
    page = fit_page(result)
    assert page == fit_page(result)
    assert len(page.encode()) < 300_000
    assert set(re.findall(r"https?://[^\s\"'<]+", page)) == {"https://doi.org/10.1016/j.ins.2019.01.025"}
    assert not re.findall(r"(?:src|@import|url\()", page)
    ids = re.findall(r' id="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    pictures = re.findall(r'<svg class="ma-figure"[^>]*>', page)
    assert len(pictures) == 1 + 1 + 1 + 5
    assert all(re.search(r'role="img" aria-label="[^"]{20,}"', picture) for picture in pictures)


@pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine to open the page with")
def test_a_browser_finds_nothing_to_complain_about(result: dict[str, Any], tmp_path: Path):
    watch = "<script>window.problems = []; addEventListener('error', (e) => problems.push(e.message));</script>"
    report = """<script>
    document.querySelector("thead button").click();
    const wide = document.documentElement.scrollWidth > innerWidth;
    const outcome = JSON.stringify({problems, wide});
    document.body.append(Object.assign(document.createElement("pre"), {id: "outcome", textContent: outcome}));
    </script>"""
    page = fit_page(result).replace("<head>", f"<head>{watch}", 1).replace("</body>", f"{report}</body>", 1)
    (tmp_path / "page.html").write_text(page, encoding="utf-8")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--window-size=500,900", "--virtual-time-budget=2000"]
    command = [BROWSER, *flags, f"--user-data-dir={tmp_path}", "--dump-dom", f"file://{tmp_path}/page.html"]
    dom = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    (outcome,) = re.findall(r'<pre id="outcome">(.*?)</pre>', dom)
    assert json.loads(outcome) == {"problems": [], "wide": False}


def test_everyone_can_read_it(
    result: dict[str, Any], portfolio: dict[str, Any], page_faults: Callable[[Path, Path], list[str]], tmp_path: Path
):
    (tmp_path / "pages").mkdir()
    for name, found in (("fit", result), ("portfolio", portfolio)):
        (tmp_path / "pages" / f"{name}.html").write_text(fit_page(found), encoding="utf-8")
    assert page_faults(tmp_path / "pages", tmp_path / "profile") == []
