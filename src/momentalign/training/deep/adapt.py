"""One call that adapts any network: a copy of it is trained on two loaders and handed back as what it was."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from torch import Tensor, nn
from torch.utils.data import DataLoader

from momentalign.discrepancies.base import Interval
from momentalign.discrepancies.names import named_class
from momentalign.errors import InvalidInputError, InvalidTypeError
from momentalign.training.deep.alignment import Schedule
from momentalign.training.deep.lightning import kept_random_state, seed_everything
from momentalign.training.deep.loaders import PairedLoader
from momentalign.training.deep.module import labelled, speaking_of_batches
from momentalign.training.torch_engine import open_device
from momentalign.validation import positive_int

if TYPE_CHECKING:
    from momentalign.training.deep.alignment import Discrepancy
    from momentalign.training.deep.checkpoint import LastCheckpoint
    from momentalign.training.deep.lightning import pl
    from momentalign.training.deep.module import DeepAdaptation, Loss, OptimizerChoice

__all__ = ["adapt"]

LOG_EVERY = 50  # steps, Lightning's own choice
TERMINATED = 143  # what a shell reports of a process that ended on SIGTERM


def adapt(
    model: nn.Module,
    layer: str | Sequence[str],
    source_loader: Iterable[Any],
    target_loader: Iterable[Any],
    *,
    discrepancy: Discrepancy | Sequence[Discrepancy] | Literal["adda", "dsn"] = "cmd",
    weight: float | Sequence[float] = 1.0,
    schedule: Schedule = "constant",
    n_moments: int = 5,
    interval: Interval | None = None,
    loss: Loss | None = None,
    optimizer: OptimizerChoice = "adam",
    learning_rate: float | None = None,
    domain_norm: bool = False,
    semi_supervised: bool = False,
    max_epochs: int = 10,
    steps: int | None = None,
    source_validation: Iterable[Any] | None = None,
    target_validation: Iterable[Any] | None = None,
    patience: int | None = None,
    gradient_clip: float | None = None,
    precision: Any = "32-true",
    device: str = "auto",
    devices: int = 1,
    num_nodes: int = 1,
    checkpoint: str | Path | None = None,
    checkpoint_every: int | None = 100,
    logs: str | Path | None = None,
    random_state: int | None = None,
    progress: bool = False,
    on_epoch: Callable[[dict[str, float]], None] | None = None,
) -> nn.Module:
    r"""Adapt a network to a target domain without labels, Eq. (24) at the output of a named layer.

    Parameters
    ----------
    model
        Any network. It is not touched: a copy is trained. A network in eval mode is trained in train mode; in one that
        is in train mode, layers set to eval stay frozen so.
    layer
        The name of the submodule whose output is aligned, or several names.
    source_loader
        Gives batches (inputs, labels). A :class:`~momentalign.training.deep.ranks.BalancedSampler` balances classes.
    target_loader
        Gives batches of inputs, or (inputs, ...) of which the rest is not looked at.
    discrepancy, weight, schedule, n_moments, interval, loss, optimizer, learning_rate, domain_norm, semi_supervised
        As in :class:`~momentalign.training.deep.module.DeepAdaptation`. Two more methods are known by name.
        ``"dsn"``: domain separation networks (:class:`~momentalign.training.deep.dsn.DomainSeparation`), with
        `weight` as a factor on their similarity. ``"adda"``: all settings are those of training on the source, after
        which :class:`~momentalign.training.deep.adda.ADDA` adapts the encoder with the paper's settings, for
        `max_epochs` again.
    max_epochs, steps
        Epochs, and pairs of batches in one; None takes the length of the longer loader, the shorter one cycles.
    source_validation, target_validation
        Loaders of labelled rows whose loss and accuracy are reported after every epoch. That of the target is for
        monitoring only: nothing is decided on it.
    patience
        Stop when the loss on `source_validation` has not fallen for so many epochs; the weights are those of the last.
    gradient_clip
        Largest norm of the gradient of a step.
    precision
        As in Lightning: ``"32-true"``, ``"bf16-mixed"``, ``"16-mixed"``, ``"64-true"``.
    device, devices, num_nodes
        ``"auto"``, ``"cpu"``, ``"cuda"``, ``"cuda:1"``; how many of them on each node, and the number of nodes. With
        more than one, each gets its own part of the rows, and batches stay as large as they are on each.
    checkpoint, checkpoint_every
        A folder for checkpoints, written after every epoch and every so many steps, and on SIGTERM, after which the
        process leaves with code 143. Where the folder holds one, training goes on from it, to the same bits as if it
        had never stopped.
    logs
        A folder for TensorBoard curves.
    random_state
        A seed; with it the run is repeatable. The generators of the process are left as they were.
    progress
        Whether to show a progress bar.
    on_epoch
        Is called with the figures of every epoch; ``history = []; adapt(..., on_epoch=history.append)`` keeps them.

    Returns
    -------
    torch.nn.Module
        The adapted copy, of the class of `model`, in eval mode on the CPU.

    Examples
    --------
    >>> import torch
    >>> rows, labels = torch.randn(40, 2), torch.arange(40) % 2
    >>> source = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(rows, labels), batch_size=20)
    >>> target = torch.utils.data.DataLoader(rows + 1.0, batch_size=10)
    >>> network = nn.Sequential(nn.Linear(2, 8), nn.Sigmoid(), nn.Linear(8, 2))
    >>> history = []
    >>> adapted = adapt(network, "1", source, target, max_epochs=2, random_state=0, on_epoch=history.append)
    >>> adapted(rows).shape, len(history)
    (torch.Size([40, 2]), 2)
    """
    from momentalign.training.deep.lightning import quiet

    _refuse_settings(model, discrepancy, domain_norm=domain_norm, gradient_clip=gradient_clip)
    if patience is not None and source_validation is None:
        raise InvalidInputError(
            f"patience={patience!r} needs labelled rows to look at; give them as source_validation=loader."
        )
    objective: dict[str, Any] = {
        "weight": weight,
        "schedule": schedule,
        "n_moments": n_moments,
        "interval": interval,
        "loss": loss,
        "optimizer": optimizer,
        "learning_rate": learning_rate,
        "domain_norm": domain_norm,
        "semi_supervised": semi_supervised,
    }
    named = {"layer": layer, "discrepancy": discrepancy} | (
        {} if random_state is None else {"random_state": random_state}
    )
    run = _Run(
        source_loader,
        target_loader,
        steps=steps,
        validation={"source": source_validation, "target": target_validation},
        checkpoint_every=checkpoint_every,
        on_epoch=on_epoch,
        settings={
            "max_epochs": max_epochs,
            "precision": precision,
            "num_nodes": num_nodes,
            "enable_progress_bar": progress,
            "logs": logs,
            **_read_device(device, devices),
        },
        asked=_described(objective | named),
    )
    limits = {"patience": patience, "gradient_clip_val": gradient_clip}
    with kept_random_state(), quiet():
        seed = _read_seed(random_state)
        seed_everything(seed)
        network = _trainable_copy(model)
        if discrepancy != "adda":
            adapted = run.train(partial(_module, network, layer, discrepancy, **objective), checkpoint, **limits)
        else:
            first = partial(_module, network, layer, None, **objective)
            second = partial(_second_stage, layer=layer, loss=loss)
            adapted = run.train_twice(first, second, checkpoint, seed, several=devices * num_nodes > 1, **limits)
    return adapted.eval()


def _refuse_settings(model: object, discrepancy: object, *, domain_norm: bool, gradient_clip: float | None) -> None:
    if not isinstance(model, nn.Module):
        raise InvalidTypeError(f"model must be a torch.nn.Module, got {model!r:.80}.")
    if not any(weight.requires_grad for weight in model.parameters()):
        raise InvalidInputError("model has no weight that may change; set requires_grad_() of what is to be trained.")
    if gradient_clip is not None and not 0.0 < gradient_clip < math.inf:
        raise InvalidInputError(f"gradient_clip must be a number above 0 or None, got {gradient_clip!r}.")
    if domain_norm and discrepancy == "adda":
        raise InvalidInputError(
            "domain_norm=True has no place in 'adda', whose second network finds the target's statistics by itself; "
            "leave it out."
        )


@dataclass(frozen=True)
class _Run:
    """How each stage is trained: on what, for how long, where, and what is kept of it."""

    source_loader: Iterable[Any]
    target_loader: Iterable[Any]
    steps: int | None
    validation: dict[str, Iterable[Any] | None]
    checkpoint_every: int | None
    on_epoch: Callable[[dict[str, float]], None] | None
    settings: dict[str, Any]
    asked: dict[str, str]

    def train(
        self, make: Callable[[PairedLoader], DeepAdaptation], folder: str | Path | None, **settings: Any
    ) -> nn.Module:
        """Return the network of the module that is made for these loaders, trained."""
        pairs = PairedLoader(self.source_loader, self.target_loader, steps=self.steps)
        if len(pairs) == 0:
            raise InvalidInputError("source_loader and target_loader give no batch; give rows, or smaller batches.")
        module = make(pairs)
        module.on_epoch, module.asked = self.on_epoch, self.asked
        last = None if folder is None else _last_checkpoint(folder, self.checkpoint_every)
        every = min(LOG_EVERY, len(pairs))
        trainer = _trainer(last, log_every_n_steps=every, **self.settings, **settings)
        found = None if last is None else last.path
        with speaking_of_batches(self.source_loader, self.target_loader, checkpoint=found):
            _fit(trainer, module, pairs, self.validation, last)
        return module.model.cpu()

    def train_twice(
        self,
        first: Callable[[PairedLoader], DeepAdaptation],
        second: Callable[[nn.Module, PairedLoader], DeepAdaptation],
        folder: str | Path | None,
        seed: int,
        *,
        several: bool,
        **limits: Any,
    ) -> nn.Module:
        """Return the network of the second stage, which begins with that of the first."""
        folders = [None, None] if folder is None else [Path(folder, "source"), Path(folder, "target")]
        plain = self.train(first, folders[0], **limits)
        # As new: a run that is resumed here has not drawn what the first stage drew.
        seed_everything(seed)
        # Two optimizers that take turns leave weights of the other without a gradient.
        strategy = "ddp_find_unused_parameters_true" if several else "auto"
        return self.train(partial(second, plain), folders[1], patience=None, strategy=strategy)


def _module(model: nn.Module, layer: Any, discrepancy: Any, pairs: PairedLoader, **settings: Any) -> DeepAdaptation:
    """The module of one training run."""
    from momentalign.training.deep.alignment import read_weights
    from momentalign.training.deep.dsn import GAMMA, DomainSeparation
    from momentalign.training.deep.module import DeepAdaptation

    if isinstance(discrepancy, str) and discrepancy == "dsn":
        gamma = read_weights(settings.pop("weight"), 1)[0] * GAMMA
        return DomainSeparation(model, layer, example=_example(model, pairs), gamma=gamma, **settings)
    example = _example(model, pairs) if _needs_example(discrepancy) else None
    return DeepAdaptation(model, layer, discrepancy=discrepancy, example=example, **settings)


def _second_stage(model: nn.Module, pairs: PairedLoader, *, layer: Any, loss: Loss | None) -> DeepAdaptation:
    """The module of ADDA's second stage, on a network trained on the source."""
    from momentalign.training.deep.adda import ADDA

    return ADDA(model, layer, example=_example(model, pairs), loss=loss)


def _described(settings: dict[str, Any]) -> dict[str, str]:
    """Settings in words, to be compared with those of a checkpoint; what only code can express is left out."""
    values = {name: list(value) if isinstance(value, (list, tuple)) else [value] for name, value in settings.items()}
    plain = (bool, int, float, str, type(None))
    return {
        name: repr(parts) if isinstance(settings[name], (list, tuple)) else repr(parts[0])
        for name, parts in values.items()
        if all(isinstance(part, plain) for part in parts)
    }


def _last_checkpoint(folder: str | Path, every: int | None) -> LastCheckpoint:
    from momentalign.training.deep.checkpoint import LastCheckpoint

    return LastCheckpoint(folder, every=every)


def _trainable_copy(model: nn.Module) -> nn.Module:
    copied = copy.deepcopy(model)
    return copied if copied.training else copied.train()


def _read_seed(random_state: object) -> int:
    """A seed; a fresh one where none is given."""
    if random_state is None:
        return int(np.random.SeedSequence().generate_state(1)[0])
    if isinstance(random_state, bool) or not isinstance(random_state, (int, np.integer)) or random_state < 0:
        raise InvalidInputError(f"random_state must be a whole number from 0 up or None, got {random_state!r}.")
    return int(random_state)


def _needs_example(discrepancy: Any) -> bool:
    several = isinstance(discrepancy, Sequence) and not isinstance(discrepancy, str)
    known = [named_class(name) for name in (discrepancy if several else [discrepancy])]
    return any(found is not None and found.needs_width for found in known)


def _example(model: nn.Module, pairs: PairedLoader) -> Any:
    """Inputs of the first source batch, where the network is and of its precision."""
    inputs, _ = labelled(pairs.peek(), "source_loader")
    parameter = next(model.parameters(), None)
    if not isinstance(inputs, Tensor) or parameter is None:
        return inputs
    # A stage in another precision leaves the network in it; batches follow only once a Trainer hands them out.
    both_real = inputs.is_floating_point() and parameter.is_floating_point()
    return inputs.to(parameter.device, parameter.dtype if both_real else None)


def _read_device(device: str, devices: int) -> dict[str, Any]:
    """The device in the words of Lightning."""
    count = positive_int(devices, "devices", example="1")
    if device == "auto":
        return {"accelerator": "auto", "devices": count}
    opened = open_device(device)
    chosen = count if opened.index is None or opened.type == "cpu" else [opened.index]
    return {"accelerator": opened.type, "devices": chosen}


def _trainer(
    last: LastCheckpoint | None, *, logs: str | Path | None, patience: int | None, max_epochs: int, **settings: Any
) -> pl.Trainer:
    """A Trainer that does what was asked for and nothing else."""
    from momentalign.training.deep.checkpoint import SafetensorsIO
    from momentalign.training.deep.lightning import pl

    callbacks: list[pl.Callback] = [] if last is None else [last]
    if patience is not None:
        waited = positive_int(patience, "patience")
        callbacks.append(pl.callbacks.EarlyStopping("validation_loss", patience=waited))
    return pl.Trainer(
        max_epochs=positive_int(max_epochs, "max_epochs"),
        callbacks=callbacks,
        plugins=[SafetensorsIO()],
        enable_checkpointing=last is not None,
        enable_model_summary=False,
        logger=False if logs is None else pl.loggers.TensorBoardLogger(logs, name=None),
        num_sanity_val_steps=0,
        **settings,
    )


def _fit(
    trainer: pl.Trainer,
    module: DeepAdaptation,
    pairs: PairedLoader,
    validation: dict[str, Iterable[Any] | None],
    last: LastCheckpoint | None,
) -> None:
    from pytorch_lightning.utilities.exceptions import SIGTERMException

    from momentalign.training.deep.lightning import interruptible

    given = {domain: _as_loader(loader) for domain, loader in validation.items() if loader is not None}
    module.validation_domains = list(given)
    found = None if last is None else last.found()
    try:
        with interruptible():
            trainer.fit(module, pairs, list(given.values()) or None, ckpt_path=found)
    except SIGTERMException:
        raise SystemExit(TERMINATED) from None


def _as_loader(batches: Iterable[Any]) -> Iterable[Any]:
    """What Lightning takes for one loader; it would take a list for as many loaders as it has batches."""
    return DataLoader(batches, batch_size=None) if isinstance(batches, (list, tuple)) else batches  # type: ignore[arg-type]
