r"""Deep moment alignment as a Lightning module: any network, aligned at named layers, in any Trainer.

Eq. (24) of Zellinger et al. (2019): the loss of a step is
:math:`L(X_s, Y_s) + \lambda \sum_{\text{layer}} d(h(X_s), h(X_t))`, and where asked for losses on predictions for the
target are added.

A source batch holds inputs and labels. Of a target batch the inputs are read, and labels only where asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from momentalign.discrepancies.central_moment import Interval
from momentalign.errors import DivergedError, InvalidInputError
from momentalign.moments.streaming import Moments
from momentalign.networks.layers import network_outputs, recorded
from momentalign.training.config import Optimizer
from momentalign.training.deep.alignment import Alignment, Discrepancy, Schedule, check_layers, check_schedule
from momentalign.training.deep.lightning import pl, random_state, restore_random_state
from momentalign.training.deep.loaders import PairedLoader
from momentalign.training.deep.ranks import gathered, of_this_rank, share_of_rank
from momentalign.training.deep.self_training import START, Answers, self_training
from momentalign.training.deep.weights import SourceStatistics
from momentalign.training.stack import LARGEST_LOSS
from momentalign.training.torch_engine import make_optimizer

__all__ = ["DeepAdaptation", "Loss", "OptimizerChoice", "Pass", "inputs_of", "labelled"]


Loss: TypeAlias = Callable[[Tensor, Tensor], Tensor]
OptimizerName: TypeAlias = Literal["adam", "adadelta", "adagrad", "sgd"]
# A function of the parameters may return whatever Lightning takes from configure_optimizers.
OptimizerChoice: TypeAlias = OptimizerName | Callable[[Iterable[nn.Parameter]], Any]
UNKNOWN = -1  # the label of a target row that has none
STATE = "momentalign"
LARGEST_ACTIVATION = 1e6  # beyond it no network learns


class Pass(NamedTuple):
    """What one domain's rows gave on their way through the network."""

    outputs: Tensor
    activations: dict[str, Tensor]


class DeepAdaptation(pl.LightningModule):
    r"""Trains a network on labelled source rows while aligning named layers with unlabelled target rows.

    Train it on a :class:`~momentalign.training.deep.loaders.PairedLoader`; validation loaders are that of the source
    and, for monitoring only, one of the target, both labelled.

    Parameters
    ----------
    model
        Any network; it is trained in place. Its output (rows, classes) goes into `loss`.
    layer
        The name of the submodule whose output is aligned, or several names.
    discrepancy
        ``"cmd"``, ``"cv-cmd"``, ``"mmd"``, ``"coral"``, ``"dann"``, with the meaning they have in the estimators,
        any callable of two matrices (rows, width) that returns a scalar, None for the plain network, or a sequence.
    weight
        :math:`\lambda`, or one weight for each of several distances.
    schedule
        ``"constant"`` as in the paper, ``"ramp"`` as in DANN, or a function of the progress in [0, 1]; a factor on the
        weight.
    n_moments, interval
        Settings of the CMD. An interval of None is taken from the activation: (0, 1) for sigmoid, (-1, 1) for tanh; for
        a layer without bounds the range of its first pair of batches is taken, with a warning.
    loss
        A function of outputs and labels; None is the cross-entropy.
    optimizer, learning_rate
        ``"adam"`` (as in Section 6.5), ``"adadelta"``, ``"adagrad"`` or ``"sgd"`` with their usual rates where
        `learning_rate` is None; or a function of the parameters that returns an optimizer, or whatever else Lightning
        takes from ``configure_optimizers``.
    domain_norm
        Whether batch norm keeps statistics for each domain (AdaBN). The network ends with those of the target.
    semi_supervised
        Whether target batches are (inputs, labels) whose labels count in the loss; -1 is an unknown label. By default
        labels of target batches are never looked at.
    sharpen, consistency, augment
        Weights of two losses on the target's predictions that are added in the later part of the training
        (:mod:`~momentalign.training.deep.self_training`): predictions shall be confident while the classes keep the
        shares that are found in the target, and confident predictions shall hold for the same rows after `augment`, a
        function of a batch of target inputs. 0.0 is without.
    sharpen_from, sharpen_schedule
        The part of the training, from 0 to below 1, after which both count, and a factor on them, like `schedule`, as a
        function of the progress from there on.
    source_moments
        :class:`~momentalign.Moments` of the layer's output for the source, from which the target's CMD is taken where
        there is no source to train on: batches of the source are then None, and nothing is learned from labels.
    example
        A batch of inputs, from which ``"dann"`` learns the widths of the layers.

    Notes
    -----
    Inputs may be a dictionary of keywords of the network, and its outputs what ``transformers`` return. Both domains go
    through the network as one batch, so that batch norm sees their mixture, in training as in running statistics. They
    go one after the other with `domain_norm`, and where their inputs cannot be joined.

    With several processes the CMD is that of the joined batch, as if it had been one process; other distances are
    averages over the processes. Class shares are those of all processes. Lightning's ``ModelParallelStrategy`` shards
    the network over them (FSDP2); override ``configure_model`` to shard it in parts.

    Logged every ``log_every_n_steps``, as means over the processes: source_loss, distance, distance/1 and so on for the
    orders of the CMD, weight, accuracy (of the source batch), sharpen, consistency. Logged after validation:
    validation_loss, validation_accuracy, target_accuracy. Means over each epoch are kept in ``history``.

    Examples
    --------
    >>> network = nn.Sequential(nn.Linear(4, 8), nn.Sigmoid(), nn.Linear(8, 2))
    >>> adaptation = DeepAdaptation(network, "1", weight=0.5)
    >>> source, target = [(torch.rand(6, 4), torch.tensor([0, 1] * 3))], [torch.rand(5, 4)]
    >>> loader = PairedLoader(source, target)
    >>> trainer = pl.Trainer(max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False,
    ...                      enable_progress_bar=False, enable_model_summary=False)  # yours, with all it can do
    >>> from momentalign.training.deep.lightning import quiet
    >>> with quiet():
    ...     trainer.fit(adaptation, loader)
    >>> len(adaptation.history)
    2
    """

    def __init__(
        self,
        model: nn.Module,
        layer: str | Sequence[str],
        *,
        discrepancy: Discrepancy | Sequence[Discrepancy] = "cmd",
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
        example: Any = None,
    ) -> None:
        super().__init__()
        self.layers = check_layers(model, layer)
        self.model = model
        self.alignment = Alignment(
            model,
            self.layers,
            discrepancy=discrepancy,
            weight=weight,
            n_moments=n_moments,
            interval=interval,
            example=example,
            source_moments=source_moments,
        )
        if source_moments is not None and (semi_supervised or domain_norm):
            raise InvalidInputError(
                "semi_supervised and domain_norm are for a source to train on; leave them out with source_moments."
            )
        self.self_training = self_training(
            model, sharpen=sharpen, consistency=consistency, augment=augment, start=sharpen_from,
            schedule=sharpen_schedule,
        )  # fmt: skip
        if any(hasattr(part, "_orig_mod") for part in model.modules()):
            torch.compiler.reset()  # What has been compiled before would not let layers be recorded.
        self.loss = loss
        self.semi_supervised = semi_supervised
        self.validation_domains: Sequence[str] = ("source", "target")
        self.history: list[dict[str, float]] = []
        self.on_epoch: Callable[[dict[str, float]], None] | None = None
        self.required: dict[str, str] = {}  # settings that a resumed run must share with its checkpoint
        self._schedule = check_schedule(schedule)
        self._statistics = SourceStatistics(model) if domain_norm else None
        self._optimizer = _optimizer_maker(optimizer, learning_rate)
        self._steps: float = math.inf
        self._log_every = 1
        weights = {} if self.self_training is None else self.self_training.weights
        self.is_source_free = source_moments is not None
        losses = ["distance"] if self.is_source_free else ["source_loss", "distance"]
        self._means_of = [*losses, *(name for name, weight in weights.items() if weight)]
        self._sums: Tensor | None = None
        self._count = 0
        self._resumed: dict[str, Any] | None = None
        self._outside_validation: dict[str, Any] | None = None
        self.prepare(example)

    def prepare(self, example: Any) -> None:
        """Build what a method trains beside the network; called once, with a batch of inputs or None."""

    def forward(self, inputs: Any) -> Any:
        """Return what the network gives."""
        return self.model(inputs)

    def configure_model(self) -> None:
        """Shard everything that has weights where the Trainer's strategy is Lightning's ``ModelParallelStrategy``."""
        if self.device_mesh is None:
            return
        from torch.distributed.fsdp import FSDPModule, fully_shard

        own = self.self_training
        for part in (*self.children(), *([] if own is None else [own.averaged])):
            if part is not own and not isinstance(part, FSDPModule) and any(True for _ in part.parameters()):
                # Between two steps weights are looked at as shards: to be averaged, and to be saved.
                fully_shard(part, mesh=self.device_mesh["data_parallel"], reshard_after_forward=True)

    def configure_optimizers(self) -> Any:
        """Return the optimizer of everything that learns: the network, and what distances and loss learn."""
        return self._optimizer([parameter for parameter in self.parameters() if parameter.requires_grad])

    def training_step(self, batch: Any, _batch_idx: int) -> Tensor:
        """Return the loss of one pair of batches; nothing here waits for an accelerator."""
        target_inputs, step = inputs_of(batch[1]), self.trainer.global_step
        inputs, labels = (None, torch.empty(0)) if self.is_source_free else labelled(batch[0], "source_loader")
        own = self.self_training
        answers = None if own is None else own.answer(self.model, target_inputs, step, self._steps)
        source, target, augmented = self.passes(inputs, target_inputs, answers)
        further = {} if source is None or target is None else self.further_losses(inputs, target_inputs, source, target)
        parts: dict[str, Tensor] = {}
        terms: list[Tensor] = []
        if source is not None:
            parts["source_loss"] = self._source_loss(source, labels, target, batch[1])
            terms = [parts["source_loss"]]
        factor = self._schedule(min(step / self._steps, 1.0))
        if target is not None and self.alignment.needed:
            weighted, parts["distance"] = self._aligned(source, target, [inputs, target_inputs])
            terms.append(factor * weighted)
        if own is not None and answers is not None and target is not None:
            further = {**own.losses(answers, target.outputs, augmented and augmented.outputs), **further}
        terms += [scale * loss for scale, loss in further.values()]
        parts |= {name: loss for name, (_, loss) in further.items()}
        self._add_up(parts)
        if (step + 1) % self._log_every == 0:
            self._log_step(source, target, labels, parts, factor)
        return sum(terms[1:], terms[0])

    def further_losses(self, *_passes: Any) -> dict[str, tuple[float, Tensor]]:
        """Return what a method adds to the loss: weights and losses by their names.

        It is given the inputs of the source and of the target, and what the network made of each.
        """
        return {}

    def _aligned(self, source: Pass | None, target: Pass, inputs: Sequence[Any]) -> tuple[Tensor, Tensor]:
        """The distances; what makes them fail after the first step may be the network, not the data."""
        of_source = {} if source is None else source.activations
        try:
            weighted, distance = self.alignment(of_source, target.activations)
        except InvalidInputError as error:
            largest = _largest([*of_source.values(), *target.activations.values()])
            if self.trainer.global_step == 0 or largest < LARGEST_ACTIVATION or not math.isfinite(_largest(inputs)):
                raise
            raise _diverged(
                f"activations are as large as {largest:g} after step {self.trainer.global_step}",
                remedy="take a precision with more digits",
            ) from error
        return weighted, distance

    def passes(self, source: Any, target: Any, answers: Answers | None = None) -> list[Pass | None]:
        """Send source, target and augmented target through the network; None is what a step does without."""
        asked = self.alignment.needed or self.semi_supervised or self._statistics is not None or answers is not None
        rest = [target if asked else None, None if answers is None else answers.augmented]
        if self._statistics is None:
            return self._together([source, *rest])
        with self._source_statistics():
            of_source = self._together([source])
        return of_source + self._together(rest)

    def _together(self, inputs: Sequence[Any]) -> list[Pass | None]:
        """Send rows through the network as one batch, where they can be one."""
        given = [part for part in inputs if part is not None]
        if not _joinable(given):
            return [None if part is None else self.one_pass(part) for part in inputs]
        rows = [len(part) for part in given]
        joint = self.one_pass(torch.cat(given))
        for name, values in (("model", joint.outputs), *joint.activations.items()):
            if len(values) != sum(rows):
                raise InvalidInputError(
                    f"{name!r} gives {len(values)} rows for {sum(rows)} rows of input; rows must come first."
                )
        activations = {name: torch.split(values, rows) for name, values in joint.activations.items()}
        found = [
            Pass(outputs, {name: parts[index] for name, parts in activations.items()})
            for index, outputs in enumerate(torch.split(joint.outputs, rows))
        ]
        return [None if part is None else found.pop(0) for part in inputs]

    def _source_statistics(self) -> AbstractContextManager[None]:
        """Let batch norm use the statistics of the source, where domains have statistics of their own."""
        return nullcontext() if self._statistics is None else self._statistics.lent_to(self.model)

    def one_pass(self, inputs: Any) -> Pass:
        """Send rows of one domain through the network."""
        with recorded(self.model, self.layers) as activations:
            outputs = network_outputs(self.model, inputs)
        missing = [name for name in self.layers if name not in activations]
        if missing:
            raise InvalidInputError(f"layer {missing[0]!r} has no part in the model's forward pass; name another.")
        return Pass(outputs, activations)

    def _source_loss(self, source: Pass, labels: Tensor, target: Pass | None, target_batch: Any) -> Tensor:
        """The mean loss of all rows with a label, of all ranks."""
        loss = self.loss or partial(cross_entropy, ignore_index=UNKNOWN)
        if not self.semi_supervised or target is None:
            return loss(source.outputs, labels)
        known, others = labelled(target_batch, "target_loader")[1].to(labels.dtype), target.outputs
        rows = len(labels) + (known != UNKNOWN).sum()
        if self.loss is not None:  # It may not know that there are labels to pass over.
            known, others = known[known != UNKNOWN], others[known != UNKNOWN]
        mean = loss(torch.cat([source.outputs, others]), torch.cat([labels, known]))
        return mean * share_of_rank(rows, like=mean.detach())

    def _add_up(self, parts: Mapping[str, Tensor]) -> None:
        """Add what a step has found to the sums of the epoch; what it did without is zero."""
        zero = next(iter(parts.values())).new_zeros(())
        figures = torch.stack([parts.get(name, zero).detach().float() for name in self._means_of])
        self._sums = figures if self._sums is None else self._sums + figures
        self._count += 1

    def _log_step(
        self, source: Pass | None, target: Pass | None, labels: Tensor, parts: Mapping[str, Tensor], factor: float
    ) -> None:
        figures = {**parts}
        if target is not None:
            figures |= self.alignment.orders({} if source is None else source.activations, target.activations)
        if source is not None and _are_classes(source.outputs, labels):
            figures["accuracy"] = _accuracy(source.outputs, labels)
        rows = len((source or target).outputs)  # type: ignore[union-attr]
        means = self.means_over_ranks(figures)
        self.log_dict({name: means.pop(name) for name in parts}, prog_bar=True, batch_size=rows)
        self.log_dict({**means, "weight": factor * sum(self.alignment.weights)}, batch_size=rows)

    def means_over_ranks(self, figures: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return figures as means over the ranks, from one reduction."""
        stacked: Any = torch.stack([value.detach().float() for value in figures.values()])
        means: Tensor = self.trainer.strategy.reduce(stacked, reduce_op="mean")
        return dict(zip(figures, means.unbind(), strict=True))

    def validation_step(self, batch: Any, _batch_idx: int, dataloader_idx: int = 0) -> None:
        """Log loss and accuracy of a source batch, or the accuracy of a target batch given for monitoring."""
        domain = self.validation_domains[dataloader_idx]
        inputs, labels = labelled(batch, f"{domain}_validation")
        figures = {}
        if domain == "source":
            outputs = self._predict_source(inputs)
            loss = (self.loss or cross_entropy)(outputs, labels)
            figures["validation_loss"] = loss
        else:
            outputs = network_outputs(self.model, inputs)
        if _are_classes(outputs, labels):
            figures["validation_accuracy" if domain == "source" else "target_accuracy"] = _accuracy(outputs, labels)
        self.log_dict(
            figures, on_epoch=True, batch_size=len(labels), add_dataloader_idx=False, prog_bar=True, sync_dist=True
        )

    def _predict_source(self, inputs: Any) -> Tensor:
        with self._source_statistics():
            return self.one_pass(inputs).outputs

    def on_train_start(self) -> None:
        """Take up the generators and the loader where a checkpoint left them."""
        self.alignment.join_ranks()
        self._steps = self.trainer.estimated_stepping_batches
        self._log_every = max(1, int(getattr(self.trainer, "log_every_n_steps", 1)))
        resumed, self._resumed = self._resumed, None
        loader = self.trainer.train_dataloader
        if resumed is not None and resumed["loader"] and isinstance(loader, PairedLoader):
            # Lightning tells the loader only in the middle of an epoch, and may draw after this hook.
            loader.load_state_dict(resumed["loader"][0], random=of_this_rank(resumed["random"]))

    def on_validation_model_zero_grad(self) -> None:
        """Keep the generators before validation, whose loaders draw as soon as they start; training shall not notice.

        It is the only hook of Lightning that comes before the loaders are started.
        """
        super().on_validation_model_zero_grad()
        self._outside_validation = random_state()

    def on_validation_end(self) -> None:
        """Put the generators back."""
        if self._outside_validation is not None:
            restore_random_state(self._outside_validation)
            self._outside_validation = None

    def on_train_epoch_end(self) -> None:
        """Add the means of the epoch to the history, or stop where they are not finite."""
        if self._sums is None:
            return
        means: Any = self.trainer.strategy.reduce(self._sums / self._count, reduce_op="mean")
        found = dict(zip(self._means_of, means.tolist(), strict=True))
        self._sums, self._count = None, 0
        for name, value in found.items():
            if not abs(value) < LARGEST_LOSS:
                raise _diverged(f"the {name.replace('_', ' ')} is {value:g} in epoch {len(self.history) + 1}")
        names = ("validation_loss", "validation_accuracy", "target_accuracy")
        logged = self.trainer.callback_metrics
        validation = {name: float(logged[name]) for name in names if name in logged}
        self.history.append({**found, **validation})
        if self.on_epoch is not None:
            self.on_epoch(dict(self.history[-1]))

    def on_train_end(self) -> None:
        """Refuse weights that no loss has seen since the last step."""
        for name, value in self.model.state_dict().items():
            if isinstance(value, Tensor) and value.is_floating_point() and not bool(value.isfinite().all()):
                raise _diverged(f"{name!r} is not finite after epoch {len(self.history)}")

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add what is not in any state_dict: generators of all ranks, intervals taken from data, figures so far."""
        checkpoint[STATE] = {
            "random": gathered(self._outside_validation or random_state()),
            "asked": self.required,
            "intervals": self.alignment.intervals(),
            "history": self.history,
            "sums": None if self._sums is None else self._sums.cpu(),
            "count": self._count,
        }

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Read it; generators and loader have to wait for the start of training."""
        state = checkpoint.get(STATE)
        if state is None:
            return
        for name, before in state.get("asked", {}).items():
            if self.required.get(name, before) != before:
                raise InvalidInputError(
                    f"checkpoint holds a run with {name}={before}, not {self.required[name]}; give another folder, or "
                    "the same settings to go on."
                )
        self.alignment.set_intervals(state["intervals"])
        self.history = [dict(epoch) for epoch in state["history"]]
        self._sums = None if state["sums"] is None else state["sums"].to(self.device)
        self._count = state["count"]
        loop = checkpoint.get("loops", {}).get("fit_loop", {}).get("state_dict", {})
        self._resumed = {"random": state["random"], "loader": loop.get("combined_loader", [])}


def labelled(batch: Any, name: str) -> tuple[Any, Tensor]:
    """Return the inputs and the labels of a batch ``(inputs, labels, ...)``."""
    if isinstance(batch, (list, tuple)) and len(batch) >= 2 and isinstance(batch[1], Tensor):
        return batch[0], batch[1]
    raise InvalidInputError(
        f"{name} must give batches (inputs, labels) with labels as a tensor, got {_described(batch)}; "
        "change what its dataset or collate_fn returns."
    )


def inputs_of(batch: Any) -> Any:
    """Return the inputs of a target batch: the batch itself, or the first part of a tuple; the rest is never read."""
    return batch[0] if isinstance(batch, (list, tuple)) and batch else batch


def _joinable(inputs: Sequence[Any]) -> bool:
    """Whether inputs can go through the network as one batch, of several."""
    kinds = {(part.shape[1:], part.dtype) if isinstance(part, Tensor) else None for part in inputs}
    return len(inputs) > 1 and len(kinds) == 1 and None not in kinds


def _are_classes(outputs: Tensor, labels: Tensor) -> bool:
    """Whether labels are classes, one for every row of outputs (rows, classes)."""
    return outputs.ndim == 2 and labels.ndim == 1 and not labels.is_floating_point()


def _accuracy(outputs: Tensor, labels: Tensor) -> Tensor:
    """The share of rows whose largest output is that of their label."""
    return (outputs.detach().argmax(1) == labels).float().mean()


def _described(batch: Any) -> str:
    if isinstance(batch, (list, tuple)):
        return f"a {type(batch).__name__} of {[type(part).__name__ for part in batch]}"
    return f"a {type(batch).__name__} of shape {tuple(batch.shape)}" if isinstance(batch, Tensor) else repr(batch)[:80]


def _optimizer_maker(optimizer: object, learning_rate: float | None) -> Callable[[list[Any]], Any]:
    """A function of the parameters that returns what Lightning takes from ``configure_optimizers``."""
    if callable(optimizer):
        if learning_rate is not None:
            raise InvalidInputError(
                f"learning_rate={learning_rate!r} has no effect on an optimizer given as a function; set it there."
            )
        return optimizer
    settings = Optimizer(optimizer, learning_rate)  # type: ignore[arg-type]
    return lambda parameters: make_optimizer(settings, parameters)


def _diverged(what: str, *, remedy: str = "scale the inputs") -> DivergedError:
    return DivergedError(f"training diverged: {what}; lower learning_rate or weight, clip the gradients, or {remedy}.")


def _largest(values: Iterable[Any]) -> float:
    """The largest absolute value of all tensors, NaN where there is one."""
    found = [value.detach().abs().max().float() for value in values if isinstance(value, Tensor) and value.numel()]
    return float(torch.stack(found).max()) if found else 0.0
