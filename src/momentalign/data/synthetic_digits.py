"""Digits drawn from fonts, a stand-in for SynthDigits (Ganin & Lempitsky 2015), the source of Section 6.5.

The target it is trained for is SVHN: one digit in the middle, its neighbours at the sides, on walls and plates of any
colour. Blocks of 250 images are drawn apart, so a set of 500,000 is made in parallel or on the fly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from joblib import Parallel, delayed

from momentalign.data.digit_scene import SIDE, Dice, photograph_digits
from momentalign.data.digits import Digits
from momentalign.data.glyphs import glyph_bank
from momentalign.errors import InvalidInputError

__all__ = ["BLOCK", "make_synth_digits", "synth_block", "synth_blocks"]

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
