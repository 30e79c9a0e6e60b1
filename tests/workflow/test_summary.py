"""What a fit says of itself: what one would have used otherwise, the shares of classes, columns to look at."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import momentalign as ma
from momentalign.report.sentences import printed
from momentalign.tables.preprocess import Preprocessor
from momentalign.workflow.model import TableModel
from momentalign.workflow.summary import drawn_rows, flagged_columns

Frames = tuple[pd.DataFrame, pd.DataFrame]


def test_the_model_stands_beside_what_one_would_have_used(fitted: TableModel, cellars: Frames):
    rows = {row["name"]: row for row in fitted.summary["baselines"]}
    first, *others = rows
    assert others == ["logistic regression", "gradient boosting", "not adapting", "this model"]
    largest = cellars[0]["grape"].value_counts()
    assert rows[first]["name"] == f"always {largest.index[0]!r}"
    assert rows[first]["source"] == pytest.approx(largest.iloc[0] / 89)
    assert rows[first]["known"] == pytest.approx((cellars[1]["grape"] == largest.index[0]).mean())
    scores = fitted.estimator.portfolio_.set_index("name")["source_score"]
    assert rows["logistic regression"]["source"] == scores["linear"]
    own = rows["this model"]
    assert (own["target"], own["known"]) == (
        fitted.estimator.estimate_.value,
        fitted.summary["evaluation"]["accuracy"],
    )
    plain = fitted.estimator.held_out_.plain_target.argmax(axis=1)
    known = (fitted.estimator.classes_[plain] == cellars[1]["grape"]).mean()
    assert rows["not adapting"]["known"] == pytest.approx(known)


def test_where_nothing_was_adapted_plain_models_lose_in_step():
    random = np.random.default_rng(0)
    frame = pd.DataFrame(random.normal(size=(300, 2)), columns=["a", "b"])
    labelled = frame.assign(y=np.where(frame["a"] > 0, "p", "q"))
    summary = ma.fit(labelled, frame, label="y").summary
    rows = {row["name"]: row for row in summary["baselines"]}
    assert summary["decision"].startswith("Not adapted")
    assert rows["not adapting"]["target"] == pytest.approx(summary["estimate"]["value"])
    ratios = {rows[name]["target"] / rows[name]["source"] for name in ("logistic regression", "not adapting")}
    assert max(ratios) == pytest.approx(min(ratios))


def test_the_terminal_shows_models_shares_and_columns(fitted: TableModel):
    text = printed(fitted.summary)
    assert text.startswith(fitted.summary["verdict"])
    lines = text.splitlines()
    assert [line.split("  ")[0] for line in lines[3:7]] == [row["name"] for row in fitted.summary["baselines"][1:]]
    assert any(line.startswith("barolo ") for line in lines)
    assert any(line.startswith("Target rows outside of the source's range: ") for line in lines)
    gain = {"value": 0.021, "low": -0.01, "high": 0.05}
    assert "difference to not adapting: +2.1 points (-1.0 to +5.0)" in printed({**fitted.summary, "gain": gain})


@pytest.mark.parametrize("share", [0.2, 0.9])
def test_shares_are_estimated_where_only_they_changed(share: float):
    random = np.random.default_rng(0)

    def draw(positive: float) -> pd.DataFrame:
        y = random.random(1500) < positive
        rows = random.normal(2.0 * y[:, None], 1.0, (1500, 2))
        return pd.DataFrame(rows, columns=["a", "b"]).assign(y=np.where(y, "yes", "no"))

    model = ma.fit(draw(0.5), draw(share).drop(columns="y"), label="y")
    (yes,) = (one for one in model.summary["shares"] if one["class"] == "yes")
    assert model.summary["shares_doubt"] is None
    assert yes["low"] <= share <= yes["high"]
    assert yes["high"] - yes["low"] < 0.1
    assert yes["source"] == pytest.approx(0.5, abs=0.03)


def test_rows_that_were_given_often_count_as_often():
    counts = np.array([98.0, 1.0, 1.0])
    assert np.bincount(drawn_rows(counts, 1000)).tolist() == [98, 1, 1]
    assert len(drawn_rows(counts, 10)) == 10


def test_columns_to_look_at_are_found_by_name():
    random = np.random.default_rng(0)
    source = pd.DataFrame({"age": random.uniform(20, 60, 400), "fuel": "petrol", "city": ["Linz", "Wien"] * 200})
    target = pd.DataFrame(
        {"age": random.uniform(40, 80, 400), "fuel": ["petrol", "gas"] * 200, "city": ["Linz", "Graz"] * 200}
    )
    source.loc[:9, "age"] = target.loc[:9, "age"] = np.nan
    assert flags(source, source.assign(fuel="gas")) == {"constant": [], "unseen": [("fuel", ["gas"])], "outside": []}
    assert flags(source, target) == {
        "constant": [("fuel", "source")],
        "unseen": [("fuel", ["gas"]), ("city", ["Graz"])],
        "outside": [("age", 0.5)],
    }
    assert flags(target, source)["constant"] == [("fuel", "target")]


def test_columns_of_matrices_go_by_their_index_and_sparse_ones_have_no_names():
    X = np.arange(40.0, dtype=np.float32)[:, None] * [1.0, 0.0]
    moved = X + np.array([30.0, 0.0])
    preprocessor = Preprocessor().fit(X, X_target=moved)
    found = flagged_columns(preprocessor, X, moved)
    assert [(one["name"], one["share"]) for one in found["outside"]] == [("0", 0.75)]
    rows = sparse.csr_matrix(X)
    assert flagged_columns(Preprocessor().fit(rows), rows, rows) == {"constant": [], "unseen": [], "outside": []}


def flags(source: pd.DataFrame, target: pd.DataFrame) -> dict[str, Any]:
    preprocessor = Preprocessor(scale=False).fit(source, X_target=target)
    found = flagged_columns(preprocessor, preprocessor.transform(source), preprocessor.transform(target))
    return {
        "constant": [(one["name"], one["domain"]) for one in found["constant"]],
        "unseen": [(one["name"], one["values"]) for one in found["unseen"]],
        "outside": [(one["name"], round(one["share"], 1)) for one in found["outside"]],
    }
