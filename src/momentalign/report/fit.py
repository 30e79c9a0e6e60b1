"""The page of a fit: what shifted between the domains, what the model predicts, and how it was made."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from momentalign.report.charts import BarGroup, bars, density_panel
from momentalign.report.page import (
    PAPER,
    Cell,
    Fact,
    Section,
    Sign,
    check_result,
    definitions,
    domains_key,
    figure,
    key,
    percent,
    render_page,
    row,
    table,
    text,
    versions_text,
)
from momentalign.report.svg import path

__all__ = ["KEYS", "fit_page"]

Result = Mapping[str, Any]

KEYS = (
    "verdict", "task", "label", "source_rows", "target_rows", "features", "classes", "portfolio", "estimate",
    "source_score", "distance", "shifted", "shares", "values", "units", "evaluation", "notes", "method", "settings",
    "versions",
)  # fmt: skip
# At most so many classes are drawn, and shown in a confusion matrix.
DRAWN, CONFUSED = 20, 12


def fit_page(result: Result) -> str:
    """Return the page of what a fit found, the summary of a model of :func:`momentalign.workflow.fit.fit`."""
    check_result(result, "fit", KEYS)
    sections = [
        Section("On the target", _evaluation(result)),
        Section("Models", _portfolio(result)),
        Section("Distance, order by order", _orders(result)),
        Section("What shifted", _shifted(result)),
        Section("Predicted classes", _shares(result)),
        Section("Predicted values", _values(result)),
        Section("Hidden units", _units(result)),
        Section("How this was made", _making(result)),
    ]
    shown = [section for section in sections if section.parts]
    return render_page(f"A model for {result['label']!r}", result["verdict"], shown, numbers=_numbers(result))


def _numbers(result: Result) -> list[Fact]:
    """Return the numbers to remember."""
    regression, found, distance = result["task"] == "regression", result["evaluation"], result["distance"]
    estimate, facts = result["estimate"], []
    if estimate is not None:
        value, low, high = (_score(estimate[part], regression) for part in ("value", "low", "high"))
        of = "R² expected on the target" if regression else "of target rows expected to be right"
        facts.append(Fact(value, of, f"90 % interval: {low} to {high}"))
    if result["source_score"] is not None:
        of = "R² on held-out source rows" if regression else "of held-out source rows right"
        facts.append(Fact(_score(result["source_score"], regression), of))
    if found is not None:
        of = "R² on labelled target rows" if regression else "of labelled target rows right"
        facts.append(Fact(_score(found["r2" if regression else "accuracy"], regression), of, "evaluation only"))
    if distance is not None:
        chance = f"{distance['by_chance']:.2f} by chance alone"
        facts.append(Fact(f"{sum(distance['terms']):.2f}", "central moment discrepancy", chance))
    return facts


def _score(value: float | None, regression: bool) -> str:
    """An R², or an accuracy in percent; a dash for one that is not known."""
    if value is None:
        return "\N{EN DASH}"
    return f"{value:.3f}" if regression else percent(value)


def _portfolio(result: Result) -> list[Markup]:
    """Return the candidates of a portfolio with what is known of each."""
    name = "R²" if result["task"] == "regression" else "accuracy"
    rows = [
        [
            Cell(one["name"]),
            *(_share(one[part]) for part in ("source_score", "estimated_target_score", "weight")),
        ]
        for one in result["portfolio"]
    ]
    explanation = "Every candidate was trained on the same rows; the answer is their average with these weights."
    columns = ["Model", f"Held-out source {name}", f"Expected target {name}", "Weight"]
    return [text(explanation), table("Candidates", columns, rows)] if rows else []


def _share(value: float | None) -> Cell:
    return Cell("\N{EN DASH}", math.nan) if value is None else Cell(f"{value:.3f}", float(f"{value:.5g}"))


def _evaluation(result: Result) -> list[Markup]:
    """Return the confusion matrix, or the error of numbers, where target labels were given."""
    found = result["evaluation"]
    if found is None:
        return []
    if result["task"] == "regression":
        return [
            text(
                f"Target labels were used for evaluation only: R² is {_score(found['r2'], True)} over "
                f"{found['rows']:,} rows with a label in {found['label']!r}, the root of the mean squared error "
                f"{found['error']:.4g}."
            )
        ]
    parts = [
        text(
            f"Target labels were used for evaluation only: {percent(found['accuracy'])} of {found['rows']:,} rows with "
            f"a label in {found['label']!r} are predicted right."
        )
    ]
    if found["unseen"]:
        parts.append(text(f"The source has no row of {', '.join(found['unseen'])}; no model could predict them."))
    if len(result["classes"]) <= CONFUSED:
        parts.append(_confusion(result["classes"], found))
    return parts


def _confusion(classes: Sequence[str], found: Mapping[str, Any]) -> Markup:
    names = [*classes, *(["not in the source"] if found["unseen"] else [])]
    rows = [
        [Cell(name), *(Cell(f"{count:,}", count) for count in counts)]
        for name, counts in zip(names, found["confusion"], strict=True)
    ]
    columns = ["True class", *(f"predicted {name}" for name in classes)]
    return table("Target rows by true and predicted class", columns, rows)


def _orders(result: Result) -> list[Markup]:
    """Return the terms of the distance, where the model has hidden activations."""
    if result["distance"] is None:
        return []
    terms = result["distance"]["terms"]
    names = ["1, mean", "2, variance", *(str(order) for order in range(3, len(terms) + 1))]
    explanation = (
        "The CMD of the hidden activations of both domains: the difference of their means, then of central moments "
        f"about each mean. Their sum is {sum(terms):.3f}; {result['distance']['by_chance']:.3f} is what two samples of "
        "one domain have by chance."
    )
    rows = [[Cell(name), _number(term)] for name, term in zip(names, terms, strict=True)]
    return [text(explanation), table("Terms of the central moment discrepancy", ["Order", "Distance"], rows)]


def _shifted(result: Result) -> list[Markup]:
    """Return the features whose means shifted most."""
    shifted = result["shifted"]
    words = (
        "Target mean minus source mean in standard deviations, after the same preprocessing of both domains; "
        f"the {len(shifted)} largest of {result['features']:,} features."
    )
    title = "Standardised mean shifts: " + ", ".join(f"{one['name']} {one['mean_shift']:+.2f}" for one in shifted[:5])
    rows = [
        [Cell(one["name"]), Cell(f"{one['mean_shift']:+.2f}", float(f"{one['mean_shift']:.5g}")), _ratio(one)]
        for one in shifted
    ]
    columns = ["Feature", "Mean shift", "Deviation ratio"]
    groups = [BarGroup(one["name"], [one["mean_shift"]]) for one in shifted]
    picture = bars(groups, css=["ma-target"], title=title, write="{:+.2f}".format)
    return [text(words), row([figure(picture), table("Most shifted features", columns, rows)], least="20rem")]


def _ratio(feature: Mapping[str, Any]) -> Cell:
    """The standard deviation in the target over that in the source, if it has any."""
    if not feature["source_deviation"]:
        return Cell("\N{EN DASH}", math.nan)
    return _number(feature["target_deviation"] / feature["source_deviation"])


def _shares(result: Result) -> list[Markup]:
    """Return the share of each class in the source and among the predictions."""
    shares = result["shares"]
    if not shares:
        return []
    words = (
        "Shares of the classes among the labels of the source and among the predictions for the target. They differ "
        "where the target has other shares, or where the model is wrong."
    )
    columns = ["Class", "Share in source", "predicted in target"]
    rows = [
        [Cell(one["class"]), *(Cell(percent(one[name]), float(f"{one[name]:.5g}")) for name in ("source", "target"))]
        for one in shares
    ]
    listed = table("Classes", columns, rows, tall=True)
    if len(shares) > DRAWN:
        return [text(words), listed]
    title = "Shares of classes: " + "; ".join(
        f"{one['class']} {percent(one['source'])} in the source, {percent(one['target'])} predicted" for one in shares
    )
    groups = [BarGroup(one["class"], [one["source"], one["target"]]) for one in shares]
    picture = bars(groups, css=("ma-source", "ma-target"), title=title, write=percent)
    signs = [
        Sign(path("M2 2h20v10h-20z", "ma-bar ma-source"), "source"),
        Sign(path("M2 2h20v10h-20z", "ma-bar ma-target"), "target, predicted"),
    ]
    return [text(words), key(signs), row([figure(picture), listed], least="20rem")]


def _values(result: Result) -> list[Markup]:
    """Return mean, deviation and range of the source's numbers and of the predicted ones."""
    values = result["values"]
    if values is None:
        return []
    words = (
        "The values of the source and those predicted for the target. A distance aligns domains whose values are "
        "distributed alike; where the target has larger or smaller ones, part of that difference is aligned away."
    )
    parts = {"mean": "Mean", "deviation": "Standard deviation", "smallest": "Smallest", "largest": "Largest"}
    rows = [
        [Cell(name), *(_number(values[domain][part]) for part in parts)]
        for domain, name in (("source", "source"), ("target", "target, predicted"))
    ]
    return [text(words), table("Values", ["Domain", *parts.values()], rows)]


def _number(value: float) -> Cell:
    """A number of any size."""
    return Cell(f"{value:.4g}", float(f"{value:.5g}"))


def _units(result: Result) -> list[Markup]:
    """Return the densities of the units whose means differ most."""
    panels = []
    for unit in result["units"]:
        note = f"gap {unit['gap']:.2f}"
        title = f"Activation densities of hidden unit {unit['unit']} on source and target: {note}"
        name = f"Unit {unit['unit']}"
        panels.append(figure(density_panel(unit["source"], unit["target"], heading=name, note=note, title=title)))
    if not panels:
        return []
    return [
        text("How strongly the units whose means differ most answer to source and to target rows."),
        domains_key(),
        row(panels, least="9.5rem", css="plain"),
    ]


def _making(result: Result) -> list[Markup]:
    """Return data, settings and versions."""
    settings, networks = result["settings"], []
    if settings:
        last = "a linear unit" if result["task"] == "regression" else "softmax"
        networks = [
            (
                "Networks",
                f"{settings['hidden'][0]} sigmoid hidden units, {last} on top, {settings['optimizer']} with rate "
                f"{settings['learning_rate']:g}, batches of {settings['batch_size']}, at most "
                f"{settings['max_epochs']:,} epochs, weight {settings['weight']}",
            ),
            ("Device", settings["device"]),
        ]
    pairs: list[tuple[str, str | Markup]] = [
        ("Source", _data(result, "source", "labelled")),
        ("Target", _data(result, "target", "unlabelled" if result["evaluation"] is None else "labels set apart")),
        ("Features", f"{result['features']:,}"),
        ("Method", result["method"]),
        *networks,
        *((("Time", f"{result['seconds']:.1f} seconds"),) if "seconds" in result else ()),
        *(("Note", note) for note in result["notes"]),
        ("Versions", versions_text(result["versions"])),
        ("Paper", PAPER),
    ]
    return [definitions(pairs)]


def _data(result: Result, domain: str, state: str) -> str:
    rows = f"{result[f'{domain}_rows']:,} rows, {state}"
    return f"{result[domain]}: {rows}" if domain in result else rows
