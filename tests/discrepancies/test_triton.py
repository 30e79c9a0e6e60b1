"""The Triton kernels compute the plain CMD; on machines without a GPU they run in Triton's interpreter."""

import os
import subprocess
import sys

import pytest
import torch

from momentalign.discrepancies.central_moment import stacked_terms
from momentalign.discrepancies.fused import differentiable_terms

pytest.importorskip("triton")

INTERPRETED = """
import torch
from momentalign.discrepancies._triton import CUDABackend
from momentalign.discrepancies.fused import differentiable_terms
from momentalign.discrepancies.central_moment import stacked_terms

SHAPES = ((70, 33, 130, 5), (1, 9, 3, 5), (40, 40, 5, 3), (50, 20, 4, 1), (33, 65, 7, 2), (900, 700, 300, 5))
generator = torch.Generator().manual_seed(0)
for dtype, digits in ((torch.float32, 1e-5), (torch.bfloat16, 2e-2), (torch.float16, 1e-2)):
    for rows, others, width, order in SHAPES:
        source = torch.rand(rows, width, generator=generator).to(dtype).requires_grad_()
        target = torch.rand(others, width, generator=generator).square().to(dtype).requires_grad_()
        fused = differentiable_terms(CUDABackend(), source, target, order, scale=2.0, summed=False, plain=stacked_terms)
        weights = torch.linspace(1.0, 2.0, order)
        gradients = torch.autograd.grad((fused * weights).sum(), (source, target))
        exact = [x.detach().double().requires_grad_() for x in (source, target)]
        terms = stacked_terms(*exact, order, scale=2.0)
        expected = torch.autograd.grad((terms * weights).sum(), exact)
        assert fused.dtype == torch.float32
        torch.testing.assert_close(fused.double(), terms, rtol=1e-5, atol=1e-9)
        for left, right in zip(gradients, expected):
            assert left.dtype == dtype
            assert (left.double() - right).norm() <= digits * right.norm(), (dtype, rows, order)
        if rows > 50 or order < 3:
            continue
        total = differentiable_terms(CUDABackend(), source, target, order, scale=2.0, summed=True, plain=stacked_terms)
        gradients = torch.autograd.grad(3.0 * total, (source, target), retain_graph=True)
        again = torch.autograd.grad(3.0 * total, (source, target))
        expected = torch.autograd.grad(3.0 * stacked_terms(*exact, order, scale=2.0).sum(), exact)
        for left, right, second in zip(gradients, expected, again):
            assert left.dtype == dtype and left.equal(second)
            assert (left.double() - right).norm() <= digits * right.norm(), (dtype, rows, order, "summed")
        (alone,) = torch.autograd.grad(
            differentiable_terms(
                CUDABackend(), source.detach(), target, order, scale=2.0, summed=True, plain=stacked_terms
            ),
            target,
        )
        assert (3.0 * alone.double() - expected[1]).norm() <= 2 * digits * expected[1].norm(), (dtype, rows, "alone")
same = torch.rand(40, 6, generator=generator).requires_grad_()
mixed = same.detach()[torch.randperm(40)]
terms = differentiable_terms(CUDABackend(), same, mixed, 5, scale=1.0, summed=False, plain=stacked_terms)
terms.sum().backward()
assert not terms.any() and not same.grad.any()
print("interpreted")
"""


def test_kernels_in_the_interpreter():
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    run = subprocess.run([sys.executable, "-c", INTERPRETED], env=environment, capture_output=True, text=True)
    assert run.stdout.strip().endswith("interpreted"), run.stderr[-3000:]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(128, 128, 256), (4097, 1000, 1000), (7, 3, 2), (200_000, 100_000, 64)])
@pytest.mark.parametrize("order", [1, 2, 3, 4, 5])
def test_kernels_on_a_gpu(dtype, shape, order):
    from momentalign.discrepancies._triton import CUDABackend

    rows, others, width = shape
    generator = torch.Generator("cuda").manual_seed(0)
    source = torch.rand(rows, width, generator=generator, device="cuda").to(dtype).requires_grad_()
    target = torch.rand(others, width, generator=generator, device="cuda").square().to(dtype).requires_grad_()
    fused = differentiable_terms(CUDABackend(), source, target, order, scale=2.0, summed=False, plain=stacked_terms)
    size = 1e4 if dtype == torch.float16 else 1.0  # the gradients of many rows are smaller than float16 can tell
    gradients = torch.autograd.grad(size * fused.sum(), (source, target))
    exact = [x.detach().double().requires_grad_() for x in (source, target)]
    terms = stacked_terms(*exact, order, scale=2.0)
    torch.testing.assert_close(fused.double(), terms, rtol=1e-5, atol=1e-9)
    digits = {torch.float32: 1e-4, torch.bfloat16: 1e-2, torch.float16: 1e-2}[dtype]
    total = differentiable_terms(CUDABackend(), source, target, order, scale=2.0, summed=True, plain=stacked_terms)
    of_total = torch.autograd.grad(size * total, (source, target))
    expected = torch.autograd.grad(size * terms.sum(), exact)
    for left, again, right in zip(gradients, of_total, expected, strict=True):
        assert (left.double() - right).norm() <= digits * right.norm()
        assert (again.double() - right).norm() <= digits * right.norm()


@pytest.mark.gpu
def test_public_function_is_capturable_in_a_graph():
    import momentalign as ma

    source = torch.rand(128, 256, device="cuda", requires_grad=True)
    target = torch.rand(128, 256, device="cuda", requires_grad=True)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            ma.cmd(source, target).backward()
    torch.cuda.synchronize()
    source.grad = target.grad = None
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        value = ma.cmd(source, target)
        value.backward()
    with torch.no_grad():
        source.copy_(torch.rand_like(source) ** 2)
    graph.replay()
    leaf = source.detach().clone().requires_grad_()
    exact = stacked_terms(leaf, target.detach(), 5).sum()
    torch.testing.assert_close(value, exact, rtol=1e-5, atol=0)
    torch.testing.assert_close(source.grad, torch.autograd.grad(exact, leaf)[0], rtol=1e-3, atol=1e-6)
