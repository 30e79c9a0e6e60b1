"""Folders of numbers: what they hold, and what is said of those that are not whole.

Attacks stand in ``tests/attacks``, interrupted writers in ``tests/promises/test_model_files.py``.
"""

import hashlib
import json
import os

import numpy as np
import pytest

from momentalign import files as checkpoints
from momentalign.errors import DamagedFileError, DataNotFoundError, InvalidInputError
from momentalign.files import read_folder, write_folder

ARRAYS = {"weight": np.arange(6.0).reshape(2, 3), "steps": np.arange(3)}


@pytest.fixture
def folder(tmp_path):
    write_folder(tmp_path / "deep" / "model", ARRAYS, {"name": "ü", "epochs": 3})
    return tmp_path / "deep" / "model"


@pytest.fixture
def weights(folder):
    (path,) = folder.glob("weights-*")
    return path


def sealed(body):
    """The text of a manifest with its digest, as the format says."""

    def text(values):
        return json.dumps(values, sort_keys=True, indent=1, ensure_ascii=False).encode()

    return text({**body, "digest": hashlib.sha256(text(body)).hexdigest()})


@pytest.fixture
def forge(folder, weights):
    """Change the manifest, or the weights too, and seal it again."""

    def change(packed=None, **changes):
        body = json.loads((folder / "manifest.json").read_bytes())
        del body["digest"]
        if packed is not None:
            weights.write_bytes(packed)
            changes = {"bytes": len(packed), "files": {weights.name: hashlib.sha256(packed).hexdigest()}, **changes}
        (folder / "manifest.json").write_bytes(sealed({**body, **changes}))

    return change


def test_a_folder_holds_the_weights_and_a_manifest_that_names_them(folder, weights):
    packed = weights.read_bytes()
    digest = hashlib.sha256(packed).hexdigest()
    assert weights.name == f"weights-{digest[:16]}.safetensors"
    assert (folder / "manifest.json").read_bytes() == sealed(
        {
            "format": "momentalign model",
            "format_version": 1,
            "files": {weights.name: digest},
            "bytes": len(packed),
            "description": {"name": "ü", "epochs": 3},
        }
    )
    arrays, description = read_folder(str(folder))
    assert description == {"name": "ü", "epochs": 3}
    assert {name: array.tolist() for name, array in arrays.items()} == {
        name: array.tolist() for name, array in ARRAYS.items()
    }


def test_what_killed_writers_left_of_other_weights_is_removed(folder):
    (folder / ".weights-0123456789abcdef.safetensors.momentalign-0123456789abcdef").write_bytes(b"half a file")
    (folder / ".notes.abcd_123").write_bytes(b"mine")
    write_folder(folder, ARRAYS, {})
    assert sorted(path.name for path in folder.iterdir() if path.name.startswith(".")) == [".notes.abcd_123"]


def test_a_description_that_is_not_finite_is_not_written(tmp_path):
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_folder(tmp_path / "model", ARRAYS, {"loss": np.nan})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("error", "words"),
    [(OSError(28, "No space left on device"), "No space left on device"), (OSError("a torn tape"), "a torn tape")],
)
def test_what_the_system_refuses_is_said_in_a_sentence(tmp_path, monkeypatch, error, words):
    def refuse(handle):
        raise error

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(InvalidInputError) as caught:
        write_folder(tmp_path, ARRAYS, {})
    assert str(caught.value) == f"the model cannot be written to {tmp_path} ({words}); give a folder that can be."


def test_a_folder_without_a_manifest_holds_no_model(tmp_path):
    with pytest.raises(DataNotFoundError) as caught:
        read_folder(tmp_path)
    assert str(caught.value) == f"{tmp_path} holds no manifest.json; give the folder that save() wrote."


def refusal(folder):
    with pytest.raises(DamagedFileError) as caught:
        read_folder(folder)
    return str(caught.value)


FOREIGN = "has a manifest that names no or foreign files; save the model again."
MANIFESTS = {
    "another format": ({"format": "model"}, "is not a model of momentalign; give the folder that save() wrote."),
    "no version": ({"format_version": 0}, "is not a model of momentalign; give the folder that save() wrote."),
    "a newer version": (
        {"format_version": 2}, "was written by a newer momentalign (format 2, this one reads 1); upgrade."
    ),
    "no files": ({"files": {}}, FOREIGN),
    "a foreign file": ({"files": {"manifest.json": "0"}}, FOREIGN),
    "no description": ({"description": None}, FOREIGN),
}  # fmt: skip


@pytest.mark.parametrize("kind", MANIFESTS)
def test_manifests_that_are_not_ours(folder, forge, kind):
    changes, sentence = MANIFESTS[kind]
    forge(**changes)
    assert refusal(folder) == f"{folder} {sentence}"


def test_manifests_that_are_damaged(folder):
    manifest = folder / "manifest.json"
    content = manifest.read_bytes()
    manifest.write_bytes(content.replace(b'"digest"', b'"Digest"'))
    assert refusal(folder) == f"{manifest} is not a manifest of momentalign (it has no digest); save the model again."
    manifest.write_bytes(content.replace(b'"epochs": 3', b'"epochs": 4'))
    assert refusal(folder) == f"{manifest} is damaged: its content does not match its digest; save the model again."
    body = json.loads(content)
    del body["digest"]
    escaped = sealed(body).replace("ü".encode(), b"\\u00fc")
    line = checkpoints.DIGEST_LINE.search(escaped)
    digest = hashlib.sha256(escaped.replace(line[0], b"")).hexdigest().encode()
    manifest.write_bytes(escaped.replace(line[1], digest))
    assert refusal(folder) == (
        f"{manifest} is not a manifest of momentalign (it is laid out in another way); save the model again."
    )


def test_a_manifest_may_be_as_large_as_the_largest(folder, monkeypatch):
    manifest = folder / "manifest.json"
    monkeypatch.setattr(checkpoints, "LARGEST_MANIFEST", manifest.stat().st_size)
    assert read_folder(folder)[1]["epochs"] == 3
    monkeypatch.setattr(checkpoints, "LARGEST_MANIFEST", manifest.stat().st_size - 1)
    assert refusal(folder) == f"{manifest} is larger than any manifest; save the model again."


def test_weights_that_are_damaged(folder, weights, forge):
    content = weights.read_bytes()
    weights.write_bytes(content[:-1] + b"\x01")
    assert refusal(folder) == f"{weights} is damaged: its digest is not the one in the manifest; save it again."
    weights.write_bytes(content[:-1])
    assert refusal(folder) == (
        f"{weights} is damaged: it has {len(content) - 1} bytes, not {len(content)}; save it again."
    )
    forge(b"no tensors")
    assert refusal(folder).startswith(f"{weights} is not a safetensors file (its header should take ")
    assert refusal(folder).endswith("); save it again.")
    weights.unlink()
    assert refusal(folder) == f"{weights} is missing or not a plain file; save the model again."
    weights.mkdir()
    assert refusal(folder) == f"{weights} is missing or not a plain file; save the model again."


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weights_that_are_not_finite(tmp_path, value):
    write_folder(tmp_path, {"fine": np.zeros(2), "weight": np.array([0.0, value])}, {})
    (weights,) = tmp_path.glob("weights-*")
    assert refusal(tmp_path) == f"{weights} holds values that are not finite in 'weight'; train it again."


def test_a_file_that_becomes_shorter_while_it_is_read(folder, weights, monkeypatch):
    open_handle = os.fdopen

    def shortened(handle, *arguments, **options):
        if os.path.samestat(os.fstat(handle), weights.stat()):
            os.truncate(weights, 10)
        return open_handle(handle, *arguments, **options)

    monkeypatch.setattr(os, "fdopen", shortened)
    # It is read twice, as another process may have been saving.
    assert refusal(folder).startswith(f"{weights} is damaged: it has 10 bytes, not ")
