"""Wines of one cellar and of another whose instruments read differently: real rows, a shift that is known."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_wine

import momentalign as ma
from momentalign.workflow.model import TableModel

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


@pytest.fixture
def files(cellars: tuple[pd.DataFrame, pd.DataFrame], tmp_path: Path) -> tuple[Path, Path]:
    """A CSV of the source and a Parquet file of the target without labels."""
    source, target = tmp_path / "source.csv", tmp_path / "target.parquet"
    cellars[0].to_csv(source, index=False)
    cellars[1].drop(columns="grape").to_parquet(target)
    return source, target


@pytest.fixture(scope="session")
def fitted(cellars: tuple[pd.DataFrame, pd.DataFrame]) -> TableModel:
    """A portfolio, the default, evaluated with the labels of the target."""
    return ma.fit(*cellars, label="grape", target_label="grape", id_column="bottle")


@pytest.fixture(scope="session")
def readings() -> tuple[pd.DataFrame, pd.DataFrame]:
    """``id``, two readings of one quantity and its ``price``; the second reading is moved in the target."""

    def draw(rows: int, *, shift: float, seed: int) -> pd.DataFrame:
        random = np.random.default_rng(seed)
        value = random.normal(size=rows)
        first, second = (value + random.normal(scale=0.3, size=rows) for _ in range(2))
        names = [f"r{row:03d}" for row in range(rows)]
        return pd.DataFrame({"id": names, "first": first, "second": second + shift, "price": 100 + 20 * value})

    return draw(300, shift=0.0, seed=0), draw(240, shift=2.0, seed=1)


@pytest.fixture(scope="session")
def regressor(readings: tuple[pd.DataFrame, pd.DataFrame]) -> TableModel:
    """An aligned network for values, evaluated with the labels of the target."""
    return ma.fit(
        *readings, label="price", target_label="price", id_column="id", regression=True, method="cmd", device="cpu"
    )


@pytest.fixture
def folder(fitted: TableModel, tmp_path: Path) -> Path:
    """The folder of the model of wines."""
    fitted.save(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def content() -> Callable[..., dict[str, Any]]:
    """All files of a folder, but for some names, with what they hold."""

    def read(folder: Path, without: frozenset[str] = frozenset()) -> dict[str, Any]:
        files = (file for file in folder.rglob("*") if file.is_file() and file.name not in without)
        return {str(file.relative_to(folder)): file.read_bytes() for file in files}

    return read
