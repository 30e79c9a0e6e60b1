"""The page of the artificial example says and draws what its result holds."""

import re

import numpy as np
import pytest

from momentalign.paper.artificial_page import (
    artificial_page,
    boundary_panel,
    most_different,
)
from momentalign.report.page import p_value_text


def test_the_tables_hold_every_run_the_medians_and_the_paper(artificial_result):
    page, runs = artificial_page(artificial_result), artificial_result["runs"]
    (table,) = re.findall(r"<caption>All runs</caption>(.*?)</table>", page, re.S)
    seeds = re.findall(r'<th scope="row" data-value="(\d+)">', table)
    assert seeds == [str(run["seed"]) for run in runs]
    (foot,) = re.findall(r"<tfoot>(.*?)</tfoot>", table, re.S)
    columns = ["nn_accuracy", "mann_accuracy", "nn_units_different", "mann_units_different", "nn_cmd", "mann_cmd"]
    medians = [np.median([run[column] for run in runs]) for column in columns]
    assert [float(value) for value in re.findall(r'data-value="([^"]+)"', foot)] == pytest.approx(medians, rel=1e-4)
    (beside,) = re.findall(r"<caption>Beside the paper</caption>(.*?)</table>", page, re.S)
    values = [float(value) for value in re.findall(r'data-value="([^"]+)"', beside)]
    assert values == pytest.approx([0.867, medians[0], 13, medians[2], 0.997, medians[1], 5, medians[3]], rel=1e-4)
    alone = artificial_page({**artificial_result, "paper": None})
    assert "Beside the paper" not in alone
    assert "the paper's one run" not in alone


def layer(panel, name):
    return re.search(rf'<g class="[^"]*" data-layer="{name}">(.*?)</g>', panel.content)[1]


def test_every_point_is_drawn_and_every_mistake_ringed(artificial_result):
    shown = artificial_result["shown"]["nn"]
    panel = boundary_panel(shown["weights"], artificial_result["source"], artificial_result["target"], "title")
    drawn = [path.count("M") for path in re.findall(r' d="(.*?)"', layer(panel, "source"))]
    assert drawn == np.bincount(artificial_result["source"]["y"]).tolist()
    dots, rings = (
        re.findall(r"M([\d.]+ [\d.]+)" + stroke, layer(panel, name))
        for name, stroke in (("target", "h"), ("mistakes", "m"))
    )
    assert len(dots) == len(artificial_result["target"]["x"])
    assert set(rings) < set(dots)
    assert 1 - len(rings) / len(dots) == pytest.approx(shown["accuracy_target"])


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
def test_the_most_different_units_come_first(artificial_result, name):
    pictures = most_different(artificial_result, name)
    values = np.array(artificial_result["shown"][name]["ks_pvalue"])
    units = np.argsort(values, kind="stable")[:5]
    assert [f"unit {unit + 1} on" in picture.title for unit, picture in zip(units, pictures, strict=True)] == [True] * 5
    assert pictures[0].title.endswith(p_value_text(values[units[0]]))
