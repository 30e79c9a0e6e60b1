"""Writes the golden files of this version: ``python tests/golden/make.py`` once, when a version is released.

Every folder of ``tests/golden`` holds what one version saved, and what it predicted. Rows are made without a generator
of random numbers, whose streams may change; whoever reads the files makes them again.
"""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import momentalign as ma
from momentalign.journal import Journal
from momentalign.workflow.predict import predict_file

IDENTITY = {"what": "golden", "seeds": [0, 1]}


def rows(count: int, width: int, *, shift: float = 0.0) -> np.ndarray:
    """Rows of numbers in [shift - 1, shift + 1] that look random and are the same everywhere."""
    grid = np.arange(1, count * width + 1, dtype=np.float64)
    return np.round(np.sin(grid * grid), 6).reshape(count, width) + shift


def problem() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(X, codes, X_target) of 40 and 30 rows with 3 features."""
    X = rows(40, 3)
    return X, (X[:, 0] + X[:, 1] > 0).astype(int), rows(30, 3, shift=0.4)


def tables(folder: Path) -> tuple[Path, Path]:
    """Two CSV files with numbers, words, missing cells and identifiers; the first with labels."""
    X, codes, target = problem()
    places = folder / "source.csv", folder / "target.csv"
    for place, values in zip(places, (X, target), strict=True):
        frame = pd.DataFrame(values, columns=["spend", "visits", "age"])
        frame.insert(0, "id", [f"c{row}" for row in range(len(frame))])
        frame["city"] = [["Linz", "Wien", "Graz"][row % 3] for row in range(len(frame))]
        frame.loc[::7, "age"] = np.nan
        if place == places[0]:
            frame["churn"] = np.array(["no", "yes"])[codes]
        frame.to_csv(place, index=False)
    return places


def network() -> nn.Module:
    """A small network with known weights."""
    layers = nn.Sequential(nn.Linear(3, 4), nn.Sigmoid(), nn.Dropout(0.25), nn.Linear(4, 2))
    with torch.no_grad():
        for number, parameter in enumerate(layers.parameters()):
            parameter.copy_(torch.tensor(rows(1, parameter.numel(), shift=0.1 * number)).reshape(parameter.shape))
    return layers


def adapt(folder: Path, *, epochs: int) -> tuple[nn.Module, list[dict[str, float]]]:
    """Train the network, or go on where the checkpoint in a folder was written; (network, new figures)."""
    X, codes, target = problem()
    source = DataLoader(TensorDataset(torch.tensor(X).float(), torch.tensor(codes)), batch_size=10, shuffle=True)
    other = DataLoader(TensorDataset(torch.tensor(target).float()), batch_size=10, shuffle=True)
    history: list[dict[str, float]] = []
    adapted = ma.adapt(
        network(), "1", source, other, max_epochs=epochs, random_state=0, device="cpu", checkpoint=folder,
        on_epoch=history.append,
    )  # fmt: skip
    return adapted, history


def state(module: nn.Module) -> dict[str, Any]:
    """Weights as lists."""
    return {name: value.tolist() for name, value in module.state_dict().items()}


def make(folder: Path) -> dict[str, Any]:
    """Write every kind of file and return what is to be expected of them."""
    X, codes, target = problem()
    small: dict[str, Any] = {"hidden": (4,), "max_epochs": 30, "batch_size": 20, "random_state": 0}
    words = np.array(["left", "rechts: ü"])[codes]
    networks = {
        "classifier": ma.MANNClassifier(**small).fit(X, codes, target),
        "labels": ma.MANNClassifier(**small).fit(pd.DataFrame(X, columns=["a", "b", "ä"]), words),
        "combination": ma.MANNClassifier(**small, weight="auto").fit(X, codes, target),
        "regressor": ma.MANNRegressor(**small).fit(X, X[:, 0] - 2.0 * X[:, 2], target),
    }
    expected: dict[str, Any] = {}
    for name, model in networks.items():
        model.save(folder / name)
        asked = pd.DataFrame(target, columns=["a", "b", "ä"]) if name == "labels" else target
        figures = model.predict(asked) if name == "regressor" else model.predict_proba(asked)
        expected[name] = {"predict": model.predict(asked).tolist(), "figures": np.asarray(figures).tolist()}
    source, other = tables(folder)
    ma.fit(source, other, label="churn", id_column="id", max_epochs=20, device="cpu").save(folder / "table")
    predict_file(folder / "table", other, out=folder / "predictions.csv", proba=True)
    expected["table"] = (folder / "predictions.csv").read_text(encoding="utf-8")
    adapt(folder / "deep", epochs=1)
    shutil.copytree(folder / "deep", folder / "finished")
    adapted, history = adapt(folder / "finished", epochs=2)
    expected["deep"] = {"weights": state(adapted), "history": history}
    ma.save_weights(adapted, folder / "network.safetensors")
    journal = Journal(folder / "cells.jsonl", IDENTITY)
    for seed in (0, 1):
        journal.append({"task": "a->b", "seed": seed}, {"accuracy": 0.5 + 0.125 * seed})
    expected["journal"] = journal.done()
    for left in (source, other, folder / "predictions.csv"):
        left.unlink()
    shutil.rmtree(folder / "finished")
    return expected


def main() -> None:
    """Write the folder of this version; an earlier one of the same version stays as it is."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent) / ma.__version__
    folder.mkdir(parents=True)
    expected = make(folder)
    (folder / "expected.json").write_text(json.dumps(expected, indent=0), encoding="utf-8")


if __name__ == "__main__":
    main()
