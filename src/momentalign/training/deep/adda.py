r"""Adversarial discriminative domain adaptation (ADDA): the target gets an encoder of its own.

A peer method of Section 6.5 in Zellinger et al. (2019). Reference: E. Tzeng, J. Hoffman, K. Saenko, T. Darrell,
Adversarial discriminative domain adaptation, 2017. A network trained on the source, encoder :math:`M_s` and classifier,
stays as it is. The encoder :math:`M_t` starts as a copy of :math:`M_s`; it and a discriminator :math:`D` take turns in

.. math:: \min_D\; -\mathbb E_{x_s} \log D(M_s(x_s)) - \mathbb E_{x_t} \log (1 - D(M_t(x_t))), \qquad
          \min_{M_t}\; -\mathbb E_{x_t} \log D(M_t(x_t)),

the loss of a GAN with inverted labels. The classifier of the source on top of :math:`M_t` is the network of the target.

ADDA and DSN cut a network at a layer into an encoder and a classifier. Any network can be cut so: gradients tell which
weights the layer's output depends on, the order of calls which parts run after it.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, softplus

from momentalign.errors import InvalidInputError
from momentalign.networks.layers import eval_mode, find_layer, network_outputs, recorded
from momentalign.training.deep.alignment import check_layers
from momentalign.training.deep.module import DeepAdaptation, Loss, inputs_of, labelled

__all__ = ["ADDA", "Encoder", "check_one_layer", "find_encoder", "fresh_weights"]


class Encoder(NamedTuple):
    """Names of the weights below a layer, of the parts above it, and the layer's width."""

    weights: list[str]
    above: list[str]
    width: int


def check_one_layer(model: nn.Module, layer: str | Sequence[str], method: str) -> str:
    """Return the name of the only layer given, which the network has."""
    names = check_layers(model, layer)
    if len(names) != 1:
        raise InvalidInputError(f"{method} cuts the network at one layer, got layer={layer!r}; name one.")
    return names[0]


def find_encoder(model: nn.Module, layer: str, inputs: Any) -> Encoder:
    """Return where a network is cut by a layer, from a pass of some rows that changes nothing in it.

    Weights that are frozen already are left out.

    Examples
    --------
    >>> network = nn.Sequential(nn.Linear(2, 5), nn.Tanh(), nn.Linear(5, 3))
    >>> find_encoder(network, "1", torch.zeros(4, 2))
    Encoder(weights=['0.weight', '0.bias'], above=['2'], width=5)
    """
    weights = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    with eval_mode(model), _called_before(model, layer) as below, recorded(model, [layer]) as activations:
        network_outputs(model, inputs)
    if layer not in activations:
        raise InvalidInputError(f"layer {layer!r} has no part in the model's forward pass; name another.")
    values = activations[layer]
    if not values.requires_grad:
        raise InvalidInputError(f"layer {layer!r} has nothing to train below it; name a later one or unfreeze weights.")
    gradients = torch.autograd.grad(values.sum(), list(weights.values()), allow_unused=True)
    needed = [name for name, gradient in zip(weights, gradients, strict=True) if gradient is not None]
    above = [name for name, part in model.named_modules() if part not in below]
    return Encoder(needed, above, values.shape[1])


@contextmanager
def _called_before(model: nn.Module, layer: str) -> Iterator[set[nn.Module]]:
    """Collect the parts that have been called when the layer gives its last output."""
    called: set[nn.Module] = set()
    below: set[nn.Module] = set()

    def start(part: nn.Module, _inputs: Any) -> None:
        called.add(part)

    def reach(_part: nn.Module, _inputs: Any, _output: Any) -> None:
        below.update(called)

    handles = [part.register_forward_pre_hook(start) for part in model.modules()]
    handles.append(find_layer(model, layer).register_forward_hook(reach))
    try:
        yield below
    finally:
        for handle in handles:
            handle.remove()


@torch.no_grad()
def fresh_weights(model: nn.Module) -> None:
    """Draw all weights of a network anew, as its layers do when they are made.

    The weights of a layer that cannot do so (it has no ``reset_parameters``) are put in a random order: their size
    stays, what they have learned is gone.

    Examples
    --------
    >>> _ = torch.manual_seed(0)
    >>> network = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    >>> before = network[0].weight.clone()
    >>> fresh_weights(network)
    >>> bool((network[0].weight == before).any())
    False
    """
    for part in model.modules():
        reset = getattr(part, "reset_parameters", None)
        if callable(reset):
            reset()
            continue
        for weight in part.parameters(recurse=False):
            order = torch.randperm(weight.numel()).to(weight.device)
            weight.copy_(weight.flatten()[order].reshape(weight.shape))


# Section 5.1 of Tzeng et al. (2017), for digits.
DISCRIMINATOR = (500, 500)
LEARNING_RATE = 2e-4
BETAS = (0.5, 0.999)


class ADDA(DeepAdaptation):
    r"""The second stage of ADDA: adapts the encoder of a network that has been trained on the source.

    The first stage is any training on the source, for instance a
    :class:`~momentalign.training.deep.module.DeepAdaptation` with ``discrepancy=None``. Train this module, like that
    one, on a :class:`~momentalign.training.deep.loaders.PairedLoader`; ``model`` then is the network of the target.

    Parameters
    ----------
    model
        A network trained on the source. What is below `layer` is trained in place, the rest stays as it is.
    layer
        The name of the submodule whose output the discriminator sees.
    example
        A batch of inputs, from which the parts of the network are found.
    loss
        A function of outputs and labels to report for the source; None is the cross-entropy.

    Notes
    -----
    Discriminator (three layers) and optimizers (Adam with learning rate 0.0002 and :math:`\beta_1 = 0.5`) are those of
    the paper. Logged are ``distance``, what the discriminator sees on the scale of
    :class:`~momentalign.discrepancies.adversarial.AdversarialLoss` (0 when it sees nothing, at most 2 log 2);
    ``encoder_loss``; and ``source_loss``, that of the source network, which does not change: it answers for the source
    in validation too. Every pair of batches makes two steps, so ``trainer.global_step`` counts double.

    Lightning can neither clip gradients nor gather them over batches where optimizers take turns. With several
    processes the Trainer needs ``strategy="ddp_find_unused_parameters_true"``.

    Examples
    --------
    >>> network = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 3))
    >>> ADDA(network, "1", example=torch.zeros(4, 2)).discriminator
    Sequential(
      (0): Linear(in_features=8, out_features=500, bias=True)
      (1): ReLU()
      (2): Linear(in_features=500, out_features=500, bias=True)
      (3): ReLU()
      (4): Linear(in_features=500, out_features=1, bias=True)
    )
    """

    def __init__(self, model: nn.Module, layer: str | Sequence[str], *, example: Any, loss: Loss | None = None) -> None:
        super().__init__(model, layer, discrepancy=None, loss=loss)
        self.automatic_optimization = False
        self.encoder = find_encoder(model, check_one_layer(model, layer, "ADDA"), example)
        self.source = copy.deepcopy(model).requires_grad_(False)
        self._freeze()
        codes = self._source_pass(example)[1]
        first, second = DISCRIMINATOR
        self.discriminator = nn.Sequential(
            nn.Linear(self.encoder.width, first), nn.ReLU(), nn.Linear(first, second), nn.ReLU(), nn.Linear(second, 1)
        ).to(codes)

    def _freeze(self) -> None:
        """Keep batch norm and dropout of what is not trained as they are in use."""
        self.source.eval()
        for name in self.encoder.above:
            self.model.get_submodule(name).training = False

    def train(self, mode: bool = True) -> Self:
        """Set the mode of what is trained."""
        super().train(mode)
        self._freeze()
        return self

    def configure_optimizers(self) -> list[torch.optim.Optimizer]:
        """Return one optimizer for the discriminator and one for the target's encoder."""
        weights = dict(self.model.named_parameters())
        groups = list(self.discriminator.parameters()), [weights[name] for name in self.encoder.weights]
        return [torch.optim.Adam(group, lr=LEARNING_RATE, betas=BETAS) for group in groups]

    def training_step(self, batch: Any, batch_idx: int) -> None:  # type: ignore[override]
        """Let the discriminator make a step, then the encoder against the discriminator as it is now."""
        inputs, labels = labelled(batch[0], "source_loader")
        outputs, source = self._source_pass(inputs)
        target = self.one_pass(inputs_of(batch[1])).activations[self.layers[0]]
        of_discriminator, of_encoder = self.optimizers()  # type: ignore[attr-defined]
        loss = self._discriminator_loss(source, target.detach())
        self._step(of_discriminator, loss)
        encoder_loss = softplus(-self.discriminator(target)).mean()
        self._step(of_encoder, encoder_loss)
        figures = {
            "source_loss": (self.loss or cross_entropy)(outputs, labels),
            "distance": 2.0 * math.log(2.0) - loss.detach(),
        }
        self._add_up(figures)
        if (batch_idx + 1) % self._log_every == 0:
            means = self.means_over_ranks({**figures, "encoder_loss": encoder_loss})
            self.log_dict(means, prog_bar=True, batch_size=len(labels))

    @torch.no_grad()
    def _source_pass(self, inputs: Any) -> tuple[Tensor, Tensor]:
        with recorded(self.source, self.layers) as activations:
            outputs = network_outputs(self.source, inputs)
        return outputs, activations[self.layers[0]]

    def _discriminator_loss(self, source: Tensor, target: Tensor) -> Tensor:
        """The cross-entropy of both domains; positive outputs stand for the source."""
        return softplus(-self.discriminator(source)).mean() + softplus(self.discriminator(target)).mean()

    def _step(self, optimizer: Any, loss: Tensor) -> None:
        optimizer.zero_grad()
        self.manual_backward(loss)
        optimizer.step()

    def _predict_source(self, inputs: Any) -> Tensor:
        return self._source_pass(inputs)[0]
