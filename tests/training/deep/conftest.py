"""A task that trains in a second: real digits of 8 x 8 pixels, those of the target paler and on grey ground."""

from typing import NamedTuple

import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from momentalign.training.deep.checkpoint import LastCheckpoint, SafetensorsIO
from momentalign.training.deep.lightning import pl, quiet


class Digits(NamedTuple):
    source: Tensor
    labels: Tensor
    target: Tensor
    target_labels: Tensor

    def source_loader(self, **settings):
        return DataLoader(TensorDataset(self.source, self.labels), batch_size=100, shuffle=True, **settings)

    def target_loader(self):
        return DataLoader(TensorDataset(self.target), batch_size=100, shuffle=True)

    def target_accuracy(self, model):
        with torch.no_grad():
            return (model(self.target).argmax(1) == self.target_labels).double().mean().item()


@pytest.fixture(scope="session")
def digits():
    """900 rows of the source and 897 of the target, shapes (rows, 1, 8, 8)."""
    images, labels = load_digits(return_X_y=True)
    pixels, classes = torch.tensor(images, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16, torch.tensor(labels)
    ground = torch.rand(897, 1, 1, 1, generator=torch.Generator().manual_seed(0))
    return Digits(pixels[:900], classes[:900], 0.5 * pixels[900:] + 0.5 * ground, classes[900:])


@pytest.fixture
def network():
    """A small network whose layer "4" is a tanh."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.Tanh(), nn.Linear(64, 10)
        )


class Task(NamedTuple):
    """Two classes in four dimensions; the target is shifted."""

    rows: Tensor
    labels: Tensor

    def source_loader(self, batch_size=10, **settings):
        return DataLoader(TensorDataset(self.rows, self.labels), batch_size=batch_size, **settings)

    def target_loader(self, batch_size=8, **settings):
        return DataLoader(TensorDataset(self.rows[:24] + 1.0, self.labels[:24]), batch_size=batch_size, **settings)


@pytest.fixture
def task():
    drawn = torch.Generator().manual_seed(0)
    labels = torch.arange(40) % 2
    rows = torch.randn(40, 4, generator=drawn)
    rows[:, 0] += 3 * labels
    return Task(rows, labels)


@pytest.fixture
def small():
    """A tiny network whose layer "1" is a sigmoid."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(4, 6), nn.Sigmoid(), nn.Linear(6, 2))


@pytest.fixture
def fit():
    """Train a module: ``fit(module, pairs, epochs)``; in a `folder` the run goes on from its last checkpoint."""

    def train(module, pairs, epochs=1, *, validation=None, folder=None, callbacks=(), **settings):
        last = None if folder is None else LastCheckpoint(folder)
        settings = {"logger": False, "log_every_n_steps": 1, **settings}
        with quiet():
            trainer = pl.Trainer(
                max_epochs=epochs,
                accelerator="cpu",
                callbacks=[*callbacks, *([] if last is None else [last])],
                plugins=[SafetensorsIO()],
                enable_checkpointing=last is not None,
                enable_progress_bar=False,
                enable_model_summary=False,
                num_sanity_val_steps=0,
                **settings,
            )
            trainer.fit(module, pairs, validation, ckpt_path=None if last is None else last.found())
        return trainer

    return train
