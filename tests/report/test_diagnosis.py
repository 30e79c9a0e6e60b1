"""The page and the figure of a diagnosis: they say what the result holds, and any name may be shown."""

from __future__ import annotations

import builtins
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from momentalign.evaluation.diagnose import Diagnosis, diagnose

HOSTILE = "<script>alert('x')</script>"


@pytest.fixture(scope="module")
def shifted() -> Diagnosis:
    rng = np.random.default_rng(7)

    def table(shift: float) -> pd.DataFrame:
        when = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.random(300) * 300 + 90 * shift, unit="D")
        lost = rng.random(300) < 0.05 + 0.3 * shift
        word = rng.choice(["a", "b"] if shift else ["b", "c"], 300)
        return pd.DataFrame(
            {HOSTILE: rng.normal(shift, 1, 300), "lost": np.where(lost, np.nan, 1.0), "word": word, "when": when}
        )

    return diagnose(table(0.0), table(1.0).assign(fresh=1), n_permutations=99)


@pytest.fixture(scope="module")
def alike() -> Diagnosis:
    rng = np.random.default_rng(8)
    return diagnose(rng.random((200, 3)), rng.random((150, 3)), n_permutations=99)


def test_the_page_is_written_and_returned(shifted: Diagnosis, tmp_path: Path):
    page = shifted.to_html(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == page == shifted.to_html()


def test_the_page_says_what_the_result_holds(shifted: Diagnosis):
    page, result = shifted.to_html(), shifted.result
    assert page.count("data-source=") == len(result["features"]) == 4
    for value in [entry["value"] for entry in result["cmd"]["orders"]]:
        assert f"{value:.4f}" in page
    assert f"{result['classifier']['auc']:.3f}" in page
    assert f"{100 * (1 - result['classifier']['error']):.1f}\xa0%" in page
    new = next(feature["new"] for feature in result["features"] if feature["name"] == "word")
    assert re.search(rf"the source does not have:\s*word {100 * new:.1f}\xa0%", page)
    assert re.search(r"<dt>In the target only</dt>\s*<dd>fresh</dd>", page)
    assert "2024-" in page


def test_the_page_is_self_contained_and_escapes_names(shifted: Diagnosis):
    page = shifted.to_html()
    assert page.count("<script") == 1
    assert "&lt;script&gt;" in page
    assert set(re.findall(r"https?://[^\s\"'<]+", page)) == {"https://doi.org/10.1016/j.ins.2019.01.025"}


def test_categories_alone_have_no_moments_and_empty_ones_no_drawing():
    source = pd.DataFrame({"word": ["a", "b"] * 50})
    found = diagnose(source, source.assign(word=["a"] * 100))
    assert found.result["cmd"] is None
    assert "Moments, order by order" not in found.to_html()
    assert len(found.plot().axes) == 3
    numbered = source.assign(number=np.arange(100.0))
    page = diagnose(numbered, numbered.assign(word=None), n_permutations=20).to_html()
    assert page.count("data-source=") == 1
    assert "word (missing values)" in page


def test_the_page_of_no_shift_leaves_out_what_there_is_not(alike: Diagnosis):
    page = alike.to_html()
    for section in ("Most different features", "Categories"):
        assert f">{section}</h2>" not in page
    assert "What it goes by" not in page


def test_a_thousand_features_stay_under_two_megabytes_and_more_are_left_out():
    rng = np.random.default_rng(2)
    source, target = rng.normal(size=(40, 1005)), rng.normal(0.5, 1.0, (40, 1005))
    names = [f"a feature with quite a long name {place}" for place in range(1005)]
    page = diagnose(source, target, feature_names=names, n_permutations=9).to_html()
    assert len(page.encode()) < 2_000_000
    assert page.count("data-source=") == 1000
    assert "5 features that differ less are left out here" in page


def test_values_beyond_the_calendar_and_all_floats_are_drawn():
    far = np.array([["0001-01-01"], ["9999-12-31"], ["30000-01-01"]] * 6, dtype="datetime64[s]")
    assert "days" in diagnose(far, far, n_permutations=9).to_html()
    huge = np.array([[-1.7e308], [0.0], [1.7e308]] * 6)
    assert "1.7e+308" in diagnose(huge, huge, n_permutations=9).to_html()


def test_neither_torch_nor_matplotlib_is_imported():
    script = "import sys, momentalign.evaluation.diagnose; print({'torch', 'matplotlib'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_the_plot_shows_distances_orders_and_features(shifted: Diagnosis, tmp_path: Path):
    figure = shifted.plot()
    titles = [axes.get_title() for axes in figure.axes]
    assert len(titles) == 5
    assert "word: categories" in titles[2:]
    figure.savefig(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 10_000


def test_a_plot_without_matplotlib_says_what_to_install(alike: Diagnosis, monkeypatch: pytest.MonkeyPatch):
    real = builtins.__import__

    def without(name: str, *rest: Any, **options: Any) -> Any:
        if name.partition(".")[0] == "matplotlib":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *rest, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ModuleNotFoundError, match=r"plot.*pip install"):
        alike.plot()
