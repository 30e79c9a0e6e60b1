"""The page of the artificial example (Section 6.2, Figures 3 and 4): a network small enough to see whole.

A network is given by its weights as the result holds them: ``W`` and ``b`` of the hidden layer, ``V`` and ``c`` of the
output layer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby, pairwise
from typing import Any, NamedTuple

import numpy as np
from contourpy import FillType, contour_generator
from markupsafe import Markup
from numpy.typing import NDArray

from momentalign.networks.shallow import Layer, activations, outputs
from momentalign.paper.pages import (
    Strip,
    change_text,
    draw,
    line_sign,
    made_with,
    strip_chart,
    strip_signs,
)
from momentalign.paper.tables import count_text
from momentalign.report.page import (
    Axis,
    Bar,
    Cell,
    Choice,
    Fact,
    Section,
    Sign,
    Track,
    domains_key,
    figure,
    heading,
    key,
    number_cell,
    p_value_text,
    percent,
    picker,
    render_page,
    row,
    table,
    text,
    toggles,
)
from momentalign.report.svg import (
    Frame,
    Picture,
    axes,
    density_panel,
    group,
    line,
    marks,
    mosaic,
    number,
    path,
    rule,
    standalone,
    ticks,
)

__all__ = ["artificial_page", "boundary_panel", "figure_3", "figure_4", "most_different", "unit_panel"]

Floats = NDArray[np.float64]
Result = Mapping[str, Any]

NAMES = {"nn": "NN, without alignment", "mann": "MANN, with alignment"}
MARKS = (
    "m-4 0h8m-4-4v8",
    "m-4 0h8",
    "m0-4.4v8.8m-3.8-6.6l7.6 4.4m0-4.4l-7.6 4.4",
)
"""The paper's marks of the three source classes: plus, minus, star."""
DOT = "h0"
RING = "m-4.4 0a4.4 4.4 0 1 0 8.8 0a4.4 4.4 0 1 0-8.8 0"

GRID = 150  # points along each axis at which the network is evaluated to find the class regions
SHOWN_UNITS = 5
SIGNIFICANT = 0.01


def artificial_page(result: Result) -> str:
    """Return the page of one result of ``momentalign reproduce artificial``."""
    sections = [
        Section("Decision boundaries", _boundaries(result)),
        Section("Hidden units", _units(result)),
        Section("Distance, order by order", _orders(result)),
        Section("Training", _training(result)),
        Section("Every seed", _every_seed(result)),
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
    what = "the accuracy on the unlabelled target domain"
    changes = change_text(what, *(result["median"][f"{name}_accuracy"] for name in NAMES))
    return f"Aligning the moments of the hidden units {changes} ({_medians(result)})."


def _facts(result: Result) -> list[Fact]:
    """The values to remember."""
    median = result["median"]
    units = [_median(result, f"{name}_units_different") for name in NAMES]
    distances = [_median(result, f"{name}_cmd") for name in NAMES]
    paper = result["paper"]
    if paper is None:
        notes = [_medians(result)] * 3
    else:
        differing = _arrow(paper["nn_units_different"], paper["mann_units_different"])
        notes = [*(f"paper {percent(paper[f'{name}_accuracy'])}" for name in NAMES), f"paper {differing}"]
    return [
        Fact(percent(median["nn_accuracy"]), "NN, without alignment", notes[0]),
        Fact(percent(median["mann_accuracy"]), "MANN, with alignment", notes[1]),
        Fact(
            _arrow(f"{units[0]:g}", f"{units[1]:g}"), f"of {result['setting']['hidden']} hidden units differ", notes[2]
        ),
        Fact(_arrow(f"{distances[0]:.2f}", f"{distances[1]:.2f}"), "central moment discrepancy", _medians(result)),
    ]


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


def _panel(result: Result, name: str) -> Picture:
    """One panel of Fig. 3."""
    title = f"Decision boundaries over both domains, {NAMES[name]}: {_accuracy(result, name)}"
    return boundary_panel(result["shown"][name]["weights"], result["source"], result["target"], title)


def boundary_panel(
    weights: Mapping[str, Any], source: Mapping[str, Any], target: Mapping[str, Any], title: str
) -> Picture:
    """Draw class regions, labelled source points, target points, and a ring round every misclassified target point."""
    source_x, source_y = np.asarray(source["x"], dtype=float), np.asarray(source["y"])
    target_x = np.asarray(target["x"], dtype=float)
    layers = _network(weights)
    wrong = target_x[outputs(layers, target_x).argmax(axis=1) != np.asarray(target["y"])]
    frame = _frame(np.concatenate([source_x, target_x]))
    of_class = [
        marks(*_to_picture(frame, source_x[source_y == index]), MARKS[index % 3], f"ma-stroke ma-class-{index % 3}")
        for index in np.unique(source_y)
    ]
    drawn = [
        group("ma-regions", _regions(frame, layers), layer="regions"),
        group("ma-source", of_class, layer="source"),
        group("ma-target", [marks(*_to_picture(frame, target_x), DOT, "ma-dot")], layer="target"),
        group("ma-mistakes", [marks(*_to_picture(frame, wrong), RING, "ma-ring")], layer="mistakes"),
    ]
    return draw(frame, title, *drawn)


def _network(weights: Mapping[str, Any]) -> list[Layer]:
    return [Layer(np.asarray(weights[V], dtype=float), np.asarray(weights[c], dtype=float)) for V, c in ("Wb", "Vc")]


def _frame(points: Floats) -> Frame:
    """Return a frame without margins and with equal scales on both axes that holds all points."""
    low, high = points.min(axis=0), points.max(axis=0)
    edge = 0.05 * float((high - low).max())
    (left, bottom), (right, top) = low - edge, high + edge
    height = 440 * (top - bottom) / (right - left)
    return Frame(x_range=(left, right), y_range=(bottom, top), height=height, left=0, right=0, top=0, bottom=0)


def _to_picture(frame: Frame, points: Floats) -> tuple[Floats, Floats]:
    return frame.x(points[:, 0]), frame.y(points[:, 1])


def _regions(frame: Frame, layers: Sequence[Layer]) -> list[Markup]:
    """Return one filled path per class: where its output is the largest."""
    x, y = np.linspace(*frame.x_range, GRID), np.linspace(*frame.y_range, GRID)
    points = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)
    values = outputs(layers, points).reshape(GRID, GRID, -1)
    shapes = []
    for index in range(values.shape[-1]):
        lead = values[..., index] - np.delete(values, index, axis=-1).max(axis=-1)
        shapes.append(path(_outline(frame, x, y, lead), f"ma-region ma-class-{index % 3}"))
    return shapes


def _outline(frame: Frame, x: Floats, y: Floats, lead: Floats) -> str:
    """Return path commands round the region where `lead` is positive; holes turn the other way."""
    generator = contour_generator(x, y, lead, fill_type=FillType.OuterOffset)
    commands = []
    for points, offsets in zip(*generator.filled(0, np.inf), strict=True):
        for start, end in pairwise(offsets):
            across, up = _to_picture(frame, points[start:end])
            corners = (f"{number(a)} {number(b)}" for a, b in zip(across, up, strict=True))
            # Neighbours that round to the same point are written once.
            commands.append("M" + "L".join(corner for corner, _ in groupby(corners)) + "Z")
    return "".join(commands)


def _units(result: Result) -> list[Markup]:
    """Return the densities of Fig. 4 and a picker for every hidden unit."""
    p_values = [result["shown"][name]["ks_pvalue"] for name in NAMES]
    before, after = (sum(p < SIGNIFICANT for p in column) for column in p_values)
    finding = (
        "How strongly each unit answers to source and to target points; each picture has its own height. "
        f"A Kolmogorov-Smirnov test finds {before} of {len(p_values[0])} units different without alignment "
        f"and {after} with it (p < {SIGNIFICANT})."
    )
    parts = [text(finding), domains_key()]
    for name, title in NAMES.items():
        parts.append(heading(f"Most different units: {title}"))
        parts.append(row([figure(panel) for panel in most_different(result, name)], least="9.5rem", css="plain"))
    parts.append(heading("Any unit"))
    parts.append(text("The bars on each button are the test statistic without (upper) and with alignment (lower)."))
    parts.append(picker([_choice(result, unit) for unit in range(len(p_values[0]))]))
    return parts


def most_different(result: Result, name: str) -> list[Picture]:
    """Return the densities of the units with the smallest p-values of one network."""
    shown = result["shown"][name]
    order = sorted(
        range(len(shown["ks_pvalue"])), key=lambda unit: (shown["ks_pvalue"][unit], -shown["ks_statistic"][unit])
    )
    return [unit_panel(result, name, unit) for unit in order[:SHOWN_UNITS]]


def unit_panel(result: Result, name: str, unit: int, *, width: float = 200, height: float = 128) -> Picture:
    """Return the densities of one unit of one network."""
    shown = result["shown"][name]
    layers = _network(shown["weights"])
    source, target = (activations(layers, np.asarray(result[side]["x"]))[:, unit] for side in ("source", "target"))
    note = p_value_text(shown["ks_pvalue"][unit])
    title = f"Activation densities of hidden unit {unit + 1} on source and target, {NAMES[name]}: {note}"
    return density_panel(source, target, heading=f"Unit {unit + 1}", note=note, title=title, width=width, height=height)


def _choice(result: Result, unit: int) -> Choice:
    """Return the picker's entry of one unit."""
    thin = [Bar(f"ma-{name}", round(100 * result["shown"][name]["ks_statistic"][unit])) for name in NAMES]
    panels = [figure(unit_panel(result, name, unit, width=440, height=210), long) for name, long in NAMES.items()]
    return Choice(f"unit-{unit + 1}", f"Unit {unit + 1}", thin, row(panels, least="18rem"))


def _orders(result: Result) -> list[Markup]:
    """The terms of the discrepancy before and after."""
    before, after = (result["shown"][name]["cmd_terms"] for name in NAMES)
    names = ["1, mean", "2, variance", *(str(order) for order in range(3, len(before) + 1))][: len(before)]
    lead = (
        "The discrepancy is a sum over orders: the difference of means first, then of central moments about each mean."
    )
    write = "{:.4f}".format
    rows = [
        [
            Cell(name),
            Cell("", track=Track([(a, "ma-nn"), (b, "ma-mann")])),
            number_cell(a, write),
            number_cell(b, write),
        ]
        for name, a, b in zip(names, before, after, strict=True)
    ]
    signs = [Sign(path("M2 2h20v10h-20z", f"ma-bar ma-{name}"), long) for name, long in NAMES.items()]
    columns = ["Order", Axis("Discrepancy", 0.0, max(*before, *after) or 1.0, "{:g}".format), *("NN", "MANN")]
    footer = [Cell("Sum"), Cell(""), number_cell(sum(before), write), number_cell(sum(after), write)]
    return [text(lead), key(signs), table("Terms of the discrepancy", columns, rows, footer=footer)]


def _training(result: Result) -> list[Markup]:
    """Loss, distance and accuracy over epochs."""
    shared = f"{result['setting']['plain_epochs']:,}"
    lead = f"Both networks share the first {shared} epochs; the dotted rule marks where they part."
    signs = [line_sign(f"ma-line ma-{name}", title) for name, title in NAMES.items()]
    signs.append(line_sign("ma-line ma-dashed ma-source", "accuracy on the source"))
    history = result["shown"]["history"]

    def series(column: str, dash: str = "") -> list[Curve]:
        return [Curve(history[name]["epoch"], history[name][column], f"ma-{name}{dash}") for name in NAMES]

    def ends(title: str, pair: Sequence[Curve]) -> str:
        return f"{title}: NN ends at {pair[0].y[-1]:.3f}, MANN at {pair[1].y[-1]:.3f}"

    charts = []
    for column, caption, title in (
        ("source_loss", "Source loss", "Loss over epochs"),
        ("distance", "Central moment discrepancy", "Discrepancy over epochs"),
    ):
        pair = series(column)
        top = 1.05 * max(max(curve.y) for curve in pair)
        picture = curves(result, pair, title=ends(title, pair), y_range=(0, max(top, 1e-6)))
        charts.append(figure(picture, caption))
    target, both = series("target_accuracy"), series("source_accuracy", " ma-dashed")
    both += target
    bottom = min(float(np.floor(10 * min(min(curve.y) for curve in both)) / 10), 0.9)
    title = ends("Target accuracy over epochs", target)
    charts.append(figure(curves(result, both, title=title, y_range=(bottom, 1), share=True), "Accuracy"))
    return [text(lead), key(signs), row(charts, least="19rem")]


class Curve(NamedTuple):
    """One line of a chart; `css` names its colour and dash."""

    x: Sequence[float]
    y: Sequence[float]
    css: str


def curves(
    result: Result, series: Sequence[Curve], *, title: str, y_range: tuple[float, float], share: bool = False
) -> Picture:
    """Draw lines over epochs, a `share` in percent; a dashed rule stands where the alignment begins."""
    last, switch = max(max(curve.x) for curve in series), result["setting"]["plain_epochs"]
    frame = Frame(x_range=(0, last), y_range=y_range, width=360, height=244, left=52, right=26, top=12, bottom=40)
    x_ticks = [(at, f"{at:,.0f}") for at in ticks(0, last, count=3)]
    y_ticks = [(at, f"{100 * at:.0f} %" if share else f"{at:g}") for at in ticks(*y_range)]
    at = float(frame.x(switch))
    parts = [
        axes(frame, x_ticks=x_ticks, y_ticks=y_ticks, x_label="epoch"),
        rule(at, frame.top, at, frame.floor, "ma-switch"),
        *(line(frame.x(curve.x), frame.y(curve.y), f"ma-line {curve.css}") for curve in series),
    ]
    return draw(frame, title, *parts)


def _every_seed(result: Result) -> list[Markup]:
    """All runs as a strip and as a table."""
    paper, columns = result["paper"], {name: f"{name}_accuracy" for name in NAMES}
    strips = [
        Strip(
            name.upper(), [run[column] for run in result["runs"]], result["median"][column],
            None if paper is None else paper[column], f"ma-{name}",
        )
        for name, column in columns.items()
    ]  # fmt: skip
    low = float(np.floor(20 * min(value for strip in strips for value in strip.shown) - 0.2)) / 20
    frame = Frame(x_range=(low, 1), y_range=(0, 2), height=152, left=58, right=22, top=4, bottom=40)
    title = "Target accuracy of every run: " + "; ".join(f"{one.name} median {percent(one.middle)}" for one in strips)
    x_ticks = [(at, f"{100 * at:.0f} %") for at in ticks(low, 1, count=4)]
    chart = strip_chart(frame, strips, x_ticks, title=title, x_label="accuracy on the target")
    signs = strip_signs("median", None if paper is None else "the paper's one run")
    lead = text("One seed is luck; the median of several is a result.")
    return [lead, key(signs), figure(chart, narrow=True), _runs(result)]


def _runs(result: Result) -> Markup:
    """The table of runs with their medians below."""
    columns = ["Seed", *(f"{name.upper()} {what}" for what in ("accuracy", "units differing", "CMD") for name in NAMES)]
    rows = [[Cell(str(run["seed"]), run["seed"]), *_figures(run)] for run in result["runs"]]
    middle = {name: _median(result, name) for name in result["runs"][0] if name != "seed"} | dict(result["median"])
    return table("All runs", columns, rows, footer=[Cell("Median"), *_figures(middle)])


def _figures(run: Mapping[str, float]) -> list[Cell]:
    """The cells of one run after its name."""
    columns = (("accuracy", percent), ("units_different", "{:g}".format), ("cmd", "{:.3f}".format))
    return [number_cell(run[f"{name}_{column}"], write) for column, write in columns for name in NAMES]


def _making(result: Result) -> list[Markup]:
    """Setting, versions and the comparison with the paper's one run."""
    setting = result["setting"]
    data = "the authors' points" if result["data"] == "authors" else f"generated points, seed {result['data_seed']}"
    network = f"{setting['hidden']} sigmoid hidden units, softmax, {setting['optimizer']}"
    sizes = f"{len(result['source']['x'])} labelled source and {len(result['target']['x'])} unlabelled target points"
    epochs = f"{setting['plain_epochs']:,} plain, then {setting['aligned_epochs']:,} with and without alignment"
    return [
        text(setting["description"]),
        made_with(
            result,
            [
                ("Setting", setting["name"]),
                ("Data", f"{data}: {sizes}"),
                ("Network", network),
                ("Epochs", epochs),
                ("Alignment", f"{setting['n_moments']} moments, weight {setting['weight']:g}"),
                ("Runs", f"{count_text(len(result['runs']), 'seed')} in {result['seconds']:.1f} seconds"),
            ],
        ),
        *([] if result["paper"] is None else [_comparison(result)]),
    ]


def _comparison(result: Result) -> Markup:
    """The paper's one run beside the medians here."""
    rows, median = [], result["median"]
    for name in NAMES:
        accuracies = [values[f"{name}_accuracy"] for values in (result["paper"], median)]
        units = [result["paper"][f"{name}_units_different"], _median(result, f"{name}_units_different")]
        rows.append([Cell(f"{name.upper()} accuracy on the target"), *(number_cell(v, percent) for v in accuracies)])
        rows.append([Cell(f"{name.upper()} units differing"), *(number_cell(v, "{:g}".format) for v in units)])
    columns = ["", "Paper, one run", f"Here, {_medians(result)}"]
    return table("Beside the paper", columns, rows, sortable=False)


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
    seeds = count_text(len(result["runs"]), "seed")
    return seeds if len(result["runs"]) == 1 else f"median of {seeds}"
