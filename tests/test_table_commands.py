"""From two files to predictions on the command line; commands that cannot work are in promises/test_bad_commands."""

import json
import signal
import subprocess
import sys
import time
import warnings

import numpy as np
import pandas as pd
import pytest

import momentalign as ma
from momentalign.cli.main import main
from momentalign.errors import MomentAlignWarning

COMMAND = [sys.executable, "-m", "momentalign"]


@pytest.fixture
def run(monkeypatch, capsys):
    """Run the command line in this process and return of it what subprocess.run does."""
    heard = signal.getsignal(signal.SIGTERM)

    def run(*arguments, cwd):
        monkeypatch.chdir(cwd)
        monkeypatch.setattr(sys, "argv", ["momentalign", *map(str, arguments)])
        capsys.readouterr()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("always", MomentAlignWarning)
            with pytest.raises(SystemExit) as left:
                main()
        return subprocess.CompletedProcess(arguments, left.value.code, *capsys.readouterr())

    yield run
    signal.signal(signal.SIGTERM, heard)


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
    settings = ["--label", "Churn", "--id", "id", "--out", "model"]
    answer = subprocess.run(
        [*COMMAND, "fit", "last.csv", "this.csv", *settings], cwd=place, capture_output=True, text=True
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


def test_predict_keeps_rows_in_order_with_their_names(run, folder):
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
    answer = subprocess.run([*COMMAND, "predict", "model", "last.csv"], cwd=folder, capture_output=True, text=True)
    assert answer.returncode == 0
    assert len(answer.stdout.splitlines()) == 401
    assert answer.stderr.startswith("momentalign: warning: the data have drifted away")
    assert answer.stderr.count("\n") == 1


def test_predict_counts_categories_that_the_model_does_not_know(run, folder):
    frame = pd.read_csv(folder / "this.csv")
    frame.loc[:6, "city"] = ["Graz", "Graz", "Wels", "Linz", "Graz", "Wels", None]
    frame.to_csv(folder / "moved.csv", index=False)
    answer = run("predict", "model", "moved.csv", "--out", "moved_p.csv", "--json", cwd=folder)
    assert json.loads(answer.stdout)["unseen"] == {"city": 5}
    assert answer.stderr == (
        "momentalign: warning: column 'city' holds 2 values that the model does not know in 5 rows of moved.csv: "
        "'Graz', 'Wels'.\n"
    )


def test_the_seed_is_that_of_the_model(run, folder):
    models = []
    for seed in ((), ("--seed", 0), ("--seed", 7)):
        settings = ("--label", "churn", "--method", "none", "--max-epochs", 3, "--out", "seeded", *seed)
        assert run("fit", "last.csv", "this.csv", *settings, cwd=folder).returncode == 0
        models.append(ma.load(folder / "seeded").predict_proba(folder / "this.csv"))
    assert np.array_equal(models[0], models[1])
    assert not np.array_equal(models[0], models[2])


def test_fit_for_machines_prints_json_alone(run, folder):
    answer = run(
        *("fit", "last.csv", "last.csv", "--label", "churn", "--target-label", "churn", "--id", "id", "--out", "other"),
        *("--max-epochs", 3, "--method", "none", "--json"),
        cwd=folder,
    )
    summary = json.loads(answer.stdout)
    assert (next(iter(summary)), summary["kind"], summary["method"]) == ("decision", "fit", "none")
    assert summary["evaluation"] is not None


def test_numbers_are_fitted_and_predicted(run, tmp_path):
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


def test_diagnose_says_what_shifted(run, folder):
    answer = run("diagnose", "last.csv", "this.csv", "--label", "churn", "--id", "id", "--permutations", 99, cwd=folder)
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.startswith("Strong shift: ")
    page = folder / "momentalign-diagnosis.html"
    assert page.is_file()
    assert json.loads(page.with_suffix(".json").read_text())["verdict"]["level"] == "strong"


def test_what_was_counted_and_no_warning_said_is_printed(run, folder):
    twice = pd.read_csv(folder / "last.csv")
    pd.concat([twice, twice[:7]]).to_csv(folder / "twice.csv", index=False)
    settings = ("--label", "churn", "--id", "id", "--method", "none", "--max-epochs", 1, "--out", "notes", "--no-open")
    answer = run("fit", "twice.csv", "last.csv", *settings, cwd=folder)
    assert "\nnote: 7 of 407 rows of the source repeat an earlier row; " in answer.stdout
    assert "\nnote: the target's column 'churn' was not looked at; " in answer.stdout
    assert "give target_label='churn' (--target-label).\n" in answer.stdout
    assert (answer.returncode, answer.stderr) == (0, "")


@pytest.mark.parametrize("settings", [[], ["--method", "mmd", "--seeds", "200", "--max-epochs", "100000"]])
def test_interrupted_it_leaves_with_130_one_line_and_the_earlier_model(folder, settings):
    before = {file: file.read_bytes() for file in (folder / "model").iterdir()}
    if not (folder / "long.csv").exists():
        customers(200_000, shifted=0, seed=2).to_csv(folder / "long.csv", index=False)
    arguments = ["fit", "long.csv", "this.csv", "--label", "churn", "--id", "id", "--out", "model"]
    process = subprocess.Popen([*COMMAND, *arguments, *settings], cwd=folder, stderr=subprocess.PIPE, text=True)
    time.sleep(8)
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
def test_outputs_replace_nothing_that_momentalign_did_not_write(run, folder, arguments, message):
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


def test_results_of_an_earlier_run_are_replaced(run, tmp_path):
    for _ in range(2):
        answer = run("reproduce", "overpenalization", "--out", "again.html", cwd=tmp_path)
        assert answer.returncode == 0, answer.stderr
