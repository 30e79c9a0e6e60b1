"""Numbers that leave what a float can hold are an error with a name and a remedy, never a model or a result of NaN."""

import re

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import momentalign as ma
from momentalign.errors import DivergedError, InvalidInputError
from momentalign.training import stack

WORDS = r"training diverged: the (source loss|distance) .*is .* in epoch \d+; lower learning_rate"


def _numbers(data):
    X, _, X_target = data
    return X, X[:, 0] - X[:, 1], X_target


ESTIMATORS = {
    "compiled": (0.0, ma.MANNClassifier, {}),
    "torch": (np.inf, ma.MANNClassifier, {}),
    "torch, dann": (0.0, ma.MANNClassifier, {"discrepancy": "dann"}),
    "torch, own distance": (0.0, ma.MANNClassifier, {"discrepancy": lambda s, t: (s.mean() - t.mean()).abs()}),
    "combination": (0.0, ma.MANNClassifier, {"weight": "auto"}),
    "regressor": (0.0, ma.MANNRegressor, {}),
    "regressor, torch": (np.inf, ma.MANNRegressor, {}),
    "regressor, plain": (0.0, ma.MANNRegressor, {"discrepancy": None}),
}


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("held_out", [0.0, 0.3])
def test_a_training_that_diverges_is_named_and_leaves_no_model(data, monkeypatch, name, held_out):
    worth, kind, settings = ESTIMATORS[name]
    monkeypatch.setattr(stack, "WORTH_COMPILING", worth)
    model = kind(
        hidden=(5,), optimizer="sgd", learning_rate=1e37, max_epochs=50, patience=None, batch_size=20, random_state=0,
        validation_fraction=held_out, **settings,
    )  # fmt: skip
    with pytest.raises(DivergedError, match=WORDS):
        model.fit(*(_numbers(data) if kind is ma.MANNRegressor else data))
    assert not hasattr(model, "coefs_")


@pytest.mark.parametrize("distance", ["cmd", "coral", "mmd"])
def test_a_deep_training_that_diverges_is_named(distance, tmp_path):
    rows = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
    source = DataLoader(TensorDataset(rows, torch.arange(40) % 2), batch_size=10)
    network = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    with pytest.raises(DivergedError, match=r"the source loss is (nan|\d.*e\+\d+) in epoch 1; lower learning_rate or"):
        ma.adapt(
            network, "1", source, DataLoader(rows, batch_size=10), discrepancy=distance, optimizer="sgd",
            learning_rate=1e37, max_epochs=5, device="cpu", random_state=0, checkpoint=tmp_path,
        )  # fmt: skip
    assert not (tmp_path / "last").exists(), "a checkpoint that is not finite would be gone on from"


@pytest.mark.parametrize("engine", [0.0, np.inf], ids=["compiled", "torch"])
@pytest.mark.parametrize("kind", [ma.MANNClassifier, ma.MANNRegressor])
@pytest.mark.parametrize(("held_out", "figure"), [(0.0, "largest weight"), (0.3, "validation loss")])
def test_the_last_step_of_a_training_is_looked_at_too(data, monkeypatch, engine, kind, held_out, figure):
    """The loss of a step is that before it: of the only step of a training it says nothing."""
    monkeypatch.setattr(stack, "WORTH_COMPILING", engine)
    model = kind(
        hidden=(5,), optimizer="sgd", learning_rate=9e37, max_epochs=1, batch_size=None, patience=None, random_state=0,
        validation_fraction=held_out,
    )  # fmt: skip
    with pytest.raises(DivergedError, match=f"the {figure} of .* in epoch 1; lower learning_rate or weight"):
        model.fit(*(_numbers(data) if kind is ma.MANNRegressor else data))


def test_the_last_step_of_a_deep_training_is_looked_at_too(tmp_path):
    def exploding(parameters):
        return torch.optim.SGD(parameters, lr=float("inf"))

    rows = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
    source = DataLoader(TensorDataset(rows, torch.arange(40) % 2), batch_size=40)
    network = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    with pytest.raises(DivergedError, match=r"'0.weight' is not finite after epoch 1; lower learning_rate"):
        ma.adapt(
            network, "1", source, DataLoader(rows, batch_size=40), optimizer=exploding, max_epochs=1, device="cpu",
            random_state=0, checkpoint=tmp_path,
        )  # fmt: skip
    assert not (tmp_path / "last").exists()


def _backward(source, target):
    rows = torch.tensor(source, requires_grad=True)
    ma.CMDLoss()(rows, torch.tensor(target)).backward()
    return rows.grad


FUNCTIONS = {
    "cmd": ma.cmd,
    "cmd of tensors": lambda s, t: ma.cmd(torch.tensor(s), torch.tensor(t)),
    "cmd, unbiased": lambda s, t: ma.cmd(s, t, unbiased=True),
    "cv-cmd": lambda s, t: ma.cmd(s, t, cross=2),
    "cmd, cross 3": lambda s, t: ma.cmd(s, t, cross=3),
    "cmd_terms": ma.cmd_terms,
    "CMDLoss": lambda s, t: ma.CMDLoss()(torch.tensor(s), torch.tensor(t)),
    "CMDLoss, gradient": _backward,
    "coral": ma.coral,
    "mmd, quartic": lambda s, t: ma.mmd(s, t, kernel="polynomial"),
    "Moments": lambda s, t: ma.Moments().update(s).cmd(ma.Moments().update(t)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize(("dtype", "size"), [(np.float32, 1e30), (np.float64, 1e100), (np.float64, 1e300)])
def test_powers_that_overflow_are_an_error_not_infinity(rng, name, dtype, size):
    source, target = (rng.random((rows, 3)) ** power * size for rows, power in ((50, 1), (40, 2)))
    source, target = source.astype(dtype), target.astype(dtype)
    if name == "Moments" and dtype is np.float32:  # they count in float64, where fifth powers of 1e30 have room
        assert np.isfinite(FUNCTIONS[name](source, target))
        return
    with pytest.raises(InvalidInputError, match=r"overflow .*(scale them|lower)"):
        FUNCTIONS[name](source, target)


@pytest.mark.parametrize("size", [1e30, 1e100, 1e300])
def test_a_diagnosis_of_huge_values_is_finite(rng, size):
    """Each feature is brought to its own range, so there is nothing to overflow."""
    found = ma.diagnose(rng.random((50, 3)) * size, rng.random((40, 3)) ** 2 * size, n_permutations=19, random_state=0)
    text = repr(found.to_dict())
    assert not re.search(r"\b(nan|inf)\b", text)


def test_the_range_of_the_values_is_the_remedy_that_was_named(rng):
    source, target = rng.random((50, 3)), rng.random((40, 3)) ** 2
    expected = ma.cmd(source, target)
    assert ma.cmd(1e100 * source, 1e100 * target, interval=(0.0, 1e100)) == pytest.approx(expected, rel=1e-12)
