"""The page of a fit: how good the model is expected to be, what shifted, which rows are risky, and how it was made.

The text of the page stands in ``templates/fit.html``, one macro for each section.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

from jinja2 import UndefinedError
from markupsafe import Markup

from momentalign.report.page import (
    PAPER,
    Axis,
    Cell,
    Columns,
    Section,
    Track,
    check_result,
    figure,
    macro,
    number_cell,
    percent,
    records_table,
    render_page,
    table,
    versions_text,
)
from momentalign.report.sentences import (
    answer_sentence,
    beware_sentences,
    column_sentences,
    estimate_text,
    positive_text,
    reason_sentences,
)
from momentalign.report.svg import density_panel

__all__ = ["KEYS", "fit_page"]

Result = Mapping[str, Any]

KEYS = (
    "decision", "task", "label", "source_rows", "target_rows", "features", "classes", "estimate", "gain", "baselines",
    "source_score", "threshold", "evaluation", "shares", "shares_doubt", "values", "columns", "shifted", "risk",
    "portfolio", "distance", "units", "bounds", "notes", "method", "settings", "versions",
)  # fmt: skip
# At most so many classes are shown in a confusion matrix; an R² is drawn down to the second figure.
CONFUSED, WORST = 12, -1.0


def fit_page(result: Result) -> str:
    """Return the page of what a fit found, the summary of a model of :func:`momentalign.workflow.fit.fit`."""
    check_result(result, "fit", KEYS)
    sections = [
        Section("How good on the target", _expectation(result)),
        Section("Compared with target labels", _evaluation(result)),
        Section("Shares of the classes", _shares(result)),
        Section("Predicted values", _values(result)),
        Section("What shifted", _shifted(result)),
        Section("Risky rows", _risk(result)),
        Section("All candidates", _candidates(result), folded=True),
        Section("Distance, order by order", _orders(result), folded=True),
        Section("Hidden units", _units(result), folded=True),
        Section("Bounds of the theory", _bounds(result), folded=True),
        Section("How this was made", _making(result), folded=True),
    ]
    return render_page(
        f"A model for {result['label']!r}",
        answer_sentence(result),
        [section for section in sections if section.parts],
        reason=reason_sentences(result),
        warnings=beware_sentences(result),
    )


def _part(name: str, result: Result, **values: Any) -> list[Markup]:
    """Return a section: its macro, which sees the whole result, with the tables and figures made here."""
    try:
        return [macro(name, "fit.html")(result, **values)]
    except UndefinedError as error:
        raise KeyError(str(error)) from error


def _is_regression(result: Result) -> bool:
    return bool(result["task"] == "regression")


def _metric(result: Result) -> str:
    return "R²" if _is_regression(result) else "accuracy"


def _expectation(result: Result) -> list[Markup]:
    """Return the estimate with its interval beside what one would have used otherwise."""
    if result["estimate"] is None and result["source_score"] is None:
        return []
    regression, own = _is_regression(result), result["baselines"][-1]
    written = (lambda value: f"{value:.3f}") if regression else percent

    def drawn(one: Result) -> Cell:
        bars = [] if one["target"] is None else [(one["target"], "ma-mann" if one is own else "ma-nn")]
        ends = None if one["low"] is None else (one["low"], one["high"])
        return Cell("", track=Track(bars, ends, [(one["source"], "source"), (one["known"], "target")]))

    def expected(one: Result) -> Cell:
        return number_cell(one["target"], lambda _: estimate_text(one, "target", regression))

    columns: Columns = {
        "Model": itemgetter("name"),
        _axis(
            result, [value for one in result["baselines"] for value in (one["low"], one["target"], one["source"])]
        ): drawn,
    }
    if any(one["target"] is not None for one in result["baselines"]):
        columns["Expected on target"] = expected
    columns |= {
        "Held-out source": lambda one: number_cell(one["source"], written),
    }
    if result["evaluation"] is not None:
        columns["Labelled target"] = lambda one: number_cell(one["known"], written)
    listed = records_table(f"Models and their {_metric(result)}", result["baselines"], columns)
    in_step = any(one["target"] is not None for one in result["baselines"][1:-1])
    return _part("expectation", result, metric=_metric(result), in_step=in_step, table=listed)


def _axis(result: Result, values: Sequence[float | None]) -> Axis:
    """Return the axis of an accuracy, or of an R² from its lowest value on."""
    if not _is_regression(result):
        return Axis("Accuracy", 0.0, 1.0, partial(percent, digits=0))
    return Axis("R²", max(WORST, min(0.0, *(value for value in values if value is not None))), 1.0, "{:g}".format)


def _evaluation(result: Result) -> list[Markup]:
    """Return the confusion matrix, or the error of values, where target labels were given."""
    found = result["evaluation"]
    if found is None:
        return []
    if _is_regression(result):
        return _part("evaluation_of_values", result, found=found)
    confusion = Markup()
    if len(result["classes"]) <= CONFUSED:
        names = [*result["classes"], *(["not in the source"] if found["unseen"] else [])]
        rows = [
            [Cell(name), *(number_cell(count, "{:,}".format) for count in counts)]
            for name, counts in zip(names, found["confusion"], strict=True)
        ]
        columns = ["True class", *(f"predicted {name}" for name in result["classes"])]
        confusion = table("Target rows by true and predicted class", columns, rows)
    positive = "" if found["positive"] is None else positive_text(found["positive"])
    return _part("evaluation", result, found=found, positive=positive, table=confusion)


def _shares(result: Result) -> list[Markup]:
    """Return the shares of each class: in the source, predicted, and estimated with an interval."""
    shares = result["shares"]
    if not shares:
        return []
    estimated = shares[0]["estimated"] is not None
    parts = ("source", "target", "plain", "high") if estimated else ("source", "target")
    most = max(one[part] for one in shares for part in parts)

    def drawn(one: Result) -> Cell:
        marks = [(one["source"], "source"), (one["target"], "target")]
        if not estimated:
            return Cell("", track=Track(marks=marks))
        return Cell("", track=Track([(one["estimated"], "ma-nn")], (one["low"], one["high"]), marks))

    def share(one: Result, part: str) -> Cell:
        return number_cell(one[part], percent)

    columns: Columns = {
        "Class": itemgetter("class"),
        Axis("Share", 0.0, max(most, 1e-3), partial(percent, digits=int(most < 0.05))): drawn,
    }
    if estimated:
        columns["Estimated"] = lambda one: number_cell(
            one["estimated"], lambda _: estimate_text(one, "estimated", regression=False)
        )
    columns |= {"Source": partial(share, part="source"), "Predicted": partial(share, part="target")}
    if estimated:
        columns["By plain models"] = partial(share, part="plain")
    return _part("shares", result, estimated=estimated, table=records_table("Classes", shares, columns, tall=True))


def _values(result: Result) -> list[Markup]:
    """Return mean, standard deviation and range of the source's values and of the predicted ones."""
    if result["values"] is None:
        return []
    names = {"mean": "Mean", "deviation": "Standard deviation", "smallest": "Smallest", "largest": "Largest"}
    domains = {"source": "source", "target": "target, predicted"}
    rows = [
        [Cell(name), *(number_cell(result["values"][domain][part]) for part in names)]
        for domain, name in domains.items()
    ]
    return _part("values", result, table=table("Values", ["Domain", *names.values()], rows))


def _shifted(result: Result) -> list[Markup]:
    """Return the columns to look at, and the features whose means shifted most."""
    shifts = [one["mean_shift"] for one in result["shifted"]]
    low, high = min([0.0, *shifts]), max([0.0, *shifts])
    columns: Columns = {
        "Feature": itemgetter("name"),
        Axis("Mean shift", low, high if high > low else 1.0, "{:g}".format): lambda one: Cell(
            "", track=Track([(one["mean_shift"], "ma-target")])
        ),
        "Mean shift": lambda one: number_cell(one["mean_shift"], "{:+.2f}".format),
        "Spread ratio": lambda one: number_cell(
            one["target_deviation"] / one["source_deviation"] if one["source_deviation"] else None, "{:.2f}".format
        ),
    }
    listed = records_table("Most shifted features", result["shifted"], columns, tall=True)
    return _part("shifted", result, flagged=column_sentences(result["columns"]), table=listed)


def _risk(result: Result) -> list[Markup]:
    """Return what the flagged rows are like beside the others."""
    flagged, others = result["risk"]
    shares = {"confidence": "Confidence", "agreement": "Agreement of candidates"}
    known = "Error on labelled rows" if _is_regression(result) else "Accuracy on labelled rows"
    names = {**shares, "spread": "Spread of candidates", "distance": "Distance to the source", "known": known}
    of_share = {*shares, *([] if _is_regression(result) else ["known"])}
    columns: Columns = {
        "Rows": lambda one: "flagged" if one["risky"] else "others",
        "Number": lambda one: number_cell(one["rows"], "{:,}".format),
    }
    for part in names:
        if others.get(part) is not None:
            write = percent if part in of_share else "{:.4g}".format
            columns[names[part]] = partial(_mean, part=part, write=write)
    return _part("risk", result, table=records_table("Means of the rows", [flagged, others], columns))


def _mean(group: Result, part: str, write: Any) -> Cell:
    return number_cell(group[part], write)


def _candidates(result: Result) -> list[Markup]:
    """Return the candidates of a portfolio with what is known of each."""
    if not result["portfolio"]:
        return []
    parts = {
        f"Held-out source {_metric(result)}": "source_score",
        f"Target {_metric(result)}, were the answer right": "estimated_target_score",
        "Weight": "weight",
    }
    columns: Columns = {"Model": itemgetter("name")}
    columns |= {name: partial(_mean, part=part, write="{:.3f}".format) for name, part in parts.items()}
    listed = records_table("Candidates", result["portfolio"], columns)
    return _part("candidates", result, table=listed)


def _orders(result: Result) -> list[Markup]:
    """Return the terms of the distance, where the model has hidden activations."""
    if result["distance"] is None:
        return []
    terms = result["distance"]["terms"]
    names = ["1, mean", "2, variance", *(str(order) for order in range(3, len(terms) + 1))]
    rows = [[Cell(name), number_cell(term)] for name, term in zip(names, terms, strict=True)]
    return _part("orders", result, table=table("Terms of the central moment discrepancy", ["Order", "Distance"], rows))


def _units(result: Result) -> list[Markup]:
    """Return the densities of the units whose means differ most."""
    panels = []
    for unit in result["units"]:
        note = f"gap {unit['gap']:.2f}"
        title = f"Activation densities of hidden unit {unit['unit']} on source and target: {note}"
        name = f"Unit {unit['unit']}"
        panels.append(figure(density_panel(unit["source"], unit["target"], heading=name, note=note, title=title)))
    return _part("units", result, panels=panels) if panels else []


def _bounds(result: Result) -> list[Markup]:
    """Return what the paper's theorem says, which is rarely much."""
    if result["bounds"] is None:
        return []
    columns: Columns = {
        "Part": itemgetter("name"),
        "Symbol": itemgetter("symbol"),
        "Value": lambda one: number_cell(one["value"]),
        "Kind": itemgetter("kind"),
    }
    return _part("bounds", result, table=records_table("Parts of the bound", result["bounds"]["rows"], columns))


def _making(result: Result) -> list[Markup]:
    """Return data, settings and versions."""
    return _part("making", result, versions=versions_text(result["versions"]), paper=PAPER)
