import pytest
import torch

import momentalign as ma
from momentalign.discrepancies import cross_moments
from momentalign.discrepancies._cpu import add_kernels, slopes_in_place
from momentalign.discrepancies.cross_moments import (
    _kernel_squares,
    cross_variance_norm,
    monomial_norms,
    symmetric_polynomials,
)
from momentalign.moments.sample import monomials


@pytest.fixture(params=["listed", "kernel"])
def both_paths(request, monkeypatch):
    monkeypatch.setattr(cross_moments, "LISTED", 0 if request.param == "kernel" else 10**9)
    return request.param


def _value_and_gradients(source, target, cross):
    source, target = source.clone().requires_grad_(), target.clone().requires_grad_()
    terms = ma.cmd_terms(source, target, n_moments=6, cross=cross)
    return terms, *torch.autograd.grad(terms.sum(), (source, target))


@pytest.mark.parametrize("order", [1, 2, 3, 4, 5])
def test_the_kernel_is_the_inner_product_of_monomials(pair, order):
    left, right = pair(4, 6, 3)
    expected = monomials(left, order) @ monomials(right, order).T
    torch.testing.assert_close(symmetric_polynomials(left, right, 5)[order], expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("cross", [3, 4, 5, 6])
def test_both_paths_give_one_value_and_one_gradient(pair, monkeypatch, cross):
    source, target = pair(9, 7, 4)
    monkeypatch.setattr(cross_moments, "LISTED", 10**9)
    listed = _value_and_gradients(source, target, cross)
    monkeypatch.setattr(cross_moments, "LISTED", 0)
    kernel = _value_and_gradients(source, target, cross)
    for left, right in zip(listed, kernel, strict=True):
        torch.testing.assert_close(left, right, rtol=1e-10, atol=1e-10)
    assert not all(torch.equal(left, right) for left, right in zip(listed, kernel, strict=True))  # two paths indeed


@pytest.mark.usefixtures("both_paths")
@pytest.mark.parametrize("cross", [3, 4])
def test_both_paths_match_exact_fractions(pair, oracle, cross):
    source, target = pair(5, 4, 2)
    expected = oracle.cmd_terms(oracle.exact(source.tolist()), oracle.exact(target.tolist()), 6, cross=cross)
    terms = ma.cmd_terms(source, target, n_moments=6, cross=cross)
    torch.testing.assert_close(terms, terms.new_tensor(expected), rtol=1e-10, atol=1e-12)


@pytest.mark.usefixtures("both_paths")
def test_both_paths_pass_gradcheck(pair):
    source, target = pair(4, 3, 2, grad=True)
    assert torch.autograd.gradcheck(
        lambda s, t: ma.cmd(s, t, n_moments=4, cross=4), (source, target), atol=1e-8, rtol=1e-6
    )


@pytest.mark.usefixtures("both_paths")
def test_both_paths_can_be_differentiated_again(pair):
    source, target = pair(3, 4, 2, grad=True)
    weights = torch.tensor([1.0, -2.0, 3.0, 0.5]).double()
    assert torch.autograd.gradgradcheck(
        lambda s, t: (weights * ma.cmd_terms(s, t, n_moments=4, cross=4)).sum(), (source, target), atol=1e-6, rtol=1e-5
    )


@pytest.mark.usefixtures("both_paths")
@pytest.mark.parametrize("cross", [3, 4])
def test_both_paths_are_silent_on_permuted_float64_rows(pair, rng, cross):
    source, _ = pair(30, 1, 4)
    source.requires_grad_()
    value = ma.cmd(source, source.detach()[rng.permutation(30)], cross=cross)
    value.backward()
    assert value == 0.0
    assert not source.grad.any()


@pytest.mark.parametrize("listed", [10**9, 25 * 10, 0])
def test_orders_past_the_limit_come_from_the_kernel_in_place(pair, monkeypatch, listed):
    source, target = (sample - sample.mean(0) for sample in pair(6, 4, 4))
    monkeypatch.setattr(cross_moments, "LISTED", listed)
    expected = [(monomials(source, j).mean(0) - monomials(target, j).mean(0)).norm() for j in range(2, 6)]
    torch.testing.assert_close(monomial_norms(source, target, 5), torch.stack(expected), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("listed", "orders"), [(199, []), (200, [3]), (559, [3, 4]), (560, [3, 4, 5])])
def test_monomials_are_listed_while_they_are_few(pair, monkeypatch, listed, orders):
    """Of 10 rows and 4 features there are 10 times 20, 35 and 56 numbers of orders 3, 4 and 5."""
    source, _ = pair(5, 1, 4)
    source = source - source.mean(0)
    monkeypatch.setattr(cross_moments, "LISTED", listed)
    found = monomial_norms(source, source * (1 + 1e-10), 5)  # the kernel's square knows half the digits
    assert [order for order in (3, 4, 5) if found[order - 2] > 0] == orders


@pytest.mark.parametrize(("width", "by_covariances"), [(5, True), (6, True), (7, False), (50, False)])
def test_the_smaller_matrices_give_the_cross_variances(pair, width, by_covariances):
    """Those of the features or, for fewer rows, those of the rows, whose square knows half the digits."""
    source, _ = pair(3, 1, width)
    source = source - source.mean(0)
    assert (cross_variance_norm(source, source * (1 + 1e-10)) > 0) == by_covariances
    assert cross_variance_norm(source, source * (1 + 1e-5)) > 0


@pytest.mark.parametrize(("rows", "others", "width"), [(3, 4, 8), (1, 5, 9), (6, 2, 40)])
def test_fewer_rows_than_features_have_the_same_cross_variances(pair, rows, others, width):
    source, target = (sample - sample.mean(0) for sample in pair(rows, others, width))
    expected = (monomials(source, 2).mean(0) - monomials(target, 2).mean(0)).norm()
    torch.testing.assert_close(cross_variance_norm(source, target), expected, rtol=1e-12, atol=0.0)
    single = cross_variance_norm(target.float(), target.float() * (1 + 1e-4))
    assert single.dtype == torch.float32
    assert single > 0


@pytest.mark.parametrize("width", [3, 20])
@pytest.mark.usefixtures("both_paths")
def test_a_stack_is_treated_pair_by_pair(rng, width):
    """Noise of one pair is none of another, also where features are more than rows."""
    sizes = torch.tensor([1.0, 1e-3]).double()[:, None, None]
    source, target = sizes * torch.tensor(rng.random((2, 6, width))), sizes * torch.tensor(rng.random((2, 5, width)))
    source, target = source - source.mean(-2, keepdim=True), target - target.mean(-2, keepdim=True)
    expected = [monomial_norms(*both, 4) for both in zip(source, target, strict=True)]
    found = monomial_norms(source, target, 4)
    torch.testing.assert_close(found, torch.stack(expected), rtol=1e-9, atol=0.0)
    assert found.min() > 0.0


def test_float32_goes_through_the_kernel_with_four_digits(pair, monkeypatch):
    source, target = pair(20, 30, 4)
    expected = ma.cmd_terms(source, target, cross=5)
    monkeypatch.setattr(cross_moments, "LISTED", 0)
    terms = ma.cmd_terms(source.float(), target.float(), cross=5)
    assert terms.dtype == torch.float32
    torch.testing.assert_close(terms.double(), expected, rtol=1e-4, atol=0)


def test_the_kernel_is_silent_on_permuted_float32_rows(rng, monkeypatch):
    monkeypatch.setattr(cross_moments, "LISTED", 0)
    noisy = 0
    for _ in range(60):
        source = torch.tensor(100 * rng.random((3, 5)).clip(0.5), dtype=torch.float32)
        noisy += (
            ma.cmd(source, source[rng.permutation(3)].repeat(3, 1), n_moments=4, cross=4, interval=(0, 100)).item()
            != 0.0
        )
    assert noisy == 0


def _joined(rows, others, width):
    generator = torch.Generator().manual_seed(rows + others)
    joined = torch.rand(rows + others, width, generator=generator, dtype=torch.float64) - 0.5
    return joined, torch.cat([torch.full((rows,), 1.0 / rows), torch.full((others,), -1.0 / others)]).double()


@pytest.mark.parametrize("tile", [1, 40, 100, 2**16])
@pytest.mark.parametrize("highest", [2, 3, 5, 7])
def test_tiles_give_the_whole_kernel(monkeypatch, tile, highest):
    joined, signs = _joined(9, 14, 4)
    monkeypatch.setattr(cross_moments, "CPU_TILE", tile)
    squares, own = cross_moments._squares_and_sizes(joined, signs, highest)
    leaf = joined.clone().requires_grad_()
    expected, sizes = _kernel_squares(leaf, signs, highest)
    torch.testing.assert_close(squares, expected.detach(), rtol=1e-12, atol=1e-15)
    torch.testing.assert_close(own, sizes, rtol=1e-12, atol=1e-15)
    upstream = torch.linspace(-1.0, 2.0, highest - 1, dtype=torch.float64)
    (slopes,) = torch.autograd.grad(expected, leaf, upstream)
    found = cross_moments._squares_gradient(joined, signs, highest, upstream)
    torch.testing.assert_close(found, slopes, rtol=1e-11, atol=1e-15)


def test_squares_are_those_of_listed_monomials():
    joined, signs = _joined(20, 30, 5)
    squares, _ = cross_moments._squares_and_sizes(joined, signs, 6)
    listed = [(signs @ monomials(joined, order)).square().sum() for order in range(2, 7)]
    torch.testing.assert_close(squares, torch.stack(listed), rtol=1e-10, atol=1e-16)


@pytest.mark.parametrize("known", [1, 3, 4])
def test_loops_and_torch_agree_on_a_tile(known):
    generator = torch.Generator().manual_seed(known)
    grams = torch.rand(known, 6, 11, generator=generator, dtype=torch.float64)
    signs = torch.rand(6, generator=generator, dtype=torch.float64) - 0.5
    weights = torch.rand(known + 2, generator=generator, dtype=torch.float64)
    sums, own = torch.zeros(2, known + 2, 11).double(), torch.zeros(2, known + 2, 6).double()
    add_kernels(grams.numpy(), signs.numpy(), sums[0].numpy(), own[0].numpy())
    cross_moments._add_kernels_in_torch(grams, signs, sums[1], own[1])
    torch.testing.assert_close(sums[0], sums[1], rtol=1e-13, atol=1e-15)
    torch.testing.assert_close(own[0], own[1], rtol=1e-13, atol=1e-15)
    slopes = [grams.clone(), grams.clone()]
    slopes_in_place(slopes[0].numpy(), weights.numpy())
    cross_moments._slopes_in_torch(slopes[1], weights)
    torch.testing.assert_close(slopes[0], slopes[1], rtol=1e-13, atol=1e-15)


def test_other_devices_take_torch():
    """A device without values stands for them."""
    joined, signs = (tensor.to("meta") for tensor in _joined(9, 14, 4))
    squares, own = cross_moments._squares_and_sizes(joined, signs, 5)
    gradient = cross_moments._squares_gradient(joined, signs, 5, torch.ones(4, dtype=torch.float64, device="meta"))
    assert [(found.shape, found.device.type) for found in (squares, own, gradient)] == [
        ((4,), "meta"),
        ((4,), "meta"),
        ((23, 4), "meta"),
    ]


@pytest.mark.gpu
def test_on_a_gpu_as_on_the_cpu():
    joined, signs = _joined(40, 50, 7)
    expected = [*cross_moments._squares_and_sizes(joined, signs, 5)]
    expected.append(cross_moments._squares_gradient(joined, signs, 5, torch.ones(4).double()))
    found = [*cross_moments._squares_and_sizes(joined.cuda(), signs.cuda(), 5)]
    found.append(cross_moments._squares_gradient(joined.cuda(), signs.cuda(), 5, torch.ones(4).double().cuda()))
    for left, right in zip(found, expected, strict=True):
        torch.testing.assert_close(left.cpu(), right, rtol=1e-11, atol=1e-15)
