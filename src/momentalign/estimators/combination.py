r"""Several networks as one: the weight of the distance without target labels.

The paper leaves open how to choose the weight. Instead of choosing one, networks of several weights are combined
linearly. The coefficients are those of the least squared error on the target, estimated by importance-weighted source
rows:

M.-C. Dinu, M. Holzleitner, M. Beck, H. D. Nguyen, A. Huber, H. Eghbal-zadeh, B. A. Moser, S. V. Pereverzyev,
S. Hochreiter, W. Zellinger: Addressing parameter choice issues in unsupervised domain adaptation by aggregation,
ICLR 2023.

Where alignment is the wrong idea, all weights fail alike and no combination of them helps. So a plain network is
trained beside them, and kept where what is known without target labels speaks against the combination: see
:func:`combine`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from threading import Event, Lock
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from momentalign.estimators.domains import joined_task
from momentalign.evaluation.scores import importance_weights, logistic_ratio, nuclear_norm
from momentalign.networks.shallow import Layer, activations, probabilities
from momentalign.progress import EpochReport
from momentalign.training.config import NetworkSpec, Task, TrainedNetwork, TrainingConfig
from momentalign.training.stack import compile_ahead, train_stack
from momentalign.validation import Floats, check_stack

__all__ = [
    "WEIGHTS",
    "Members",
    "aggregated_probabilities",
    "aggregation_coefficients",
    "combine",
    "train_again",
    "train_combination",
    "train_each",
    "weight_grid",
]

WEIGHTS = (0.5, 1.0, 2.0, 4.0)
"""The grid around the paper's weight of 1: within it no weight is far off, and each errs in its own way."""

Training: TypeAlias = tuple[Task, TrainingConfig, NetworkSpec]
Progress: TypeAlias = Callable[[int, int], None]

# Rows of each domain that the coefficients and the guard look at.
MOST_ROWS = 10_000
# Held-out rows that are a smaller part of the source are not worth a second training.
WORTH_TRAINING_AGAIN = 0.2
# The part of the target rows that a combination may label otherwise than the plain network, without more confidence.
# On reviews, where it gains five points, this is 0.22 at most; between hospitals that differ in their class shares,
# where it loses twenty, 0.27 and more.
LARGEST_CHANGE = 0.25


class Members(NamedTuple):
    """The networks that predict, as indices into those that were trained, and their coefficients."""

    indices: list[int]
    coefficients: Floats

    @property
    def largest(self) -> int:
        """The position, among the members, of the largest coefficient."""
        return int(self.coefficients.argmax())


def weight_grid(spec: NetworkSpec) -> list[NetworkSpec]:
    """Return the networks to combine, which differ from `spec` in their weight; without a distance a plain one only.

    Examples
    --------
    >>> [one.weight for one in weight_grid(NetworkSpec(seed=0, distance=lambda x, y: x.mean() - y.mean()))]
    [1.0, 0.0, 0.5, 2.0, 4.0]
    """
    weights = [0.0] if spec.distance is None else [1.0, 0.0, *(weight for weight in WEIGHTS if weight != 1.0)]
    return [replace(spec, weight=weight) for weight in weights]


def train_combination(
    task: Task,
    config: TrainingConfig,
    specs: Sequence[NetworkSpec],
    *,
    device: str = "cpu",
    threads: int = 1,
    progress: Progress | None = None,
) -> tuple[list[TrainedNetwork], Members]:
    """Train all networks, combine them, and train the members again on all rows; return the members.

    Where `task` holds rows out, they say after how many epochs each network is best and how it counts in the
    combination; then the members are trained for as many epochs on all rows, unless few were held out.
    """
    # Ten trainings are worth compiling, however short each is.
    config = replace(config, compiled=True)
    running: dict[str, Any] = {"device": device, "threads": threads, "progress": progress}
    networks = train_each([(task, config, spec) for spec in specs], **running)
    members = combine(specs, [network.layers for network in networks], task)
    final = [networks[index] for index in members.indices]
    held_out = 0 if task.validation is None else task.validation.shape[0]
    if held_out > WORTH_TRAINING_AGAIN * (held_out + task.source.shape[0]):
        own = [(config, specs[index], networks[index]) for index in members.indices]
        final = train_again(own, joined_task(task), **running)
    return final, members


def train_again(
    members: Sequence[tuple[TrainingConfig, NetworkSpec, TrainedNetwork]],
    whole: Task,
    *,
    device: str = "cpu",
    threads: int = 1,
    progress: Progress | None = None,
) -> list[TrainedNetwork]:
    """Train networks on all rows up to the epoch of their lowest validation loss; each keeps its history."""
    trainings = []
    for config, spec, network in members:
        losses = network.history.validation_loss
        # A second phase that sharpens is as long as the first, and will be again.
        epochs = int(np.argmin(losses[: (len(losses) + 1) // 2] if spec.sharpen else losses)) + 1
        # A patience of all epochs never stops a network, and has it look up after each.
        trainings.append((whole, replace(config, max_epochs=epochs, patience=epochs, keep="last"), spec))
    again = train_each(trainings, device=device, threads=threads, progress=progress)
    return [
        replace(network, history=before.history, n_epochs=before.n_epochs)
        for network, (*_, before) in zip(again, members, strict=True)
    ]


class _Stopped(Exception):  # noqa: N818  (it ends a thread, nothing is wrong)
    """Ends the training in a thread."""


def train_each(
    trainings: Sequence[Training], *, device: str = "cpu", threads: int = 1, progress: Progress | None = None
) -> list[TrainedNetwork]:
    """Return the networks of some trainings, in order.

    On a CPU every network is a stack of its own; on an accelerator all networks of one task and config are one stack. A
    network trained in a stack is the network trained alone, so this changes no number.

    Parameters
    ----------
    trainings
        What each network is trained on, how, and what it has of its own.
    device
        Where they train.
    threads
        How many stacks train at once on a CPU.
    progress
        Called with the number of finished epochs of all networks and how many there will be at most; one call at a
        time.

    Examples
    --------
    >>> task = Task(np.eye(4, dtype=np.float32), np.array([0, 0, 1, 1]), None, 2)
    >>> networks = train_each([(task, TrainingConfig(max_epochs=3), NetworkSpec(0))] * 2)
    >>> [network.n_epochs for network in networks]
    [3, 3]
    """
    stacks: list[tuple[Task, TrainingConfig, list[NetworkSpec]]] = []
    for task, config, spec in trainings:
        if device != "cpu" and stacks and stacks[-1][0] is task and stacks[-1][1] == config:
            stacks[-1][2].append(spec)
        else:
            stacks.append((task, config, [spec]))
    finished, most = [0] * len(stacks), [config.max_epochs for _, config, _ in stacks]
    stop, lock = Event(), Lock()

    def show() -> None:
        if progress is not None:
            with lock:
                progress(sum(finished), sum(most))

    def train(number: int) -> list[TrainedNetwork]:
        def watch(report: EpochReport) -> None:
            if stop.is_set():
                raise _Stopped
            finished[number] = report.epoch
            show()

        networks = train_stack(*stacks[number], device=device, progress=watch)
        most[number] = finished[number]
        show()
        return networks

    for stack in stacks:
        compile_ahead(*stack, device=device)
    pool = ThreadPoolExecutor(threads if device == "cpu" else 1)
    try:
        futures = [pool.submit(train, number) for number in range(len(stacks))]
        pending = set(futures)
        while pending:  # An interrupt (^C) is heard in between.
            done, pending = wait(pending, timeout=0.2)
            for future in done:
                future.result()
    finally:
        stop.set()
        pool.shutdown(cancel_futures=True)
    return [network for future in futures for network in future.result()]


def combine(specs: Sequence[NetworkSpec], networks: Sequence[Sequence[Layer]], task: Task) -> Members:
    r"""Return which networks are to predict for the target, and their coefficients; no label of the target is read.

    The adapted networks (of positive weight) get the coefficients of :func:`aggregation_coefficients`, with importance
    weights from the hidden activations of the one with the smallest weight, which hold most of what tells the domains
    apart. Labelled rows are the held-out ones, or all where none are.

    Plain networks are kept in their place, with equal coefficients, where

    .. math:: \frac1m \#\{x \in T : \hat y_c(x) \ne \hat y_p(x)\} - (\nu_c - \nu_p) > \frac14,

    with the predictions :math:`\hat y` of the combination c, as it would be used, and of the plain networks p, and the
    :func:`nuclear norms <momentalign.evaluation.scores.nuclear_norm>` :math:`\nu` of their probabilities: a
    combination that labels many target rows otherwise has to be as much more confident, over all classes.
    """
    adapted = [index for index, spec in enumerate(specs) if spec.weight and spec.distance is not None]
    plain = [index for index in range(len(specs)) if index not in adapted]
    equal = Members(plain, np.full(len(plain), 1.0 / max(len(plain), 1)))
    if not adapted:
        return equal
    least = min(adapted, key=lambda index: specs[index].weight)
    coefficients = _coefficients([networks[index] for index in adapted], networks[least], task, specs[least].seed)
    members = Members(adapted, coefficients)
    if plain and _speaks_against(members, equal, networks, task):
        return equal
    return members


def _coefficients(networks: Sequence[Sequence[Layer]], features: Sequence[Layer], task: Task, seed: int) -> Floats:
    if len(networks) == 1:
        return np.ones(1)
    source, labels = (
        (task.source, task.labels) if task.validation is None else (task.validation, task.validation_labels)
    )
    assert task.target is not None and labels is not None  # noqa: PT018, S101
    source, labels, target = source[:MOST_ROWS], labels[:MOST_ROWS], task.target[:MOST_ROWS]
    hidden = [activations(features, rows).astype(np.float64) for rows in (source, target)]
    # About 0 the classifier that tells the domains apart needs far fewer steps.
    hidden = [part - hidden[1].mean(axis=0) for part in hidden]
    folds = min(5, *(len(part) for part in hidden))
    ratio = np.ones(len(hidden[0]))
    if folds > 1:
        ratio = logistic_ratio(source=hidden[0], target=hidden[1], folds=folds, seed=seed % 2**32)
    return aggregation_coefficients(
        target=np.stack([probabilities(layers, target) for layers in networks]),
        source=np.stack([probabilities(layers, source) for layers in networks]),
        labels=labels,
        weights=importance_weights(ratio=ratio),
    )


def _speaks_against(members: Members, plain: Members, networks: Sequence[Sequence[Layer]], task: Task) -> bool:
    """Whether the combination changes more predictions for the target than its confidence is worth."""
    assert task.target is not None  # noqa: S101
    target = task.target[:MOST_ROWS]
    combined, kept = (
        aggregated_probabilities(
            coefficients=own.coefficients,
            predictions=np.stack([probabilities(networks[index], target) for index in own.indices]),
        )
        for own in (members, plain)
    )
    changed = float((combined.argmax(axis=1) != kept.argmax(axis=1)).mean())
    return changed - (nuclear_norm(probabilities=combined) - nuclear_norm(probabilities=kept)) > LARGEST_CHANGE


def aggregation_coefficients(
    *, target: Floats, source: Floats, labels: NDArray[np.intp], weights: Floats, rcond: float = 0.1
) -> Floats:
    r"""Return the coefficients of the combination of models that has the least squared error on the target.

    The error :math:`\mathbb E_T \lVert \sum_i c_i f_i - y \rVert^2` is smallest for :math:`c = G^{-1} g` with

    .. math:: G_{ij} = \frac1m \sum_{x \in T} \langle f_i(x), f_j(x) \rangle, \qquad
        g_i = \frac1n \sum_{(x, y) \in S} w(x)\, \langle y, f_i(x) \rangle,

    y the label as a unit vector. The first needs no labels; the second, a mean over the labelled target, is replaced by
    an importance-weighted one over the source.

    Models that predict almost the same make G almost singular, and what is divided by then is noise: eigenvalues below
    `rcond` times the largest are left out (pseudo-inverse). The largest belongs to what the models have in common, so
    that a large `rcond` comes close to their plain average. Where every weight is zero, and so g, they are averaged.

    The result is as good as the weights. A model that is less confident on the target than on the source has a small
    :math:`G_{ii}` beside its :math:`g_i` and gets a large coefficient, unless the weights know of the difference: keep
    models that were not adapted out of the stack.

    Parameters
    ----------
    target
        Probabilities of the models on target rows, (models, rows, classes).
    source
        Probabilities of the same models on labelled source rows, best held-out ones, (models, other rows, classes).
    labels
        Codes of the source rows' classes, shape (other rows,).
    weights
        Importance weights of the source rows, from :func:`momentalign.evaluation.scores.importance_weights`.
    rcond
        Part of the largest eigenvalue below which eigenvalues are left out.

    Returns
    -------
    NDArray
        Shape (models,); the entries may be negative and need not sum to 1.

    Examples
    --------
    Of two models the first is right and the second always undecided.

    >>> stack = np.array([[[1.0, 0.0], [0.0, 1.0]], [[0.5, 0.5], [0.5, 0.5]]])
    >>> labels, weights = np.array([0, 1]), np.ones(2)
    >>> aggregation_coefficients(target=stack, source=stack, labels=labels, weights=weights).round(6) + 0.0
    array([1., 0.])
    """
    of_target, of_source = check_stack(target, "target"), check_stack(source, "source")
    rows = of_source.shape[1]
    moments = of_source[:, np.arange(rows), labels] @ weights / rows
    if not moments.any():
        return np.full(len(moments), 1.0 / len(moments))
    gram = np.einsum("irk,jrk->ij", of_target, of_target) / of_target.shape[1]
    values, vectors = np.linalg.eigh(gram)
    kept = values > rcond * values[-1]
    return np.asarray(vectors[:, kept] @ (vectors[:, kept].T @ moments / values[kept]))


def aggregated_probabilities(*, coefficients: Floats, predictions: Floats) -> Floats:
    r"""Return :math:`\sum_i c_i f_i(x)` as probabilities: negative entries set to zero, rows divided by their sums.

    A row without a positive entry is made uniform.

    Parameters
    ----------
    coefficients
        Shape (models,), from :func:`aggregation_coefficients`.
    predictions
        Probabilities of the models, (models, rows, classes).

    Examples
    --------
    >>> aggregated_probabilities(coefficients=np.array([2.0, -0.5]), predictions=np.array([[[1.0, 0.0]], [[0.5, 0.5]]]))
    array([[1., 0.]])
    """
    combined = np.tensordot(coefficients, check_stack(predictions, "predictions"), axes=1)
    positive = np.maximum(combined, 0.0)
    positive[~positive.any(axis=1)] = 1.0
    return np.asarray(positive / positive.sum(axis=1, keepdims=True))
