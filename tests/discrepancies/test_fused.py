"""The compiled CMD is the plain one: values, gradients, second derivatives, precision; it is chosen by layout alone."""

from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import pytest
import torch

import momentalign as ma
from momentalign import errors
from momentalign.discrepancies import fused
from momentalign.discrepancies._cpu import CPUBackend, _Buffers
from momentalign.discrepancies.central_moment import stacked_terms
from momentalign.discrepancies.fused import SMALL, _backend, differentiable_terms, fast_terms, is_ordinary
from momentalign.moments.loops import compiled, reordered


def samples_of(rows=301, other=203, width=37, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    source = torch.rand(rows, width, generator=generator, dtype=dtype).requires_grad_()
    target = torch.rand(other, width, generator=generator, dtype=dtype).square().requires_grad_()
    return source, target


def value_and_gradient(function, source, target):
    terms = function(source, target)
    weights = torch.linspace(1.0, 2.0, len(terms), dtype=terms.dtype)
    return terms.detach(), torch.autograd.grad((terms * weights).sum(), (source, target))


@pytest.mark.parametrize("order", [1, 2, 3, 4, 5, 6, 10])
@pytest.mark.parametrize("shape", [(301, 203, 37), (1, 7, 3), (600, 300, 513), (5, 1, 300)])
def test_fused_equals_plain_in_float64(order, shape):
    source, target = samples_of(*shape)
    plain, plain_gradients = value_and_gradient(lambda s, t: stacked_terms(s, t, order, scale=2.0), source, target)
    found, found_gradients = value_and_gradient(
        lambda s, t: differentiable_terms(CPUBackend(), s, t, order, scale=2.0, summed=False, plain=stacked_terms),
        source,
        target,
    )
    torch.testing.assert_close(found, plain, rtol=1e-12, atol=1e-15)
    for left, right in zip(found_gradients, plain_gradients, strict=True):
        torch.testing.assert_close(left, right, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize(
    "make",
    [
        torch.sigmoid,
        torch.tanh,
        lambda x: 100 * torch.relu(x),
        lambda x: torch.sigmoid(x) + 1e4,
        lambda x: torch.sigmoid(1e-3 * x),
    ],
    ids=["sigmoid", "tanh", "relu of size 100", "offset 1e4", "nearly constant"],
)
def test_float32_keeps_five_digits_of_the_value_and_four_of_the_gradient(make):
    generator = torch.Generator().manual_seed(1)
    source = make(torch.randn(2000, 64, generator=generator)).requires_grad_()
    target = make(1.2 * torch.randn(1500, 64, generator=generator) + 0.3).requires_grad_()
    exact_source, exact_target = (x.detach().double().requires_grad_() for x in (source, target))
    value = ma.cmd(source, target)
    exact = stacked_terms(exact_source, exact_target, 5).sum()
    assert abs(value.item() / exact.item() - 1) < 1e-5
    gradients = torch.autograd.grad(value, (source, target))
    for left, right in zip(gradients, torch.autograd.grad(exact, (exact_source, exact_target)), strict=True):
        assert (left.double() - right).norm() < 1e-4 * right.norm()


def test_public_function_takes_the_fused_path_for_ordinary_tensors(monkeypatch):
    calls = []
    source, target = samples_of(dtype=torch.float32)
    monkeypatch.setattr(fused, "differentiable_terms", record(calls))
    ma.cmd(source, target)
    assert calls == [1]
    ma.cmd(source[:, ::2], target[:, ::2])  # strided
    torch.vmap(lambda s, t: ma.cmd(s, t))(source[None], target[None])
    with torch.autograd.forward_ad.dual_level():
        ma.cmd(source, target)
    ma.cmd(source[:2, :2].contiguous(), target[:2, :2].contiguous())  # small
    assert calls == [1]


def record(calls):
    def recording(backend, source, target, n_moments, *, scale, summed, plain):
        calls.append(1)
        return plain(source, target, n_moments, scale=scale).sum()

    return recording


def test_gradient_of_the_gradient_goes_through_plain_torch():
    source, target = samples_of(40, 30, 40)
    assert source.numel() + target.numel() >= SMALL
    gradient = torch.autograd.grad(ma.cmd(source, target), source, create_graph=True)[0]
    second = torch.autograd.grad(gradient.square().sum(), (source, target))
    plain = torch.autograd.grad(stacked_terms(source, target, 5).sum(), source, create_graph=True)[0]
    expected = torch.autograd.grad(plain.square().sum(), (source, target))
    for left, right in zip(second, expected, strict=True):
        torch.testing.assert_close(left, right, rtol=1e-8, atol=1e-14)


@pytest.mark.parametrize("alone", [False, True])
def test_gradients_of_weighted_terms_can_be_differentiated_again(alone):
    source, target = samples_of(9, 8, 3)
    wanted = (target,) if alone else (source, target)
    source.requires_grad_(not alone)
    terms = differentiable_terms(CPUBackend(), source, target, 4, scale=2.0, summed=False, plain=stacked_terms)
    results = []
    for values in (terms, stacked_terms(source, target, 4, scale=2.0)):
        weighted = (values * torch.tensor([1.0, -2.0, 3.0, 0.5]).double()).sum()
        slopes = torch.autograd.grad(weighted, target, create_graph=True)[0]
        results.append([slopes.detach(), *torch.autograd.grad(slopes.square().sum(), wanted)])
    for left, right in zip(*results, strict=True):
        torch.testing.assert_close(left, right, rtol=1e-8, atol=1e-14)


def test_only_the_wanted_gradient_is_computed():
    source, target = samples_of()
    ma.cmd(source, target.detach()).backward()
    assert source.grad is not None
    assert target.grad is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_no_gradient_where_samples_coincide_up_to_order(dtype):
    source, _ = samples_of(dtype=dtype)
    shuffled = source.detach()[torch.randperm(len(source), generator=torch.Generator().manual_seed(3))].requires_grad_()
    value = ma.cmd(source, shuffled)
    value.backward()
    assert value.item() == 0.0
    assert not source.grad.any()
    assert not shuffled.grad.any()


def test_arrays_and_half_precision_take_the_same_road():
    source, target = samples_of(dtype=torch.float32)
    arrays = ma.cmd(source.detach().numpy(), target.detach().numpy())
    assert arrays == pytest.approx(ma.cmd(source, target).item(), rel=1e-6)
    half = ma.cmd(source.detach().bfloat16(), target.detach().bfloat16())
    assert half.dtype == torch.float32
    assert half.item() == pytest.approx(arrays, rel=1e-2)


def test_nan_is_named():
    source, target = (x.detach() for x in samples_of())
    source[3, 4] = np.nan
    with pytest.raises(errors.InvalidInputError, match="source holds NaN"):
        ma.cmd(source, target)


@pytest.mark.parametrize("order", [2, 4, 5])
def test_overflow_is_named(order):
    _, target = (x.detach().float() for x in samples_of())
    with pytest.raises(errors.InvalidInputError, match="overflow"):
        ma.cmd(target * 1e30, target, n_moments=order)


def test_gradients_in_use_are_never_written_again():
    source, target = samples_of(1000, 900, 64, dtype=torch.float32)
    kept = []
    for factor in (1.0, 0.5, 0.25, 0.1, 0.9, 0.3):
        source.grad = target.grad = None
        (factor * ma.cmd(source, target)).backward()
        part = source.grad.view(-1)[::3] if factor < 0.5 else source.grad  # a view keeps its memory too
        kept.append((part, part.clone()))
    for gradient, copy in kept:
        torch.testing.assert_close(gradient, copy, rtol=0, atol=0)


def test_gradients_nobody_holds_are_taken_again():
    source, target = samples_of(1000, 900, 64, dtype=torch.float32)
    places = set()
    for _ in range(10):
        source.grad = target.grad = None
        ma.cmd(source, target).backward()
        places.add(source.grad.data_ptr())
    assert len(places) <= 2


def test_a_few_arrays_of_middle_size_are_kept():
    buffers, like = _Buffers(), np.ones((64, 64))
    held = [buffers.take(like) for _ in range(6)]
    places = [array.ctypes.data for array in held]
    assert len(set(places)) == 6
    held.clear()
    assert len(buffers._free) == 4
    assert {array.ctypes.data for array in buffers._free} <= set(places)
    assert buffers.take(like[:32]).shape == (32, 64)
    assert buffers.take(like.astype(np.float32)).dtype == np.float32


def test_memory_is_used_again_when_its_last_user_is_gone_whatever_counts_references():
    """A tensor, and a view of it, hold the memory; a name of the array does not have to."""
    buffers, like = _Buffers(), np.empty((64, 64))
    part = torch.from_numpy(buffers.take(like)).view(-1)[::3]
    place = part.data_ptr()
    assert buffers.take(like).ctypes.data != place
    del part
    assert buffers.take(like).ctypes.data == place


@pytest.mark.parametrize(("size", "kept"), [(2**14 - 1, False), (2**14, True), (2**22, True), (2**22 + 1, False)])
def test_small_and_large_arrays_are_not_kept(size, kept):
    buffers, like = _Buffers(), np.empty(size, np.uint8)
    found = buffers.take(like)
    assert (found.shape, found.dtype) == (like.shape, like.dtype)
    del found
    assert bool(buffers._free) is kept


def test_threads_do_not_share_a_gradient():
    def gradients(seed):
        source, target = samples_of(500, 400, 64, dtype=torch.float32, seed=seed)
        found = []
        for _ in range(30):
            source.grad = target.grad = None
            ma.cmd(source, target).backward()
            found.append(source.grad.clone())
        return all(torch.equal(found[0], other) for other in found)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(gradients, range(8)))


class Told(CPUBackend):
    """Compiled loops that remember what they were told."""

    def terms(self, source, target, order, scale, *, ahead=(False, False)):
        self.ahead = tuple(ahead)
        return super().terms(source, target, order, scale, ahead=ahead)

    def gradients(self, samples, statistics, upstream, order, scale, needed):
        self.needed = tuple(needed)
        self.found = super().gradients(samples, statistics, upstream, order, scale, needed)
        return self.found


@pytest.mark.parametrize("needed", [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("summed", [True, False])
def test_a_backend_is_told_which_gradients_will_be_asked_for(pair, needed, summed):
    samples = [sample.requires_grad_(need) for sample, need in zip(pair(), needed, strict=True)]
    backend = Told()
    found = differentiable_terms(backend, *samples, 3, scale=2.0, summed=summed, plain=stacked_terms)
    torch.testing.assert_close(found.sum(), stacked_terms(*samples, 3, scale=2.0).sum(), rtol=1e-12, atol=0.0)
    assert backend.ahead == (needed if summed else (False, False))
    found.sum().backward()
    assert backend.needed == needed
    assert [slope is not None for slope in backend.found] == list(needed)


def test_without_gradients_none_are_prepared(pair):
    backend = Told()
    source, target = pair(grad=True)
    with torch.no_grad():
        value = differentiable_terms(backend, source, target, 3, scale=2.0, summed=True, plain=stacked_terms)
    assert not value.requires_grad
    assert backend.ahead == (False, False)
    terms = differentiable_terms(
        backend, source.detach(), target.detach(), 3, scale=2.0, summed=False, plain=stacked_terms
    )
    torch.testing.assert_close(terms, stacked_terms(source, target, 3, scale=2.0).detach(), rtol=1e-12, atol=0.0)


class Elsewhere(NamedTuple):
    """What is looked at of a tensor on another device."""

    device: torch.device = torch.device("cuda")
    dtype: torch.dtype = torch.float32


def test_a_cpu_compiles_nothing_for_few_numbers():
    few, many = torch.ones(1, 1000), torch.ones(1, SMALL - 1000)
    for source, target in ((few, many), (many, few)):
        assert isinstance(_backend(source, target, 5), CPUBackend)
        assert isinstance(_backend(source.double(), target.double(), 10), CPUBackend)
        assert _backend(source, target[:, 1:], 5) is None


def test_a_gpu_has_kernels_for_five_moments_in_single_and_half_precision():
    pytest.importorskip("triton")
    from momentalign.discrepancies._triton import CUDABackend

    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        sample = Elsewhere(dtype=dtype)
        assert isinstance(_backend(sample, sample, 5), CUDABackend)
        assert isinstance(_backend(sample, sample, 1), CUDABackend)
        assert _backend(sample, sample, 6) is None
    assert _backend(Elsewhere(dtype=torch.float64), Elsewhere(dtype=torch.float64), 5) is None
    assert _backend(Elsewhere(torch.device("meta")), Elsewhere(torch.device("meta")), 5) is None


@pytest.mark.parametrize("index", [0, 1])
def test_both_samples_have_to_be_plain_contiguous_memory(index):
    samples = [torch.rand(60, 60), torch.rand(50, 60)]
    settings = {"scale": 1.0, "summed": True, "plain": stacked_terms}
    assert fast_terms(*samples, 5, **settings) is not None
    samples[index] = torch.rand(60, len(samples[index])).T
    assert not is_ordinary(samples[index])
    assert fast_terms(*samples, 5, **settings) is None


def test_what_is_ordinary():
    sample = torch.rand(4, 3)
    assert is_ordinary(sample)
    assert is_ordinary(torch.nn.Parameter(sample))
    assert not is_ordinary(sample.as_subclass(type("Kind", (torch.Tensor,), {})))
    seen = []
    torch.vmap(lambda row: seen.append(is_ordinary(row)) or row)(sample)
    with torch.autograd.forward_ad.dual_level():
        seen.append(is_ordinary(sample))
    assert seen == [False, False]


def quotient(one, other):
    return one / other


@pytest.mark.parametrize(("compile_it", "freedom"), [(compiled, {"contract"}), (reordered, {"contract", "reassoc"})])
def test_loops_take_no_more_freedom_than_they_say(compile_it, freedom):
    """Other threads run meanwhile, zero divides as in numpy, and what is compiled is kept beside its source."""
    found = compile_it(quotient)
    options = {"nogil": True, "error_model": "numpy", "fastmath": freedom}
    assert {name: found.targetoptions[name] for name in options} == options
    assert found.stats.cache_path is not None
    assert np.isinf(found(1.0, 0.0))
