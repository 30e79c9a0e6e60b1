"""Bad input gets one clear error that names the argument; the input stays as it was."""

import math

import numpy as np
import pytest
import scipy.sparse
import torch

import momentalign as ma
from momentalign.errors import InvalidInputError, InvalidTypeError

GOOD = np.random.default_rng(1).random((12, 3))
FUNCTIONS = {
    "cmd": ma.cmd,
    "cmd_terms": ma.cmd_terms,
    "cmd cross=2": lambda s, t: ma.cmd(s, t, cross=2),
    "cmd cross=3": lambda s, t: ma.cmd(s, t, cross=3),
    "cmd unbiased": lambda s, t: ma.cmd(s, t, unbiased=True),
    "mmd": lambda s, t: ma.mmd(s, t, kernel="linear"),
    "mmd linear time": lambda s, t: ma.mmd(s, t, kernel="polynomial", linear_time=True),
    "coral": ma.coral,
}


def _with(value):
    sample = GOOD.copy()
    sample[3, 1] = value
    return sample


BAD_SAMPLES = {
    "nan": (_with(np.nan), InvalidInputError, "NaN or infinite"),
    "inf": (_with(np.inf), InvalidInputError, "NaN or infinite"),
    "-inf": (_with(-np.inf), InvalidInputError, "NaN or infinite"),
    "no rows": (np.empty((0, 3)), InvalidInputError, r"is empty, its shape is \(0, 3\)"),
    "no columns": (np.empty((12, 0)), InvalidInputError, r"is empty, its shape is \(12, 0\)"),
    "three dimensions": (np.ones((2, 2, 3)), InvalidInputError, r"must be a matrix .* \(2, 2, 3\)"),
    "one dimension": (np.ones(3), InvalidInputError, r"must be a matrix .* \(3,\)"),
    "a number": (3.0, InvalidInputError, r"must be a matrix .* \(\)"),
    "objects": (GOOD.astype(object), InvalidTypeError, "must hold real numbers, got dtype object"),
    "strings": (GOOD.astype(str), InvalidTypeError, "must hold real numbers"),
    "complex": (GOOD.astype(complex), InvalidTypeError, "must hold real numbers, got dtype complex128"),
    "dates": (GOOD.astype("datetime64[s]"), InvalidTypeError, "must hold real numbers"),
    "nothing": (None, InvalidTypeError, "must hold real numbers"),
    "sparse": (scipy.sparse.csr_matrix(GOOD), InvalidTypeError, r"scipy sparse matrix; give a dense array"),
    "sparse array": (scipy.sparse.coo_array(GOOD), InvalidTypeError, r"scipy sparse matrix; give a dense array"),
}
BAD_TENSORS = {
    "integers": (torch.ones(12, 3, dtype=torch.int64), InvalidTypeError, r"floating-point numbers, got torch.int64"),
    "booleans": (torch.ones(12, 3, dtype=torch.bool), InvalidTypeError, r"floating-point numbers, got torch.bool"),
    "complex": (
        torch.ones(12, 3, dtype=torch.complex64),
        InvalidTypeError,
        r"floating-point numbers, got torch.complex64",
    ),
    "nan": (torch.tensor(_with(np.nan)), InvalidInputError, "NaN or infinite"),
    "inf": (torch.tensor(_with(np.inf), dtype=torch.float32), InvalidInputError, "NaN or infinite"),
    "empty": (torch.empty(0, 3), InvalidInputError, "is empty"),
    "vector": (torch.ones(3), InvalidInputError, "must be a matrix"),
}


def _bytes(sample):
    if isinstance(sample, torch.Tensor):
        return sample.numpy().tobytes()
    return sample.tobytes() if isinstance(sample, np.ndarray) and sample.dtype != object else repr(sample)


def _refused(call, error, match):
    with pytest.raises(InvalidInputError, match=match) as caught:
        call()
    assert type(caught.value) is error
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("place", ["source", "target"])
@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize(
    ("bad", "good"), [(BAD_SAMPLES, GOOD), (BAD_TENSORS, torch.tensor(GOOD))], ids=["arrays", "tensors"]
)
def test_a_bad_sample_is_named(place, function, bad, good):
    for sample, error, match in bad.values():
        pair = (sample, good) if place == "source" else (good, sample)
        before = [_bytes(s) for s in pair]
        _refused(lambda pair=pair: FUNCTIONS[function](*pair), error, rf"^{place} .*{match}")
        assert [_bytes(s) for s in pair] == before


@pytest.mark.parametrize("kernel", ["gaussian", "gaussians"])
def test_mmd_names_the_target_that_holds_nan(kernel):
    _refused(lambda: ma.mmd(GOOD, _with(np.nan), kernel=kernel), InvalidInputError, "^target holds NaN")


def test_nan_in_the_target_is_refused_before_the_interval_is_announced():
    _refused(lambda: ma.cmd(GOOD, _with(np.nan), interval="data"), InvalidInputError, "^target holds NaN")


def test_nan_in_the_source_is_refused_before_the_interval_is_announced():
    _refused(lambda: ma.cmd(_with(np.nan), GOOD, interval="data"), InvalidInputError, "^source holds NaN")


def test_ragged_lists_are_named():
    _refused(lambda: ma.cmd([[1.0], [1.0, 2.0]], GOOD), InvalidInputError, "^source")


def test_sparse_tensors_are_named():
    _refused(lambda: ma.cmd(torch.tensor(GOOD).to_sparse(), torch.tensor(GOOD)), InvalidTypeError, "^source")


@pytest.mark.parametrize("function", FUNCTIONS)
def test_pairs_that_do_not_fit_are_refused(function):
    distance, tensor = FUNCTIONS[function], torch.tensor(GOOD)
    _refused(lambda: distance(GOOD, GOOD[:, :2]), InvalidInputError, "source has 3 columns and target has 2")
    _refused(
        lambda: distance(tensor, GOOD),
        InvalidTypeError,
        "both be torch tensors or both be arrays, got Tensor and ndarray",
    )
    _refused(lambda: distance(GOOD.tolist(), tensor), InvalidTypeError, "got list and Tensor")


BAD_CMD = [
    ({"n_moments": 0}, InvalidInputError, "^n_moments must be at least 1, got 0"),
    ({"n_moments": -2}, InvalidInputError, "^n_moments must be at least 1"),
    ({"n_moments": 1.5}, InvalidTypeError, r"^n_moments must be a whole number, got 1\.5"),
    ({"n_moments": True}, InvalidTypeError, "^n_moments must be a whole number, got True"),
    ({"n_moments": "5"}, InvalidTypeError, "^n_moments must be a whole number, got '5'"),
    ({"n_moments": None}, InvalidTypeError, "^n_moments must be a whole number"),
    ({"cross": 0}, InvalidInputError, "^cross must be at least 1, got 0"),
    ({"cross": 2.0}, InvalidTypeError, "^cross must be a whole number"),
    ({"cross": True}, InvalidTypeError, "^cross must be a whole number"),
    ({"cross": 6}, InvalidInputError, "^cross=6 asks for more orders than n_moments=5"),
    ({"cross": 2, "n_moments": 1}, InvalidInputError, "^cross=2 asks for more orders than n_moments=1"),
    (
        {"cross": 3, "unbiased": True},
        InvalidInputError,
        "^unbiased=True is defined for cross=1 and cross=2, got cross=3",
    ),
    ({"interval": (1, 1)}, InvalidInputError, r"^interval must be finite and not empty, got \(1, 1\)"),
    ({"interval": (0, math.nan)}, InvalidInputError, "^interval must be finite"),
    ({"interval": (-math.inf, 0)}, InvalidInputError, "^interval must be finite"),
    ({"interval": (0, 1, 2)}, InvalidInputError, "^interval must be a pair"),
    ({"interval": (1,)}, InvalidInputError, "^interval must be a pair"),
    ({"interval": ()}, InvalidInputError, "^interval must be a pair"),
    ({"interval": 1.0}, InvalidInputError, "^interval must be a pair"),
    ({"interval": None}, InvalidInputError, "^interval must be a pair"),
    ({"interval": "tanh"}, InvalidInputError, "^interval must be a pair .*'tanh'"),
    ({"interval": ("a", "b")}, InvalidInputError, "^interval must be a pair"),
]
BAD_MMD = [
    ({"kernel": "rbf"}, "^kernel must be one of gaussian, gaussians, polynomial, linear, got 'rbf'"),
    ({"kernel": None}, "^kernel must be one of"),
    *(
        ({"beta": beta}, '^beta must be a positive number, a sequence of them or "median", got')
        for beta in (0, -1.0, math.nan, math.inf, "mean", [], (), [1.0, 0.0], [1.0, "a"], None)
    ),
    ({"degree": 0}, "^degree must be at least 1, got 0"),
    ({"degree": 1.5}, "^degree must be a whole number"),
    ({"degree": True}, "^degree must be a whole number"),
]


@pytest.mark.parametrize(("settings", "error", "match"), BAD_CMD)
def test_bad_settings_of_the_cmd_are_named(settings, error, match):
    _refused(lambda: ma.cmd(GOOD, GOOD, **settings), error, match)
    _refused(lambda: ma.cmd_terms(GOOD, GOOD, **settings), error, match)
    _refused(lambda: ma.CMDLoss(**settings), error, match)


@pytest.mark.parametrize(("settings", "match"), BAD_MMD)
def test_bad_settings_of_the_mmd_are_named(settings, match):
    for call in (lambda: ma.mmd(GOOD, GOOD, **settings), lambda: ma.MMDLoss(**settings)):
        with pytest.raises(InvalidInputError, match=match):
            call()


@pytest.mark.parametrize(
    "interval",
    ["01", (-1e308, 1e308), np.array([0.0, 1.0, 2.0]), (0, 10**400)],
    ids=["digits", "endless", "array", "huge int"],
)
def test_strange_intervals_are_refused(interval):
    _refused(lambda: ma.cmd(GOOD, GOOD, interval=interval), InvalidInputError, "^interval")


def test_an_interval_may_be_an_array():
    assert ma.cmd(GOOD, GOOD**2, interval=np.array([0.0, 2.0])) == ma.cmd(GOOD, GOOD**2, interval=(0, 2))


@pytest.mark.parametrize("beta", [np.float32(0.5), np.array([0.5]), np.int64(2)], ids=repr)
def test_beta_may_be_a_number_of_numpy(beta):
    assert ma.mmd(GOOD, GOOD**2, beta=beta) == pytest.approx(ma.mmd(GOOD, GOOD**2, beta=float(np.squeeze(beta))))


@pytest.mark.parametrize(("n_moments", "needed"), [(1, 2), (2, 4), (5, 10)])
@pytest.mark.parametrize("place", ["source", "target"])
def test_too_few_rows_for_the_unbiased_estimate_are_counted(place, n_moments, needed):
    few, enough = GOOD[: needed - 1], GOOD[:needed]
    pair = (few, GOOD) if place == "source" else (GOOD, few)
    match = (
        f"^unbiased=True with n_moments={n_moments} needs at least {needed} rows, {place} has {needed - 1}; give more "
        r"rows or lower n_moments\.$"
    )
    _refused(lambda: ma.cmd(*pair, n_moments=n_moments, unbiased=True), InvalidInputError, match)
    assert math.isfinite(ma.cmd(enough, enough, n_moments=n_moments, unbiased=True))


@pytest.mark.parametrize("settings", [{"unbiased": True}, {"linear_time": True}])
def test_single_rows_have_no_unbiased_mmd(settings):
    _refused(lambda: ma.mmd(GOOD[:1], GOOD, **settings), InvalidInputError, "at least 2 rows, source has 1")
    _refused(lambda: ma.mmd(GOOD, GOOD[:1], **settings), InvalidInputError, "at least 2 rows, target has 1")


def test_single_rows_have_no_covariance():
    words = r"^coral needs at least 2 rows for a covariance, source has 1\.$"
    _refused(lambda: ma.coral(GOOD[:1], GOOD), InvalidInputError, words)
    _refused(lambda: ma.coral(GOOD, GOOD[:1]), InvalidInputError, "target has 1")


@pytest.mark.parametrize("function", [*FUNCTIONS, "mmd gaussian"])
def test_overflow_is_named(function):
    distance = FUNCTIONS.get(function, ma.mmd)
    huge = (1e30 * GOOD).astype(np.float32)
    _refused(lambda: distance(huge, huge[::-1] ** 1.01), InvalidInputError, r"e\+(29|30) overflow torch.float32")
    tensors = torch.tensor(huge), torch.tensor(huge[:5].repeat(2, 0))
    _refused(lambda: distance(*tensors), InvalidInputError, "overflow torch.float32")


def test_the_interval_mends_the_overflow():
    huge = (1e30 * GOOD).astype(np.float32)
    assert ma.cmd(huge, huge**1.0, interval=(0, 1e30)) == pytest.approx(0.0, abs=1e-6)
    assert ma.cmd(huge, 0.5 * huge, interval=(0, 1e30)) == pytest.approx(ma.cmd(GOOD, 0.5 * GOOD), rel=1e-4)
