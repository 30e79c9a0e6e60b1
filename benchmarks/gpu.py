"""Figures on a GPU: ``python -m benchmarks.gpu [--out FILE]``; results are kept in benchmarks/results.

The bound is what the memory allows: one read for the moments, one read and one write for the gradient of both samples,
which is the traffic of three copies of one of them.
"""

from __future__ import annotations

import argparse
import itertools
import json
import platform
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import momentalign as ma
from benchmarks.distances import eager_cmd, step
from benchmarks.figure import Figure
from momentalign.networks.shallow import outputs
from momentalign.paper.grouped import train_tasks
from momentalign.paper.problems import CATEGORIES, load_reviews
from momentalign.training.config import NetworkSpec, Task, TrainingConfig


def milliseconds(function: Callable[[], object], *, repeats: int = 30) -> float:
    """Median time of a function on the device, warmed up."""
    for _ in range(5):
        function()
    torch.cuda.synchronize()
    times = []
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        function()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return sorted(times)[len(times) // 2]


def a_call(function: Callable[[], object], *, calls: int = 100, repeats: int = 5) -> float:
    """Median milliseconds of a call among many that follow each other, as in training: nobody waits for the device."""

    def many() -> None:
        for _ in range(calls):
            function()

    return milliseconds(many, repeats=repeats) / calls


def copies(source: Tensor, target: Tensor) -> Callable[[], None]:
    """Three copies of an array: the traffic of reading two arrays twice and writing two."""
    out = torch.empty_like(source)
    plain = (source.detach(), target.detach(), source.detach())

    def run() -> None:
        for sample in plain:
            out.copy_(sample)

    return run


def samples(rows: int, width: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """Two random samples that want gradients."""
    source = torch.rand(rows, width, device="cuda").to(dtype).requires_grad_()
    return source, torch.rand(rows, width, device="cuda").square().to(dtype).requires_grad_()


def large(rows: int, width: int) -> Iterator[Figure]:
    """The fused CMD at a large shape against the bound, eager torch and torch.compile, and its memory."""
    name = f"cmd {rows} x {width}"
    source, target = samples(rows, width)
    bound = milliseconds(copies(source, target))
    fused = milliseconds(step(ma.cmd, source, target))
    source.grad = target.grad = None
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    step(ma.cmd, source, target)()
    extra = torch.cuda.max_memory_allocated() - before - 2 * source.numel() * 4
    plain = milliseconds(step(eager_cmd, source, target), repeats=10)
    compiled = milliseconds(step(torch.compile(eager_cmd), source, target), repeats=10)
    yield Figure("gpu", f"{name}, ms", fused)
    yield Figure("gpu", f"{name}, over three copies", fused / bound, at_most=1.5)
    yield Figure("gpu", f"{name}, eager over fused", plain / fused, at_least=10.0)
    yield Figure("gpu", f"{name}, torch.compile over fused", compiled / fused, at_least=3.0)
    yield Figure("gpu", f"{name}, memory beyond gradients over data", extra / (8 * source.numel()), at_most=0.01)
    half = tuple(x.detach().bfloat16().requires_grad_() for x in (source, target))
    yield Figure(
        "gpu", f"{name}, bfloat16 over three copies", milliseconds(step(ma.cmd, *half)) / milliseconds(copies(*half))
    )


class _Nothing(torch.autograd.Function):
    """What torch itself takes for a function with two gradients: nothing can be faster."""

    @staticmethod
    def forward(ctx: Any, source: Tensor, target: Tensor) -> Tensor:
        ctx.save_for_backward(source, target)
        return torch.empty((), device=source.device)

    @staticmethod
    def backward(ctx: Any, _: Tensor) -> tuple[Tensor, Tensor]:
        source, target = ctx.saved_tensors
        return torch.empty_like(source), torch.empty_like(target)


def small() -> Iterator[Figure]:
    """Launch overhead at 128 x 256, by itself and in a graph."""
    source, target = samples(128, 256)
    yield Figure("gpu", "cmd 128 x 256, ms", a_call(step(ma.cmd, source, target)), at_most=0.2)
    yield Figure("gpu", "an autograd function that does nothing, ms", a_call(step(_Nothing.apply, source, target)))
    yield Figure("gpu", "cmd 128 x 256, eager, ms", a_call(step(eager_cmd, source, target)))
    yield Figure(
        "gpu", "cmd 128 x 256, compiled, ms", milliseconds(step(torch.compile(eager_cmd), source, target), repeats=100)
    )
    graph = torch.cuda.CUDAGraph()
    source.grad = target.grad = None
    with torch.cuda.graph(graph):
        ma.cmd(source, target).backward()
    yield Figure("gpu", "cmd 128 x 256 in a CUDA graph, ms", a_call(graph.replay), at_most=0.2)


def digits_network() -> nn.Module:
    """The network of Section 6.5: three blocks of two convolutions, a tanh embedding of 128 units."""
    layers: list[nn.Module] = []
    for inputs, channels in ((3, 32), (32, 64), (64, 128)):
        layers += [nn.Conv2d(inputs, channels, 3, padding=1), nn.ELU()]
        layers += [nn.Conv2d(channels, channels, 3, padding=1), nn.ELU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(128 * 16, 128), nn.Tanh()).cuda()


def training_step() -> Iterator[Figure]:
    """What the CMD adds to a training step of the digits network, batch 256 + 256, both domains through the network."""
    body, head = digits_network(), nn.Linear(128, 10).cuda()
    optimizer = torch.optim.Adam([*body.parameters(), *head.parameters()], fused=True)
    images = torch.rand(512, 3, 32, 32, device="cuda")
    labels = torch.randint(10, (256,), device="cuda")
    align = ma.CMDLoss(interval=(-1.0, 1.0))

    def update(*, aligned: bool) -> None:
        hidden = body(images)
        loss = nn.functional.cross_entropy(head(hidden[:256]), labels) + 0.0 * hidden[256:].mean()
        if aligned:
            loss = loss + align(hidden[:256], hidden[256:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    with_cmd, without = [], []
    for _ in range(7):
        without.append(a_call(lambda: update(aligned=False), calls=40, repeats=3))
        with_cmd.append(a_call(lambda: update(aligned=True), calls=40, repeats=3))
    plain, aligned = sorted(without)[3], sorted(with_cmd)[3]
    yield Figure("gpu", "digits network, training step without CMD, ms", plain)
    yield Figure("gpu", "digits network, step with CMD over without", aligned / plain, at_most=1.03)


def sentiment() -> Iterator[Figure]:
    """All 12 tasks x 10 seeds of CMD on the reviews (Section 6.3) in one process, from arrays in memory to weights."""
    reviews = load_reviews()
    random = np.random.default_rng(0)
    order = {name: random.permutation(2000) for name in CATEGORIES}
    tasks, tests = [], []
    for source, target in itertools.permutations(CATEGORIES, 2):
        rows, labels = reviews.rows[source][order[source]], reviews.labels[source][order[source]]
        others = reviews.rows[target][order[target]][:1400]
        tasks.append(Task(rows[:1400], labels[:1400], others, 2, rows[1400:], labels[1400:]))
        tests.append((reviews.rows[target][2000:], reviews.labels[target][2000:]))
    members = [NetworkSpec(seed, 1.0, ma.CMDLoss()) for seed in range(10)]
    train_tasks(tasks[:2], TrainingConfig(max_epochs=2), [members] * 2, device="cuda")  # Libraries load on first use.
    torch.cuda.synchronize()
    began = time.perf_counter()
    trained = train_tasks(tasks, TrainingConfig(initializer="lecun_uniform"), [members] * len(tasks), device="cuda")
    seconds = time.perf_counter() - began
    accuracies = [
        (outputs(network.layers, rows).argmax(1) == labels).mean()
        for networks, (rows, labels) in zip(trained, tests, strict=True)
        for network in networks
    ]
    yield Figure("gpu", "sentiment, 12 tasks x 10 seeds of CMD, s", seconds, at_most=3.0)
    yield Figure("gpu", "sentiment, mean target accuracy, %", 100 * float(np.mean(accuracies)))
    yield Figure("gpu", "sentiment, epochs of the slowest network", max(n.n_epochs for group in trained for n in group))


def figures() -> Iterator[Figure]:
    """Yield all GPU figures."""
    yield from small()
    yield from sentiment()
    yield from large(200_000, 1024)
    yield from large(1_000_000, 512)
    yield from training_step()


def machine() -> dict[str, str]:
    """What the figures were measured on."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()  # noqa: S607
    return {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "commit": commit,
    }


def main() -> int:
    """Print every figure and, with --out, keep them with the machine they were measured on."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--commit", default="")
    arguments = parser.parse_args()
    found = []
    for figure in figures():
        print(figure.line(), flush=True)
        found.append(figure)
    if arguments.out:
        described = {**machine(), "command": "python -m benchmarks.gpu"}
        described["commit"] = arguments.commit or described["commit"]
        described_figures = [json.loads(figure.line()) for figure in found]
        arguments.out.write_text(json.dumps({**described, "figures": described_figures}, indent=1) + "\n")
    return int(not all(figure.passed for figure in found))


if __name__ == "__main__":
    raise SystemExit(main())
