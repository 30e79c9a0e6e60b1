r"""Reverse validation: a network is good if what it says of the target leads back to the source.

E. Zhong, W. Fan, Q. Yang, O. Verscheure, J. Ren: Cross validation framework to choose amongst models and datasets for
transfer learning, ECML PKDD 2010. As done for networks by Y. Ganin, E. Ustinova, H. Ajakan, P. Germain, H. Larochelle,
F. Laviolette, M. Marchand, V. Lempitsky: Domain-adversarial training of neural networks, JMLR 17, 2016; Section 6.3 of
Zellinger et al. (2019) chooses the weight and the width of the MMD so.

Reverse validation of several tasks at once, for accelerators: the networks of all tasks train side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray

from momentalign.estimators.domains import with_rows_of_every_domain
from momentalign.networks.shallow import Layer, Matrix, outputs
from momentalign.selection.grid import split_labelled, split_unlabelled
from momentalign.training.config import NetworkSpec, Task, TrainedNetwork, TrainingConfig
from momentalign.training.stack import train_stack, train_tasks

__all__ = [
    "Domains",
    "Parts",
    "ReverseResult",
    "reverse_scores",
    "reverse_scores_of_tasks",
    "reverse_task",
    "split_domains",
]


class ReverseResult(NamedTuple):
    """Reverse accuracies, shape (specs,), and the forward networks they judge."""

    scores: NDArray[np.float64]
    forward: list[TrainedNetwork]


class Parts(NamedTuple):
    """What both directions train on, and what is held out of it."""

    source: Matrix
    labels: NDArray[np.intp]
    source_held_out: Matrix
    labels_held_out: NDArray[np.intp]
    target: Matrix
    target_held_out: Matrix
    source_domains: NDArray[np.intp] | None = None
    target_domains: NDArray[np.intp] | None = None

    def forward(self, n_classes: int) -> Task:
        """Return the task from the source to the target."""
        return Task(
            self.source,
            self.labels,
            self.target,
            n_classes,
            self.source_held_out,
            self.labels_held_out,
            source_domains=self.source_domains,
            target_domains=self.target_domains,
        )

    def accuracy(self, layers: Sequence[Layer]) -> float:
        """Share of the held-out source rows that a network labels right."""
        return float((_classes(layers, self.source_held_out) == self.labels_held_out).mean())


def reverse_scores(
    source: Matrix,
    labels: NDArray[np.intp],
    target: Matrix,
    n_classes: int,
    config: TrainingConfig,
    specs: Sequence[NetworkSpec],
    *,
    seed: int,
    share: float = 0.8,
    device: str = "cpu",
    n_jobs: int = 1,
    source_domains: NDArray[np.intp] | None = None,
    target_domains: NDArray[np.intp] | None = None,
    finished: Callable[[int, float], None] | None = None,
) -> ReverseResult:
    r"""Return the reverse accuracy of each spec of a stack; higher is better, and no target label is needed.

    Both domains are split at random: :math:`S = S' \cup S_V` (classes in proportion) and :math:`T = T' \cup T_V`.

    1. The forward network :math:`\eta` learns from the labelled :math:`S'` and the unlabelled :math:`T'`.
    2. The reverse network :math:`\eta_r` starts from the weights of :math:`\eta` and learns in the same way from
       :math:`\{(x, \eta(x)) : x \in T'\}` and the unlabelled :math:`S'`.
    3. The score is the accuracy of :math:`\eta_r` on the labelled :math:`S_V`.

    The labelled :math:`S_V` stops the forward network early, :math:`\{(x, \eta(x)) : x \in T_V\}` the reverse one.

    Parameters
    ----------
    source, labels
        Rows of the source, float32 (dense or CSR), and codes of their classes.
    target
        Rows of the target.
    n_classes
        The number of classes.
    config, specs
        What all networks share, and what each has of its own; all forward networks are one stack.
    seed
        Seed of both splits.
    share
        Part of each domain to train on.
    device, n_jobs
        Where to train, and over how many cores; the number of cores changes no number.
    source_domains, target_domains
        The number of the domain of each row where there are several sources or targets; on the way back targets are
        sources, all of one weight where `domain_weights` are numbers.
    finished
        Called with the position of a spec and its score, in order, as soon as both are known.

    Examples
    --------
    >>> from momentalign.training.config import Optimizer
    >>> random = np.random.default_rng(0)
    >>> labels = np.arange(200) % 2
    >>> source = (random.normal(size=(200, 2)) + 3.0 * labels[:, None]).astype(np.float32)
    >>> config = TrainingConfig(hidden=(5,), optimizer=Optimizer("adam", 0.1), max_epochs=30)
    >>> result = reverse_scores(source, labels, source + np.float32(0.5), 2, config, [NetworkSpec(seed=0)], seed=0)
    >>> bool(result.scores[0] > 0.9)
    True
    """
    parts = split_domains(
        source, labels, target, share=share, seed=seed, source_domains=source_domains, target_domains=target_domains
    )
    forward = train_stack(parts.forward(n_classes), config, specs, device=device, n_jobs=n_jobs)
    calls = (
        delayed(_reverse_accuracy)(parts, n_classes, config, _turned(spec, network.layers), device)
        for spec, network in zip(specs, forward, strict=True)
    )
    scores = []
    # In threads: the compiled loops leave the others their turn. In order, each as soon as it is there.
    parallel = Parallel(n_jobs=n_jobs, prefer="threads", return_as="generator")
    with closing(parallel(calls)) as arrivals:
        for position, score in enumerate(arrivals):
            scores.append(score)
            if finished is not None:
                finished(position, score)
    return ReverseResult(np.array(scores), forward)


def split_domains(
    source: Matrix,
    labels: NDArray[np.intp],
    target: Matrix,
    *,
    share: float,
    seed: int,
    source_domains: NDArray[np.intp] | None = None,
    target_domains: NDArray[np.intp] | None = None,
) -> Parts:
    """Split both domains at random, the source with its classes in proportion."""
    training, held_out = split_labelled(labels, share=share, seed=seed)
    training, held_out = with_rows_of_every_domain(training, held_out, source_domains)
    target_training, target_held_out = split_unlabelled(target.shape[0], share=share, seed=seed)
    target_training, target_held_out = with_rows_of_every_domain(target_training, target_held_out, target_domains)
    return Parts(
        source[training],
        labels[training],
        source[held_out],
        labels[held_out],
        target[target_training],
        target[target_held_out],
        None if source_domains is None else source_domains[training],
        None if target_domains is None else target_domains[target_training],
    )


def reverse_task(parts: Parts, layers: Sequence[Layer], n_classes: int) -> Task:
    """Return the task back to the source, from the target as a network labels it."""
    guesses = [_classes(layers, rows) for rows in (parts.target, parts.target_held_out)]
    return Task(
        parts.target,
        guesses[0],
        parts.source,
        n_classes,
        parts.target_held_out,
        guesses[1],
        source_domains=parts.target_domains,
        target_domains=parts.source_domains,
    )


def _turned(spec: NetworkSpec, layers: Sequence[Layer]) -> NetworkSpec:
    """The spec on its way back; weights that are numbers are those of other sources."""
    weights = spec.domain_weights if isinstance(spec.domain_weights, str) else "equal"
    return replace(spec, initial=layers, domain_weights=weights)


def _reverse_accuracy(parts: Parts, n_classes: int, config: TrainingConfig, spec: NetworkSpec, device: str) -> float:
    """Train one network back from the target as its forward weights label it; score it on held-out source labels."""
    assert spec.initial is not None  # noqa: S101
    task = reverse_task(parts, spec.initial, n_classes)
    (network,) = train_stack(task, config, [spec], device=device)
    return parts.accuracy(network.layers)


def _classes(layers: Sequence[Layer], rows: Matrix) -> NDArray[np.intp]:
    return np.asarray(outputs(layers, rows).argmax(axis=1))


class Domains(NamedTuple):
    """The labelled source and the unlabelled target of one task."""

    source: Matrix
    labels: NDArray[np.intp]
    target: Matrix


def reverse_scores_of_tasks(
    tasks: Sequence[Domains],
    n_classes: int,
    config: TrainingConfig,
    specs: Sequence[NetworkSpec],
    *,
    seed: int,
    share: float = 0.8,
    device: str = "cpu",
) -> NDArray[np.float64]:
    """Return the scores of :mod:`momentalign.selection.reverse` for tasks of one shape, shape (tasks, specs)."""
    parts = [split_domains(*task, share=share, seed=seed) for task in tasks]
    forward = train_tasks([part.forward(n_classes) for part in parts], config, specs, device=device)
    back = [
        (part, reverse_task(part, network.layers, n_classes), replace(spec, initial=network.layers))
        for part, networks in zip(parts, forward, strict=True)
        for spec, network in zip(specs, networks, strict=True)
    ]
    trained = train_tasks([task for _, task, _ in back], config, [[spec] for *_, spec in back], device=device)
    scores = [part.accuracy(network.layers) for (part, *_), (network,) in zip(back, trained, strict=True)]
    return np.array(scores).reshape(len(tasks), len(specs))
