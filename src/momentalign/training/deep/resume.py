"""Runs that can be killed at any moment: the last checkpoint of a run, written every so many steps and on SIGTERM.

With a :class:`~momentalign.training.deep.module.DeepAdaptation` on a
:class:`~momentalign.training.deep.loaders.PairedLoader` a run goes on from it to the same bits.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pytorch_lightning.utilities.exceptions import SIGTERMException

from momentalign.moments.sample import read_order
from momentalign.training.deep.lightning import pl

__all__ = ["LastCheckpoint"]

NAME = "last"


class LastCheckpoint(pl.callbacks.Checkpoint):
    """Keeps the newest state of a run in a folder: after every epoch, every `every` steps, and when SIGTERM comes.

    Parameters
    ----------
    folder
        Where to write; the checkpoint of an earlier run in it is replaced.
    every
        Steps between two checkpoints within an epoch; None writes after epochs only.
    """

    def __init__(self, folder: str | Path, *, every: int | None = 100) -> None:
        self.folder = Path(folder)
        self.every = None if every is None else read_order(every, "every", example="100")
        self._saved_step = -1

    @property
    def path(self) -> Path:
        """The folder of the checkpoint."""
        return self.folder / NAME

    def found(self) -> Path | None:
        """Return the checkpoint to go on from, or None where there is none yet."""
        return self.path if (self.path / "manifest.json").is_file() else None

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:  # noqa: ARG002
        """Count from here."""
        self._saved_step = trainer.global_step

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,  # noqa: ARG002
        outputs: Any,  # noqa: ARG002
        batch: Any,  # noqa: ARG002
        batch_idx: int,
    ) -> None:
        """Write where it is time and the optimizer has just made its step; an epoch's end has a hook of its own."""
        due = self.every is not None and trainer.global_step % self.every == 0
        if due and trainer.global_step != self._saved_step and batch_idx + 1 < trainer.num_training_batches:
            self._save(trainer)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:  # noqa: ARG002
        """Write after validation, with all that was decided on it."""
        self._save(trainer)

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:  # noqa: ARG002
        """Write when asked to leave; from the middle of a validation or of a sum of gradients nothing could go on."""
        loop = trainer.fit_loop.epoch_loop
        midway = loop.batch_progress.is_last_batch or loop._should_accumulate()
        if isinstance(exception, SIGTERMException) and trainer.global_step != self._saved_step and not midway:
            self._save(trainer)

    def _save(self, trainer: pl.Trainer) -> None:
        if not all(bool(parameter.isfinite().all()) for parameter in trainer.lightning_module.parameters()):
            return  # From here nothing could go on; the epoch's end says what happened.
        trainer.save_checkpoint(self.path, weights_only=False)
        self._saved_step = trainer.global_step
