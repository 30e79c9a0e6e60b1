"""The page of a fit: how good the model is expected to be, what shifted, which rows are risky, and how it was made.

The text of the page stands in ``templates/fit.html``, one macro for each section.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
    number_of,
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
    regression, models = _is_regression(result), result["baselines"]
    written = "{:.3f}".format if regression else percent

    def drawn(one: Result) -> Cell:
        bars = [] if one["target"] is None else [(one["target"], "ma-mann" if one is models[-1] else "ma-nn")]
        ends = None if one["low"] is None else (one["low"], one["high"])
        return Cell("", track=Track(bars, ends, [(one["source"], "source"), (one["known"], "target")]))

    columns: Columns = {"Model": itemgetter("name"), _axis(result): drawn}
    if any(one["target"] is not None for one in models):
        columns["Expected on target"] = partial(_estimate, part="target", regression=regression)
    columns["Held-out source"] = number_of("source", written)
    if result["evaluation"] is not None:
        columns["Labelled target"] = number_of("known", written)
    return _part(
        "expectation",
        result,
        metric=_metric(result),
        in_step=any(one["target"] is not None for one in models[1:-1]),
        table=records_table(f"Models and their {_metric(result)}", models, columns),
    )


def _axis(result: Result) -> Axis:
    """Return the axis of an accuracy, or of an R² from its lowest value on."""
    if not _is_regression(result):
        return Axis("Accuracy", 0.0, 1.0, partial(percent, digits=0))
    values = [one[part] for one in result["baselines"] for part in ("low", "target", "source", "known")]
    lowest = min(value for value in (0.0, *values) if value is not None)
    return Axis("R²", max(WORST, lowest), 1.0, "{:g}".format)


def _estimate(one: Result, part: str, *, regression: bool) -> Cell:
    return number_cell(one[part], lambda _: estimate_text(one, part, regression))


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
        bars = [(one["estimated"], "ma-nn")] if estimated else []
        ends = (one["low"], one["high"]) if estimated else None
        return Cell("", track=Track(bars, ends, [(one["source"], "source"), (one["target"], "target")]))

    axis = Axis("Share", 0.0, max(most, 1e-3), partial(percent, digits=int(most < 0.05)))
    columns: Columns = {"Class": itemgetter("class"), axis: drawn}
    if estimated:
        columns["Estimated"] = partial(_estimate, part="estimated", regression=False)
    columns |= {"Source": number_of("source", percent), "Predicted": number_of("target", percent)}
    if estimated:
        columns["By plain models"] = number_of("plain", percent)
    return _part("shares", result, estimated=estimated, table=records_table("Classes", shares, columns, tall=True))


def _values(result: Result) -> list[Markup]:
    """Return mean, standard deviation and range of the source's values and of the predicted ones."""
    if result["values"] is None:
        return []
    names = {"source": "source", "target": "target, predicted"}
    parts = {"Mean": "mean", "Standard deviation": "deviation", "Smallest": "smallest", "Largest": "largest"}
    columns: Columns = {"Domain": itemgetter("name")}
    columns |= {name: number_of(part) for name, part in parts.items()}
    domains = [{"name": name, **result["values"][domain]} for domain, name in names.items()]
    return _part("values", result, table=records_table("Values", domains, columns))


def _shifted(result: Result) -> list[Markup]:
    """Return the columns to look at, and the features whose means shifted most."""
    shifts = [one["mean_shift"] for one in result["shifted"]]
    low, high = min([0.0, *shifts]), max([0.0, *shifts])

    def drawn(one: Result) -> Cell:
        return Cell("", track=Track([(one["mean_shift"], "ma-target")]))

    def spread(one: Result) -> Cell:
        source, target = one["source_deviation"], one["target_deviation"]
        return number_cell(target / source if source else None, "{:.2f}".format)

    columns: Columns = {
        "Feature": itemgetter("name"),
        Axis("Mean shift", low, high if high > low else 1.0, "{:g}".format): drawn,
        "Mean shift": number_of("mean_shift", "{:+.2f}".format),
        "Spread ratio": spread,
    }
    listed = records_table("Most shifted features", result["shifted"], columns, tall=True)
    return _part("shifted", result, flagged=column_sentences(result["columns"]), table=listed)


def _risk(result: Result) -> list[Markup]:
    """Return what the flagged rows are like beside the others."""
    regression = _is_regression(result)
    known = number_of("known") if regression else number_of("known", percent)
    measures: dict[str, tuple[str, Callable[[Result], Cell]]] = {
        "confidence": ("Confidence", number_of("confidence", percent)),
        "agreement": ("Agreement of candidates", number_of("agreement", percent)),
        "spread": ("Spread of candidates", number_of("spread")),
        "distance": ("Distance to the source", number_of("distance")),
        "known": ("Error on labelled rows" if regression else "Accuracy on labelled rows", known),
    }
    columns: Columns = {
        "Rows": lambda one: "flagged" if one["risky"] else "others",
        "Number": number_of("rows", "{:,}".format),
    }
    columns |= dict(made for part, made in measures.items() if result["risk"][1].get(part) is not None)
    return _part("risk", result, table=records_table("Means of the rows", result["risk"], columns))


def _candidates(result: Result) -> list[Markup]:
    """Return the candidates of a portfolio with what is known of each."""
    if not result["portfolio"]:
        return []
    columns: Columns = {
        "Model": itemgetter("name"),
        f"Held-out source {_metric(result)}": number_of("source_score", "{:.3f}".format),
        f"Target {_metric(result)}, were the answer right": number_of("estimated_target_score", "{:.3f}".format),
        "Weight": number_of("weight", "{:.3f}".format),
    }
    return _part("candidates", result, table=records_table("Candidates", result["portfolio"], columns))


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
        "Value": number_of("value"),
        "Kind": itemgetter("kind"),
    }
    return _part("bounds", result, table=records_table("Parts of the bound", result["bounds"]["rows"], columns))


def _making(result: Result) -> list[Markup]:
    """Return data, settings and versions."""
    return _part("making", result, versions=versions_text(result["versions"]), paper=PAPER)
