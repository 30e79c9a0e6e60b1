import math
from dataclasses import replace

import numpy as np
import pytest

from momentalign.evaluation.diagnose import conclude
from momentalign.evaluation.domain_classifier import DomainClassifier
from momentalign.evaluation.features import FeatureChange
from momentalign.evaluation.moment_test import MomentShift

GUESSING = DomainClassifier("logistic regression", 100, 0.5, 0.0, 0.51, 0.4, 0.6, 0.4, [])
KNOWING = GUESSING._replace(auc=0.65, p_value=1e-4)
ALIKE = MomentShift(np.zeros(6), np.full(6, 0.5), np.ones(6))
APART = MomentShift(np.ones(6), np.full(6, 0.001), np.zeros(6))
SAME = FeatureChange(
    name="same",
    kind="number",
    distance=0.05,
    p_value=0.6,
    p_adjusted=0.7,
    missing_source=0.0,
    missing_target=0.0,
    missing_p_value=math.nan,
    missing_p_adjusted=math.nan,
    changes=[],
    shape=None,
)
MOVED = replace(SAME, name="moved", distance=0.15, p_adjusted=1e-6, changes=["location"])
WIDER = replace(SAME, name="wider", distance=0.3, p_adjusted=1e-6, changes=["spread", "shape"])
LOST = replace(SAME, name="lost", missing_target=0.5, missing_p_adjusted=1e-9, changes=["missing values"])


@pytest.mark.parametrize(
    ("features", "moments", "classifier", "words"),
    [
        (
            [SAME, SAME],
            ALIKE,
            GUESSING,
            "No shift found: none of 2 features differs significantly, and a classifier cannot tell the samples apart "
            "(AUC 0.51).",
        ),
        (
            [SAME],
            None,
            GUESSING,
            "No shift found: none of 1 feature differs significantly, and a classifier cannot tell the samples apart "
            "(AUC 0.51).",
        ),
        (
            [MOVED, SAME],
            ALIKE,
            GUESSING,
            "Mild shift: 1 of 2 features differs: moved (location); a classifier of all features together cannot use "
            "it (AUC 0.51).",
        ),
        (
            [WIDER, MOVED, SAME],
            APART,
            GUESSING,
            "Moderate shift: 2 of 3 features differ: wider (spread, shape) and moved (location); the central moments "
            "of all features together differ, but a classifier cannot use it (AUC 0.51).",
        ),
        (
            [LOST, WIDER, MOVED, MOVED, SAME],
            APART,
            KNOWING,
            "Strong shift: 4 of 5 features differ, most of all lost (missing values), wider (spread, shape) and moved "
            "(location); a classifier tells the samples apart (AUC 0.65).",
        ),
        (
            [SAME, SAME],
            ALIKE,
            KNOWING,
            "Moderate shift: no single feature differs significantly; a classifier tells the samples apart (AUC 0.65).",
        ),
        (
            [replace(MOVED, p_adjusted=0.04), SAME],
            ALIKE,
            GUESSING,
            "No shift found: moved (location) alone would pass, but not all tests together, and a classifier cannot "
            "tell the samples apart (AUC 0.51).",
        ),
    ],
    ids=["none", "one feature", "mild", "moments", "strong", "joint", "too many tests"],
)
def test_the_sentence_says_what_was_found(features, moments, classifier, words):
    assert conclude(features, moments, classifier).words == words


@pytest.mark.parametrize(("unmatched", "words"), [(1, "; 1 column is in"), (3, "; 3 columns are in")])
def test_columns_of_one_sample_only_are_told(unmatched, words):
    assert words in conclude([MOVED], None, KNOWING, unmatched=unmatched).words
    assert words in conclude([SAME], None, GUESSING, unmatched=unmatched).words


@pytest.mark.parametrize(
    ("distance", "level"), [(0.19, "mild"), (0.2, "moderate"), (0.39, "moderate"), (0.4, "strong")]
)
def test_the_level_is_that_of_the_largest_distance(distance, level):
    found = conclude([replace(MOVED, distance=distance), SAME], None, GUESSING)
    assert (found.level, found.strength) == (level, distance)


def test_the_p_value_counts_the_tests():
    assert conclude([SAME], ALIKE, KNOWING).p_value == pytest.approx(3e-4)
    assert conclude([SAME], None, KNOWING).p_value == pytest.approx(2e-4)
    assert conclude([replace(SAME, p_adjusted=math.nan)], None, KNOWING).p_value == pytest.approx(1e-4)
    assert conclude([SAME], ALIKE, GUESSING).p_value == 1.0


def test_an_insignificant_distance_does_not_count():
    noisy = replace(LOST, distance=0.9, missing_target=0.1)
    assert conclude([noisy], None, GUESSING).strength == pytest.approx(0.1)
