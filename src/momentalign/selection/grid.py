"""A grid of parameters as stacks of networks: points, what each trains, which train together, and their table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata
from sklearn.base import clone
from sklearn.model_selection import ParameterGrid

from momentalign.discrepancies.names import DISTANCES
from momentalign.errors import InvalidInputError, InvalidTypeError
from momentalign.estimators.classifier import MANNClassifier
from momentalign.training.config import NetworkSpec, Task, TrainingConfig
from momentalign.training.stack import has_loops
from momentalign.validation import check_domain_weights, check_seed, naming

__all__ = ["Point", "read_points", "results_table", "stacks"]

# Networks trained at once: bounds the memory they take and what a killed search has to do again.
STACK = 64
# Parameters of a model that do not name a point: two change no score, one is refused, and three are written in one way.
UNNAMED = {"verbose", "validation_fraction", "class_weight", "hidden", "random_state", "device"}


@dataclass(frozen=True)
class Point:
    """One point of the grid: its parameters, the model that has them, and the network that stands for it."""

    index: int
    parameters: dict[str, Any]
    model: MANNClassifier
    config: TrainingConfig
    spec: NetworkSpec
    device: str

    def cell(self) -> dict[str, Any]:
        """Return all the score depends on, apart from the data, as plain values that name the point in a journal."""
        values = {name: _plain(name, value) for name, value in self.model.get_params().items() if name not in UNNAMED}
        if not self.spec.sharpen:
            del values["sharpen"]  # Journals of earlier versions know nothing of it.
        return {**values, "hidden": self.config.hidden, "random_state": self.spec.seed, "device": self.device}


def read_points(estimator: object, param_grid: Any, *, seed: int) -> list[Point]:
    """Return the points of a grid as scikit-learn's ``ParameterGrid`` orders them, or say what is wrong with it.

    Networks of an `estimator` without a seed take `seed`: all start alike and differ in their parameters only.

    Examples
    --------
    >>> points = read_points(MANNClassifier(), {"weight": [0.1, 1.0], "hidden": [(5,), (10,)]}, seed=0)
    >>> [(point.parameters["hidden"], point.spec.weight) for point in points]
    [((5,), 0.1), ((5,), 1.0), ((10,), 0.1), ((10,), 1.0)]
    """
    if not isinstance(estimator, MANNClassifier):
        shown = estimator.__name__ if isinstance(estimator, type) else type(estimator).__name__
        raise InvalidTypeError(
            f"estimator must be a MANNClassifier, whose networks train as stacks, got {shown}; "
            "try MANNClassifier(discrepancy=None) for a plain network."
        )
    with naming("param_grid"):
        grid = list(ParameterGrid(param_grid))
    if not all(grid) or not grid:
        raise InvalidInputError(
            f"param_grid is empty ({param_grid!r}), there is nothing to choose from; "
            'try param_grid={"weight": [0.1, 1.0, 10.0]}.'
        )
    _refuse_unknown_names(estimator, grid)
    return [_read_point(index, estimator, parameters, seed) for index, parameters in enumerate(grid)]


def _refuse_unknown_names(estimator: MANNClassifier, grid: Sequence[Mapping[str, Any]]) -> None:
    known = estimator.get_params()
    unknown = sorted({name for parameters in grid for name in parameters} - set(known))
    if unknown:
        raise InvalidInputError(
            f"param_grid names {', '.join(map(repr, unknown))}, which {type(estimator).__name__} does not have; "
            f"choose among {', '.join(known)}."
        )


def _read_point(index: int, estimator: MANNClassifier, parameters: dict[str, Any], seed: int) -> Point:
    model = clone(estimator).set_params(**clone(parameters, safe=False))
    model._is_clone = False  # It learns from all rows, not from those of a fold.
    if model.random_state is None:
        model.set_params(random_state=seed)
    if isinstance(model.weight, str) and model.weight == "auto":
        raise InvalidInputError(
            'weight="auto" combines networks of several weights, and a search compares single ones; '
            'give numbers, such as param_grid={"weight": [0.1, 1.0, 10.0]}.'
        )
    if model.class_weight is not None:
        raise InvalidInputError(
            f"class_weight={model.class_weight!r:.80} repeats rows, which would stand on both sides of a split; "
            "search with class_weight=None, then fit the model with the weights."
        )
    config, spec, device, _ = model._settings()
    # A copy: asking a random state for a seed changes it, and the model is to be fitted later.
    spec = replace(spec, seed=check_seed(clone(model).random_state))
    return Point(index, parameters, model, config, spec, device)


def stacks(points: Sequence[Point], task: Task) -> Iterator[list[Point]]:
    """Yield the points that train together: one config, one device, and not too many.

    Networks whose distance the compiled loops do not know train apart from the others, so that what a network becomes
    never depends on which others train beside it.
    """
    alike: dict[tuple[TrainingConfig, str, bool], list[Point]] = {}
    for point in points:
        known = has_loops(task, point.config, point.spec)
        alike.setdefault((point.config, point.device, known), []).append(point)
    for group in alike.values():
        yield from (group[start : start + STACK] for start in range(0, len(group), STACK))


def results_table(parameters: Sequence[Mapping[str, Any]], scores: Sequence[float]) -> dict[str, Any]:
    """Return points and scores as scikit-learn's ``cv_results_`` has them; what a point does not set is masked.

    Examples
    --------
    >>> table = results_table([{"weight": 0.1}, {"weight": 1.0}], [0.7, 0.9])
    >>> table["param_weight"].tolist(), table["rank_test_score"].tolist()
    ([0.1, 1.0], [2, 1])
    """
    names = sorted({name for point in parameters for name in point})
    return {
        **{f"param_{name}": _column(parameters, name) for name in names},
        "params": [dict(point) for point in parameters],
        "mean_test_score": np.array(scores, dtype=np.float64),
        "rank_test_score": rankdata(-np.asarray(scores), method="min").astype(np.int32),
    }


def _column(parameters: Sequence[Mapping[str, Any]], name: str) -> np.ma.MaskedArray[Any, Any]:
    values: NDArray[Any] = np.empty(len(parameters), dtype=object)
    for index, point in enumerate(parameters):
        values[index] = point.get(name)
    return np.ma.MaskedArray(values, mask=[name not in point for point in parameters])


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if name == "domain_weights":
        return list(check_domain_weights(value))
    if type(value) in DISTANCES.values():
        return repr(value)
    raise InvalidTypeError(
        f"resume cannot tell {name}={value!r} from another one when it reads the journal; use a name, a number or one "
        "of the losses of momentalign, or resume=None."
    )
