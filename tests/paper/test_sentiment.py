"""Table 2 from real reviews: what is asked, what is chosen, what is reported."""

import pytest

from momentalign.errors import InvalidInputError
from momentalign.journal import Journal, cell_key
from momentalign.paper import sensitivity, sentiment
from momentalign.paper.sensitivity import make_panels
from momentalign.paper.sentiment import identity
from momentalign.paper.tables import compare

ONE_TASK = [("books", "kitchen")]


@pytest.fixture
def journal(tmp_path):
    return Journal(tmp_path / "cells.jsonl", identity("test"))


@pytest.mark.data
def test_a_run_is_resumed_and_reported(journal):
    result = sentiment.run(["nn", "cmd"], journal, seeds=range(2), tasks=ONE_TASK)
    lines = journal.path.read_bytes()
    calls = []
    again = sentiment.run(
        ["nn", "cmd"], journal, seeds=range(2), tasks=ONE_TASK, progress=lambda *call: calls.append(call)
    )
    assert again == result
    assert journal.path.read_bytes() == lines
    assert calls[-1] == (2, 2)
    comparison = compare(result)
    assert comparison.averages["cmd"].mean > comparison.averages["nn"].mean + 4.0
    assert result["methods"]["cmd"]["settings"]["weights"] == (1.0,)


def test_an_unknown_method_is_named(journal):
    with pytest.raises(InvalidInputError, match="method 'magic' is not known; choose among nn, dann"):
        sentiment.run(["magic"], journal)


def test_an_unknown_panel_is_named(journal):
    with pytest.raises(InvalidInputError, match="panel 'magic' is not known; choose among cmd_orders"):
        sensitivity.run(["magic"], journal)


def test_the_best_reverse_accuracy_chooses_and_of_equals_the_smallest_weight():
    questions = sentiment._questions("mmd", ("books", "dvd"))
    assert len(questions) == 10
    assert all(len(cell["weights"]) == 10 for cell in questions)
    scores = {cell_key(cell): {"scores": [0.5] * 10} for cell in questions}
    scores[cell_key(questions[3])] = {"scores": [0.5, 0.5, 0.8, 0.5, 0.8, 0.5, 0.5, 0.5, 0.5, 0.5]}
    chosen = sentiment._chosen("mmd", ("books", "dvd"), scores)
    assert chosen == {"weight": questions[3]["weights"][2], "beta": questions[3]["beta"]}


def test_what_is_not_searched_asks_nothing():
    for method in ("nn", "cmd", "coral", "dann", "tca", "cv-cmd"):
        assert sentiment._questions(method, ("books", "dvd")) == []
    assert set(sentiment._chosen("tca", ("books", "dvd"), {})) == {"components", "mu"}


@pytest.mark.data
def test_figure_5_is_made_of_real_networks(journal, monkeypatch):
    monkeypatch.setattr(sensitivity, "ORDERS", (1, 5))
    monkeypatch.setattr(sensitivity, "CMD_WEIGHTS", (0.5, 1.0))
    monkeypatch.setattr(sensitivity, "MMD_WEIGHTS", (5.0,))
    monkeypatch.setattr(sensitivity, "BETAS", (0.3, 1.2))
    monkeypatch.setattr(sensitivity, "SIZES", (20, 30))
    result = sensitivity.run(sensitivity.PANELS, journal, tasks=ONE_TASK)
    panels = make_panels(result)
    assert panels["cmd_orders"].ratios[0, 1] == 1.0
    assert panels["cmd_orders"].ratios[0, 0] < 1.0
    assert result["panels"]["hidden"]["sizes"] == [20, 30]
    for method in ("nn", "cmd", "mmd"):
        assert len(result["panels"]["hidden"][method][0]) == 2
    assert result["panels"]["mmd_betas"]["accuracy"][0][0][1] > 0.7
