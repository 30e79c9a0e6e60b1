r"""How well a classifier tells two samples apart: proxy-A-distance, area under the curve, and what it goes by.

With :math:`\epsilon` the error of a classifier of domains on rows it has not seen, both samples in equal parts,

.. math:: \hat d_{\mathcal A} = 2 (1 - 2 \epsilon),

0 where it guesses and 2 where it always knows, is the proxy-A-distance of

    S. Ben-David, J. Blitzer, K. Crammer, F. Pereira: Analysis of representations for domain adaptation. NIPS 2006.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse, special, stats

from momentalign.evaluation.moment_test import unit_interval
from momentalign.evaluation.samples import Samples, SparseColumns

__all__ = ["DomainClassifier", "area_error", "area_under_curve", "tell_apart"]

Floats = NDArray[np.float64]
Codes = NDArray[np.intp]

FOLDS = 5
WIDEST_FOR_TREES = 200
FEWEST_FOR_TREES = 200
LEVELS_FOR_TREES = 200
LEVELS_FOR_LINES = 20
_JUDGED = 1000
_CANDIDATES = 50
_Z95 = 1.959963984540054


class DomainClassifier(NamedTuple):
    """What a cross-validated classifier of domains found."""

    name: str
    rows: int
    """How many rows of each sample it saw."""
    error: float
    proxy_a_distance: float
    auc: float
    auc_low: float
    auc_high: float
    p_value: float
    features: list[tuple[str, float]]
    """How much of the area is lost when one feature is shuffled, the most telling first."""


class _Fold(NamedTuple):
    scores: Floats
    domain: Codes
    drops: dict[str, float]


class _Rows(NamedTuple):
    """Rows of both samples as a classifier takes them, and which feature each column came from."""

    values: Any
    origins: list[str]
    categorical: list[bool]


def tell_apart(samples: Samples, *, most_rows: int = 10_000, random_state: int = 0) -> DomainClassifier:
    """Return how well a classifier tells source from target rows it has not seen.

    At most `most_rows` rows of each sample, the same number of both, in five folds. Gradient-boosted trees, which see
    spreads, shapes and features that hang together differently; a logistic regression where there are fewer than 200
    rows or more than 200 features. The interval of the area under the curve is that of Hanley and McNeil (Radiology
    143, 1982), its p-value that of the rank-sum test, both for the mean of the folds.

    Examples
    --------
    >>> from momentalign.evaluation.samples import read_samples
    >>> random = np.random.default_rng(0)
    >>> found = tell_apart(read_samples(random.normal(0, 1, (100, 2)), random.normal([0, 2], 1, (90, 2))))
    >>> found.name, found.rows, found.features[0][0], found.auc > 0.8
    ('logistic regression', 90, 'x1', True)
    """
    random = np.random.default_rng(random_state)
    size = min(samples.source.rows, samples.target.rows, most_rows)
    picked = [_pick(table.rows, size, random) for table in (samples.source, samples.target)]
    trees = size >= FEWEST_FOR_TREES and len(samples.kinds) <= WIDEST_FOR_TREES
    rows = _rows_for_trees(samples, picked) if trees else _rows_for_lines(samples, picked)
    judge = _judge_by_trees if trees else _judge_by_lines
    domain = np.repeat([0, 1], size)
    folds = [judge(rows, domain, train, test, random) for train, test in _folds(domain, random)]
    return _summary("gradient-boosted trees" if trees else "logistic regression", size, folds)


def area_under_curve(scores: Floats, domain: Codes) -> float:
    """Return the chance that a target row has a higher score than a source row; ties count half.

    Examples
    --------
    >>> area_under_curve(np.array([0.1, 0.4, 0.4, 0.8]), np.array([0, 0, 1, 1]))
    0.875
    """
    positive = int(domain.sum())
    ranks = stats.rankdata(scores)[domain == 1].sum()
    return float((ranks - positive * (positive + 1) / 2) / (positive * (len(domain) - positive)))


def area_error(area: float, rows: int, other_rows: int) -> float:
    """Return the standard error of an area under the curve by Hanley and McNeil."""
    one, other = area / (2.0 - area), 2.0 * area**2 / (1.0 + area)
    spread = area * (1.0 - area) + (rows - 1) * (one - area**2) + (other_rows - 1) * (other - area**2)
    return math.sqrt(max(spread, 0.0) / (rows * other_rows))


def _summary(name: str, size: int, folds: Sequence[_Fold]) -> DomainClassifier:
    areas = [area_under_curve(fold.scores, fold.domain) for fold in folds]
    sizes = [(int((fold.domain == 0).sum()), int((fold.domain == 1).sum())) for fold in folds]
    auc = float(np.mean(areas))
    error = math.sqrt(sum(area_error(auc, *pair) ** 2 for pair in sizes)) / len(folds)
    guessing = math.sqrt(sum((a + b + 1) / (12 * a * b) for a, b in sizes)) / len(folds)
    wrong = float(np.mean(np.concatenate([(fold.scores > 0) != fold.domain for fold in folds])))
    drops = {feature: float(np.mean([fold.drops.get(feature, 0.0) for fold in folds])) for feature in _seen(folds)}
    return DomainClassifier(
        name,
        size,
        wrong,
        max(2.0 * (1.0 - 2.0 * wrong), 0.0),
        auc,
        max(auc - _Z95 * error, 0.0),
        min(auc + _Z95 * error, 1.0),
        float(special.ndtr(-(auc - 0.5) / guessing)),
        sorted(drops.items(), key=lambda entry: -entry[1]),
    )


def _seen(folds: Sequence[_Fold]) -> list[str]:
    return list(dict.fromkeys(feature for fold in folds for feature in fold.drops))


def _pick(rows: int, size: int, random: np.random.Generator) -> Codes:
    return np.sort(random.choice(rows, size, replace=False)) if size < rows else np.arange(rows)


def _folds(domain: Codes, random: np.random.Generator) -> list[tuple[Codes, Codes]]:
    from sklearn.model_selection import StratifiedKFold

    split = StratifiedKFold(FOLDS, shuffle=True, random_state=int(random.integers(2**31)))
    return list(split.split(domain, domain))


def _judge_by_trees(rows: _Rows, domain: Codes, train: Codes, test: Codes, random: np.random.Generator) -> _Fold:
    """Fit trees to the other folds; score this one, then again with each feature shuffled."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    trees = HistGradientBoostingClassifier(
        max_iter=50,
        max_leaf_nodes=15,
        categorical_features=rows.categorical,
        early_stopping=False,
        random_state=int(random.integers(2**31)),
    ).fit(rows.values[train], domain[train])
    judged = random.permutation(test)[:_JUDGED]
    values = rows.values[judged]
    area = area_under_curve(trees.decision_function(values), domain[judged])
    drops = {}
    for place, name in enumerate(rows.origins):
        shuffled = values.copy()
        shuffled[:, place] = random.permutation(values[:, place])
        drops[name] = area - area_under_curve(trees.decision_function(shuffled), domain[judged])
    return _Fold(trees.decision_function(rows.values[test]), domain[test], drops)


def _judge_by_lines(rows: _Rows, domain: Codes, train: Codes, test: Codes, random: np.random.Generator) -> _Fold:
    """Fit a logistic regression to the other folds; score this one, then again with the heaviest features shuffled."""
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=0.1, max_iter=1000).fit(rows.values[train], domain[train])
    weights, held_out = model.coef_[0], rows.values[test]
    scores = np.asarray(model.decision_function(held_out))
    area = area_under_curve(scores, domain[test])
    places: dict[str, list[int]] = {}
    for place, name in enumerate(rows.origins):
        places.setdefault(name, []).append(place)
    heaviest = sorted(places, key=lambda name: -float(np.abs(weights[places[name]]).sum()))[:_CANDIDATES]
    drops = {}
    for name in heaviest:
        part = np.asarray(held_out[:, places[name]] @ weights[places[name]])
        drops[name] = area - area_under_curve(scores - part + random.permutation(part), domain[test])
    return _Fold(scores, domain[test], drops)


def _rows_for_trees(samples: Samples, picked: Sequence[Codes]) -> _Rows:
    """Return one column per feature: numbers as they are, categories as codes, NaN where missing."""
    columns = []
    for name, kind in samples.kinds.items():
        values = _picked(samples, name, picked)
        columns.append(_codes(values, LEVELS_FOR_TREES) if kind == "category" else values)
    categorical = [kind == "category" for kind in samples.kinds.values()]
    return _Rows(np.column_stack(columns), list(samples.kinds), categorical)


def _rows_for_lines(samples: Samples, picked: Sequence[Codes]) -> _Rows:
    """Return columns of deviation 1: numbers in [0, 1], the main categories, and where values are missing."""
    source, target = samples.source.columns, samples.target.columns
    if isinstance(source, SparseColumns) and isinstance(target, SparseColumns):
        parts = [side.rows(chosen, list(samples.kinds)) for side, chosen in zip((source, target), picked, strict=True)]
        return _Rows(_of_unit_deviation(sparse.vstack(parts, format="csr")), list(samples.kinds), [])
    columns, origins = [], []
    for name, kind in samples.kinds.items():
        block = _indicators(_picked(samples, name, picked)) if kind == "category" else _filled(samples, name, picked)
        columns.append(block)
        origins += [name] * block.shape[1]
    values = np.hstack(columns)
    return _Rows(_of_unit_deviation(values - values.mean(axis=0)), origins, [])


def _picked(samples: Samples, name: str, picked: Sequence[Codes]) -> NDArray[Any]:
    return np.concatenate([values[chosen] for values, chosen in zip(samples.pair(name), picked, strict=True)])


def _codes(values: NDArray[Any], most: int) -> Floats:
    """Number categories, the most frequent first; those from `most` on are one, missing ones are NaN."""
    known = [value for value in values.tolist() if value is not None]
    numbers = {name: float(min(place, most)) for place, (name, _) in enumerate(Counter(known).most_common())}
    return np.array([numbers.get(value, math.nan) for value in values.tolist()])


def _indicators(values: NDArray[Any]) -> Floats:
    codes = _codes(values, LEVELS_FOR_LINES)
    return np.column_stack([codes == code for code in np.unique(codes[~np.isnan(codes)])] + [np.isnan(codes)]).astype(
        float
    )


def _filled(samples: Samples, name: str, picked: Sequence[Codes]) -> Floats:
    """Return a feature with its mean where it is missing, and a second column that says where."""
    values = unit_interval(_picked(samples, name, picked)[:, None])[:, 0]
    missing = np.isnan(values)
    if not missing.any():
        return values[:, None]
    mean = values[~missing].mean() if not missing.all() else 0.0
    return np.column_stack([np.where(missing, mean, values), missing])


def _of_unit_deviation(values: Any) -> Any:
    from sklearn.preprocessing import StandardScaler

    # Sparse columns must not be centred; the intercept does what centring would.
    return StandardScaler(with_mean=False).fit_transform(values)
