"""Wines of one cellar and of another whose instruments read differently: real rows, a shift that is known."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_wine

from momentalign.tables.table import Table
from momentalign.workflow.fit import FitResult, fit_tables
from momentalign.workflow.model import save_model

GRAPES = np.array(["barolo", "grignolino", "barbera"])


@pytest.fixture(scope="session")
def cellars() -> tuple[pd.DataFrame, pd.DataFrame]:
    """The columns ``bottle`` (an id), 13 measurements and ``grape``, of 89 and 89 bottles."""
    frame, codes = load_wine(return_X_y=True, as_frame=True)
    random = np.random.default_rng(0)
    order = random.permutation(len(frame))
    shifted = frame * random.uniform(0.8, 1.25, frame.shape[1]) + frame.std() * random.normal(0, 0.7, frame.shape[1])
    parts = []
    for rows, values in ((order[:89], frame), (order[89:], shifted)):
        part = values.iloc[rows].reset_index(drop=True).assign(grape=GRAPES[codes.to_numpy()[rows]])
        part.insert(0, "bottle", [f"b{row:03d}" for row in rows])
        parts.append(part)
    return parts[0], parts[1]


@pytest.fixture(scope="session")
def tables(cellars: tuple[pd.DataFrame, pd.DataFrame]) -> tuple[Table, Table]:
    """Both cellars with labels and identifiers set apart."""
    return tuple(
        Table(frame.drop(columns=["bottle", "grape"]), frame["grape"].to_numpy(), frame["bottle"].to_numpy())
        for frame in cellars
    )


@pytest.fixture
def files(cellars: tuple[pd.DataFrame, pd.DataFrame], tmp_path: Path) -> tuple[Path, Path]:
    """A CSV of the source and a Parquet file of the target without labels."""
    source, target = tmp_path / "source.csv", tmp_path / "target.parquet"
    cellars[0].to_csv(source, index=False)
    cellars[1].drop(columns="grape").to_parquet(target)
    return source, target


@pytest.fixture(scope="session")
def fitted(tables: tuple[Table, Table]) -> FitResult:
    """A model with default settings, evaluated with the labels of the target."""
    return fit_tables(*tables, label="grape", target_label="grape", id_column="bottle", device="cpu")


@pytest.fixture
def folder(fitted: FitResult, tmp_path: Path) -> Path:
    """The folder of that model."""
    save_model(fitted.model, tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def content() -> Callable[[Path], dict[str, Any]]:
    """All files of a folder with what they hold."""
    return lambda path: {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}
