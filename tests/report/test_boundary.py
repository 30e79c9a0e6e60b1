from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from momentalign.report.charts import boundary_panel, predictions
from momentalign.report.svg import Picture


@pytest.fixture
def panel(artificial_result: dict[str, Any]) -> Picture:
    shown = artificial_result["shown"]["nn"]
    return boundary_panel(shown["weights"], artificial_result["source"], artificial_result["target"], "title")


def layer(panel: Picture, name: str) -> str:
    found = re.search(rf'<g class="[^"]*" data-layer="{name}">(.*?)</g>', panel.content)
    assert found is not None
    return found[1]


def test_every_source_point_is_drawn_with_the_mark_of_its_class(panel: Picture, artificial_result: dict[str, Any]):
    drawn = [path.count("M") for path in re.findall(r' d="(.*?)"', layer(panel, "source"))]
    assert drawn == np.bincount(artificial_result["source"]["y"]).tolist()


def test_every_target_point_is_drawn(panel: Picture, artificial_result: dict[str, Any]):
    assert layer(panel, "target").count("M") == len(artificial_result["target"]["x"])


def test_rings_stand_round_the_misclassified_target_points_only(panel: Picture, artificial_result: dict[str, Any]):
    target = artificial_result["target"]
    wrong = predictions(artificial_result["shown"]["nn"]["weights"], target["x"]) != np.array(target["y"])
    dots = re.findall(r"M([\d.]+ [\d.]+)h0", layer(panel, "target"))
    rings = re.findall(r"M([\d.]+ [\d.]+)m", layer(panel, "mistakes"))
    assert rings == [dot for dot, is_wrong in zip(dots, wrong, strict=True) if is_wrong]
    assert 0 < len(rings) < len(dots)


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
