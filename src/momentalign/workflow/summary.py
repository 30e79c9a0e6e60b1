"""What a fit found, as plain JSON.

It answers, in this order: what was decided, how good the model is expected to be on the target and against what, what
the shares of the classes are there, what shifted, which rows are risky; then details.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray
from scipy import sparse

from momentalign.discrepancies.central_moment import cmd_terms
from momentalign.estimators.row_weights import draw_by_weight
from momentalign.evaluation.bounds import target_error_terms
from momentalign.evaluation.class_shares import Predictions, class_shares_interval, shares_and_doubt
from momentalign.networks.shallow import Matrix
from momentalign.report.sentences import verdict
from momentalign.tables.encoders import NumberColumn
from momentalign.tables.preprocess import Preprocessor
from momentalign.version import __version__
from momentalign.workflow.comparison import KnownLabels, compare, known_score
from momentalign.workflow.drift import standardised_shift
from momentalign.workflow.model import TableModel
from momentalign.workflow.risk import Answers, risk_table
from momentalign.workflow.threshold import rarer_class

__all__ = ["drawn_rows", "flagged_columns", "summarise"]

# Rows of each domain that distances look at.
_SEEN = 10_000
_SHIFTED, _UNITS, _DOTS, _RELABELLINGS = 20, 5, 200, 5
# Rows times classes that estimates of shares look at: more take minutes and hardly change them.
_LOOKED_AT, _RESAMPLES = 20_000, 60
# Columns that have a part of the target's rows of at least so much outside of the source's range are named.
_OUTSIDE, _NAMED = 0.01, 20
# What candidates of a portfolio are called where they stand for what one would have used without it.
_BASELINES = {
    "classification": {"linear": "logistic regression", "boosting": "gradient boosting"},
    "regression": {"linear": "ridge regression", "boosting": "gradient boosting"},
}
OWN, PLAIN = "this model", "not adapting"
_UNKNOWN: dict[str, float | None] = dict.fromkeys(("target", "low", "high", "known"))
_LEAST_ACCURACY = 1e-9
_OF_THE_THEOREM = {"ε_S", "d_F", "E_T|η_S - η_T|", "ε_T"}


def summarise(
    model: TableModel,
    X: Matrix,
    y: NDArray[Any],
    X_target: Matrix,
    answers: Answers,
    distance: NDArray[np.float64],
    truth: KnownLabels | None,
) -> dict[str, Any]:
    """Return everything but the settings and notes.

    Parameters
    ----------
    model
        The fitted model.
    X, y, X_target
        The preprocessed source with its labels, and the preprocessed target.
    answers
        What the model says of the target.
    distance
        How far each row of the target is from the source.
    truth
        The known labels of the target.
    """
    estimator: Any = model.estimator
    classes = getattr(estimator, "classes_", None)
    activations = _activations(estimator, X, X_target)
    evaluation = None
    if truth is not None:
        evaluation = compare(truth, answers, classes, None if classes is None else rarer_class(y, classes))
    shares, doubt = ([], None) if classes is None else _shares(estimator, y, answers)
    found: dict[str, Any] = {
        "decision": _decision(estimator, activations["distance"]),
        "kind": "fit",
        "task": "regression" if classes is None else "classification",
        "label": model.label,
        "source_rows": int(X.shape[0]),
        "target_rows": int(X_target.shape[0]),
        "features": int(X.shape[1]),
        "classes": [] if classes is None else [str(name) for name in classes],
        "estimate": _interval(getattr(estimator, "estimate_", None)),
        "gain": _interval(getattr(estimator, "gain_", None)),
        "source_score": _source_score(estimator),
        "threshold": _threshold(model),
        "evaluation": evaluation,
        "shares": shares,
        "shares_doubt": doubt,
        "values": {"source": _spread(y), "target": _spread(answers.predicted)} if classes is None else None,
        "columns": flagged_columns(model.preprocessor, X, X_target),
        "shifted": _shifted(model),
        "risk": _risk(model, answers, distance, truth),
        "portfolio": _portfolio(estimator),
        **activations,
        "bounds": _bounds(estimator, answers),
        "versions": {"momentalign": __version__, "numpy": np.__version__, "scipy": scipy.__version__},
    }
    found["baselines"] = _baselines(estimator, found, answers, truth)
    return {"decision": found["decision"], "verdict": verdict(found), **found}


def _decision(estimator: Any, distance: Mapping[str, Any] | None) -> str:
    """What a portfolio decided; of networks, how they were asked for."""
    if distance is None:
        return str(estimator.decision_)
    if estimator.discrepancy is None:
        return "Not adapted, as asked for."
    # An aligned classifier combines several networks, unless the guard kept the plain one.
    if estimator.weight == "auto" and len(estimator.networks_) == 1:
        return (
            "Not adapted: aligned networks label many target rows otherwise without being as much more confident, as "
            "where classes have other shares in the target."
        )
    apart = f"{sum(distance['terms']):.2f} apart (CMD), {distance['by_chance']:.2f} by chance alone"
    return (
        f"Aligned by {estimator.discrepancy}, as asked for: hidden activations of the domains are {apart}, which does "
        "not say how good the model is on the target."
    )


def _portfolio(estimator: Any) -> list[dict[str, Any]]:
    """The candidates of a portfolio; what is not known is None."""
    table = getattr(estimator, "portfolio_", None)
    if table is None:
        return []
    return [
        {name: None if value != value else value for name, value in candidate.items()}
        for candidate in table.to_dict("records")
    ]


def _interval(found: Any) -> dict[str, float] | None:
    return None if found is None else {part: float(getattr(found, part)) for part in ("value", "low", "high")}


def _source_score(estimator: Any) -> float | None:
    """Accuracy or R² on the held-out source rows, before the model was trained on them too; None where none were."""
    if hasattr(estimator, "held_out_"):
        return _weighted_accuracy(estimator.held_out_.answer, estimator.held_out_)
    if not hasattr(estimator, "history_"):
        return None
    classifies = hasattr(estimator, "classes_")
    scores = estimator.history_["validation_accuracy" if classifies else "validation_loss"]
    score = float(scores[estimator.best_epoch_ - 1]) if scores else np.nan
    if not np.isfinite(score):
        return None
    # The loss is of values in standard deviations.
    return score if classifies else 1.0 - score


def _weighted_accuracy(probabilities: NDArray[Any], held_out: Any) -> float:
    right = probabilities.argmax(axis=1) == held_out.labels
    return float(np.average(right, weights=held_out.counts))


def _baselines(
    estimator: Any, found: Mapping[str, Any], answers: Answers, truth: KnownLabels | None
) -> list[dict[str, Any]]:
    """What one would have used without adapting, and the model: each on held-out source rows and on the target.

    Plain models are expected to keep the same part of their held-out accuracy on the target as their average does. What
    always predicts the largest class has the estimated share of that class.
    """
    if found["task"] == "regression":
        names = {"mean of the source": 0.0, **_candidate_scores(found)}
        return [{"name": name, "source": score, **_UNKNOWN} for name, score in names.items()] + [_own(found)]
    largest = max(found["shares"], key=lambda share: share["source"])
    label = estimator.classes_[found["classes"].index(largest["class"])]
    rows = [
        {
            "name": f"always {largest['class']!r}",
            "source": largest["source"],
            **_UNKNOWN,
            "target": largest["estimated"],
            "known": known_score(truth, np.full(len(answers.predicted), label)),
        }
    ]
    held_out = getattr(estimator, "held_out_", None)
    if held_out is None:
        return [*rows, _own(found)]
    scores = _candidate_scores(found) | {PLAIN: _weighted_accuracy(held_out.plain, held_out)}
    kept = _kept_of_plain(found, scores[PLAIN])
    labels = _member_labels(estimator, found, answers)
    if len(held_out.plain_target) == len(answers.predicted):
        labels[PLAIN] = estimator.classes_[held_out.plain_target.argmax(axis=1)]
    rows += [
        {
            "name": name,
            "source": score,
            **_UNKNOWN,
            "target": None if kept is None else min(1.0, score * kept),
            "known": known_score(truth, labels.get(name)),
        }
        for name, score in scores.items()
    ]
    return [*rows, _own(found)]


def _kept_of_plain(found: Mapping[str, Any], plain: float) -> float | None:
    """What part of their held-out accuracy plain models keep on the target; None where only adapted ones are known."""
    if found["gain"] is not None:
        return float((found["estimate"]["value"] - found["gain"]["value"]) / max(plain, _LEAST_ACCURACY))
    if found["decision"].startswith("Not adapted"):
        return float(found["estimate"]["value"] / max(found["source_score"], _LEAST_ACCURACY))
    return None


def _candidate_scores(found: Mapping[str, Any]) -> dict[str, float]:
    """Held-out scores of the candidates that one would have used without a portfolio."""
    scores = {one["name"]: one["source_score"] for one in found["portfolio"]}
    return {shown: scores[name] for name, shown in _BASELINES[found["task"]].items() if name in scores}


def _member_labels(estimator: Any, found: Mapping[str, Any], answers: Answers) -> dict[str, NDArray[Any]]:
    """What those of them that count in the answer predict for the target."""
    names = [one["name"] for one in found["portfolio"] if one["weight"]]
    votes = dict(zip(names, answers.votes, strict=True))
    return {
        shown: estimator.classes_[votes[name]] for name, shown in _BASELINES[found["task"]].items() if name in votes
    }


def _own(found: Mapping[str, Any]) -> dict[str, Any]:
    estimate, evaluation = found["estimate"] or {"value": None, "low": None, "high": None}, found["evaluation"] or {}
    known = evaluation.get("r2" if found["task"] == "regression" else "accuracy")
    ends = {part: estimate[part] for part in ("low", "high")}
    return {"name": OWN, "source": found["source_score"], "target": estimate["value"], **ends, "known": known}


def _threshold(model: TableModel) -> dict[str, Any] | None:
    """The threshold, and of a portfolio precision and recall on held-out source rows."""
    if model.threshold is None:
        return None
    estimator: Any = model.estimator
    found = {**model.threshold._asdict(), "positive": str(estimator.classes_[model.threshold.positive])}
    held_out = getattr(estimator, "held_out_", None)
    if held_out is None:
        return found | {"precision": None, "recall": None}
    named = model.threshold.decide(held_out.answer) == model.threshold.positive
    true = held_out.labels == model.threshold.positive
    both = float(held_out.counts[named & true].sum())
    sums = {"precision": float(held_out.counts[named].sum()), "recall": float(held_out.counts[true].sum())}
    return found | {name: both / total if total else None for name, total in sums.items()}


def _risk(
    model: TableModel, answers: Answers, distance: NDArray[np.float64], truth: KnownLabels | None
) -> list[dict[str, Any]]:
    """Return what the flagged rows of the target and the others are like, on average."""
    assert model.risk_cut is not None  # noqa: S101  (a fit has one)
    table = risk_table(answers, distance, model.risk_cut)
    flags = table.pop("risky").to_numpy()
    columns = {str(name): values.to_numpy() for name, values in table.items() if values.notna().all()}
    groups = []
    for risky in (True, False):
        rows = flags == risky
        means = {name: float(values[rows].mean()) if rows.any() else None for name, values in columns.items()}
        groups.append({"risky": risky, "rows": int(rows.sum()), **means, "known": _known(truth, answers, rows)})
    return groups


def _known(truth: KnownLabels | None, answers: Answers, among: NDArray[np.bool_]) -> float | None:
    """The accuracy, or the root mean squared error, of some of the rows that have a label."""
    if truth is None:
        return None
    kept = among[truth.rows]
    if not kept.any():
        return None
    some = KnownLabels(truth.column, truth.rows[kept], truth.values[kept])
    if answers.values.ndim == 2:
        return known_score(some, answers.predicted)
    return float(np.sqrt(np.mean((some.values - answers.predicted[some.rows]) ** 2)))


def _shares(estimator: Any, y: NDArray[Any], answers: Answers) -> tuple[list[dict[str, Any]], str | None]:
    """Return the shares of every class, and why the estimated ones are uncertain, if they are.

    Estimates are made of plain models' predictions: aligned ones are drawn to the source's shares.
    """
    classes = estimator.classes_
    found: list[dict[str, Any]] = [
        {
            "class": str(name),
            "source": float((y == name).mean()),
            "target": float((answers.predicted == name).mean()),
            **dict.fromkeys(("plain", "estimated", "low", "high")),
        }
        for name in classes
    ]
    held_out = getattr(estimator, "held_out_", None)
    if held_out is None or not len(held_out.plain_target):
        return found, None
    rows = drawn_rows(held_out.counts, _LOOKED_AT // len(classes))
    target = _sample(held_out.plain_target, _LOOKED_AT // len(classes))
    predictions = Predictions(held_out.plain[rows], held_out.labels[rows], target)
    shares, doubt = shares_and_doubt(predictions)
    low, high = class_shares_interval(predictions, resamples=_RESAMPLES)
    plain = np.bincount(held_out.plain_target.argmax(axis=1), minlength=len(classes)) / len(held_out.plain_target)
    for code, one in enumerate(found):
        one |= {"plain": float(plain[code]), "estimated": float(shares[code])}
        one |= {"low": float(min(low[code], shares[code])), "high": float(max(high[code], shares[code]))}
    return found, doubt


def drawn_rows(counts: NDArray[np.float64], most: int) -> NDArray[np.intp]:
    """Return rows as often as they were given, at most about so many."""
    size = int(min(max(round(counts.sum()), len(counts)), most))
    return draw_by_weight(counts, size)[np.random.default_rng(0).permutation(size)]


def flagged_columns(preprocessor: Preprocessor, X: Matrix, X_target: Matrix) -> dict[str, list[dict[str, Any]]]:
    """Return the columns that nothing can be learned from, or that a model has to extrapolate from, by name.

    Parameters
    ----------
    preprocessor
        The fitted preprocessor.
    X, X_target
        The preprocessed source and target.

    Returns
    -------
    dict
        ``constant``: columns that are constant in one domain alone. ``unseen``: columns with categories that the source
        lacks. ``outside``: columns of numbers and dates with target rows outside of the source's range.
    """
    unseen = [
        {"name": name, "values": [text for text, _ in counts.most_common(_NAMED)], "rows": counts.total()}
        for name, counts in preprocessor.unseen_.items()
    ]
    found: dict[str, list[dict[str, Any]]] = {"constant": [], "unseen": unseen, "outside": []}
    columns: list[Any] = preprocessor.encoders_
    if preprocessor.form_ != "columns":  # those of a matrix are features as they are
        names: Any = () if sparse.issparse(X) else preprocessor.get_feature_names_out()
        columns = [NumberColumn(str(name), 0.0, 0.0, 1.0, indicator=False) for name in names]
    start = 0
    for column in columns:
        end = start + len(column.features)
        source, target = (_dense(rows[:, start:end]) for rows in (X, X_target))
        start = end
        constant = [bool((part == part[0]).all()) for part in (source, target)]
        if constant[0] != constant[1]:
            found["constant"].append({"name": column.name, "domain": "source" if constant[0] else "target"})
        if isinstance(column, NumberColumn) and not constant[0]:
            known = [part[:, 0][part[:, 1] == 0.0] if column.indicator else part[:, 0] for part in (source, target)]
            share = _share_outside(*known)
            if share >= _OUTSIDE:
                found["outside"].append({"name": column.name, "share": share})
    found["outside"] = sorted(found["outside"], key=lambda one: -one["share"])[:_NAMED]
    return found


def _dense(rows: Any) -> NDArray[Any]:
    return np.asarray(rows.toarray() if hasattr(rows, "toarray") else rows)


def _share_outside(source: NDArray[Any], target: NDArray[Any]) -> float:
    """The part of the target that is outside of the source's range, as far as that is more than chance makes it."""
    if not len(source) or not len(target):
        return 0.0
    share = float(((target < source.min()) | (target > source.max())).mean())
    # Of two samples of one distribution, 2 / (n + 1) are outside on average.
    return share if share > 6.0 / (len(source) + 1.0) else 0.0


def _bounds(estimator: Any, answers: Answers) -> dict[str, Any] | None:
    """What Theorem 1 says for a portfolio of classifiers; None for other models."""
    held_out = getattr(estimator, "held_out_", None)
    if held_out is None:
        return None
    target = _sample(answers.values, _SEEN)
    predictions = Predictions(held_out.answer, held_out.labels, target)
    report = target_error_terms(predictions, cmd_terms=_terms(held_out.answer, target))
    # What follows is about hidden activations, of which a portfolio has several kinds or none.
    rows = [row._asdict() for row in report if row.symbol in _OF_THE_THEOREM]
    return {"rows": rows, "conclusion": report.conclusion}


def _terms(source: NDArray[Any], target: NDArray[Any]) -> list[float]:
    """The CMD of hidden activations, order by order."""
    return [float(term) for term in cmd_terms(source, target)]


def _activations(estimator: Any, X: Matrix, X_target: Matrix) -> dict[str, Any]:
    """How far apart the hidden activations of a network are, and those of the units whose means differ most."""
    if not hasattr(estimator, "transform"):
        return {"distance": None, "units": []}
    source, target = (estimator.transform(_sample(rows, _SEEN)).astype(np.float64) for rows in (X, X_target))
    rows, random, by_chance = np.concatenate([source, target]), np.random.default_rng(0), []
    for _ in range(_RELABELLINGS):
        order = random.permutation(len(rows))
        by_chance.append(sum(_terms(rows[order[: len(source)]], rows[order[len(source) :]])))
    distance = {"terms": _terms(source, target), "by_chance": float(np.mean(by_chance))}
    return {"distance": distance, "units": _units(source, target)}


def _shifted(model: TableModel) -> list[dict[str, Any]]:
    """The features whose means shifted most between the domains."""
    source = model.source_moments
    assert source is not None  # noqa: S101  (a fit has them)
    shift, names = standardised_shift(source, model.moments), model.feature_names
    return [
        {
            "name": names[feature],
            "mean_shift": float(shift[feature]),
            "source_deviation": float(source.deviation[feature]),
            "target_deviation": float(model.moments.deviation[feature]),
        }
        for feature in np.argsort(-np.abs(shift), kind="stable")[:_SHIFTED]
    ]


def _units(source: NDArray[Any], target: NDArray[Any]) -> list[dict[str, Any]]:
    """Activations of the hidden units whose means differ most."""
    gaps = np.abs(source.mean(axis=0) - target.mean(axis=0))
    dots: list[Matrix] = [np.round(_sample(hidden, _DOTS), 4) for hidden in (source, target)]
    return [
        {
            "unit": int(unit) + 1,
            "gap": float(gaps[unit]),
            "source": dots[0][:, unit].tolist(),
            "target": dots[1][:, unit].tolist(),
        }
        for unit in np.argsort(-gaps, kind="stable")[:_UNITS]
    ]


def _spread(values: NDArray[Any]) -> dict[str, float]:
    return {
        "mean": float(values.mean()),
        "deviation": float(values.std()),
        "smallest": float(values.min()),
        "largest": float(values.max()),
    }


def _sample(rows: Matrix, most: int) -> Matrix:
    """At most so many rows, drawn at random, in order."""
    if rows.shape[0] <= most:
        return rows
    return rows[np.sort(np.random.default_rng(0).choice(rows.shape[0], most, replace=False))]
