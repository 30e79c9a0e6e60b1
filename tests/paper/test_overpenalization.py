"""Section 7.1: every metric beside the printed inequality, and the page."""

import json
import math
import re
import subprocess
import sys
from fractions import Fraction
from xml.etree import ElementTree

import numpy as np
import pytest
from scipy import special

from momentalign.errors import InvalidInputError
from momentalign.paper.overpenalization import LEFT, RIGHT, SOURCE, figure_2, overpenalization_page, run
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


HOSTILE = "<script>alert(1)</script>"


def lead(result):
    return re.findall(r'<p class="lead">(.*?)</p>', overpenalization_page(result))[0]


def test_the_lead_counts_the_misled_metrics(overpenalization_result):
    assert lead(overpenalization_result).startswith("3 of 4 metrics find a Normal closer")
    assert lead(overpenalization_result).endswith("; variance does not.")


def test_the_lead_reads_well_for_any_count(overpenalization_result):
    rows = overpenalization_result["rows"]
    overpenalization_result["rows"] = [rows[0], rows[3], {**rows[3], "metric": "other"}]
    assert lead(overpenalization_result).startswith("1 of 3 metrics finds")
    assert lead(overpenalization_result).endswith("; variance and other do not.")
    overpenalization_result["rows"] = rows[:2]
    assert lead(overpenalization_result).endswith("to the right.")


def test_the_table_says_what_each_metric_finds_closer(overpenalization_result):
    body = re.findall(r"<tbody>(.*?)</tbody>", overpenalization_page(overpenalization_result), re.S)[0]
    for row, entry in zip(body.split("</tr>"), overpenalization_result["rows"], strict=False):
        assert f'<th scope="row">{entry["metric"]}</th>' in row
        assert [float(v) for v in re.findall(r'data-value="([^"]+)"', row)] == [entry["left"], entry["right"]]
        assert {"left": "left, Normal", "right": "right, shifted Beta"}[entry["prefers"]] in row
        assert "left &lt; 0.02 &lt; right" in row


def test_both_panels_show_the_source_dashed_and_their_target_solid(overpenalization_result):
    figure = figure_2(overpenalization_result)
    ElementTree.fromstring(figure)  # noqa: S314
    dashed, solid = (
        re.findall(rf'class="ma-line {css}" d="(.*?)"', figure) for css in ("ma-dashed ma-source", "ma-target")
    )
    assert len(dashed) == len(solid) == 2
    assert dashed[0] == dashed[1]
    assert solid[0] != solid[1]


def test_poles_leave_the_axis_and_are_cut(overpenalization_result):
    x = overpenalization_result["densities"]["x"]
    pole = int(np.argmin(np.abs(np.array(x) - 0.1)))
    overpenalization_result["densities"]["source"][pole] = None
    figure = figure_2(overpenalization_result)
    path = re.findall(r'ma-dashed ma-source" d="(.*?)"', figure)[0]
    heights = np.array(re.findall(r"[\d.]+ (-?[\d.]+)", path), dtype=float)
    assert heights[pole] < 0
    assert len(heights) == len(x)
    assert re.search(r'<svg x="[\d.]+" y="12" [^>]*><path class="ma-area', figure)


def test_the_page_is_labelled_deterministic_and_stays_home(overpenalization_result):
    page = overpenalization_page(overpenalization_result)
    assert page == overpenalization_page(overpenalization_result)
    assert len(re.findall(r'<svg class="ma-figure"[^>]*role="img" aria-label="[^"]{20,}"', page)) == 2
    assert set(re.findall(r"https?://[^\s\"'<]+", page)) == {"https://doi.org/10.1016/j.ins.2019.01.025"}
    assert "momentalign 0.1.0" in page


def test_strings_are_escaped(overpenalization_result):
    overpenalization_result["rows"][0] |= {"metric": HOSTILE, "paper": HOSTILE}
    overpenalization_result["versions"] = {HOSTILE: HOSTILE}
    page = overpenalization_page(overpenalization_result)
    assert page.count("<script") == 1
    assert page.count("&lt;script&gt;") == 4


@pytest.mark.parametrize("missing", ["rows", "densities", "versions"])
def test_an_incomplete_result_is_refused(overpenalization_result, missing):
    del overpenalization_result[missing]
    with pytest.raises(InvalidInputError, match=f"lacks {missing};"):
        overpenalization_page(overpenalization_result)
