"""One call that adapts any network: a copy of it is trained on two loaders and handed back as what it was."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from momentalign.discrepancies.base import Interval
from momentalign.discrepancies.names import named_class
from momentalign.errors import InvalidInputError, InvalidTypeError
from momentalign.moments.streaming import Moments
from momentalign.training.deep.adda import ADDA, check_one_layer, find_encoder
from momentalign.training.deep.alignment import Discrepancy, Schedule, check_weights, distances_of
from momentalign.training.deep.checkpoint import LastCheckpoint, SafetensorsIO
from momentalign.training.deep.dsn import GAMMA, DomainSeparation
from momentalign.training.deep.lightning import interruptible, kept_random_state, pl, quiet, seed_everything
from momentalign.training.deep.loaders import PairedLoader
from momentalign.training.deep.module import DeepAdaptation, Loss, OptimizerChoice, inputs_of, labelled
from momentalign.training.deep.self_training import START
from momentalign.training.torch_engine import open_device
from momentalign.validation import check_number, check_seed, positive_int

__all__ = ["adapt"]

LOG_EVERY = 50  # steps, Lightning's own choice
NOT_FOR_ADDA = (
    "weight", "schedule", "n_moments", "interval", "sharpen", "consistency", "augment", "sharpen_from",
    "sharpen_schedule", "source_moments",
)  # fmt: skip


def adapt(
    model: nn.Module,
    layer: str | Sequence[str],
    source_loader: Iterable[Any] | None,
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
    sharpen: float = 0.0,
    consistency: float = 0.0,
    augment: Callable[[Any], Any] | None = None,
    sharpen_from: float = START,
    sharpen_schedule: Schedule = "constant",
    source_moments: Moments | None = None,
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
        None where there is no source: the weights up to the layer are then adapted to `source_moments`, those above it
        stay.
    target_loader
        Gives batches of inputs, or (inputs, ...) of which the rest is not looked at.
    discrepancy, weight, schedule, n_moments, interval, loss, optimizer, learning_rate, domain_norm, semi_supervised
        As in :class:`~momentalign.training.deep.module.DeepAdaptation`. Two more methods are known by name.
        ``"dsn"``: domain separation networks (:class:`~momentalign.training.deep.dsn.DomainSeparation`), with
        `weight` as a factor on their similarity. ``"adda"``: all settings are those of training on the source, after
        which :class:`~momentalign.training.deep.adda.ADDA` adapts the encoder with the paper's settings, for
        `max_epochs` again.
    sharpen, consistency, augment, sharpen_from, sharpen_schedule
        Two losses on the target's predictions for the later part of the training, as in
        :class:`~momentalign.training.deep.module.DeepAdaptation`.
    source_moments
        :class:`~momentalign.Moments` of what the layer gives for the source, flattened to rows; for ``"cmd"`` and
        ``"cv-cmd"``, with ``source_loader=None``.
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
    objective: dict[str, Any] = {
        "weight": weight, "schedule": schedule, "n_moments": n_moments, "interval": interval, "loss": loss,
        "optimizer": optimizer, "learning_rate": learning_rate, "domain_norm": domain_norm,
        "semi_supervised": semi_supervised, "sharpen": sharpen, "consistency": consistency, "augment": augment,
        "sharpen_from": sharpen_from, "sharpen_schedule": sharpen_schedule, "source_moments": source_moments,
    }  # fmt: skip
    _refuse_settings(model, discrepancy, objective, source_loader, source_validation, patience, gradient_clip)
    required = _comparable({**objective, "layer": layer, "discrepancy": discrepancy}, random_state)
    validation = {"source": source_validation, "target": target_validation}
    validation_loaders = {domain: _as_loader(loader) for domain, loader in validation.items() if loader is not None}
    trainer = {
        "max_epochs": positive_int(max_epochs, "max_epochs"),
        "precision": precision,
        "num_nodes": positive_int(num_nodes, "num_nodes", example="1"),
        "enable_progress_bar": progress,
        **_placement(device, devices),
    }

    def train(build: Callable[[PairedLoader], DeepAdaptation], folder: str | Path | None, **settings: Any) -> nn.Module:
        """Return the network that is trained by what is built for these loaders."""
        pairs = PairedLoader([None] if source_loader is None else source_loader, target_loader, steps=steps)
        if len(pairs) == 0:
            raise InvalidInputError("source_loader and target_loader give no batch; give rows, or smaller batches.")
        module = build(pairs)
        module.on_epoch, module.required, module.validation_domains = on_epoch, required, list(validation_loaders)
        last = None if folder is None else LastCheckpoint(folder, every=checkpoint_every)
        kept, found = (None, None) if last is None else (last.path, last.found())
        callbacks = [last, *settings.pop("callbacks", [])]
        fitted = pl.Trainer(
            callbacks=[callback for callback in callbacks if callback is not None],
            plugins=[SafetensorsIO()],
            enable_checkpointing=last is not None,
            enable_model_summary=False,
            logger=False if logs is None else pl.loggers.TensorBoardLogger(logs, name=None),
            log_every_n_steps=min(LOG_EVERY, len(pairs)),
            num_sanity_val_steps=0,
            **trainer,
            **settings,
        )
        with memory_advice(source_loader, target_loader, checkpoint=kept), interruptible():
            fitted.fit(module, pairs, list(validation_loaders.values()) or None, ckpt_path=found)
        return module.model.cpu()

    limits: dict[str, Any] = {"gradient_clip_val": gradient_clip}
    if patience is not None:
        stop = pl.callbacks.EarlyStopping("validation_loss", patience=positive_int(patience, "patience"))
        limits["callbacks"] = [stop]
    with kept_random_state(), quiet():
        seed = check_seed(random_state)
        seed_everything(seed)
        network = copy.deepcopy(model)
        if not network.training:
            network.train()
        if discrepancy != "adda":
            build = partial(_module, network, layer, discrepancy, objective)
            with _head_frozen(network, layer, target_loader) if source_loader is None else nullcontext():
                return train(build, checkpoint, **limits).eval()
        folders = [None, None] if checkpoint is None else [Path(checkpoint, "source"), Path(checkpoint, "target")]
        trained = train(partial(_module, network, layer, None, objective), folders[0], **limits)
        # As new: a run that is resumed here has not drawn what the first stage drew.
        seed_everything(seed)
        # Two optimizers that take turns leave weights of the other without a gradient.
        strategy = "ddp_find_unused_parameters_true" if devices * num_nodes > 1 else "auto"
        return train(partial(_second_stage, trained, layer, loss), folders[1], strategy=strategy).eval()


def _refuse_settings(
    model: object,
    discrepancy: object,
    objective: Mapping[str, Any],
    source_loader: object,
    source_validation: object,
    patience: object,
    gradient_clip: float | None,
) -> None:
    """Refuse what cannot be trained, and settings that would change nothing."""
    if not isinstance(model, nn.Module):
        raise InvalidTypeError(f"model must be a torch.nn.Module, got {model!r:.80}.")
    if any(hasattr(part, "unshard") for part in model.modules()):
        raise InvalidInputError(
            "model is sharded over processes (FSDP2) and cannot be copied; train a DeepAdaptation of the whole network "
            "with Lightning's ModelParallelStrategy."
        )
    if not any(weight.requires_grad for weight in model.parameters()):
        raise InvalidInputError("model has no weight that may change; set requires_grad_() of what is to be trained.")
    if gradient_clip is not None:
        check_number(gradient_clip, "gradient_clip", above=0.0, example=1.0)
    if (source_loader is None) != (objective["source_moments"] is not None):
        raise InvalidInputError(
            "source_moments stand in for a source that is not there; give them with source_loader=None, or neither."
        )
    if patience is not None and source_validation is None:
        raise InvalidInputError(
            f"patience={patience!r} needs labelled rows to look at; give them as source_validation=loader."
        )
    if discrepancy != "adda":
        return
    if objective["domain_norm"]:
        raise InvalidInputError(
            "domain_norm=True cannot go with 'adda', whose second network finds the target's statistics by itself; "
            "leave it out."
        )
    for name in NOT_FOR_ADDA:
        if objective[name] != inspect.signature(adapt).parameters[name].default:
            raise InvalidInputError(
                f"{name}={objective[name]!r} has no effect on 'adda', which weighs no distance; leave it out."
            )


def _as_loader(batches: Iterable[Any]) -> Iterable[Any]:
    """What Lightning takes for one loader; it would take a list for as many loaders as it has batches."""
    return DataLoader(batches, batch_size=None) if isinstance(batches, (list, tuple)) else batches  # type: ignore[arg-type]


# What the allocator of the CPU says; that of an accelerator has an error of its own.
SHORTAGES = ("can't allocate memory", "not enough memory", "out of memory")


@contextmanager
def memory_advice(source_loader: Any, target_loader: Any, *, checkpoint: Path | None) -> Iterator[None]:
    """Turn a shortage of memory into a sentence with a remedy; any other error is left as it is.

    Examples
    --------
    >>> loader = torch.utils.data.DataLoader(range(99), batch_size=32)
    >>> with memory_advice(loader, loader, checkpoint=None):
    ...     raise MemoryError
    Traceback (most recent call last):
    ...
    momentalign.errors.InvalidInputError: memory ran out with batches of 32 source and 32 target rows; lower batch_size.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not _is_shortage(error):
            raise
        sizes = [getattr(loader, "batch_size", None) for loader in (source_loader, target_loader)]
        known = all(isinstance(size, int) for size in sizes)
        batches = f"batches of {sizes[0]} source and {sizes[1]} target rows" if known else "these batches"
        kept = "" if checkpoint is None else f" and start again, it goes on from {checkpoint}"
        raise InvalidInputError(f"memory ran out with {batches}; lower batch_size{kept}.") from error


def _is_shortage(error: BaseException) -> bool:
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return any(text in str(error) for text in SHORTAGES)


def _module(
    model: nn.Module, layer: Any, discrepancy: Any, settings: dict[str, Any], pairs: PairedLoader
) -> DeepAdaptation:
    """The module that trains a network in one stage."""
    if isinstance(discrepancy, str) and discrepancy == "dsn" and settings["source_moments"] is None:
        settings = {**settings, "weight": check_weights(settings["weight"], 1)[0] * GAMMA}
        return DomainSeparation(model, layer, discrepancy="mmd", example=_example(model, pairs), **settings)
    known = [named_class(distance) for distance in distances_of(discrepancy)]
    needs_width = any(kind is not None and kind.needs_width for kind in known)
    example = _example(model, pairs) if needs_width else None
    return DeepAdaptation(model, layer, discrepancy=discrepancy, example=example, **settings)


def _second_stage(model: nn.Module, layer: Any, loss: Loss | None, pairs: PairedLoader) -> ADDA:
    """The module that adapts the encoder of a network trained on the source."""
    return ADDA(model, layer, example=_example(model, pairs), loss=loss)


def _example(model: nn.Module, pairs: PairedLoader) -> Any:
    """Inputs of the first source batch."""
    return _placed(model, labelled(pairs.peek(), "source_loader")[0])


@contextmanager
def _head_frozen(model: nn.Module, layer: Any, target_loader: Iterable[Any]) -> Iterator[None]:
    """Keep what is above a layer as it is, while nothing tells right answers from wrong ones."""
    example = _placed(model, inputs_of(PairedLoader([None], target_loader, steps=1).peek(1)))
    below = find_encoder(model, check_one_layer(model, layer, "source_moments"), example).weights
    above = [weight for name, weight in model.named_parameters() if weight.requires_grad and name not in below]
    for weight in above:
        weight.requires_grad_(False)
    try:
        yield
    finally:
        for weight in above:
            weight.requires_grad_()


def _placed(model: nn.Module, inputs: Any) -> Any:
    """Inputs where the network is and of its precision."""
    parameter = next(model.parameters(), None)
    if not isinstance(inputs, Tensor) or parameter is None:
        return inputs
    # A stage in another precision leaves the network in it; batches follow only once a Trainer hands them out.
    both_real = inputs.is_floating_point() and parameter.is_floating_point()
    return inputs.to(parameter.device, parameter.dtype if both_real else None)


def _comparable(settings: dict[str, Any], random_state: object) -> dict[str, str]:
    """Settings as text, to be compared with those of a checkpoint; what only code can express is left out."""
    described = {}
    for name, value in (settings if random_state is None else {**settings, "random_state": random_state}).items():
        parts = list(value) if isinstance(value, (list, tuple)) else [value]
        if all(isinstance(part, (bool, int, float, str, type(None))) for part in parts):
            described[name] = repr(parts if isinstance(value, (list, tuple)) else value)
    return described


def _placement(device: str, devices: int) -> dict[str, Any]:
    """The settings of a Trainer that stand for a device and how many of it."""
    count = positive_int(devices, "devices", example="1")
    if device == "auto":
        return {"accelerator": "auto", "devices": count}
    opened = open_device(device)
    chosen = count if opened.index is None or opened.type == "cpu" else [opened.index]
    return {"accelerator": opened.type, "devices": chosen}
