"""What shifted between two samples, how much, and whether it is significant: one call, one object, one page.

A diagnosis as one figure of matplotlib; imported only where it is drawn, as matplotlib is an extra.
"""

from __future__ import annotations

import copy
import math
import numbers
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy
import sklearn
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from momentalign.errors import InvalidInputError
from momentalign.evaluation.domain_classifier import DomainClassifier, tell_apart
from momentalign.evaluation.features import FeatureChange, compare_features
from momentalign.evaluation.moment_test import MomentShift, compare_moments
from momentalign.evaluation.samples import FEWEST_ROWS, Samples, Table, read_samples
from momentalign.evaluation.verdict import conclude
from momentalign.monitoring.window import read_random
from momentalign.report.diagnosis_page import diagnosis_page
from momentalign.report.page import write_page
from momentalign.version import __version__

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

__all__ = ["Diagnosis", "diagnose", "diagnosis_figure"]

_FEATURES, _PANELS = 12, 3
_SOURCE, _TARGET = "#59616b", "#c02a73"


def diagnosis_figure(result: Mapping[str, Any]) -> Figure:
    """Draw the distances of the features, the CMD order by order, and the features that differ most."""
    figure = Figure(figsize=(11, 6.5), layout="constrained")
    grid = figure.add_gridspec(2, 2 * _PANELS)
    _draw_distances(figure.add_subplot(grid[0, :_PANELS]), result["features"][:_FEATURES], result["alpha"])
    _draw_orders(figure.add_subplot(grid[0, _PANELS:]), result["cmd"])
    shown = [feature for feature in result["features"] if feature["shape"] is not None][:_PANELS]
    for place, feature in enumerate(shown):
        _draw_feature(figure.add_subplot(grid[1, 2 * place : 2 * place + 2]), feature)
    figure.suptitle(result["verdict"]["words"], wrap=True, fontsize=10)
    return figure


def _draw_distances(place: Axes, features: Sequence[Mapping[str, Any]], alpha: float) -> None:
    """Draw how far apart features are; pale ones do not differ significantly."""
    names = [feature["name"] for feature in features]
    values = [feature["distance"] or 0.0 for feature in features]
    colours = [_TARGET if feature["changes"] else "#c9cdd2" for feature in features]
    place.barh(range(len(names)), values, color=colours)
    place.set_yticks(range(len(names)), names)
    place.invert_yaxis()
    place.set_xlim(0, 1)
    place.set_title(f"Distance of features (coloured: adjusted p at most {alpha:g})", fontsize=9)


def _draw_orders(place: Axes, cmd: Mapping[str, Any] | None) -> None:
    """Draw the terms of the CMD as bars and what chance seldom exceeds as strokes."""
    if cmd is None:
        place.set_axis_off()
        return
    orders = np.arange(1, len(cmd["orders"]) + 1)
    place.bar(orders, [entry["value"] for entry in cmd["orders"]], color=_TARGET, label="measured")
    limits = [entry["by_chance"] for entry in cmd["orders"]]
    place.hlines(limits, orders - 0.4, orders + 0.4, color=_SOURCE, label="95 % of relabellings stay below")
    place.set_title(f"Central moment discrepancy per order (p = {cmd['total']['p_value']:.3g})", fontsize=9)
    place.legend(frameon=False, fontsize=8)


def _draw_feature(place: Axes, feature: Mapping[str, Any]) -> None:
    """Draw the shares of both samples over one feature."""
    shape = feature["shape"]
    for side, colour in (("source", _SOURCE), ("target", _TARGET)):
        if shape["names"] is None:
            edges = np.linspace(shape["low"], shape["high"], len(shape[side]) + 1)
            place.stairs(shape[side], edges, fill=True, alpha=0.3, color=colour, label=side)
        else:
            shift = -0.2 if side == "source" else 0.2
            place.bar(np.arange(len(shape[side])) + shift, shape[side], width=0.4, color=colour, label=side)
    if shape["names"] is not None:
        place.set_xticks(range(len(shape["names"])), shape["names"], rotation=30, fontsize=8)
    place.set_yticks([])
    place.set_title(f"{feature['name']}: {', '.join(feature['changes']) or 'no significant difference'}", fontsize=9)
    place.legend(frameon=False, fontsize=8)


Floats = NDArray[np.float64]

_MOST_ROWS, _FEWEST_ROWS = 10_000, 2_000
# Rows times features that a sample may have in the permutation test and in the classifier.
_MOST_CELLS = 2_000_000
_COLUMNS = (
    "name",
    "kind",
    "distance",
    "p_value",
    "p_adjusted",
    "mean_source",
    "mean_target",
    "mean_shift",
    "deviation_ratio",
    "missing_source",
    "missing_target",
    "missing_p_adjusted",
    "new",
    "gone",
    "changes",
)


def diagnose(
    X_source: Any,
    X_target: Any,
    *,
    feature_names: Sequence[str] | None = None,
    alpha: float = 0.05,
    n_permutations: int = 1000,
    random_state: int | np.random.Generator | None = 0,
) -> Diagnosis:
    r"""Find out what differs between two samples: which features, in what, how much, and whether it is significant.

    Each feature is compared by itself (Kolmogorov-Smirnov test of numbers and dates, chi-square test of categories and
    of missing values, all p-values adjusted by Benjamini and Hochberg), all numbers together by the Central Moment
    Discrepancy with a permutation test per order, and everything together by a cross-validated classifier of domains
    (proxy-A-distance). The verdict is one sentence. That a shift was found does not say that aligning moments will
    help: no labels of the target were seen.

    Parameters
    ----------
    X_source, X_target
        Arrays (rows, features), data frames with numbers, dates and categories, or scipy sparse matrices, with at least
        8 rows; NaN, None and NaT are missing values. Frames are matched by the names of their columns.
    feature_names
        Names of the columns of arrays.
    alpha
        What counts as significant, between 0 and 1.
    n_permutations
        How many relabellings the CMD is compared with.
    random_state
        Seed of relabellings, folds and subsamples; the same seed gives the same diagnosis.

    Notes
    -----
    The permutation test and the classifier see at most 10,000 rows of each sample, drawn at random, and fewer where
    there are more than 200 features (2,000 at 1,000 features); the other tests see all rows. The result says how many
    rows were seen.

    Examples
    --------
    >>> import numpy as np
    >>> from momentalign.report.diagnosis import diagnose
    >>> random = np.random.default_rng(0)
    >>> source, target = random.normal(0, 1, (300, 3)), random.normal([0, 0, 1], [1, 2, 1], (300, 3))
    >>> found = diagnose(source, target, feature_names=["same", "wider", "moved"], n_permutations=99)
    >>> print(found.verdict[:73])
    Strong shift: 2 of 3 features differ: moved (location) and wider (spread)
    >>> found.to_frame()[["feature", "mean_shift", "deviation_ratio"]].round(1)
      feature  mean_shift  deviation_ratio
    0   moved         0.9              1.1
    1   wider         0.2              2.0
    2    same        -0.0              1.0
    """
    if isinstance(alpha, bool) or not isinstance(alpha, numbers.Real) or not 0.0 < alpha < 1.0:
        raise InvalidInputError(f"alpha must be a number between 0 and 1, got {alpha!r}; try 0.05.")
    if isinstance(n_permutations, bool) or not isinstance(n_permutations, numbers.Integral) or n_permutations < 1:
        raise InvalidInputError(
            f"n_permutations must be a whole number of at least 1, got {n_permutations!r}; try 1000."
        )
    random = read_random(random_state)
    samples = read_samples(X_source, X_target, feature_names)
    # Threads of one product or tree would only wait for each other where other work is running.
    with threadpool_limits(limits=1):
        return Diagnosis(_findings(samples, float(alpha), int(n_permutations), random))


@dataclass(frozen=True)
class Diagnosis:
    """What :func:`diagnose` found; all of it is in `result`, in types that JSON knows."""

    result: Mapping[str, Any]

    @property
    def verdict(self) -> str:
        """What was found, in one sentence."""
        return str(self.result["verdict"]["words"])

    @property
    def level(self) -> str:
        """How strong the shift is: none, mild, moderate or strong."""
        return str(self.result["verdict"]["level"])

    @property
    def p_value(self) -> float:
        """How likely the most telling of all tests would be this telling without any shift."""
        return float(self.result["verdict"]["p_value"])

    def __str__(self) -> str:
        return self.verdict

    def __repr__(self) -> str:
        return f"<Diagnosis: {self.verdict}>"

    def to_dict(self) -> dict[str, Any]:
        """Return a copy of everything in types that JSON knows; None is what could not be computed."""
        return copy.deepcopy(dict(self.result))

    def to_frame(self) -> DataFrame:
        """Return one line per feature, the ones that differ most first."""
        try:
            import pandas
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError("to_frame() needs pandas: pip install momentalign[tables]") from error
        rows = [{name: feature[name] for name in _COLUMNS} for feature in self.result["features"]]
        frame = pandas.DataFrame(rows, columns=list(_COLUMNS)).rename(columns={"name": "feature"})
        frame["changes"] = [", ".join(changes) for changes in frame["changes"]]
        words = ["feature", "kind", "changes"]
        return frame.astype({name: float for name in frame.columns if name not in words})

    def to_html(self, path: str | os.PathLike[str] | None = None) -> str:
        """Return the page that shows everything; with a `path` write it there too, whole or not at all."""
        page = diagnosis_page(self.result)
        if path is not None:
            write_page(page, Path(path))
        return page

    def plot(self) -> Figure:
        """Return a figure of matplotlib: distances, moments order by order, and the most different features."""
        try:
            from momentalign.report.diagnosis import diagnosis_figure
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError("plot() needs matplotlib: pip install momentalign[deep]") from error
        return diagnosis_figure(self.result)


def _findings(samples: Samples, alpha: float, n_permutations: int, random: np.random.Generator) -> dict[str, Any]:
    """Return all that is found out about two samples, in types that JSON knows."""
    features = compare_features(samples, alpha=alpha)
    moments, seen = _moments(samples, n_permutations, random)
    most_rows = _most_rows(len(samples.kinds), least=_FEWEST_ROWS)
    classifier = tell_apart(samples, most_rows=most_rows, random_state=int(random.integers(2**31)))
    unmatched = len(samples.only_source) + len(samples.only_target)
    return {
        "kind": "diagnosis",
        "rows": {"source": samples.source.rows, "target": samples.target.rows},
        "alpha": alpha,
        "verdict": conclude(features, moments, classifier, alpha=alpha, unmatched=unmatched)._asdict(),
        "features": [_of_feature(feature) for feature in features],
        "cmd": _of_moments(moments, seen, n_permutations),
        "classifier": _of_classifier(classifier),
        "only_source": samples.only_source,
        "only_target": samples.only_target,
        "empty": samples.empty,
        "retyped": samples.retyped,
        "versions": {
            "momentalign": __version__,
            "numpy": np.__version__,
            "scipy": scipy.__version__,
            "scikit-learn": sklearn.__version__,
        },
    }


def _moments(
    samples: Samples, n_permutations: int, random: np.random.Generator
) -> tuple[MomentShift | None, dict[str, int]]:
    """Return the permutation test of all numbers together, and how many rows and features it saw."""
    names = samples.names("number", "date")
    most_rows = _most_rows(len(names), least=min(_FEWEST_ROWS, 10 * _MOST_CELLS // max(len(names), 1)))
    sides = [_drawn(table, names, most_rows, random) for table in (samples.source, samples.target)]
    known = ~(np.isnan(sides[0]).all(axis=0) | np.isnan(sides[1]).all(axis=0))
    seen = {"source": len(sides[0]), "target": len(sides[1]), "features": int(known.sum())}
    if not known.any():
        return None, seen
    source, target = sides[0][:, known], sides[1][:, known]
    return compare_moments(source, target, n_permutations=n_permutations, random_state=random), seen


def _most_rows(width: int, *, least: int) -> int:
    return min(max(_MOST_CELLS // max(width, 1), least, FEWEST_ROWS), _MOST_ROWS)


def _drawn(table: Table, names: Sequence[str], most_rows: int, random: np.random.Generator) -> Floats:
    """Return these columns of at most so many rows, as one matrix."""
    chosen = random.permutation(table.rows)[:most_rows]
    drawn = np.empty((len(chosen), len(names)), order="F")
    for place, name in enumerate(names):
        drawn[:, place] = table.columns[name][chosen]
    return drawn


def _of_feature(feature: FeatureChange) -> dict[str, Any]:
    """Return a feature in types of JSON; what is not finite becomes None."""
    entries = {name: _finite(value) for name, value in vars(feature).items()}
    return entries | {"shape": None if feature.shape is None else feature.shape._asdict()}


def _of_moments(moments: MomentShift | None, seen: Mapping[str, int], n_permutations: int) -> dict[str, Any] | None:
    if moments is None:
        return None
    columns = zip(moments.values.tolist(), moments.p_values.tolist(), moments.by_chance.tolist(), strict=True)
    *orders, total = [{"value": value, "p_value": p, "by_chance": chance} for value, p, chance in columns]
    return {"orders": orders, "total": total, "seen": dict(seen), "n_permutations": n_permutations}


def _of_classifier(classifier: DomainClassifier) -> dict[str, Any]:
    features = [{"name": name, "drop": drop} for name, drop in classifier.features]
    return classifier._asdict() | {"features": features}


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
