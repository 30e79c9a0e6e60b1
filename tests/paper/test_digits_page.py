"""The page of the experiment on digits: table, images, confusions, embeddings and distances, in one safe file."""

import html
import re
import subprocess
import sys

import numpy as np
import pytest

from momentalign.errors import InvalidInputError
from momentalign.paper.digits_page import (
    CROSS,
    DOT,
    KEYS,
    confusion_panel,
    digits_page,
    embedding_panel,
    order_panel,
)
from momentalign.paper.tables import DIGITS

HOSTILE = "<script>alert('x')</script>\"&"
TITLES = {"cnn": "CNN", "coral": "CORAL", "cmd": "CMD", "cv-cmd": "CV-CMD"}


@pytest.fixture
def result(digits_result):
    return digits_result("cnn", "coral", "cmd", "cv-cmd")


def words_of(page):
    """What a reader sees, in one line."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", page)).replace("\xa0", " ").split())


def test_the_page_says_what_was_found_beside_the_paper(result):
    page = words_of(digits_page(result))
    assert (
        "Aligning moments raises the accuracy on the unlabelled target from 50.0 % to 70.0 %, averaged over 3 tasks "
        "and 2 seeds; the paper has 72.8 % and 85.0 %."
    ) in page
    assert "SynthDigits is a stand-in." in page
    for task in ("SVHN → MNIST", "MNIST → MNIST-M", "SynthDigits → SVHN"):
        assert task in page
    assert f"SynthDigits→SVHN 50.0 ± 1.4 {DIGITS.columns['cnn']['synth->svhn']:.1f}, \N{MINUS SIGN}30.9" in page
    assert "steps 4, balanced yes, rotation 10, device cpu" in page
    assert "blur" not in page
    assert "Shown below are the networks of seed 3." in page


def test_every_image_has_its_label_and_what_both_networks_say(result):
    page = digits_page(result)
    first = result["samples"]["svhn->mnist"]
    lists = re.findall(r'<ol class="tiles".*?</ol>', page, re.S)
    assert len(lists) == 3 * (1 + 3)
    labelled, read = lists[:2]
    assert re.findall(r"</span><span>(\d)</span>", labelled) == [str(label) for label in first["source_labels"]]
    assert re.findall(r"<b>(\d)</b>", read) == [str(label) for label in first["target_labels"]]
    answers = re.findall(r'<span( class="wrong")? title="[^"]*">(C\w+) (\d) (.)</span>', read)
    assert len(answers) == 48
    for (wrong, title, said, sign), place in zip(answers, np.repeat(range(24), 2), strict=True):
        right = int(said) == first["target_labels"][place]
        assert (sign == "✓", wrong == "") == (right, right)
        assert title in ("CNN", "CMD")
    assert "Of these 24 images CNN reads 12 and CMD reads 17 right" in page
    assert all(f'style="--tile: {place}"' in read for place in range(24))
    assert page.count("data:image/png;base64,") == 6


def test_confusions_embeddings_and_orders_are_shown_before_and_after(result):
    titles = html.unescape(" ".join(re.findall(r'role="img" aria-label="([^"]*)"', digits_page(result))))
    for name in ("CNN, without alignment", "CMD, with alignment", "CV-CMD, with alignment", "CORAL, with alignment"):
        assert f"Confusion of digits, {name}" in titles
        assert f"Embeddings of 40 source and 40 target images in the plane, {name}" in titles
        for order in range(1, 6):
            assert len(re.findall(rf"Distance of order {order} over 5 epochs: [^:]*\b{name} from", titles)) >= 3


def test_aligned_methods_can_be_chosen_the_cmd_first(result):
    page = digits_page(result)
    pickers = re.findall(r'<div class="picker">\s*<ul hidden>(.*?)</ul>', page, re.S)
    assert len(pickers) == 3
    assert re.findall(r'aria-controls="([^"]+)">([^<]+)<', pickers[0]) == [
        ("svhn-mnist-cmd", "CMD"),
        ("svhn-mnist-cv-cmd", "CV-CMD"),
        ("svhn-mnist-coral", "CORAL"),
    ]
    ids = re.findall(r' id="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'aria-controls="([^"]+)"', page)) <= set(ids)


@pytest.mark.parametrize("methods", [("cnn",), ("cmd",), ("cnn", "cmd"), ("coral", "cmd")])
def test_any_methods_can_be_shown(digits_result, methods):
    page = digits_page(digits_result(*methods, tasks=DIGITS.tasks[:1], shown=3, placed=5))
    assert ('class="picker"' in page) == (methods == ("coral", "cmd"))
    shown = set(re.findall(r"Confusion of digits, ([\w-]+), with", page))
    assert shown == {TITLES[method] for method in methods}
    assert not re.search(r"\b(?:nan|None|inf)\b", words_of(page))


def test_one_image_can_be_shown(digits_result):
    page = digits_page(digits_result("cnn", "cmd", tasks=DIGITS.tasks[:1], shown=1, placed=2))
    assert "Of these 1 images" in page


def test_three_whole_tasks_take_less_than_two_megabytes(digits_result):
    page = digits_page(digits_result("cnn", "coral", "cmd", "cv-cmd", placed=400))
    assert 1e6 < len(page.encode()) < 2e6


def test_nothing_is_loaded_from_elsewhere(result):
    page = digits_page(result)
    assert set(re.findall(r'https?://[^"\s<]+', page)) <= {
        "https://doi.org/10.1016/j.ins.2019.01.025",
    }
    assert not re.search(r'<(?:link|script|img)[^>]+(?:src|href)="(?!data:)', page)


def test_strings_are_escaped(result):
    result["methods"]["cmd"] |= {"title": HOSTILE}
    result["note"] = HOSTILE
    result["recipe"][HOSTILE] = HOSTILE
    task = f"{HOSTILE}->mnist"
    result["tasks"].append(task)
    result["samples"][task] = {**result["samples"]["svhn->mnist"], "source_labels": [HOSTILE] * 24}
    for method in result["methods"].values():
        for column in ("accuracy", "source_accuracy", "scores", "seconds", "closely"):
            method[column][task] = method[column]["svhn->mnist"]
    page = digits_page(result)
    assert page.count("<script") == 1
    assert page.count("&lt;script&gt;") > 100


@pytest.mark.parametrize("missing", KEYS)
def test_an_incomplete_result_is_refused(result, missing):
    del result[missing]
    with pytest.raises(InvalidInputError, match=f"lacks {missing};"):
        digits_page(result)


def test_a_result_of_another_kind_is_refused(result):
    with pytest.raises(InvalidInputError, match="this page shows 'digits'"):
        digits_page({**result, "kind": "objects"})


def test_the_page_needs_no_torch():
    code = "import sys; import momentalign.paper.digits_page; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


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
