"""Which path computes the terms: by order, shape, layout, dtype and device alone."""

from typing import NamedTuple

import pytest
import torch

from momentalign.discrepancies._cpu import SMALL, CPUBackend, _backend, fast_terms, is_ordinary
from momentalign.discrepancies.central_moment import stacked_terms


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
    from momentalign.discrepancies._cuda import CUDABackend

    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        sample = Elsewhere(dtype=dtype)
        assert isinstance(_backend(sample, sample, 5), CUDABackend)
        assert isinstance(_backend(sample, sample, 1), CUDABackend)
        assert _backend(sample, sample, 6) is None
    assert _backend(Elsewhere(dtype=torch.float64), Elsewhere(dtype=torch.float64), 5) is None
    assert _backend(Elsewhere(torch.device("meta")), Elsewhere(torch.device("meta")), 5) is None


@pytest.mark.parametrize("place", [0, 1])
def test_both_samples_have_to_be_plain_contiguous_memory(place):
    samples = [torch.rand(60, 60), torch.rand(50, 60)]
    settings = {"scale": 1.0, "summed": True, "plain": stacked_terms}
    assert fast_terms(*samples, 5, **settings) is not None
    samples[place] = torch.rand(60, len(samples[place])).T
    assert not is_ordinary(samples[place])
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
