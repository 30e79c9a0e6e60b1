from __future__ import annotations

import os
import re
import stat
from importlib.resources import files
from pathlib import Path

import pytest
from markupsafe import Markup

from momentalign.errors import InvalidInputError
from momentalign.report.page import Fact, Section, read_result, render_page, write_page

STYLE = files("momentalign.report").joinpath("templates", "figure.css").read_text(encoding="utf-8")


def colours(block: str) -> dict[str, str]:
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block))


def brightness(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((brightness(one), brightness(other)))
    return (high + 0.05) / (low + 0.05)


def test_a_page_has_title_lead_facts_sections_and_landmarks():
    sections = [Section("First part", [Markup("<p>one</p>")]), Section("Second: part", [Markup("<p>two</p>")])]
    page = render_page("Title", "Lead.", sections, numbers=[Fact("1 %", "name", "note")])
    assert '<html lang="en">' in page
    assert re.findall(r"<(h1|h2)[^>]*>(.*?)</", page) == [("h1", "Title"), ("h2", "First part"), ("h2", "Second: part")]
    assert (
        re.findall(r'<a href="#([\w-]+)">', page)
        == re.findall(r'<section id="([\w-]+)"', page)
        == ["first-part", "second-part"]
    )
    for landmark in ("header", "nav", "main", "footer"):
        assert len(re.findall(f"<{landmark}[ >]", page)) == 1
    assert "<strong>1 %</strong>" in page
    assert "<p>two</p>" in page


def test_title_and_lead_are_escaped():
    page = render_page("<script>1</script>", "<script>2</script>", [Section("<script>3</script>", [])])
    assert page.count("<script") == 1


def test_a_page_without_facts_has_no_empty_list():
    assert '<ul class="facts">' not in render_page("t", "l", [])


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


def test_a_page_is_written_whole(tmp_path: Path):
    goal = tmp_path / "page.html"
    assert write_page("<p>ä</p>\n", goal) == goal
    assert goal.read_bytes() == "<p>ä</p>\n".encode()
    assert [entry.name for entry in tmp_path.iterdir()] == ["page.html"]
    if os.name == "posix":
        assert stat.S_IMODE(goal.stat().st_mode) == 0o644


def test_a_failed_write_leaves_the_old_page_and_nothing_else(tmp_path: Path):
    goal = tmp_path / "page.html"
    goal.write_text("old", encoding="utf-8")
    with pytest.raises(UnicodeEncodeError):
        write_page("new \ud800", goal)
    assert goal.read_text(encoding="utf-8") == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["page.html"]


def test_another_kind_of_result_is_refused():
    with pytest.raises(InvalidInputError, match=r"'kind'.*'digits'.*'artificial'"):
        read_result({"kind": "digits"}, "artificial", [])


def test_a_missing_part_is_named():
    with pytest.raises(InvalidInputError, match=r"lacks runs, paper;.*momentalign reproduce artificial"):
        read_result({"kind": "artificial", "data": 1}, "artificial", ["data", "runs", "paper"])
