"""Shapes of digits: true distances, the right digits, and fonts that cannot serve are named."""

import sys
from pathlib import Path

import matplotlib
import numpy as np
import pytest

from momentalign.errors import DamagedFileError, DataNotFoundError, InvalidInputError
from momentalign.paper import synthetic_digits as glyphs
from momentalign.paper.synthetic_digits import ALPHABETS, CELL, PENS, REACH, SHIPPED_FONTS, glyph_bank

FONTS = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
SQUARE = np.array([[0.0, 0.0], [10.0, 0.0], [10.0, 20.0], [0.0, 20.0]])


def places():
    centres = REACH * ((2 * np.arange(CELL) + 1) / CELL - 1)
    return np.meshgrid(centres, centres)


def holes(cell):
    """Pieces of the ground that a digit encloses."""
    from scipy.ndimage import label

    return label(cell > 0)[1] - 1


def test_distances_to_a_box_are_exact_and_negative_inside():
    distance, width = glyphs._printed([SQUARE])
    x, y = places()
    beyond_x, beyond_y = np.abs(x) - 0.25, np.abs(y) - 0.5
    outside = np.hypot(np.maximum(beyond_x, 0), np.maximum(beyond_y, 0))
    np.testing.assert_allclose(distance, outside + np.minimum(np.maximum(beyond_x, beyond_y), 0), atol=1e-12)
    assert width == 0.5


@pytest.mark.parametrize("turn", [1, -1])
def test_a_contour_the_other_way_round_is_a_hole_whatever_the_first_one_does(turn):
    hole = SQUARE[::-1] / 2 + [2.5, 5.0]
    distance, _ = glyphs._printed([SQUARE[::turn], hole[::turn]])
    assert distance[CELL // 2, CELL // 2] > 0
    assert holes(distance) == 1


def test_digits_stand_upright_as_rows_of_an_image():
    corner = np.array([[0.0, 0.0], [0.0, 10.0], [10.0, 10.0]])
    x, y = places()
    distance, _ = glyphs._printed([corner])
    inside = distance < 0
    assert y[inside].mean() < -0.1
    assert x[inside].mean() < -0.1


def test_strokes_of_a_pen_have_its_width_and_reach_height_one():
    distance, width = glyphs._drawn([np.array([[0.0, -0.5], [0.0, 0.5]])], 0.1)
    x, y = places()
    np.testing.assert_allclose(distance, np.hypot(x, np.maximum(np.abs(y) - 0.4, 0)) - 0.1, atol=1e-12)
    assert width == pytest.approx(0.2)


def test_every_digit_fills_its_height_and_its_width():
    bank = glyph_bank()
    assert len(bank.widths) == len(SHIPPED_FONTS) + len(PENS) * len(ALPHABETS)
    assert bank.distances.dtype == bank.widths.dtype == np.float32
    x, y = places()
    edge = 2 * REACH / CELL + 0.01
    for cell, width in zip(bank.distances.reshape(-1, CELL, CELL), bank.widths.ravel(), strict=True):
        assert np.abs(y[cell < 0]).max() == pytest.approx(0.5, abs=edge)
        assert np.abs(x[cell < 0]).max() == pytest.approx(width / 2, abs=edge)


def test_digits_have_the_holes_they_should_have():
    found = np.array([[holes(cell) for cell in font] for font in glyph_bank().distances])
    # Not in every font: there are open fours, and hairlines fall between the points of a cell.
    assert ((found == [1, 0, 0, 0, 1, 0, 1, 0, 2, 1]).mean(axis=0) > 0.7).all()


def test_more_fonts_come_after_those_shipped():
    bank, more = glyph_bank(), glyph_bank([FONTS / "DejaVuSansMono.ttf"])
    np.testing.assert_array_equal(more.distances[:-1], bank.distances)
    assert more.widths.shape == (len(bank.widths) + 1, 10)


def test_a_font_that_is_not_there_is_named(tmp_path):
    with pytest.raises(DataNotFoundError, match=r"none\.ttf is not there"):
        glyph_bank([tmp_path / "none.ttf"])


def test_a_file_that_is_no_font_is_named(tmp_path):
    (tmp_path / "text.ttf").write_text("no font")
    with pytest.raises(DamagedFileError, match=r"text\.ttf is not a font"):
        glyph_bank([tmp_path / "text.ttf"])


def test_a_font_without_digits_is_named():
    with pytest.raises(InvalidInputError, match=r"STIXSizFiveSymReg\.ttf, which lacks the digits 0123456789"):
        glyph_bank([FONTS / "STIXSizFiveSymReg.ttf"])


def test_without_matplotlib_the_remedy_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install momentalign\[deep\]"):
        glyph_bank()
