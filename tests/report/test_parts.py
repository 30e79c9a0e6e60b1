from __future__ import annotations

import html
import json
import math
import re

import pytest
from markupsafe import Markup

from momentalign.report import page as parts
from momentalign.report.svg import Frame, Picture

HOSTILE = "<script>alert('x')</script>"
PICTURE = Picture(10, 10, HOSTILE, Markup("<path/>"))


@pytest.mark.parametrize(
    "part",
    [
        parts.text(HOSTILE),
        parts.heading(HOSTILE),
        parts.facts([parts.Fact(HOSTILE, HOSTILE, HOSTILE)]),
        parts.figure(PICTURE, HOSTILE, note=HOSTILE),
        parts.key([parts.Sign(Markup("<path/>"), HOSTILE)]),
        parts.toggles([parts.Sign(Markup("<path/>"), HOSTILE, HOSTILE)]),
        parts.table(HOSTILE, [HOSTILE], [[parts.Cell(HOSTILE)]], footer=[parts.Cell(HOSTILE)]),
        parts.definitions([(HOSTILE, HOSTILE)]),
        parts.picker([parts.Choice("a", HOSTILE, [parts.Bar("ma-nn", 3)], Markup("<p>panel</p>"))]),
    ],
    ids=["text", "heading", "facts", "figure", "key", "toggles", "table", "definitions", "picker"],
)
def test_strings_are_escaped(part: Markup):
    assert isinstance(part, Markup)
    assert "<script" not in part
    assert "&lt;script&gt;" in part


def test_percent_does_not_break():
    assert parts.percent(0.8814) == "88.1\xa0%"


def test_cells_with_values_sort_as_numbers_and_stand_right():
    table = parts.table("t", ["name", "value"], [[parts.Cell("a"), parts.Cell("10 %", 0.1)]])
    assert '<td class="figure" data-value="0.1">10 %</td>' in table
    assert '<th scope="row">a</th>' in table
    assert re.findall(r'<th scope="col"( class="figure")?><button type="button">(\w+)', table) == [
        ("", "name"),
        (' class="figure"', "value"),
    ]


def test_a_first_cell_keeps_its_value_and_stays_left():
    assert '<th scope="row" data-value="3">3</th>' in parts.table("t", ["seed"], [[parts.Cell("3", 3)]])


def test_a_plain_table_has_no_buttons():
    assert "<button" not in parts.table("t", ["a"], [[parts.Cell("1")]], sortable=False)


def test_a_table_without_rows_still_has_its_headings():
    assert "<button" in parts.table("t", ["a"], [])


def test_a_row_holds_its_parts_as_they_are():
    assert "<p>a</p>" in parts.row([Markup("<p>a</p>")], least="9rem")
    assert "--least: 9rem" in parts.row([], least="9rem")


def test_a_figure_without_caption_has_none():
    assert "figcaption" not in parts.figure(PICTURE)


def test_a_cell_without_a_number_stands_right_but_has_no_value():
    table = parts.table("t", ["name", "value"], [[parts.Cell("a"), parts.Cell("none", math.nan)]])
    assert '<td class="figure">none</td>' in table
    assert '<th scope="col" class="figure"><button' in table


def test_an_explorer_keeps_its_drawings_in_the_rows():
    drawings = [parts.Drawing("M0 0", "M1 1", [(3.5, HOSTILE, "start")], HOSTILE), None]
    frame = Frame(x_range=(0, 1), y_range=(0, 1))
    rows = [[parts.Cell(HOSTILE)], [parts.Cell("b")]]
    part = parts.explorer(frame, HOSTILE, [HOSTILE], rows, drawings)
    assert "<script" not in part
    (attributes,) = re.findall(r"<tr (data-source.*?)>", part)
    found = {name: html.unescape(value) for name, value in re.findall(r'data-(\w+)="(.*?)"', attributes)}
    assert (found["source"], found["target"], found["note"]) == ("M0 0", "M1 1", HOSTILE)
    assert json.loads(found["words"]) == [[3.5, HOSTILE, "start"]]
    assert part.count("<tr>") == 2
    assert "<figure" in part
    assert "hidden" in part
