"""What the summary of a fit says in words: the verdict, sentences about columns, and what the command prints."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = [
    "answer_sentence",
    "beware_sentences",
    "column_sentences",
    "estimate_text",
    "gain_text",
    "positive_text",
    "printed",
    "reason_sentences",
    "score_text",
    "verdict",
]

# A predicted share that is so far outside of the interval of the estimated one is warned of.
_FAR_OUTSIDE = 0.1
# Classes that are printed, and columns of unseen categories that get a sentence.
_PRINTED, _SENTENCES = 20, 3
_DONE = re.compile(r"([^.:]*)[.:]?\s*(?:Expected accuracy on the target .*?\.(?:\s+(?=[A-Z])|$))?(.*)", re.DOTALL)


def answer_sentence(summary: Mapping[str, Any]) -> str:
    """Return the answer: what was done, the estimate and the difference to not adapting, with their intervals."""
    answer, estimate, gain = _done_and_reason(summary["decision"])[0], summary["estimate"], summary["gain"]
    figures = []
    if estimate is not None:
        expected = estimate_text(estimate, "value", _is_regression(summary))
        figures.append(f"the expected {_metric(summary)} on the target is {expected}")
    if gain is not None:
        figures.append(f"{gain_text(gain, _is_regression(summary))} compared with not adapting")
    if figures:
        answer += ": " + ", ".join(figures).replace(" (", " (90 % interval ")
    sentences = [f"{answer}.", *_held_out_sentence(summary), *_known_sentence(summary)]
    return " ".join(sentences).replace(" %", "\N{NO-BREAK SPACE}%")


def reason_sentences(summary: Mapping[str, Any]) -> str:
    """Return why that was decided."""
    return _done_and_reason(summary["decision"])[1]


def _done_and_reason(decision: str) -> tuple[str, str]:
    """Set apart what was done and why; the expected accuracy, which stands in between, is known in more detail."""
    done, reason = _DONE.fullmatch(decision).groups()  # type: ignore[union-attr]
    return done, reason[:1].upper() + reason[1:]


def verdict(summary: Mapping[str, Any]) -> str:
    """Return what was decided, and what to beware of, in a few sentences."""
    known = _held_out_sentence(summary), beware_sentences(summary), _known_sentence(summary)
    return " ".join([summary["decision"], *(sentence for sentences in known for sentence in sentences)])


def _is_regression(summary: Mapping[str, Any]) -> bool:
    return bool(summary["task"] == "regression")


def _metric(summary: Mapping[str, Any]) -> str:
    return "R²" if _is_regression(summary) else "accuracy"


def _held_out_sentence(summary: Mapping[str, Any]) -> list[str]:
    """Return how good the model is on the source, where nothing better is known."""
    if summary["estimate"] is not None or summary["source_score"] is None:
        return []
    score = score_text(summary["source_score"], _is_regression(summary))
    return [f"On held-out source rows the {_metric(summary)} is {score}."]


def _known_sentence(summary: Mapping[str, Any]) -> list[str]:
    if summary["evaluation"] is None:
        return []
    known = summary["evaluation"]["r2" if _is_regression(summary) else "accuracy"]
    return [f"On the labelled target rows the {_metric(summary)} is {score_text(known, _is_regression(summary))}."]


def positive_text(found: Mapping[str, Any]) -> str:
    """Write what is known of the rarer class on labelled target rows."""
    return (
        f"of {found['class']!r} precision {_share(found['precision'])}, recall {_share(found['recall'])}; AUC "
        f"{found['roc_auc']:.3f}, average precision {found['average_precision']:.3f}"
    )


def _shares_warning(shares: Sequence[Mapping[str, Any]]) -> list[str]:
    """Say so where far more or fewer rows are predicted as a class than there are, as aligned networks tend to."""
    known = [one for one in shares if one["estimated"] is not None]
    if not known:
        return []
    beyond = [max(one["low"] - one["target"], one["target"] - one["high"]) for one in known]
    worst = known[beyond.index(max(beyond))]
    if max(beyond) <= _FAR_OUTSIDE:
        return []
    return [
        f"The model predicts {worst['class']!r} for {_share(worst['target'])} of the target rows, where the share of "
        f"that class is estimated as {_share(worst['low'])} to {_share(worst['high'])}; label some rows before you "
        "rely on it."
    ]


def beware_sentences(summary: Mapping[str, Any]) -> list[str]:
    """Return what a user has to know of the predictions: the threshold, and shares that are not to be believed."""
    sentences = []
    if summary["threshold"] is not None:
        sentences.append(_threshold_sentence(summary["threshold"], estimated=summary["estimate"] is not None))
    used = [share["class"] for share in summary["shares"] if share["target"]]
    if len(used) == 1:
        sentences.append(
            f"The model predicts {used[0]!r} for every target row; check the target before you rely on it."
        )
    elif summary["shares"] and summary["shares_doubt"] is None:
        sentences += _shares_warning(summary["shares"])
    return sentences


def _threshold_sentence(threshold: Mapping[str, Any], *, estimated: bool) -> str:
    """Say from which probability on a row is positive, and what that gave on held-out source rows."""
    rules = {"given": "", "f1": ", where F1 is best"}
    rule = rules.get(threshold["rule"], f", where the cost ({threshold['rule'].removeprefix('cost:')}) is lowest")
    known = [f"{name} {_share(threshold[name])}" for name in ("precision", "recall") if threshold[name] is not None]
    found = f" (on held-out source rows {' and '.join(known)})" if known else ""
    without = "; the expected accuracy is that without a threshold" if estimated else ""
    return (
        f"A row is {threshold['positive']!r} from a probability of {threshold['value']:.3g} on{rule}{found}{without}."
    )


def score_text(value: float | None, regression: bool) -> str:
    """Write an accuracy in percent, or an R²."""
    if value is None:
        return "not defined"
    return f"{value:.2f}" if regression else f"{100 * value:.1f} %"


def printed(summary: Mapping[str, Any]) -> str:
    """Return what the command prints: the verdict, then models and shares of classes as small tables."""
    parts = [summary["verdict"]]
    if summary["baselines"]:
        parts.append(_printed_baselines(summary))
    if summary["shares"]:
        parts.append(_printed_shares(summary))
    positive = (summary["evaluation"] or {}).get("positive")
    if positive is not None:
        parts.append("labelled target rows: " + positive_text(positive))
    return "\n".join([*parts, *column_sentences(summary["columns"])])


def _printed_baselines(summary: Mapping[str, Any]) -> str:
    regression, known = summary["task"] == "regression", summary["evaluation"] is not None
    head = [f"{'R²' if regression else 'accuracy'} of", "held-out source", "expected on target", "labelled target"]
    rows = []
    for one in summary["baselines"]:
        expected = "" if one["target"] is None else estimate_text(one, "target", regression)
        values = ["" if value is None else score_text(value, regression) for value in (one["source"], one["known"])]
        rows.append([one["name"], values[0], expected, values[1]])
    columns = 4 if known else 3
    lines = _aligned([row[:columns] for row in [head, *rows]])
    if summary["gain"] is not None:
        lines.append(f"difference to not adapting: {gain_text(summary['gain'], regression)}")
    return "\n".join(lines)


def estimate_text(one: Mapping[str, Any], part: str, regression: bool) -> str:
    """Write an estimate without digits that it does not have, and its interval where it has one."""
    value, ends = one[part], [one["low"], one["high"]]
    if regression:
        return f"{value:.2f}" if None in ends else f"{value:.2f} ({ends[0]:.2f} to {ends[1]:.2f})"
    written = _share(value)
    return written if None in ends else f"{written} ({100 * ends[0]:.0f} to {100 * ends[1]:.0f})"


def _share(value: float) -> str:
    return f"{100 * value:.0f}\N{NO-BREAK SPACE}%"


def gain_text(gain: Mapping[str, float], regression: bool) -> str:
    """Write an estimated difference with its interval, in points of a percent or of R²."""
    if regression:
        return f"{gain['value']:+.2f} R² ({gain['low']:+.2f} to {gain['high']:+.2f})"
    return f"{100 * gain['value']:+.1f} points ({100 * gain['low']:+.1f} to {100 * gain['high']:+.1f})"


def _printed_shares(summary: Mapping[str, Any]) -> str:
    head = ["share of class", "source", "predicted", "plain models", "estimated"]
    rows = []
    for one in summary["shares"][:_PRINTED]:
        rows.append([one["class"], *(score_text(one[part], False) for part in ("source", "target"))])
        if one["plain"] is not None:
            rows[-1] += [score_text(one["plain"], False), estimate_text(one, "estimated", False)]
    return "\n".join(_aligned([head[: len(rows[0])], *rows]))


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Set the first column to the left and all others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))]
        ).rstrip()
        for row in rows
    ]


def column_sentences(columns: Mapping[str, Any]) -> list[str]:
    """Return what is remarkable about columns: one sentence a kind, with their names."""
    sentences = []
    for domain in ("source", "target"):
        names = [one["name"] for one in columns["constant"] if one["domain"] == domain]
        if names:
            sentences.append(f"Constant in the {domain} alone: {_listed(names)}.")
    sentences += [
        f"Categories of {one['name']!r} that the source lacks, in {one['rows']:,} rows: {_listed(one['values'])}."
        for one in columns["unseen"][:_SENTENCES]
    ]
    outside = [f"{one['name']} ({_share(one['share'])})" for one in columns["outside"]]
    if outside:
        sentences.append(f"Target rows outside of the source's range: {_listed(outside)}.")
    return sentences


def _listed(names: Sequence[str], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
