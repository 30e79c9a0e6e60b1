"""Section 7.1: every metric beside the printed inequality, and the page."""

import json
import math
import re
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
from scipy import special, stats

from momentalign.discrepancies.central_moment import cmd as cmd_of_samples
from momentalign.paper.overpenalization import (
    LEFT,
    RIGHT,
    SOURCE,
    affine_moments,
    beta_moments,
    central_moments,
    cmd,
    ipm,
    mmd,
    normal_moments,
    overpenalization_page,
    run,
)
from momentalign.theory.definitions import polynomial_ipm

BETA = affine_moments(beta_moments(Fraction("0.4"), Fraction("0.7"), 6), Fraction("0.8"), Fraction("0.1"))
NORMAL = normal_moments(Fraction("0.5"), Fraction("0.27") ** 2, 6)
FROZEN = {"beta": (BETA, stats.beta(0.4, 0.7, loc=0.1, scale=0.8)), "normal": (NORMAL, stats.norm(0.5, 0.27))}


@pytest.mark.parametrize("name", FROZEN)
def test_raw_and_central_moments_against_scipy(name):
    raw, law = FROZEN[name]
    assert [float(moment) for moment in raw] == pytest.approx([law.moment(j) for j in range(7)], rel=1e-10)
    mean, variance, skew, kurtosis = (float(value) for value in law.stats("mvsk"))
    central = [float(moment) for moment in central_moments(raw)[:5]]
    third, fourth = skew * variance**1.5, (kurtosis + 3) * variance**2
    assert float(raw[1]) == pytest.approx(mean)
    assert central == pytest.approx([1.0, 0.0, variance, third, fourth], rel=1e-10, abs=1e-15)


def as_moments(values, order=6):
    exact = [Fraction(value) for value in values]
    return tuple(sum((value**j for value in exact), Fraction(0)) / len(exact) for j in range(order + 1))


def test_metrics_agree_with_those_of_samples():
    left, right = [0.0, 0.25, 0.25, 1.0], [0.5, 0.125, 0.75]
    columns = np.array(left)[:, None], np.array(right)[:, None]
    laws = as_moments(left), as_moments(right)
    for order in range(1, 7):
        assert float(ipm(*laws, order)) == pytest.approx(polynomial_ipm(*columns, order), abs=1e-15)
        assert float(cmd(*laws, order)) == pytest.approx(cmd_of_samples(*columns, n_moments=order), abs=1e-15)


@pytest.mark.parametrize("degree", [1, 2, 3, 4])
def test_mmd_is_the_double_integral_of_its_kernel(degree):
    # Gauss quadrature of 8 nodes is exact for these polynomials: Beta by Gauss-Jacobi, Normal by Gauss-Hermite.
    nodes, weights = special.roots_jacobi(8, 0.7 - 1, 0.4 - 1)
    beta = 0.1 + 0.8 * (nodes + 1) / 2, weights / weights.sum()
    nodes, weights = special.roots_hermitenorm(8)
    normal = 0.5 + 0.27 * nodes, weights / weights.sum()

    def expected_kernel(left, right):
        return left[1] @ (1 + np.outer(left[0], right[0])) ** degree @ right[1]

    expected = expected_kernel(beta, beta) + expected_kernel(normal, normal) - 2 * expected_kernel(beta, normal)
    assert float(mmd(BETA, NORMAL, degree)) == pytest.approx(expected, rel=1e-9)


def test_the_cmd_of_a_shifted_law_is_the_shift():
    shifted = affine_moments(BETA, Fraction(1), Fraction("-0.02"))
    assert cmd(BETA, shifted, 6) == Fraction("0.02")


@pytest.fixture(scope="module")
def result():
    return run()


@pytest.fixture(scope="module")
def rows(result):
    return {row["metric"]: row for row in result["rows"]}


def test_the_laws_are_those_of_section_7_1():
    # Beta(0.4, 0.4) has variance 1/(4 * 1.8) and kurtosis 3 - 6/3.8.
    variance = Fraction("0.64") / Fraction("7.2")
    kurtosis = 3 - 6 / Fraction("3.8")
    assert (SOURCE[1], LEFT[1], RIGHT[1]) == (Fraction("0.5"), Fraction("0.5"), Fraction("0.52"))
    assert central_moments(SOURCE) == central_moments(RIGHT) == (1, 0, variance, 0, kurtosis * variance**2)
    assert central_moments(LEFT) == (1, 0, Fraction("0.0729"), 0, 3 * Fraction("0.0729") ** 2)


def test_only_the_cmd_prefers_the_shifted_source(rows):
    assert {metric for metric, row in rows.items() if row["prefers"] == "right"} == {"cmd_4"}


def test_printed_inequalities_that_are_off_by_rounding_are_reported_so(rows):
    off = {metric for metric, row in rows.items() if not row["holds"]}
    assert off == {"d_P1", "MMD (1 + xy)^2", "MMD (1 + xy)^4", "cmd_4"}
    assert off == {metric for metric, row in rows.items() if "not quite" in row["paper"]}


def test_densities_are_those_of_the_three_laws(result):
    densities = {name: np.array(values) for name, values in result["densities"].items()}
    x = densities.pop("x")
    step = x[1] - x[0]
    assert set(densities) == {"source", "left", "right"}
    assert all(np.isfinite(density).all() and density.size == x.size for density in densities.values())
    # Away from the infinite ends of the Beta density the midpoint rule gives the mass of an interval.
    inside = (x > 0.3) & (x < 0.7)
    mass = special.betainc(0.4, 0.4, 0.75) - special.betainc(0.4, 0.4, 0.25)
    assert densities["source"][inside].sum() * step == pytest.approx(mass, rel=1e-4)
    assert densities["left"].sum() * step == pytest.approx(1.0, abs=2e-3)
    assert densities["left"].max() == pytest.approx(1 / math.sqrt(2 * math.pi) / 0.27, rel=1e-3)
    shift = round(0.02 / step)
    assert densities["right"][shift:] == pytest.approx(densities["source"][:-shift], rel=1e-9)


def test_the_result_is_json_and_needs_no_torch():
    code = (
        "import json, sys; from momentalign.paper.overpenalization import run; "
        "print(json.dumps(run(), allow_nan=False)); sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    result = json.loads(done.stdout)
    assert result["kind"] == "overpenalization"
    assert set(result["versions"]) == {"momentalign", "numpy", "scipy"}


def test_the_table_says_what_each_metric_finds_closer(overpenalization_result):
    body = re.findall(r"<tbody>(.*?)</tbody>", overpenalization_page(overpenalization_result), re.S)[0]
    for row, entry in zip(body.split("</tr>"), overpenalization_result["rows"], strict=False):
        assert f'<th scope="row">{entry["metric"]}</th>' in row
        values = [float(value) for value in re.findall(r'data-value="([^"]+)"', row)]
        assert values == pytest.approx([entry["left"], entry["right"]], rel=1e-4)
        assert {"left": "left, Normal", "right": "right, shifted Beta"}[entry["prefers"]] in row
        assert "left &lt; 0.02 &lt; right" in row
