"""The page of the artificial example: what it says, shows and escapes."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from momentalign.errors import InvalidInputError
from momentalign.paper.artificial_page import KEYS, artificial_page, figure_3, figure_4
from momentalign.report.page import percent

HOSTILE = "<script>alert(1)</script>"


def test_the_page_says_both_medians(artificial_result):
    median = artificial_result["median"]
    (lead,) = re.findall(r'<p class="lead">(.*?)</p>', artificial_page(artificial_result))
    assert f"from {percent(median['nn_accuracy'])} to {percent(median['mann_accuracy'])} (median of 5 seeds)" in lead


@pytest.mark.parametrize(
    ("before", "after", "words"), [(0.8, 0.9, "raises"), (0.9, 0.8, "lowers"), (0.9, 0.9, "at 90.0\xa0%")]
)
def test_the_lead_follows_the_numbers(artificial_result, before, after, words):
    artificial_result["median"] = {"nn_accuracy": before, "mann_accuracy": after}
    (lead,) = re.findall(r'<p class="lead">(.*?)</p>', artificial_page(artificial_result))
    assert words in lead


def test_the_page_is_small_and_deterministic(artificial_result):
    page = artificial_page(artificial_result)
    assert len(page.encode()) < 2_000_000
    assert page == artificial_page(artificial_result)


def test_every_figure_has_a_label(artificial_result):
    page = artificial_page(artificial_result)
    pictures = re.findall(r'<svg class="ma-figure"[^>]*>', page)
    assert len(pictures) == 2 + 10 + 30 + 1 + 3 + 1
    assert all(re.search(r'role="img" aria-label="[^"]{20,}"', picture) for picture in pictures)
    assert all("aria-hidden" in swatch for swatch in re.findall(r'<svg class="ma-swatch[^>]*>', page))


def test_the_page_points_to_the_paper_and_nowhere_else(artificial_result):
    page = artificial_page(artificial_result)
    assert set(re.findall(r"https?://[^\s\"'<]+", page)) == {"https://doi.org/10.1016/j.ins.2019.01.025"}
    assert not re.findall(r"(?:src|@import|url\()", page)


def test_ids_are_unique(artificial_result):
    ids = re.findall(r' id="([^"]+)"', artificial_page(artificial_result))
    assert len(ids) == len(set(ids))


def test_no_number_is_missing(artificial_result):
    assert not re.findall(r"\b(?:nan|None|inf)\b", artificial_page(artificial_result))


def test_strings_are_escaped(artificial_result):
    artificial_result["setting"] |= {"name": HOSTILE, "description": HOSTILE, "optimizer": HOSTILE}
    artificial_result["versions"] = {HOSTILE: HOSTILE}
    page = artificial_page(artificial_result)
    assert page.count("<script") == 1
    assert page.count("&lt;script&gt;") == 5


def test_the_table_holds_every_run_and_the_medians(artificial_result):
    page = artificial_page(artificial_result)
    (table,) = re.findall(r"<caption>All runs</caption>(.*?)</table>", page, re.S)
    seeds = re.findall(r'<th scope="row" data-value="(\d+)">', table)
    assert seeds == [str(run["seed"]) for run in artificial_result["runs"]]
    (foot,) = re.findall(r"<tfoot>(.*?)</tfoot>", table, re.S)
    columns = ["nn_accuracy", "mann_accuracy", "nn_units_different", "mann_units_different", "nn_cmd", "mann_cmd"]
    medians = [np.median([run[column] for run in artificial_result["runs"]]) for column in columns]
    assert [float(value) for value in re.findall(r'data-value="([^"]+)"', foot)] == pytest.approx(medians)


def test_the_page_says_how_it_was_made(artificial_result):
    page = artificial_page(artificial_result)
    for words in (
        "generated points, seed 0",
        "639 labelled source",
        "5 seeds in 31.2 seconds",
        "momentalign 0.1.0",
        "10,000 plain",
    ):
        assert words in page
    artificial_result |= {"data": "authors", "data_seed": None}
    assert "the authors&#39; points" in artificial_page(artificial_result)


def test_the_paper_stands_beside_our_medians(artificial_result):
    (table,) = re.findall(r"<caption>Beside the paper</caption>(.*?)</table>", artificial_page(artificial_result), re.S)
    values = [float(value) for value in re.findall(r'data-value="([^"]+)"', table)]
    units = [
        np.median([run[f"{name}_units_different"] for run in artificial_result["runs"]]) for name in ("nn", "mann")
    ]
    median = artificial_result["median"]
    assert values == [0.867, median["nn_accuracy"], 13, units[0], 0.997, median["mann_accuracy"], 5, units[1]]


def test_one_seed_is_called_one_seed(artificial_result):
    artificial_result["runs"] = artificial_result["runs"][:1]
    page = artificial_page(artificial_result)
    assert "(one seed)" in page
    assert "seeds in" not in page


def test_gaps_in_the_history_are_left_out(artificial_result):
    artificial_result["shown"]["history"]["nn"]["distance"][3] = None
    assert "nan" not in artificial_page(artificial_result)


@pytest.mark.parametrize("missing", KEYS)
def test_an_incomplete_result_is_refused(artificial_result, missing):
    del artificial_result[missing]
    with pytest.raises(InvalidInputError, match=f"lacks {missing};"):
        artificial_page(artificial_result)


def test_figure_3_holds_both_panels(artificial_result):
    figure = figure_3(artificial_result)
    root = ElementTree.fromstring(figure)  # noqa: S314
    assert "NN on the left" in (root.get("aria-label") or "")
    assert figure.count('data-layer="mistakes"') == 2
    assert figure == figure_3(artificial_result)


def test_figure_4_holds_five_units_of_each_network(artificial_result):
    figure = figure_4(artificial_result)
    ElementTree.fromstring(figure)  # noqa: S314
    assert len(re.findall(r">Unit \d+<", figure)) == 10
    assert figure == figure_4(artificial_result)


def test_data_the_paper_does_not_have_are_not_put_beside_it(artificial_result):
    page = artificial_page({**artificial_result, "data": "generated", "data_seed": 0, "paper": None})
    assert "paper 86.7" not in page
    assert "Beside the paper" not in page
    assert "the paper's one run" not in page
