"""Spectra of generated mixtures: the physics of light, and what each error of an instrument does to it."""

from dataclasses import replace

import numpy as np
import pytest

from momentalign.paper.spectra import (
    BANDS,
    FIELD,
    FINE,
    MASTER,
    WAVELENGTHS,
    Instrument,
    calibration_transfer,
    pure_spectra,
    standard_normal_variate,
)

# A slit of less than a step of the grid: light as it is.
PERFECT = Instrument(resolution=0.01)


def measured(instrument, absorbance):
    return instrument.measure(np.atleast_2d(absorbance), np.random.default_rng(0))


@pytest.fixture
def mixture():
    return np.array([0.1, 0.05, 0.11, 0.74]) @ pure_spectra(FINE)


def test_a_perfect_instrument_reads_the_law_of_beer_and_lambert(mixture):
    expected = np.array([0.1, 0.05, 0.11, 0.74]) @ pure_spectra(WAVELENGTHS)
    np.testing.assert_allclose(measured(PERFECT, mixture)[0], expected, rtol=1e-9)
    np.testing.assert_allclose(measured(PERFECT, 2 * mixture)[0], 2 * expected, rtol=1e-9)


def test_a_band_has_its_height_at_its_centre_and_half_of_it_half_a_width_away(monkeypatch):
    band = BANDS["water"][1]
    monkeypatch.setitem(BANDS, "water", (band,))
    at = np.array([band.centre, band.centre - band.width / 2, band.centre + band.width / 2])
    np.testing.assert_allclose(pure_spectra(at)[0], [band.height, band.height / 2, band.height / 2])


def test_a_shift_moves_the_axis(mixture):
    moved = measured(replace(PERFECT, shift=8.0), mixture)[0]
    np.testing.assert_allclose(moved[:-1], measured(PERFECT, mixture)[0][1:], rtol=1e-9)


def test_a_slit_lets_neighbouring_light_in():
    """Light through a window one step wide is as wide as the slit, and not lost."""
    window = np.where(FINE == 1804.0, 0.0, 20.0)
    light = 10.0 ** -measured(Instrument(resolution=16.0), window)[0]
    assert light.sum() * 8.0 == pytest.approx(1.0, rel=1e-3)
    assert light[WAVELENGTHS == 1804.0 + 8.0] == pytest.approx(light.max() / 2, rel=0.01)


def test_stray_light_bounds_what_can_be_read():
    read = measured(replace(PERFECT, stray_light=0.01), np.full(len(FINE), 9.0))
    np.testing.assert_allclose(read, -np.log10(0.01 / 1.01), rtol=1e-6)
    nothing_absorbed = measured(replace(PERFECT, stray_light=0.01), np.zeros(len(FINE)))
    np.testing.assert_allclose(nothing_absorbed, 0.0, atol=1e-12)


def test_gain_and_baseline_are_linear_in_what_is_read(mixture):
    read = measured(PERFECT, mixture)
    wrong = measured(replace(PERFECT, gain=1.1, offset=0.2, slope=0.3), mixture)
    np.testing.assert_allclose(wrong - 1.1 * read, np.linspace(0.05, 0.35, len(WAVELENGTHS))[None], rtol=1e-9)


def test_noise_has_its_standard_deviation():
    read = measured(replace(PERFECT, noise=0.01), np.zeros((50, len(FINE))))
    assert read.std() == pytest.approx(0.01, rel=0.05)


def test_contents_are_alike_on_both_sides_and_the_spectra_are_not():
    data = calibration_transfer(0, samples=400)
    for contents in (data.master_contents, data.field_contents):
        assert contents.shape == (400, 4)
        assert contents.min() > 0.0
        np.testing.assert_allclose(contents.sum(axis=1), 100.0)
        np.testing.assert_allclose(contents.mean(axis=0), [10.0, 5.0, 11.0, 74.0], atol=0.5)
    assert (data.master_contents != data.field_contents).all()
    gap = np.abs(data.master.mean(axis=0) - data.field.mean(axis=0))
    assert (gap / data.master.std(axis=0)).mean() > 3.0


def test_without_a_difference_of_instruments_there_is_none_of_spectra():
    data = calibration_transfer(0, samples=400, field=MASTER)
    gap = np.abs(data.master.mean(axis=0) - data.field.mean(axis=0))
    assert (gap / data.master.std(axis=0)).max() < 0.3


def test_the_path_varies_from_cell_to_cell():
    data = calibration_transfer(0, samples=400, master=PERFECT)
    paths = data.master.mean(axis=1) / (data.master_contents / 100.0 @ pure_spectra()).mean(axis=1)
    assert paths.std() == pytest.approx(0.01, rel=0.1)


def test_the_standard_normal_variate_takes_gain_and_offset_out():
    data = calibration_transfer(0, samples=5, master=PERFECT)
    plain, changed = standard_normal_variate(data.master), standard_normal_variate(1.1 * data.master + 0.2)
    np.testing.assert_allclose(changed, plain, rtol=1e-9)
    np.testing.assert_allclose([plain.mean(axis=1), plain.std(axis=1)], [np.zeros(5), np.ones(5)], atol=1e-12)


def test_a_seed_is_a_data_set():
    first, again, other = (calibration_transfer(seed, samples=3) for seed in (0, 0, 1))
    for one, same, different in zip(first, again, other, strict=True):
        np.testing.assert_array_equal(one, same)
        assert (one != different).any()
    assert FIELD != MASTER
