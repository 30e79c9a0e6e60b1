"""The page of a diagnosis: what shifted between two samples, how much, and whether it is significant."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from momentalign.report.diagnosis_figures import EXPLORED, feature_drawing, feature_panel, loss_bars, order_bars
from momentalign.report.hidden_units import p_words
from momentalign.report.page import PAPER, Section, read_result, render_page, version_words
from momentalign.report.parts import Cell, Fact, Sign, definitions, explorer, figure, key, percent, row, table, text
from momentalign.report.svg import line, path

__all__ = ["diagnosis_page"]

Result = Mapping[str, Any]

KEYS = (
    "rows",
    "alpha",
    "verdict",
    "features",
    "cmd",
    "classifier",
    "only_source",
    "only_target",
    "empty",
    "retyped",
    "versions",
)
KINDS = {"number": "numbers", "date": "dates", "category": "categories"}
PANELS, BARS, LISTED, LEVELS = 6, 10, 1000, 40
DASH = "\N{EN DASH}"
NOTHING = Cell(DASH, math.nan)


def diagnosis_page(result: Result) -> str:
    """Return the page of one result of :func:`momentalign.report.diagnosis.diagnose`."""
    read_result(result, "diagnosis", KEYS)
    sections = [
        Section("Most different features", _most_different(result)),
        Section("Every feature", _every_feature(result)),
        Section("Moments, order by order", _orders(result)),
        Section("Telling the samples apart", _telling(result)),
        Section("Categories", _categories(result)),
        Section("How this was made", _making(result)),
    ]
    shown = [section for section in sections if section.parts]
    return render_page("What shifted", result["verdict"]["words"], shown, numbers=_numbers(result))


def _numbers(result: Result) -> list[Fact]:
    """Return the numbers to remember."""
    verdict, classifier, cmd = result["verdict"], result["classifier"], result["cmd"]
    of_all = f"{len(result['features'])} features"
    facts = [
        Fact(
            "No" if verdict["level"] == "none" else verdict["level"].capitalize(),
            "shift",
            f"all tests together, {p_words(verdict['p_value'])}",
        ),
        Fact(str(len(_changed(result))), f"of {of_all} differ", f"adjusted p at most {result['alpha']:g}"),
        Fact(
            f"{classifier['proxy_a_distance']:.2f}",
            "proxy-A-distance",
            f"0 alike, 2 apart; AUC {classifier['auc']:.2f}",
        ),
    ]
    if cmd is not None:
        total = cmd["total"]
        facts.append(Fact(f"{total['value']:.3f}", "central moment discrepancy", p_words(total["p_value"])))
    return facts


def _most_different(result: Result) -> list[Markup]:
    """Return the features that differ most, side by side."""
    shown = [feature for feature in _changed(result) if feature["shape"] is not None][:PANELS]
    if not shown:
        return []
    panels = [
        feature_panel(feature["name"], feature["shape"], dates=feature["kind"] == "date", note=_note(feature))
        for feature in shown
    ]
    return [
        text("Share of each sample over the values; every picture has its own height, the outermost 1 % is cut off."),
        key(_domains()),
        row([figure(panel) for panel in panels], least="15rem", css="plain"),
    ]


def _every_feature(result: Result) -> list[Markup]:
    """Return the table of all features, over which the one pointed at is drawn."""
    listed = result["features"][:LISTED]
    left = len(result["features"]) - len(listed)
    columns = [
        "Feature",
        "Kind",
        "Differs in",
        "Distance",
        "Adjusted p",
        "Mean shift",
        "Deviation ratio",
        "Missing",
    ]
    drawings = [
        feature_drawing(feature["shape"], dates=feature["kind"] == "date", note=_explored(feature))
        for feature in listed
    ]
    words = (
        "Point at a row to see the feature in both samples, press a heading to sort. The distance is the "
        "Kolmogorov-Smirnov statistic of numbers and dates and the total variation distance of categories: 0 alike, 1 "
        "apart. The mean shift is in deviations; of missing values there are the shares in source and target, sorted "
        "by their difference."
    )
    rest = [text(f"{left:,} features that differ less are left out here.")] if left else []
    caption = f"{len(listed):,} features, the most different first"
    return [
        text(words),
        key(_domains()),
        explorer(EXPLORED, caption, columns, [_cells(feature) for feature in listed], drawings),
        *rest,
    ]


def _cells(feature: Mapping[str, Any]) -> list[Cell]:
    """Return one feature's row."""
    return [
        Cell(feature["name"]),
        Cell(KINDS[feature["kind"]]),
        Cell(", ".join(feature["changes"]) or DASH),
        _cell(feature["distance"], "{:.3f}"),
        _p_cell(feature["p_adjusted"]),
        _cell(feature["mean_shift"], "{:+.2f}"),
        _cell(feature["deviation_ratio"], "{:.2f}"),
        _missing_cell(feature["missing_source"], feature["missing_target"]),
    ]


def _orders(result: Result) -> list[Markup]:
    """Return the terms of the CMD with their p-values."""
    cmd = result["cmd"]
    if cmd is None:
        return []
    seen = cmd["seen"]
    words = (
        f"The norm of the difference of each central moment over {seen['features']:,} features of numbers and dates, "
        "each brought to [0, 1] by its 1st and 99th percentile. The strokes are what "
        f"95 % of {cmd['n_permutations']:,} random relabellings of the rows stay below."
    )
    signs = [
        Sign(path("M2 2h20v10h-20z", "ma-bar ma-target"), "measured"),
        Sign(line([12, 12], [1, 13], "ma-median ma-source"), "seldom exceeded by chance"),
    ]
    entries = [*((str(place + 1), entry) for place, entry in enumerate(cmd["orders"])), ("Sum", cmd["total"])]
    rows = [
        [
            Cell(name),
            Cell(f"{entry['value']:.4f}", entry["value"]),
            Cell(f"{entry['by_chance']:.4f}", entry["by_chance"]),
            _p_cell(entry["p_value"]),
        ]
        for name, entry in entries
    ]
    title = "Central moment discrepancy per order: " + ", ".join(f"{entry['value']:.4f}" for entry in cmd["orders"])
    return [
        text(words),
        key(signs),
        row(
            [
                figure(order_bars(cmd["orders"], title=title)),
                table("Every order", ["Order", "Value", "By chance", "p"], rows[:-1], footer=rows[-1]),
            ],
            least="20rem",
        ),
    ]


def _telling(result: Result) -> list[Markup]:
    """Return how well a classifier tells the samples apart, and what it goes by."""
    found = result["classifier"]
    words = (
        f"A classifier ({found['name']}) of {found['rows']:,} rows of each sample gets {percent(1 - found['error'])} "
        "of rows that it has not seen right, where guessing gets half: proxy-A-distance "
        f"{found['proxy_a_distance']:.2f}, area under the curve {found['auc']:.3f} "
        f"(95 % interval {found['auc_low']:.3f} to {found['auc_high']:.3f}, "
        f"{p_words(found['p_value'])})."
    )
    most = [entry for entry in found["features"] if entry["drop"] > 0][:BARS]
    if found["p_value"] > result["alpha"] or not most:
        return [text(words)]
    title = "Area lost when a feature is shuffled: " + ", ".join(f"{one['name']} {one['drop']:.3f}" for one in most)
    caption = "What it goes by"
    note = "Area under the curve that is lost when the values of a feature are shuffled."
    return [text(words), figure(loss_bars(most, title=title), caption, note=note, narrow=True)]


def _categories(result: Result) -> list[Markup]:
    """Return the shares of categories that changed most."""
    changed = [feature for feature in _changed(result) if "categories" in feature["changes"]]
    rows = [
        (
            abs(target - source),
            [Cell(feature["name"]), Cell(name), *(_share(value) for value in (source, target, target - source))],
        )
        for feature in changed
        for name, source, target in zip(
            *(feature["shape"][part] for part in ("names", "source", "target")), strict=True
        )
    ]
    if not rows:
        return []
    ordered = [cells for _, cells in sorted(rows, key=lambda entry: -entry[0])[:LEVELS]]
    unseen = [f"{feature['name']} {percent(feature['new'])}" for feature in changed if feature["new"]]
    words = (
        [text(f"Share of the target in categories that the source does not have: {', '.join(unseen)}.")]
        if unseen
        else []
    )
    columns = ["Feature", "Category", "Share in source", "in target", "Change"]
    return [*words, table("Categories of the features that differ", columns, ordered)]


def _making(result: Result) -> list[Markup]:
    """Return what was compared, and how."""
    rows = result["rows"]
    lists = [
        ("In the source only", result["only_source"]),
        ("In the target only", result["only_target"]),
        ("Without any value", result["empty"]),
        ("Of another kind in the target", result["retyped"]),
    ]
    return [
        definitions(
            [
                ("Rows", f"{rows['source']:,} in the source, {rows['target']:,} in the target"),
                *((name, ", ".join(names)) for name, names in lists if names),
                *_rows_of_moments(result),
                (
                    "Tests",
                    "Kolmogorov-Smirnov (numbers, dates), chi-square (categories, missing values), Fisher's exact test "
                    "where rows are few; p-values adjusted together by Benjamini and Hochberg",
                ),
                (
                    "Strength",
                    f"{result['verdict']['strength']:.2f}: the largest of 2 AUC - 1 and the distances of features that "
                    "differ; mild below 0.2, moderate below 0.4, strong above",
                ),
                ("Versions", version_words(result["versions"])),
                ("Paper", PAPER),
            ]
        )
    ]


def _rows_of_moments(result: Result) -> list[tuple[str, str]]:
    if result["cmd"] is None:
        return []
    seen = result["cmd"]["seen"]
    return [("Rows in the permutation test", f"{seen['source']:,} of the source, {seen['target']:,} of the target")]


def _domains() -> list[Sign]:
    return [Sign(line([2, 22], [7, 7], f"ma-line ma-{domain}"), domain) for domain in ("source", "target")]


def _changed(result: Result) -> list[Mapping[str, Any]]:
    return [feature for feature in result["features"] if feature["changes"]]


def _note(feature: Mapping[str, Any]) -> str:
    """Say in few letters how far apart a feature is."""
    return (
        ""
        if feature["distance"] is None
        else f"{'TV' if feature['kind'] == 'category' else 'KS'} {feature['distance']:.2f}"
    )


def _explored(feature: Mapping[str, Any]) -> str:
    """Say what differs about a feature."""
    parts = [*feature["changes"]] or ["no significant difference"]
    if feature["mean_source"] is not None and feature["kind"] == "number":
        parts.append(f"mean {feature['mean_source']:.4g} in the source, {feature['mean_target']:.4g} in the target")
    return ", ".join(parts)


def _cell(value: float | None, form: str) -> Cell:
    return NOTHING if value is None else Cell(form.format(value), _short(value))


def _missing_cell(source: float, target: float) -> Cell:
    words = f"{percent(source)} → {percent(target)}" if source or target else DASH
    return Cell(words, _short(target - source))


def _p_cell(p: float | None) -> Cell:
    return NOTHING if p is None else Cell(p_words(p).removeprefix("p ").removeprefix("= "), _short(p))


def _share(value: float) -> Cell:
    return Cell(percent(value), _short(value))


def _short(value: float) -> float:
    """Keep what a table sorts by short: a page may hold a thousand rows."""
    return float(f"{value:.5g}")
