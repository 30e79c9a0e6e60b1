"""The folder of a fitted model: the networks, how a file becomes rows, and the moments of the target.

One safetensors file and one manifest, as every folder of :mod:`momentalign.files`: digests are checked
before anything is parsed, and ``ma.load`` reads the estimator alone. At any moment the folder holds a whole model, the
old or the new one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from momentalign.errors import DamagedFileError, InvalidInputError
from momentalign.estimators.classifier import MANNClassifier
from momentalign.estimators.persistence import describe, load
from momentalign.estimators.regressor import MANNRegressor
from momentalign.files import read_folder, write_folder
from momentalign.moments.streaming import Moments
from momentalign.tables.preprocess import Preprocessor

__all__ = ["TableModel", "load_model", "save_model"]

# Grows when a folder means something that an older version would misread.
VERSION = 2


@dataclass(frozen=True)
class TableModel:
    """Everything that predicts for a file.

    Attributes
    ----------
    estimator
        The fitted classifier or regressor, for preprocessed rows.
    preprocessor
        How a table becomes rows.
    moments
        Moments of the preprocessed target.
    label, id_column
        Names of the label's column and, where there is one, of the column that identifies rows.
    """

    estimator: MANNClassifier | MANNRegressor
    preprocessor: Preprocessor
    moments: Moments
    label: str
    id_column: str | None = None

    @property
    def feature_names(self) -> list[str]:
        """Names of the preprocessed features."""
        return [str(name) for name in self.preprocessor.get_feature_names_out()]


def save_model(model: TableModel, path: str | Path) -> None:
    """Write a model to a folder, replacing an earlier one in one step; a failed write leaves the folder as it was."""
    arrays, description = describe(model.estimator)
    table = {
        "version": VERSION,
        "preprocessor": model.preprocessor.to_description(),
        "target_moments": model.moments.to_dict(),
        "label": model.label,
        "id_column": model.id_column,
    }
    write_folder(path, arrays, {**description, "table": table})


def load_model(path: str | Path) -> TableModel:
    """Return the model that :func:`save_model` wrote; a damaged folder or one of a newer version raises."""
    _, description = read_folder(path)
    if "table" not in description:
        raise InvalidInputError(
            f"{path} holds an estimator without the preprocessing of a file; give a folder that fit wrote."
        )
    estimator = load(path)
    try:
        return _build(estimator, description["table"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DamagedFileError(f"{path} does not describe a model for files ({error}); fit it again.") from error


def _build(estimator: MANNClassifier | MANNRegressor, table: Mapping[str, Any]) -> TableModel:
    if type(table["version"]) is not int or table["version"] > VERSION:
        raise ValueError(f"version {table['version']!r:.40}, this one reads {VERSION}: upgrade momentalign")
    label, id_column = table["label"], table["id_column"]
    if not isinstance(label, str) or not isinstance(id_column, str | None):
        raise TypeError("names of the label and id columns")
    preprocessor = Preprocessor.from_description(table["preprocessor"])
    features = len(preprocessor.get_feature_names_out())
    if features != estimator.n_features_in_:
        raise ValueError(f"{features} features for networks of {estimator.n_features_in_}")
    moments = Moments.from_dict(table["target_moments"])
    if moments.order != 5 or moments.count < 1 or len(moments.mean) != features:
        raise ValueError(f"{moments}, where {features} features are expected")
    return TableModel(estimator, preprocessor, moments, label, id_column)
