"""A flavour for MLflow: a fitted model as an artifact of a run, read back as it was or as MLflow's ``pyfunc``.

The artifact holds the folder that ``model.save`` writes, safetensors and JSON, and no pickle. Nothing leaves the
machine unless you point MLflow elsewhere. Needs ``pip install ".[mlflow]"``.

Examples
--------
>>> import numpy as np, tempfile, momentalign as ma
>>> X, y = np.random.default_rng(0).normal(size=(40, 2)), np.arange(40) % 2
>>> model = ma.MANNClassifier(hidden=(3,), max_epochs=5, random_state=0).fit(X, y, X + 1.0)
>>> import momentalign.mlflow  # doctest: +SKIP
>>> with mlflow.start_run():  # doctest: +SKIP
...     logged = momentalign.mlflow.log_model(model, "churn")
>>> momentalign.mlflow.load_model(logged.model_uri).predict(X)  # doctest: +SKIP
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from momentalign.errors import InvalidInputError, InvalidTypeError, MissingExtraError
from momentalign.version import __version__
from momentalign.workflow.model import load

if TYPE_CHECKING:
    from mlflow.models.model import ModelInfo

__all__ = ["FLAVOR_NAME", "load_model", "log_model", "save_model"]

FLAVOR_NAME = "momentalign"


def _library() -> Any:
    """MLflow, which is imported where it is used: it takes seconds."""
    try:
        import mlflow.artifacts
        import mlflow.models
        import mlflow.pyfunc
    except ImportError:
        raise MissingExtraError.of("momentalign.mlflow needs MLflow", "mlflow") from None
    return mlflow


def save_model(
    model: Any,
    path: str | Path,
    *,
    mlflow_model: Any = None,
    signature: Any = None,
    input_example: Any = None,
    metadata: Mapping[str, Any] | None = None,
    pip_requirements: list[str] | None = None,
) -> None:
    """Write a fitted model to a folder in MLflow's format.

    Parameters
    ----------
    model
        The result of ``ma.fit``, or a fitted estimator that has ``save``.
    path
        A folder that is not there yet, or empty.
    mlflow_model
        What MLflow hands over when a run logs the model.
    signature, input_example, metadata, pip_requirements
        As in ``mlflow.pyfunc.save_model``. Unless given, the signature is found from the example, and the requirement
        is this library. MLflow hands ``params={"proba": True}`` over only if the signature names it, as this one does.
    """
    if not hasattr(model, "save"):
        raise InvalidTypeError(
            f"model must be the result of ma.fit or a fitted estimator with save, got {type(model).__name__}."
        )
    library = _library()
    if signature is None:
        signature = _signature(model, input_example)
    described = library.models.Model() if mlflow_model is None else mlflow_model
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "model"
        model.save(data)
        described.add_flavor(FLAVOR_NAME, data=f"data/{data.name}", version=__version__)
        library.pyfunc.save_model(
            str(path),
            loader_module=__name__,
            data_path=str(data),
            mlflow_model=described,
            signature=signature,
            input_example=input_example,
            metadata=None if metadata is None else dict(metadata),
            pip_requirements=["momentalign"] if pip_requirements is None else pip_requirements,
        )


def _signature(model: Any, input_example: Any) -> Any:
    """Columns of the example, what is predicted for it, and that a classifier can be asked for probabilities."""
    params = {"proba": False} if hasattr(getattr(model, "estimator", model), "classes_") else None
    if input_example is None and params is None:
        return None
    predicted = None if input_example is None else model.predict(input_example)
    return _library().models.infer_signature(input_example, predicted, params)


def log_model(
    model: Any,
    name: str,
    *,
    signature: Any = None,
    input_example: Any = None,
    metadata: Mapping[str, Any] | None = None,
    pip_requirements: list[str] | None = None,
    registered_model_name: str | None = None,
) -> ModelInfo:
    """Log a fitted model to the active run; arguments as in :func:`save_model`.

    With `registered_model_name` it becomes the next version of that model in MLflow's registry.
    """
    import momentalign.mlflow

    return _library().models.Model.log(
        artifact_path=None,
        name=name,
        flavor=momentalign.mlflow,
        registered_model_name=registered_model_name,
        model=model,
        signature=signature,
        input_example=input_example,
        metadata=metadata,
        pip_requirements=pip_requirements,
    )


def load_model(model_uri: str) -> Any:
    """Return the model that was logged or saved, as ``ma.load`` does: with its digests checked first."""
    library = _library()
    folder = Path(library.artifacts.download_artifacts(artifact_uri=str(model_uri)))
    flavour = library.models.Model.load(str(folder)).flavors.get(FLAVOR_NAME)
    if flavour is None:
        raise InvalidInputError(f"{model_uri} has no flavour {FLAVOR_NAME!r}; give a model that log_model wrote.")
    return load(folder / flavour["data"])


class _Predictor:
    """What MLflow's ``pyfunc`` calls."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def predict(self, data: Any, params: Mapping[str, Any] | None = None) -> Any:
        """Return predictions; ``params={"proba": True}`` asks for the probabilities of classes."""
        wanted = dict(params or {})
        proba = wanted.pop("proba", False)
        if wanted or not isinstance(proba, bool):
            raise InvalidInputError(f"params must be empty or {{'proba': True}}, got {params!r:.80}.")
        return self.model.predict_proba(data) if proba else self.model.predict(data)


def _load_pyfunc(path: str) -> _Predictor:
    """Return what MLflow's ``pyfunc`` calls, from the folder that ``model.save`` wrote."""
    return _Predictor(load(path))
