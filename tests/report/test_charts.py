from __future__ import annotations

import re

import numpy as np
import pytest
from scipy.stats import gaussian_kde

from momentalign.report.charts import NARROWEST, BarGroup, bars, density, density_panel
from momentalign.report.svg import Picture


def lengths(picture: Picture, css: str) -> list[float]:
    return [float(length) for length in re.findall(rf'ma-bar {css}" d="M[\d. ]+h([\d.]+)', picture.content)]


def written(picture: Picture) -> list[str]:
    return re.findall(r">([+-]?\d\.\d+)<", picture.content)


def test_bars_are_as_long_as_their_values_and_say_them():
    picture = bars([BarGroup("1", [0.4, 0.2]), BarGroup("2", [0.1, 0.0])], css=("ma-nn", "ma-mann"), title="title")
    before, after = lengths(picture, "ma-nn"), lengths(picture, "ma-mann")
    assert before[1] == pytest.approx(before[0] / 4, abs=0.1)
    assert after == pytest.approx([before[0] / 2, 1], abs=0.1)
    assert written(picture) == ["0.4000", "0.2000", "0.1000", "0.0000"]


def test_bars_below_zero_go_to_the_left():
    picture = bars(
        [BarGroup("up", [0.5]), BarGroup("down", [-1.0])], css=["ma-target"], title="t", write="{:+.1f}".format
    )
    corners = [float(x) for x in re.findall(r'ma-bar ma-target" d="M([\d.]+) ', picture.content)]
    up, down = lengths(picture, "ma-target")
    assert down == pytest.approx(2 * up, abs=0.2)
    assert corners[1] + down == pytest.approx(corners[0], abs=0.2)
    assert written(picture) == ["+0.5", "-1.0"]


def test_a_limit_is_a_stroke_on_the_scale_of_the_bars():
    picture = bars([BarGroup("1", [0.5], 1.0), BarGroup("2", [1.0], 0.5)], css=["ma-target"], title="t")
    strokes = [float(x) for x in re.findall(r'ma-median ma-source" d="M([\d.]+) ', picture.content)]
    corner = float(re.findall(r'ma-bar ma-target" d="M([\d.]+) ', picture.content)[0])
    assert np.subtract(strokes, corner) == pytest.approx(lengths(picture, "ma-target")[::-1], abs=0.2)
    values = [float(x) for x in re.findall(r'x="([\d.]+)" y="[\d.]+" text-anchor="start"', picture.content)]
    assert min(np.subtract(values, strokes)) > 0  # A value covers no stroke.


def test_bars_of_zeros_and_long_names_can_be_drawn():
    content = bars([BarGroup("<" * 50, [0.0])], css=["ma-nn"], title="title").content
    assert "nan" not in content
    assert f">{'&lt;' * 17}…<" in content


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
