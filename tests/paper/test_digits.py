"""Table 5: every method runs on every task, is kept, reported and shown; names that are not there are refused."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from momentalign.errors import DataNotFoundError, InvalidInputError
from momentalign.journal import Journal
from momentalign.paper import digits
from momentalign.paper import digits as digit_cells
from momentalign.paper.digit_networks import Recipe, seconds_per_update
from momentalign.paper.digits import METHODS, NOTE, estimate, identity, refuse_unknown, run
from momentalign.paper.digits_page import digits_page
from momentalign.paper.tables import DIGIT_TASKS, DIGITS, compare, markdown

TASKS = DIGIT_TASKS[1:]
RECIPE = Recipe(batch_size=10, steps=2, epochs=2, synth_size=250)


@pytest.fixture
def journal(tmp_path):
    return Journal(tmp_path / "cells.jsonl", identity("digits", RECIPE))


def test_a_run_is_kept_reported_and_shown_and_the_second_trains_nothing(digit_folder, few_images, journal, monkeypatch):
    calls, said = [], []
    ask = {"seeds": range(2), "tasks": TASKS, "recipe": RECIPE, "folder": digit_folder}
    result = run(["cnn", "cmd"], journal, progress=lambda *call: calls.append(call), say=said.append, **ask)
    assert said == ["8 of 8 networks are to be trained: less than a minute on this CPU"]
    assert calls == [(done, 8) for done in range(9)]
    assert result == json.loads(json.dumps(result))
    assert {json.loads(key)["seed"] for key, kept in journal.done().items() if "look" in kept} == {0}
    assert (result["kind"], result["tasks"], result["seeds"]) == ("digits", list(TASKS), [0, 1])
    assert result["note"] == NOTE
    assert result["recipe"]["steps"] == 2
    for method, column in result["methods"].items():
        assert column["title"] == METHODS[method].title
        for task in TASKS:
            assert len(column["accuracy"][task]) == len(column["seconds"][task]) == 2
            closely = column["closely"][task]
            assert len(closely["orders"]) == 1 + RECIPE.epochs
            assert len(closely["predictions"]) == len(result["samples"][task]["target_images"]) == 24
            placed = result["samples"][task]["placed_labels"]
            assert len(closely["places"]) == sum(map(len, placed))
    assert result["methods"]["cnn"]["settings"] == {}
    assert result["methods"]["cmd"]["settings"] == {"discrepancy": "cmd", "weight": 1.0, "schedule": "constant"}

    page = digits_page(result)
    assert NOTE in page
    assert "SynthDigits→SVHN" in markdown(compare(result, DIGITS))

    lines = journal.path.read_bytes()
    monkeypatch.setattr(digits, "compute", lambda *_, **__: pytest.fail("a finished cell was trained again"))
    assert run(["cnn", "cmd"], journal, say=lambda words: pytest.fail(words), **ask) == result
    assert journal.path.read_bytes() == lines
    some = run(["cmd"], journal, **{**ask, "tasks": TASKS[:1]})
    assert (
        some["methods"]["cmd"]["accuracy"]["mnist->mnist-m"] == (result["methods"]["cmd"]["accuracy"]["mnist->mnist-m"])
    )
    assert "note" not in some


@pytest.mark.parametrize(
    ("methods", "tasks", "message"),
    [
        (
            ["cnn", "tca"],
            DIGIT_TASKS,
            "there is no method 'tca'; choose from cnn, coral, mmd, dann, adda, dsn, cmd, cv-cmd.",
        ),
        (["cnn"], ["svhn->usps"], "there is no task 'svhn->usps'; choose from svhn->mnist, mnist->mnist-m, synth"),
        ([], DIGIT_TASKS, "no method is named; choose from cnn"),
        (["cnn"], [], "no task is named; choose from svhn->mnist"),
    ],
)
def test_names_that_are_not_there_are_refused(methods, tasks, message, journal):
    with pytest.raises(InvalidInputError, match=message):
        refuse_unknown(methods, tasks)
    with pytest.raises(InvalidInputError, match=message):
        run(methods, journal, tasks=tasks)


def test_no_seed_is_refused(journal):
    with pytest.raises(InvalidInputError, match="seeds is empty"):
        run(["cnn"], journal, seeds=[])


def test_what_is_missing_is_missed_before_anything_is_measured(journal, tmp_path):
    with pytest.raises(DataNotFoundError, match="SVHN"):
        run(["cnn"], journal, recipe=RECIPE, folder=tmp_path, say=lambda words: pytest.fail(words))


def test_the_estimate_counts_networks_methods_and_workers(monkeypatch):
    monkeypatch.setattr(digit_cells, "seconds_per_update", lambda method, **_: 0.5 if method.discrepancy else 0.1)
    cells = [{"method": name, "task": "svhn->mnist", "seed": seed} for name in ("cnn", "cmd") for seed in range(2)]
    recipe = Recipe(steps=100)
    assert estimate(cells, recipe=recipe) == pytest.approx(120.0)
    assert estimate(cells, recipe=recipe, n_jobs=3) == pytest.approx(40.0)
    assert estimate(cells[:1], recipe=recipe, n_jobs=3) == pytest.approx(10.0)


def test_an_update_of_all_rows_is_measured_by_fewer():
    seconds = [seconds_per_update(METHODS["cmd"], recipe=Recipe(batch_size=size)) for size in (16, 160)]
    assert 0 < seconds[1] < 60
    assert seconds[0] < seconds[1]


@pytest.mark.skipif(os.name != "posix", reason="signals are of POSIX")
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.long)]
)
def test_an_interrupted_command_says_so(digit_folder, tmp_path, number, code):
    """Lightning alone would leave with code 1 and no word."""
    folder = ["--data", str(digit_folder), "--out", str(tmp_path / "page.html")]
    command = [sys.executable, "-m", "momentalign", "reproduce", "digits", "--methods", "cnn", "--tasks", "svhn:mnist"]
    with subprocess.Popen([*command, *folder, "--no-open"], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr.readline().startswith("5 of 5 networks are to be trained: about ")
        time.sleep(3)
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
    assert process.returncode == code
    assert said == "momentalign: interrupted\n"


def test_methods_and_tasks_are_those_of_the_paper():
    assert set(METHODS) == set(DIGITS.columns)
    assert all(method.weight == 1.0 for method in METHODS.values())
