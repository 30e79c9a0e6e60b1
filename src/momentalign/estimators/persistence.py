"""Saving and loading fitted estimators: numbers and names, never code."""

from __future__ import annotations

import importlib
import math
import warnings
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from momentalign.errors import DamagedFileError, InvalidInputError, MomentAlignWarning
from momentalign.estimators.learners import learner_from, to_arrays
from momentalign.files import write_folder
from momentalign.moments.streaming import Moments
from momentalign.version import __version__

if TYPE_CHECKING:
    from momentalign.evaluation.target_accuracy import TargetEstimate

__all__ = ["describe", "rebuild", "save"]

# Class name in a manifest -> the module that defines it. A name that is not here is refused.
_HOMES = {
    "AutoClassifier": "momentalign.estimators.auto",
    "AutoRegressor": "momentalign.estimators.auto_regressor",
    "MANNClassifier": "momentalign.estimators.classifier",
    "MANNRegressor": "momentalign.estimators.regressor",
}
PORTFOLIOS = ("AutoClassifier", "AutoRegressor")

# Bytes of a label in an array, 16,384 letters; an array of longer ones could take all memory.
_LONGEST_LABEL = 2**16

Arrays: TypeAlias = Mapping[str, NDArray[Any]]


def save(estimator: Any, path: str | Path) -> None:
    """Write a fitted estimator to a folder, replacing an earlier model there in one step."""
    write_folder(path, *describe(estimator))


def describe(estimator: Any) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Return the arrays of a fitted estimator and, as what JSON can hold, all else that makes it."""
    from sklearn.utils.validation import check_is_fitted

    check_is_fitted(estimator)
    name = type(estimator).__name__
    if name not in _HOMES:
        raise InvalidInputError(f"a {name} cannot be read back, load knows {' and '.join(_HOMES)}; save one of these.")
    moments = getattr(estimator, "moments_", {})
    description = {
        "class": name,
        "momentalign": __version__,
        "parameters": {name: _plain(name, value) for name, value in estimator.get_params(deep=False).items()},
        "features": estimator.n_features_in_,
        "feature_names": list(getattr(estimator, "feature_names_in_", [])),
    }
    if name in PORTFOLIOS:
        return _describe_portfolio(estimator, description)
    description |= {
        "n_epochs": estimator.n_epochs_,
        "best_epoch": estimator.best_epoch_,
        "history": estimator.history_,
        "domains": list(moments),
        "moments": [found.to_dict() for found in moments.values()],
    }
    if name == "MANNClassifier":
        description["classes"] = _write_labels(estimator.classes_)
    else:
        description |= {"y_mean": estimator.y_mean_.tolist(), "y_deviation": estimator.y_deviation_.tolist()}
    networks = getattr(estimator, "networks_", [])
    arrays = _named("", (estimator.coefs_, estimator.intercepts_))
    if len(networks) > 1:
        arrays["coefficients"] = estimator.coefficients_
        for number, network in enumerate(networks):
            arrays |= _named(f"network_{number}_", network)
    return arrays, description


def rebuild(path: str | Path, arrays: Arrays, description: Mapping[str, Any]) -> Any:
    """Return the estimator that a folder describes; an invalid description raises and builds nothing."""
    try:
        return _build(arrays, description)
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise DamagedFileError(
            f"{path} does not describe a model of ours ({error!s:.300}); save the model again."
        ) from error


def _build(arrays: Arrays, description: Mapping[str, Any]) -> Any:
    name = description["class"]
    estimator = getattr(importlib.import_module(_HOMES[name]), name)(**description["parameters"])
    if name in PORTFOLIOS:
        return _build_portfolio(estimator, arrays, description)
    estimator.hidden = tuple(estimator.hidden)
    estimator.n_features_in_ = int(description["features"])
    _take_names(estimator, description)
    if name == "MANNClassifier":
        estimator.classes_ = _read_labels(description["classes"])
        n_outputs = len(estimator.classes_)
    else:
        estimator.y_mean_, estimator.y_deviation_ = _read_scale(description["y_mean"], description["y_deviation"])
        n_outputs = estimator.y_mean_.size
    sizes = [estimator.n_features_in_, *estimator.hidden, n_outputs]
    networks, coefficients = _read_networks(arrays, sizes)
    estimator.coefs_, estimator.intercepts_ = networks[0]
    if name == "MANNClassifier":
        estimator.networks_, estimator.coefficients_ = networks[1:] or networks, coefficients
    elif len(networks) > 1:
        raise ValueError("one network of a regressor is expected, nothing else")
    estimator.n_epochs_, estimator.best_epoch_ = int(description["n_epochs"]), int(description["best_epoch"])
    estimator.history_ = {key: [float(value) for value in values] for key, values in description["history"].items()}
    estimator.moments_ = _moments(description, estimator.hidden[-1])
    estimator.domains_ = np.array(list(estimator.moments_), dtype=np.int64)
    return estimator


def _moments(description: Mapping[str, Any], width: int) -> dict[int, Moments]:
    """The moments of every domain; none where a model was saved without."""
    ids, found = description.get("domains", []), description.get("moments", [])
    if len(set(ids)) != len(found) or any(type(number) is not int or number == 0 for number in ids):
        raise ValueError("the moments of every domain, and an id for each, are expected")
    moments = {number: Moments.from_dict(part) for number, part in zip(ids, found, strict=True)}
    if any(len(part.mean) != width for part in moments.values()):
        raise ValueError(f"moments of {width} hidden units are expected")
    return moments


def _describe_portfolio(estimator: Any, description: dict[str, Any]) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    arrays: dict[str, NDArray[Any]] = {}
    for domain, scale in (("source", estimator.source_scale_), ("target", estimator.target_scale_)):
        # Columns that are multiplied by zero have an infinite standard deviation; files hold finite numbers.
        arrays |= {f"{domain}_mean": scale.mean, f"{domain}_std": np.where(np.isinf(scale.std), 0.0, scale.std)}
    for number, member in enumerate(estimator.members_):
        arrays |= {f"member_{number}_{part}": values for part, values in to_arrays(member.learner).items()}
    table = estimator.portfolio_
    description |= {
        "sparse": estimator.sparse_,
        "decision": estimator.decision_,
        "estimate": vars(estimator.estimate_),
        "members": [{"view": member.view, "weight": member.weight} for member in estimator.members_],
        "portfolio": {name: [_or_none(value) for value in table[name].tolist()] for name in table},
    }
    if hasattr(estimator, "classes_"):
        description |= {
            "classes": _write_labels(estimator.classes_),
            "agreement": [_or_none(a) for a in estimator.agreement_],
            "gain": None if estimator.gain_ is None else vars(estimator.gain_),
        }
    else:
        description["bounds"] = list(estimator.bounds_)
    return arrays, description


def _or_none(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value


def _read_estimate(description: Mapping[str, Any]) -> TargetEstimate:
    from momentalign.evaluation.target_accuracy import TargetEstimate

    value, low, high = (float(description[name]) for name in ("value", "low", "high"))
    return TargetEstimate(value, low, high, str(description["metric"]))


def _build_portfolio(estimator: Any, arrays: Arrays, description: Mapping[str, Any]) -> Any:
    import pandas as pd

    from momentalign.estimators.auto import Member
    from momentalign.estimators.moment_map import Scale

    estimator.n_features_in_ = features = int(description["features"])
    _take_names(estimator, description)
    outputs = 1
    if "classes" in description:
        estimator.classes_ = _read_labels(description["classes"])
        estimator.agreement_ = tuple(math.nan if value is None else float(value) for value in description["agreement"])
        # Versions before 0.2 did not say what adapting gained.
        gain = description.get("gain")
        estimator.gain_ = None if gain is None else _read_estimate(gain)
        outputs = len(estimator.classes_)
    else:
        low, high = description["bounds"]
        estimator.bounds_ = (float(low), float(high))
    estimator.sparse_, estimator.decision_ = bool(description["sparse"]), str(description["decision"])
    estimator.estimate_ = _read_estimate(description["estimate"])
    scales = [Scale(arrays[f"{domain}_mean"], arrays[f"{domain}_std"]) for domain in ("source", "target")]
    if any(part.shape != (features,) for scale in scales for part in scale):
        raise ValueError("one mean and one standard deviation per feature are expected")
    scales = [scale._replace(std=np.where(scale.std == 0.0, np.inf, scale.std)) for scale in scales]
    estimator.source_scale_, estimator.target_scale_ = scales
    estimator.members_ = []
    for number, member in enumerate(description["members"]):
        if member["view"] not in ("source", "target"):
            raise ValueError("a view is source or target")
        prefix = f"member_{number}_"
        own = {name.removeprefix(prefix): values for name, values in arrays.items() if name.startswith(prefix)}
        learner = learner_from(own, features=features, outputs=outputs)
        estimator.members_.append(Member(learner, member["view"], float(member["weight"])))
    if not estimator.members_:
        raise ValueError("a portfolio has at least one member")
    scores = ("source_score", "estimated_target_score", "weight")
    table = pd.DataFrame({name: description["portfolio"][name] for name in ("name", *scores)})
    estimator.portfolio_ = table.astype(dict.fromkeys(scores, float))
    return estimator


def _take_names(estimator: Any, description: Mapping[str, Any]) -> None:
    if description["feature_names"]:
        estimator.feature_names_in_ = np.array(description["feature_names"], dtype=object)
        if len(estimator.feature_names_in_) != estimator.n_features_in_:
            raise ValueError("one name per feature is expected")


def _named(prefix: str, network: tuple[list[Any], list[Any]]) -> dict[str, NDArray[Any]]:
    """Weights and biases by the names they have in a file."""
    parts = zip(("coef", "intercept"), network, strict=True)
    return {f"{prefix}{part}_{index}": array for part, layers in parts for index, array in enumerate(layers)}


def _read_networks(arrays: Arrays, sizes: Sequence[int]) -> tuple[list[tuple[list[Any], list[Any]]], NDArray[Any]]:
    """Return the network that gives the hidden activations, then those of a combination, and their coefficients."""
    count, combined = len(sizes) - 1, arrays.get("coefficients")
    prefixes = ["", *(f"network_{number}_" for number in range(0 if combined is None else len(combined)))]
    shapes: dict[str, tuple[int, ...]] = {} if combined is None else {"coefficients": (len(combined),)}
    # Names are made for as many arrays as there are: layers and networks are numbers of the file.
    fits = len(arrays) == len(shapes) + 2 * count * len(prefixes)
    for prefix in prefixes if fits else []:
        shapes |= {f"{prefix}coef_{index}": pair for index, pair in enumerate(pairwise(sizes))}
        shapes |= {f"{prefix}intercept_{index}": (units,) for index, units in enumerate(sizes[1:])}
    if (
        not fits
        or {name: array.shape for name, array in arrays.items()} != shapes
        or shapes.get("coefficients") == (0,)
    ):
        raise ValueError("weights and biases of every layer, of their shapes, are expected, nothing else")
    if any(array.dtype not in (np.float32, np.float64) for array in arrays.values()):
        raise ValueError("weights are floating-point numbers")
    parts = [[[arrays[f"{one}{part}_{n}"] for n in range(count)] for part in ("coef", "intercept")] for one in prefixes]
    return [(coefs, intercepts) for coefs, intercepts in parts], np.ones(1) if combined is None else combined


def _read_scale(mean: Any, deviation: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and deviation of a regressor's values: two numbers, or two lists of as many."""
    means, deviations = (np.array(numbers, dtype=np.float64) for numbers in (mean, deviation))
    alike = means.shape == deviations.shape and means.ndim <= 1
    if not (alike and np.isfinite(means).all() and (deviations >= 0).all()):
        raise ValueError("a mean and a deviation of at least 0 per output are expected")
    return means, deviations


def _plain(name: str, value: Any) -> Any:
    """Return a parameter as JSON holds it; what only code can express is left out, and said."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, (tuple, list)):
        return [_plain(name, part) for part in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    warnings.warn(
        f"{name}={value!r} is not saved, a model folder holds no code; the loaded model has {name}=None and predicts "
        "the same.",
        MomentAlignWarning,
        stacklevel=6,
    )
    return None


def _write_labels(classes: NDArray[Any]) -> dict[str, Any]:
    values = classes.tolist()
    if not all(isinstance(value, (bool, int, float, str)) for value in values):
        raise InvalidInputError(f"classes of type {type(values[0]).__name__} cannot be saved; use numbers or strings.")
    kind = "object" if classes.dtype == object else classes.dtype.str
    return {"dtype": kind, "values": values}


def _read_labels(labels: Mapping[str, Any]) -> NDArray[Any]:
    values, kind = labels["values"], labels["dtype"]
    if not isinstance(values, list) or not all(isinstance(value, (bool, int, float, str)) for value in values):
        raise ValueError("labels are numbers or strings")
    if kind != "object" and (np.dtype(kind).kind not in "biufU" or np.dtype(kind).itemsize > _LONGEST_LABEL):
        raise ValueError("labels are numbers or strings")
    with np.errstate(over="ignore"):
        classes = np.array(values, dtype=kind)
    if len(set(classes.tolist())) != len(values) or (classes.dtype.kind == "f" and not np.isfinite(classes).all()):
        raise ValueError("labels are finite, each another one")
    return classes
