"""The page of the artificial example (Section 6.2, Figures 3 and 4): a network small enough to see whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from momentalign.paper.artificial_figures import (
    DOT,
    MARKS,
    NAMES,
    RING,
    Curve,
    Strip,
    boundary_panel,
    curves,
    most_different,
    strip,
    units_parts,
)
from momentalign.report.charts import BarGroup, bars
from momentalign.report.page import (
    PAPER,
    Cell,
    Fact,
    Section,
    Sign,
    check_result,
    definitions,
    figure,
    key,
    percent,
    render_page,
    row,
    table,
    text,
    toggles,
    versions_text,
)
from momentalign.report.svg import DIAMOND, Picture, line, marks, mosaic, path, standalone

__all__ = ["artificial_page", "figure_3", "figure_4"]

Result = Mapping[str, Any]

KEYS = ("data", "data_seed", "setting", "source", "target", "runs", "median", "shown", "paper", "seconds", "versions")


def artificial_page(result: Result) -> str:
    """Return the page of one result of ``momentalign reproduce artificial``."""
    check_result(result, "artificial", KEYS)
    sections = [
        Section("Decision boundaries", _boundaries(result)),
        Section("Hidden units", units_parts(result)),
        Section("Distance, order by order", _orders(result)),
        Section("Training", _training(result)),
        Section("Every seed", _seeds(result)),
        Section("How this was made", _making(result)),
    ]
    return render_page("The artificial example", _headline(result), sections, numbers=_facts(result))


def figure_3(result: Result) -> str:
    """Return Fig. 3 as the text of an SVG file: decision boundaries of NN (left) and MANN (right)."""
    title = "Decision boundaries over both domains: NN on the left, MANN on the right"
    return standalone(mosaic(title, [[_panel(result, "nn"), _panel(result, "mann")]]))


def figure_4(result: Result) -> str:
    """Return Fig. 4 as the text of an SVG file: densities of the five most different units, NN above MANN."""
    title = "Activation densities of the five most different hidden units: NN above, MANN below"
    return standalone(mosaic(title, [most_different(result, name) for name in NAMES]))


def _headline(result: Result) -> str:
    """The one sentence that says what was found."""
    before, after = result["median"]["nn_accuracy"], result["median"]["mann_accuracy"]
    change = f"from {percent(before)} to {percent(after)}"
    if percent(before) == percent(after):
        verb, change = "leaves", f"at {percent(after)}"
    else:
        verb = "raises" if after > before else "lowers"
    return (
        f"Aligning the moments of the hidden units {verb} the accuracy on the unlabelled target domain "
        f"{change} ({_medians(result)})."
    )


def _facts(result: Result) -> list[Fact]:
    """The values to remember."""
    median = result["median"]
    units = [_median(result, f"{name}_units_different") for name in NAMES]
    distances = [_median(result, f"{name}_cmd") for name in NAMES]
    notes = _notes(result)
    return [
        Fact(percent(median["nn_accuracy"]), "NN, without alignment", notes[0]),
        Fact(percent(median["mann_accuracy"]), "MANN, with alignment", notes[1]),
        Fact(
            _arrow(f"{units[0]:g}", f"{units[1]:g}"), f"of {result['setting']['hidden']} hidden units differ", notes[2]
        ),
        Fact(_arrow(f"{distances[0]:.2f}", f"{distances[1]:.2f}"), "central moment discrepancy", _medians(result)),
    ]


def _notes(result: Result) -> list[str]:
    """The paper's accuracies and units, where it has any on these data."""
    paper = result["paper"]
    if paper is None:
        return [_medians(result)] * 3
    units = _arrow(paper["nn_units_different"], paper["mann_units_different"])
    return [*(f"paper {percent(paper[f'{name}_accuracy'])}" for name in NAMES), f"paper {units}"]


def _boundaries(result: Result) -> list[Markup]:
    """Both panels of Fig. 3 and the key that shows and hides their layers."""
    plus = [marks([10 + 18 * i], [7], stroke, f"ma-stroke ma-class-{i}") for i, stroke in enumerate(MARKS)]
    region = path("M2 1h20v12h-20z", "ma-stroke ma-class-0")
    signs = [
        Sign(Markup("").join(plus), "source, three labelled classes", "source", wide=True),
        Sign(marks([12], [7], DOT, "ma-dot"), "target, unlabelled", "target"),
        Sign(marks([12], [7], RING, "ma-ring"), "misclassified target point", "mistakes"),
        Sign(region, "region of a class", "regions"),
    ]
    panels = [figure(_panel(result, name), title, note=_accuracy(result, name)) for name, title in NAMES.items()]
    return [
        text(f"Seed {result['shown']['seed']}, the run at the median. Target labels were used for counting only."),
        toggles(signs),
        row(panels, least="22rem"),
    ]


def _orders(result: Result) -> list[Markup]:
    """The terms of the discrepancy before and after."""
    before, after = (result["shown"][name]["cmd_terms"] for name in NAMES)
    names = ["1, mean", "2, variance", *(str(order) for order in range(3, len(before) + 1))][: len(before)]
    title = "Terms of the central moment discrepancy by order: " + "; ".join(
        f"order {name}: {a:.4f} before, {b:.4f} after" for name, a, b in zip(names, before, after, strict=True)
    )
    lead = (
        "The discrepancy is a sum over orders: the difference of means first, then of central moments about each mean."
    )
    signs = [Sign(path("M2 2h20v10h-20z", f"ma-bar ma-{name}"), long) for name, long in NAMES.items()]
    caption = f"Sum {sum(before):.3f} without alignment, {sum(after):.3f} with it"
    groups = [BarGroup(name, pair) for name, *pair in zip(names, before, after, strict=True)]
    picture = bars(groups, css=("ma-nn", "ma-mann"), title=title)
    return [text(lead), key(signs), figure(picture, caption, narrow=True)]


def _training(result: Result) -> list[Markup]:
    """Loss, distance and accuracy over epochs."""
    shared = f"{result['setting']['plain_epochs']:,}"
    lead = f"Both networks share the first {shared} epochs; the dotted rule marks where they part."
    signs = [Sign(line([2, 22], [7, 7], f"ma-line ma-{name}"), title) for name, title in NAMES.items()]
    signs.append(Sign(line([2, 22], [7, 7], "ma-line ma-dashed ma-source"), "accuracy on the source"))
    charts = [
        figure(_history(result, "source_loss", "Loss over epochs"), "Source loss"),
        figure(_history(result, "distance", "Discrepancy over epochs"), "Central moment discrepancy"),
        figure(_accuracies(result), "Accuracy"),
    ]
    return [text(lead), key(signs), row(charts, least="19rem")]


def _seeds(result: Result) -> list[Markup]:
    """All runs as a strip and as a table."""
    strips = [_strip(result, name) for name in NAMES]
    title = "Target accuracy of every run: " + "; ".join(f"{one.name} median {percent(one.median)}" for one in strips)
    signs = [
        Sign(marks([12], [7], "h0", "ma-run ma-mann"), "one seed"),
        Sign(path("M12 1v12", "ma-median ma-mann"), "median"),
    ]
    if result["paper"] is not None:
        signs.append(Sign(marks([12], [7], DIAMOND, "ma-paper"), "the paper's one run"))
    return [
        text("One seed is luck; the median of several is a result."),
        key(signs),
        figure(strip(strips, title=title), narrow=True),
        _runs(result),
    ]


def _runs(result: Result) -> Markup:
    """The table of runs with their medians below."""
    columns = ["Seed", *(f"{name.upper()} {what}" for what in ("accuracy", "units differing", "CMD") for name in NAMES)]
    rows = [[Cell(str(run["seed"]), run["seed"]), *_figures(run)] for run in result["runs"]]
    middle = {name: _median(result, name) for name in result["runs"][0] if name != "seed"} | dict(result["median"])
    return table("All runs", columns, rows, footer=[Cell("Median"), *_figures(middle)])


def _making(result: Result) -> list[Markup]:
    """Setting, versions and the comparison with the paper's one run."""
    setting = result["setting"]
    data = "the authors' points" if result["data"] == "authors" else f"generated points, seed {result['data_seed']}"
    network = f"{setting['hidden']} sigmoid hidden units, softmax, {setting['optimizer']}"
    sizes = f"{len(result['source']['x'])} labelled source and {len(result['target']['x'])} unlabelled target points"
    epochs = f"{setting['plain_epochs']:,} plain, then {setting['aligned_epochs']:,} with and without alignment"
    return [
        text(setting["description"]),
        definitions(
            [
                ("Setting", setting["name"]),
                ("Data", f"{data}: {sizes}"),
                ("Network", network),
                ("Epochs", epochs),
                ("Alignment", f"{setting['n_moments']} moments, weight {setting['weight']:g}"),
                ("Runs", f"{_seeds_text(result)} in {result['seconds']:.1f} seconds"),
                ("Versions", versions_text(result["versions"])),
                ("Paper", PAPER),
            ]
        ),
        *([] if result["paper"] is None else [_comparison(result)]),
    ]


def _comparison(result: Result) -> Markup:
    """The paper's one run beside the medians here."""
    rows, median = [], result["median"]
    for name in NAMES:
        units, paper = _median(result, f"{name}_units_different"), result["paper"][f"{name}_units_different"]
        accuracies = [Cell(percent(v[f"{name}_accuracy"]), v[f"{name}_accuracy"]) for v in (result["paper"], median)]
        rows.append([Cell(f"{name.upper()} accuracy on the target"), *accuracies])
        rows.append([Cell(f"{name.upper()} units differing"), Cell(str(paper), paper), Cell(f"{units:g}", units)])
    columns = ["", "Paper, one run", f"Here, {_medians(result)}"]
    return table("Beside the paper", columns, rows, sortable=False)


def _figures(run: Mapping[str, float]) -> list[Cell]:
    """The cells of one run after its name."""
    accuracies = [Cell(percent(run[f"{name}_accuracy"]), run[f"{name}_accuracy"]) for name in NAMES]
    units = [Cell(f"{run[f'{name}_units_different']:g}", run[f"{name}_units_different"]) for name in NAMES]
    return [*accuracies, *units, *(Cell(f"{run[f'{name}_cmd']:.3f}", run[f"{name}_cmd"]) for name in NAMES)]


def _panel(result: Result, name: str) -> Picture:
    """One panel of Fig. 3."""
    title = f"Decision boundaries over both domains, {NAMES[name]}: {_accuracy(result, name)}"
    return boundary_panel(result["shown"][name]["weights"], result["source"], result["target"], title)


def _history(result: Result, name: str, title: str) -> Picture:
    """One quantity of both networks over epochs."""
    history = result["shown"]["history"]
    series = [Curve(history[network]["epoch"], history[network][name], f"ma-{network}") for network in NAMES]
    top = 1.05 * max(float(np.nanmax(np.asarray(curve.y, dtype=float))) for curve in series)
    return curves(
        series, title=_ends(title, series), y_range=(0, max(top, 1e-6)), switch=result["setting"]["plain_epochs"]
    )


def _accuracies(result: Result) -> Picture:
    """Source and target accuracy of both networks over epochs."""
    history = result["shown"]["history"]
    series = [
        Curve(history[network]["epoch"], history[network][f"{domain}_accuracy"], f"ma-{network}{dash}")
        for domain, dash in (("source", " ma-dashed"), ("target", ""))
        for network in NAMES
    ]
    low = min(float(np.nanmin(np.asarray(curve.y, dtype=float))) for curve in series)
    title = _ends("Target accuracy over epochs", series[2:])
    bottom = min(np.floor(10 * low) / 10, 0.9)
    return curves(series, title=title, y_range=(bottom, 1), switch=result["setting"]["plain_epochs"], percent=True)


def _ends(title: str, series: Sequence[Curve]) -> str:
    """Say where the curves of NN and MANN end."""
    return f"{title}: NN ends at {series[0].y[-1]:.3f}, MANN at {series[1].y[-1]:.3f}"


def _strip(result: Result, name: str) -> Strip:
    """The accuracies of one network over all runs."""
    column = f"{name}_accuracy"
    values = [run[column] for run in result["runs"]]
    paper = None if result["paper"] is None else result["paper"][column]
    return Strip(name.upper(), values, result["median"][column], paper, f"ma-{name}")


def _accuracy(result: Result, name: str) -> str:
    """Say how many target points one network gets right."""
    return f"{percent(result['shown'][name]['accuracy_target'])} of the target points right"


def _arrow(before: object, after: object) -> str:
    """Write a change in one unbroken piece."""
    return f"{before}\N{NO-BREAK SPACE}→\N{NO-BREAK SPACE}{after}"


def _median(result: Result, column: str) -> float:
    """The median of one column over all runs."""
    return float(np.median([run[column] for run in result["runs"]]))


def _medians(result: Result) -> str:
    """Say over how many seeds the medians go."""
    seeds = _seeds_text(result)
    return seeds if len(result["runs"]) == 1 else f"median of {seeds}"


def _seeds_text(result: Result) -> str:
    """Say how many seeds ran."""
    return "one seed" if len(result["runs"]) == 1 else f"{len(result['runs'])} seeds"
