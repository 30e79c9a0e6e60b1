r"""The adversarial distance: what a domain classifier can tell apart, learned while the network learns.

The peer method DANN of Sections 6.3 to 6.5 in Zellinger et al. (2019). Reference: Y. Ganin et al., Domain-adversarial
training of neural networks, Journal of Machine Learning Research 17, 2016. The classifier maximises, the network
minimises

.. math:: d(S, T) = 2 \log 2 - \frac1{|S|} \sum_{x \in S} \log \bigl(1 + e^{a(x)}\bigr)
          - \frac1{|T|} \sum_{x \in T} \log \bigl(1 + e^{-a(x)}\bigr),

a lower bound of twice the Jensen-Shannon divergence, zero for a classifier that knows nothing. It is the gradient of
the classifier that is reversed here, not that of the activations, so that the value falls like that of any distance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Self, cast

import torch
from torch import Tensor, nn

from momentalign.discrepancies.base import Compiled, DistanceLoss, Interval, Stacked, StackedDomains
from momentalign.discrepancies.several_domains import Between, DomainWeights
from momentalign.moments.sample import full_precision, read_pair, refuse_non_finite
from momentalign.validation import positive_int

__all__ = ["AdversarialLoss", "stacked_adversarial"]


class AdversarialLoss(DistanceLoss):
    """The distance that a domain classifier sees; its weights are parameters to be trained with those of the network.

    Parameters
    ----------
    width
        The number of features of the activations.
    hidden
        Units of the classifier's own hidden layers (ReLU); none is the logistic regression of shallow DANN.

    Examples
    --------
    >>> import torch
    >>> loss = AdversarialLoss(width=2)
    >>> source, target = torch.zeros(8, 2), torch.ones(8, 2)
    >>> optimizer = torch.optim.SGD(loss.parameters(), lr=1.0)
    >>> for _ in range(50):
    ...     optimizer.zero_grad()
    ...     loss(source, target).backward()
    ...     optimizer.step()
    >>> bool(loss(source, target) > 1.0)  # of 2 log 2 = 1.386
    True
    """

    name = "dann"
    settings = ("width", "hidden")
    needs_width = True

    def __init__(self, width: int, hidden: tuple[int, ...] = ()) -> None:
        super().__init__()
        sizes = [positive_int(width, "width", example="50"), *(positive_int(units, "hidden") for units in hidden)]
        layers: list[nn.Module] = []
        for inputs, outputs in pairwise(sizes):
            layers += [nn.Linear(inputs, outputs), nn.ReLU()]
        last = nn.Linear(sizes[-1], 1)
        # A classifier that knows nothing yet gives the distance zero.
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
        self.width = width
        self.hidden = tuple(hidden)
        self.classifier = nn.Sequential(*layers, last)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Return the distance of two batches of activations, shapes (rows, width)."""
        source, target, _ = read_pair(source, target)
        with full_precision(source.device):
            reversed_weights = {
                name: _reverse(weight.to(source.dtype)) for name, weight in self.classifier.named_parameters()
            }
            logits = [
                torch.func.functional_call(self.classifier, reversed_weights, (sample,)).squeeze(-1)
                for sample in (source, target)
            ]
            value = _distance(*logits)
        refuse_non_finite(value, {"source": source, "target": target})
        return value

    @classmethod
    def from_name(cls, _name: str, *, n_moments: int, interval: Interval, width: int | None) -> Self:  # noqa: ARG003
        """Return the logistic regression of shallow DANN for so many features."""
        return cls(width)  # type: ignore[arg-type]

    @property
    def stack_key(self) -> str | None:
        """Domain classifiers without hidden layers are computed together."""
        return None if self.hidden else "linear"

    @staticmethod
    def stack(_losses: Sequence[AdversarialLoss]) -> Stacked:
        """Return the distances of stacked samples; the classifiers are weights of the stack, not of the losses."""
        return stacked_adversarial

    @classmethod
    def for_domains(
        cls, _losses: Sequence[AdversarialLoss], _between: Between, _weights: DomainWeights
    ) -> StackedDomains:
        """Return the distances of lists of samples: one classifier tells all sources from all targets."""

        def distances(sources: Sequence[Tensor], targets: Sequence[Tensor], *weights: Tensor) -> Tensor:
            return stacked_adversarial(torch.cat(list(sources), -2), torch.cat(list(targets), -2), *weights)

        return distances

    @staticmethod
    def stack_weights(width: int) -> tuple[tuple[int, ...], ...]:
        """Return the shapes of the classifier's weight and bias."""
        return ((width, 1), (1, 1))

    def compiled(self) -> Compiled | None:
        """Return its kind in the compiled training loops, which know the classifier without hidden layers."""
        return None if self.hidden else Compiled("dann", several="dann")


def stacked_adversarial(source: Tensor, target: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return the distances (stack,) of stacked samples (stack, rows, width), each with a linear classifier of its own.

    `weight` (stack, width, 1) and `bias` (stack, 1, 1) are trained by what flows back to them.
    """
    weight, bias = _reverse(weight), _reverse(bias)
    return _distance((source @ weight + bias).squeeze(-1), (target @ weight + bias).squeeze(-1))


def _distance(of_source: Tensor, of_target: Tensor) -> Tensor:
    """The distance from the outputs (..., rows) of the classifier; positive ones stand for the target."""
    softplus = nn.functional.softplus
    return 2.0 * math.log(2.0) - softplus(of_source).mean(-1) - softplus(-of_target).mean(-1)


def _reverse(values: Tensor) -> Tensor:
    return cast(Tensor, _Reverse.apply(values))  # type: ignore[no-untyped-call]


class _Reverse(torch.autograd.Function):
    """The identity whose gradient has the opposite sign."""

    @staticmethod
    def forward(_ctx: Any, values: Tensor) -> Tensor:
        return values.view_as(values)

    @staticmethod
    def backward(_ctx: Any, upstream: Tensor) -> Tensor:
        return -upstream
