from __future__ import annotations

import json
import resource
import stat
import threading
import time
import warnings
from contextlib import closing
from copy import copy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy import sparse
from sklearn.datasets import dump_svmlight_file

import momentalign as ma
from momentalign.errors import DamagedFileError, DataNotFoundError, InvalidInputError, MomentAlignWarning
from momentalign.workflow.model import TableModel
from momentalign.workflow.predict import in_order, open_output, predict_file

Frames = tuple[pd.DataFrame, pd.DataFrame]


@pytest.fixture
def data(cellars: Frames, tmp_path: Path) -> Path:
    path = tmp_path / "new.csv"
    cellars[1].drop(columns="grape").to_csv(path, index=False)
    return path


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet", ""])
def test_predictions_keep_the_order_and_the_identifiers(
    fitted: TableModel, folder: Path, data: Path, cellars: Frames, tmp_path: Path, suffix: str
):
    out = tmp_path / f"predictions{suffix}"
    summary = predict_file(folder, data, out=out, chunk_rows=7)
    found = pd.read_parquet(out) if suffix == ".parquet" else pd.read_csv(out, sep="\t" if suffix == ".tsv" else ",")
    assert list(found.columns) == ["bottle", "prediction"]
    assert found["bottle"].tolist() == cellars[1]["bottle"].tolist()
    assert found["prediction"].tolist() == fitted.predict(cellars[1]).tolist()
    assert summary.rows == 89
    assert summary.classes == found["prediction"].value_counts().to_dict()
    assert not summary.drift.found
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["model", "new.csv", out.name])


def test_chunks_change_no_byte(folder: Path, data: Path, tmp_path: Path):
    for rows in (1, 10, 65_536):
        predict_file(folder, data, out=tmp_path / f"{rows}.csv", chunk_rows=rows, proba=True)
    assert len({(tmp_path / f"{rows}.csv").read_bytes() for rows in (1, 10, 65_536)}) == 1


def test_probabilities_stand_beside_the_prediction(fitted: TableModel, folder: Path, data: Path, tmp_path: Path):
    predict_file(fitted, data, out=tmp_path / "p.parquet", proba=True)
    found = pd.read_parquet(tmp_path / "p.parquet")
    probabilities = found[[f"probability_{name}" for name in fitted.estimator.classes_]].to_numpy()
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, rtol=1e-6)
    assert found["prediction"].tolist() == fitted.estimator.classes_[probabilities.argmax(axis=1)].tolist()


def test_without_a_file_csv_goes_to_standard_output(folder: Path, data: Path, capfdbinary: pytest.CaptureFixture):
    summary = predict_file(folder, data)
    lines = capfdbinary.readouterr().out.decode().splitlines()
    assert lines[0] == '"bottle","prediction"'
    assert len(lines) == 1 + summary.rows


def test_another_id_column_and_columns_in_any_order(folder: Path, cellars: Frames, tmp_path: Path):
    frame = cellars[1].assign(place=range(89), spare="x")
    frame[sorted(frame.columns, reverse=True)].to_parquet(tmp_path / "new.parquet")
    predict_file(folder, tmp_path / "new.parquet", out=tmp_path / "p.csv", id_column="place")
    assert pd.read_csv(tmp_path / "p.csv")["place"].tolist() == list(range(89))


def test_progress_counts_rows(folder: Path, data: Path, tmp_path: Path):
    seen: list[int] = []
    predict_file(folder, data, out=tmp_path / "p.csv", chunk_rows=40, progress=seen.append)
    assert seen == [40, 80, 89]


def test_drift_is_warned_of_by_name(folder: Path, cellars: Frames, tmp_path: Path):
    frame = cellars[1].assign(alcohol=cellars[1]["alcohol"] + 3 * cellars[1]["alcohol"].std())
    frame.to_parquet(tmp_path / "new.parquet")
    with pytest.warns(
        MomentAlignWarning, match=r"drifted away from the target .*: 'alcohol' by \+3\.\d+ standard deviations;"
    ):
        summary = predict_file(folder, tmp_path / "new.parquet", out=tmp_path / "p.csv")
    assert summary.to_dict()["drift"]["features"][0]["name"] == "alcohol"
    assert (tmp_path / "p.csv").exists()


def test_the_source_has_drifted_too(folder: Path, cellars: Frames, tmp_path: Path):
    cellars[0].to_parquet(tmp_path / "source.parquet")
    with pytest.warns(MomentAlignWarning, match="drifted"):
        predict_file(folder, tmp_path / "source.parquet", out=tmp_path / "p.csv")


def refused(error: type[Exception], words: str, folder: Path, data: Path, out: Path, **options: object) -> None:
    """An earlier file stays as it was, and nothing is left beside it."""
    out.write_text("old")
    before = sorted(out.parent.iterdir())
    with pytest.raises(error, match=words) as caught:
        predict_file(folder, data, out=out, **options)
    assert "\n" not in str(caught.value)
    assert out.read_text() == "old"
    assert sorted(out.parent.iterdir()) == before


def test_what_does_not_fit_is_named_and_nothing_is_written(folder: Path, cellars: Frames, tmp_path: Path):
    new, out = tmp_path / "new.csv", tmp_path / "p.csv"
    cellars[1].drop(columns=["hue", "ash"]).to_csv(new, index=False)
    refused(InvalidInputError, r"lacks 2 of 13 columns the model was trained with: 'ash', 'hue'", folder, new, out)
    cellars[1].drop(columns="bottle").to_csv(new, index=False)
    refused(InvalidInputError, "no id column 'bottle'", folder, new, out)
    cellars[1].assign(hue=[1.0] * 80 + ["red"] * 9).to_csv(new, index=False)
    refused(InvalidInputError, "column 'hue', row 81", folder, new, out, chunk_rows=20)
    cellars[1].head(0).to_csv(new, index=False)
    refused(InvalidInputError, "has no rows", folder, new, out)
    refused(DataNotFoundError, "absent.csv is not there", folder, tmp_path / "absent.csv", out)
    refused(DataNotFoundError, "holds no manifest", tmp_path, new, out)


def test_a_place_that_cannot_be_written_is_named(folder: Path, data: Path, tmp_path: Path):
    refused(InvalidInputError, "must end in .csv, .tsv or .parquet", folder, data, tmp_path / "p.xlsx")
    for out in (tmp_path / "absent" / "p.csv", Path("/proc/p.csv")):
        with pytest.raises(InvalidInputError, match=r"cannot be written .*; name a file in a folder"):
            predict_file(folder, data, out=out)
    with pytest.raises(InvalidInputError, match="is the file that is read"):
        predict_file(folder, data, out=data)


def test_a_full_disk_leaves_the_old_parquet_file(folder: Path, data: Path, tmp_path: Path):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    out = tmp_path / "p.parquet"
    out.write_text("old")
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (300, before[1]))
        with pytest.raises(InvalidInputError, match=r"cannot be written \(File too large\); name a file"):
            predict_file(folder, data, out=out, chunk_rows=10)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert out.read_text() == "old"
    assert not list(tmp_path.glob(".p*"))


def test_a_cut_file_leaves_nothing(folder: Path, cellars: Frames, tmp_path: Path):
    frame = pd.concat([cellars[1]] * 30)
    frame.to_csv(tmp_path / "new.csv.gz", index=False)
    whole = (tmp_path / "new.csv.gz").read_bytes()
    (tmp_path / "new.csv.gz").write_bytes(whole[: len(whole) // 2])
    refused(DamagedFileError, "cannot be read to its end", folder, tmp_path / "new.csv.gz", tmp_path / "p.csv")


def test_numbers_as_classes_are_written_as_such(fitted: TableModel, data: Path, tmp_path: Path):
    estimator = copy(fitted.estimator)
    estimator.classes_ = np.array([1, 2, 3])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        predict_file(replace(fitted, estimator=estimator, id_column=None), data, out=tmp_path / "p.csv")
    assert pd.read_csv(tmp_path / "p.csv")["prediction"].isin([1, 2, 3]).all()


def test_text_and_sparse_files_are_predicted_in_chunks(tmp_path: Path):
    words = {"good": "fine warm kind", "bad": "cold rude slow"}
    labels = ["good", "bad"] * 30
    for name, extra in (("s", "book page"), ("t", "film actor")):
        reviews = [f"{words[label]} {extra} {place % 7}" for place, label in enumerate(labels)]
        pd.DataFrame({"review": reviews, "y": labels}).to_csv(tmp_path / f"{name}.csv", index=False)
    options = {"max_epochs": 20, "device": "cpu"}
    ma.fit(tmp_path / "s.csv", tmp_path / "t.csv", label="y", text="review", **options).save(tmp_path / "m")
    predict_file(tmp_path / "m", tmp_path / "t.csv", out=tmp_path / "p.csv", chunk_rows=13)
    assert (pd.read_csv(tmp_path / "p.csv")["prediction"] == labels).mean() > 0.9
    rows = sparse.random(40, 30, density=0.2, format="csr", random_state=0)
    dump_svmlight_file(rows, np.arange(40) % 2, str(tmp_path / "s.svm"), zero_based=True)
    ma.fit(tmp_path / "s.svm", tmp_path / "s.svm", label="label", **options).save(tmp_path / "n")
    summary = predict_file(tmp_path / "n", tmp_path / "s.svm", out=tmp_path / "q.csv", chunk_rows=7)
    assert summary.rows == 40
    assert set(pd.read_csv(tmp_path / "q.csv")["prediction"]) <= {0, 1}
    refused(
        InvalidInputError, "the model was trained with sparse", tmp_path / "n", tmp_path / "t.csv", tmp_path / "p.csv"
    )


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_numbers_are_predicted_too(regressor: TableModel, readings: Frames, tmp_path: Path, suffix: str):
    data, out = tmp_path / "new.csv", tmp_path / f"p{suffix}"
    readings[1].to_csv(data, index=False)
    summary = predict_file(regressor, data, out=out, chunk_rows=50)
    found = pd.read_parquet(out) if suffix == ".parquet" else pd.read_csv(out)
    assert list(found.columns) == ["id", "prediction"]
    assert found["id"].tolist() == readings[1]["id"].tolist()
    np.testing.assert_allclose(found["prediction"], regressor.predict(readings[1]), rtol=1e-12)
    values = {"mean": found["prediction"].mean(), "smallest": found["prediction"].min()}
    assert (summary.rows, summary.classes, summary.drift.found) == (240, {}, False)
    assert summary.values == pytest.approx(values | {"largest": found["prediction"].max()})
    assert json.loads(json.dumps(summary.to_dict(), allow_nan=False))["values"] == summary.values


def test_probabilities_of_numbers_are_refused(regressor: TableModel, data: Path, tmp_path: Path):
    with pytest.raises(InvalidInputError, match=r"predicts numbers \('price'\), which have no probabilities; leave"):
        predict_file(regressor, data, out=tmp_path / "p.csv", proba=True)
    assert not (tmp_path / "p.csv").exists()


@pytest.mark.parametrize(("name", "proba"), [("prediction", False), ("probability_barolo", True)])
def test_an_id_column_with_the_name_of_a_prediction_is_refused(
    folder: Path, cellars: Frames, tmp_path: Path, name: str, proba: bool
):
    new = tmp_path / "new.csv"
    cellars[1].rename(columns={"bottle": name}).to_csv(new, index=False)
    message = f"the id column '{name}' has the name of a column of predictions"
    refused(InvalidInputError, message, folder, new, tmp_path / "p.csv", id_column=name, proba=proba)
    if proba:  # Without probabilities no such column is written.
        predict_file(folder, new, out=tmp_path / "p.csv", id_column=name)
        assert list(pd.read_csv(tmp_path / "p.csv").columns) == [name, "prediction"]


def test_an_interrupted_prediction_leaves_nothing(fitted: TableModel, data: Path, tmp_path: Path):
    def press(rows: int) -> None:
        raise KeyboardInterrupt

    (tmp_path / "p.csv").write_text("old")
    with pytest.raises(KeyboardInterrupt):
        predict_file(fitted, data, out=tmp_path / "p.csv", chunk_rows=10, progress=press)
    assert (tmp_path / "p.csv").read_text() == "old"
    assert not list(tmp_path.glob(".p*"))


def test_results_come_in_order_whichever_part_is_slow():
    assert list(in_order(lambda part: (time.sleep(0.02 * (part == 0)), part)[1], range(6), threads=3)) == list(range(6))


def test_parts_are_read_no_further_ahead_than_there_are_threads():
    read = []

    def parts():
        for part in range(10):
            read.append(part)
            yield part

    with closing(in_order(lambda part: part, parts(), threads=2)) as results:
        assert next(results) == 0
        assert read == [0, 1, 2]


def test_the_error_of_the_first_part_that_fails_is_raised():
    def work(part: int) -> int:
        if part >= 2:
            raise ValueError(f"part {part}")
        return part

    with pytest.raises(ValueError, match="part 2"):
        list(in_order(work, range(5), threads=4))
    assert threading.active_count() < 50


def test_parts_follow_each_other_under_one_header(tmp_path: Path):
    with open_output(tmp_path / "a.csv") as write:
        write(pa.table({"id": [1], "word": ['say "yes", twice']}))
        write(pa.table({"id": [2], "word": ["no"]}))
        assert not (tmp_path / "a.csv").exists()
    head, first, second = (tmp_path / "a.csv").read_text().splitlines()
    assert head == '"id","word"'
    assert first == '1,"say ""yes"", twice"'
    assert second in ("2,no", '2,"no"')


def test_a_new_file_may_be_read_by_others(tmp_path: Path):
    with open_output(tmp_path / "a.csv") as write:
        write(pa.table({"id": [1]}))
    (tmp_path / "b.csv").touch()
    assert len({stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("a.csv", "b.csv")}) == 1


def test_what_is_wrong_with_the_data_is_not_said_of_the_output(tmp_path: Path):
    def fail() -> None:
        with open_output(tmp_path / "a.csv"):
            raise DataNotFoundError("the image is gone")

    with pytest.raises(DataNotFoundError, match="the image is gone"):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_no_file(tmp_path: Path):
    with pytest.raises(InvalidInputError, match="is a folder; name a file in it"), open_output(tmp_path):
        pass
