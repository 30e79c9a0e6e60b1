from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from momentalign.report.charts import most_different, p_words, unit_panel, units_parts


@pytest.mark.parametrize(
    ("p", "words"),
    [(0.5, "p = 0.50"), (0.01, "p = 0.01"), (9.4e-30, "p = 9·10⁻³⁰"), (9.9e-7, "p = 1·10⁻⁶"), (0.0, "p < 10⁻⁹⁹")],
)
def test_p_values_read_well(p: float, words: str):
    assert p_words(p) == words


@pytest.mark.parametrize("name", ["nn", "mann"])
def test_the_most_different_units_come_first(artificial_result: dict[str, Any], name: str):
    units = [
        int(re.findall(r"hidden unit (\d+)", picture.title)[0]) - 1
        for picture in most_different(artificial_result, name)
    ]
    values = np.array(artificial_result["shown"][name]["ks_pvalue"])
    assert units == np.argsort(values, kind="stable")[:5].tolist()


def test_a_panel_says_its_unit_and_p_value(artificial_result: dict[str, Any]):
    p = artificial_result["shown"]["mann"]["ks_pvalue"][6]
    assert unit_panel(artificial_result, "mann", 6).title.endswith(
        f"unit 7 on source and target, MANN, with alignment: {p_words(p)}"
    )


def test_the_picker_holds_every_unit_before_and_after(artificial_result: dict[str, Any]):
    picker = units_parts(artificial_result)[-1]
    assert re.findall(r'aria-controls="unit-(\d+)"', picker) == [str(unit) for unit in range(1, 16)]
    assert re.findall(r'<div id="unit-(\d+)"', picker) == [str(unit) for unit in range(1, 16)]
    assert picker.count("<svg") == 30
    shares = [round(100 * value) for value in artificial_result["shown"]["nn"]["ks_statistic"]]
    assert re.findall(r'class="ma-nn" style="--share: (\d+)"', picker) == [str(share) for share in shares]


def test_the_text_counts_the_differing_units(artificial_result: dict[str, Any]):
    counts = [sum(p < 0.01 for p in artificial_result["shown"][name]["ks_pvalue"]) for name in ("nn", "mann")]
    assert (
        f"finds {counts[0]} of 15 units different without alignment and {counts[1]} with it"
        in units_parts(artificial_result)[0]
    )
