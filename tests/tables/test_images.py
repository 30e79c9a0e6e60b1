import numpy as np
import pytest
from PIL import Image

from momentalign.tables.formats import list_images, read_images
from momentalign.tables.read import read_chunks, read_table

COLOURS = {"blue": (0, 0, 255), "red": (255, 0, 0)}


@pytest.fixture
def folder(tmp_path):
    for name, colour in COLOURS.items():
        (tmp_path / name).mkdir()
        for number, suffix in enumerate(["png", "bmp", "gif"]):
            Image.new("RGB", (20 + number, 10), colour).save(tmp_path / name / f"{number}.{suffix}")
    (tmp_path / "red" / "notes.txt").write_text("no image")
    return tmp_path


def test_the_subfolder_is_the_label_and_the_path_the_id(folder):
    table = read_table(folder, label="label", id_column="file")
    assert table.labels.tolist() == ["blue"] * 3 + ["red"] * 3
    assert table.ids.tolist()[:2] == ["blue/0.png", "blue/1.bmp"]
    assert table.rows.shape == (6, 3 * 32 * 32)
    assert table.rows.dtype == np.float32
    expected = np.repeat(np.array([COLOURS[name] for name in table.labels]) / 255, 32 * 32, axis=1)
    np.testing.assert_array_equal(table.rows, expected.astype(np.float32))


def test_chunks_are_the_whole(folder):
    whole = read_table(folder, label="label")
    chunks = list(read_chunks(folder, rows=4, label="label", id_column="file"))
    assert [len(chunk) for chunk in chunks] == [4, 2]
    assert [chunk.start for chunk in chunks] == [0, 4]
    np.testing.assert_array_equal(np.vstack([chunk.rows for chunk in chunks]), whole.rows)
    assert np.concatenate([chunk.labels for chunk in chunks]).tolist() == whole.labels.tolist()


def test_a_folder_without_classes_has_no_labels(folder):
    assert read_table(folder / "red").labels is None


def test_pixels_keep_their_places(folder):
    image = Image.new("RGB", (32, 32))
    image.putpixel((1, 0), (10, 20, 30))
    image.save(folder / "red" / "point.png")
    pixels = read_images([folder / "red" / "point.png"])
    assert pixels.shape == (1, 3, 32, 32)
    assert pixels[0, :, 0, 1].tolist() == [10, 20, 30]
    assert pixels.sum() == 60
    assert len(list_images(folder)) == 7
