from __future__ import annotations

import json
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.datasets import dump_svmlight_file, load_breast_cancer

from momentalign.errors import InvalidInputError, MomentAlignError, MomentAlignWarning
from momentalign.tables.table import Table
from momentalign.workflow.fit import FitResult, fit_files, fit_tables
from momentalign.workflow.model import load_model

Tables = tuple[Table, Table]
Frames = tuple[pd.DataFrame, pd.DataFrame]
QUICK = {"max_epochs": 20, "device": "cpu"}


def test_alignment_helps_on_the_other_cellar(fitted: FitResult):
    rows = {row["name"]: row for row in fitted.summary["rows"]}
    plain, model = rows["plain network"], rows["combination of 4"]
    assert model["target_accuracy"] > plain["target_accuracy"] + 0.08
    assert model["distance_after"] < 0.3 * model["distance_before"]
    assert plain["distance_after"] == plain["distance_before"] == model["distance_before"]
    assert [row["weight"] for row in fitted.summary["rows"]] == [0.0, 0.5, 1.0, 2.0, 4.0, None]


def test_the_plain_network_is_kept_where_alignment_would_do_harm():
    """Of tumours with low texture 16 % are malignant, of the others 58 %: moments differ for a good reason."""
    rows, codes = load_breast_cancer(return_X_y=True, as_frame=True)
    low = rows["mean texture"] < rows["mean texture"].median()
    tables = [Table(rows[part], codes[part].to_numpy()) for part in (low, ~low)]
    summary = fit_tables(*tables, target_label="class", device="cpu").summary
    figures = {row["name"]: row for row in summary["rows"]}
    assert figures["cmd, weight 1"]["target_accuracy"] < figures["plain network"]["target_accuracy"] - 0.1
    assert summary["plain_kept"]
    assert figures["plain network, kept"]["target_accuracy"] > 0.9
    assert summary["verdict"].startswith("Alignment was left out: ")


def test_the_bound_is_that_of_the_networks_that_did_not_train_on_the_held_out_rows():
    random = np.random.default_rng(0)
    noise = random.normal(size=(2, 150, 40)).astype(np.float32)  # Learned by heart, never understood.
    tables = Table(noise[0], random.integers(0, 2, 150)), Table(noise[1])
    summary = fit_tables(*tables, max_epochs=100, device="cpu").summary
    rows = {row["name"]: row for row in summary["bounds"]["rows"]}
    assert summary["settings"]["trained_again"]
    assert rows["source error"]["value"] == pytest.approx(1 - summary["rows"][-1]["source_accuracy"])
    assert rows["source error"]["value"] > 0.3
    assert rows["source error at most"]["kind"] == "heuristic"  # The held-out rows chose the epoch.


def test_the_summary_is_plain_json_and_complete(fitted: FitResult):
    summary = json.loads(json.dumps(fitted.summary, allow_nan=False))
    assert summary["kind"] == "fit"
    assert summary["verdict"].startswith("Alignment brings the hidden activations of the domains together")
    assert sum(share["target"] for share in summary["shares"]) == pytest.approx(1.0)
    assert [abs(one["mean_shift"]) for one in summary["shifted"]] == sorted(
        (abs(one["mean_shift"]) for one in summary["shifted"]), reverse=True
    )
    assert np.sum(summary["evaluation"]["confusion"]) == 89
    assert summary["evaluation"]["accuracy"] == summary["rows"][-1]["target_accuracy"]
    assert {unit["network"] for unit in summary["units"]} == {"nn", "mann"}
    assert summary["settings"]["trained_again"]


def test_labels_of_the_target_change_nothing_but_the_evaluation(tables: Tables):
    source, target = tables
    wrong = replace(target, labels=np.roll(target.labels, 1))
    with_labels, without = (
        fit_tables(source, one, target_label=name, **QUICK) for one, name in ((wrong, "grape"), (target, None))
    )
    for ours, theirs in zip(with_labels.model.estimator.networks_, without.model.estimator.networks_, strict=True):
        for one, other in zip([*ours[0], *ours[1]], [*theirs[0], *theirs[1]], strict=True):
            np.testing.assert_array_equal(one, other)
    assert without.summary["evaluation"] is None
    assert all(row["target_accuracy"] is None for row in without.summary["rows"])
    for name in ("distance", "shares", "shifted", "units"):
        assert with_labels.summary[name] == without.summary[name]


def test_the_same_files_give_the_same_model(files: tuple[Path, Path], tmp_path: Path):
    for name in ("one", "two"):
        fit_files(*files, label="grape", id_column="bottle", out=tmp_path / name, **QUICK)
    one, two = (sorted((tmp_path / name).iterdir()) for name in ("one", "two"))
    assert [path.name for path in one] == [path.name for path in two]
    assert [path.read_bytes() for path in one] == [path.read_bytes() for path in two]


def test_seeds_are_networks_of_the_same_weight(tables: Tables):
    result = fit_tables(*tables, seeds=2, max_epochs=300, device="cpu")
    assert [row["networks"] for row in result.summary["rows"]] == [2, 2, 2, 2, 2, 8]
    assert len(result.model.estimator.networks_) == 8


@pytest.mark.parametrize("method", ["cv-cmd", "mmd", "coral", "dann"])
def test_every_method_trains(tables: Tables, method: str):
    rows = fit_tables(*tables, method=method, max_epochs=3, device="cpu").summary["rows"]
    assert rows[1]["name"] == f"{method}, weight 0.5"


def test_the_plain_network_alone(tables: Tables):
    result = fit_tables(*tables, method="none", **QUICK)
    assert [row["name"] for row in result.summary["rows"]] == ["plain network", "the only network"]
    assert "they were not aligned" in result.summary["verdict"]
    assert {unit["network"] for unit in result.summary["units"]} == {"nn"}


def test_progress_counts_the_epochs_of_all_networks(tables: Tables):
    seen: list[tuple[int, int]] = []
    fit_tables(*tables, progress=lambda done, every: seen.append((done, every)), **QUICK)
    assert (100, 100) in seen
    assert all(done <= every for done, every in seen)


def test_a_large_source_holds_out_less_and_is_trained_once(monkeypatch: pytest.MonkeyPatch, tables: Tables):
    import momentalign.workflow.fit as fitting

    monkeypatch.setattr(fitting, "MOST_HELD_OUT", 9)
    monkeypatch.setattr(fitting, "UPDATES", 100)
    result = fit_tables(*tables, device="cpu")
    assert not result.summary["settings"]["trained_again"]
    assert result.summary["settings"]["max_epochs"] == 100


def test_many_rows_are_looked_at_in_part(monkeypatch: pytest.MonkeyPatch, tables: Tables):
    import momentalign.workflow.summary as summary

    monkeypatch.setattr(summary, "SEEN", 40)
    assert len(fit_tables(*tables, **QUICK).summary["units"][0]["source"]) == 40


def test_a_target_of_one_row_is_enough(tables: Tables):
    source, target = tables
    one = Table(target.rows.iloc[:1], target.labels[:1])
    summary = fit_tables(source, one, **QUICK).summary
    assert summary["target_rows"] == 1
    assert summary["units"] == []


def test_units_are_shown_by_rows_of_all_the_file(monkeypatch: pytest.MonkeyPatch, tables: Tables):
    import momentalign.workflow.summary as summary

    whole = fit_tables(*tables, **QUICK).summary["units"][0]["source"]
    monkeypatch.setattr(summary, "DOTS", 40)
    some = fit_tables(*tables, **QUICK).summary["units"][0]["source"]
    assert len(some) == 40
    assert some != whole[:40]
    assert set(some) <= set(whole)


def test_text_and_sparse_files(tmp_path: Path):
    words = {"good": "fine warm kind", "bad": "cold rude slow"}
    frames = [
        pd.DataFrame(
            {
                "review": [f"{words[y]} {extra} {i % 7}" for i, y in enumerate(["good", "bad"] * 30)],
                "y": ["good", "bad"] * 30,
            }
        )
        for extra in ("book page", "film actor")
    ]
    for frame, name in zip(frames, ("s", "t"), strict=True):
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    result = fit_files(
        tmp_path / "s.csv", tmp_path / "t.csv", label="y", text="review", out=tmp_path / "m", target_label="y", **QUICK
    )
    assert result.summary["rows"][-1]["target_accuracy"] > 0.9
    assert result.summary["settings"]["optimizer"] == "adagrad"
    rows = sparse.random(40, 30, density=0.2, format="csr", random_state=0)
    for name in ("s", "t"):
        dump_svmlight_file(rows, np.arange(40) % 2, str(tmp_path / f"{name}.svm"), zero_based=True)
    result = fit_files(tmp_path / "s.svm", tmp_path / "t.svm", label="label", out=tmp_path / "n", **QUICK)
    assert result.summary["features"] == 30


def test_a_label_column_of_the_target_is_set_apart(cellars: Frames, tmp_path: Path):
    source, target = cellars
    source.to_csv(tmp_path / "s.csv", index=False)
    target.assign(truth=target["grape"], grape="?").to_csv(tmp_path / "t.csv", index=False)
    names = {"label": "grape", "id_column": "bottle"}
    result = fit_files(
        tmp_path / "s.csv", tmp_path / "t.csv", out=tmp_path / "m", target_label="truth", **names, **QUICK
    )
    assert result.summary["evaluation"]["label"] == "truth"
    assert result.summary["features"] == 13
    with pytest.warns(MomentAlignWarning, match="the source lacks 'truth'"):
        result = fit_files(tmp_path / "s.csv", tmp_path / "t.csv", out=tmp_path / "m", **names, **QUICK)
    assert result.summary["evaluation"] is None
    assert result.summary["features"] == 13


def test_the_folder_is_written_and_named(files: tuple[Path, Path], tmp_path: Path):
    result = fit_files(*files, label="grape", id_column="bottle", out=tmp_path / "a" / "model", **QUICK)
    assert result.summary["source"] == str(files[0])
    assert not result.interrupted
    loaded = load_model(tmp_path / "a" / "model")
    assert (loaded.label, loaded.id_column) == ("grape", "bottle")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"label": "colour"}, r"no label column 'colour'; its columns are 'bottle', 'alcohol'"),
        ({"target_label": "grape"}, r"target.parquet has no label column 'grape'"),
        ({"method": "magic"}, "method must be one of cmd, cv-cmd, mmd, coral, dann, none, got 'magic'"),
        ({"seeds": 0}, "seeds must be at least 1, got 0"),
        ({"max_epochs": 0}, "max_epochs must be at least 1, got 0"),
        ({"text": "story"}, "text='story' is no column of both domains"),
        ({"label": "alcohol", "id_column": "grape"}, "no id column 'grape'"),
    ],
)
def test_what_the_user_can_mend_is_said_in_one_line(files: tuple[Path, Path], tmp_path: Path, change: dict, words: str):
    with pytest.raises(MomentAlignError, match=words) as caught:
        fit_files(*files, **({"label": "grape", "out": tmp_path / "model"} | QUICK | change))
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "model").exists()


def test_bad_files_leave_nothing_behind(files: tuple[Path, Path], cellars: Frames, tmp_path: Path):
    source, target = files
    bad = tmp_path / "bad.csv"

    def refused(words: str, *paths: Path) -> None:
        with pytest.raises(MomentAlignError, match=words):
            fit_files(*paths, label="grape", id_column="bottle", out=tmp_path / "model", **QUICK)
        assert not (tmp_path / "model").exists()

    cellars[0].assign(grape="barolo").to_csv(bad, index=False)
    refused("holds 'barolo' in every row", bad, target)
    cellars[0].head(0).to_csv(bad, index=False)
    refused("bad.csv has no rows", source, bad)
    bad.write_bytes(b"")
    refused("bad.csv is empty", source, bad)
    refused("absent.csv is not there", source, tmp_path / "absent.csv")
    one_of_a_kind = cellars[0].head(20).assign(grape=["barolo"] * 19 + ["barbera"])
    one_of_a_kind.to_csv(bad, index=False)
    refused("1 of the rarest, too few to hold out", bad, target)


def test_columns_of_one_domain_are_an_error_where_strict(files: tuple[Path, Path], cellars: Frames, tmp_path: Path):
    source, target = files
    cellars[1].drop(columns=["hue", "grape"]).to_parquet(target)
    options = {"label": "grape", "id_column": "bottle", "out": tmp_path / "model"}
    with pytest.raises(InvalidInputError, match="the target lacks 'hue'"):
        fit_files(source, target, strict=True, **options, **QUICK)
    with pytest.warns(MomentAlignWarning, match="the target lacks 'hue'"):
        result = fit_files(source, target, **options, **QUICK)
    assert any("hue" in note for note in result.summary["notes"])


def test_a_table_without_labels_is_refused(tables: Tables):
    with pytest.raises(InvalidInputError, match="the source has no labels"):
        fit_tables(replace(tables[0], labels=None), tables[1])


def test_a_place_that_cannot_be_written_is_refused_before_training(files: tuple[Path, Path], tmp_path: Path):
    (tmp_path / "file").write_text("mine")
    for out in (tmp_path / "file", tmp_path / "file" / "model", "/proc/model"):
        with pytest.raises(InvalidInputError, match=r"the model cannot be written to .* give a folder that can be"):
            fit_files(*files, label="grape", out=out, **QUICK)
    assert (tmp_path / "file").read_text() == "mine"


def test_fitting_warns_of_nothing(files: tuple[Path, Path], tmp_path: Path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit_files(*files, label="grape", id_column="bottle", out=tmp_path / "model", **QUICK)
