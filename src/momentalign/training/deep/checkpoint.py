"""Checkpoints as folders of numbers, and a callback that keeps the last one, so that a run may be killed at any moment.

A checkpoint is nested: dictionaries with plain keys, lists, tuples, numbers, text, tensors. Tensors go to safetensors,
the rest to a JSON manifest: plain values and lists as they are, everything else as an object with one key that says
what it is. Anything else, code above all, is refused by its path in the checkpoint; nothing is ever unpickled.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from momentalign.errors import DamagedFileError, InvalidTypeError
from momentalign.files import read_folder, write_folder
from momentalign.training.deep.lightning import SIGTERMException, pl
from momentalign.validation import positive_int

__all__ = ["LastCheckpoint", "SafetensorsIO", "pack", "unpack"]

KIND = "training checkpoint"
# Types that a safetensors file holds for numpy too; others are stored as their bytes.
NUMBERS = {
    torch.float16, torch.float32, torch.float64, torch.bool,
    torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
}  # fmt: skip
AS_BYTES = {
    str(dtype): dtype
    for dtype in (torch.bfloat16, torch.float16, torch.float32, torch.float64, torch.uint16, torch.uint32, torch.uint64)
}


class SafetensorsIO(pl.plugins.CheckpointIO):
    """Give it to a Trainer, ``Trainer(plugins=[SafetensorsIO()])``, and its checkpoints are such folders."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        """Write a checkpoint, replacing the one at this path in one step."""
        if storage_options is not None:
            raise InvalidTypeError(
                f"storage_options has no meaning for folders, got {storage_options!r}; leave it out."
            )
        arrays, content = pack(checkpoint)
        write_folder(path, arrays, {"kind": KIND, "content": content})

    def load_checkpoint(
        self,
        path: str | Path,
        map_location: Any = None,  # noqa: ARG002
        weights_only: bool | None = None,  # noqa: ARG002
    ) -> dict[str, Any]:
        """Read a checkpoint after its digests have been checked; its tensors are on the CPU."""
        arrays, description = read_folder(path)
        if description.get("kind") != KIND:
            raise DamagedFileError(f"{path} is not a {KIND}; give the folder that a training run wrote.")
        try:
            return dict(unpack(description["content"], arrays))
        except (AttributeError, KeyError, RecursionError, RuntimeError, TypeError, ValueError) as error:
            raise DamagedFileError(
                f"{path} is not a {KIND} ({type(error).__name__}: {error}); start the run anew."
            ) from error

    def remove_checkpoint(self, path: str | Path) -> None:
        """Delete a checkpoint."""
        shutil.rmtree(path)


def pack(value: Any) -> tuple[dict[str, NDArray[Any]], Any]:
    """Return the tensors of nested plain data as arrays, and the rest as what JSON can hold.

    Examples
    --------
    >>> arrays, content = pack({"step": 3, 0: (1.0, torch.zeros(2))})
    >>> content
    {'items': [['step', 3], [0, {'tuple': [1.0, {'tensor': '0'}]}]]}
    >>> unpack(content, arrays)
    {'step': 3, 0: (1.0, tensor([0., 0.]))}
    """
    arrays: dict[str, NDArray[Any]] = {}
    return arrays, _pack(value, arrays, "checkpoint")


def unpack(content: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:
    """Return the nested data that :func:`pack` took apart."""
    if isinstance(content, list):
        return [unpack(part, arrays) for part in content]
    if not isinstance(content, dict):
        return content
    if "items" in content:
        return {unpack(key, arrays): unpack(part, arrays) for key, part in content["items"]}
    if "tuple" in content:
        return tuple(unpack(part, arrays) for part in content["tuple"])
    if "float" in content:
        return float(content["float"])
    tensor = torch.tensor(arrays[content["tensor"]])
    if "dtype" in content:
        tensor = tensor.view(AS_BYTES[content["dtype"]])
    return tensor.reshape(content["shape"]) if "shape" in content else tensor


def _pack(value: Any, arrays: dict[str, NDArray[Any]], path: str) -> Any:
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, (float, np.floating)):
        return float(value) if np.isfinite(value) else {"float": str(float(value))}
    if isinstance(value, np.integer):
        return int(value)
    if isinstance(value, Tensor):
        return _pack_tensor(value, arrays, path)
    if isinstance(value, Mapping):
        items = [[_pack(key, arrays, path), _pack(part, arrays, f"{path}[{key!r}]")] for key, part in value.items()]
        return {"items": items}
    if isinstance(value, (list, tuple)):
        parts = [_pack(part, arrays, f"{path}[{index}]") for index, part in enumerate(value)]
        return {"tuple": parts} if isinstance(value, tuple) else parts
    raise InvalidTypeError(
        f"{path} is a {type(value).__name__}; a checkpoint holds numbers, text and tensors only, keep it elsewhere."
    )


def _pack_tensor(tensor: Tensor, arrays: dict[str, NDArray[Any]], path: str) -> dict[str, Any]:
    name = str(len(arrays))
    values = tensor.detach().cpu().contiguous()
    if values.dtype in NUMBERS and (not values.is_floating_point() or bool(values.isfinite().all())):
        arrays[name] = values.numpy()
        # The file has no single numbers, only rows of one.
        return {"tensor": name} if values.ndim else {"tensor": name, "shape": []}
    if str(values.dtype) not in AS_BYTES:
        raise InvalidTypeError(f"{path} is a tensor of {values.dtype}, which a checkpoint cannot hold; convert it.")
    arrays[name] = values.reshape(-1).view(torch.uint8).numpy()
    return {"tensor": name, "dtype": str(values.dtype), "shape": list(values.shape)}


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
        self.every = None if every is None else positive_int(every, "every", example="100")
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
