"""The page of a fit: what the model is, what shifted between the domains, and how far alignment brought them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from markupsafe import Markup

from momentalign.report.charts import BarGroup, bars, density_panel
from momentalign.report.page import (
    PAPER,
    Cell,
    Fact,
    Section,
    Sign,
    definitions,
    domains_key,
    figure,
    heading,
    key,
    percent,
    read_result,
    render_page,
    row,
    table,
    text,
    version_words,
)
from momentalign.report.svg import path

__all__ = ["fit_page"]

Result = Mapping[str, Any]

KEYS = (
    "verdict",
    "task",
    "interrupted",
    "plain_kept",
    "label",
    "source_rows",
    "target_rows",
    "features",
    "classes",
    "rows",
    "distance",
    "shifted",
    "shares",
    "values",
    "units",
    "evaluation",
    "bounds",
    "notes",
    "settings",
    "seconds",
    "versions",
)
NAMES = {"nn": "plain network", "mann": "adapted network"}
DRAWN, CONFUSED = 20, 12
NOTHING = Cell("\N{EN DASH}", math.nan)


class Measure(NamedTuple):
    """What predictions are worth: where a row holds it for source and target, and how it is written."""

    source: str
    target: str
    words: Callable[[float | None], str]
    fact: tuple[str, str]
    columns: tuple[str, str]
    explanation: str
    scored: bool


ACCURACY = Measure(
    "source_accuracy",
    "target_accuracy",
    lambda part: percent(part or 0.0),
    ("of", " right"),
    ("Source validation", "Target accuracy"),
    "The nuclear norm of the predictions for the target, 1 where they are sure and use every class evenly, needs no "
    "label.",
    scored=True,
)
EXPLAINED = Measure(
    "source_r2",
    "target_r2",
    lambda part: "\N{EN DASH}" if part is None else f"{part:.3f}",
    ("R² on", ""),
    ("Source validation R²", "Target R²"),
    "R² is the part of the variance of the values that is explained.",
    scored=False,
)
DISTANCE = (
    "The distance is the CMD between the hidden activations of the domains, before in the plain network and after in "
    "the adapted one."
)
KINDS = (
    "Measured is what these rows show; a bound holds for what its words name; a heuristic rests on an assumption that "
    "may fail; unknown is what needs target labels."
)
UNCHOSEN = (
    "Numbers have no label-free score here that could choose among the weights: the adapted network nearest to the "
    "paper's default, weight 1, predicts."
)


def fit_page(result: Result) -> str:
    """Return the page of one summary of :func:`momentalign.workflow.fit.fit_files`."""
    read_result(result, "fit", KEYS)
    sections = [
        Section("Networks", _networks(result)),
        Section("On the target", _evaluation(result)),
        Section("What can be said about the target error", _bounds(result)),
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
    model, distance = result["rows"][-1], result["distance"]
    after = f"{sum(distance['after']):.2f}"
    apart = after if distance["before"] is None else _arrow(f"{sum(distance['before']):.2f}", after)
    measure = _measure(result)
    facts = [
        Fact(measure.words(model[measure.source]), f"{measure.fact[0]} held-out source rows{measure.fact[1]}"),
        Fact(apart, "central moment discrepancy", f"{distance['by_chance']:.2f} by chance alone"),
    ]
    if measure.scored:
        facts.append(Fact(f"{model['score']:.3f}", "nuclear norm on the target", "1 sure and even, no label needed"))
    if result["evaluation"] is not None:
        words = f"{measure.fact[0]} labelled target rows{measure.fact[1]}"
        facts.insert(1, Fact(measure.words(model[measure.target]), words, "evaluation only"))
    return facts


def _measure(result: Result) -> Measure:
    return EXPLAINED if result["task"] == "regression" else ACCURACY


def _networks(result: Result) -> list[Markup]:
    """Return the table of all networks and of what predicts."""
    words = ["Held-out source rows show what alignment costs.", _measure(result).explanation, DISTANCE]
    if result["task"] == "regression":
        if any(entry["weight"] for entry in result["rows"]):
            words.append(UNCHOSEN)
    elif result["plain_kept"]:
        words.append("By that score the plain network is better than the adapted ones, so it is what predicts.")
    elif result["rows"][-1]["networks"] > 1:
        words.append(
            "The adapted networks are combined by least squares on source rows that count as much as they look like "
            "the target; the last row is what predicts."
        )
    if result["settings"]["trained_again"]:
        words.append("What predicts was then trained again on all rows.")
    *rows, last = [_cells(result, entry) for entry in result["rows"]]
    return [text(" ".join(words)), table("Every network", _columns(result), rows, footer=last)]


def _columns(result: Result) -> list[str]:
    measure = _measure(result)
    source, target = measure.columns
    columns = ["Method", source, *(["Label-free score"] if measure.scored else []), "Distance before", "Distance after"]
    return columns if result["evaluation"] is None else [*columns, target]


def _cells(result: Result, entry: Mapping[str, Any]) -> list[Cell]:
    measure = _measure(result)
    cells = [
        Cell(entry["name"]),
        _cell(entry[measure.source], share=measure.scored),
        *([_cell(entry["score"])] if measure.scored else []),
        _cell(entry["distance_before"]),
        _cell(entry["distance_after"]),
    ]
    return cells if result["evaluation"] is None else [*cells, _cell(entry[measure.target], share=measure.scored)]


def _cell(value: float | None, *, share: bool = False) -> Cell:
    if value is None:
        return NOTHING
    return Cell(percent(value) if share else f"{value:.3f}", float(f"{value:.5g}"))


def _evaluation(result: Result) -> list[Markup]:
    """Return the confusion matrix, or the error of numbers, where target labels were given."""
    found = result["evaluation"]
    if found is None:
        return []
    if result["task"] == "regression":
        words = (
            f"Target labels were used for evaluation only: R² is {EXPLAINED.words(found['r2'])} over {found['rows']:,} "
            f"rows with a label in {found['label']!r}, the root of the mean squared error {found['error']:.4g}."
        )
        return [text(words)]
    words = (
        f"Target labels were used for evaluation only: {percent(found['accuracy'])} of {found['rows']:,} rows with a "
        f"label in {found['label']!r} are predicted right."
    )
    parts = [text(words)]
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


def _bounds(result: Result) -> list[Markup]:
    """Return the parts of Theorem 1 and what else is known, each with its kind."""
    found = result["bounds"]
    if found is None:
        return []
    words = [
        f"{found['conclusion']} Bounds of this kind are usually larger than 1, and then say nothing.",
        "All values are of networks that were not trained on the held-out source rows taken here; but those rows chose "
        "the epoch, and the target rows, a sample where there are many, were trained on.",
    ]
    if result["evaluation"] is not None:
        error = 1.0 - result["evaluation"]["accuracy"]
        words.append(f"The target labels, which none of it has seen, say {error:.3f} for the model.")
    named = Markup("<b>{}</b><br>{}")
    rows = [
        [Cell(named.format(one["name"], one["words"])), _cell(one["value"]), Cell(one["kind"])] for one in found["rows"]
    ]
    return [
        text(" ".join(words)),
        text(KINDS),
        table("Parts of Theorem 1, and more", ["Quantity", "Value", "Kind"], rows),
    ]


def _orders(result: Result) -> list[Markup]:
    """Return the terms of the distance before and after."""
    before, after = result["distance"]["before"], result["distance"]["after"]
    if before is None or before == after:
        return []
    names = ["1, mean", "2, variance", *(str(order) for order in range(3, len(after) + 1))]
    title = "Terms of the central moment discrepancy by order: " + "; ".join(
        f"order {name}: {a:.4f} before, {b:.4f} after" for name, a, b in zip(names, before, after, strict=True)
    )
    signs = [Sign(path("M2 2h20v10h-20z", f"ma-bar ma-{name}"), words) for name, words in NAMES.items()]
    words = "The difference of the means of the hidden activations first, then of central moments about each mean."
    caption = f"Sum {sum(before):.3f} before, {sum(after):.3f} after"
    groups = [BarGroup(name, pair) for name, *pair in zip(names, before, after, strict=True)]
    picture = bars(groups, css=("ma-nn", "ma-mann"), title=title)
    return [text(words), key(signs), figure(picture, caption, narrow=True)]


def _shifted(result: Result) -> list[Markup]:
    """Return the features whose means shifted most."""
    shifted = result["shifted"]
    words = (
        "Target mean minus source mean in deviations, after the same preprocessing of both domains; "
        f"the {len(shifted)} largest of {result['features']:,} features."
    )
    title = "Standardised mean shifts: " + ", ".join(f"{one['name']} {one['mean_shift']:+.2f}" for one in shifted[:5])
    rows = [
        [Cell(one["name"]), Cell(f"{one['mean_shift']:+.2f}", float(f"{one['mean_shift']:.5g}")), _cell(_ratio(one))]
        for one in shifted
    ]
    columns = ["Feature", "Mean shift", "Deviation ratio"]
    groups = [BarGroup(one["name"], [one["mean_shift"]]) for one in shifted]
    picture = bars(groups, css=["ma-target"], title=title, write="{:+.2f}".format)
    return [text(words), row([figure(picture), table("Most shifted features", columns, rows)], least="20rem")]


def _ratio(feature: Mapping[str, Any]) -> float | None:
    """The deviation in the target over that in the source, if it has any."""
    source, target = feature["source_deviation"], feature["target_deviation"]
    return float(target / source) if source else None


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
        "The numbers of the source and those predicted for the target. Alignment is meant for domains whose values are "
        "distributed alike; where the target has larger or smaller ones, part of that difference is aligned away."
    )
    names = {"source": "source", "target": "target, predicted", "plain": "target, by the plain network"}
    parts = ("mean", "deviation", "smallest", "largest")
    rows = [
        [Cell(name), *(_number(values[domain][part]) for part in parts)]
        for domain, name in names.items()
        if values[domain] is not None
    ]
    return [text(words), table("Values", ["Domain", *(part.capitalize() for part in parts)], rows)]


def _number(value: float) -> Cell:
    """A number of any size."""
    return Cell(f"{value:.4g}", float(f"{value:.5g}"))


def _units(result: Result) -> list[Markup]:
    """Return the densities of the units whose means differ most, in each network."""
    if not result["units"]:
        return []
    parts = [
        text("How strongly the units whose means differ most answer to source and to target rows."),
        domains_key(),
    ]
    for name, words in NAMES.items():
        panels = [_unit(one, words) for one in result["units"] if one["network"] == name]
        if panels:
            parts += [heading(f"Most different units of the {words}"), row(panels, least="9.5rem", css="plain")]
    return parts


def _unit(unit: Mapping[str, Any], words: str) -> Markup:
    note = f"gap {unit['gap']:.2f}"
    title = f"Activation densities of hidden unit {unit['unit']} of the {words} on source and target: {note}"
    return figure(density_panel(unit["source"], unit["target"], heading=f"Unit {unit['unit']}", note=note, title=title))


def _making(result: Result) -> list[Markup]:
    """Return data, settings and versions."""
    settings, last = result["settings"], "a linear unit" if result["task"] == "regression" else "softmax"
    pairs: list[tuple[str, str | Markup]] = [
        ("Source", _data(result, "source", "labelled")),
        ("Target", _data(result, "target", "unlabelled" if result["evaluation"] is None else "labels set apart")),
        ("Features", f"{result['features']:,}"),
        (
            "Networks",
            f"{settings['hidden']} sigmoid hidden units, {last} on top, {settings['optimizer']} with rate "
            f"{settings['learning_rate']:g}, batches of {settings['batch_size']}, at most {settings['max_epochs']:,} "
            f"epochs, {settings['seeds']} of each weight",
        ),
        ("Method", settings["method"]),
        ("Device", settings["device"]),
        ("Time", f"{result['seconds']:.1f} seconds"),
        *(("Note", note) for note in result["notes"]),
        ("Versions", version_words(result["versions"])),
        ("Paper", PAPER),
    ]
    return [definitions(pairs)]


def _data(result: Result, domain: str, state: str) -> str:
    rows = f"{result[f'{domain}_rows']:,} rows, {state}"
    return f"{result[domain]}: {rows}" if domain in result else rows


def _arrow(before: str, after: str) -> str:
    """Write a change in one unbroken piece."""
    return f"{before}\N{NO-BREAK SPACE}→\N{NO-BREAK SPACE}{after}"
