"""Shapes of printed digits: signed distances to their outlines, from font files.

The letters of the stand-in for SynthDigits, the synthetic source of Ganin & Lempitsky (2015) in Section 6.5. A distance
in place of a picture lets one small table serve every size, stroke weight and outline.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from momentalign.data.pen_digits import ALPHABETS, Stroke
from momentalign.errors import DamagedFileError, DataNotFoundError, InvalidInputError

__all__ = ["CELL", "REACH", "SHIPPED_FONTS", "GlyphBank", "glyph_bank"]

Values = NDArray[np.float32]
Points = NDArray[np.float64]
Complex = NDArray[np.complex128]

CELL = 48
REACH = 0.8
# Half the width of the strokes drawn with a pen, in heights of a digit.
PENS = (0.04, 0.065, 0.09)
# Only files that every matplotlib ships: the same seed gives the same images on every machine.
SHIPPED_FONTS = (
    "DejaVuSans.ttf",
    "DejaVuSans-Bold.ttf",
    "DejaVuSans-BoldOblique.ttf",
    "DejaVuSans-Oblique.ttf",
    "DejaVuSerif.ttf",
    "DejaVuSerif-Bold.ttf",
    "DejaVuSerif-Italic.ttf",
    "STIXGeneral.ttf",
    "STIXGeneralBol.ttf",
    "STIXGeneralBolIta.ttf",
    "STIXGeneralItalic.ttf",
    "cmb10.ttf",
    "cmr10.ttf",
    "cmss10.ttf",
    "cmti10.ttf",
    "cmtt10.ttf",
)


class GlyphBank(NamedTuple):
    """Signed distances and widths of the ten digits of each font, in heights of the digit.

    ``distances`` has shape (fonts, 10, CELL, CELL), is negative inside a digit, and its cells span -REACH to REACH
    about the middle of the digit, downwards and to the right; ``widths`` has shape (fonts, 10).
    """

    distances: Values
    widths: Values


def glyph_bank(fonts: Sequence[str | Path] = ()) -> GlyphBank:
    r"""Measure the ten digits of each font, every digit scaled to height one.

    A cell holds :math:`d(p) = \pm \min_{q \in \partial G} \lVert p - q \rVert`, the distance of its points to the
    outline :math:`\partial G` of the digit, with the minus inside, where the outline winds around the point. Outlines
    are taken from the files without hinting, so they depend on no version of a renderer.

    Parameters
    ----------
    fonts
        Font files (TrueType or OpenType) to add to those that matplotlib ships and to the digits drawn with a pen.

    Examples
    --------
    >>> bank = glyph_bank()
    >>> bank.distances.shape, bool(bank.distances[0, 0, CELL // 2, CELL // 2] > 0)  # the hole of a zero
    ((22, 10, 48, 48), True)
    """
    shipped = _shipped()
    more = [_measure(str(font)) for font in fonts]
    parts = [*_pen_fonts(), *map(_measure, shipped), *more]
    return GlyphBank(*(np.stack(part) for part in zip(*parts, strict=True)))


def _shipped() -> tuple[str, ...]:
    try:
        from matplotlib import get_data_path
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("Digits are drawn from matplotlib's fonts: pip install momentalign[deep]") from error
    folder = Path(get_data_path()) / "fonts" / "ttf"
    return tuple(str(folder / name) for name in SHIPPED_FONTS)


@cache
def _measure(font: str) -> GlyphBank:
    """The bank of one font, without the axis of fonts."""
    return _stack([_printed(outline) for outline in _outlines(font)])


@cache
def _pen_fonts() -> list[GlyphBank]:
    return [_stack([_drawn(strokes, pen) for strokes in alphabet]) for alphabet in ALPHABETS for pen in PENS]


def _stack(shapes: list[tuple[Points, float]]) -> GlyphBank:
    distances, widths = zip(*shapes, strict=True)
    return GlyphBank(np.array(distances, np.float32), np.array(widths, np.float32))


def _outlines(font: str) -> list[list[Points]]:
    """Closed polygons of each digit, upwards positive, in the units of the font."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.ft2font import FT2Font
    from matplotlib.textpath import TextPath

    if not Path(font).is_file():
        raise DataNotFoundError(f"The font {font} is not there; give the path of a TrueType or OpenType file in fonts.")
    try:
        known = FT2Font(font).get_charmap()
    except RuntimeError as error:
        raise DamagedFileError(f"{font} is not a font that FreeType reads ({error}); take it out of fonts.") from error
    if missing := [digit for digit in "0123456789" if ord(digit) not in known]:
        raise InvalidInputError(f"fonts has {font}, which lacks the digits {''.join(missing)}; take it out.")
    paths = [TextPath((0, 0), digit, size=100, prop=FontProperties(fname=font)) for digit in "0123456789"]
    return [[np.asarray(polygon, float) for polygon in path.to_polygons()] for path in paths]


def _printed(outline: list[Points]) -> tuple[Points, float]:
    """Distances to an outline and its width, scaled to height one and upside down as rows of an image are."""
    points = np.concatenate(outline)
    low, high = points.min(axis=0), points.max(axis=0)
    height = high[1] - low[1]
    polygons = [(polygon - (low + high) / 2) / height * [1, -1] for polygon in outline]
    offset, along = _segments([np.vstack([polygon, polygon[:1]]) for polygon in polygons])
    distance = np.where(_winding(offset, along) == 0, 1, -1) * _distance(offset, along)
    return distance.reshape(CELL, CELL), (high[0] - low[0]) / height


def _drawn(strokes: list[Stroke], pen: float) -> tuple[Points, float]:
    """Distances to strokes of a pen, and their width; the ink reaches as far as a printed digit does."""
    thin = [stroke * (1 - 2 * pen) for stroke in strokes]
    offset, along = _segments(thin)
    return _distance(offset, along).reshape(CELL, CELL) - pen, 2 * (np.abs(np.concatenate(thin)[:, 0]).max() + pen)


def _segments(lines: list[Points]) -> tuple[Complex, Complex]:
    """The points of a cell seen from the start of each segment, and the segments, as complex numbers x + iy."""
    corners = [line[:, 0] + 1j * line[:, 1] for line in lines]
    centres = REACH * ((2 * np.arange(CELL) + 1) / CELL - 1)
    points = (centres + 1j * centres[:, None]).ravel()
    start = np.concatenate([corner[:-1] for corner in corners])
    return points - start[:, None], np.concatenate([np.diff(corner) for corner in corners])[:, None]


def _distance(offset: Complex, along: Complex) -> Points:
    """Distance to the nearest of the segments that go ``along`` from where ``offset`` starts."""
    length = np.maximum(np.abs(along) ** 2, np.finfo(float).tiny)
    share = np.clip((offset * along.conj()).real / length, 0, 1)
    return np.asarray(np.abs(offset - share * along).min(axis=0))


def _winding(offset: Complex, along: Complex) -> NDArray[np.int64]:
    """How often the outline goes around each point: crossings of the ray to the right, counted with their sign."""
    side = (offset * along.conj()).imag
    starts_below, ends_below = offset.imag >= 0, offset.imag >= along.imag
    upward, downward = starts_below & ~ends_below & (side > 0), ~starts_below & ends_below & (side < 0)
    return np.asarray(upward.sum(axis=0) - downward.sum(axis=0))
