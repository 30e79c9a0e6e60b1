"""The examples run as their first lines say."""

import re
import runpy
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pandas as pd
import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def run(name, *arguments):
    return subprocess.run(
        [sys.executable, EXAMPLES / name, *map(str, arguments)], check=True, capture_output=True, text=True
    ).stdout


def test_two_files_have_a_shift_and_the_target_no_labels(tmp_path):
    assert "284 labelled and 285 unlabelled rows" in run("two_files.py", tmp_path / "tumours")
    source, target, checked = (
        pd.read_csv(tmp_path / "tumours" / f"{name}.csv") for name in ("source", "target", "checked")
    )
    assert list(source.columns) == [*target.columns, "diagnosis"]
    assert (source["diagnosis"] == "malignant").mean() < 0.2 < 0.5 < (checked["diagnosis"] == "malignant").mean()


def test_a_model_is_served(tmp_path, monkeypatch):
    from fastapi.testclient import TestClient

    import momentalign as ma

    rows = pd.DataFrame({"spend": [1.0, 2.0, 3.0, 4.0] * 10, "city": ["Linz", "Wien"] * 20})
    labelled = rows.assign(churn=["no", "no", "yes", "yes"] * 10)
    model = ma.fit(labelled, rows, label="churn", method="none", max_epochs=50, device="cpu")
    model.save(tmp_path / "model")
    monkeypatch.setenv("MOMENTALIGN_MODEL", str(tmp_path / "model"))
    with TestClient(runpy.run_path(str(EXAMPLES / "serve.py"))["app"]) as client:
        asked = rows[:4].assign(spend=[1, None, 3, 4], unknown="x").astype(object)
        asked = asked.where(asked.notna(), None)
        answer = client.post("/predict", json=asked.to_dict("records"))
        assert (answer.status_code, answer.json()) == (200, model.predict(asked).tolist())
        one = client.post("/predict", json=[{"city": None, "spend": 1}])
        assert (one.status_code, len(one.json())) == (200, 1)
        refused = client.post("/predict", json=[{"city": "Linz"}])
    assert refused.status_code == 422
    assert "'spend'; add them." in refused.json()["detail"]


def test_optuna_finds_an_aligned_network_without_target_labels():
    pytest.importorskip("optuna", reason="needs Optuna, of the dependency group test")
    plain, found = percentages(run("search_with_optuna.py"))
    assert found > plain + 5
    searching = (EXAMPLES / "search_with_optuna.py").read_text().split("study.optimize")[0]
    assert searching.count("truth") == 1  # where the labels of the target are set apart


@pytest.fixture
def show(capsys):
    """Run one example of the gallery in this process and return what it printed."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    def run_example(name):
        started = time.process_time()  # what others do on the machine does not count
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            runpy.run_path(str(EXAMPLES / f"plot_{name}.py"))
        assert plt.get_fignums(), "an example of the gallery draws something"
        assert time.process_time() - started < 60, "an example of the gallery takes less than a minute"
        return capsys.readouterr().out

    yield run_example
    plt.close("all")


def percentages(words):
    """The percentages that stand after a colon or a name, line by line."""
    return [float(number) for number in re.findall(r"(\d+(?:\.\d+)?) ?%", words)]


@pytest.mark.parametrize(
    ("name", "gain"),
    [
        pytest.param("artificial", 5, marks=pytest.mark.long),
        ("own_network", 20),
        pytest.param("lightning", 10, marks=pytest.mark.long),
        ("reviews_of_another_category", 5),
        ("table_with_drift", 5),
    ],
)
def test_an_example_gains_by_alignment(show, name, gain):
    *_, plain, aligned = percentages(show(name))
    assert aligned > plain + gain


def test_alignment_halves_the_error_on_the_second_instrument(show):
    plain, aligned, mean = percentages(show("two_instruments"))
    assert 0.0 < aligned < 0.5 * plain < 0.5 * mean


@pytest.mark.long
def test_searches_without_labels_pick_a_weight_that_works(show):
    assert min(percentages(show("choosing_the_weight"))) > 95


def test_alignment_does_harm_where_shares_of_classes_differ_and_the_robust_default_does_not(show):
    lines = [line for line in show("when_it_fails").splitlines() if line.startswith("  accuracy")]
    (plain, aligned, _, robust), shares, missing = (percentages(line) for line in lines)
    assert min(aligned, robust) > plain + 5
    assert shares[0] > shares[1] + 10
    assert missing[0] > missing[1] + 5
    assert min(shares[3], missing[3]) >= 97


@pytest.mark.long
def test_three_sources_are_better_than_each_alone_and_than_no_alignment(show):
    *alone, plain, _, three = percentages(show("several_sources"))
    assert three > max(alone) + 1
    assert three > plain + 3


def test_a_worn_bearing_is_noticed(show):
    said = show("watching_a_stream")
    assert said.startswith("0 alarms in the first 4,000 rows")
    assert "'vibration' in order 3" in said


def test_every_example_of_the_gallery_is_run_here():
    tests = Path(__file__).read_text()
    assert [
        path.name for path in EXAMPLES.glob("plot_*.py") if f'"{path.stem.removeprefix("plot_")}"' not in tests
    ] == []


@pytest.mark.data
def test_review_files_hold_both_categories(tmp_path):
    import os

    run("review_files.py", os.environ["MOMENTALIGN_DATA"], tmp_path)
    books = pd.read_csv(tmp_path / "books.csv")
    assert books.shape == (2000, 201)
    assert (books["opinion"] == "good").sum() == 1000
    assert len((tmp_path / "kitchen.svmlight").read_text().splitlines()) == 2000
