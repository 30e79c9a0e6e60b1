"""Three kinds of digits as sources, the fourth as target: moments of every domain, on a GPU.

``python -m benchmarks.several_digits --data DIR --device cuda`` trains, for each of three targets, the network of
Section 6.5 of Zellinger et al. (2019) on each source alone with the CMD, on all three without and with the CMD as one
heap, and on all three as domains of their own, of equal weight and weighted by similarity (``multi_domain_cmd``), and
prints one JSON line per target. Every update has ``--batch-size`` rows of each domain. The settings are those of
``momentalign reproduce digits`` without its wider distance and its shares of classes; the bar: three sources of equal
weight beat the best single source, and the plain network on all three.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from momentalign.discrepancies.central_moment import cmd
from momentalign.discrepancies.several_domains import multi_domain_cmd
from momentalign.paper.digit_networks import (
    CLASSES,
    CONFIG,
    EMBEDDING_INTERVAL,
    WIDTH,
    DeviceBatches,
    DigitCNN,
    DigitConfig,
    accuracy_of,
)
from momentalign.paper.digits import digits_on_device

DOMAINS = ("mnist", "mnist-m", "svhn", "synth")
TARGETS = ("mnist", "mnist-m", "svhn")
TOGETHER = ("plain", "cmd", "several", "similar")
WEIGHT = 1.0 / math.sqrt(WIDTH)
Images = tuple[Tensor, Tensor]


def main() -> None:
    """Print one JSON line per target."""
    arguments = _arguments()
    config = DigitConfig(steps=arguments.steps, batch_size=arguments.batch_size, synth_size=arguments.synth_size)
    read = partial(digits_on_device, synth_size=config.synth_size, folder=arguments.data, device=arguments.device)
    for target in arguments.targets:
        started = time.perf_counter()
        sources = [name for name in DOMAINS if name != target]
        choices = [*([name] for name in sources), *[sources] * len(TOGETHER)]
        ways = ["cmd"] * len(sources) + list(TOGETHER)
        figures: dict[str, list[float]] = {}
        for seed in range(arguments.seeds):
            for chosen, way in zip(choices, ways, strict=True):
                trained = train([read(name, "train") for name in chosen], read(target, "train"), way, seed, config)
                name = f"{way}, {chosen[0] if len(chosen) == 1 else 'all'}"
                figures.setdefault(name, []).append(accuracy_of(trained, *read(target, "test")))
                print(f"to {target}: {name}, seed {seed}: {100 * figures[name][-1]:.2f} %", file=sys.stderr, flush=True)
        means = {name: round(100 * sum(values) / len(values), 2) for name, values in figures.items()}
        opponents = [value for name, value in means.items() if name == "plain, all" or not name.endswith(", all")]
        print(
            json.dumps(
                {
                    "name": f"digits, three sources to {target}",
                    "accuracy": means,
                    "seeds": arguments.seeds,
                    "seconds": round(time.perf_counter() - started),
                    "passed": means["several, all"] > max(opponents),
                }
            )
        )


def train(sources: Sequence[Images], target: Images, way: str, seed: int, config: DigitConfig) -> DigitCNN:
    """Train one network; every update has equally many rows of each domain."""
    torch.manual_seed(seed)
    device = target[0].device
    network = DigitCNN(CLASSES, WIDTH).to(device)
    network.to(memory_format=torch.channels_last)
    averaged = torch.optim.swa_utils.AveragedModel(
        network, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(config.decay), use_buffers=True
    )
    optimizer = torch.optim.Adam(network.parameters(), lr=config.learning_rate)
    size = config.batch_size
    streams = [_batches(images, size, config) for images in sources]
    unlabelled = _batches((target[0], None), size, config)
    for _ in range(config.steps):
        batches = [next(stream) for stream in streams]
        inputs = torch.cat([*(images for images, _ in batches), next(unlabelled)])
        inputs = inputs.contiguous(memory_format=torch.channels_last)
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            hidden = network.embedding(network.features(inputs))
            outputs = network.classifier(hidden[: size * len(sources)])
        loss = cross_entropy(outputs.float(), torch.cat([labels for _, labels in batches]))
        parts = list(hidden.float().split(size))
        loss = loss + WEIGHT * _distance(parts[:-1], parts[-1], way)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        averaged.update_parameters(network)
    return averaged.module.eval()


def _distance(sources: list[Tensor], target: Tensor, way: str) -> Tensor | float:
    if way == "plain":
        return 0.0
    if way in ("several", "similar"):
        weights = "equal" if way == "several" else "similarity"
        return multi_domain_cmd(sources, [target], interval=EMBEDDING_INTERVAL, domain_weights=weights)
    return cmd(torch.cat(sources), target, interval=EMBEDDING_INTERVAL)


def _batches(images: tuple[Tensor, Tensor | None], size: int, config: DigitConfig) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches without end: of a source changed and balanced, of the target as it is."""
    augmentation = None if images[1] is None else config.augmentation
    loader = DeviceBatches(*images, batch_size=size, augmentation=augmentation)
    while True:
        yield from loader


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=CONFIG.steps)
    parser.add_argument("--batch-size", type=int, default=CONFIG.batch_size)
    parser.add_argument("--synth-size", type=int, default=CONFIG.synth_size)
    parser.add_argument("--targets", nargs="+", default=list(TARGETS), choices=TARGETS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
