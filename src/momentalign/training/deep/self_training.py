r"""What a network learns from its own predictions for target rows: to be sharp, and not to mind small changes.

In the later part of a training, with predictions :math:`p_i` for target rows, :math:`\tilde p_i` for the same rows
changed by an augmentation, and :math:`a_i` of a network whose weights are averages of those of all steps so far, there
is added

.. math:: s \Bigl( \frac1m \sum_i H(p_i) + \mathrm{KL}(\bar p \,\|\, q) \Bigr)
          - \frac{c}{m} \sum_{i:\, \max a_i > 0.9} \log \tilde p_{i, \arg\max a_i}.

The first part is :func:`~momentalign.training.target_loss.target_loss`, whose class shares q are the means of the
:math:`a_i` of the last updates: no label is needed, and shares that differ from the source's are followed. The second
part makes confident answers the labels of changed rows.

    A. Tarvainen, H. Valpola: Mean teachers are better role models. NeurIPS 2017.

    K. Sohn et al.: FixMatch: simplifying semi-supervised learning with consistency and confidence. NeurIPS 2020.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from momentalign.errors import InvalidInputError, InvalidTypeError
from momentalign.networks.layers import network_outputs
from momentalign.training.deep.alignment import Schedule, check_schedule
from momentalign.training.deep.ranks import mean_over_ranks, share_of_rank, sum_over_ranks
from momentalign.training.deep.weights import DECAY, move_average
from momentalign.training.target_loss import target_loss
from momentalign.validation import check_number

__all__ = ["Answers", "SelfTraining", "self_training"]

CONFIDENT = 0.9
SHARES_EVERY = 100  # batches whose mean answer are the class shares of the next ones
START = 0.5


class Answers(NamedTuple):
    """What the averaged network says of a target batch."""

    probabilities: Tensor
    augmented: Any
    """The batch after augmentation; None where it is not asked for."""
    factor: float
    """What the schedule says now."""


def self_training(
    model: nn.Module,
    *,
    sharpen: float,
    consistency: float,
    augment: Callable[[Any], Any] | None,
    start: float,
    schedule: Schedule,
) -> SelfTraining | None:
    """Return the losses on the target's predictions, None where both weights are zero; or say what cannot be."""
    weights = {"sharpen": sharpen, "consistency": consistency}
    for name, value in weights.items():
        check_number(value, name, least=0.0, example=1.0)
    check_number(start, "sharpen_from", least=0.0, below=1.0, example=START)
    check_schedule(schedule, "sharpen_schedule")
    if augment is not None and not callable(augment):
        raise InvalidTypeError(f"augment must be a function of a batch of inputs, got {augment!r:.80}.")
    if consistency and augment is None:
        raise InvalidInputError(
            f"consistency={consistency!r} needs a function that changes target inputs; give it as augment=."
        )
    if augment is not None and not consistency:
        raise InvalidInputError("augment has no effect with consistency=0.0; leave it out.")
    if sharpen or consistency:
        return SelfTraining(model, weights, augment, start=start, schedule=schedule)
    if start != START or schedule != "constant":
        raise InvalidInputError(
            "sharpen_from and sharpen_schedule have no effect with sharpen=0.0 and consistency=0.0."
        )
    return None


class SelfTraining(nn.Module):
    """The averaged network, the class shares it finds in the target, and both losses.

    Parameters
    ----------
    model
        The network that is trained; it is copied.
    weights
        Those of ``"sharpen"`` and ``"consistency"``.
    augment
        A function of a batch of inputs, for consistency.
    start, schedule
        The part of the training after which the losses count, and a factor on them as a function of the progress from
        there on.
    """

    def __init__(
        self,
        model: nn.Module,
        weights: dict[str, float],
        augment: Callable[[Any], Any] | None,
        *,
        start: float,
        schedule: Schedule,
    ) -> None:
        super().__init__()
        self.averaged = copy.deepcopy(model).requires_grad_(False).eval()
        self.weights, self._augment, self._start = weights, augment, start
        self._schedule = check_schedule(schedule)
        self._step = 0
        self._shares: Tensor | None = None
        self._sums: Tensor | None = None
        self._batches = 0

    def train(self, mode: bool = True) -> Self:
        """Leave the averaged network in eval mode."""
        super().train(mode)
        self.averaged.eval()
        return self

    @torch.no_grad()
    def _follow(self, model: nn.Module) -> None:
        """Take in the weights that the last step has made."""
        pairs = zip(self.averaged.parameters(), model.parameters(), strict=True)
        averages, weights = zip(*[pair for pair in pairs if pair[1].is_floating_point()], strict=True)
        move_average(averages, weights, max(self._step - 1, 0), DECAY)
        for own, value in zip(self.averaged.buffers(), model.buffers(), strict=True):
            own.copy_(value)

    def answer(self, model: nn.Module, inputs: Any, step: int, steps: float) -> Answers | None:
        """Look at the network and at a target batch before it learns from it; None where it is too early for that."""
        if step != self._step:
            self._step = step
            self._follow(model)
        start = self._start * steps
        if step < start - SHARES_EVERY:
            return None
        with torch.no_grad():
            outputs = network_outputs(self.averaged, inputs)
            if outputs.ndim != 2 or outputs.shape[1] < 2:
                raise InvalidInputError(
                    "sharpen and consistency need outputs (rows, classes) of two classes or more, got shape "
                    f"{tuple(outputs.shape)}; leave them out."
                )
            probabilities = _widened(outputs).softmax(1)
            summed = torch.cat([probabilities.sum(0), probabilities.new_tensor([len(probabilities)])])
            self._sums = summed if self._sums is None else self._sums.to(summed) + summed
            self._batches += 1
        if step < start:
            return None
        if self._shares is None or self._batches >= SHARES_EVERY:
            total = sum_over_ranks(self._sums)
            self._shares, self._sums, self._batches = total[:-1] / total[-1], None, 0
        progress = 0.0 if math.isinf(steps) else min((step / steps - self._start) / (1.0 - self._start), 1.0)
        augmented = None if self._augment is None else self._augment(inputs)
        return Answers(probabilities, augmented, self._schedule(progress))

    def losses(self, answers: Answers, outputs: Tensor, augmented: Tensor | None) -> dict[str, tuple[float, Tensor]]:
        """Return, by their names, the weights that are not zero and the losses of what the network gives."""
        found = {}
        share = share_of_rank(len(outputs), like=answers.probabilities)
        if self.weights["sharpen"]:
            assert self._shares is not None  # noqa: S101
            shares = self._shares.to(answers.probabilities)
            found["sharpen"] = target_loss(_widened(outputs), shares, joined=lambda mean: mean_over_ranks(mean, share))
        if augmented is not None:
            confidence, labels = answers.probabilities.max(1)
            each = cross_entropy(_widened(augmented), labels, reduction="none")
            found["consistency"] = share * (each * (confidence > CONFIDENT)).mean()
        return {name: (answers.factor * self.weights[name], loss) for name, loss in found.items()}

    def get_extra_state(self) -> dict[str, Any]:
        """Return what is neither weight nor buffer, for a checkpoint."""
        shares, sums = (None if values is None else values.tolist() for values in (self._shares, self._sums))
        return {"step": self._step, "shares": shares, "sums": sums, "batches": self._batches}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self._step, self._batches = state["step"], state["batches"]
        # In double precision, which holds every number; it is brought to that of the network when it is used.
        self._shares, self._sums = (
            None if state[name] is None else torch.as_tensor(state[name], dtype=torch.float64)
            for name in ("shares", "sums")
        )


def _widened(outputs: Tensor) -> Tensor:
    return outputs if outputs.dtype == torch.float64 else outputs.float()
