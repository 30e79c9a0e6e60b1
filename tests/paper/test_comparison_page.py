"""Pages of tables: methods beside the paper's, what is drawn, copied and escaped; that of the sentiment experiment."""

import html
import re

import numpy as np
import pytest

from momentalign.errors import InvalidInputError
from momentalign.paper.comparison_page import KEYS
from momentalign.paper.objects import objects_page
from momentalign.paper.sentiment import sentiment_page
from momentalign.paper.tables import OBJECTS, REVIEWS, compare, latex, markdown

HOSTILE = "<script>alert(1)</script>"
TASKS = ("books->dvd", "dvd->books", "electronics->kitchen")


def make_result(*methods, seeds=3, tasks=TASKS):
    """Accuracies around the paper's; CV-CMD, which it does not have, half a point above CMD."""
    rng = np.random.default_rng(0)
    entries = {}
    for name in methods:
        column = REVIEWS.columns.get(name) or {task: value + 0.5 for task, value in REVIEWS.columns["cmd"].items()}
        accuracy = {
            task: (column.get(task, 70.0) / 100 + 0.004 * rng.standard_normal(seeds)).tolist() for task in tasks
        }
        entries[name] = {"title": name.upper(), "settings": {"weight": 1.0, "n_moments": 5}, "accuracy": accuracy}
    return {
        "kind": "sentiment",
        "protocol": {"hidden": 50, "learning_rate": 0.01, "orders": [1, 2.5]},
        "versions": {"momentalign": "0.1.0", "numpy": np.__version__},
        "data": {"amazon_reviews.npz": "ee04e9b7"},
        "seeds": list(range(seeds)),
        "tasks": list(tasks),
        "methods": entries,
    }


@pytest.fixture
def result():
    return make_result("nn", "mmd", "cmd", "cv-cmd")


def lead(result):
    words = re.findall(r'<p class="lead">(.*?)</p>', sentiment_page(result))[0]
    return html.unescape(words).replace("\xa0", " ")


def set_all(result, method, value):
    result["methods"][method]["accuracy"] = {task: [value] * 3 for task in TASKS}


def test_the_lead_puts_both_averages_beside_the_papers(result):
    set_all(result, "nn", 0.75)
    set_all(result, "cmd", 0.798)
    papers = [np.mean([REVIEWS.columns[method][task] for task in TASKS]) for method in ("nn", "cmd")]
    assert lead(result) == (
        "Aligning moments raises the accuracy on the unlabelled target from 75.0 % to 79.8 %, averaged over 3 tasks "
        f"and 3 seeds; the paper has {papers[0]:.1f} % and {papers[1]:.1f} %."
    )


@pytest.mark.parametrize(("after", "words"), [(0.7, "lowers"), (0.7503, "at 75.0 %,")])
def test_the_lead_follows_the_numbers(result, after, words):
    set_all(result, "nn", 0.75)
    set_all(result, "cmd", after)
    assert words in lead(result)


def test_a_partial_run_names_its_best_method():
    result = make_result("mmd", "cv-cmd", seeds=1)
    best = compare(result).averages["cv-cmd"].mean
    assert lead(result) == f"CV-CMD gets {best:.1f} % of the target right, averaged over 3 tasks and one seed."
    assert '<ul class="facts">' not in sentiment_page(result)
    assert '<ul class="facts">' in sentiment_page(make_result("nn"))


def test_tasks_the_paper_does_not_have_are_not_put_beside_it():
    result = make_result("nn", "cmd", tasks=("books->music",))
    page = sentiment_page(result)
    assert "the paper has" not in lead(result)
    assert '<path class="ma-paper"' not in page.split('<div class="row')[1]
    assert '<span class="note">paper' not in page


def test_the_facts_count_where_cmd_is_best(result):
    del result["methods"]["cv-cmd"]
    facts = re.findall(r"<strong>(.*?)</strong><span>(.*?)</span>", sentiment_page(result))
    comparison = compare(result)
    best = sum(comparison.best(task) == "cmd" for task in TASKS)
    assert (f"{best} of 3", "tasks on which CMD is the most accurate") in facts
    assert (f"{comparison.ranks['cmd']:.1f}", "average rank of CMD, of 3") in facts


def values(table):
    return [[float(v) for v in re.findall(r'data-value="([^"]+)"', line)] for line in table.split("</tr>")]


def test_the_summary_holds_averages_ranks_and_differences(result):
    (body,) = re.findall(r"over 3 seeds</caption>.*?<tbody>(.*?)</tbody>", sentiment_page(result), re.S)
    comparison = compare(result)
    rows = values(body)
    for index, method in enumerate(("nn", "mmd", "cmd")):
        entry = comparison.averages[method]
        best = sum(comparison.best(task) == method for task in TASKS)
        expected = [entry.mean, entry.paper, entry.difference, comparison.ranks[method], comparison.paper_ranks[method]]
        assert rows[index] == pytest.approx([*expected, best])
    assert len(rows[3]) == 3


def test_the_table_holds_every_mean_and_the_papers_value(result):
    set_all(result, "mmd", 0.8)
    page = sentiment_page(result)
    (body,) = re.findall(r"and the difference</caption>.*?<tbody>(.*?)</tbody>", page, re.S)
    comparison = compare(result)
    for line, task in zip(values(body), TASKS, strict=False):
        assert line == pytest.approx([comparison.entries[method][task].mean for method in comparison.titles])
    assert re.findall(r">([\d.]+, .{0,1}[\d.]+)</small>", body)[1::3] == [
        "79.6, +0.4",
        "78.0, +2.0",
        "85.7, \N{MINUS SIGN}5.7",
    ]
    (foot,) = re.findall(r"<tfoot>(.*?)</tfoot>", page, re.S)
    assert values(foot)[0] == pytest.approx([entry.mean for entry in comparison.averages.values()])
    assert body.count("<b>") == 3


def test_every_panel_shows_runs_mean_and_paper_at_their_places(result):
    panels = re.findall(r'<svg class="ma-figure".*?</svg>', sentiment_page(result), re.S)
    assert len(panels) == len(TASKS)
    for panel, task in zip(panels, TASKS, strict=True):
        assert task.replace("->", " → ") in html.unescape(panel)
        runs = re.findall(r'class="ma-run [\w-]+" d="(.*?)"', panel)
        means = re.findall(r'class="ma-median [\w-]+" d="M([\d.]+)', panel)
        papers = re.findall(r'class="ma-paper" d="M([\d.]+)', panel)
        assert (len(runs), len(means), len(papers)) == (4, 4, 3)
        for run, mean in zip(runs, means, strict=True):
            places = [float(x) for x in re.findall(r"M([\d.]+)", run)]
            assert float(mean) == pytest.approx(np.mean(places), abs=0.1)
        entry = compare(result).entries["nn"][task]
        scale = abs(float(papers[0]) - float(papers[2])) / abs(
            REVIEWS.columns["nn"][task] - REVIEWS.columns["cmd"][task]
        )
        assert float(means[0]) - float(papers[0]) == pytest.approx(scale * (entry.mean - entry.paper), abs=0.15)


def test_everything_shown_is_inside_the_panels(result):
    result["methods"]["nn"]["accuracy"]["books->dvd"] = [0.31, 0.99, 0.5]
    for panel in re.findall(r'<svg class="ma-figure".*?</svg>', sentiment_page(result), re.S):
        places = [float(x) for x in re.findall(r'class="ma-run [\w-]+" d="M([\d.]+)', panel)]
        assert min(places) > 76
        assert max(places) < 320 - 14


def test_the_sources_of_the_table_can_be_copied(result):
    blocks = re.findall(r"<details.*?<summary>(.*?)</summary>.*?<pre[^>]*>(.*?)</pre>", sentiment_page(result), re.S)
    comparison = compare(result)
    assert [(name, html.unescape(words)) for name, words in blocks] == [
        ("The table in Markdown", markdown(comparison)),
        ("The table in LaTeX", latex(comparison)),
    ]


def test_the_page_says_how_it_was_made(result):
    result["note"] = "CORAL as published."
    page = sentiment_page(result)
    for words in (
        "<p>CORAL as published.</p>",
        "weight 1, n moments 5",
        "hidden 50, learning rate 0.01, orders 1 2.5",
        "SHA-256 ee04e9b7",
        "momentalign 0.1.0",
        "0, 1, 2",
    ):
        assert words in page
    result["methods"]["nn"]["settings"] = {}
    assert "nothing to set" in sentiment_page(result)


def test_the_page_is_labelled_deterministic_and_stays_home(result):
    page = sentiment_page(result)
    assert page == sentiment_page(result)
    assert len(re.findall(r'<svg class="ma-figure"[^>]*role="img" aria-label="[^"]{20,}"', page)) == len(TASKS)
    assert set(re.findall(r"https?://[^\s\"'<]+", page)) == {"https://doi.org/10.1016/j.ins.2019.01.025"}
    assert not re.findall(r"(?:src|@import|url\()", page)
    assert not re.findall(r"\b(?:nan|None|inf)\b", page)
    ids = re.findall(r' id="([^"]+)"', page)
    assert len(ids) == len(set(ids))


def test_strings_are_escaped(result):
    result["methods"]["cmd"] |= {"title": HOSTILE, "settings": {HOSTILE: HOSTILE}}
    result |= {"note": HOSTILE, "versions": {HOSTILE: HOSTILE}, "data": {HOSTILE: HOSTILE}}
    result["protocol"] = {HOSTILE: HOSTILE}
    result["tasks"].append(f"{HOSTILE}->x")
    for method in result["methods"].values():
        method["accuracy"][f"{HOSTILE}->x"] = [0.5]
    page = sentiment_page(result)
    assert page.count("<script") == 1
    assert page.count("&lt;script&gt;") > 10


@pytest.mark.parametrize("missing", KEYS)
def test_an_incomplete_result_is_refused(result, missing):
    del result[missing]
    with pytest.raises(InvalidInputError, match=f"lacks {missing};"):
        sentiment_page(result)


@pytest.mark.parametrize("missing", ["methods", "tasks"])
def test_a_result_without_methods_or_tasks_is_refused(result, missing):
    result[missing] = type(result[missing])()
    with pytest.raises(InvalidInputError, match="no finished method"):
        sentiment_page(result)


def objects_result(**levels):
    """Every task at a level, two seeds half a point apart."""
    methods = {
        name.replace("_", "-"): {
            "title": name.upper().replace("_", "-"),
            "settings": {"weight": 1.0, "optimizer": "adadelta"},
            "accuracy": {task: [level - 0.0025, level + 0.0025] for task in OBJECTS.tasks},
        }
        for name, level in levels.items()
    }
    return {
        "kind": "objects",
        "protocol": {"backbone": "EfficientNet-Lite0", "hidden": 256},
        "versions": {"momentalign": "0.1.0"},
        "data": {"pictures": "a49e"},
        "seeds": [0, 1],
        "tasks": list(OBJECTS.tasks),
        "methods": methods,
        "note": "The paper's values are on features of AlexNet, those here on features of <EfficientNet-Lite0>.",
    }


def test_the_lead_is_about_fp_cmd_and_the_plain_network():
    page = objects_page(objects_result(nn=0.818, cmd=0.83, fp_cmd=0.84))
    lead = html.unescape(re.findall(r'<p class="lead">(.*?)</p>', page)[0]).replace("\xa0", " ")
    assert lead == (
        "Aligning moments raises the accuracy on the unlabelled target from 81.8 % to 84.0 %, averaged over 6 tasks "
        "and 2 seeds; the paper on AlexNet has 72.5 %."
    )
    assert "tasks on which FP-CMD is the most accurate" in page


def test_the_page_shows_every_task_the_note_and_the_papers_values():
    page = objects_page(objects_result(nn=0.818, fp_cmd=0.84, cmd=0.83))
    for task in OBJECTS.tasks:
        assert task.replace("->", " → ") in html.unescape(page)
    assert "those here on features of &lt;EfficientNet-Lite0&gt;" in page
    assert "paper on AlexNet" in page
    assert f"{OBJECTS.columns['fp-cmd']['webcam->amazon']:.1f}, +30.5" in page
    assert "accuracy on all pictures of the target" in html.unescape(page)
    assert "SHA-256 a49e" in page


def test_a_result_of_another_kind_is_refused():
    with pytest.raises(InvalidInputError, match="this page shows 'objects'"):
        objects_page({**objects_result(nn=0.8), "kind": "sentiment"})
