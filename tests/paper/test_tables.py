"""What the paper prints adds up, and means, standard deviations and ranks stand beside it."""

import re

import numpy as np
import pytest

from momentalign.errors import InvalidInputError
from momentalign.paper.tables import (
    DIGITS,
    OBJECTS,
    REVIEWS,
    average_ranks,
    compare,
    describe_ranks,
    latex,
    long_task,
    markdown,
    short_task,
    signed,
)


def make_result(methods, tasks=("books->dvd", "dvd->books"), seeds=2):
    """A result from accuracies in percent: {method: [[one per seed], one list per task]}."""
    return {
        "tasks": list(tasks),
        "seeds": list(range(seeds)),
        "methods": {
            name: {
                "title": name.upper(),
                "settings": {},
                "accuracy": {task: [value / 100 for value in values] for task, values in zip(tasks, runs, strict=True)},
            }
            for name, runs in methods.items()
        },
    }


@pytest.fixture
def whole():
    """Every method on every task, one point above the paper in the first seed and one below in the second."""
    methods = {name: [[value + 1, value - 1] for value in column.values()] for name, column in REVIEWS.columns.items()}
    return make_result(methods, REVIEWS.tasks)


def test_means_standard_deviations_and_differences():
    comparison = compare(make_result({"cmd": [[80.0, 81.0], [79.0, 78.0]]}))
    first, second = (comparison.entries["cmd"][task] for task in comparison.tasks)
    assert first == pytest.approx((80.5, np.sqrt(0.5), 80.5))
    assert second.difference == pytest.approx(78.5 - 79.5)
    assert comparison.averages["cmd"] == pytest.approx((79.5, 0.0, 80.0), abs=1e-9)


def test_the_papers_own_numbers_have_no_difference_and_its_averages_and_ranks(whole):
    comparison = compare(whole)
    for method, column in REVIEWS.columns.items():
        for task, value in column.items():
            assert comparison.entries[method][task] == pytest.approx((value, np.sqrt(2), value))
        assert comparison.averages[method].paper == REVIEWS.averages[method]
        assert comparison.averages[method].std == pytest.approx(np.sqrt(2))
    assert comparison.paper_ranks == REVIEWS.ranks
    assert comparison.ranks == pytest.approx(REVIEWS.ranks, abs=0.08)
    assert [comparison.best(task) for task in REVIEWS.tasks].count("cmd") == 11


def test_one_seed_has_no_standard_deviation():
    entry = compare(make_result({"tca": [[77.0], [78.0]]}, seeds=1)).averages["tca"]
    assert (entry.mean, entry.std) == (pytest.approx(77.5), None)


def test_unequal_numbers_of_seeds_average_without_a_standard_deviation():
    entry = compare(make_result({"cmd": [[80.0, 82.0], [79.0]]})).averages["cmd"]
    assert (entry.mean, entry.std) == (pytest.approx(80.0), None)


def test_methods_stand_in_the_papers_order_and_others_last():
    runs = [[70.0], [71.0]]
    comparison = compare(make_result(dict.fromkeys(("cv-cmd", "cmd", "other", "nn", "tca"), runs)))
    assert list(comparison.titles) == ["nn", "tca", "cmd", "cv-cmd", "other"]
    assert list(comparison.titles) == list(comparison.entries) == list(comparison.averages) == list(comparison.ranks)


def test_a_method_the_paper_does_not_have_stands_alone():
    comparison = compare(make_result({"cv-cmd": [[80.0], [79.0]]}))
    assert comparison.averages["cv-cmd"].paper is None
    assert comparison.averages["cv-cmd"].difference is None
    assert comparison.paper_ranks == {}
    assert describe_ranks(comparison) == "Rank 1 is the most accurate of the 1 methods here."


def test_some_methods_and_tasks_are_ranked_against_the_same_ones_of_the_paper():
    tasks = ("electronics->kitchen", "kitchen->books")
    comparison = compare(make_result({"tca": [[1.0], [1.0]], "cmd": [[2.0], [2.0]], "cv-cmd": [[3.0], [0.0]]}, tasks))
    assert comparison.ranks == {"tca": 2.5, "cmd": 1.5, "cv-cmd": 2.0}
    assert comparison.paper_ranks == {"tca": 1.5, "cmd": 1.5}
    assert comparison.averages["cmd"].paper == pytest.approx((86.0 + 75.6) / 2)
    assert describe_ranks(comparison) == "Rank 1 is the most accurate of the 3 methods here, in the paper of 2."


def test_tasks_the_paper_does_not_have_have_no_paper():
    comparison = compare(make_result({"cmd": [[80.0], [79.0]]}, ("books->dvd", "books->music")))
    assert comparison.entries["cmd"]["books->dvd"].paper == 80.5
    assert comparison.entries["cmd"]["books->music"].paper is None
    assert comparison.averages["cmd"].paper is None
    assert comparison.paper_ranks == {}


@pytest.mark.parametrize("accuracy", [{"books->dvd": [0.8]}, {"books->dvd": [0.8], "dvd->books": []}])
def test_a_missing_task_is_named(accuracy):
    result = make_result({"cmd": [[80.0], [79.0]]})
    result["methods"]["cmd"]["accuracy"] = accuracy
    with pytest.raises(InvalidInputError, match=r"\['cmd'\]\['accuracy'\] has no value for 'dvd->books'; finish"):
        compare(result)


def test_equal_methods_share_their_ranks():
    assert average_ranks({"a": [3.0], "b": [1.0], "c": [3.0], "d": [3.0]}) == {"a": 2, "b": 4, "c": 2, "d": 2}
    # Equal up to the last bits counts as equal.
    assert average_ranks({"a": [0.1 + 0.2], "b": [0.3]}) == {"a": 1.5, "b": 1.5}


def test_markdown_has_a_row_per_task_and_every_number(whole):
    lines = markdown(compare(whole)).splitlines()
    assert "mean ± standard deviation over 2 seeds (paper, difference)" in lines[0]
    assert lines[2] == "|  | NN | DANN | CORAL | TCA | MMD | CMD |"
    assert lines[4].startswith("| B→D | 78.7 ± 1.4 (78.7, 0.0) |")
    assert lines[4].endswith("| **80.5** ± 1.4 (80.5, 0.0) |")
    assert "**86.6** ± 1.4 (86.6, 0.0)" in lines[12]
    assert lines[16].startswith("| Average | 75.2 ± 1.4 (75.2, 0.0) |")
    assert lines[17] == "| Average rank | 5.8 (5.8) | 4.5 (4.5) | 4.0 (4.0) | 3.4 (3.3) | 2.3 (2.3) | 1.1 (1.1) |"
    assert len({line.count("|") for line in lines[2:]}) == 1


def test_markdown_without_paper_or_deviation_is_shorter():
    result = make_result({"cv-cmd": [[80.0], [79.0]], "nn": [[70.0], [60.0]]}, seeds=1)
    result["methods"]["cv-cmd"]["title"] = "a|b"
    lines = markdown(compare(result)).splitlines()
    assert "over one seed" in lines[0]
    assert lines[2] == r"|  | NN | a\|b |"
    assert lines[4] == "| B→D | 70.0 (78.7, -8.7) | **80.0** |"
    assert lines[7] == "| Average rank | 2.0 (1.0) | 1.0 |"


def test_latex_is_balanced_and_has_as_many_columns_everywhere(whole):
    whole["methods"]["cv-cmd"] = {**whole["methods"]["cmd"], "title": "50 % of A_B & {C}\\"}
    source = latex(compare(whole))
    assert re.findall(r"\\(begin|end)\{(\w+)\}", source) == [
        ("begin", "table"),
        ("begin", "tabular"),
        ("end", "tabular"),
        ("end", "table"),
    ]
    rows = [line for line in source.splitlines() if line.endswith(r"\\")]
    assert {len(re.findall(r"(?<!\\)&", line)) for line in rows} == {7}
    assert r"\begin{tabular}{lrrrrrrr}" in source
    assert len(rows) == 1 + 2 * 12 + 2 + 1
    assert r"50 \% of A\_B \& \{C\}\textbackslash{} \\" in rows[0]
    assert rows[1].startswith(r"B$\rightarrow$D & $78.7 \pm 1.4$ & ")
    assert rows[2].startswith(r" & {\scriptsize $(78.7,\,0.0)$} & ")
    assert r"$\mathbf{80.5} \pm 1.4$" in rows[1]
    assert rows[-1].startswith("Average rank & 6.8 (5.8) & ")
    assert source.count("$") % 2 == 0
    assert re.sub(r"\\[{}]", "", source).count("{") == re.sub(r"\\[{}]", "", source).count("}")
    assert source.isascii()


def test_latex_of_one_seed_has_no_standard_deviation():
    source = latex(compare(make_result({"cmd": [[80.0], [79.0]]}, seeds=1)))
    assert r"B$\rightarrow$D & $\mathbf{80.0}$ \\" in source
    assert r"\scriptsize $(80.5,\,-0.5)$" in source


def test_names_and_differences_are_written_short():
    assert short_task("electronics->kitchen") == "E→K"
    assert [signed(value) for value in (1.26, -0.05001, 0.04, -0.04, 0.0)] == ["+1.3", "-0.1", "0.0", "0.0", "0.0"]


def test_another_table_of_the_paper_is_named_in_the_caption():
    methods = {name: [[value] for value in column.values()] for name, column in OBJECTS.columns.items()}
    comparison = compare(make_result(methods, OBJECTS.tasks, seeds=1), OBJECTS)
    assert comparison.paper_ranks == OBJECTS.ranks
    assert comparison.averages["fp-cmd"].paper == 72.5
    assert "over one seed (paper on AlexNet, difference)." in markdown(comparison)
    assert "| A→W | 52.9 (52.9, 0.0) |" in markdown(comparison)
    some = compare(make_result({"cmd": [[60.0]], "nn": [[50.0]]}, ["amazon->webcam"], seeds=1), OBJECTS)
    assert (some.averages["cmd"].paper, some.averages["nn"].paper, some.paper_ranks) == (62.8, None, {"cmd": 1.0})


def test_a_method_the_paper_has_on_some_tasks_only_has_neither_average_nor_rank_there():
    methods = {name: [[70.0]] * 3 for name in ("cnn", "adda", "cmd")}
    comparison = compare(make_result(methods, DIGITS.tasks, seeds=1), DIGITS)
    assert comparison.entries["adda"]["svhn->mnist"].paper == 76.0
    assert comparison.entries["adda"]["synth->svhn"].paper is None
    assert (comparison.averages["adda"].paper, comparison.averages["cmd"].paper) == (None, 85.03)
    assert comparison.paper_ranks == {"cnn": 2.0, "cmd": 1.0}
    lines = markdown(comparison).splitlines()
    assert lines[4] == "| SVHN→MNIST | **70.0** (66.7, +3.3) | 70.0 (76.0, -6.0) | 70.0 (84.5, -14.5) |"
    assert lines[6] == "| SynthDigits→SVHN | **70.0** (80.9, -10.9) | 70.0 | 70.0 (85.5, -15.5) |"
    assert lines[8] == "| Average rank | 2.0 (2.0) | 2.0 | 2.0 (1.0) |"
    assert latex(comparison).count("scriptsize") == 9
    one = compare(make_result({"adda": [[70.0]], "cnn": [[60.0]]}, DIGITS.tasks[:1], seeds=1), DIGITS)
    assert one.averages["adda"].paper == 76.0
    assert one.paper_ranks == {"cnn": 2.0, "adda": 1.0}


def test_digits_are_called_by_the_names_of_their_sets():
    assert [short_task(task) for task in DIGITS.tasks] == ["SVHN→MNIST", "MNIST→MNIST-M", "SynthDigits→SVHN"]
    assert [long_task(task) for task in DIGITS.tasks[1:]] == ["MNIST → MNIST-M", "SynthDigits → SVHN"]
    assert long_task("amazon->webcam") == "amazon → webcam"


@pytest.mark.parametrize(
    ("paper", "off"),
    # 76.65 is printed as 76.7 and 69.15 as 69.2.
    [(REVIEWS, 0.0501), (OBJECTS, 0.0501), (DIGITS, 0.00501)],
)
def test_the_printed_averages_are_those_of_the_columns(paper, off):
    for method, column in paper.columns.items():
        assert np.mean(list(column.values())) == pytest.approx(paper.averages[method], abs=off)
        assert tuple(column) == (paper.tasks[:1] if method == "adda" else paper.tasks)


def test_every_pair_of_domains_is_a_task():
    for paper, domains in (
        (REVIEWS, ("books", "dvd", "electronics", "kitchen")),
        (OBJECTS, ("amazon", "dslr", "webcam")),
    ):
        assert set(paper.tasks) == {f"{one}->{other}" for one in domains for other in domains if one != other}


def test_the_printed_ranks_are_those_of_the_rows_but_for_ties_and_four_of_table_5():
    ranks = average_ranks({method: list(column.values()) for method, column in REVIEWS.columns.items()})
    off = {method: rank for method, rank in ranks.items() if abs(rank - REVIEWS.ranks[method]) > 0.0501}
    assert off == {"tca": 3.375}  # equal to the MMD on one task
    for paper, expected in ((OBJECTS, {}), (DIGITS, {"coral": 5.7, "adda": 6.0, "mmd": 4.3, "dann": 4.0})):
        values = np.array([[column.get(task, np.nan) for task in paper.tasks] for column in paper.columns.values()])
        better = np.where(np.isnan(values), np.nan, 1 + (values[None] > values[:, None]).sum(axis=1))
        found = dict(zip(paper.columns, np.nanmean(better, axis=1).round(4).tolist(), strict=True))
        off = {m: round(rank, 1) for m, rank in found.items() if abs(rank - paper.ranks[m]) > 0.0501}
        assert off == expected


def test_the_best_of_each_row_of_table_2_is_the_one_in_bold():
    columns = REVIEWS.columns
    best = {task: max(columns, key=lambda method: columns[method][task]) for task in REVIEWS.tasks}
    assert best.pop("electronics->kitchen") == "tca"
    assert set(best.values()) == {"cmd"}
