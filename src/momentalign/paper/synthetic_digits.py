"""Shapes of printed digits: signed distances to their outlines, from font files.

The letters of the stand-in for SynthDigits, the synthetic source of Ganin & Lempitsky (2015) in Section 6.5. A distance
in place of a picture lets one small table serve every size, stroke weight and outline.

Digits drawn with a pen: the plain shapes of house numbers, which the fonts at hand lack.

Most of those fonts put a foot under the one and close the four. Each digit here is a few strokes in a box of width 0.6
and height 1 about its middle, rows downwards as in an image; two alphabets differ where house numbers do.

Pictures of printed numbers put together from shapes of digits: text, ground, ink and blur.

The steps behind the stand-in for SynthDigits: Section 6.1 names its varied text, positioning, orientation, background,
stroke colours and blur. How much they vary was set so that a plain network reads about as many house numbers as in
Table 5. Lengths are in heights of a digit unless said otherwise.

Digits drawn from fonts, a stand-in for SynthDigits (Ganin & Lempitsky 2015), the source of Section 6.5.

The target it is trained for is SVHN: one digit in the middle, its neighbours at the sides, on walls and plates of any
colour. Blocks of 250 images are drawn apart, so a set of 500,000 is made in parallel or on the fly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from joblib import Parallel, delayed
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from momentalign.errors import DamagedFileError, DataNotFoundError, InvalidInputError
from momentalign.paper.augmentation import blur
from momentalign.paper.digits_data import Digits

__all__ = [
    "ALPHABETS",
    "BLOCK",
    "CELL",
    "REACH",
    "SHIPPED_FONTS",
    "SIDE",
    "Dice",
    "GlyphBank",
    "Stroke",
    "glyph_bank",
    "make_synth_digits",
    "photograph_digits",
    "synth_block",
    "synth_blocks",
]

Stroke = NDArray[np.float64]


def _line(*corners: tuple[float, float]) -> Stroke:
    return np.array(corners)


def _arc(x: float, y: float, width: float, height: float, start: float = 0, stop: float = 360) -> Stroke:
    """A part of an ellipse about (x, y); degrees go from the right over the bottom to the left."""
    angles = np.radians(np.linspace(start, stop, 25))
    return np.column_stack([x + width * np.cos(angles), y + height * np.sin(angles)])


def _turned(strokes: list[Stroke]) -> list[Stroke]:
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

ALPHABETS = (_ROUND, _STRAIGHT)


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


SIDE = 32
FAR = 9.0  # beyond every pixel
# Deviations of place (half sides of the image), of the logarithm of width over height, and of the angle in degrees.
PLACE, ASPECT, ANGLE = 0.05, 0.1, 4.0
HEIGHT = (0.62, 0.92)
# How often a digit has a neighbour, on each side; how often it has an outline, and the ground a slope.
NEIGHBOUR, OUTLINE, SLOPE = 0.4, 0.0, 0.0
# Blur in pixels, deviation of the noise, and the least difference of ink and ground in some colour.
BLUR, NOISE, CONTRAST = (0.2, 0.8), 0.0, 0.3


@dataclass(frozen=True)
class Dice:
    """Random numbers for ``count`` images: drawn on the CPU, so that every device sees the same ones."""

    random: np.random.Generator
    count: int
    device: torch.device

    def uniform(self, low: float, high: float, *shape: int) -> Tensor:
        """Numbers between two bounds, shape (count, *shape)."""
        return self._tensor(self.random.random((self.count, *shape), np.float32)) * (high - low) + low

    def normal(self, deviation: float, *shape: int) -> Tensor:
        """Gaussian numbers about zero."""
        return self._tensor(self.random.standard_normal((self.count, *shape), np.float32)) * deviation

    def chance(self, probability: float, *shape: int) -> Tensor:
        """True with a probability."""
        return self.uniform(0, 1, *shape) < probability

    def integers(self, stop: int, *shape: int) -> Tensor:
        """Integers from 0 to ``stop - 1``."""
        return self._tensor(self.random.integers(stop, size=(self.count, *shape)))

    def _tensor(self, values: NDArray[np.generic]) -> Tensor:
        return torch.from_numpy(values).to(self.device)


def photograph_digits(dice: Dice, bank: GlyphBank) -> tuple[Tensor, Tensor]:
    """Return pictures (N, 3, 32, 32) with values from 0 to 1, and the digit in the middle of each.

    Examples
    --------
    >>> from momentalign.paper.synthetic_digits import glyph_bank
    >>> dice = Dice(np.random.default_rng(0), 5, torch.device("cpu"))
    >>> images, labels = photograph_digits(dice, glyph_bank())
    >>> images.shape, labels.shape
    (torch.Size([5, 3, 32, 32]), torch.Size([5]))
    """
    digits = dice.integers(10, 3)
    line = _set_line(dice, bank, digits)
    ground = dice.uniform(0, 1, 3, 1, 1)
    image = _print(dice, line, _slope(dice, ground), _ink(dice, ground))
    return _take(dice, image), digits[:, 1]


class _Line(NamedTuple):
    """Which digit is nearest to each pixel and where the pixel lies in it, shape (N, H, W).

    ``x`` and ``y`` start in the middle of that digit; ``pixel`` is the side of a pixel.
    """

    shapes: Tensor
    font: Tensor
    digit: Tensor
    x: Tensor
    y: Tensor
    pixel: Tensor


def _set_line(dice: Dice, bank: GlyphBank, digits: Tensor) -> _Line:
    """Set three digits in one font; the outer two are missing at times."""
    font = dice.integers(len(bank.widths), 1, 1)
    x, y, pixel = _plane(dice)
    widths = torch.from_numpy(bank.widths).to(dice.device)[font[:, 0], digits]
    left, middle, right = widths[..., None, None].unbind(1)
    gap, (has_left, has_right) = dice.uniform(0.05, 0.25, 1, 1), dice.chance(NEIGHBOUR, 2, 1, 1).unbind(1)
    edge = middle / 2 + gap / 2
    in_left, in_right = x < -torch.where(has_left, edge, FAR), x > torch.where(has_right, edge, FAR)
    nearest = 1 + in_right.long() - in_left.long()
    x = x + in_left * (middle / 2 + gap + left / 2) - in_right * (middle / 2 + gap + right / 2)
    digit = digits.gather(1, nearest.flatten(1)).view_as(nearest)
    return _Line(_atlas(bank, dice.device), font, digit, x, y, pixel)


def _plane(dice: Dice) -> tuple[Tensor, Tensor, Tensor]:
    """Move, size and turn the plane of the text."""
    centres = _centres(dice)
    x, y = centres - dice.normal(PLACE, 1, 1), centres[:, None] - dice.normal(PLACE, 1, 1)
    height, aspect = dice.uniform(*HEIGHT, 1, 1), torch.exp(dice.normal(ASPECT, 1, 1))
    angle = torch.deg2rad(dice.normal(ANGLE, 1, 1))
    across = (torch.cos(angle) * x + torch.sin(angle) * y) / (2 * height * aspect)
    down = (torch.cos(angle) * y - torch.sin(angle) * x) / (2 * height)
    return across, down, 1 / (SIDE * height)


def _centres(dice: Dice) -> Tensor:
    """Places of the pixels of a row, from -1 to 1."""
    return (2 * torch.arange(SIDE, device=dice.device) + 1) / SIDE - 1


def _atlas(bank: GlyphBank, device: torch.device) -> Tensor:
    """All shapes as one picture, a row for each font and a column for each digit: one lookup serves every pixel."""
    return torch.from_numpy(bank.distances).to(device).transpose(1, 2).flatten(2).flatten(0, 1)


def _slope(dice: Dice, ground: Tensor) -> Tensor:
    """The ground, for some images with a colour that changes from one side to the other."""
    slope = dice.normal(0.15, 3, 2, 1, 1) * dice.chance(SLOPE, 1, 1, 1, 1)
    return ground + slope[:, :, 0] * _centres(dice) + slope[:, :, 1] * _centres(dice)[:, None]


def _print(dice: Dice, line: _Line, image: Tensor, ink: Tensor) -> Tensor:
    """Put the digits on the picture: for some an outline, then the ink."""
    pixel = line.pixel[:, None]
    distance = _distance_of_digit_scene(line) - dice.uniform(-0.012, 0.035, 1, 1, 1)
    outline = _cover(distance - dice.uniform(0.03, 0.1, 1, 1, 1), pixel) * dice.chance(OUTLINE, 1, 1, 1)
    rim = dice.uniform(0, 1, 3, 1, 1)
    return torch.lerp(torch.lerp(image, rim, outline), ink, _cover(distance, pixel))


def _ink(dice: Dice, ground: Tensor) -> Tensor:
    """A colour that can be told from the ground."""
    colour = dice.uniform(0, 1, 3, 1, 1)
    far = (colour - ground).abs().amax(dim=1, keepdim=True) > CONTRAST
    return torch.where(far, colour, 1 - ground.round())


def _distance_of_digit_scene(line: _Line) -> Tensor:
    """Signed distance of each pixel, (N, 1, H, W), to its digit."""
    inside = 1 - 1 / CELL  # the centres of a cell's outermost values: beyond, its neighbours would mix in
    column = (line.x / REACH).clamp(-inside, inside) + 2 * line.digit + 1
    row = (line.y / REACH).clamp(-inside, inside) + 2 * line.font + 1
    places = torch.stack([column / 10 - 1, row / (len(line.shapes) / CELL) - 1], dim=-1)
    found = functional.grid_sample(line.shapes[None, None], places.flatten(0, 1)[None], align_corners=False)
    return found.view(-1, 1, SIDE, SIDE)


def _cover(distance: Tensor, pixel: Tensor) -> Tensor:
    """How much of a pixel lies inside a shape."""
    return (0.5 - distance / pixel).clamp(0, 1)


def _take(dice: Dice, image: Tensor) -> Tensor:
    """Noise, then blur."""
    noisy = image.clamp(0, 1) + NOISE * dice.normal(1.0, 1, SIDE, SIDE)
    return blur(noisy, dice.uniform(*BLUR, 1).expand(-1, 2)).clamp(0, 1)


BLOCK = 250


def make_synth_digits(
    size: int = 500_000,
    *,
    seed: int = 0,
    device: str | torch.device = "cpu",
    fonts: Sequence[str | Path] = (),
    n_jobs: int = 1,
) -> Digits:
    """Draw ``size`` images of 32 x 32 pixels, each labelled with the digit in its middle.

    Parameters
    ----------
    size
        How many images. A smaller set is the beginning of a larger one.
    seed
        The same seed gives the same labels everywhere and the same images up to rounding, a step of one in 255.
    device
        Where the images are put together; random numbers are always drawn on the CPU.
    fonts
        Font files to draw from besides those that matplotlib ships and the digits drawn with a pen.
    n_jobs
        How many blocks are drawn at the same time, in threads.

    References
    ----------
    Ganin, Y., Lempitsky, V. Unsupervised domain adaptation by backpropagation. ICML 2015.

    Examples
    --------
    >>> digits = make_synth_digits(100, seed=1)
    >>> digits.images.shape, digits.images.dtype, digits.labels.shape
    ((100, 3, 32, 32), dtype('uint8'), (100,))
    """
    if size < 1:
        raise InvalidInputError(f"size must be at least 1, got {size}; the set of the paper has size=500_000.")
    glyph_bank(fonts)  # measured once, before threads ask for it
    images, labels = np.empty((size, 3, SIDE, SIDE), np.uint8), np.empty(size, np.int64)

    def fill(block: int) -> None:
        place = slice(block * BLOCK, min((block + 1) * BLOCK, size))
        drawn = synth_block(block, seed=seed, device=device, fonts=fonts)
        images[place] = drawn.images[: place.stop - place.start]
        labels[place] = drawn.labels[: place.stop - place.start]

    Parallel(n_jobs=n_jobs, prefer="threads", require="sharedmem")(
        delayed(fill)(block) for block in range(-(-size // BLOCK))
    )
    return Digits(images, labels)


def synth_blocks(
    *, seed: int = 0, device: str | torch.device = "cpu", fonts: Sequence[str | Path] = (), start: int = 0
) -> Iterator[Digits]:
    """Draw blocks of 250 images without end, from block ``start`` on.

    Examples
    --------
    >>> blocks = synth_blocks(seed=1)
    >>> first, second = next(blocks), next(blocks)
    >>> first.images.shape, bool((first.images == second.images).all())
    ((250, 3, 32, 32), False)
    """
    block = start
    while True:
        yield synth_block(block, seed=seed, device=device, fonts=fonts)
        block += 1


def synth_block(
    block: int, *, seed: int = 0, device: str | torch.device = "cpu", fonts: Sequence[str | Path] = ()
) -> Digits:
    """Draw the images from ``250 * block`` on; they depend on the seed, the block and the fonts alone.

    Examples
    --------
    >>> torch.equal(*(torch.from_numpy(synth_block(7, seed=1).labels) for _ in range(2)))
    True
    """
    if seed < 0 or block < 0:
        raise InvalidInputError(
            f"seed and block must not be negative, got seed={seed} and block={block}; count from 0."
        )
    dice = Dice(np.random.default_rng([seed, block]), BLOCK, torch.device(device))
    images, labels = photograph_digits(dice, glyph_bank(fonts))
    return Digits((images * 255).round().to(torch.uint8).cpu().numpy(), labels.cpu().numpy())
