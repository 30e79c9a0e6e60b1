import json
import math
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
from scipy import special

from momentalign.paper.overpenalization import LEFT, RIGHT, SOURCE, run
from momentalign.theory.exact_moments import central_moments_of


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
    assert central_moments_of(SOURCE) == central_moments_of(RIGHT) == (1, 0, variance, 0, kurtosis * variance**2)
    assert central_moments_of(LEFT) == (1, 0, Fraction("0.0729"), 0, 3 * Fraction("0.0729") ** 2)


@pytest.mark.parametrize(
    ("metric", "left", "right"),
    [
        ("d_P1", 0.0, 0.02),
        ("d_P2", 0.015988888888888889, 0.0204),
        ("d_P4", 0.01926817350877193, 0.02149616),
        ("MMD (1 + xy)^2", 0.00025564456790123457, 0.00121616),
        ("MMD (1 + xy)^4", 0.004205931028882659, 0.006313202661856711),
        ("mean feature matching", 0.0, 0.02),
        ("covariance feature matching", 0.015988888888888889, 0.0204),
        ("cmd_4", 0.02070404871345029, 0.02),
    ],
)
def test_every_metric(rows, metric, left, right):
    assert (rows[metric]["left"], rows[metric]["right"]) == pytest.approx((left, right), rel=1e-12)


def test_only_the_cmd_prefers_the_shifted_source(rows):
    assert {metric for metric, row in rows.items() if row["prefers"] == "right"} == {"cmd_4"}


def test_printed_inequalities_that_are_off_by_rounding_are_reported_so(rows):
    off = {metric for metric, row in rows.items() if not row["holds"]}
    assert off == {"d_P1", "MMD (1 + xy)^2", "MMD (1 + xy)^4", "cmd_4"}
    assert off == {metric for metric, row in rows.items() if "not quite" in row["paper"]}


def test_the_inequalities_are_those_of_the_paper(rows):
    assert {metric: row["paper"].split(" (")[0] for metric, row in rows.items()} == {
        "d_P1": "left = 0 < 0.02 < right",
        "d_P2": "left < 0.016 < 0.02 < right",
        "d_P4": "left < 0.02 < 0.021 < right",
        "MMD (1 + xy)^2": "left < 0.00025 < 0.0012 < right",
        "MMD (1 + xy)^4": "left < 0.004 < 0.006 < right",
        "mean feature matching": "left < right",
        "covariance feature matching": "left < right",
        "cmd_4": "left > 0.0207 > 0.02 > right",
    }


def test_printed_inequalities_hold_once_their_rounding_is_mended(rows):
    assert rows["d_P1"]["left"] == 0.0 < 0.02 <= rows["d_P1"]["right"]
    assert rows["MMD (1 + xy)^2"]["left"] < 0.00026 < 0.0012 < rows["MMD (1 + xy)^2"]["right"]
    assert rows["MMD (1 + xy)^4"]["left"] < 0.0043 < 0.006 < rows["MMD (1 + xy)^4"]["right"]
    assert rows["cmd_4"]["left"] > 0.0207 > 0.02 >= rows["cmd_4"]["right"]


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
