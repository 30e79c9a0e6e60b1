"""What earlier versions saved is read, and predicts what it predicted then; what a newer one saves is refused.

``tests/golden/<version>`` holds what that version really wrote (``tests/golden/make.py``); they are never changed.
"""

import hashlib
import importlib.util
import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import momentalign as ma
from momentalign.errors import DamagedFileError
from momentalign.journal import Journal
from momentalign.training.deep.checkpoint import SafetensorsIO
from momentalign.workflow.model import load_model
from momentalign.workflow.predict import predict_file

GOLDEN = Path(__file__).parents[1] / "golden"
VERSIONS = sorted(folder.name for folder in GOLDEN.iterdir() if (folder / "expected.json").is_file())
# Sums may be taken in another order by another library of linear algebra.
TOLERANCE = 1e-5

spec = importlib.util.spec_from_file_location("momentalign_golden", GOLDEN / "make.py")
golden = importlib.util.module_from_spec(spec)
spec.loader.exec_module(golden)


@pytest.fixture(params=VERSIONS)
def folder(request):
    return GOLDEN / request.param


@pytest.fixture
def expected(folder):
    return json.loads((folder / "expected.json").read_text(encoding="utf-8"))


def test_there_are_golden_files_and_they_are_small():
    assert "0.1.0" in VERSIONS
    assert sum(file.stat().st_size for file in GOLDEN.rglob("*") if file.is_file()) < 200_000 * len(VERSIONS)


@pytest.mark.parametrize("name", ["classifier", "labels", "combination", "regressor"])
def test_an_estimator_predicts_what_it_predicted(folder, expected, name):
    model = ma.load(folder / name)
    target = golden.problem()[2]
    if name == "labels":
        target = pd.DataFrame(target, columns=model.feature_names_in_)
    figures = model.predict(target) if name == "regressor" else model.predict_proba(target)
    np.testing.assert_allclose(figures, expected[name]["figures"], rtol=TOLERANCE, atol=TOLERANCE)
    if name != "regressor":
        assert model.predict(target).tolist() == expected[name]["predict"]
    assert model.transform(target).shape == (30, 4)


def test_a_table_model_predicts_what_it_predicted(folder, expected, tmp_path):
    _, target = golden.tables(tmp_path)
    predict_file(folder / "table", target, out=tmp_path / "p.csv", proba=True)
    (tmp_path / "then.csv").write_text(expected["table"], encoding="utf-8")
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "p.csv"), pd.read_csv(tmp_path / "then.csv"), atol=TOLERANCE)


def test_a_deep_run_goes_on_from_an_old_checkpoint(folder, expected, tmp_path):
    shutil.copytree(folder / "deep", tmp_path / "deep")
    adapted, history = golden.adapt(tmp_path / "deep", epochs=2)
    assert len(history) == 1, "the first epoch is in the checkpoint"
    assert history[0] == pytest.approx(expected["deep"]["history"][-1], rel=1e-4)
    for name, values in expected["deep"]["weights"].items():
        np.testing.assert_allclose(adapted.state_dict()[name].numpy(), values, rtol=1e-4, atol=1e-5)


def test_old_weights_are_read_into_a_network(folder, expected):
    network = golden.network()
    ma.load_weights(network, folder / "network.safetensors")
    assert golden.state(network) == expected["deep"]["weights"]


def test_an_old_journal_goes_on(folder, expected, tmp_path):
    shutil.copy(folder / "cells.jsonl", tmp_path)
    journal = Journal(tmp_path / "cells.jsonl", golden.IDENTITY)
    assert journal.done() == expected["journal"]
    journal.append({"task": "a->b", "seed": 2}, {"accuracy": 1.0})
    assert len(Journal(tmp_path / "cells.jsonl", golden.IDENTITY).done()) == 3


READERS = {"classifier": ma.load, "table": load_model, "deep/last": lambda path: SafetensorsIO().load_checkpoint(path)}


def _text(body):
    return json.dumps(body, sort_keys=True, indent=1, ensure_ascii=False)


@pytest.mark.parametrize("name", READERS)
def test_what_a_newer_version_saved_is_refused_with_a_sentence(folder, tmp_path, name):
    copied = tmp_path / "model"
    shutil.copytree(folder / name, copied)
    READERS[name](copied)
    body = json.loads((copied / "manifest.json").read_text(encoding="utf-8"))
    del body["digest"]
    body["format_version"] += 1
    body["digest"] = hashlib.sha256(_text(body).encode()).hexdigest()
    (copied / "manifest.json").write_text(_text(body), encoding="utf-8")
    with pytest.raises(
        DamagedFileError, match=r"was written by a newer momentalign \(format 2, this one reads 1\); up"
    ):
        READERS[name](copied)
