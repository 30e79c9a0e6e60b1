"""A fitted model for tables: how a table becomes rows, the estimator, and the moments of the target.

In a folder it is one safetensors file and one manifest, as every folder of :mod:`momentalign.files`: digests are
checked before anything is parsed, and at any moment the folder holds a whole model, the old or the new one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from momentalign.errors import DamagedFileError, InvalidInputError
from momentalign.estimators import persistence
from momentalign.files import read_folder, write_folder
from momentalign.moments.streaming import Moments
from momentalign.workflow.risk import Answers, ask, distances, risk_table
from momentalign.workflow.threshold import Threshold

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from momentalign.estimators.auto import AutoClassifier
    from momentalign.estimators.auto_regressor import AutoRegressor
    from momentalign.estimators.classifier import MANNClassifier
    from momentalign.estimators.regressor import MANNRegressor
    from momentalign.tables.preprocess import Preprocessor
    from momentalign.tables.table import Table

__all__ = ["Estimator", "TableModel", "load", "load_model"]

Estimator: TypeAlias = "AutoClassifier | AutoRegressor | MANNClassifier | MANNRegressor"

# Grows when a folder means something that an older version would misread; models without a threshold are as before.
VERSION, WITHOUT_THRESHOLD = 3, 2


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
    threshold
        From which probability on a row is given the rarer class; None gives the most probable one.
    source_moments, risk_cut
        Moments of the preprocessed source, and the risk above which a row is flagged; None for a model that an earlier
        version saved.
    """

    estimator: Estimator
    preprocessor: Preprocessor
    moments: Moments
    label: str
    id_column: str | None = None
    summary: Mapping[str, Any] | None = None
    threshold: Threshold | None = None
    source_moments: Moments | None = None
    risk_cut: float | None = None

    @property
    def feature_names(self) -> list[str]:
        """Names of the preprocessed features."""
        return [str(name) for name in self.preprocessor.get_feature_names_out()]

    def predict(self, data: Any) -> NDArray[Any]:
        """Return the class, or the value, of each row of a frame or a file."""
        rows = self._rows(data)
        if self.threshold is None:
            return self.estimator.predict(rows)
        classifier: Any = self.estimator
        return np.asarray(classifier.classes_[self.threshold.decide(classifier.predict_proba(rows))])

    def predict_proba(self, data: Any) -> NDArray[Any]:
        """Return the probability of each class, (rows, classes), in the order of ``estimator.classes_``."""
        self.refuse_probabilities()
        return self.estimator.predict_proba(self._rows(data))

    def risk(self, data: Any) -> pd.DataFrame:
        """Return how risky each row of a frame or a file is.

        Returns
        -------
        DataFrame
            One row for each row. ``confidence``: the probability of the most probable class. ``agreement``: the weight
            of the portfolio's members that name the same class, NaN for networks of a chosen method. Of values instead
            ``spread``: the standard deviation of the members' predictions. ``distance``: how far the row is from the
            source's mean, in standard deviations (root mean square over the features). ``risky``: whether it is as
            risky as the riskiest fifth of the target that the model was fitted with.
        """
        return self.risk_of(self._rows(data))[1]

    def risk_of(self, rows: Any) -> tuple[Answers, pd.DataFrame]:
        """Return the answers for preprocessed rows, and their risk."""
        if self.source_moments is None or self.risk_cut is None:
            raise InvalidInputError(
                "the model was saved by a version that did not know the risk of rows; fit it again."
            )
        answers = ask(self.estimator, rows, self.threshold)
        distance = distances(rows, self.source_moments, self.moments)
        return answers, risk_table(answers, distance, self.risk_cut)

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
        try:
            page = fit_page(self.summary)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise DamagedFileError(
                f"the model was saved with what no page can show ({error!s:.300}); fit it again."
            ) from error
        return write_page(page, path)

    def save(self, path: str | Path) -> None:
        """Write the model to a folder, replacing an earlier one in one step; read it back with ``ma.load``.

        A failed write leaves the folder as it was. Beside the model, ``model_card.md`` describes it for people.
        """
        from momentalign.report.model_card import refuse_foreign_card, write_model_card

        arrays, description = persistence.describe(self.estimator)
        table = {
            "version": WITHOUT_THRESHOLD if self.threshold is None else VERSION,
            "preprocessor": self.preprocessor.to_description(),
            "target_moments": self.moments.to_dict(),
            "label": self.label,
            "id_column": self.id_column,
        }
        if self.threshold is not None:
            table["threshold"] = self.threshold._asdict()
        if self.source_moments is not None:
            table |= {"source_moments": self.source_moments.to_dict(), "risk_cut": self.risk_cut}
        if self.summary is not None:  # without the time it took: the same tables give the same files
            table["summary"] = {name: value for name, value in self.summary.items() if name != "seconds"}
        refuse_foreign_card(path)
        write_folder(path, arrays, {**description, "table": table})
        write_model_card(path, self.label, self.summary)

    def read(self, data: Any) -> Table:
        """Return the columns of a frame or a file that the model was trained with."""
        from momentalign.tables.read import read_table

        named = self.preprocessor.form_ == "columns"
        columns, kinds = (self.preprocessor.columns_, self.preprocessor.kinds_) if named else (None, None)
        return read_table(data, columns=columns, kinds=kinds)

    def _rows(self, data: Any) -> Any:
        return self.preprocessor.transform(self.read(data))


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
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise DamagedFileError(
            f"{path} does not describe a model for tables ({error!s:.300}); fit it again."
        ) from error


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
    moments = _moments(table["target_moments"], features)
    model = TableModel(estimator, preprocessor, moments, label, id_column, summary, _threshold(estimator, table))
    if "source_moments" not in table:
        return model
    cut = table["risk_cut"]
    if type(cut) is not float or math.isnan(cut):
        raise TypeError("the risk from which on rows are flagged")
    return replace(model, source_moments=_moments(table["source_moments"], features), risk_cut=cut)


def _moments(described: Mapping[str, Any], features: int) -> Moments:
    moments = Moments.from_dict(described)
    if moments.order != 5 or moments.count < 1 or len(moments.mean) != features:
        raise ValueError(f"{moments}, where {features} features are expected")
    return moments


def _threshold(estimator: Any, table: Mapping[str, Any]) -> Threshold | None:
    if "threshold" not in table:
        return None
    found = Threshold(**table["threshold"])
    whole = type(found.value) is float and 0.0 < found.value < 1.0 and isinstance(found.rule, str)
    if not whole or type(found.positive) is not int or found.positive not in (0, 1) or len(estimator.classes_) != 2:
        raise ValueError("a threshold between 0 and 1 for one of two classes is expected")
    return found
