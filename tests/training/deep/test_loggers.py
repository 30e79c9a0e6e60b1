"""Loggers of Lightning get the figures of a training with alignment, and nothing is logged unasked."""

import pandas as pd
import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import momentalign as ma


@pytest.fixture
def network_and_loaders():
    torch.manual_seed(0)
    rows = torch.randn(120, 4)
    network = nn.Sequential()
    network.add_module("hidden", nn.Sequential(nn.Linear(4, 8), nn.Sigmoid()))
    network.add_module("head", nn.Linear(8, 2))
    source = DataLoader(TensorDataset(rows, (rows[:, 0] > 0).long()), batch_size=60)
    return network, source, DataLoader(TensorDataset(rows + 1.0), batch_size=60)


@pytest.mark.filterwarnings("ignore")  # Lightning warns of few workers
def test_a_table_has_a_row_for_every_step(network_and_loaders, tmp_path):
    network, source, target = network_and_loaders
    logger = CSVLogger(tmp_path, name="churn")
    trainer = pl.Trainer(
        max_epochs=2, logger=logger, log_every_n_steps=1, accelerator="cpu", enable_progress_bar=False,
        enable_checkpointing=False,
    )  # fmt: skip
    trainer.fit(ma.DeepAdaptation(network, "hidden", weight=0.5), ma.PairedLoader(source, target))
    table = pd.read_csv(f"{logger.log_dir}/metrics.csv")
    assert table["step"].tolist() == [0, 1, 2, 3]
    assert {"source_loss", "distance", "accuracy"} < set(table.columns)
    orders = [f"distance/{order}" for order in range(1, 6)]
    assert table[orders].sum(axis=1).to_numpy() == pytest.approx(table["distance"].to_numpy(), rel=1e-4)
    assert set(table["weight"]) == {0.5}


def test_without_a_folder_nothing_is_logged(network_and_loaders, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ma.adapt(network_and_loaders[0], "hidden", *network_and_loaders[1:], max_epochs=1, random_state=0)
    assert list(tmp_path.iterdir()) == []
