r"""Domain separation networks (DSN): what the domains share is learned next to what each has for itself.

A peer method of Section 6.5 in Zellinger et al. (2019). Reference: K. Bousmalis, G. Trigeorgis, N. Silberman,
D. Krishnan, D. Erhan, Domain separation networks, 2016. A shared encoder and one private encoder for each domain give
codes :math:`h_c, h_p`; a shared decoder makes the input from their sum. The loss of a step is

.. math:: L_{task} + \alpha L_{recon} + \beta L_{difference} + \gamma L_{similarity},

where the task and the similarity (a distance of the shared codes of both domains) are those of Eq. (24).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from torch import Tensor, nn
from torch.nn.functional import normalize

from momentalign.discrepancies.central_moment import Interval
from momentalign.errors import InvalidInputError, InvalidTypeError
from momentalign.networks.layers import recorded
from momentalign.training.deep.adda import check_one_layer, find_encoder, fresh_weights
from momentalign.training.deep.alignment import Discrepancy, Schedule
from momentalign.training.deep.module import DeepAdaptation, Loss, OptimizerChoice, Pass
from momentalign.training.deep.self_training import START, Answers
from momentalign.validation import check_number

__all__ = ["DomainSeparation", "difference_loss", "make_decoder", "scale_invariant_error"]

ALPHA, BETA, GAMMA = 0.01, 0.075, 0.25
# Units of the default decoders, about those of the digits in Bousmalis et al. (2016).
UNITS = 300
CHANNELS = (32, 16)
SHRINK = 4  # two deconvolutions of stride 2


class DomainSeparation(DeepAdaptation):
    r"""Trains a network as the shared encoder and the classifier of a domain separation network.

    Train it, like any :class:`~momentalign.training.deep.module.DeepAdaptation`, on a
    :class:`~momentalign.training.deep.loaders.PairedLoader`; ``model`` then is the adapted network. Private encoders
    and decoder are needed for training only.

    Parameters
    ----------
    model
        Any network on rows of numbers; it is trained in place.
    layer
        The name of the submodule whose output is the shared code. The private encoders are copies of what is below it,
        with weights of their own drawn anew.
    example
        A batch of inputs, from which the widths of codes and inputs are known.
    similarity
        The distance of the shared codes: ``"mmd"`` or ``"dann"`` as in the paper (the first is steadier, the second is
        the better one in the paper), or any other `discrepancy` of
        :class:`~momentalign.training.deep.module.DeepAdaptation`.
    alpha, beta, gamma
        Weights of reconstruction, difference and similarity: 0.01, 0.075 and 0.25 unless given. The paper tunes them
        for every task; these are in common use for MNIST to MNIST-M.
    decoder
        A network from codes (rows, width) to inputs; None is :func:`make_decoder`.
    schedule, n_moments, interval, loss, optimizer, learning_rate, domain_norm, semi_supervised
        As in :class:`~momentalign.training.deep.module.DeepAdaptation`; the schedule is that of `gamma`.
    sharpen, consistency, augment, sharpen_from, sharpen_schedule
        As there.

    Notes
    -----
    Logged as well: reconstruction and difference.

    Examples
    --------
    >>> import torch
    >>> network = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 3))
    >>> module = DomainSeparation(network, "1", example=torch.zeros(4, 2))
    >>> module.decoder(torch.zeros(4, 8)).shape
    torch.Size([4, 2])
    """

    def __init__(
        self,
        model: nn.Module,
        layer: str | Sequence[str],
        *,
        example: Any,
        similarity: Discrepancy = "mmd",
        alpha: float = ALPHA,
        beta: float = BETA,
        gamma: float = GAMMA,
        decoder: nn.Module | None = None,
        schedule: Schedule = "constant",
        n_moments: int = 5,
        interval: Interval | None = None,
        loss: Loss | None = None,
        optimizer: OptimizerChoice = "adam",
        learning_rate: float | None = None,
        domain_norm: bool = False,
        semi_supervised: bool = False,
        sharpen: float = 0.0,
        consistency: float = 0.0,
        augment: Callable[[Any], Any] | None = None,
        sharpen_from: float = START,
        sharpen_schedule: Schedule = "constant",
    ) -> None:
        name = check_one_layer(model, layer, "DSN")
        if similarity is None:
            raise InvalidInputError("similarity must be a distance, got None; set gamma=0.0 to learn without one.")
        _refuse_inputs(example, "example")
        super().__init__(
            model,
            name,
            discrepancy=similarity,
            weight=check_number(gamma, "gamma", least=0.0, example=0.1),
            schedule=schedule,
            n_moments=n_moments,
            interval=interval,
            loss=loss,
            optimizer=optimizer,
            learning_rate=learning_rate,
            domain_norm=domain_norm,
            semi_supervised=semi_supervised,
            sharpen=sharpen,
            consistency=consistency,
            augment=augment,
            sharpen_from=sharpen_from,
            sharpen_schedule=sharpen_schedule,
            example=example,
        )
        self.alpha = check_number(alpha, "alpha", least=0.0, example=0.1)
        self.beta = check_number(beta, "beta", least=0.0, example=0.1)
        encoder = find_encoder(model, name, example)
        self.private_source = _private_encoder(model, encoder.weights)
        self.private_target = _private_encoder(model, encoder.weights)
        self.decoder = make_decoder(encoder.width, example.shape[1:]).to(example) if decoder is None else decoder
        self._separation: list[Tensor] = []

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Return the loss of one pair of batches."""
        return super().training_step(batch, batch_idx) + self._separation.pop()

    def passes(self, source: Any, target: Any, answers: Answers | None = None) -> list[Pass | None]:
        """Send all rows through the network, and those of both domains through private encoders and decoder too."""
        found = super().passes(source, target, answers)
        of_source, of_target = found[:2]
        if of_source is None or of_target is None:
            raise AssertionError("a similarity always asks for both domains")
        first = self._separate(source, of_source, self.private_source)
        second = self._separate(target, of_target, self.private_target)
        reconstruction, difference = first[0] + second[0], first[1] + second[1]
        self._separation = [self.alpha * reconstruction + self.beta * difference]
        self.log_dict({"reconstruction": reconstruction.detach(), "difference": difference.detach()})
        return found

    def _separate(self, inputs: Any, shared: Pass, private: nn.Module) -> tuple[Tensor, Tensor]:
        """Reconstruction and difference of one domain's rows."""
        (layer,) = self.layers
        _refuse_inputs(inputs, "inputs")
        with recorded(private, self.layers) as codes:
            private(inputs)
        code = shared.activations[layer]
        rebuilt = self.decoder(code + codes[layer])
        return scale_invariant_error(inputs, rebuilt), difference_loss(code, codes[layer])


def scale_invariant_error(inputs: Tensor, rebuilt: Tensor) -> Tensor:
    r"""Mean over rows of the scale-invariant squared error, Eq. (4) of Bousmalis et al. (2016).

    .. math:: \frac1k \lVert x - \hat x \rVert^2 - \frac1{k^2} \bigl( \textstyle\sum_i (x_i - \hat x_i) \bigr)^2

    A shift of all k numbers of a row costs nothing: their differences are what is reconstructed.

    Examples
    --------
    >>> import torch
    >>> rows = torch.tensor([[1.0, 2.0, 4.0]])
    >>> scale_invariant_error(rows, rows + 5.0), scale_invariant_error(rows, torch.zeros(1, 3))
    (tensor(0.), tensor(1.5556))
    """
    if rebuilt.shape != inputs.shape:
        raise InvalidInputError(
            f"decoder gives shape {tuple(rebuilt.shape)} for inputs of shape {tuple(inputs.shape)}; make them the same."
        )
    return (inputs - rebuilt).flatten(1).var(1, correction=0).mean()


def difference_loss(shared: Tensor, private: Tensor) -> Tensor:
    r"""How far shared and private codes are from being orthogonal, Eq. (5) of Bousmalis et al. (2016).

    .. math:: \bigl\lVert \tfrac1n H_c^\top H_p \bigr\rVert_F^2

    with features of mean zero, then rows of length one. The paper has no :math:`\tfrac1n`; with it the weight means the
    same for batches of all sizes n.

    Parameters
    ----------
    shared, private
        Codes of the same rows, shapes (rows, width).

    Examples
    --------
    >>> import torch
    >>> codes = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    >>> difference_loss(codes, codes), difference_loss(codes, torch.tensor([[1.0, 1.0], [1.0, 1.0]]))
    (tensor(1.), tensor(0.))
    """
    shared, private = (normalize(codes - codes.mean(0), dim=1) for codes in (shared, private))
    return (shared.T @ private / len(shared)).square().sum()


def make_decoder(width: int, shape: Sequence[int]) -> nn.Module:
    """Return a decoder from codes of some width to inputs of some shape.

    Pictures (channels, height, width) come from two deconvolutions, everything else from two fully connected layers.

    Examples
    --------
    >>> import torch
    >>> make_decoder(8, (3, 28, 30))(torch.zeros(2, 8)).shape
    torch.Size([2, 3, 28, 30])
    """
    if len(shape) == 3:
        return _PictureDecoder(width, *shape)
    return nn.Sequential(
        nn.Linear(width, UNITS), nn.ReLU(), nn.Linear(UNITS, math.prod(shape)), nn.Unflatten(1, tuple(shape))
    )


class _PictureDecoder(nn.Module):
    """A fully connected layer, then deconvolutions that double height and width, cut to the size of the picture."""

    def __init__(self, code: int, channels: int, height: int, width: int) -> None:
        super().__init__()
        self.height, self.width = height, width
        start = CHANNELS[0], -(-height // SHRINK), -(-width // SHRINK)
        layers: list[nn.Module] = [nn.Linear(code, math.prod(start)), nn.Unflatten(1, start)]
        for inputs, outputs in pairwise((*CHANNELS, channels)):
            layers += [nn.ReLU(), nn.ConvTranspose2d(inputs, outputs, 4, stride=2, padding=1)]
        self.layers = nn.Sequential(*layers)

    def forward(self, codes: Tensor) -> Tensor:
        pictures: Tensor = self.layers(codes)
        return pictures[:, :, : self.height, : self.width]


def _private_encoder(model: nn.Module, weights: Sequence[str]) -> nn.Module:
    """A copy with fresh weights; what is above the code is never trained."""
    private = copy.deepcopy(model)
    fresh_weights(private)
    for name, weight in private.named_parameters():
        weight.requires_grad_(name in weights)
    return private


def _refuse_inputs(inputs: Any, name: str) -> None:
    """Raise an error for inputs that cannot be reconstructed."""
    if not isinstance(inputs, Tensor) or not inputs.is_floating_point() or inputs.ndim < 2:
        got = f"{inputs.dtype} of shape {tuple(inputs.shape)}" if isinstance(inputs, Tensor) else f"{inputs!r:.80}"
        raise InvalidTypeError(
            f"{name} must be a tensor (rows, ...) of real numbers for DSN, which reconstructs it, got {got}; "
            "choose another discrepancy."
        )
