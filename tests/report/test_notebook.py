"""What notebooks show: cards and pictures that carry their style, without scripts, whatever stands in the data."""

import base64
import re
import xml.etree.ElementTree as ET

import numpy as np
import pandas as pd
import pytest

import momentalign as ma
from momentalign.errors import InvalidInputError
from momentalign.report.notebook import card

EVIL = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(80, 2)), np.repeat(["left", "right"], 40)
    X[y == "right"] += 3
    return X, y, X + np.array([0.0, 1.0])


@pytest.fixture(scope="module")
def model(data):
    X, y, target = data
    return ma.MANNClassifier(hidden=(6,), learning_rate=0.1, max_epochs=40, random_state=0).fit(X, y, target)


def assert_is_a_card(html, *texts):
    assert html.count('<div class="ma-card">') == 1
    part = html[html.index('<div class="ma-card">') :]
    assert "<script" not in part
    assert ":root" not in part  # the colours of the notebook stay its own
    assert "http" not in part
    for text in texts:
        assert text in part


def test_a_diagnosis_is_shown_with_the_features_that_differ(data):
    X, _, target = data
    frames = (pd.DataFrame(rows, columns=["same", EVIL]) for rows in (X, target + np.array([0.0, 5.0])))
    found = ma.diagnose(*frames, n_permutations=19)
    html = found._repr_html_()
    assert_is_a_card(html, "What shifted", found.verdict.split(":")[0], "proxy-A-distance", "&lt;script&gt;", "<svg")


def test_an_estimate_is_shown_as_an_interval(model, data):
    X, y, target = data
    estimate = ma.estimate_accuracy(model, X, y, target)
    assert_is_a_card(estimate._repr_html_(), f"{100 * estimate.value:.1f}", "accuracy", "<svg")
    assert_is_a_card(type(estimate)(-0.5, -1.2, 0.4, "r2")._repr_html_(), "-0.50", "-1.20 to 0.40")


def test_bounds_are_shown_row_by_row(model, data):
    X, y, target = data
    report = ma.error_bound(model, X, y, target)
    assert_is_a_card(report._repr_html_(), report.conclusion, "labelling disagreement", ">\N{EN DASH}<")


def test_a_portfolio_is_shown_with_what_was_decided(portfolio_of_wines):
    auto = portfolio_of_wines.estimator
    html = auto._repr_mimebundle_()["text/html"]
    assert_is_a_card(html, auto.decision_.split(";")[0], "Models that answer", auto.portfolio_["name"].iloc[-1])
    assert "sk-top-container" in html  # what scikit-learn shows stays
    assert "ma-card" not in ma.AutoClassifier()._repr_mimebundle_()["text/html"]


def test_a_network_is_shown_with_its_training(model, data):
    assert_is_a_card(model._repr_mimebundle_()["text/html"], "Training", f"{model.n_epochs_} epochs", "held-out loss")
    assert "ma-card" not in ma.MANNClassifier()._repr_mimebundle_()["text/html"]
    X, y, _ = data
    passed = ma.MANNClassifier(hidden=(3,)).partial_fit(X, y, classes=["left", "right"])
    assert_is_a_card(passed._repr_mimebundle_()["text/html"], "1 epochs")


def test_a_picture_is_an_image_of_its_own(model, data, tmp_path):
    X, y, target = data
    pictures = [model.plot(), model.plot(X), model.plot(X, X_target=target), model.plot(X, y), model.plot(X, y, target)]
    assert len({picture.content for picture in pictures}) == 5
    for number, picture in enumerate(pictures):
        html = picture._repr_html_()
        svg = base64.b64decode(re.search(r"base64,([^\"]+)", html)[1])
        assert ET.fromstring(svg).tag.endswith("svg")  # noqa: S314  (our own)
        assert picture.save(tmp_path / f"{number}.svg").read_bytes() == svg
        assert len(repr(picture)) < 200
    assert pictures[-1].content.count("ma-region") == 2


def test_boundaries_are_those_of_predict(model, data):
    X, y, _ = data
    regions = [re.search(rf'ma-region ma-digit-{code}" d="([^"]+)"', model.plot(X, y).content)[1] for code in (0, 1)]
    # Points of the left class lie left of and below those of the right one.
    middles = [np.array(re.findall(r"([\d.]+) ([\d.]+)", path), dtype=float).mean(axis=0) for path in regions]
    assert middles[0][0] < middles[1][0]
    assert middles[0][1] > middles[1][1]


def test_what_cannot_be_drawn_says_so(model, data):
    X, y, target = data
    wide = ma.MANNClassifier(hidden=(3,), max_epochs=2).fit(np.hstack([X, X]), y)
    with pytest.raises(InvalidInputError, match=r"boundaries are drawn for classifiers of 2 features, this .* has 4"):
        wide.plot(np.hstack([X, X]), y)
    single = ma.MANNRegressor(hidden=(1,), max_epochs=2).fit(X, X[:, 0])
    assert single.plot(X, X_target=target).width > 0
    with pytest.raises(InvalidInputError, match="boundaries are drawn for classifiers"):
        single.plot(X, X[:, 0])


def test_a_card_escapes_all_it_is_given():
    assert EVIL not in card(EVIL, EVIL)
