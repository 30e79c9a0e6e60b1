from __future__ import annotations

import builtins
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from momentalign.errors import InvalidInputError, InvalidTypeError
from momentalign.evaluation.diagnose import Diagnosis, diagnose

HOSTILE = "<script>alert('x')</script>"


def table(rng: np.random.Generator, rows: int, *, shifted: bool) -> pd.DataFrame:
    """Numbers, counts, dates, words and missing values; half of them shift."""
    lost = rng.random(rows) < (0.4 if shifted else 0.05)
    return pd.DataFrame(
        {
            "same": rng.normal(size=rows),
            "age": rng.normal(40 + 9 * shifted, 12, rows).round(),
            "income": np.where(lost, np.nan, rng.lognormal(10, 0.5, rows)),
            "city": rng.choice(["Linz", "Wien", "Graz"], rows, p=[0.1, 0.2, 0.7] if shifted else [0.5, 0.3, 0.2]),
            "seen": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.random(rows) * 300 + 90 * shifted, unit="D"),
            HOSTILE: rng.normal(0, 1 + shifted, rows),
        }
    )


@pytest.fixture(scope="module")
def shifted() -> Diagnosis:
    rng = np.random.default_rng(7)
    source, target = table(rng, 400, shifted=False), table(rng, 350, shifted=True)
    source["old"], target["fresh"], target["empty"] = 1.0, 2.0, np.nan
    source["empty"] = np.nan
    target.loc[::2, "city"] = "Steyr"
    return diagnose(source, target, n_permutations=199)


@pytest.fixture(scope="module")
def alike() -> Diagnosis:
    rng = np.random.default_rng(8)
    return diagnose(rng.random((200, 3)), rng.random((150, 3)), n_permutations=99)


def test_the_verdict_names_what_shifted(shifted: Diagnosis):
    assert shifted.verdict == str(shifted)
    assert shifted.level == "strong"
    assert shifted.p_value < 1e-9
    assert shifted.verdict.startswith("Strong shift: 5 of 6 features differ, most of all city (categories), ")
    assert "2 columns are in one sample only" in shifted.verdict
    assert repr(shifted) == f"<Diagnosis: {shifted.verdict}>"


def test_where_nothing_shifted_nothing_is_found(alike: Diagnosis):
    assert alike.level == "none"
    assert alike.verdict.startswith("No shift found: none of 3 features differs significantly")
    assert alike.p_value > 0.05


def test_false_alarms_are_as_rare_as_alpha_says():
    rng = np.random.default_rng(0)
    found = [diagnose(*rng.normal(size=(2, 40, 4)), n_permutations=99).level != "none" for _ in range(60)]
    assert np.mean(found) <= 0.1


def test_features_that_only_hang_together_differently_are_found():
    rng = np.random.default_rng(1)
    pair = [rng.multivariate_normal([0, 0], [[1, sign * 0.9], [sign * 0.9, 1]], 500) for sign in (1, -1)]
    found = diagnose(*pair, n_permutations=99)
    assert found.verdict.startswith("Strong shift: no single feature differs significantly; a classifier tells")


def test_the_result_is_what_json_knows(shifted: Diagnosis):
    result = shifted.to_dict()
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    assert result["only_source"] == ["old"]
    assert result["only_target"] == ["fresh"]
    assert result["empty"] == ["empty"]
    assert result["rows"] == {"source": 400, "target": 350}
    assert len(result["cmd"]["orders"]) == 5
    assert result["cmd"]["total"]["value"] == pytest.approx(sum(order["value"] for order in result["cmd"]["orders"]))
    assert result["cmd"]["seen"] == {"source": 400, "target": 350, "features": 5}
    assert result["classifier"]["features"][0]["drop"] > 0.01


def test_the_result_is_a_copy(shifted: Diagnosis):
    shifted.to_dict()["features"].clear()
    assert len(shifted.result["features"]) == 6


def test_the_frame_has_a_line_per_feature(shifted: Diagnosis):
    frame = shifted.to_frame().set_index("feature")
    assert frame.loc["age", "mean_shift"] == pytest.approx(0.75, abs=0.2)
    assert frame.loc["city", "new"] == pytest.approx(0.5, abs=0.01)
    assert np.isnan(frame.loc["city", "mean_shift"])
    assert frame.loc["income", "changes"] == "missing values"
    assert frame.loc["same", "changes"] == ""
    assert frame["p_adjusted"].dtype == np.float64
    assert (frame["p_adjusted"] >= frame["p_value"]).all()


@pytest.mark.parametrize("seed", [0, 5])
def test_the_same_seed_gives_the_same_diagnosis(seed: int):
    pair = np.random.default_rng(3).random((2, 60, 3))
    first, again = (diagnose(*pair, n_permutations=50, random_state=seed).to_dict() for _ in range(2))
    assert first == again
    other = diagnose(*pair, n_permutations=50, random_state=np.random.default_rng(9)).to_dict()
    assert other["cmd"]["orders"] != first["cmd"]["orders"]


def test_large_samples_are_drawn_from_and_it_is_told():
    rng = np.random.default_rng(4)
    found = diagnose(rng.random((10_500, 1)), rng.random((300, 1)), n_permutations=20).to_dict()
    assert found["cmd"]["seen"] == {"source": 10_000, "target": 300, "features": 1}
    assert found["classifier"]["rows"] == 300
    assert found["rows"]["source"] == 10_500


def test_sparse_rows_give_what_dense_ones_give():
    rng = np.random.default_rng(5)
    pair = [rng.poisson(rate, (120, 4)).astype(float) for rate in (0.3, [0.3, 0.3, 1.2, 0.3])]
    dense, thin = diagnose(*pair, n_permutations=50), diagnose(*map(sparse.csr_array, pair), n_permutations=50)
    assert thin.result["features"] == dense.result["features"]
    assert thin.result["cmd"] == dense.result["cmd"]


def test_words_alone_have_no_moments():
    words = pd.DataFrame({"word": ["a", "b"] * 50})
    found = diagnose(words, words.assign(word=["a"] * 100))
    assert found.result["cmd"] is None
    assert found.level == "strong"
    assert "Moments" not in found.to_html()
    assert len(found.plot().axes) == 3


def test_numbers_that_one_sample_lacks_have_no_moments():
    rng = np.random.default_rng(6)
    source = rng.random((30, 2))
    found = diagnose(source, np.column_stack([source[:, 0], np.full(30, np.nan)]), n_permutations=20)
    assert found.result["cmd"]["seen"]["features"] == 1
    assert found.result["features"][0]["distance"] is None
    assert "x1 (missing values)" in found.verdict


def test_words_that_one_sample_lacks_are_not_drawn():
    source = pd.DataFrame({"word": ["a", "b"] * 10, "number": np.arange(20.0)})
    page = diagnose(source, source.assign(word=None), n_permutations=20).to_html()
    assert page.count("data-source=") == 1
    assert "word (missing values)" in page


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "alpha": ({"alpha": 1.5}, "alpha must be a finite number above 0 and below 1, got 1.5; try alpha=0.05"),
    "alpha True": ({"alpha": True}, "alpha must be"),
    "alpha words": ({"alpha": "0.05"}, "alpha must be"),
    "no permutations": ({"n_permutations": 0}, "n_permutations must be at least 1, got 0; try n_permutations=1000"),
    "permutations True": ({"n_permutations": True}, "n_permutations must be"),
    "permutations": ({"n_permutations": 1.5}, "n_permutations must be"),
    "seed": ({"random_state": -1}, "random_state must be a whole number of at least 0, a Generator or None, got -1"),
    "seed words": ({"random_state": "x"}, "random_state must be"),
    "seed True": ({"random_state": True}, "random_state must be"),
    "rows": ({"X_source": np.zeros((3, 2))}, "X_source has 3 rows, but a comparison needs at least 8; give more rows"),
}


@pytest.mark.parametrize(("arguments", "message"), REFUSED.values(), ids=REFUSED)
def test_bad_arguments_are_refused(arguments: dict[str, Any], message: str):
    pair = {"X_source": np.zeros((9, 2)), "X_target": np.zeros((9, 2))}
    with pytest.raises(InvalidInputError, match=re.escape(message)):
        diagnose(**(pair | arguments))


def test_a_seed_of_another_type_is_a_type_error():
    with pytest.raises(InvalidTypeError):
        diagnose(np.zeros((9, 2)), np.zeros((9, 2)), random_state="x")  # type: ignore[arg-type]


def test_the_page_is_written_and_returned(shifted: Diagnosis, tmp_path: Path):
    page = shifted.to_html(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == page
    assert shifted.to_html() == page


def test_the_page_shows_everything(shifted: Diagnosis):
    page = shifted.to_html()
    for section in ("Most different features", "Every feature", "Moments, order by order", "Telling the samples apart"):
        assert f">{section}</h2>" in page
    assert ">Categories</h2>" in page
    assert re.search(r"the source does not have:\s*city 50.0\xa0%", page)
    assert re.search(r"<dt>In the target only</dt>\s*<dd>fresh</dd>", page)
    assert "2024-" in page
    assert page.count("data-source=") == 6


def test_names_of_features_are_escaped(shifted: Diagnosis):
    page = shifted.to_html()
    assert page.count("<script") == 1
    assert "&lt;script&gt;" in page


def test_the_page_reads_no_address_but_the_papers(shifted: Diagnosis):
    assert set(re.findall(r"https?://[^\s\"'<]+", shifted.to_html())) == {"https://doi.org/10.1016/j.ins.2019.01.025"}


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


def test_the_plot_shows_distances_orders_and_features(shifted: Diagnosis, tmp_path: Path):
    figure = shifted.plot()
    titles = [axes.get_title() for axes in figure.axes]
    assert len(titles) == 5
    assert titles[2] == "city: categories"
    figure.savefig(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("method", "package", "extra"), [("to_frame", "pandas", "tables"), ("plot", "matplotlib", "deep")]
)
def test_a_missing_package_is_named(
    alike: Diagnosis, monkeypatch: pytest.MonkeyPatch, method: str, package: str, extra: str
):
    real = builtins.__import__

    def without(name: str, *rest: Any, **options: Any) -> Any:
        if name.partition(".")[0] == package:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *rest, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    monkeypatch.delitem(sys.modules, "momentalign.evaluation.diagnose", raising=False)
    with pytest.raises(ModuleNotFoundError, match=re.escape(f"pip install momentalign[{extra}]")):
        getattr(alike, method)()


def test_neither_torch_nor_matplotlib_is_imported():
    script = "import sys, momentalign.evaluation.diagnose; print({'torch', 'matplotlib'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
