"""The page of the experiment on objects says what was found, on which features, and where the paper's are from."""

import html
import re

import pytest

from momentalign.errors import InvalidInputError
from momentalign.paper.objects import objects_page
from momentalign.paper.tables import OBJECT_TASKS, TABLE_4


def make_result(**levels):
    """Every task at a level, two seeds half a point apart."""
    methods = {
        name.replace("_", "-"): {
            "title": name.upper().replace("_", "-"),
            "settings": {"weight": 1.0, "optimizer": "adadelta"},
            "accuracy": {task: [level - 0.0025, level + 0.0025] for task in OBJECT_TASKS},
        }
        for name, level in levels.items()
    }
    return {
        "kind": "objects",
        "protocol": {"backbone": "EfficientNet-Lite0", "hidden": 256},
        "versions": {"momentalign": "0.1.0"},
        "data": {"pictures": "a49e"},
        "seeds": [0, 1],
        "tasks": list(OBJECT_TASKS),
        "methods": methods,
        "note": "The paper's values are on features of AlexNet, ours on those of <EfficientNet-Lite0>.",
    }


def test_the_lead_is_about_fp_cmd_and_the_plain_network():
    page = objects_page(make_result(nn=0.818, cmd=0.83, fp_cmd=0.84))
    lead = html.unescape(re.findall(r'<p class="lead">(.*?)</p>', page)[0]).replace("\xa0", " ")
    assert lead == (
        "Aligning moments raises the accuracy on the unlabelled target from 81.8 % to 84.0 %, averaged over 6 tasks "
        "and 2 seeds; the paper on AlexNet has 72.5 %."
    )
    assert "tasks on which FP-CMD is the most accurate" in page


def test_the_page_shows_every_task_the_note_and_the_papers_values():
    page = objects_page(make_result(nn=0.818, fp_cmd=0.84, cmd=0.83))
    for task in OBJECT_TASKS:
        assert task.replace("->", " → ") in html.unescape(page)
    assert "ours on those of &lt;EfficientNet-Lite0&gt;" in page
    assert "paper on AlexNet" in page
    assert f"{TABLE_4['fp-cmd']['webcam->amazon']:.1f}, +30.5" in page
    assert "accuracy on all pictures of the target" in html.unescape(page)
    assert "SHA-256 a49e" in page


def test_a_result_of_another_kind_is_refused():
    with pytest.raises(InvalidInputError, match="this page shows 'objects'"):
        objects_page({**make_result(nn=0.8), "kind": "sentiment"})
