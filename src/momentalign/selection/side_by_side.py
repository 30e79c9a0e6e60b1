"""Reverse validation of several tasks at once, for accelerators: the networks of all tasks train side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from momentalign.networks.shallow import Matrix
from momentalign.selection.reverse import reverse_task, split_domains
from momentalign.training.recipe import Member, Recipe
from momentalign.training.stack import train_tasks

__all__ = ["Domains", "reverse_scores_of_tasks"]


class Domains(NamedTuple):
    """The labelled source and the unlabelled target of one task."""

    source: Matrix
    labels: NDArray[np.intp]
    target: Matrix


def reverse_scores_of_tasks(
    tasks: Sequence[Domains],
    n_classes: int,
    recipe: Recipe,
    members: Sequence[Member],
    *,
    seed: int,
    share: float = 0.8,
    device: str = "cpu",
) -> NDArray[np.float64]:
    """Return the scores of :mod:`momentalign.selection.reverse` for tasks of one shape, shape (tasks, members)."""
    parts = [split_domains(*task, share=share, seed=seed) for task in tasks]
    forward = train_tasks([part.forward(n_classes) for part in parts], recipe, members, device=device)
    back = [
        (part, reverse_task(part, network.layers, n_classes), replace(member, initial=network.layers))
        for part, networks in zip(parts, forward, strict=True)
        for member, network in zip(members, networks, strict=True)
    ]
    trained = train_tasks([task for _, task, _ in back], recipe, [[member] for *_, member in back], device=device)
    scores = [part.accuracy(network.layers) for (part, *_), (network,) in zip(back, trained, strict=True)]
    return np.array(scores).reshape(len(tasks), len(members))
