"""Pictures of printed numbers put together from shapes of digits: text, ground, ink and blur.

The steps behind the stand-in for SynthDigits: Section 6.1 names its varied text, positioning, orientation, background,
stroke colours and blur. How much they vary was set so that a plain network reads about as many house numbers as in
Table 5. Lengths are in heights of a digit unless said otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from momentalign.data.augmentation import blur
from momentalign.data.glyphs import CELL, REACH, GlyphBank

__all__ = ["SIDE", "Dice", "photograph_digits"]

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
    >>> from momentalign.data.glyphs import glyph_bank
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
    distance = _distance(line) - dice.uniform(-0.012, 0.035, 1, 1, 1)
    outline = _cover(distance - dice.uniform(0.03, 0.1, 1, 1, 1), pixel) * dice.chance(OUTLINE, 1, 1, 1)
    rim = dice.uniform(0, 1, 3, 1, 1)
    return torch.lerp(torch.lerp(image, rim, outline), ink, _cover(distance, pixel))


def _ink(dice: Dice, ground: Tensor) -> Tensor:
    """A colour that can be told from the ground."""
    colour = dice.uniform(0, 1, 3, 1, 1)
    far = (colour - ground).abs().amax(dim=1, keepdim=True) > CONTRAST
    return torch.where(far, colour, 1 - ground.round())


def _distance(line: _Line) -> Tensor:
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
