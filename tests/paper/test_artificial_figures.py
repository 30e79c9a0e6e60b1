"""The figures of the artificial example say what its result holds."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from momentalign.paper.artificial_figures import (
    Curve,
    Strip,
    boundary_panel,
    curves,
    most_different,
    strip,
    unit_panel,
    units_parts,
)
from momentalign.report.page import p_value_text
from momentalign.report.svg import Picture


@pytest.fixture
def panel(artificial_result: dict[str, Any]) -> Picture:
    shown = artificial_result["shown"]["nn"]
    return boundary_panel(shown["weights"], artificial_result["source"], artificial_result["target"], "title")


def layer(panel: Picture, name: str) -> str:
    found = re.search(rf'<g class="[^"]*" data-layer="{name}">(.*?)</g>', panel.content)
    assert found is not None
    return found[1]


def points(picture: Picture, css: str) -> np.ndarray:
    (path,) = re.findall(rf'class="{css}" d="(.*?)"', picture.content)
    return np.array(re.findall(r"(-?[\d.]+) (-?[\d.]+)", path), dtype=float)


def test_every_point_is_drawn_and_every_mistake_ringed(panel: Picture, artificial_result: dict[str, Any]):
    drawn = [path.count("M") for path in re.findall(r' d="(.*?)"', layer(panel, "source"))]
    assert drawn == np.bincount(artificial_result["source"]["y"]).tolist()
    dots, rings = (
        re.findall(r"M([\d.]+ [\d.]+)" + stroke, layer(panel, name))
        for name, stroke in (("target", "h"), ("mistakes", "m"))
    )
    assert len(dots) == len(artificial_result["target"]["x"])
    assert set(rings) < set(dots)
    right = artificial_result["shown"]["nn"]["accuracy_target"]
    assert 1 - len(rings) / len(dots) == pytest.approx(right)


def test_the_regions_cover_the_picture_and_follow_the_predictions():
    """A network that looks at the first coordinate only: class 1 right of 0.25, class 0 left of it."""
    weights = {"W": [[4.0], [0.0]], "b": [-1.0], "V": [[-1.0, 1.0]], "c": [0.5, -0.5]}
    corners = {"x": [[0.0, 0.0], [1.0, 1.0]], "y": [0, 1]}
    panel = boundary_panel(weights, corners, corners, "title")
    paths = re.findall(r' d="(.*?)"', layer(panel, "regions"))
    reach = [np.array(re.findall(r"([\d.]+) [\d.]+", path), dtype=float) for path in paths]
    border = (0.25 + 0.05) / 1.1 * panel.width
    assert (reach[0].min(), reach[0].max()) == pytest.approx((0, border), abs=0.5)
    assert (reach[1].min(), reach[1].max()) == pytest.approx((border, panel.width), abs=0.5)


@pytest.mark.parametrize("name", ["nn", "mann"])
def test_the_most_different_units_come_first(artificial_result: dict[str, Any], name: str):
    pictures = most_different(artificial_result, name)
    values = np.array(artificial_result["shown"][name]["ks_pvalue"])
    units = np.argsort(values, kind="stable")[:5]
    assert [f"unit {unit + 1} on" in picture.title for unit, picture in zip(units, pictures, strict=True)] == [True] * 5
    assert pictures[0].title == unit_panel(artificial_result, name, int(units[0])).title
    assert pictures[0].title.endswith(p_value_text(values[units[0]]))


def test_the_picker_holds_every_unit_and_the_text_counts_those_that_differ(artificial_result: dict[str, Any]):
    text, *_, picker = units_parts(artificial_result)
    assert re.findall(r'<div id="unit-(\d+)"', picker) == [str(unit) for unit in range(1, 16)]
    assert picker.count("<svg") == 30
    shares = [round(100 * value) for value in artificial_result["shown"]["nn"]["ks_statistic"]]
    assert re.findall(r'class="ma-nn" style="--share: (\d+)"', picker) == [str(share) for share in shares]
    counts = [sum(p < 0.01 for p in artificial_result["shown"][name]["ks_pvalue"]) for name in ("nn", "mann")]
    assert f"finds {counts[0]} of 15 units different without alignment and {counts[1]} with it" in text


def test_curves_start_and_end_where_their_values_do():
    series = [Curve([0, 100], [0.0, 1.0], "ma-nn"), Curve([50, 100], [0.5, 0.0], "ma-mann")]
    picture = curves(series, title="t", y_range=(0, 1), switch=50)
    first, second, rule = (points(picture, css) for css in ("ma-line ma-nn", "ma-line ma-mann", "ma-switch"))
    assert first[0, 1] - first[1, 1] == pytest.approx(2 * (second[1, 1] - second[0, 1]), abs=0.2)
    assert rule[0, 0] == second[0, 0] == pytest.approx((first[0, 0] + first[1, 0]) / 2)
    assert "ma-switch" not in curves(series, title="t", y_range=(0, 1), switch=500).content


def test_a_strip_shows_every_run_the_median_and_the_paper():
    picture = strip([Strip("NN", [0.8, 0.9, 1.0], 0.9, 0.85, "ma-nn")], title="title")
    runs, median, paper = (points(picture, css) for css in ("ma-run ma-nn", "ma-median ma-nn", "ma-paper"))
    assert len(runs) == 3
    assert runs[1, 0] == median[0, 0]
    assert paper[0, 0] == pytest.approx(runs[:2, 0].mean(), abs=0.1)
    assert "nan" not in strip([Strip("NN", [1.0], 1.0, 1.0, "ma-nn")], title="title").content
