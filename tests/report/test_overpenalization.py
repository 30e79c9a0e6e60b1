from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from momentalign.errors import InvalidInputError
from momentalign.paper.overpenalization import figure_2, overpenalization_page

HOSTILE = "<script>alert(1)</script>"


def lead(result: dict[str, Any]) -> str:
    return re.findall(r'<p class="lead">(.*?)</p>', overpenalization_page(result))[0]


def test_the_lead_counts_the_misled_metrics(overpenalization_result: dict[str, Any]):
    assert lead(overpenalization_result).startswith("3 of 4 metrics find a Normal closer")
    assert lead(overpenalization_result).endswith("; variance does not.")


def test_the_lead_reads_well_for_any_count(overpenalization_result: dict[str, Any]):
    rows = overpenalization_result["rows"]
    overpenalization_result["rows"] = [rows[0], rows[3], {**rows[3], "metric": "other"}]
    assert lead(overpenalization_result).startswith("1 of 3 metrics finds")
    assert lead(overpenalization_result).endswith("; variance and other do not.")
    overpenalization_result["rows"] = rows[:2]
    assert lead(overpenalization_result).endswith("to the right.")


def test_the_table_says_what_each_metric_finds_closer(overpenalization_result: dict[str, Any]):
    body = re.findall(r"<tbody>(.*?)</tbody>", overpenalization_page(overpenalization_result), re.S)[0]
    for row, entry in zip(body.split("</tr>"), overpenalization_result["rows"], strict=False):
        assert f'<th scope="row">{entry["metric"]}</th>' in row
        assert [float(v) for v in re.findall(r'data-value="([^"]+)"', row)] == [entry["left"], entry["right"]]
        assert {"left": "left, Normal", "right": "right, shifted Beta"}[entry["prefers"]] in row
        assert "left &lt; 0.02 &lt; right" in row


def test_both_panels_show_the_source_dashed_and_their_target_solid(overpenalization_result: dict[str, Any]):
    figure = figure_2(overpenalization_result)
    ElementTree.fromstring(figure)  # noqa: S314
    dashed, solid = (
        re.findall(rf'class="ma-line {css}" d="(.*?)"', figure) for css in ("ma-dashed ma-source", "ma-target")
    )
    assert len(dashed) == len(solid) == 2
    assert dashed[0] == dashed[1]
    assert solid[0] != solid[1]


def test_poles_leave_the_axis_and_are_cut(overpenalization_result: dict[str, Any]):
    x = overpenalization_result["densities"]["x"]
    pole = int(np.argmin(np.abs(np.array(x) - 0.1)))
    overpenalization_result["densities"]["source"][pole] = None
    figure = figure_2(overpenalization_result)
    path = re.findall(r'ma-dashed ma-source" d="(.*?)"', figure)[0]
    heights = np.array(re.findall(r"[\d.]+ (-?[\d.]+)", path), dtype=float)
    assert heights[pole] < 0
    assert len(heights) == len(x)
    assert re.search(r'<svg x="[\d.]+" y="12" [^>]*><path class="ma-area', figure)


def test_the_page_is_labelled_deterministic_and_stays_home(overpenalization_result: dict[str, Any]):
    page = overpenalization_page(overpenalization_result)
    assert page == overpenalization_page(overpenalization_result)
    assert len(re.findall(r'<svg class="ma-figure"[^>]*role="img" aria-label="[^"]{20,}"', page)) == 2
    assert set(re.findall(r"https?://[^\s\"'<]+", page)) == {"https://doi.org/10.1016/j.ins.2019.01.025"}
    assert "momentalign 0.1.0" in page


def test_strings_are_escaped(overpenalization_result: dict[str, Any]):
    overpenalization_result["rows"][0] |= {"metric": HOSTILE, "paper": HOSTILE}
    overpenalization_result["versions"] = {HOSTILE: HOSTILE}
    page = overpenalization_page(overpenalization_result)
    assert page.count("<script") == 1
    assert page.count("&lt;script&gt;") == 4


@pytest.mark.parametrize("missing", ["rows", "densities", "versions"])
def test_an_incomplete_result_is_refused(overpenalization_result: dict[str, Any], missing: str):
    del overpenalization_result[missing]
    with pytest.raises(InvalidInputError, match=f"lacks {missing};"):
        overpenalization_page(overpenalization_result)
