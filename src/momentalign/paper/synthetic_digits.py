"""Digits drawn from fonts and by pen: a stand-in for SynthDigits (Ganin & Lempitsky 2015), a source of Section 6.5.

The target it is trained for is SVHN: one digit in the middle, its neighbours at the sides, on walls and plates of any
colour. Section 6.1 names varied text, positioning, orientation, background, stroke colours and blur; how much they vary
was set so that a plain network reads about as many house numbers as in Table 5.

Shapes are kept as signed distances to their outlines, so that one small table serves every size and stroke weight.
Lengths are in heights of a digit unless said otherwise, rows downwards as in an image.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from joblib import Parallel, delayed
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from momentalign.errors import MissingExtraError
from momentalign.paper.digits_data import SIDE, Digits

__all__ = ["BLOCK", "SIDE", "GlyphBank", "glyph_bank", "make_synth_digits"]

BLOCK = 250  # images that are drawn together, apart from the others
# The scene: standard deviations of position (half sides of the image), of the logarithm of width over height, and of
# the angle in degrees; the range of heights; how often a digit has a neighbour on each side; the blur in pixels; and
# the least difference of ink and ground in some colour.
POSITION, ASPECT, ANGLE = 0.05, 0.1, 4.0
HEIGHT = (0.62, 0.92)
NEIGHBOUR = 0.4
BLUR, CONTRAST = (0.2, 0.8), 0.3
FAR = 9.0  # beyond every pixel

# Cells of a shape on each side, how far they reach from its middle, and half the width of the pens' strokes.
CELL, REACH = 48, 0.8
PENS = (0.04, 0.065, 0.09)
# Only files that every matplotlib ships: the same seed gives the same images on every machine.
FONTS = (
    *("DejaVuSans.ttf", "DejaVuSans-Bold.ttf", "DejaVuSans-BoldOblique.ttf", "DejaVuSans-Oblique.ttf"),
    *("DejaVuSerif.ttf", "DejaVuSerif-Bold.ttf", "DejaVuSerif-Italic.ttf"),
    *("STIXGeneral.ttf", "STIXGeneralBol.ttf", "STIXGeneralBolIta.ttf", "STIXGeneralItalic.ttf"),
    *("cmb10.ttf", "cmr10.ttf", "cmss10.ttf", "cmti10.ttf", "cmtt10.ttf"),
)

Points: TypeAlias = NDArray[np.float64]
Complex: TypeAlias = NDArray[np.complex128]


def make_synth_digits(size: int = 500_000, *, seed: int = 0, n_jobs: int = 1) -> Digits:
    """Draw ``size`` images of 32 x 32 pixels, each labelled with the digit in its middle.

    Parameters
    ----------
    size
        How many images. A smaller set is the beginning of a larger one.
    seed
        The same seed gives the same labels everywhere and the same images up to rounding, a step of one in 255.
    n_jobs
        How many blocks are drawn at the same time, in threads.

    Examples
    --------
    >>> digits = make_synth_digits(100, seed=1)
    >>> digits.images.shape, digits.images.dtype, digits.labels.shape
    ((100, 3, 32, 32), dtype('uint8'), (100,))
    """
    bank = glyph_bank()  # measured once, before threads ask for it
    images, labels = np.empty((size, 3, SIDE, SIDE), np.uint8), np.empty(size, np.int64)

    def fill(block: int) -> None:
        own = slice(block * BLOCK, min((block + 1) * BLOCK, size))
        drawn, digits = _photograph(_Draws(np.random.default_rng([seed, block]), BLOCK), bank)
        images[own] = (drawn * 255).round().to(torch.uint8).numpy()[: own.stop - own.start]
        labels[own] = digits.numpy()[: own.stop - own.start]

    Parallel(n_jobs=n_jobs, prefer="threads", require="sharedmem")(
        delayed(fill)(block) for block in range(-(-size // BLOCK))
    )
    return Digits(images, labels)


@dataclass(frozen=True)
class _Draws:
    """Random values for ``count`` images."""

    random: np.random.Generator
    count: int

    def uniform(self, low: float, high: float, *shape: int) -> Tensor:
        """Values between two bounds, shape (count, *shape)."""
        return torch.from_numpy(self.random.random((self.count, *shape), np.float32)) * (high - low) + low

    def normal(self, standard_deviation: float, *shape: int) -> Tensor:
        """Gaussian values about zero."""
        return torch.from_numpy(self.random.standard_normal((self.count, *shape), np.float32)) * standard_deviation

    def bernoulli(self, probability: float, *shape: int) -> Tensor:
        """True with a probability."""
        return self.uniform(0, 1, *shape) < probability

    def integers(self, stop: int, *shape: int) -> Tensor:
        """Integers from 0 to ``stop - 1``."""
        return torch.from_numpy(self.random.integers(stop, size=(self.count, *shape)))


def _photograph(draws: _Draws, bank: GlyphBank) -> tuple[Tensor, Tensor]:
    """Pictures (N, 3, 32, 32) with values from 0 to 1, and the digit in the middle of each."""
    digits = draws.integers(10, 3)
    to_outline, pixel = _set_line(draws, bank, digits)
    ground = draws.uniform(0, 1, 3, 1, 1)
    # What is drawn and not used stood for a slope of the ground, outlines of digits and noise, which the chosen scene
    # does not have; the images of a seed stay the same.
    draws.normal(1.0, 3, 2, 1, 1), draws.bernoulli(0, 1, 1, 1, 1)
    ink = draws.uniform(0, 1, 3, 1, 1)
    far = (ink - ground).abs().amax(dim=1, keepdim=True) > CONTRAST
    ink = torch.where(far, ink, 1 - ground.round())  # a colour that can be told from the ground
    distance = to_outline - draws.uniform(-0.012, 0.035, 1, 1, 1)
    draws.uniform(0, 1, 1, 1, 1), draws.bernoulli(0, 1, 1, 1), draws.uniform(0, 1, 3, 1, 1)
    covered = (0.5 - distance / pixel[:, None]).clamp(0, 1)  # how much of a pixel lies inside a digit
    image = torch.lerp(ground.expand(-1, -1, SIDE, SIDE), ink, covered).clamp(0, 1)
    draws.normal(1.0, 1, SIDE, SIDE)
    return _blur(image, draws.uniform(*BLUR, 1)[:, 0]).clamp(0, 1), digits[:, 1]


def _set_line(draws: _Draws, bank: GlyphBank, digits: Tensor) -> tuple[Tensor, Tensor]:
    """Set three digits in one font, of which the outer two are missing at times.

    Return the signed distance of each pixel (N, 1, H, W) to the digit that is nearest, and the side of a pixel.
    """
    font = draws.integers(len(bank.widths), 1, 1)
    # The plane of the text is moved, sized and turned.
    centres = (2 * torch.arange(SIDE) + 1) / SIDE - 1
    across, down = centres - draws.normal(POSITION, 1, 1), centres[:, None] - draws.normal(POSITION, 1, 1)
    height, aspect = draws.uniform(*HEIGHT, 1, 1), torch.exp(draws.normal(ASPECT, 1, 1))
    angle = torch.deg2rad(draws.normal(ANGLE, 1, 1))
    x = (torch.cos(angle) * across + torch.sin(angle) * down) / (2 * height * aspect)
    y = (torch.cos(angle) * down - torch.sin(angle) * across) / (2 * height)
    left, middle, right = torch.from_numpy(bank.widths)[font[:, 0], digits][..., None, None].unbind(1)
    gap, (has_left, has_right) = draws.uniform(0.05, 0.25, 1, 1), draws.bernoulli(NEIGHBOUR, 2, 1, 1).unbind(1)
    edge = middle / 2 + gap / 2
    in_left, in_right = x < -torch.where(has_left, edge, FAR), x > torch.where(has_right, edge, FAR)
    nearest = 1 + in_right.long() - in_left.long()
    x = x + in_left * (middle / 2 + gap + left / 2) - in_right * (middle / 2 + gap + right / 2)
    digit = digits.gather(1, nearest.flatten(1)).view_as(nearest)
    # All shapes as one picture, a row for each font and a column for each digit: one lookup serves every pixel.
    atlas = torch.from_numpy(bank.distances).transpose(1, 2).flatten(2).flatten(0, 1)
    inside = 1 - 1 / CELL  # the centres of a cell's outermost values: beyond, its neighbours would mix in
    column = (x / REACH).clamp(-inside, inside) + 2 * digit + 1
    row = (y / REACH).clamp(-inside, inside) + 2 * font + 1
    points = torch.stack([column / 10 - 1, row / (len(atlas) / CELL) - 1], dim=-1)
    found = functional.grid_sample(atlas[None, None], points.flatten(0, 1)[None], align_corners=False)
    return found.view(-1, 1, SIDE, SIDE), 1 / (SIDE * height)


def _blur(images: Tensor, standard_deviations: Tensor) -> Tensor:
    r"""Blur each image with a Gaussian of its own, whose standard deviation is in pixels.

    Each row becomes a mean of rows with weights :math:`\propto \exp(-(i - j)^2 / 2 \sigma^2)` that sum to one at the
    border too, as one matrix product; columns likewise.
    """
    position = torch.arange(images.shape[2])
    sigma = standard_deviations.clamp(min=0.1)[:, None, None, None]
    exponent = -((position - position[:, None]) ** 2) / (2 * sigma**2)
    # Bounded from below, because products with values next to zero (denormal ones) are slow on CPUs.
    weights = torch.softmax(exponent.clamp(min=-20), dim=-1)
    return weights @ images @ weights.mT


class GlyphBank(NamedTuple):
    """Signed distances and widths of the ten digits of each font, every digit scaled to height one.

    ``distances`` has shape (fonts, 10, CELL, CELL), is negative inside a digit, and its cells span -REACH to REACH
    about the middle of the digit, downwards and to the right; ``widths`` has shape (fonts, 10).
    """

    distances: NDArray[np.float32]
    widths: NDArray[np.float32]


@cache
def glyph_bank() -> GlyphBank:
    r"""Measure the digits drawn with pens and those of the fonts that matplotlib ships.

    A cell holds :math:`d(p) = \pm \min_{q \in \partial G} \lVert p - q \rVert`, the distance of its points to the
    outline :math:`\partial G` of the digit, with the minus inside, where the outline winds around the point. Outlines
    are taken from the files without hinting, so they depend on no version of a renderer.

    Examples
    --------
    >>> bank = glyph_bank()
    >>> bank.distances.shape, bool(bank.distances[0, 0, CELL // 2, CELL // 2] > 0)  # the hole of a zero
    ((22, 10, 48, 48), True)
    """
    drawn = [[_drawn(strokes, pen) for strokes in alphabet] for alphabet in (_ROUND, _STRAIGHT) for pen in PENS]
    printed = [[_printed(outline) for outline in outlines] for outlines in _outlines_of_fonts()]
    fonts = [*drawn, *printed]
    return GlyphBank(
        np.array([[distances for distances, _ in font] for font in fonts], np.float32),
        np.array([[width for _, width in font] for font in fonts], np.float32),
    )


def _outlines_of_fonts() -> list[list[list[Points]]]:
    """Closed polygons of each digit of each font, upwards positive, in the units of the font."""
    try:
        from matplotlib import get_data_path
        from matplotlib.font_manager import FontProperties
        from matplotlib.textpath import TextPath
    except ModuleNotFoundError as error:
        raise MissingExtraError.of("Digits are drawn from matplotlib's fonts", "deep") from error
    properties = [FontProperties(fname=Path(get_data_path()) / "fonts" / "ttf" / name) for name in FONTS]
    return [
        [
            [np.asarray(polygon, float) for polygon in TextPath((0, 0), digit, size=100, prop=font).to_polygons()]
            for digit in "0123456789"
        ]
        for font in properties
    ]


def _printed(outline: list[Points]) -> tuple[Points, float]:
    """Distances to an outline and its width, scaled to height one and upside down as rows of an image are."""
    points = np.concatenate(outline)
    low, high = points.min(axis=0), points.max(axis=0)
    height = high[1] - low[1]
    polygons = [(polygon - (low + high) / 2) / height * [1, -1] for polygon in outline]
    offset, along = _segments([np.vstack([polygon, polygon[:1]]) for polygon in polygons])
    distance = np.where(_winding(offset, along) == 0, 1, -1) * _distance(offset, along)
    return distance.reshape(CELL, CELL), (high[0] - low[0]) / height


def _drawn(strokes: list[Points], pen: float) -> tuple[Points, float]:
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


# Digits drawn with a pen: the plain shapes of house numbers, which the fonts lack. Most of those put a foot under the
# one and close the four. Each digit is a few strokes in a box of width 0.6 and height 1 about its middle.
def _line(*corners: tuple[float, float]) -> Points:
    return np.array(corners)


def _arc(x: float, y: float, width: float, height: float, start: float = 0, stop: float = 360) -> Points:
    """A part of an ellipse about (x, y); degrees go from the right over the bottom to the left."""
    angles = np.radians(np.linspace(start, stop, 25))
    return np.column_stack([x + width * np.cos(angles), y + height * np.sin(angles)])


def _turned(strokes: list[Points]) -> list[Points]:
    """A six as a nine."""
    return [-stroke for stroke in strokes]


_ROUND_SIX = [_arc(0, 0.19, 0.27, 0.31), np.vstack([_arc(0.02, 0, 0.29, 0.5, 315, 180), _line((-0.27, 0.19))])]
_STRAIGHT_SIX = [_arc(0, 0.2, 0.26, 0.3), _line((0.12, -0.5), (-0.2, 0.02))]
_BOWL = _arc(-0.02, 0.17, 0.28, 0.33, -130, 140)

_ROUND = [
    [_arc(0, 0, 0.28, 0.5)],
    [_line((-0.14, -0.3), (0.06, -0.5), (0.06, 0.5))],
    [np.vstack([_arc(0, -0.23, 0.26, 0.27, 190, 390), _line((-0.27, 0.5), (0.28, 0.5))])],
    [_arc(-0.02, -0.26, 0.24, 0.24, 200, 450), _arc(-0.02, 0.24, 0.28, 0.26, -90, 155)],
    [_line((0.13, 0.5), (0.13, -0.5), (-0.29, 0.2), (0.29, 0.2))],
    [np.vstack([_line((0.24, -0.5), (-0.18, -0.5)), _BOWL])],
    _ROUND_SIX,
    [_line((-0.27, -0.5), (0.27, -0.5), (-0.1, 0.5))],
    [_arc(0, -0.26, 0.23, 0.24), _arc(0, 0.24, 0.27, 0.26)],
    _turned(_ROUND_SIX),
]

_STRAIGHT = [
    [np.vstack([_arc(0, -0.24, 0.23, 0.26, 180, 360), _arc(0, 0.24, 0.23, 0.26, 0, 180), _line((-0.23, -0.24))])],
    [_line((0.0, -0.5), (0.0, 0.5))],
    [np.vstack([_arc(0, -0.25, 0.25, 0.25, 180, 370), _arc(0.1, 0.5, 0.36, 0.45, 270, 180), _line((0.27, 0.5))])],
    [np.vstack([_line((-0.25, -0.5), (0.24, -0.5), (-0.02, -0.12)), _arc(-0.02, 0.19, 0.28, 0.31, -80, 150)])],
    [_line((-0.16, -0.5), (-0.27, 0.16), (0.29, 0.16)), _line((0.12, -0.16), (0.12, 0.5))],
    [np.vstack([_line((0.25, -0.5), (-0.2, -0.5), (-0.22, -0.06)), _arc(-0.02, 0.17, 0.27, 0.33, -110, 150)])],
    _STRAIGHT_SIX,
    [np.vstack([_line((-0.26, -0.5), (0.26, -0.5)), _arc(0.4, 0.5, 0.5, 0.9, 255, 180)])],
    [_arc(0, -0.25, 0.25, 0.25), _arc(0, 0.25, 0.25, 0.25)],
    _turned(_STRAIGHT_SIX),
]
