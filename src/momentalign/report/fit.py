"""The page of a fit: what shifted between the domains, what the model predicts, and how it was made."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

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
    heading,
    key,
    percent,
    render_page,
    row,
    table,
    text,
    versions_text,
)
from momentalign.report.sentences import beware_sentences, column_sentences, estimate_text, gain_text, positive_text
from momentalign.report.svg import (
    CIRCLE,
    DIAMOND,
    BarGroup,
    Interval,
    bars,
    density_panel,
    intervals,
    marks,
    path,
)

__all__ = ["KEYS", "fit_page"]

Result = Mapping[str, Any]

KEYS = (
    "decision", "task", "label", "source_rows", "target_rows", "features", "classes", "estimate", "gain", "baselines",
    "source_score", "threshold", "evaluation", "shares", "shares_doubt", "values", "columns", "shifted", "risk",
    "portfolio", "distance", "units", "bounds", "notes", "method", "settings", "versions",
)  # fmt: skip
# At most so many classes are drawn, and shown in a confusion matrix.
DRAWN, CONFUSED = 20, 12
# What is drawn beside a bar: the class of its ink and its stroke.
_SOURCE, _TARGET = ("ma-paper", CIRCLE), ("ma-bar ma-target ma-mark", DIAMOND)
_BAR, _ENDS = "M2 2h20v10h-20z", "M2 7h20M2 3v8M22 3v8"
# An R² is drawn down to here.
_WORST = -1.0


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
        Section("All candidates", _portfolio(result), folded=True),
        Section("Distance, order by order", _orders(result), folded=True),
        Section("Hidden units", _units(result), folded=True),
        Section("Bounds of the theory", _bounds(result), folded=True),
        Section("How this was made", _making(result), folded=True),
    ]
    shown = [section for section in sections if section.parts]
    title, warnings = f"A model for {result['label']!r}", beware_sentences(result)
    return render_page(title, result["decision"], shown, numbers=_numbers(result), warnings=warnings)


def _numbers(result: Result) -> list[Fact]:
    """Return the numbers to remember."""
    regression, found = result["task"] == "regression", result["evaluation"]
    estimate, gain, facts = result["estimate"], result["gain"], []
    name = "R²" if regression else "accuracy"
    if estimate is not None:
        value, _, ends = estimate_text(estimate, "value", regression).partition(" (")
        facts.append(Fact(value, f"expected {name} on the target", f"90 % interval: {ends.rstrip(')')}"))
    if gain is not None:
        value, _, ends = gain_text(gain, regression).partition(" (")
        facts.append(Fact(value, "expected difference to not adapting", f"90 % interval: {ends.rstrip(')')}"))
    if result["source_score"] is not None:
        facts.append(Fact(_score(result["source_score"], regression), f"{name} on held-out source rows"))
    if found is not None:
        known = found["r2" if regression else "accuracy"]
        facts.append(Fact(_score(known, regression), f"{name} on labelled target rows", "evaluation only"))
    return facts


def _score(value: float | None, regression: bool) -> str:
    """An R², or an accuracy in percent; a dash for one that is not known."""
    if value is None:
        return "\N{EN DASH}"
    return f"{value:.3f}" if regression else percent(value)


def _expectation(result: Result) -> list[Markup]:
    """Return the estimate with its interval beside what one would have used otherwise."""
    baselines, regression = result["baselines"], result["task"] == "regression"
    if result["estimate"] is None and result["source_score"] is None:
        return []
    name, known = "R²" if regression else "accuracy", result["evaluation"] is not None
    words = (
        f"The bar is the {name} to be expected on the target, estimated without a label of it, with its 90 % interval."
    )
    if any(one["target"] is not None for one in baselines[1:-1]):
        words += " Every plain model is expected to keep the same part of its held-out accuracy as their average."
    elif result["estimate"] is None:
        words = "Networks of a chosen method come without an estimate; the method auto makes one."
    else:
        words += " Of the others it is known how good they are on held-out source rows."
    drawn = [
        Interval(
            one["name"],
            one["target"],
            None if one["low"] is None else (max(one["low"], _WORST), one["high"]),
            [(value, *ink) for value, ink in ((one["source"], _SOURCE), (one["known"], _TARGET)) if value is not None],
            css="ma-mann" if one is baselines[-1] else "ma-nn",
        )
        for one in baselines
    ]
    title = f"Expected {name} on the target: " + "; ".join(_spoken(one, regression) for one in baselines)
    picture = intervals(drawn, title=title, write=(lambda at: f"{at:.1f}") if regression else (lambda at: f"{at:.0%}"))
    signs = [
        *([Sign(path(_BAR, "ma-bar ma-mann"), "expected on the target")] if result["estimate"] else []),
        *([Sign(path(_ENDS, "ma-whisker"), "90 % interval")] if result["estimate"] else []),
        Sign(marks([12], [7], CIRCLE, "ma-paper"), "held-out source rows"),
        *([Sign(marks([12], [7], DIAMOND, "ma-bar ma-target"), "labelled target rows")] if known else []),
    ]
    columns = ["Model", "Held-out source", "Expected on target", *(["Labelled target"] if known else [])]
    rows = []
    for one in baselines:
        expected = "\N{EN DASH}" if one["target"] is None else estimate_text(one, "target", regression)
        cells = [_scored(one["source"], regression), Cell(expected, _sorted(one["target"]))]
        rows.append([Cell(one["name"]), *cells, *([_scored(one["known"], regression)] if known else [])])
    return [
        text(words),
        key(signs),
        row([figure(picture), table(f"Models and their {name}", columns, rows)], least="20rem"),
    ]


def _spoken(one: Mapping[str, Any], regression: bool) -> str:
    expected = "not estimated" if one["target"] is None else estimate_text(one, "target", regression)
    return f"{one['name']} {expected}"


def _scored(value: float | None, regression: bool) -> Cell:
    return Cell(_score(value, regression), _sorted(value))


def _sorted(value: float | None) -> float:
    return math.nan if value is None else float(f"{value:.5g}")


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
    columns = ["Model", f"Held-out source {name}", f"Target {name}, were the answer right", "Weight"]
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
    if found["positive"] is not None:
        parts.append(text(f"As accuracy hides what becomes of a rare class: {positive_text(found['positive'])}."))
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
    flagged = [text(sentence) for sentence in column_sentences(result["columns"])]
    if flagged:
        flagged = [heading("Columns to look at"), *flagged, heading("Shifts of the means")]
    listed = table("Most shifted features", columns, rows, tall=True)
    return [*flagged, text(words), row([figure(picture), listed], least="20rem")]


def _ratio(feature: Mapping[str, Any]) -> Cell:
    """The standard deviation in the target over that in the source, if it has any."""
    if not feature["source_deviation"]:
        return Cell("\N{EN DASH}", math.nan)
    return _number(feature["target_deviation"] / feature["source_deviation"])


def _shares(result: Result) -> list[Markup]:
    """Return the shares of each class: in the source, predicted, and estimated with an interval."""
    shares, doubt = result["shares"], result["shares_doubt"]
    if not shares:
        return []
    estimated = shares[0]["estimated"] is not None
    words = ["Shares of the classes among the labels of the source and among the predictions for the target."]
    if estimated:
        words.append(
            "The bar is the share in the target estimated from what plain models predict, as if only shares had "
            "changed, with its 90 % interval."
        )
    if doubt is not None:
        words.append(f"It is uncertain: {doubt}.")
    columns = ["Class", "Source", "Predicted", *(["Plain models", "Estimated"] if estimated else [])]
    parts = ("source", "target", "plain") if estimated else ("source", "target")
    rows = [
        [
            Cell(one["class"]),
            *(Cell(percent(one[part]), _sorted(one[part])) for part in parts),
            *([Cell(estimate_text(one, "estimated", False), _sorted(one["estimated"]))] if estimated else []),
        ]
        for one in shares
    ]
    listed = table("Classes", columns, rows, tall=True)
    if len(shares) > DRAWN:
        return [text(" ".join(words)), listed]
    title = "Shares of classes: " + "; ".join(
        f"{one['class']} {percent(one['source'])} in the source, {percent(one['target'])} predicted" for one in shares
    )
    drawn = [
        Interval(
            one["class"],
            one["estimated"],
            (one["low"], one["high"]) if estimated else None,
            [(one["source"], *_SOURCE), (one["target"], *_TARGET)],
            css="ma-nn",
        )
        for one in shares
    ]
    most = max(value for one in shares for part in ("source", "target", "high") if (value := one[part]) is not None)
    picture = intervals(drawn, title=title, write=lambda at: f"{at:.0%}", most=most)
    signs = [
        *([Sign(path(_BAR, "ma-bar ma-nn"), "estimated in the target")] if estimated else []),
        *([Sign(path(_ENDS, "ma-whisker"), "90 % interval")] if estimated else []),
        Sign(marks([12], [7], CIRCLE, "ma-paper"), "source"),
        Sign(marks([12], [7], DIAMOND, "ma-bar ma-target"), "predicted in the target"),
    ]
    return [text(" ".join(words)), key(signs), row([figure(picture), listed], least="20rem")]


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


def _risk(result: Result) -> list[Markup]:
    """Return what the flagged rows are like beside the others."""
    groups, regression = result["risk"], result["task"] == "regression"
    flagged = groups[0]["rows"]
    words = (
        f"{flagged:,} of {result['target_rows']:,} target rows are flagged: of these the model is least sure. "
        "momentalign predict --risk writes the flag and what it is made of beside every prediction; look at flagged "
        "rows first, or have them labelled."
    )
    names = {
        "confidence": "Confidence",
        "agreement": "Agreement of candidates",
        "spread": "Spread of candidates",
        "distance": "Distance to the source",
        "known": "Error on labelled rows" if regression else "Accuracy on labelled rows",
    }
    columns = [name for name in names if groups[1].get(name) is not None]
    shares = {"confidence", "agreement"} | (set() if regression else {"known"})
    rows = [
        [
            Cell("flagged" if group["risky"] else "others"),
            Cell(f"{group['rows']:,}", group["rows"]),
            *(_mean(group[name], name in shares) for name in columns),
        ]
        for group in groups
    ]
    return [text(words), table("Means of the rows", ["Rows", "Number", *(names[name] for name in columns)], rows)]


def _mean(value: float | None, is_share: bool) -> Cell:
    if value is None:
        return Cell("\N{EN DASH}", math.nan)
    return Cell(percent(value), _sorted(value)) if is_share else _number(value)


def _bounds(result: Result) -> list[Markup]:
    """Return what the paper's theorem says, which is rarely much."""
    bounds = result["bounds"]
    if bounds is None:
        return []
    words = (
        "Theorem 1 of the paper bounds the error on the target by the error on the source, a distance, and a part that "
        "nobody can know without target labels. On real data the known part alone is often above 1 and says nothing, "
        "so rely on the estimate above."
    )
    rows = [
        [
            Cell(one["name"]),
            Cell(one["symbol"]),
            Cell("unknown", math.nan) if one["value"] is None else _number(one["value"]),
            Cell(one["kind"]),
        ]
        for one in bounds["rows"]
    ]
    return [
        text(words),
        table("Parts of the bound", ["Part", "Symbol", "Value", "Kind"], rows),
        text(bounds["conclusion"]),
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
