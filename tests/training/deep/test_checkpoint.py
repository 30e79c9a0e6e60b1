import json
import math
from collections import OrderedDict

import numpy as np
import pytest
import torch

from momentalign.errors import DamagedFileError, DataNotFoundError, InvalidTypeError
from momentalign.files import write_folder
from momentalign.training.deep.checkpoint import SafetensorsIO, pack, unpack

CHECKPOINT = OrderedDict(
    epoch=3,
    name="run",
    nothing=None,
    flag=True,
    best=math.inf,
    worst=-math.inf,
    missing=math.nan,
    numpy=np.float32(0.5),
    count=np.int64(7),
    betas=(0.9, 0.999),
    nested={0: {"step": torch.tensor(3.0), "list": [1, (2, None)]}, "1": {}},
    half=torch.tensor([[1.5, -2.25]], dtype=torch.bfloat16),
    infinite=torch.tensor(math.inf),
    whole=torch.arange(3, dtype=torch.uint8),
    yes=torch.tensor([True, False]),
    empty=torch.zeros(0, 3),
    turned=torch.arange(6.0).reshape(2, 3).T,
    weight=torch.nn.Parameter(torch.ones(2)),
    several=[torch.arange(2), (torch.arange(3),)],
)


def assert_same(found, expected):
    if isinstance(expected, torch.Tensor):
        assert found.dtype == expected.dtype
        torch.testing.assert_close(found, expected.detach(), rtol=0, atol=0)
    elif isinstance(expected, dict):
        assert list(found) == list(expected)
        for key in expected:
            assert_same(found[key], expected[key])
    elif isinstance(expected, (list, tuple)):
        assert type(found) is type(expected)
        assert len(found) == len(expected)
        for pair in zip(found, expected, strict=True):
            assert_same(*pair)
    else:
        assert found == expected or (math.isnan(found) and math.isnan(expected))
        assert type(found) in (int, float, str, bool, type(None))


def test_nested_data_come_back_as_they_were(tmp_path):
    plugin = SafetensorsIO()
    plugin.save_checkpoint(CHECKPOINT, tmp_path / "last")
    assert_same(plugin.load_checkpoint(tmp_path / "last", map_location="cpu"), dict(CHECKPOINT))
    arrays, content = pack(CHECKPOINT)
    assert_same(unpack(json.loads(json.dumps(content)), arrays), dict(CHECKPOINT))


def test_plain_values_stand_in_the_manifest_as_they_are():
    plain = {"step": 3, "rate": 0.5, "names": ["a", None, True]}
    assert pack(plain) == ({}, {"items": [["step", 3], ["rate", 0.5], ["names", ["a", None, True]]]})


def test_a_new_checkpoint_replaces_the_old_one_and_what_was_left_of_a_killed_one(tmp_path):
    plugin, folder = SafetensorsIO(), tmp_path / "last"
    plugin.save_checkpoint({"weights": torch.zeros(3)}, folder)
    (folder / ".weights-0.safetensors.momentalign-0123456789abcdef").write_bytes(b"half a file")
    plugin.save_checkpoint({"weights": torch.ones(3)}, folder)
    assert len(list(folder.iterdir())) == 2
    assert plugin.load_checkpoint(folder)["weights"].tolist() == [1, 1, 1]
    plugin.remove_checkpoint(folder)
    assert not folder.exists()


@pytest.mark.parametrize(
    ("checkpoint", "place"),
    [
        ({"a": {"b": [1, lambda: 1]}}, r"checkpoint\['a'\]\['b'\]\[1\] is a function"),
        ({"a": np.zeros(2)}, r"checkpoint\['a'\] is a ndarray"),
        ({"a": {frozenset(): 1}}, r"checkpoint\['a'\] is a frozenset"),
    ],
)
def test_what_is_not_plain_data_is_refused_by_its_place_and_nothing_is_written(tmp_path, checkpoint, place):
    remedy = r"; a checkpoint holds numbers, text and tensors only, keep it elsewhere\.$"
    with pytest.raises(InvalidTypeError, match=f"^{place}{remedy}"):
        SafetensorsIO().save_checkpoint(checkpoint, tmp_path / "last")
    assert not (tmp_path / "last").exists()


def test_tensors_that_no_file_holds_are_refused(tmp_path):
    with pytest.raises(InvalidTypeError) as caught:
        SafetensorsIO().save_checkpoint({"a": torch.zeros(2, dtype=torch.complex64)}, tmp_path / "last")
    assert str(caught.value) == (
        "checkpoint['a'] is a tensor of torch.complex64, which a checkpoint cannot hold; convert it."
    )
    assert not (tmp_path / "last").exists()


def test_storage_options_are_refused(tmp_path):
    with pytest.raises(InvalidTypeError) as caught:
        SafetensorsIO().save_checkpoint({}, tmp_path / "last", storage_options={"a": 1})
    assert str(caught.value) == "storage_options has no meaning for folders, got {'a': 1}; leave it out."


@pytest.mark.parametrize(
    ("description", "message"),
    [
        ({"kind": "model"}, "; give the folder that a training run wrote"),
        ({"kind": "training checkpoint"}, r" \(KeyError: 'content'\); start the run anew"),
        ({"kind": "training checkpoint", "content": {"tensor": "9"}}, r" \(KeyError: '9'\); start the run anew"),
        (
            {"kind": "training checkpoint", "content": {"tensor": "0", "dtype": "load", "shape": [1]}},
            r" \(KeyError: 'load'\); start the run anew",
        ),
        ({"kind": "training checkpoint", "content": {"items": [1]}}, r" \(TypeError: .*\); start the run anew"),
        (
            {"kind": "training checkpoint", "content": {"items": [[{"items": []}, 1]]}},
            r" \(TypeError: .*\); start the run anew",
        ),
    ],
)
def test_foreign_folders_are_refused(tmp_path, description, message):
    write_folder(tmp_path, {"0": np.zeros(2)}, description)
    with pytest.raises(DamagedFileError, match=rf"^{tmp_path} is not a training checkpoint{message}\.$"):
        SafetensorsIO().load_checkpoint(tmp_path)


def test_damage_is_seen_before_anything_is_built(tmp_path):
    plugin = SafetensorsIO()
    with pytest.raises(DataNotFoundError):
        plugin.load_checkpoint(tmp_path)
    plugin.save_checkpoint({"weights": torch.zeros(3)}, tmp_path)
    (weights,) = tmp_path.glob("weights-*")
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x01")
    with pytest.raises(DamagedFileError, match="digest"):
        plugin.load_checkpoint(tmp_path)
