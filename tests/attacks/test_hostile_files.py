"""Damaged and forged folders of one model: each is refused, whatever digest it has."""

import hashlib
import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import load as read_arrays

import momentalign as ma
from momentalign import files as checkpoints
from momentalign.errors import DamagedFileError, DataNotFoundError

REFUSALS = (DamagedFileError, DataNotFoundError)


def _refuse(folder):
    with pytest.raises(REFUSALS) as caught:
        ma.load(folder)
    message = str(caught.value)
    assert str(folder) in message
    assert len(message) < 1000
    return message.replace(str(folder), "")  # its name holds the name of the test


def test_the_forgers_tools_work(folder, forge, weights):
    """Without a change the forged folder loads: what is refused below is refused for the change."""
    forge()
    forge(arrays=read_arrays(weights.read_bytes()))
    assert ma.load(folder).coefs_[0].shape == (2, 3)


@pytest.mark.parametrize("member", ["manifest", "weights"])
def test_every_truncation_is_refused(folder, weights, member):
    path = folder / "manifest.json" if member == "manifest" else weights
    content = path.read_bytes()
    for length in range(len(content)):
        path.write_bytes(content[:length])
        _refuse(folder)
    for longer in (content + b"\n", content + b" ", content + b"\0", content + content):
        path.write_bytes(longer)
        _refuse(folder)
    path.write_bytes(content)
    ma.load(folder)


@pytest.mark.parametrize("member", ["manifest", "weights"])
@pytest.mark.parametrize("count", [1000, pytest.param(10_000, marks=pytest.mark.long)])
def test_every_flipped_bit_is_noticed(folder, weights, member, count):
    path = folder / "manifest.json" if member == "manifest" else weights
    content = path.read_bytes()
    rng = np.random.default_rng(count)
    for position in rng.integers(len(content) * 8, size=count):
        damaged = bytearray(content)
        damaged[position // 8] ^= 1 << (position % 8)
        path.write_bytes(damaged)
        _refuse(folder)


@pytest.mark.parametrize("member", ["manifest", "weights"])
def test_a_missing_member_is_named(folder, weights, member):
    path = folder / "manifest.json" if member == "manifest" else weights
    path.unlink()
    assert path.name in _refuse(folder)


def test_weights_of_another_model_are_refused(folder, weights, tmp_path):
    X = np.random.default_rng(1).normal(size=(20, 2))
    ma.MANNClassifier(hidden=(3,), max_epochs=2, random_state=1).fit(X, np.arange(20) % 2).save(tmp_path / "other")
    (other,) = (tmp_path / "other").glob("*.safetensors")
    shutil.copy(other, weights)
    assert "digest" in _refuse(folder)


def _rename(name):
    return lambda body: body.update(files=dict.fromkeys([name], *body["files"].values()))


def _set(*keys_and_value):
    *keys, last, value = keys_and_value

    def change(body):
        for key in keys:
            body = body[key]
        body[last] = value

    return change


def _labels(kind, values):
    return _set("description", "classes", {"dtype": kind, "values": values})


def _drop(*keys):
    def change(body):
        *before, last = keys
        for key in before:
            body = body[key]
        del body[last]

    return change


FORGERIES = {
    "newer format": (_set("format_version", 2), "newer momentalign"),
    "version as text": (_set("format_version", "1"), "not a model of momentalign"),
    "no version": (_drop("format_version"), "not a model of momentalign"),
    "version zero": (_set("format_version", 0), ""),
    "version true": (_set("format_version", True), ""),
    "another format": (_set("format", "something else"), "not a model of momentalign"),
    "name outside": (_rename("../x.safetensors"), "foreign"),
    "name far outside": (_rename("/etc/passwd"), "foreign"),
    "name below": (_rename("below/x.safetensors"), "foreign"),
    "hidden name": (_rename(".x.safetensors"), "foreign"),
    "empty name": (_rename(""), ""),
    "dots": (_rename(".."), "foreign"),
    "name with a zero byte": (_rename("x\0.safetensors"), ""),
    "very long name": (_rename("x" * 300), ""),
    "a surrogate in the name": (_rename("x\\ud800"), ""),
    "no file": (_set("files", {}), "names no or foreign files"),
    "two files": (_set("files", {"a": "0", "b": "0"}), "names no or foreign files"),
    "files as a list": (_set("files", ["a"]), "names no or foreign files"),
    "size as text": (_set("bytes", "many"), "not many"),
    "digest of a file as a number": (lambda body: body.update(files=dict.fromkeys(body["files"], 7)), "digest"),
    "the manifest as weights": (_rename("manifest.json"), "names no or foreign files"),
    "no description": (_drop("description"), "names no or foreign files"),
    "description as text": (_set("description", "a model"), "names no or foreign files"),
    "unknown class": (_set("description", "class", "Popen"), "does not describe a model"),
    "class with a module": (_set("description", "class", "os.system"), "does not describe a model"),
    "class as a list": (_set("description", "class", ["MANNClassifier"]), "does not describe a model"),
    "unknown parameter": (_set("description", "parameters", "callback", 1), "does not describe a model"),
    "parameters as a list": (_set("description", "parameters", []), ""),
    "no classes": (_drop("description", "classes"), "does not describe a model"),
    "too many classes": (_set("description", "classes", "values", [0, 1, 2]), "shapes"),
    "one class": (_set("description", "classes", "values", [0]), "shapes"),
    "classes as objects": (_labels("|O", [0, 1]), "does not describe"),
    "classes as void": (_labels("V8", [0, 1]), "does not describe"),
    "classes that do not convert": (_set("description", "classes", "values", ["a", "b"]), "does not describe"),
    "classes as dictionaries": (_labels("object", [{}, {}]), "does not describe"),
    "classes as lists": (_labels("<i8", [[0], [1]]), "does not describe"),
    "classes as a text": (_labels("<U1", "ab"), "does not describe"),
    "classes as null": (_labels("object", [None, 1]), "does not describe"),
    "doubled classes": (_set("description", "classes", "values", [1, 1]), "does not describe"),
    "classes that are cut to one": (
        _set("description", "classes", {"dtype": "<U1", "values": ["aa", "ab"]}),
        "describe",
    ),
    "infinite classes": (
        _set("description", "classes", {"dtype": "<f8", "values": [1.0, 10**400]}),
        "does not describe",
    ),
    "classes beyond float16": (_labels("<f2", [1, 10**6]), "does not describe"),
    "classes of gigabytes": (
        _set("description", "classes", {"dtype": "<U500000000", "values": ["a", "b"]}),
        "describe",
    ),
    "a type of classes that is none": (
        _set("description", "classes", {"dtype": ["<i8"], "values": [0, 1]}),
        "describe",
    ),
    "other features": (_set("description", "features", 3), "shapes"),
    "features as text": (_set("description", "features", "two"), "does not describe a model"),
    "infinite features": (_set("description", "features", 10**400), "does not describe a model"),
    "other hidden layers": (_set("description", "parameters", "hidden", [3, 3]), "shapes"),
    "hidden as a number": (_set("description", "parameters", "hidden", 3), "does not describe a model"),
    "names of other features": (_set("description", "feature_names", ["a"]), ""),
    "history as text": (_set("description", "history", "source_loss", "good"), "does not describe a model"),
    "no history": (_set("description", "history", None), "does not describe a model"),
    "epochs as text": (_set("description", "n_epochs", "many"), "does not describe a model"),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_manifest_with_the_right_digest_is_refused(folder, forge, name):
    change, words = FORGERIES[name]
    forge(change)
    assert words in _refuse(folder)


ARRAYS = {
    "NaN": lambda arrays: arrays["coef_0"].__setitem__((0, 0), np.nan),
    "infinity": lambda arrays: arrays["intercept_1"].__setitem__(0, np.inf),
    "wrong shape": lambda arrays: arrays.update(coef_0=np.zeros((3, 3), np.float32)),
    "transposed": lambda arrays: arrays.update(coef_0=np.ascontiguousarray(arrays["coef_0"].T)),
    "a bias of the wrong length": lambda arrays: arrays.update(intercept_0=np.zeros(4, np.float32)),
    "a missing layer": lambda arrays: arrays.pop("coef_1"),
    "another name": lambda arrays: arrays.update(coef_x=arrays.pop("coef_1")),
    "an extra array": lambda arrays: arrays.update(extra=np.zeros(1, np.float32)),
    "two extra arrays": lambda arrays: arrays.update(extra=np.zeros(1, np.float32), more=np.zeros(1, np.float32)),
    "whole numbers": lambda arrays: arrays.update(coef_0=np.zeros((2, 3), np.int64)),
    "booleans": lambda arrays: arrays.update(coef_0=np.zeros((2, 3), bool)),
    "no arrays": lambda arrays: arrays.clear(),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_forged_weights_with_the_right_digests_are_refused(folder, weights, forge, name):
    arrays = read_arrays(weights.read_bytes())
    ARRAYS[name](arrays)
    forge(arrays=arrays)
    assert "bytes, not" not in _refuse(folder)


def test_a_key_that_stands_twice_is_refused_even_with_the_right_digest(folder, forge):
    """Readers that take the first and readers that take the last would see different models."""
    path = folder / "manifest.json"
    text = path.read_text(encoding="utf-8").replace('"format":', '"format": "other",\n "format":', 1)
    line = f'\n "digest": "{json.loads(text)["digest"]}",'
    digest = hashlib.sha256(text.replace(line, "").encode()).hexdigest()
    path.write_text(text.replace(line, f'\n "digest": "{digest}",'), encoding="utf-8")
    assert "a key stands twice" in _refuse(folder)


def test_a_damaged_manifest_is_refused_before_it_is_parsed(folder, monkeypatch):
    path = folder / "manifest.json"
    path.write_bytes(path.read_bytes().replace(b"MANNClassifier", b"MANNClassifies"))
    monkeypatch.setattr(checkpoints, "strict_json", lambda _: pytest.fail("it was parsed"))
    assert "its content does not match its digest" in _refuse(folder)


@pytest.mark.parametrize(
    "text", [None, "", "null", '{"digest": "0"} trailing', '{"digest": "0", "x": 1e999}', "1" * 5000]
)
def test_a_manifest_laid_out_differently_is_refused(folder, text):
    path = folder / "manifest.json"
    text = json.dumps(json.loads(path.read_text(encoding="utf-8"))) if text is None else text
    path.write_text(text, encoding="utf-8")
    assert "digest" in _refuse(folder)
