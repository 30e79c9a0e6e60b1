from __future__ import annotations

import html
import re
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from momentalign.errors import InvalidInputError
from momentalign.paper.sensitivity import KEYS, claims, figure_5, make_panels, sensitivity_page

HOSTILE = "<script>alert(1)</script>"
TASKS = ["books->dvd", "books->kitchen", "dvd->books", "kitchen->dvd"]


@pytest.fixture
def result() -> dict[str, Any]:
    rng = np.random.default_rng(1)
    plain = rng.uniform(0.7, 0.8, (4, 13))
    return {
        "kind": "sensitivity",
        "protocol": {"hidden": 50, "repetitions": 3},
        "versions": {"momentalign": "0.1.0"},
        "data": {"amazon_reviews.npz": "ee04e9b7"},
        "seeds": [0, 1],
        "tasks": TASKS,
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


def pictures(page: str) -> list[str]:
    return re.findall(r'<svg class="ma-figure".*?</svg>', page, re.S)


def heights(path: str) -> np.ndarray:
    return np.array(re.findall(r"[\d.]+ (-?[\d.]+)", path), dtype=float)


def test_the_lead_counts_the_statements_that_hold(result: dict[str, Any]):
    (words,) = re.findall(r'<p class="lead">(.*?)</p>', sensitivity_page(result))
    held = sum(claim.holds for claim in claims(result))
    assert f"hold here in {held} of 6 cases" in words


def test_every_statement_stands_beside_what_is_seen(result: dict[str, Any]):
    (body,) = re.findall(r"Section 6.6</caption>.*?<tbody>(.*?)</tbody>", sensitivity_page(result), re.S)
    for row, claim in zip(body.split("</tr>"), claims(result), strict=False):
        words = html.unescape(re.sub(r"<[^>]+>", "|", row))
        assert claim.paper in words
        assert claim.here in words
        assert words.rstrip("|").endswith("|yes" if claim.holds else "|no")


def test_every_panel_has_a_line_per_task_and_their_mean(result: dict[str, Any]):
    drawn = pictures(sensitivity_page(result))
    assert len(drawn) == 4
    for picture, panel in zip(drawn, make_panels(result).values(), strict=True):
        lines = [heights(path) for path in re.findall(r'class="ma-line [\w-]+" d="(.*?)"', picture)]
        (mean,) = (heights(path) for path in re.findall(r'class="ma-median ma-mann" d="(.*?)"', picture))
        assert len(lines) == len(TASKS)
        assert all(len(line) == len(panel.values) for line in lines)
        np.testing.assert_allclose(np.mean(lines, axis=0), mean, atol=0.2)
        (reference,) = (heights(path)[0] for path in re.findall(r'class="ma-switch" d="(.*?)"', picture))
        highest, lowest = panel.ratios.max(), panel.ratios.min()
        scale = (np.max(lines) - np.min(lines)) / (highest - lowest)
        assert np.max(lines) - reference == pytest.approx(scale * (1 - lowest), abs=0.3)


def test_neighbours_share_their_scale(result: dict[str, Any]):
    ticks = [re.findall(r'text-anchor="end">([\d.]+)<', picture) for picture in pictures(sensitivity_page(result))]
    assert ticks[0] == ticks[1]
    assert ticks[2] == ticks[3]
    assert ticks[0] != ticks[2]
    assert "1.00" in ticks[0]


def test_tasks_of_one_source_share_a_colour_and_a_layer(result: dict[str, Any]):
    page = sensitivity_page(result)
    layers = dict(re.findall(r'<g class="ma-tasks" data-layer="(\w+)">(.*?)</g>', pictures(page)[0]))
    counts = {source: layer.count("<path") for source, layer in layers.items()}
    assert counts == {"books": 2, "dvd": 1, "kitchen": 1}
    colours = [set(re.findall(r"ma-class-\d", layer)) for layer in layers.values()]
    assert [len(colour) for colour in colours] == [1, 1, 1]
    assert len(set.union(*colours)) == 3
    assert re.findall(r'data-shows="(\w+)"', page) == ["books", "dvd", "kitchen", "mean"]


def test_captions_say_what_was_divided_by_what(result: dict[str, Any]):
    notes = [html.unescape(note) for note in re.findall(r"</b><span>(.*?)</span>", sensitivity_page(result))]
    assert notes == [
        "Accuracy averaged over 3 weights λ from 0.3 to 3, divided by that with k = 5.",
        "Accuracy averaged over 3 weights λ from 5 to 45, divided by that with β = 1.23.",
        "Accuracy divided by that of the plain network with as many hidden nodes.",
        "Accuracy divided by that of the plain network with as many hidden nodes.",
    ]


def test_the_tables_hold_every_ratio_and_the_means(result: dict[str, Any]):
    page = sensitivity_page(result).split('id="every-ratio"')[1]
    bodies, feet = re.findall(r"<tbody>(.*?)</tbody>", page, re.S), re.findall(r"<tfoot>(.*?)</tfoot>", page, re.S)
    for body, foot, panel in zip(bodies, feet, make_panels(result).values(), strict=True):
        found = np.array(re.findall(r'data-value="([^"]+)"', body), dtype=float)
        np.testing.assert_allclose(found.reshape(panel.ratios.shape), panel.ratios)
        np.testing.assert_allclose(np.array(re.findall(r'data-value="([^"]+)"', foot), dtype=float), panel.mean)


def test_many_sizes_are_marked_at_every_third(result: dict[str, Any]):
    upper, _, lower, _ = (re.findall(r'text-anchor="middle">([\d.]+)<', p) for p in pictures(sensitivity_page(result)))
    assert upper == ["1", "2", "3", "4", "5", "6", "7"]
    assert lower == ["128", "512", "896", "1280", "1664"]


def test_a_partial_result_shows_what_it_has(result: dict[str, Any]):
    del result["panels"]["hidden"], result["panels"]["mmd_betas"]
    result["panels"]["cmd_orders"] |= {"orders": [5], "accuracy": [[[0.8]] * 3] * 4}
    page = sensitivity_page(result)
    assert len(pictures(page)) == 1
    assert "nan" not in page
    ElementTree.fromstring(figure_5(result))  # noqa: S314


@pytest.mark.parametrize("panels", [{}, {"hidden": {"sizes": [128], "cmd": [[0.8]] * 4}}])
def test_a_result_without_a_panel_is_refused(result: dict[str, Any], panels: dict[str, Any]):
    with pytest.raises(InvalidInputError, match=r"result\['panels'\] holds (nothing|hidden), which makes no panel"):
        sensitivity_page({**result, "panels": panels})


def test_figure_5_holds_four_headed_panels(result: dict[str, Any]):
    figure = figure_5(result)
    root = ElementTree.fromstring(figure)  # noqa: S314
    assert "CMD, by the number of moments" in (root.get("aria-label") or "")
    headings = re.findall(r'class="ma-heading"[^>]*>(.*?)<', figure)
    assert headings == [panel.title for panel in make_panels(result).values()]
    assert re.findall(r'translate\(([\d. ]+)\)"', figure) == ["0 0", "456 0", "0 316", "456 316"]
    assert figure == figure_5(result)


def test_the_page_is_labelled_deterministic_and_stays_home(result: dict[str, Any]):
    page = sensitivity_page(result)
    assert page == sensitivity_page(result)
    assert len(re.findall(r'<svg class="ma-figure"[^>]*role="img" aria-label="[^"]{20,}"', page)) == 4
    assert set(re.findall(r"https?://[^\s\"'<]+", page)) == {"https://doi.org/10.1016/j.ins.2019.01.025"}
    assert not re.findall(r"\b(?:nan|None|inf)\b", page)
    for words in ("hidden 50, repetitions 3", "SHA-256 ee04e9b7", "momentalign 0.1.0", "<dd>0, 1</dd>"):
        assert words in page
    ids = re.findall(r' id="([^"]+)"', page)
    assert len(ids) == len(set(ids))


def test_strings_are_escaped(result: dict[str, Any]):
    result |= {"versions": {HOSTILE: HOSTILE}, "data": {HOSTILE: HOSTILE}, "protocol": {HOSTILE: HOSTILE}}
    result["tasks"] = [*TASKS[:3], f"{HOSTILE}->x"]
    page = sensitivity_page(result)
    assert page.count("<script") == 1
    assert page.count("&lt;script&gt;") > 6


@pytest.mark.parametrize("missing", KEYS)
def test_an_incomplete_result_is_refused(result: dict[str, Any], missing: str):
    del result[missing]
    with pytest.raises(InvalidInputError, match=f"lacks {missing};"):
        sensitivity_page(result)
