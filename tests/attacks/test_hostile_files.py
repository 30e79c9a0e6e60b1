"""Damaged, forged and foreign model folders: each is refused, none is executed, none loads silently."""

import hashlib
import io
import json
import os
import pickle
import shutil
import subprocess
import sys
import tracemalloc

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
    def change(body):
        ((_, digest),) = body["files"].items()
        body["files"] = {name: digest}

    return change


def _set(*keys_and_value):
    *keys, last, value = keys_and_value

    def change(body):
        for key in keys:
            body = body[key]
        body[last] = value

    return change


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
    "classes as objects": (_set("description", "classes", {"dtype": "|O", "values": [0, 1]}), "does not describe"),
    "classes as void": (_set("description", "classes", {"dtype": "V8", "values": [0, 1]}), "does not describe"),
    "classes that do not convert": (_set("description", "classes", "values", ["a", "b"]), "does not describe"),
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


@pytest.mark.parametrize(
    "text",
    [
        '{"digest": "0", "digest": "1"}',
        '{"digest": "0", "x": NaN}',
        '{"digest": "0", "x": Infinity}',
        '{"digest": "0", "x": -Infinity}',
        '{"digest": "0", "x": 1e999}',
        '{"digest": null}',
        "[]",
        "null",
        "7",
        '"text"',
        "",
        "\ufeff{}",
        '{"digest": "0"} trailing',
        "[" * 100_000,
        '{"a":' * 100_000,
        "1" * 5000,
        '{"digest": "\\ud800"}',
        '{"digest": "0", "\\ud800": 1}',
    ],
    ids=lambda text: repr(text[:20]),
)
def test_text_that_is_no_manifest_is_refused(folder, text):
    (folder / "manifest.json").write_text(text, encoding="utf-8")
    _refuse(folder)


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"\x80", os.urandom(200), b"\0" * 64])
def test_bytes_that_are_no_text_are_refused(folder, content):
    (folder / "manifest.json").write_bytes(content)
    _refuse(folder)


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


def test_a_manifest_laid_out_differently_is_refused(folder):
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8"))), encoding="utf-8")
    assert "digest" in _refuse(folder)


class _Bomb:
    def __reduce__(self):
        return (os.mkdir, ("exploded",))


@pytest.mark.parametrize("member", ["manifest", "weights", "weights with the right digest"])
def test_pickles_under_our_names_do_not_explode(folder, weights, forge, tmp_path, monkeypatch, member):
    monkeypatch.chdir(tmp_path)
    bomb = io.BytesIO()
    pickle.dump(_Bomb(), bomb)
    (folder / "manifest.json" if member == "manifest" else weights).write_bytes(bomb.getvalue())
    if member.endswith("digest"):
        forge(lambda body: body["files"].update({weights.name: hashlib.sha256(bomb.getvalue()).hexdigest()}))
        forge(_set("bytes", len(bomb.getvalue())))
        assert "not a safetensors file" in _refuse(folder)
    _refuse(folder)
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize("member", ["manifest", "weights"])
@pytest.mark.parametrize("kind", ["link", "link to nothing", "folder", "pipe"])
def test_members_are_plain_files(folder, weights, tmp_path, member, kind):
    path = folder / "manifest.json" if member == "manifest" else weights
    real = tmp_path / "elsewhere"
    path.rename(real)
    if kind.startswith("link"):
        path.symlink_to(real if kind == "link" else tmp_path / "nowhere")
    elif kind == "folder":
        path.mkdir()
    else:
        os.mkfifo(path)  # reading it would wait for ever
    _refuse(folder)


def test_a_huge_manifest_is_refused_before_it_is_read(folder, monkeypatch):
    path = folder / "manifest.json"
    with path.open("r+b") as file:
        file.truncate(checkpoints.LARGEST_MANIFEST + 1)  # sparse: takes no room on the disk
    monkeypatch.setattr(os, "fdopen", lambda *_, **__: pytest.fail("the manifest was read"))
    assert "larger" in _refuse(folder)


def test_weights_of_another_size_are_refused_before_they_are_read(folder, weights):
    os.truncate(weights, 2**31)  # sparse: takes no room on the disk
    tracemalloc.start()
    try:
        assert "it has 2147483648 bytes, not" in _refuse(folder)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


AUDIT = """
import os, sys
import momentalign as ma, numpy as np
from momentalign.estimators import persistence
import safetensors.numpy
folder = sys.argv[1]
FAMILIES = "subprocess socket ctypes pickle shutil marshal exec compile import".split()
CALLS = ["os." + name for name in "system exec posix_spawn fork remove rename mkdir chmod rmdir symlink link".split()]
ma.load(sys.argv[2])  # everything that is imported on the way is imported now
seen = []
def hook(event, arguments):
    if event.split(".")[0] in FAMILIES or event in CALLS:
        seen.append((event, repr(arguments)[:200]))
    elif event == "open" and (set(str(arguments[1] or "r")) & set("wax+") or arguments[2] & (os.O_WRONLY | os.O_RDWR)):
        seen.append((event, repr(arguments)[:200]))
    elif event == "open" and not isinstance(arguments[0], int) and not str(arguments[0]).startswith(folder):
        seen.append((event, repr(arguments)[:200]))
sys.addaudithook(hook)
try:
    ma.load(folder)
    outcome = "loaded"
except ma.errors.DamagedFileError:
    outcome = "refused"
found = list(seen)
print(outcome, found)
"""


@pytest.mark.parametrize("damaged", [False, True])
def test_loading_runs_nothing_writes_nothing_and_opens_nothing_else(folder, forge, tmp_path, damaged):
    shutil.copytree(folder, tmp_path / "sound")
    if damaged:
        forge(_set("description", "class", "os.system"))
    done = subprocess.run(
        [sys.executable, "-c", AUDIT, str(folder), str(tmp_path / "sound")], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == ("refused []" if damaged else "loaded []")
