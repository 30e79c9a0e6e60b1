"""Figure 5: its ratios, what the paper reads from it, real networks, and the page."""

import copy
import html
import json
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from momentalign.journal import Journal
from momentalign.paper import sensitivity
from momentalign.paper.sensitivity import BETAS, claims, figure_5, make_panels, sensitivity_page
from momentalign.paper.sentiment import review_identity

TASKS = ["books->dvd", "books->kitchen", "dvd->books"]
ORDERS, SIZES = list(range(1, 8)), [128, 256, 384]


def spread(columns, weights):
    """Accuracies [task][weight][value] whose mean over the weights is `columns` for every task."""
    shifts = np.linspace(-0.01, 0.01, weights)
    return (np.ones((len(TASKS), weights, 1)) * np.asarray(columns) + shifts[None, :, None]).tolist()


@pytest.fixture
def result():
    """A result in which every statement of the paper holds."""
    plain = np.full((len(TASKS), 3), 0.75)
    return {
        "tasks": TASKS,
        "panels": {
            "cmd_orders": {
                "weights": [0.3, 1.0, 3.0],
                "orders": ORDERS,
                "accuracy": spread([0.76, 0.78, 0.799, 0.8, 0.8, 0.801, 0.8], 3),
            },
            "mmd_betas": {
                "weights": [5.0, 45.0],
                "betas": list(BETAS),
                "accuracy": spread([0.7, 0.72, 0.74, 0.76, 0.78, 0.77, 0.76], 2),
            },
            "hidden": {
                "sizes": SIZES,
                "nn": plain.tolist(),
                "cmd": (plain * [1.04, 1.06, 1.05]).tolist(),
                "mmd": (plain * [1.03, 1.02, 1.01]).tolist(),
            },
        },
    }


def test_panels_stand_in_the_order_of_the_figure(result):
    panels = make_panels(result)
    assert list(panels) == ["cmd_orders", "mmd_betas", "cmd_hidden", "mmd_hidden"]
    assert all(panel.ratios.shape == (3, len(panel.values)) for panel in panels.values())


def test_upper_panels_are_means_over_the_weights_over_the_reference(result):
    panels = make_panels(result)
    orders = panels["cmd_orders"]
    assert (orders.reference, orders.values) == ("k = 5", tuple(ORDERS))
    assert orders.mean == pytest.approx(np.array([0.76, 0.78, 0.799, 0.8, 0.8, 0.801, 0.8]) / 0.8)
    betas = panels["mmd_betas"]
    assert betas.reference == "β = 1.2"
    assert betas.ratios[1] == pytest.approx(np.array([0.7, 0.72, 0.74, 0.76, 0.78, 0.77, 0.76]) / 0.78)


def test_lower_panels_are_ratios_to_the_plain_network_of_the_same_size(result):
    result["panels"]["hidden"]["nn"][2] = [0.5, 0.6, 0.7]
    panels = make_panels(result)
    assert panels["cmd_hidden"].ratios[2] == pytest.approx([0.78 / 0.5, 0.795 / 0.6, 0.7875 / 0.7])
    assert panels["mmd_hidden"].ratios[0] == pytest.approx([1.03, 1.02, 1.01])
    assert panels["cmd_hidden"].reference == "the plain network"


def test_every_statement_can_hold(result):
    found = claims(result)
    assert [claim.holds for claim in found] == [True] * 6
    assert "in 12 of 12 cases; at most 0.13 %" in found[0].here
    assert "3 with k = 1 and 3 with k = 2" in found[1].here
    assert found[3].here == "It is with β = 1.2."
    assert "by 4.0 to 6.0 %" in found[4].here
    assert "from 3.0 % at 128 to 1.0 % at 384 nodes" in found[5].here


@pytest.mark.parametrize(
    ("number", "panel", "part", "place", "value"),
    [
        (0, "cmd_orders", "accuracy", np.s_[0, :, 6], 0.81),
        (1, "cmd_orders", "accuracy", np.s_[:2, :, 1], 0.9),
        (2, "cmd_orders", "accuracy", np.s_[:, :, 0], 0.1),
        (3, "mmd_betas", "accuracy", np.s_[:, :, 0], 0.8),
        (4, "hidden", "cmd", np.s_[:, 1], 0.75 * 1.07),
        (4, "hidden", "cmd", np.s_[:, 0], 0.75 * 1.02),
        (5, "hidden", "mmd", np.s_[:, 2], 0.9),
    ],
)
def test_every_statement_can_fail_alone(result, number, panel, part, place, value):
    accuracy = np.array(result["panels"][panel][part])
    accuracy[place] = value
    result["panels"][panel][part] = accuracy.tolist()
    assert [index for index, claim in enumerate(claims(result)) if not claim.holds] == [number]


def test_a_partial_result_has_the_panels_and_statements_it_can_have(result):
    whole = copy.deepcopy(result)
    del result["panels"]["cmd_orders"]
    assert list(make_panels(result)) == ["mmd_betas", "cmd_hidden", "mmd_hidden"]
    assert [claim.paper for claim in claims(result)] == [claims(whole)[index].paper for index in (3, 4, 5)]
    assert make_panels({**result, "panels": {}}) == {}
    assert claims({**result, "panels": {}}) == []


@pytest.mark.data
def test_figure_5_is_made_of_real_networks(tmp_path, monkeypatch):
    journal = Journal(tmp_path / "cells.jsonl", review_identity("test"))
    monkeypatch.setattr(sensitivity, "ORDERS", (1, 5))
    monkeypatch.setattr(sensitivity, "CMD_WEIGHTS", (0.5, 1.0))
    monkeypatch.setattr(sensitivity, "MMD_WEIGHTS", (5.0,))
    monkeypatch.setattr(sensitivity, "BETAS", (1.2,))
    monkeypatch.setattr(sensitivity, "SIZES", (20,))
    result = sensitivity.run(sensitivity.PANELS, journal, tasks=["books->kitchen"])
    panels = make_panels(result)
    assert panels["cmd_orders"].ratios[0, 1] == 1.0
    assert panels["cmd_orders"].ratios[0, 0] < 1.0
    assert result["panels"]["hidden"]["sizes"] == [20]
    for method in ("nn", "cmd", "mmd"):
        assert len(result["panels"]["hidden"][method][0]) == 1
    assert result["panels"]["mmd_betas"]["accuracy"][0][0][0] > 0.7


@pytest.fixture
def drawn():
    """The kept result of all networks."""
    kept = Path(__file__).parents[2] / "benchmarks" / "results" / "sensitivity.json"
    return json.loads(kept.read_bytes())["result"]


def pictures(page):
    return re.findall(r'<svg class="ma-figure".*?</svg>', page, re.S)


def test_every_statement_stands_beside_what_is_seen(drawn):
    (body,) = re.findall(r"Section 6.6</caption>.*?<tbody>(.*?)</tbody>", sensitivity_page(drawn), re.S)
    for row, claim in zip(body.split("</tr>"), claims(drawn), strict=False):
        words = html.unescape(re.sub(r"<[^>]+>", "|", row))
        assert claim.paper in words
        assert claim.here in words
        assert words.rstrip("|").endswith("|yes" if claim.holds else "|no")


def test_the_tables_hold_every_ratio_and_the_means(drawn):
    page = sensitivity_page(drawn).split('id="every-ratio"')[1]
    bodies, feet = re.findall(r"<tbody>(.*?)</tbody>", page, re.S), re.findall(r"<tfoot>(.*?)</tfoot>", page, re.S)
    for body, foot, panel in zip(bodies, feet, make_panels(drawn).values(), strict=True):
        found = np.array(re.findall(r'data-value="([^"]+)"', body), dtype=float)
        np.testing.assert_allclose(found.reshape(panel.ratios.shape), panel.ratios, rtol=1e-4)
        means = np.array(re.findall(r'data-value="([^"]+)"', foot), dtype=float)
        np.testing.assert_allclose(means, panel.mean, rtol=1e-4)


def test_a_partial_result_shows_what_it_has(drawn):
    del drawn["panels"]["hidden"], drawn["panels"]["mmd_betas"]
    page = sensitivity_page(drawn)
    assert len(pictures(page)) == 1
    assert "nan" not in page
    ElementTree.fromstring(figure_5(drawn))  # noqa: S314
