"""Figure 5: its ratios, what the paper reads from it, real networks, and the page."""

import copy
import html
import re
from xml.etree import ElementTree

import numpy as np
import pytest

from momentalign.errors import InvalidInputError
from momentalign.journal import Journal
from momentalign.paper import sensitivity
from momentalign.paper.sensitivity import KEYS, claims, figure_5, make_panels, sensitivity_page
from momentalign.paper.sentiment import review_identity

HOSTILE = "<script>alert(1)</script>"
TASKS = ["books->dvd", "books->kitchen", "dvd->books"]
ORDERS, BETAS, SIZES = list(range(1, 8)), np.linspace(0.3, 1.7, 7).tolist(), [128, 256, 384]


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
                "betas": BETAS,
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
    assert betas.reference == "β = 1.23"
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
    assert found[3].here == "It is with β = 1.23."
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
    del result["panels"]["cmd_orders"], result["panels"]["hidden"]["mmd"]
    assert list(make_panels(result)) == ["mmd_betas", "cmd_hidden"]
    assert [claim.paper for claim in claims(result)] == [claims(whole)[index].paper for index in (3, 4)]
    assert make_panels({**result, "panels": {}}) == {}
    assert claims({**result, "panels": {}}) == []


def test_statements_about_orders_need_those_orders(result):
    orders = result["panels"]["cmd_orders"]
    orders |= {"orders": [4, 5], "accuracy": spread([0.8, 0.8], 3)}
    assert len(claims(result)) == 4


def test_a_shape_that_does_not_fit_is_named(result):
    del result["panels"]["hidden"]["cmd"][0]
    with pytest.raises(
        InvalidInputError, match=r"hidden\.cmd of shape \(2, 3\), its tasks and values ask for \(3, 3\)"
    ):
        make_panels(result)


@pytest.mark.parametrize("value", [0.0, None])
def test_an_accuracy_to_divide_by_must_be_there(result, value):
    result["panels"]["hidden"]["nn"][0][0] = value
    with pytest.raises(InvalidInputError, match=r"hidden\.nn with (0|nan) in it; accuracies to divide by"):
        make_panels(result)


@pytest.mark.data
def test_figure_5_is_made_of_real_networks(tmp_path, monkeypatch):
    journal = Journal(tmp_path / "cells.jsonl", review_identity("test"))
    monkeypatch.setattr(sensitivity, "ORDERS", (1, 5))
    monkeypatch.setattr(sensitivity, "CMD_WEIGHTS", (0.5, 1.0))
    monkeypatch.setattr(sensitivity, "MMD_WEIGHTS", (5.0,))
    monkeypatch.setattr(sensitivity, "BETAS", (0.3, 1.2))
    monkeypatch.setattr(sensitivity, "SIZES", (20, 30))
    result = sensitivity.run(sensitivity.PANELS, journal, tasks=[("books", "kitchen")])
    panels = make_panels(result)
    assert panels["cmd_orders"].ratios[0, 1] == 1.0
    assert panels["cmd_orders"].ratios[0, 0] < 1.0
    assert result["panels"]["hidden"]["sizes"] == [20, 30]
    for method in ("nn", "cmd", "mmd"):
        assert len(result["panels"]["hidden"][method][0]) == 2
    assert result["panels"]["mmd_betas"]["accuracy"][0][0][1] > 0.7


PAGE_TASKS = ["books->dvd", "books->kitchen", "dvd->books", "kitchen->dvd"]


@pytest.fixture
def drawn():
    rng = np.random.default_rng(1)
    plain = rng.uniform(0.7, 0.8, (4, 13))
    return {
        "kind": "sensitivity",
        "protocol": {"hidden": 50, "repetitions": 3},
        "versions": {"momentalign": "0.1.0"},
        "data": {"amazon_reviews.npz": "ee04e9b7"},
        "seeds": [0, 1],
        "tasks": PAGE_TASKS,
        "panels": {
            "cmd_orders": {
                "weights": [0.3, 1.0, 3.0],
                "orders": list(range(1, 8)),
                "accuracy": rng.uniform(0.75, 0.8, (4, 3, 7)).tolist(),
            },
            "mmd_betas": {
                "weights": [5.0, 25.0, 45.0],
                "betas": np.linspace(0.3, 1.7, 7).tolist(),
                "accuracy": rng.uniform(0.7, 0.8, (4, 3, 7)).tolist(),
            },
            "hidden": {
                "sizes": list(range(128, 1665, 128)),
                "nn": plain.tolist(),
                "cmd": (plain * rng.uniform(1.04, 1.06, (4, 13))).tolist(),
                "mmd": (plain * np.linspace(1.04, 1.01, 13)).tolist(),
            },
        },
    }


def pictures(page):
    return re.findall(r'<svg class="ma-figure".*?</svg>', page, re.S)


def heights(path):
    return np.array(re.findall(r"[\d.]+ (-?[\d.]+)", path), dtype=float)


def test_the_lead_counts_the_statements_that_hold(drawn):
    (words,) = re.findall(r'<p class="lead">(.*?)</p>', sensitivity_page(drawn))
    held = sum(claim.holds for claim in claims(drawn))
    assert f"hold here in {held} of 6 cases" in words


def test_every_statement_stands_beside_what_is_seen(drawn):
    (body,) = re.findall(r"Section 6.6</caption>.*?<tbody>(.*?)</tbody>", sensitivity_page(drawn), re.S)
    for row, claim in zip(body.split("</tr>"), claims(drawn), strict=False):
        words = html.unescape(re.sub(r"<[^>]+>", "|", row))
        assert claim.paper in words
        assert claim.here in words
        assert words.rstrip("|").endswith("|yes" if claim.holds else "|no")


def test_every_panel_has_a_line_per_task_and_their_mean(drawn):
    shown = pictures(sensitivity_page(drawn))
    assert len(shown) == 4
    for picture, panel in zip(shown, make_panels(drawn).values(), strict=True):
        lines = [heights(path) for path in re.findall(r'class="ma-line [\w-]+" d="(.*?)"', picture)]
        (mean,) = (heights(path) for path in re.findall(r'class="ma-median ma-mann" d="(.*?)"', picture))
        assert len(lines) == len(PAGE_TASKS)
        assert all(len(line) == len(panel.values) for line in lines)
        np.testing.assert_allclose(np.mean(lines, axis=0), mean, atol=0.2)
        (reference,) = (heights(path)[0] for path in re.findall(r'class="ma-switch" d="(.*?)"', picture))
        highest, lowest = panel.ratios.max(), panel.ratios.min()
        scale = (np.max(lines) - np.min(lines)) / (highest - lowest)
        assert np.max(lines) - reference == pytest.approx(scale * (1 - lowest), abs=0.3)


def test_neighbours_share_their_scale(drawn):
    ticks = [re.findall(r'text-anchor="end">([\d.]+)<', picture) for picture in pictures(sensitivity_page(drawn))]
    assert ticks[0] == ticks[1]
    assert ticks[2] == ticks[3]
    assert ticks[0] != ticks[2]
    assert "1.00" in ticks[0]


def test_tasks_of_one_source_share_a_colour_and_a_layer(drawn):
    page = sensitivity_page(drawn)
    layers = dict(re.findall(r'<g class="ma-tasks" data-layer="(\w+)">(.*?)</g>', pictures(page)[0]))
    counts = {source: layer.count("<path") for source, layer in layers.items()}
    assert counts == {"books": 2, "dvd": 1, "kitchen": 1}
    colours = [set(re.findall(r"ma-class-\d", layer)) for layer in layers.values()]
    assert [len(colour) for colour in colours] == [1, 1, 1]
    assert len(set.union(*colours)) == 3
    assert re.findall(r'data-shows="(\w+)"', page) == ["books", "dvd", "kitchen", "mean"]


def test_captions_say_what_was_divided_by_what(drawn):
    notes = [html.unescape(note) for note in re.findall(r"</b><span>(.*?)</span>", sensitivity_page(drawn))]
    assert notes == [
        "Accuracy averaged over 3 weights λ from 0.3 to 3, divided by that with k = 5.",
        "Accuracy averaged over 3 weights λ from 5 to 45, divided by that with β = 1.23.",
        "Accuracy divided by that of the plain network with as many hidden nodes.",
        "Accuracy divided by that of the plain network with as many hidden nodes.",
    ]


def test_the_tables_hold_every_ratio_and_the_means(drawn):
    page = sensitivity_page(drawn).split('id="every-ratio"')[1]
    bodies, feet = re.findall(r"<tbody>(.*?)</tbody>", page, re.S), re.findall(r"<tfoot>(.*?)</tfoot>", page, re.S)
    for body, foot, panel in zip(bodies, feet, make_panels(drawn).values(), strict=True):
        found = np.array(re.findall(r'data-value="([^"]+)"', body), dtype=float)
        np.testing.assert_allclose(found.reshape(panel.ratios.shape), panel.ratios)
        np.testing.assert_allclose(np.array(re.findall(r'data-value="([^"]+)"', foot), dtype=float), panel.mean)


def test_many_sizes_are_marked_at_every_third(drawn):
    upper, _, lower, _ = (re.findall(r'text-anchor="middle">([\d.]+)<', p) for p in pictures(sensitivity_page(drawn)))
    assert upper == ["1", "2", "3", "4", "5", "6", "7"]
    assert lower == ["128", "512", "896", "1280", "1664"]


def test_a_partial_result_shows_what_it_has(drawn):
    del drawn["panels"]["hidden"], drawn["panels"]["mmd_betas"]
    drawn["panels"]["cmd_orders"] |= {"orders": [5], "accuracy": [[[0.8]] * 3] * 4}
    page = sensitivity_page(drawn)
    assert len(pictures(page)) == 1
    assert "nan" not in page
    ElementTree.fromstring(figure_5(drawn))  # noqa: S314


@pytest.mark.parametrize("panels", [{}, {"hidden": {"sizes": [128], "cmd": [[0.8]] * 4}}])
def test_a_result_without_a_panel_is_refused(drawn, panels):
    with pytest.raises(InvalidInputError, match=r"result\['panels'\] holds (nothing|hidden), which makes no panel"):
        sensitivity_page({**drawn, "panels": panels})


def test_figure_5_holds_four_headed_panels(drawn):
    figure = figure_5(drawn)
    root = ElementTree.fromstring(figure)  # noqa: S314
    assert "CMD, by the number of moments" in (root.get("aria-label") or "")
    headings = re.findall(r'class="ma-heading"[^>]*>(.*?)<', figure)
    assert headings == [panel.title for panel in make_panels(drawn).values()]
    assert re.findall(r'translate\(([\d. ]+)\)"', figure) == ["0 0", "456 0", "0 316", "456 316"]
    assert figure == figure_5(drawn)


def test_the_page_is_labelled_deterministic_and_stays_home(drawn):
    page = sensitivity_page(drawn)
    assert page == sensitivity_page(drawn)
    assert len(re.findall(r'<svg class="ma-figure"[^>]*role="img" aria-label="[^"]{20,}"', page)) == 4
    assert set(re.findall(r"https?://[^\s\"'<]+", page)) == {"https://doi.org/10.1016/j.ins.2019.01.025"}
    assert not re.findall(r"\b(?:nan|None|inf)\b", page)
    for words in ("hidden 50, repetitions 3", "SHA-256 ee04e9b7", "momentalign 0.1.0", "<dd>0, 1</dd>"):
        assert words in page
    ids = re.findall(r' id="([^"]+)"', page)
    assert len(ids) == len(set(ids))


def test_strings_are_escaped(drawn):
    drawn |= {"versions": {HOSTILE: HOSTILE}, "data": {HOSTILE: HOSTILE}, "protocol": {HOSTILE: HOSTILE}}
    drawn["tasks"] = [*PAGE_TASKS[:3], f"{HOSTILE}->x"]
    page = sensitivity_page(drawn)
    assert page.count("<script") == 1
    assert page.count("&lt;script&gt;") > 6


@pytest.mark.parametrize("missing", KEYS)
def test_an_incomplete_result_is_refused(drawn, missing):
    del drawn[missing]
    with pytest.raises(InvalidInputError, match=f"lacks {missing};"):
        sensitivity_page(drawn)
