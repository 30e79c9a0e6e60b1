r"""Reverse validation: a network is good if what it says of the target leads back to the source.

E. Zhong, W. Fan, Q. Yang, O. Verscheure, J. Ren: Cross validation framework to choose amongst models and datasets for
transfer learning, ECML PKDD 2010. As done for networks by Y. Ganin, E. Ustinova, H. Ajakan, P. Germain, H. Larochelle,
F. Laviolette, M. Marchand, V. Lempitsky: Domain-adversarial training of neural networks, JMLR 17, 2016; Section 6.3 of
Zellinger et al. (2019) chooses the weight and the width of the MMD so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split

from momentalign.errors import InvalidInputError
from momentalign.networks.shallow import Layer, Matrix, outputs
from momentalign.training.config import (
    NetworkSpec,
    Rows,
    Task,
    TrainingConfig,
    with_rows_of_every_domain,
)
from momentalign.training.stack import train_stack
from momentalign.validation import check_number

__all__ = ["BothWays", "reverse_scores", "split_labelled", "split_unlabelled", "turned"]


class BothWays(NamedTuple):
    """A task on the way there, with held-out source rows, and the target rows held out on the way back."""

    forward: Task
    target_held_out: Matrix

    @classmethod
    def split(cls, task: Task, *, share: float, seed: int) -> BothWays:
        """Split both domains at random, the source with its classes in proportion."""
        assert task.target is not None  # noqa: S101  (a search has refused it)
        training, held_out = split_labelled(task.labels, share=share, seed=seed)
        there, not_there = split_unlabelled(task.target.shape[0], share=share, seed=seed)
        there, not_there = with_rows_of_every_domain(there, not_there, task.target_domains)
        return cls(task.split(training, held_out, there), task.target[not_there])

    def back(self, layers: Sequence[Layer]) -> Task:
        """Return the task back to the source, from the target as a network labels it."""
        there = self.forward
        guesses = [_classes(layers, rows) for rows in (there.target, self.target_held_out)]
        return Task(
            there.target,
            guesses[0],
            there.source,
            there.n_classes,
            self.target_held_out,
            guesses[1],
            source_domains=there.target_domains,
            target_domains=there.source_domains,
        )

    def accuracy(self, layers: Sequence[Layer]) -> float:
        """Return the accuracy of a network on the held-out source rows."""
        return float((_classes(layers, self.forward.validation) == self.forward.validation_labels).mean())


def reverse_scores(
    task: Task,
    config: TrainingConfig,
    specs: Sequence[NetworkSpec],
    *,
    seed: int,
    share: float = 0.8,
    device: str = "cpu",
    n_jobs: int = 1,
) -> Iterator[float]:
    r"""Yield the reverse accuracy of each spec of a stack in order; higher is better, and no target label is needed.

    Both domains are split at random: :math:`S = S' \cup S_V` (classes in proportion) and :math:`T = T' \cup T_V`.

    1. The forward network :math:`\eta` learns from the labelled :math:`S'` and the unlabelled :math:`T'`.
    2. The reverse network :math:`\eta_r` starts from the weights of :math:`\eta` and learns in the same way from
       :math:`\{(x, \eta(x)) : x \in T'\}` and the unlabelled :math:`S'`.
    3. The score is the accuracy of :math:`\eta_r` on the labelled :math:`S_V`.

    The labelled :math:`S_V` stops the forward network early, :math:`\{(x, \eta(x)) : x \in T_V\}` the reverse one.
    Where there are several sources or targets, targets are sources on the way back, all of one weight where
    `domain_weights` are numbers.

    Parameters
    ----------
    task
        All rows of both domains.
    config, specs
        What all networks share, and what each has of its own; all forward networks are one stack.
    seed
        Seed of both splits.
    share
        Part of each domain to train on.
    device, n_jobs
        Where to train, and over how many cores; the number of cores changes no number.

    Examples
    --------
    >>> from momentalign.training.config import Optimizer
    >>> random = np.random.default_rng(0)
    >>> labels = np.arange(200) % 2
    >>> source = (random.normal(size=(200, 2)) + 3.0 * labels[:, None]).astype(np.float32)
    >>> config = TrainingConfig(hidden=(5,), optimizer=Optimizer("adam", 0.1), max_epochs=30)
    >>> task = Task(source, labels, source + np.float32(0.5), 2)
    >>> [bool(score > 0.9) for score in reverse_scores(task, config, [NetworkSpec(seed=0)], seed=0)]
    [True]
    """
    ways = BothWays.split(task, share=share, seed=seed)
    forward = train_stack(ways.forward, config, specs, device=device, n_jobs=n_jobs)
    calls = (
        delayed(_reverse_accuracy)(ways, config, turned(spec, network.layers), device)
        for spec, network in zip(specs, forward, strict=True)
    )
    # In threads: the compiled loops leave the others their turn. In order, each as soon as it is there.
    parallel = Parallel(n_jobs=n_jobs, prefer="threads", return_as="generator")
    with closing(parallel(calls)) as arrivals:
        yield from arrivals


def turned(spec: NetworkSpec, layers: Sequence[Layer]) -> NetworkSpec:
    """Return the spec of a network on its way back; weights that are numbers are those of other sources."""
    weights = spec.domain_weights if isinstance(spec.domain_weights, str) else "equal"
    return replace(spec, initial=layers, domain_weights=weights)


def _reverse_accuracy(ways: BothWays, config: TrainingConfig, spec: NetworkSpec, device: str) -> float:
    """Train one network back from the target as its forward weights label it; score it on held-out source labels."""
    assert spec.initial is not None  # noqa: S101
    (network,) = train_stack(ways.back(spec.initial), config, [spec], device=device)
    return ways.accuracy(network.layers)


def _classes(layers: Sequence[Layer], rows: Matrix) -> NDArray[np.intp]:
    return np.asarray(outputs(layers, rows).argmax(axis=1))


def split_labelled(labels: NDArray[np.intp], *, share: float, seed: int) -> tuple[Rows, Rows]:
    """Return the rows to train on, a `share` of them, and the rows held out; classes in proportion, order random.

    Examples
    --------
    >>> training, held_out = split_labelled(np.array([0, 1] * 5), share=0.8, seed=0)
    >>> len(training), sorted(np.array([0, 1] * 5)[held_out].tolist())
    (8, [0, 1])
    """
    counts = np.bincount(labels)
    held_out = max(_held_out(len(labels), share), len(counts))
    if counts.min() < 2 or len(labels) - held_out < len(counts):
        raise InvalidInputError(
            f"y has {len(labels)} labels of {len(counts)} classes, {counts.min()} of the rarest, too few to hold out "
            "some of each class; give at least 2 rows of each class, or set share nearer to 0.5."
        )
    training, rest = train_test_split(
        np.arange(len(labels)), test_size=held_out, stratify=labels, random_state=seed % 2**32
    )
    return training, rest


def split_unlabelled(rows: int, *, share: float, seed: int) -> tuple[Rows, Rows]:
    """Return the rows to train on, a `share` of them, and the rows held out, at least one of each; order random.

    Examples
    --------
    >>> [len(part) for part in split_unlabelled(10, share=0.8, seed=0)]
    [8, 2]
    """
    held_out = min(max(_held_out(rows, share), 1), rows - 1)
    order = np.random.default_rng([seed, 2]).permutation(rows)
    return order[:-held_out], order[-held_out:]


def _held_out(rows: int, share: float) -> int:
    return round((1.0 - check_number(share, "share", above=0.0, below=1.0, example=0.8)) * rows)
