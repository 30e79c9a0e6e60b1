r"""The loss on unlabelled target predictions that sharpens an aligned network.

Moments bring the domains together but say nothing of where a class ends. With the predictions :math:`p_i` of the
network for target rows, their mean :math:`\bar p` and class shares :math:`q` the loss

.. math:: \frac1m \sum_i H(p_i) + \mathrm{KL}(\bar p \,\|\, q)

moves the boundaries to where there are few target rows (each prediction confident) while the classes keep their shares.
The shares are those that the network itself predicts for the whole target, looked up every few updates: with equal or
with the source's shares a target of other shares would be bent to them. Shallow networks and
:class:`~momentalign.training.deep.self_training.SelfTraining` of deep ones use it alike.

    Y. Grandvalet, Y. Bengio: Semi-supervised learning by entropy minimization. NeurIPS 2004.

    J. Liang, D. Hu, J. Feng: Do we really need to access the source data? Source hypothesis transfer for unsupervised
    domain adaptation. ICML 2020.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["FEWEST", "SHARES_EVERY", "epochs_between_shares", "target_loss"]

# Updates after which the shares are looked up again.
SHARES_EVERY = 50
# No class is so rare that its share is below this: the logarithm stays bounded.
FEWEST = 1e-4


def target_loss(outputs: Tensor, shares: Tensor, *, joined: Callable[[Tensor], Tensor] | None = None) -> Tensor:
    """Return the loss of each network from what enters its softmax (..., rows, classes) and the shares (..., classes).

    Where the rows are spread over processes, `joined` makes means over all of them from those over the rows of one.

    Examples
    --------
    >>> import torch
    >>> certain, undecided = torch.tensor([[9.0, -9.0], [-9.0, 9.0]]), torch.zeros(2, 2)
    >>> equal = torch.tensor([0.5, 0.5])
    >>> [round(target_loss(outputs, equal).item(), 3) for outputs in (certain, undecided)]
    [0.0, 0.693]
    """
    logarithms = outputs.log_softmax(-1)
    probabilities = logarithms.exp()
    entropy = -(probabilities * logarithms).sum(-1).mean(-1)
    mean = probabilities.mean(-2)
    if joined is not None:
        means = joined(torch.cat([entropy.unsqueeze(-1), mean], -1))
        entropy, mean = means[..., 0], means[..., 1:]
    divergence = (mean * (mean.clamp_min(1e-30).log() - shares.clamp_min(FEWEST).log())).sum(-1)
    return entropy + divergence


def epochs_between_shares(updates: int) -> int:
    """Return after how many epochs of so many updates the shares are looked up again."""
    return math.ceil(SHARES_EVERY / updates)
