"""From two files to predictions on the command line: real processes, and every error one line with its remedy."""

import json
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest

import momentalign as ma

COMMAND = [sys.executable, "-m", "momentalign"]


def run(*arguments, cwd=None):
    return subprocess.run([*COMMAND, *map(str, arguments)], cwd=cwd, capture_output=True, text=True)


def customers(rows, *, shifted, seed):
    random = np.random.default_rng(seed)
    spend, visits = random.normal(1.0 * shifted, 1.0, rows), random.normal(0.0, 1.0 + shifted, rows)
    return pd.DataFrame(
        {
            "id": [f"c{row}" for row in range(rows)],
            "spend": spend,
            "visits": visits,
            "city": random.choice(["Linz", "Wien"], rows),
            "churn": np.where(spend - shifted + 0.5 * visits > 0, "yes", "no"),
        }
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two files of customers, and a model made of them by the command."""
    place = tmp_path_factory.mktemp("customers")
    customers(400, shifted=0, seed=0).to_csv(place / "last.csv", index=False)
    customers(300, shifted=1, seed=1).drop(columns="churn").to_csv(place / "this.csv", index=False)
    answer = run(
        *("fit", "last.csv", "this.csv", "--label", "Churn", "--id", "id", "--out", "model"),
        cwd=place,
    )
    assert answer.returncode == 0, answer.stderr
    (place / "fit.txt").write_text(answer.stdout)
    return place


def test_fit_prints_a_verdict_and_writes_model_and_page(folder):
    verdict, *tables, model, page = (folder / "fit.txt").read_text().splitlines()
    assert verdict.startswith(ma.load(folder / "model").estimator.decision_)
    assert any(line.startswith("this model  ") for line in tables)
    assert any(line.startswith("share of class  ") for line in tables)
    assert (model, page) == (f"model: {folder / 'model'}", f"page: {folder / 'model' / 'report.html'}")
    assert {"manifest.json", "report.html"} < {file.name for file in (folder / "model").iterdir()}


def test_the_command_fits_what_python_fits(folder):
    last, this = (pd.read_csv(folder / name) for name in ("last.csv", "this.csv"))
    model = ma.fit(last, this, label="churn", id_column="id")
    np.testing.assert_array_equal(model.predict_proba(this), ma.load(folder / "model").predict_proba(this))


def test_predict_keeps_rows_in_order_with_their_names(folder):
    answer = run("predict", "model", "this.csv", "--out", "p.csv", "--proba", cwd=folder)
    assert answer.returncode == 0, answer.stderr
    predictions = pd.read_csv(folder / "p.csv")
    assert predictions["id"].tolist() == [f"c{row}" for row in range(300)]
    probabilities = predictions[["probability_no", "probability_yes"]].to_numpy()
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, atol=1e-5)
    assert (predictions["prediction"] == np.where(probabilities[:, 1] > 0.5, "yes", "no")).all()
    truth = customers(300, shifted=1, seed=1)["churn"]
    assert (predictions["prediction"] == truth).mean() > 0.7


def test_predict_prints_to_a_pipe_and_warns_of_drift(folder):
    answer = run("predict", "model", "last.csv", cwd=folder)
    assert answer.returncode == 0
    assert len(answer.stdout.splitlines()) == 401
    assert answer.stderr.startswith("momentalign: warning: the data have drifted away")
    assert answer.stderr.count("\n") == 1


def test_predict_counts_categories_that_the_model_does_not_know(folder):
    frame = pd.read_csv(folder / "this.csv")
    frame.loc[:6, "city"] = ["Graz", "Graz", "Wels", "Linz", "Graz", "Wels", None]
    frame.to_csv(folder / "moved.csv", index=False)
    answer = run("predict", "model", "moved.csv", "--out", "moved_p.csv", "--json", cwd=folder)
    assert json.loads(answer.stdout)["unseen"] == {"city": 5}
    assert answer.stderr == (
        "momentalign: warning: column 'city' holds 2 values that the model does not know in 5 rows of moved.csv: "
        "'Graz', 'Wels'.\n"
    )


def test_the_seed_is_that_of_the_model(folder):
    models = []
    for seed in ((), ("--seed", 0), ("--seed", 7)):
        settings = ("--label", "churn", "--method", "none", "--max-epochs", 3, "--out", "seeded", *seed)
        assert run("fit", "last.csv", "this.csv", *settings, cwd=folder).returncode == 0
        models.append(ma.load(folder / "seeded").predict_proba(folder / "this.csv"))
    assert np.array_equal(models[0], models[1])
    assert not np.array_equal(models[0], models[2])


def test_fit_for_machines_prints_json_alone(folder):
    answer = run(
        *("fit", "last.csv", "last.csv", "--label", "churn", "--target-label", "churn", "--id", "id", "--out", "other"),
        *("--max-epochs", 3, "--method", "none", "--json"),
        cwd=folder,
    )
    summary = json.loads(answer.stdout)
    assert (next(iter(summary)), summary["kind"], summary["method"]) == ("decision", "fit", "none")
    assert summary["evaluation"] is not None


def test_numbers_are_fitted_and_predicted(tmp_path):
    for name, shifted in (("last", 0), ("this", 1)):
        frame = customers(300, shifted=shifted, seed=shifted).drop(columns=["churn", "city"])
        frame.assign(bill=50 + 10 * frame["visits"]).to_csv(tmp_path / f"{name}.csv", index=False)
    answer = run(
        *("fit", "last.csv", "this.csv", "--label", "bill", "--target-label", "bill", "--id", "id", "--regression"),
        *("--out", "model"),
        cwd=tmp_path,
    )
    assert answer.returncode == 0, answer.stderr
    assert "On the labelled target rows the R² is " in answer.stdout
    assert "<th" in (tmp_path / "model" / "report.html").read_text()
    answer = run("predict", "model", "this.csv", "--out", "p.csv", cwd=tmp_path)
    found = pd.read_csv(tmp_path / "p.csv")["prediction"]
    assert f"300 rows: mean {found.mean():.4g}, from {found.min():.4g} to {found.max():.4g}; " in answer.stderr
    answer = run("predict", "model", "this.csv", "--proba", cwd=tmp_path)
    assert (answer.returncode, answer.stderr.count("\n")) == (2, 1)
    assert "the model predicts numbers ('bill'), which have no probabilities" in answer.stderr


def test_diagnose_says_what_shifted(folder):
    answer = run("diagnose", "last.csv", "this.csv", "--label", "churn", "--id", "id", "--permutations", 99, cwd=folder)
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.startswith("Strong shift: ")
    page = folder / "momentalign-diagnosis.html"
    assert page.is_file()
    assert json.loads(page.with_suffix(".json").read_text())["verdict"]["level"] == "strong"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("fit", "nowhere.csv", "this.csv", "--label", "churn"), "nowhere.csv is not there"),
        (("fit", "last.csv", "this.csv", "--label", "chrun"), "no label column 'chrun'; its columns are"),
        (("fit", "last.csv", "empty.csv", "--label", "churn"), "empty.csv"),
        (("predict", "empty.csv", "this.csv"), "empty.csv"),
        (("predict", "model", "fewer.csv"), "'visits'"),
        (("diagnose", "last.csv", "ragged.csv"), "ragged.csv"),
    ],
)
def test_what_the_user_can_mend_is_one_line_and_leaves_nothing(folder, arguments, words):
    (folder / "empty.csv").write_text("")
    (folder / "ragged.csv").write_text("a,b\n1,2\n1,2,3\n")
    (folder / "fewer.csv").write_text("id,spend,city\nc1,2.0,Linz\n")
    before = sorted(folder.iterdir())
    answer = run(*arguments, *(("--out", "fresh") if arguments[0] == "fit" else ()), cwd=folder)
    assert answer.returncode == 2
    assert answer.stderr.startswith("momentalign: ")
    assert words in answer.stderr
    assert answer.stderr.count("\n") == 1
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize("settings", [[], ["--method", "mmd", "--seeds", "200", "--max-epochs", "100000"]])
def test_interrupted_it_leaves_with_130_one_line_and_the_earlier_model(folder, settings):
    before = {file: file.read_bytes() for file in (folder / "model").iterdir()}
    if not (folder / "long.csv").exists():
        customers(200_000, shifted=0, seed=2).to_csv(folder / "long.csv", index=False)
    arguments = ["fit", "long.csv", "this.csv", "--label", "churn", "--id", "id", "--out", "model"]
    process = subprocess.Popen([*COMMAND, *arguments, *settings], cwd=folder, stderr=subprocess.PIPE, text=True)
    time.sleep(10)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    begun = time.monotonic()
    _, errors = process.communicate(timeout=120)
    assert time.monotonic() - begun < 5  # one second, and what other tests leave of the cores
    assert process.returncode == 130
    assert errors.splitlines()[-1] == "momentalign: interrupted"
    assert "Traceback" not in errors
    assert {file: file.read_bytes() for file in (folder / "model").iterdir()} == before


MINE = '{"my": "settings"}'


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("diagnose", "last.csv", "this.csv", "--out", "r.json"), "r.json would be both the page and its results"),
        (("diagnose", "last.csv", "this.csv", "--out", "last.csv"), "last.csv is the file that is read"),
        (("diagnose", "last.csv", "linked.csv", "--out", "this.csv"), "this.csv is the file that is read"),
        (("diagnose", "last.csv", "this.csv", "--out", "mine.html"), "mine.json would be replaced and is not a result"),
        (("diagnose", "last.csv", "this.csv", "--out", "."), "names no file"),
        (("demo", "--out", "mine.html"), "mine.json would be replaced and is not a result"),
        (("demo", "--out", "r.json"), "r.json would be both the page and its results"),
        (("reproduce", "overpenalization", "--out", "r.jsonl"), "r.jsonl would be both the page and its journal"),
        (("reproduce", "overpenalization", "--out", "figure_2.svg"), "both the page and figure_2.svg"),
        (("predict", "model", "this.csv", "--out", "this.csv"), "this.csv is the file that is read"),
        (("predict", "model", "named.csv", "--id", "prediction"), "has the name of a column of predictions"),
        (("fit", "last.csv", "this.csv", "--label", "churn", "--out", "last.csv"), "last.csv is the file that is read"),
        (("fit", "last.csv", "this.csv", "--label", "churn", "--out", "pages"), "report.html would be replaced"),
    ],
)
def test_outputs_replace_nothing_that_momentalign_did_not_write(folder, arguments, message):
    (folder / "mine.json").write_text(MINE)
    (folder / "pages").mkdir(exist_ok=True)
    (folder / "pages" / "report.html").write_text("mine")
    (folder / "linked.csv").unlink(missing_ok=True)
    (folder / "linked.csv").symlink_to("this.csv")
    pd.read_csv(folder / "this.csv").rename(columns={"id": "prediction"}).to_csv(folder / "named.csv", index=False)
    before = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    answer = run(*arguments, cwd=folder)
    assert (answer.returncode, answer.stderr.count("\n")) == (2, 1), answer.stderr
    assert message in answer.stderr
    assert {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()} == before


def test_results_of_an_earlier_run_are_replaced(tmp_path):
    for _ in range(2):
        answer = run("reproduce", "overpenalization", "--out", "again.html", cwd=tmp_path)
        assert answer.returncode == 0, answer.stderr
