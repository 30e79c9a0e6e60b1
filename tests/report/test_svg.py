from __future__ import annotations

import math
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from markupsafe import Markup

from momentalign.report.svg import (
    Frame,
    Picture,
    area,
    axes,
    clipped,
    label,
    line,
    marks,
    mosaic,
    number,
    standalone,
    ticks,
)

FRAME = Frame(x_range=(0, 10), y_range=(0, 1), width=120, height=80, left=10, right=10, top=10, bottom=10)


def test_a_frame_maps_its_ranges_to_its_edges():
    assert FRAME.x([0, 10]).tolist() == [10, 110]
    assert FRAME.y([0, 1]).tolist() == [70, 10]


@pytest.mark.parametrize(
    ("value", "text"), [(3.04, "3"), (-0.01, "0"), (-0.26, "-0.3"), (12.26, "12.3"), (100.0, "100")]
)
def test_coordinates_are_short(value: float, text: str):
    assert number(value) == text


@pytest.mark.parametrize(("low", "high"), [(0, 0.83), (0.3, 1), (0, 15000), (-0.2, 1.2), (0, 1e-6)])
def test_ticks_are_round_and_inside(low: float, high: float):
    values = ticks(low, high)
    steps = np.diff(values)
    assert 2 <= len(values) <= 7
    assert low - 1e-9 <= values[0]
    assert values[-1] <= high + 1e-9
    assert np.allclose(steps, steps[0], rtol=1e-5)
    assert round(steps[0] / 10 ** math.floor(math.log10(steps[0]) + 1e-9)) in (1, 2, 5)


def test_shapes_leave_out_what_is_not_finite():
    for shape in (line([0, 1, 2], [1, math.nan, 3], "a"), marks([0, 1, 2], [1, math.inf, 3], "h0", "a")):
        assert len(re.findall(r"\d+ \d+", shape)) == 2
    assert "nan" not in area([0, 1, 2], [1, math.nan, 3], 9, "ma-area")


def test_a_mosaic_sets_pictures_apart():
    piece = Picture(100, 50, "piece", Markup("<path/>"))
    whole = mosaic("whole", [[piece, piece], [piece, piece]], gap=10)
    assert (whole.width, whole.height) == (210, 110)
    assert re.findall(r"translate\((.*?)\)", whole.content) == ["0 0", "110 0", "0 60", "110 60"]


def test_a_standalone_picture_is_an_svg_file_with_its_style():
    """Well-formed, themeable by its style, and every text in it escaped."""
    drawn = axes(FRAME, x_ticks=[(5, "<five>")], y_ticks=[(1, "one")], x_label="x & y", y_label="y")
    content = clipped(FRAME, [label(0, 0, "<b>"), drawn])
    root = ElementTree.fromstring(standalone(Picture(30, 20, 'a > "b"', content)))  # noqa: S314
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert (root.get("width"), root.get("height"), root.get("aria-label")) == ("30", "20", 'a > "b"')
    assert "prefers-color-scheme: dark" in (root[0].text or "")
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert texts == ["<b>", "one", "<five>", "x & y", "y"]
