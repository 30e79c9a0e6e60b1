from __future__ import annotations

import html
import json
import math
import re
from importlib.resources import files
from pathlib import Path

import pytest
from markupsafe import Markup

from momentalign.errors import InvalidInputError
from momentalign.report import page as parts
from momentalign.report.page import Fact, Section, check_result, p_value_text, render_page, write_page
from momentalign.report.svg import Frame, Picture

STYLE = files("momentalign.report").joinpath("templates", "figure.css").read_text(encoding="utf-8")
HOSTILE = "<script>alert('x')</script>"
PICTURE = Picture(10, 10, HOSTILE, Markup("<path/>"))


def test_a_page_has_title_lead_facts_sections_and_landmarks():
    sections = [Section("First part", [Markup("<p>one</p>")]), Section("Second: part", [Markup("<p>two</p>")])]
    page = render_page("Title", "Lead.", sections, numbers=[Fact("1 %", "name", "note")])
    assert '<html lang="en">' in page
    assert re.findall(r"<(h1|h2)[^>]*>(.*?)</", page) == [("h1", "Title"), ("h2", "First part"), ("h2", "Second: part")]
    addresses = ["first-part", "second-part"]
    assert re.findall(r'<a href="#([\w-]+)">', page) == re.findall(r'<section id="([\w-]+)"', page) == addresses
    for landmark in ("header", "nav", "main", "footer"):
        assert len(re.findall(f"<{landmark}[ >]", page)) == 1
    assert "<strong>1 %</strong>" in page
    assert "<p>two</p>" in page
    assert '<ul class="facts">' not in render_page("t", "l", [])


def test_every_string_is_escaped():
    drawing = parts.Drawing("M0 0", "M1 1", [(3.5, HOSTILE, "start")], HOSTILE)
    tile = parts.Tile(HOSTILE, HOSTILE, [parts.Answer(HOSTILE, True, HOSTILE)])
    shown = [
        parts.text(HOSTILE),
        parts.heading(HOSTILE),
        parts.figure(PICTURE, HOSTILE, note=HOSTILE),
        parts.key([parts.Sign(Markup("<path/>"), HOSTILE)]),
        parts.toggles([parts.Sign(Markup("<path/>"), HOSTILE, HOSTILE)]),
        parts.table(HOSTILE, [HOSTILE], [[parts.Cell(HOSTILE)]], footer=[parts.Cell(HOSTILE)]),
        parts.explorer(Frame(x_range=(0, 1), y_range=(0, 1)), HOSTILE, [HOSTILE], [[parts.Cell(HOSTILE)]], [drawing]),
        parts.definitions([(HOSTILE, HOSTILE)]),
        parts.picker([parts.Choice("a", HOSTILE, [parts.Bar("ma-nn", 3)], Markup("<p>panel</p>"))]),
        parts.sheet(HOSTILE, [parts.tiles(HOSTILE, [tile])]),
    ]
    for part in shown:
        assert "<script" not in part
        assert "&lt;script&gt;" in part
    page = render_page(HOSTILE, HOSTILE, [Section(HOSTILE, shown)], numbers=[Fact(HOSTILE, HOSTILE, HOSTILE)])
    assert page.count("<script") == 1


def test_cells_with_values_sort_as_numbers_and_stand_right():
    cells = [parts.Cell("a", 3), parts.Cell("10 %", 0.1), parts.Cell("none", math.nan)]
    table = parts.table("t", ["name", "value", "other"], [cells])
    assert '<th scope="row" data-value="3">a</th>' in table
    assert '<td class="figure" data-value="0.1">10 %</td>' in table
    assert '<td class="figure">none</td>' in table
    heads = re.findall(r'<th scope="col"( class="figure")?><button type="button">(\w+)', table)
    assert heads == [("", "name"), (' class="figure"', "value"), (' class="figure"', "other")]


def drawn(track: parts.Track, low: float = 0.0, high: float = 2.0) -> list[dict[str, str]]:
    """The shapes of a track in a table, as their attributes."""
    axis = parts.Axis("values", low, high, "{:g}".format)
    part = parts.table("t", ["name", axis], [[parts.Cell("a"), parts.Cell("", track=track)]])
    (cell,) = re.findall(r'<td class="drawn">(.*?)</td>', part, re.S)
    return [dict(re.findall(r'([\w-]+)="([^"]*)"', shape)) for shape in re.findall(r"<((?:rect|line|svg x).*?)>", cell)]


def test_a_track_draws_its_values_on_the_axis_of_its_column():
    shapes = drawn(parts.Track([(1.0, "ma-mann")], (0.5, 1.5), [(2.0, "target"), (None, "source"), (9.0, "limit")]))
    (bar,) = [shape for shape in shapes if "ma-bar" in shape.get("class", "")]
    assert (bar["x"], bar["width"]) == ("0.0%", "50.0%")
    assert {(one["x1"], one["x2"]) for one in shapes if one.get("class") == "ma-whisker"} == {
        ("25.0%", "75.0%"),
        ("25.0%", "25.0%"),
        ("75.0%", "75.0%"),
    }
    assert [one["x"] for one in shapes if one.get("y") == "50%"] == ["100.0%", "100.0%"], (
        "what lies beyond is at the end"
    )
    (negative,) = [one for one in drawn(parts.Track([(-1.0, "ma-nn")]), -2.0) if "ma-bar" in one.get("class", "")]
    assert (negative["x"], negative["width"]) == ("25.0%", "25.0%")
    nothing, two = (
        [one for one in drawn(parts.Track([(0.0, "a"), (value, "b")])) if "ma-bar" in one.get("class", "")]
        for value in (0.0, 2.0)
    )
    assert all(float(one["width"].rstrip("%")) > 0 for one in nothing), "a bar of no length is a hair wide"
    assert two[0]["y"] != two[1]["y"]


def test_an_axis_has_few_round_labels_and_a_name_for_a_screen_reader():
    axis = parts.Axis(HOSTILE, 0.0, 1.0, "{:.0%}".format)
    assert axis.ticks == [(0.0, "0%"), (0.5, "50%"), (1.0, "100%")]
    part = parts.table("t", ["name", axis], [[parts.Cell("a"), parts.Cell("", track=parts.Track())]])
    assert "&lt;script&gt;" in part
    assert "<script" not in part


def test_only_tables_that_can_be_sorted_have_buttons():
    assert "<button" not in parts.table("t", ["a"], [[parts.Cell("1")]], sortable=False)
    assert "<button" in parts.table("t", ["a"], [])


def test_an_explorer_keeps_its_drawings_in_the_rows():
    drawings = [parts.Drawing("M0 0", "M1 1", [(3.5, HOSTILE, "start")], HOSTILE), None]
    rows = [[parts.Cell("a")], [parts.Cell("b")]]
    part = parts.explorer(Frame(x_range=(0, 1), y_range=(0, 1)), "caption", ["column"], rows, drawings)
    (attributes,) = re.findall(r"<tr (data-source.*?)>", part)
    found = {name: html.unescape(value) for name, value in re.findall(r'data-(\w+)="(.*?)"', attributes)}
    assert (found["source"], found["target"], found["note"]) == ("M0 0", "M1 1", HOSTILE)
    assert json.loads(found["labels"]) == [[3.5, HOSTILE, "start"]]
    assert part.count("<tr>") == 2


@pytest.mark.parametrize(
    ("p", "expected"),
    [(0.5, "p = 0.50"), (0.01, "p = 0.01"), (9.4e-30, "p = 9·10⁻³⁰"), (9.9e-7, "p = 1·10⁻⁶"), (0.0, "p < 10⁻⁹⁹")],
)
def test_p_values_are_written_plain_or_as_powers(p: float, expected: str):
    assert p_value_text(p) == expected


def colours(block: str) -> dict[str, str]:
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block))


def brightness(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((brightness(one), brightness(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_and_lines_stand_out_from_their_ground(scheme: str):
    light, dark = (colours(block) for block in re.split(r"@media screen", STYLE)[:2])
    palette = light if scheme == "light" else light | dark
    assert dark.keys() == light.keys()
    for ground in ("page", "card"):
        for ink in ("ink", "muted", "accent"):
            assert contrast(palette[ink], palette[ground]) >= 4.5, (ink, ground)
    digits = [f"digit-{digit}" for digit in range(10)]
    for ink in ("class-0", "class-1", "class-2", "source", "target", "nn", "mann", "wrong", *digits):
        assert contrast(palette[ink], palette["card"]) >= 3, ink


def test_a_page_is_written_whole_or_not_at_all(tmp_path: Path):
    goal = tmp_path / "page.html"
    assert write_page("<p>ä</p>\n", goal) == goal
    assert goal.read_bytes() == "<p>ä</p>\n".encode()
    with pytest.raises(UnicodeEncodeError):
        write_page("new \ud800", goal)
    assert goal.read_bytes() == "<p>ä</p>\n".encode()
    assert [entry.name for entry in tmp_path.iterdir()] == ["page.html"]
    with pytest.raises(InvalidInputError, match="cannot be written"):
        write_page("new", tmp_path / "page.html" / "inside.html")


def test_a_result_of_another_kind_or_without_a_part_is_refused():
    with pytest.raises(InvalidInputError, match=r"'kind'.*'digits'.*'artificial'"):
        check_result({"kind": "digits"}, "artificial", [])
    with pytest.raises(InvalidInputError, match=r"lacks runs, paper, .*; make it again"):
        check_result({"kind": "artificial", "data": 1}, "artificial", ["data", "runs", "paper"])
