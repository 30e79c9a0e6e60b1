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
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from torch import Tensor, nn
from torch.nn.functional import normalize

from momentalign.errors import InvalidInputError, InvalidTypeError
from momentalign.networks.layers import recorded
from momentalign.training.deep.adda import check_one_layer, find_encoder, fresh_weights
from momentalign.training.deep.module import DeepAdaptation, Pass

__all__ = ["GAMMA", "DomainSeparation", "difference_loss", "make_decoder", "scale_invariant_error"]

ALPHA, BETA, GAMMA = 0.01, 0.075, 0.25
# Units of the default decoders, about those of the digits in Bousmalis et al. (2016).
UNITS = 300
CHANNELS = (32, 16)
SHRINK = 4  # two deconvolutions of stride 2


class DomainSeparation(DeepAdaptation):
    r"""Trains a network as the shared encoder and the classifier of a domain separation network.

    It has the parameters of :class:`~momentalign.training.deep.module.DeepAdaptation`. `layer` is the only one whose
    output is the shared code, `discrepancy` and `weight` are the similarity of the shared codes and its weight
    (:data:`GAMMA`), and `example`, a batch of inputs, has to be given: it tells the widths of codes and inputs. In the
    paper the similarity is ``"mmd"``, which is the steadier one, or ``"dann"``, the better one.

    The private encoders are copies of what is below the layer, with weights of their own drawn anew. They and the
    decoder are needed for training only; ``model`` is the adapted network.

    Notes
    -----
    The paper tunes the weights of reconstruction and difference for every task; :data:`ALPHA` and :data:`BETA` are in
    common use for MNIST to MNIST-M. Both losses are logged as well.

    Examples
    --------
    >>> import torch
    >>> network = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 3))
    >>> module = DomainSeparation(network, "1", discrepancy="mmd", weight=GAMMA, example=torch.zeros(4, 2))
    >>> module.decoder(torch.zeros(4, 8)).shape
    torch.Size([4, 2])
    """

    def prepare(self, example: Any) -> None:
        """Build the private encoders and the decoder."""
        name = check_one_layer(self.model, self.layers, "DSN")
        if not self.alignment.needed:
            raise InvalidInputError("DSN needs a distance of the shared codes, got discrepancy=None; try 'mmd'.")
        _refuse_inputs(example, "example")
        encoder = find_encoder(self.model, name, example)
        self.private_source = _private_encoder(self.model, encoder.weights)
        self.private_target = _private_encoder(self.model, encoder.weights)
        self.decoder = make_decoder(encoder.width, example.shape[1:]).to(example)

    def further_losses(self, *passes: Any) -> dict[str, tuple[float, Tensor]]:
        """Return reconstruction and difference, each the sum of both domains'."""
        inputs, target_inputs, source, target = passes
        of_source = self._separate(inputs, source, self.private_source)
        of_target = self._separate(target_inputs, target, self.private_target)
        reconstruction, difference = (a + b for a, b in zip(of_source, of_target, strict=True))
        return {"reconstruction": (ALPHA, reconstruction), "difference": (BETA, difference)}

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
