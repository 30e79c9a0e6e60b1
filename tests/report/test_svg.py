from __future__ import annotations

import math
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from markupsafe import Markup
from scipy.stats import gaussian_kde

from momentalign.report.svg import (
    NARROWEST,
    Frame,
    Picture,
    area,
    axes,
    clipped,
    density,
    density_panel,
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


def test_densities_of_both_domains_peak_where_their_points_are():
    rng = np.random.default_rng(0)
    low, high = 0.2 + 0.02 * rng.standard_normal(100), 0.8 + 0.003 * rng.standard_normal(100)
    picture = density_panel(low, high, heading="Unit 1", note="p = 0.50", title="title")
    for domain, expected in (("source", 0.2), ("target", 0.8)):
        (path,) = re.findall(rf'class="ma-line ma-{domain}" d="(.*?)"', picture.content)
        curve = np.array(re.findall(r"([\d.]+) ([\d.]+)", path), dtype=float)
        peak = curve[curve[:, 1].argmin(), 0]
        assert (peak - 8) / (picture.width - 16) == pytest.approx(expected, abs=0.02)
    # A narrow peak is sampled finely.
    assert (curve[:, 1] < curve[:, 1].min() + 0.5 * (108 - curve[:, 1].min())).sum() > 8


def test_the_density_is_scotts_estimate_and_never_a_needle():
    sample, at = np.random.default_rng(0).beta(2, 5, 200), np.linspace(0, 1, 50)
    np.testing.assert_allclose(density(sample, at), gaussian_kde(sample)(at), rtol=1e-10)
    values = density(np.full(20, 0.5), [0.5, 0.5 + 6 * NARROWEST])
    assert values[0] == pytest.approx(1 / (NARROWEST * np.sqrt(2 * np.pi)))
    assert values[1] < 1e-5
