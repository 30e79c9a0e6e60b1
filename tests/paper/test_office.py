"""Pictures of Office-31 from the archive and from folders, and the windows that are cut out of them."""

import io

import numpy as np
import pytest
from PIL import Image

from momentalign.errors import DamagedFileError, DataNotFoundError
from momentalign.paper.office import CENTRE, CROPS, DOMAINS, View, cut_views, load_features, load_pictures


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
