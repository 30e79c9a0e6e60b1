"""A fitted model for tables: how a table becomes rows, the estimator, and the moments of the target.

In a folder it is one safetensors file and one manifest, as every folder of :mod:`momentalign.files`: digests are
checked before anything is parsed, and at any moment the folder holds a whole model, the old or the new one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from momentalign.errors import DamagedFileError, InvalidInputError
from momentalign.estimators import persistence
from momentalign.files import read_folder, write_folder
from momentalign.moments.streaming import Moments

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from momentalign.estimators.auto import AutoClassifier, AutoRegressor
    from momentalign.estimators.classifier import MANNClassifier
    from momentalign.estimators.regressor import MANNRegressor
    from momentalign.tables.preprocess import Preprocessor

__all__ = ["Estimator", "TableModel", "load", "load_model"]

Estimator: TypeAlias = "AutoClassifier | AutoRegressor | MANNClassifier | MANNRegressor"

# Grows when a folder means something that an older version would misread.
VERSION = 2


@dataclass(frozen=True)
class TableModel:
    """A fitted estimator with what makes rows of a table: the result of ``ma.fit``.

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
    summary
        What the fit found, as plain JSON; None for a model that an earlier version saved.
    """

    estimator: Estimator
    preprocessor: Preprocessor
    moments: Moments
    label: str
    id_column: str | None = None
    summary: Mapping[str, Any] | None = None

    @property
    def feature_names(self) -> list[str]:
        """Names of the preprocessed features."""
        return [str(name) for name in self.preprocessor.get_feature_names_out()]

    def predict(self, data: Any) -> NDArray[Any]:
        """Return the class, or the value, of each row of a frame or a file."""
        return self.estimator.predict(self._rows(data))

    def predict_proba(self, data: Any) -> NDArray[Any]:
        """Return the probability of each class, (rows, classes), in the order of ``estimator.classes_``."""
        self.refuse_probabilities()
        return self.estimator.predict_proba(self._rows(data))

    def refuse_probabilities(self) -> None:
        """Say that numbers have no probabilities, where the model predicts numbers."""
        if not hasattr(self.estimator, "classes_"):
            raise InvalidInputError(
                f"the model predicts numbers ({self.label!r}), which have no probabilities; leave proba out."
            )

    def report(self, path: str | Path) -> Path:
        """Write the page of the fit, and return its path."""
        from momentalign.report.fit import fit_page
        from momentalign.report.page import write_page

        if self.summary is None:
            raise InvalidInputError("the model was saved without what its page shows; fit it again.")
        return write_page(fit_page(self.summary), path)

    def save(self, path: str | Path) -> None:
        """Write the model to a folder, replacing an earlier one in one step; read it back with ``ma.load``.

        A failed write leaves the folder as it was.
        """
        arrays, description = persistence.describe(self.estimator)
        table = {
            "version": VERSION,
            "preprocessor": self.preprocessor.to_description(),
            "target_moments": self.moments.to_dict(),
            "label": self.label,
            "id_column": self.id_column,
        }
        if self.summary is not None:  # without the time it took: the same tables give the same files
            table["summary"] = {name: value for name, value in self.summary.items() if name != "seconds"}
        write_folder(path, arrays, {**description, "table": table})

    def _rows(self, data: Any) -> Any:
        from momentalign.tables.read import as_table

        named = self.preprocessor.form_ == "columns"
        columns, kinds = (self.preprocessor.columns_, self.preprocessor.kinds_) if named else (None, None)
        return self.preprocessor.transform(as_table(data, "the table", columns=columns, kinds=kinds))


def load(path: str | Path) -> Any:
    """Return the model that was saved to a folder: that of ``ma.fit`` or the command line, or an estimator.

    The digests of all files are checked before any of them is parsed; a folder that is damaged, forged or from a newer
    version raises :class:`~momentalign.errors.DamagedFileError` and builds nothing.

    Examples
    --------
    >>> import tempfile, momentalign as ma
    >>> X, y = [[0.0], [0.1], [1.0], [1.1]], [0, 0, 1, 1]
    >>> model = ma.MANNClassifier(hidden=(3,), max_epochs=5, random_state=0).fit(X, y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model.save(folder)
    ...     bool((ma.load(folder).predict(X) == model.predict(X)).all())
    True
    """
    arrays, description = read_folder(path)
    estimator = persistence.rebuild(path, arrays, description)
    if "table" not in description:
        return estimator
    try:
        return _table_model(estimator, description["table"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DamagedFileError(f"{path} does not describe a model for tables ({error}); fit it again.") from error


def load_model(path: str | Path) -> TableModel:
    """Return the model for tables that was saved to a folder; one that holds an estimator alone is refused."""
    model = load(path)
    if not isinstance(model, TableModel):
        raise InvalidInputError(
            f"{path} holds an estimator without the preprocessing of a table; give a folder that fit wrote."
        )
    return model


def _table_model(estimator: Estimator, table: Mapping[str, Any]) -> TableModel:
    from momentalign.tables.preprocess import Preprocessor

    if type(table["version"]) is not int or table["version"] > VERSION:
        raise ValueError(f"version {table['version']!r:.40}, this one reads {VERSION}: upgrade momentalign")
    label, id_column, summary = table["label"], table["id_column"], table.get("summary")
    if not isinstance(label, str) or not isinstance(id_column, str | None):
        raise TypeError("names of the label and id columns")
    if not isinstance(summary, dict | None):
        raise TypeError("the summary of the fit")
    preprocessor = Preprocessor.from_description(table["preprocessor"])
    features = len(preprocessor.get_feature_names_out())
    if features != estimator.n_features_in_:
        raise ValueError(f"{features} features for networks of {estimator.n_features_in_}")
    moments = Moments.from_dict(table["target_moments"])
    if moments.order != 5 or moments.count < 1 or len(moments.mean) != features:
        raise ValueError(f"{moments}, where {features} features are expected")
    return TableModel(estimator, preprocessor, moments, label, id_column, summary)
