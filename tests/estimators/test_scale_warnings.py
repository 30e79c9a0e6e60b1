"""Warnings where a network cannot learn from columns as they are scaled, and none where it can."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import momentalign as ma
from momentalign.errors import MomentAlignWarning
from momentalign.estimators.scale_warnings import warn_of_scales


@pytest.mark.parametrize(
    ("scale", "shift", "message"),
    [
        (1.0, [0, 0, 900, 0], r"column 3 has values from .* in the source and the median 900 in the target"),
        (50.0, [0] * 4, r"4 of 4 columns are wider in the target than in the source by more than 10 times"),
        (1e-3, [0] * 4, r"4 of 4 columns are narrower in the target"),
    ],
)
def test_a_target_that_was_not_transformed_is_told(quick, problem, scale, shift, message):
    target = (problem.X_target - np.median(problem.X_target, axis=0)) * scale + shift
    with pytest.warns(MomentAlignWarning, match=message):
        quick().fit(problem.X, problem.y, target)
    with pytest.warns(MomentAlignWarning, match=message):
        quick().partial_fit(problem.X, problem.y, target, classes=[0, 1])
    with pytest.warns(MomentAlignWarning, match=message):
        quick().fit_chunks([(problem.X, problem.y)], [target])
    both, ids = np.concatenate([problem.X, target]), np.repeat([1, -2], [120, 90])
    with pytest.warns(MomentAlignWarning, match=message):
        quick().fit(both, np.concatenate([problem.y, problem.y_target]), sample_domain=ids)


def test_a_pipeline_that_scales_the_source_alone_is_told(quick, problem):
    X, y, target = problem.X * 50 + 1000, problem.y, problem.X_target * 50 + 1000
    names = list("abcd")
    pipeline = make_pipeline(StandardScaler().set_output(transform="pandas"), quick())
    with pytest.warns(MomentAlignWarning, match=r'column [a-d] has values .*transform_input=\["X_target"\]'):
        pipeline.fit(pd.DataFrame(X, columns=names), y, mannclassifier__X_target=pd.DataFrame(target, columns=names))


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize("model", [ma.MANNClassifier, ma.MANNRegressor])
def test_columns_that_were_not_scaled_are_told(problem, model, kind):
    message = rf"too large for the hidden units of {model.__name__}.*column 2 is \d+\.\d; standardise"
    with pytest.warns(MomentAlignWarning, match=message):
        model(hidden=(5,), max_epochs=2).fit(kind(problem.X * [1, 500, 1, 1]), problem.y)


def test_tiny_columns_are_told_but_not_rare_words(quick, problem):
    with pytest.warns(MomentAlignWarning, match=r"too small for the hidden units .*: their root mean square is 0\.001"):
        quick().fit(problem.X * 1e-3, problem.y)
    quick().fit(sparse.csr_matrix(problem.X * 1e-3), problem.y)


@pytest.mark.parametrize(
    "target",
    [lambda X: X * [1, 1, 5, 0.5], lambda X: X + np.eye(4)[1] * 10, lambda X: np.where(np.arange(4) == 1, 0.0, X)],
    ids=["other widths", "an offset", "a sensor that failed"],
)
def test_shifts_as_they_happen_are_no_reason_to_warn(quick, problem, target):
    quick().fit(problem.X, problem.y, target(problem.X_target))


@pytest.mark.data
def test_no_development_task_is_warned_of_once_it_is_standardised():
    from benchmarks.shift_tasks import data_folder, tasks

    for kind in ("classification", "regression"):
        for task in tasks(data_folder(), kind=kind):
            source, target = task.source, task.unlabelled
            if not sparse.issparse(source):
                scaler = StandardScaler().fit(source)
                source, target = scaler.transform(source), scaler.transform(target)
            warn_of_scales(ma.MANNClassifier(), source, target, 50)
