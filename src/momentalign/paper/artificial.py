"""The artificial example of Section 6.2: a network of 15 units, plain (NN) and with aligned moments (MANN).

A plain network trains for two thirds of the time; from there it continues plain, or with the CMD, for several seeds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from scipy.stats import ks_2samp

from momentalign.discrepancies.central_moment import CMDLoss, cmd_terms
from momentalign.errors import InvalidInputError
from momentalign.networks.shallow import Layer, activations, outputs
from momentalign.paper.problems import Problem
from momentalign.progress import EpochReport
from momentalign.training.config import NetworkSpec, Optimizer, OptimizerName, Task, TrainedNetwork, TrainingConfig
from momentalign.training.stack import train_stack

__all__ = ["OWN", "PAPER", "Pair", "Setting", "find_setting", "label_free_score", "run", "train"]

# What the paper prints, of one run.
PAPER_FIGURES = {"nn_accuracy": 0.867, "mann_accuracy": 0.997, "nn_units_different": 13, "mann_units_different": 5}
SIGNIFICANT = 0.01  # p-value below which two activation distributions count as different
POINTS = 100  # points of the training curves


@dataclass(frozen=True)
class Setting:
    """How the two networks are trained; the same for every seed.

    The first stage, `plain_epochs` with `optimizer`, is common to both networks. From there the MANN trains
    `aligned_epochs` with `aligned_optimizer`, and the NN as many with `optimizer`.
    """

    name: str
    description: str
    hidden: int = 15
    optimizer: OptimizerName = "adadelta"
    plain_epochs: int = 10_000
    aligned_epochs: int = 5_000
    aligned_optimizer: OptimizerName = "adadelta"
    aligned_learning_rate: float | None = None
    weight: float = 1.0
    n_moments: int = 5

    def plain_config(self) -> TrainingConfig:
        """Return how the NN trains, both stages in one; the weights at the end of the first are kept."""
        most = max(self.plain_epochs // POINTS, 1)
        step = max(divisor for divisor in range(1, most + 1) if self.plain_epochs % divisor == 0)
        return self._config(Optimizer(self.optimizer), self.plain_epochs + self.aligned_epochs, step)

    def aligned_config(self) -> TrainingConfig:
        """Return how the MANN trains in its own stage."""
        optimizer = Optimizer(self.aligned_optimizer, self.aligned_learning_rate)
        return self._config(optimizer, self.aligned_epochs, max(self.aligned_epochs // POINTS, 1))

    def _config(self, optimizer: Optimizer, epochs: int, step: int) -> TrainingConfig:
        """Full batches, no early stopping, the weights of every `step` epochs kept."""
        return TrainingConfig(
            hidden=(self.hidden,), optimizer=optimizer, batch_size=None, max_epochs=epochs, patience=None, keep="last",
            snapshot_every=step,
        )  # fmt: skip


PAPER = Setting("paper", "The paper's protocol: Adadelta with full batches throughout, CMD with weight 1.")
OWN = Setting(
    "momentalign",
    "The paper's first stage, then few steps of gradient descent with momentum and CMD with weight 3: of the "
    "candidates the one with the lowest label-free score.",
    aligned_epochs=300,
    aligned_optimizer="sgd",
    aligned_learning_rate=0.003,
    weight=3.0,
)
SETTINGS = (PAPER, OWN)


def find_setting(name: str) -> Setting:
    """Return the setting with that name, or say which there are."""
    for setting in SETTINGS:
        if setting.name == name:
            return setting
    raise InvalidInputError(f"setting must be one of {', '.join(s.name for s in SETTINGS)}, got {name!r}.")


@dataclass(frozen=True)
class Pair:
    """The two networks of one seed."""

    seed: int
    nn: TrainedNetwork
    mann: TrainedNetwork


def train(
    problem: Problem,
    setting: Setting,
    seeds: Iterable[int],
    *,
    progress: Callable[[EpochReport], None] | None = None,
) -> list[Pair]:
    """Train NN and MANN for each seed, each of the two as one stack; no target label is used."""
    task = Task(
        problem.source.astype(np.float32), problem.source_labels, problem.target.astype(np.float32), n_classes=3
    )
    seeds = list(seeds)
    plain, aligned = setting.plain_epochs, setting.aligned_epochs

    def after(earlier: int) -> Callable[[EpochReport], None] | None:
        """The progress of one stage as a part of the whole."""
        if progress is None:
            return None
        total = plain + 2 * aligned
        return lambda report: progress(report._replace(epoch=earlier + report.epoch, max_epochs=total))

    nns = train_stack(task, setting.plain_config(), [NetworkSpec(seed) for seed in seeds], n_jobs=-1, progress=after(0))
    specs = [
        NetworkSpec(seed, setting.weight, CMDLoss(setting.n_moments), initial=nn.snapshots[plain])
        for seed, nn in zip(seeds, nns, strict=True)
    ]
    manns = train_stack(task, setting.aligned_config(), specs, n_jobs=-1, progress=after(plain + aligned))
    return [Pair(*parts) for parts in zip(seeds, nns, manns, strict=True)]


def run(
    problem: Problem,
    setting: Setting,
    *,
    seeds: Iterable[int],
    data: str,
    data_seed: int | None = None,
    progress: Callable[[EpochReport], None] | None = None,
) -> dict[str, Any]:
    """Train and evaluate, and return plain JSON, which :mod:`~momentalign.paper.artificial_page` draws."""
    began = time.perf_counter()
    pairs = train(problem, setting, seeds, progress=progress)
    runs = [_figures(problem, setting, pair) for pair in pairs]
    median = {key: float(np.median([figures[key] for figures in runs])) for key in ("nn_accuracy", "mann_accuracy")}
    shown = pairs[int(np.argmin([abs(figures["mann_accuracy"] - median["mann_accuracy"]) for figures in runs]))]
    return {
        "kind": "artificial",
        "data": data,
        "data_seed": data_seed,
        "setting": asdict(setting),
        "source": _points(problem.source, problem.source_labels),
        "target": _points(problem.target, problem.target_labels),
        "runs": runs,
        "median": median,
        "sentence": _sentence(runs),
        "shown": _details(problem, setting, shown),
        "paper": PAPER_FIGURES if data == "authors" else None,
        "seconds": round(time.perf_counter() - began, 2),
        "versions": {name: version(name) for name in ("momentalign", "numpy", "scipy", "torch")},
    }


def _points(points: NDArray[np.float64], labels: NDArray[np.intp]) -> dict[str, Any]:
    return {"x": np.round(points, 4).tolist(), "y": labels.tolist()}


def _figures(problem: Problem, setting: Setting, pair: Pair) -> dict[str, Any]:
    figures: dict[str, Any] = {"seed": pair.seed}
    for name, network in (("nn", pair.nn), ("mann", pair.mann)):
        tests = _kolmogorov_smirnov(problem, network.layers)
        figures[f"{name}_accuracy"] = _accuracy(network.layers, problem.target, problem.target_labels)
        figures[f"{name}_units_different"] = int((tests.pvalue < SIGNIFICANT).sum())
        figures[f"{name}_cmd"] = float(_terms(problem, setting, network.layers).sum())
        figures[f"{name}_score"] = label_free_score(problem, network.layers)
    return figures


def label_free_score(problem: Problem, layers: list[Layer]) -> float:
    """Return how implausible the predictions on the target are, without its labels; smaller is better.

    The part of pairs of neighbouring target points (each with its 10 nearest) that are predicted to be of different
    classes, plus half the absolute difference between the predicted class shares and those of the source. It supposes
    that neighbours mostly share a class and that both domains have the classes in equal parts.
    """
    predicted = outputs(layers, problem.target).argmax(axis=1)
    nearest = np.asarray(cKDTree(problem.target).query(problem.target, k=11)[1])[:, 1:]
    disagreement = (predicted[nearest] != predicted[:, None]).mean()
    classes = int(problem.source_labels.max()) + 1
    found, expected = (np.bincount(codes, minlength=classes) for codes in (predicted, problem.source_labels))
    return float(disagreement + 0.5 * np.abs(found / found.sum() - expected / expected.sum()).sum())


def _details(problem: Problem, setting: Setting, pair: Pair) -> dict[str, Any]:
    split = setting.plain_epochs
    after = {split + epoch: layers for epoch, layers in pair.mann.snapshots.items()}
    return {
        "seed": pair.seed,
        "nn": _network(problem, setting, pair.nn.layers),
        "mann": _network(problem, setting, pair.mann.layers),
        "history": {
            "nn": _history(problem, setting, pair.nn.snapshots),
            "mann": _history(problem, setting, {split: pair.nn.snapshots[split], **after}),
        },
    }


def _network(problem: Problem, setting: Setting, layers: list[Layer]) -> dict[str, Any]:
    bottom, top = layers
    tests = _kolmogorov_smirnov(problem, layers)
    return {
        "weights": {
            name: np.round(values.astype(np.float64), 6).tolist()
            for name, values in (("W", bottom.weight), ("b", bottom.bias), ("V", top.weight), ("c", top.bias))
        },
        "accuracy_source": _accuracy(layers, problem.source, problem.source_labels),
        "accuracy_target": _accuracy(layers, problem.target, problem.target_labels),
        "cmd_terms": _terms(problem, setting, layers).tolist(),
        "ks_statistic": tests.statistic.tolist(),
        "ks_pvalue": tests.pvalue.tolist(),
    }


def _history(problem: Problem, setting: Setting, snapshots: dict[int, list[Layer]]) -> dict[str, list[float]]:
    """Losses, distance and accuracies along the way; the target's labels serve for this display only."""
    kept = sorted(snapshots)
    networks = [snapshots[epoch] for epoch in kept]
    return {
        "epoch": [float(epoch) for epoch in kept],
        "source_loss": [_loss(layers, problem) for layers in networks],
        "distance": [float(_terms(problem, setting, layers).sum()) for layers in networks],
        "source_accuracy": [_accuracy(layers, problem.source, problem.source_labels) for layers in networks],
        "target_accuracy": [_accuracy(layers, problem.target, problem.target_labels) for layers in networks],
    }


def _terms(problem: Problem, setting: Setting, layers: list[Layer]) -> NDArray[np.floating[Any]]:
    both = (activations(layers, problem.source), activations(layers, problem.target))
    return cmd_terms(*both, n_moments=setting.n_moments)


def _kolmogorov_smirnov(problem: Problem, layers: list[Layer]) -> Any:
    """Two-sided tests of each hidden unit's activations, as in Section 6.2."""
    return ks_2samp(activations(layers, problem.source), activations(layers, problem.target), axis=0, method="asymp")


def _accuracy(layers: list[Layer], rows: NDArray[np.float64], labels: NDArray[np.intp]) -> float:
    return float((outputs(layers, rows).argmax(axis=1) == labels).mean())


def _loss(layers: list[Layer], problem: Problem) -> float:
    scores = outputs(layers, problem.source)
    chosen = scores[np.arange(len(scores)), problem.source_labels]
    return float((np.logaddexp.reduce(scores, axis=1) - chosen).mean())


def _sentence(runs: Sequence[dict[str, Any]]) -> str:
    better = sum(figures["mann_accuracy"] > figures["nn_accuracy"] for figures in runs)
    units = [np.median([figures[f"{name}_units_different"] for figures in runs]) for name in ("nn", "mann")]
    distance = [np.median([figures[f"{name}_cmd"] for figures in runs]) for name in ("nn", "mann")]
    return (
        f"Aligning moments moved the boundary onto the target in {better} of {len(runs)} runs: the distance of the "
        f"hidden activations fell from {distance[0]:.2f} to {distance[1]:.2f}, and {units[1]:g} instead of "
        f"{units[0]:g} hidden units differ between the domains (medians)."
    )
