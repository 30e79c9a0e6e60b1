from __future__ import annotations

import re

import numpy as np
import pytest

from momentalign.report.charts import Curve, Strip, bars, curves, density_panel, strip
from momentalign.report.svg import Picture


def points(picture: Picture, css: str) -> list[np.ndarray]:
    paths = re.findall(rf'class="{css}" d="(.*?)"', picture.content)
    return [np.array(re.findall(r"(-?[\d.]+) (-?[\d.]+)", path), dtype=float) for path in paths]


def test_densities_of_both_domains_peak_where_their_points_are():
    rng = np.random.default_rng(0)
    low, high = 0.2 + 0.02 * rng.standard_normal(100), 0.8 + 0.02 * rng.standard_normal(100)
    picture = density_panel(low, high, heading="Unit 1", note="p = 0.50", title="title")
    for css, expected in (("ma-line ma-source", 0.2), ("ma-line ma-target", 0.8)):
        (curve,) = points(picture, css)
        peak = curve[curve[:, 1].argmin(), 0]
        assert (peak - 8) / (picture.width - 16) == pytest.approx(expected, abs=0.02)
    assert "Unit 1" in picture.content
    assert "p = 0.50" in picture.content


def test_a_narrow_peak_is_sampled_finely():
    sample = 0.9 + 0.003 * np.random.default_rng(0).standard_normal(200)
    (curve,) = points(density_panel(sample, sample, heading="", note="", title=""), "ma-line ma-source")
    peak = curve[:, 1].min()
    assert (curve[:, 1] < peak + 0.5 * (108 - peak)).sum() > 8


def test_bars_are_as_long_as_their_values():
    picture = bars(["1", "2"], [0.4, 0.1], [0.2, 0.0], title="title")
    lengths = {
        css: [float(v) for v in re.findall(rf'ma-bar {css}" d="M[\d. ]+h([\d.]+)', picture.content)]
        for css in ("ma-nn", "ma-mann")
    }
    longest = lengths["ma-nn"][0]
    assert lengths["ma-nn"][1] == pytest.approx(longest / 4, abs=0.1)
    assert lengths["ma-mann"][0] == pytest.approx(longest / 2, abs=0.1)
    assert lengths["ma-mann"][1] == 1
    assert re.findall(r">(0\.\d{4})<", picture.content) == ["0.4000", "0.2000", "0.1000", "0.0000"]


def test_bars_of_zeros_can_be_drawn():
    assert "nan" not in bars(["1"], [0.0], [0.0], title="title").content


def test_curves_start_and_end_where_their_values_do():
    picture = curves(
        [Curve([0, 100], [0.0, 1.0], "ma-nn"), Curve([50, 100], [0.5, 0.0], "ma-mann")],
        title="t",
        y_range=(0, 1),
        switch=50,
    )
    (first,), (second,) = points(picture, "ma-line ma-nn"), points(picture, "ma-line ma-mann")
    (rule,) = points(picture, "ma-switch")
    assert first[0, 1] - first[1, 1] == pytest.approx(2 * (second[1, 1] - second[0, 1]), abs=0.2)
    assert rule[0, 0] == second[0, 0] == pytest.approx((first[0, 0] + first[1, 0]) / 2)


def test_no_switch_is_drawn_outside_the_epochs():
    assert "ma-switch" not in curves([Curve([1, 2], [0, 1], "ma-nn")], title="t", y_range=(0, 1), switch=5).content


def test_a_strip_shows_every_run_the_median_and_the_paper():
    picture = strip([Strip("NN", [0.8, 0.9, 1.0], 0.9, 0.85, "ma-nn")], title="title")
    (runs,), (median,), (paper,) = (
        points(picture, "ma-run ma-nn"),
        points(picture, "ma-median ma-nn"),
        points(picture, "ma-paper"),
    )
    assert len(runs) == 3
    assert runs[1, 0] == median[0, 0]
    assert paper[0, 0] == pytest.approx(runs[:2, 0].mean(), abs=0.1)


def test_a_strip_of_perfect_runs_can_be_drawn():
    assert "nan" not in strip([Strip("NN", [1.0], 1.0, 1.0, "ma-nn")], title="title").content
