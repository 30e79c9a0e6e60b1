"""The pictures of a network for digits hold the numbers they were given."""

import re

import numpy as np
import pytest

from momentalign.paper.digits_page import CROSS, DOT, confusion_panel, embedding_panel, order_panel


def test_a_confusion_is_in_percent_of_its_row_and_a_mistake_has_another_colour():
    counts = [[6, 2, 0], [0, 5, 0], [0, 0, 0]]
    picture = confusion_panel(counts, name="CMD")
    shown = re.findall(r'class="ma-count" x="([^"]+)" y="([^"]+)"[^>]*>(\d+)<', picture.content)
    assert [(float(x), float(y), int(words)) for x, y, words in shown] == [(52, 56, 75), (88, 56, 25), (88, 92, 100)]
    boxes = re.findall(r'class="ma-bar (ma-\w+)" fill-opacity="([^"]+)"', picture.content)
    assert [css for css, _ in boxes] == ["ma-mann" if row == column else "ma-mistake" for row in range(3)
                                         for column in range(3)]  # fmt: skip
    assert [float(opacity) for _, opacity in boxes][:2] == pytest.approx([0.405, 0.155], abs=0.006)
    assert picture.title.endswith("percent right: 0: 75, 1: 100, 2: 0; most frequent mistake: 0 taken for 1, 25 %")
    assert confusion_panel(np.eye(3, dtype=int).tolist(), name="x").title.endswith("mistake: none")


def points(content, stroke):
    return [(float(x), float(y)) for x, y in re.findall(rf"M([\d.-]+) ([\d.-]+){re.escape(stroke)}(?=M|\")", content)]


def test_embeddings_have_a_colour_for_each_digit_and_a_mark_for_each_domain():
    places = [[0.0, 0.0], [1.0, 0.0], [2.0, 2.0], [0.0, 1.0], [1.0, 1.0]]
    picture = embedding_panel(places, [[4, 4, 7], [7, 9]], name="CNN", size=120)
    assert points(picture.content, DOT) == [(10, 110), (60, 110), (110, 10)]
    assert points(picture.content, CROSS) == [(10, 60), (60, 60)]
    assert re.findall(r'class="(ma-spot|ma-stroke) ma-digit-(\d)"', picture.content) == [
        ("ma-spot", "4"),
        ("ma-spot", "7"),
        ("ma-stroke", "7"),
        ("ma-stroke", "9"),
    ]
    assert re.findall(r'class="ma-tag" x="([^"]+)" y="([^"]+)"[^>]*>(\d)<', picture.content) == [
        ("35", "115", "4"),
        ("110", "15", "7"),
    ]
    assert picture.title.startswith("Embeddings of 3 source and 2 target images in the plane, CNN")


def test_embeddings_in_one_place_can_be_drawn():
    assert points(embedding_panel([[1.0, 1.0]] * 2, [[0], [0]], name="CNN").content, DOT) == [(200, 200)]


def test_an_order_has_a_line_for_each_network():
    names = {"ma-nn": "CNN", "ma-mann": "CMD"}
    picture = order_panel(2, {"ma-nn": [0.1, 0.2, 0.4], "ma-mann": [0.1, 0.05, 0.0]}, names=names)
    lines = dict(re.findall(r'class="ma-line (ma-\w+)" d="M([^"]+)"', picture.content))
    heights = {css: [float(point.split()[1]) for point in run.split("L")] for css, run in lines.items()}
    assert heights["ma-nn"][0] == heights["ma-mann"][0]
    assert heights["ma-nn"] == sorted(heights["ma-nn"], reverse=True)
    assert heights["ma-mann"] == sorted(heights["ma-mann"])
    assert "Order 2, variance" in picture.content
    assert picture.title == "Distance of order 2 over 2 epochs: CNN from 0.1 to 0.4, CMD from 0.1 to 0"
    assert ">Order 7<" in order_panel(7, {"ma-nn": [0.0]}, names=names).content
