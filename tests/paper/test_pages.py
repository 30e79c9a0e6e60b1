"""What every page of an experiment promises: labelled figures, no address but the paper's, all numbers, no code."""

import json
import re
from functools import partial
from pathlib import Path

import pytest

from momentalign.paper.artificial_page import artificial_page, figure_3, figure_4
from momentalign.paper.digits import digits_page
from momentalign.paper.overpenalization import figure_2, overpenalization_page
from momentalign.paper.sensitivity import figure_5, sensitivity_page
from momentalign.paper.sentiment import sentiment_page

HOSTILE = "<script>alert('x')</script>\"&"
RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
FIGURES = {"artificial": 46, "overpenalization": 2, "digits": 84, "sentiment": 12, "sensitivity": 4}


@pytest.fixture(params=FIGURES)
def made(request, artificial_result, overpenalization_result, digits_result):
    """Name, result and page of an experiment."""
    name = request.param
    if name in ("sentiment", "sensitivity"):
        result = json.loads((RESULTS / f"{name}.json").read_bytes())["result"]
    else:
        own = {"artificial": artificial_result, "overpenalization": overpenalization_result}
        result = own[name] if name in own else digits_result("cnn", "coral", "cmd", "cv-cmd")
    pages = (artificial_page, overpenalization_page, digits_page, sentiment_page, sensitivity_page)
    return name, result, partial(dict(zip(FIGURES, pages, strict=True))[name], result)


def test_a_page_is_labelled_whole_and_stays_home(made):
    name, _, make = made
    page = make()
    assert page == make()
    assert len(page.encode()) < 4_000_000
    pictures = re.findall(r'<svg class="ma-figure"[^>]*>', page)
    assert len(pictures) == FIGURES[name]
    assert all(re.search(r'role="img" aria-label="[^"]{20,}"', picture) for picture in pictures)
    assert set(re.findall(r"https?://[^\s\"'<]+", page)) == {"https://doi.org/10.1016/j.ins.2019.01.025"}
    assert not re.findall(r"(?:src=|@import|url\((?!data:))", page)
    assert not re.findall(r"\b(?:nan|None|inf)\b", page)
    ids = re.findall(r' id="([^"]+)"', page)
    assert len(ids) == len(set(ids))


def poison(name, result):
    """Put what would be code wherever a result holds a text."""
    result["versions"] = {HOSTILE: HOSTILE}
    if name == "artificial":
        result["setting"] |= {"name": HOSTILE, "description": HOSTILE, "optimizer": HOSTILE}
    elif name == "overpenalization":
        result["rows"][0] |= {"metric": HOSTILE, "paper": HOSTILE}
    elif name == "digits":
        result |= {"note": HOSTILE, "device": HOSTILE}
        result["methods"]["cmd"] |= {"title": HOSTILE, "settings": {HOSTILE: HOSTILE}}
    else:
        result |= {"data": {HOSTILE: HOSTILE}, "protocol": {HOSTILE: HOSTILE}}
        renamed = {result["tasks"][0]: f"{HOSTILE}->x"}
        result["tasks"] = [renamed.get(task, task) for task in result["tasks"]]
        for method in result.get("methods", {}).values():
            method["title"] = HOSTILE
            method["accuracy"] = {renamed.get(task, task): own for task, own in method["accuracy"].items()}


def test_strings_are_escaped(made):
    name, result, make = made
    scripts = make().count("<script")
    poison(name, result)
    page = make()
    assert page.count("<script") == scripts == 1
    assert page.count("&lt;script&gt;") >= 4
    for figure in {"artificial": (figure_3, figure_4), "overpenalization": (figure_2,), "sensitivity": (figure_5,)}.get(
        name, ()
    ):
        assert "<script" not in figure(result)
