import numpy as np
import pytest

from momentalign.estimators.chunk_labels import ClassLabels, NumberLabels
from momentalign.estimators.values import fitted_scale


@pytest.mark.parametrize("shape", [(1000,), (1000, 3)])
@pytest.mark.parametrize("offset", [0.0, 1e8])
def test_scales_of_chunks_are_merged_to_that_of_all(shape, offset):
    values = np.random.default_rng(0).normal(size=shape) * 3.0 + offset
    labels = NumberLabels()
    for part in np.split(values, [1, 20, 700]):
        labels.note(labels.read(part))
    expected = fitted_scale(values)
    np.testing.assert_allclose(labels.scale.mean, expected.mean, rtol=1e-13)
    np.testing.assert_allclose(labels.scale.deviation, expected.deviation, rtol=1e-9)
    assert labels.coded(values).dtype == np.float32
    assert labels.coded(values).shape == (1000, values.size // 1000)


def test_a_constant_stays_one_to_the_last_bit():
    labels = NumberLabels()
    for rows in (7, 11, 3):
        labels.note(np.full(rows, 0.1))
    assert (labels.scale.mean, labels.scale.deviation) == (0.1, 0.0)


@pytest.mark.parametrize(
    "chunks",
    [
        [[3, 1], [2]],
        [[True, False], [True]],
        [[1.0, 2.0], [3, 1]],
        [["b", "a"], np.array(["long name", "a"], dtype=object)],
    ],
)
def test_classes_are_those_of_all_chunks_together(chunks):
    labels = ClassLabels()
    for chunk in chunks:
        labels.note(labels.read(chunk))
    labels.finish()
    every = [label for chunk in chunks for label in chunk]
    assert labels.classes.tolist() == sorted(set(every))
    for chunk in chunks:
        assert [labels.classes[code] for code in labels.coded(labels.read(chunk))] == list(chunk)
