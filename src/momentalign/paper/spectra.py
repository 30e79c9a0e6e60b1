r"""Spectra of the same mixtures on two instruments: a calibration that has to be transferred.

Not in the paper. A calibration learned on one spectrometer fails on another; Feudale et al. (Transfer of multivariate
calibration models: a review, Chemometrics and Intelligent Laboratory Systems 64, 2002) and Workman (A review of
calibration transfer practices and instrument differences in spectroscopy, Applied Spectroscopy 72, 2018) say why.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter1d

__all__ = [
    "FIELD",
    "WAVELENGTHS",
    "Calibration",
    "Instrument",
    "calibration_transfer",
    "standard_normal_variate",
]

Floats: TypeAlias = NDArray[np.float64]

WAVELENGTHS: Floats = np.arange(1100.0, 2500.0, 8.0)
"""The channels of every instrument, in nm."""

# Light is followed on a finer grid, which ends far enough outside the channels for every shift and every slit.
STEP, MARGIN = 1.0, 100.0
FINE: Floats = np.arange(WAVELENGTHS[0] - MARGIN, WAVELENGTHS[-1] + MARGIN + STEP, STEP)
# A Gaussian's full width at half its height, in standard deviations.
WIDTH_IN_STDS = 2.0 * np.sqrt(2.0 * np.log(2.0))


class Band(NamedTuple):
    """One absorption band: centre and full width at half height in nm, and the absorbance at its centre."""

    centre: float
    width: float
    height: float


# Near the overtones and combinations of O-H, C-H and N-H; heights are absorbances of the pure substance in this cell.
BANDS: dict[str, tuple[Band, ...]] = {
    "water": (Band(1450.0, 100.0, 1.6), Band(1940.0, 110.0, 3.6)),
    "oil": (Band(1210.0, 60.0, 0.5), Band(1725.0, 50.0, 1.2), Band(1765.0, 45.0, 0.9), Band(2310.0, 45.0, 2.0)),
    "protein": (Band(1510.0, 110.0, 0.6), Band(1735.0, 70.0, 0.4), Band(2055.0, 80.0, 1.3), Band(2180.0, 70.0, 1.2)),
    "starch": (Band(1580.0, 160.0, 0.6), Band(1930.0, 120.0, 0.7), Band(2100.0, 130.0, 1.5), Band(2280.0, 80.0, 1.2)),
}
# Mean and standard deviation of the mass fraction of each substance but the last, which is the rest.
CONTENTS: dict[str, tuple[float, float]] = {"water": (0.10, 0.015), "oil": (0.05, 0.012), "protein": (0.11, 0.015)}
# Standard deviation of the light's path through the sample, which no two fillings of a cell have alike.
PATH_STD = 0.01


@dataclass(frozen=True, kw_only=True)
class Instrument:
    """What a spectrometer makes of the light.

    Attributes
    ----------
    shift
        Error of the wavelength axis in nm: the channel called 1500 sees 1500 + shift.
    resolution
        Full width at half height of the slit function, a Gaussian, in nm.
    stray_light
        Light that reaches the detector past the sample, as a part of the lamp's.
    gain, offset, slope
        Photometric errors: absorbances are multiplied by `gain`; a baseline of `offset` in the middle of the channels
        is added, which rises by `slope` from the first to the last.
    noise
        Standard deviation of the noise of each absorbance.
    """

    shift: float = 0.0
    resolution: float = 10.0
    stray_light: float = 0.0
    gain: float = 1.0
    offset: float = 0.0
    slope: float = 0.0
    noise: float = 0.0

    def measure(self, absorbance: Floats, random: np.random.Generator) -> Floats:
        """Return what is read at ``WAVELENGTHS`` for true absorbances (rows, points of the fine grid)."""
        # A slit and stray light mix light, not absorbances: this is where Beer's law stops being linear.
        light = gaussian_filter1d(10.0**-absorbance, self.resolution / WIDTH_IN_STDS / STEP, axis=1)
        seen = np.stack([np.interp(WAVELENGTHS + self.shift, FINE, row) for row in light])
        read = -np.log10((seen + self.stray_light) / (1.0 + self.stray_light))
        baseline = self.offset + self.slope * np.linspace(-0.5, 0.5, len(WAVELENGTHS))
        return np.asarray(self.gain * read + baseline + random.normal(0.0, self.noise, read.shape))


MASTER = Instrument(resolution=10.0, stray_light=0.0005, noise=0.00005)
"""A grating instrument of a laboratory."""

FIELD = Instrument(shift=1.0, resolution=16.0, stray_light=0.005, gain=1.03, offset=0.03, slope=0.02, noise=0.0003)
"""A smaller instrument for the field: 1 nm off, a slit of 16 nm, 0.5 % stray light, a baseline of 0.03."""


class Calibration(NamedTuple):
    """Spectra of a master and of a field instrument, and the mass fractions in percent of what was in the cells."""

    master: Floats
    master_contents: Floats
    field: Floats
    field_contents: Floats


def pure_spectra(wavelengths: Floats = WAVELENGTHS) -> Floats:
    """Return the absorbance of water, oil, protein and starch, (4, wavelengths): sums of Lorentzian bands.

    Examples
    --------
    >>> water = pure_spectra()[0]
    >>> float(WAVELENGTHS[water.argmax()])
    1940.0
    """
    spectra = []
    for bands in BANDS.values():
        centres, widths, heights = np.array(bands).T[:, :, None]
        spectra.append((heights / (1.0 + ((wavelengths - centres) / (widths / 2.0)) ** 2)).sum(axis=0))
    return np.stack(spectra)


def calibration_transfer(
    seed: int = 0, *, samples: int = 300, master: Instrument = MASTER, field: Instrument = FIELD
) -> Calibration:
    r"""Draw mixtures for each of two instruments; no sample is measured with both.

    The true absorbance of a mixture is that of Beer and Lambert, :math:`A(\lambda) = \ell \sum_j c_j
    \varepsilon_j(\lambda)`, with mass fractions :math:`c_j` of water, oil, protein and starch, the spectra
    :math:`\varepsilon_j` of the pure substances and a path :math:`\ell` that varies by 1 %. An instrument reads

    .. math:: g \cdot -\log_{10} \frac{(s * 10^{-A})(\lambda + \delta) + p}{1 + p} + b(\lambda) + \text{noise}

    with slit function s, wavelength error :math:`\delta`, stray light p, gain g and baseline b. Contents are
    distributed alike on both sides: all that differs is the instrument.

    Parameters
    ----------
    seed
        The same seed gives the same spectra.
    samples
        Mixtures on each instrument.
    master, field
        The two instruments.

    Examples
    --------
    >>> data = calibration_transfer(0, samples=5)
    >>> data.master.shape, data.field_contents.shape, bool(np.allclose(data.field_contents.sum(axis=1), 100.0))
    ((5, 175), (5, 4), True)
    """
    random = np.random.default_rng(seed)
    contents = [_contents(random, samples) for _ in range(2)]
    spectra = [_measured(own, instrument, random) for own, instrument in zip(contents, (master, field), strict=True)]
    return Calibration(spectra[0], 100.0 * contents[0], spectra[1], 100.0 * contents[1])


def standard_normal_variate(spectra: Floats) -> Floats:
    """Return spectra (rows, channels), each with mean 0 and standard deviation 1 over its own channels.

    Takes out what differs from sample to sample by an offset and a factor (Barnes, Dhanoa and Lister, Standard normal
    variate transformation and de-trending of near-infrared diffuse reflectance spectra, Applied Spectroscopy 43, 1989).

    Examples
    --------
    >>> standard_normal_variate(np.array([[1.0, 3.0], [10.0, 50.0]])).tolist()
    [[-1.0, 1.0], [-1.0, 1.0]]
    """
    return np.asarray((spectra - spectra.mean(axis=1, keepdims=True)) / spectra.std(axis=1, keepdims=True))


def _contents(random: np.random.Generator, samples: int) -> Floats:
    """Mass fractions, cut off at three standard deviations so that none is negative; starch is what remains."""
    means, stds = np.array(list(CONTENTS.values())).T
    some = means + stds * np.clip(random.normal(size=(samples, len(means))), -3.0, 3.0)
    return np.column_stack([some, 1.0 - some.sum(axis=1)])


def _measured(contents: Floats, instrument: Instrument, random: np.random.Generator) -> Floats:
    path = random.normal(1.0, PATH_STD, (len(contents), 1))
    return instrument.measure(path * (contents @ pure_spectra(FINE)), random)
