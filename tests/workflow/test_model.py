from __future__ import annotations

import hashlib
import json
import re
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import momentalign as ma
from momentalign.errors import DamagedFileError, DataNotFoundError, InvalidInputError, MomentAlignError
from momentalign.files import read_folder, write_folder
from momentalign.moments.streaming import Moments
from momentalign.workflow.fit import TableModel
from momentalign.workflow.model import load_model

Content = Callable[..., dict[str, Any]]


def test_a_model_is_read_back_whole(fitted: TableModel, folder: Path, cellars: tuple[pd.DataFrame, pd.DataFrame]):
    loaded = ma.load(folder)
    assert isinstance(loaded, TableModel)
    np.testing.assert_array_equal(loaded.predict_proba(cellars[1]), fitted.predict_proba(cellars[1]))
    np.testing.assert_array_equal(loaded.predict(cellars[1]), fitted.predict(cellars[1]))
    np.testing.assert_array_equal(loaded.moments.central, fitted.moments.central)
    assert (loaded.label, loaded.id_column, loaded.moments.count) == ("grape", "bottle", 89)
    assert {**loaded.summary, "seconds": fitted.summary["seconds"]} == fitted.summary


def test_the_page_is_written_before_and_after_saving(fitted: TableModel, folder: Path, tmp_path: Path):
    pages = [model.report(tmp_path / f"{i}.html").read_text() for i, model in enumerate((fitted, ma.load(folder)))]
    assert re.sub(r"<dt>Time</dt>\s*<dd>[^<]*</dd>", "", pages[0]).split() == pages[1].split()


def test_a_model_of_an_earlier_version_has_no_page(folder: Path, tmp_path: Path):
    rewrite(folder, lambda table: table.pop("summary"))
    with pytest.raises(InvalidInputError, match="saved without what its page shows; fit it again"):
        ma.load(folder).report(tmp_path / "page.html")


def test_every_flipped_byte_is_noticed(folder: Path, content: Content):
    random = np.random.default_rng(0)
    for name, whole in content(folder, {"model_card.md"}).items():
        for place in random.integers(0, len(whole), 40).tolist():
            damaged = bytearray(whole)
            damaged[place] ^= 1 << int(random.integers(8))
            (folder / name).write_bytes(damaged)
            with pytest.raises(MomentAlignError) as caught:
                load_model(folder)
            assert "\n" not in str(caught.value)
        (folder / name).write_bytes(whole)
    load_model(folder)


def test_every_cut_and_every_missing_file_is_noticed(folder: Path, content: Content):
    for name, whole in content(folder, {"model_card.md"}).items():
        (folder / name).write_bytes(whole[: len(whole) // 2])
        with pytest.raises(DamagedFileError):
            load_model(folder)
        (folder / name).unlink()
        with pytest.raises((DamagedFileError, DataNotFoundError)):
            load_model(folder)
        (folder / name).write_bytes(whole)
    load_model(folder)


# Moments of one feature as version 1 wrote them.
EARLIER = {"count": 2, "mean": [0.5], "central": [[0.25], [0.0], [0.0625], [0.0]]}


def rewrite(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Write a manifest that is whole but says something else."""
    arrays, description = read_folder(folder)
    change(description["table"])
    write_folder(folder, arrays, description)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda table: table.update(version=4), "version 4, this one reads 3: upgrade momentalign"),
        (lambda table: table.update(version="1"), "version '1'"),
        (lambda table: table.update(label=None), "names of the label"),
        (lambda table: table.update(id_column=3), "names of the label"),
        (lambda table: table.pop("label"), "label"),
        (lambda table: table.update(summary=[1]), "the summary of the fit"),
        (lambda table: table.update(risk_cut="high"), "the risk from which on rows are flagged"),
        (lambda table: table["source_moments"]["mean"].pop(), "sums of shape"),
        (lambda table: table.update(threshold={"value": 0.2, "positive": 1, "rule": "f1"}), "one of two classes"),
        (lambda table: table["preprocessor"].update(version=9), "preprocessing"),
        (lambda table: table["preprocessor"]["columns"].pop(), "12 features for networks of 13"),
        (lambda table: table["target_moments"]["mean"].pop(), "sums of shape"),
        (lambda table: table.update(target_moments=[]), "does not describe a model"),
        (lambda table: table.update(target_moments=EARLIER), "of 2 rows, 1 features, where 13 features are expected"),
        (lambda table: table.update(target_moments=Moments().to_dict()), "of no rows, where 13 features"),
        (lambda table: table["target_moments"].update(order=4, sums=table["target_moments"]["sums"][:3]), "order=4"),
    ],
)
def test_a_forged_or_newer_description_builds_nothing(folder: Path, change: Callable, words: str):
    rewrite(folder, change)
    with pytest.raises(DamagedFileError, match=words):
        load_model(folder)


def test_a_folder_of_the_first_version_is_read(fitted: TableModel, folder: Path):
    moments = fitted.moments

    def as_before(table: dict[str, Any]) -> None:
        earlier = {"count": moments.count, "mean": moments.mean.tolist(), "central": moments.central.tolist()}
        table.update(version=1, target_moments=earlier)

    rewrite(folder, as_before)
    found = load_model(folder).moments
    assert (found.count, found.order) == (89, 5)
    np.testing.assert_array_equal(found.mean, moments.mean)
    np.testing.assert_allclose(found.central, moments.central, rtol=1e-15)


def test_a_newer_format_is_refused(folder: Path):
    manifest = folder / "manifest.json"
    body = json.loads(manifest.read_bytes())
    del body["digest"]
    body["format_version"] = 2

    def canonical(part: dict[str, Any]) -> bytes:
        return json.dumps(part, sort_keys=True, indent=1, ensure_ascii=False).encode()

    manifest.write_bytes(canonical({**body, "digest": hashlib.sha256(canonical(body)).hexdigest()}))
    with pytest.raises(DamagedFileError, match=r"written by a newer momentalign .* upgrade"):
        load_model(folder)


def test_an_estimator_alone_is_no_model_for_files(tmp_path: Path):
    ma.MANNClassifier(hidden=(3,), max_epochs=2, random_state=0).fit([[0.0], [0.1], [1.0], [1.1]], [0, 0, 1, 1]).save(
        tmp_path
    )
    with pytest.raises(InvalidInputError, match="without the preprocessing of a table"):
        load_model(tmp_path)
    with pytest.raises(DataNotFoundError):
        load_model(tmp_path / "absent")


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """No file of this process may grow beyond some bytes, as if the disk were full; undone after the test."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("file", ["weights", "manifest"])
def test_a_full_disk_leaves_the_old_model(
    fitted: TableModel,
    cellars: tuple[pd.DataFrame, pd.DataFrame],
    folder: Path,
    tmp_path: Path,
    content: Content,
    full_disk: Callable[[int], None],
    file: str,
):
    (size,) = (len(whole) for name, whole in content(folder).items() if name.startswith(file))
    old = tmp_path / "old"
    ma.fit(*cellars, label="grape", id_column="bottle", max_epochs=2, device="cpu").save(old)
    before = content(old)
    full_disk(size - 500)
    with pytest.raises(InvalidInputError, match=r"the model cannot be written to .*\(File too large\)"):
        fitted.save(old)
    assert content(old) == before
    load_model(old)


def test_a_full_disk_leaves_no_new_folder(
    fitted: TableModel, tmp_path: Path, folder: Path, content: Content, full_disk: Callable[[int], None]
):
    manifest = len(content(folder)["manifest.json"])
    full_disk(max(manifest - 500, 1))
    with pytest.raises(InvalidInputError, match="File too large"):
        fitted.save(tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_what_stands_beside_the_model_stays(fitted: TableModel, folder: Path):
    (folder / "report.html").write_text("page")
    fitted.save(folder)
    assert (folder / "report.html").read_text() == "page"
    load_model(folder)


def test_a_place_below_a_file_is_refused(fitted: TableModel, tmp_path: Path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InvalidInputError, match="the model cannot be written"):
        fitted.save(tmp_path / "file" / "model")
    assert (tmp_path / "file").read_text() == "mine"
