import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

import momentalign as ma

TIGHT = {"atol": 1e-8, "rtol": 1e-6}
CMD_SETTINGS = [
    *({"n_moments": order} for order in range(1, 11)),
    *({"n_moments": order, "cross": 2} for order in (2, 3, 5, 10)),
    *({"n_moments": 5, "cross": cross} for cross in (3, 4, 5)),
    {"interval": (-1, 1)},
]
UNBIASED = [{"n_moments": 3, "unbiased": True}, {"n_moments": 3, "cross": 2, "unbiased": True}]
MMD_SETTINGS = [
    {"beta": 1.0},
    {"kernel": "gaussians", "beta": 0.5},
    {"beta": [0.5, 2.0], "unbiased": True},
    {"kernel": "polynomial", "degree": 3},
    {"kernel": "polynomial", "unbiased": True},
    {"kernel": "linear"},
    {"beta": 1.0, "linear_time": True},
]
CASES = [
    *((ma.cmd, settings) for settings in CMD_SETTINGS + UNBIASED),
    *((ma.mmd, settings) for settings in MMD_SETTINGS),
    (ma.coral, {}),
]
SMOOTH = [
    (ma.cmd, {"n_moments": 3}),
    (ma.cmd, {"n_moments": 4, "cross": 2}),
    (ma.cmd, {"n_moments": 3, "cross": 3}),
    (ma.cmd, {"n_moments": 2, "unbiased": True, "cross": 2}),
    (ma.mmd, {}),
    (ma.mmd, {"kernel": "polynomial"}),
    (ma.coral, {}),
]


def _of(function, settings):
    return lambda source, target: function(source, target, **settings)


@pytest.mark.parametrize(("function", "settings"), CASES)
def test_first_derivatives(pair, function, settings):
    rows = 6 if settings.get("unbiased") else 4
    assert gradcheck(_of(function, settings), pair(rows, rows + 1, 2, grad=True), **TIGHT)


@pytest.mark.parametrize(
    "settings", [*({"n_moments": k} for k in range(1, 6)), {"n_moments": 3, "cross": 2}, {"n_moments": 3, "cross": 3}]
)
def test_second_derivatives(pair, settings):
    assert gradgradcheck(_of(ma.cmd, settings), pair(3, 4, 2, grad=True), atol=1e-6, rtol=1e-5)


def test_single_rows_have_the_gradient_of_their_distance():
    source, target = torch.tensor([[0.0, 0.0]], requires_grad=True), torch.tensor([[0.3, 0.4]])
    value = ma.cmd(source, target)
    value.backward()
    torch.testing.assert_close(value, torch.tensor(0.5))
    torch.testing.assert_close(source.grad, torch.tensor([[-0.6, -0.8]]))


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")  # torch.func.jvp's own.
@pytest.mark.parametrize(("function", "settings"), SMOOTH)
def test_function_transforms_agree_with_autograd(pair, function, settings):
    source, target = pair(5, 4, 2, grad=True)
    distance = _of(function, settings)
    gradient = torch.autograd.grad(distance(source, target), source)[0]
    source, target = source.detach(), target.detach()
    torch.testing.assert_close(torch.func.grad(distance)(source, target), gradient, rtol=1e-12, atol=1e-14)
    direction = torch.linspace(-1, 1, 10, dtype=torch.float64).view(5, 2)
    _, slope = torch.func.jvp(lambda s: distance(s, target), (source,), (direction,))
    torch.testing.assert_close(slope, (gradient * direction).sum(), rtol=1e-11, atol=1e-13)
    hessian = torch.func.hessian(distance)(source, target)
    expected = torch.autograd.functional.hessian(lambda s: distance(s, target), source)
    torch.testing.assert_close(hessian, expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(("function", "settings"), SMOOTH)
def test_vmap_agrees_with_a_loop(rng, function, settings):
    source, target = torch.tensor(rng.random((3, 6, 2))), torch.tensor(rng.random((3, 5, 2)))
    expected = torch.stack([function(s, t, **settings) for s, t in zip(source, target, strict=True)])
    torch.testing.assert_close(torch.vmap(_of(function, settings))(source, target), expected, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("cross", [1, 2, 3])
@pytest.mark.parametrize("order", [3, 5])
def test_float32_gradients_have_four_digits(pair, order, cross):
    source, target = pair(40, 50, 4)
    exact, rounded = (
        torch.func.grad(lambda s, t: ma.cmd(s, t, n_moments=order, cross=cross))(source.to(dtype), target.to(dtype))
        for dtype in (torch.float64, torch.float32)
    )
    torch.testing.assert_close(rounded.double(), exact, rtol=1e-4, atol=1e-4 * exact.abs().max().item())


@pytest.mark.parametrize("settings", [{}, {"cross": 2}])
def test_autocast_does_not_lower_the_precision(pair, settings):
    source, target = pair(50, 40, 4, dtype=torch.float32)
    expected = ma.cmd(source, target, **settings)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(ma.cmd(source, target, **settings), expected, rtol=1e-6, atol=0)
