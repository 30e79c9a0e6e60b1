"""Digit recognition (Section 6.5): three tasks, every method, Table 5, and its page.

A cell is one task, one method and one seed. For every task the page shows images with predictions, confusions,
embeddings in the plane, and distances over time.
"""

from __future__ import annotations

import base64
import io
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from joblib import effective_n_jobs
from markupsafe import Markup
from numpy.typing import NDArray
from torch import Tensor

from momentalign.evaluation.scores import mutual_information, nuclear_norm
from momentalign.journal import Journal, cell_key
from momentalign.paper.digit_networks import (
    CLASSES,
    CONFIG,
    METHODS,
    N_MOMENTS,
    DigitCNN,
    DigitConfig,
    Images,
    accuracy_of,
    activations_of,
    probabilities_of,
    seconds_per_update,
    train,
)
from momentalign.paper.digits_data import Digits, Split, load_mnist, load_mnist_m, load_svhn
from momentalign.paper.experiment import Cell, Progress, Say, figures_of, run_cells, table_result
from momentalign.paper.pages import comparison_page, draw, line_sign
from momentalign.paper.synthetic_digits import make_synth_digits
from momentalign.paper.tables import DIGITS, Comparison, compare, long_task
from momentalign.report.page import (
    Answer,
    Bar,
    Choice,
    Section,
    Sign,
    Tile,
    figure,
    heading,
    key,
    number_cell,
    percent,
    picker,
    row,
    sheet,
    table,
    text,
    tiles,
)
from momentalign.report.page import Cell as TableCell
from momentalign.report.svg import Frame, Picture, axes, group, label, line, marks, number, ticks
from momentalign.training.torch_engine import one_thread, open_device
from momentalign.version import __version__

__all__ = ["METHODS", "NOTE", "TASKS", "compute", "digit_identity", "digits_on_device", "digits_page", "run"]

Result = Mapping[str, Any]

TASKS = DIGITS.tasks
SYNTH_SEED, SYNTH_TEST_SEED, SYNTH_TEST_SIZE = 0, 1, 5_000
# Target images whose predictions are scored, and of both domains those the page shows and those it places in the plane.
SCORED, SHOWN, PLACED = 10_000, 24, 400
# What earlier versions could change; journals name it.
FIXED = {"balanced": True, "standardized": True, "width_root": True, "n_moments": N_MOMENTS}
OLD_CHANGES = dict.fromkeys(("inversion", "contrast", "brightness", "channel", "blur", "noise"), 0.0)
NOTE = (
    "SynthDigits is not available any more: digits drawn from fonts stand in for it, so SynthDigits→SVHN compares "
    "methods with each other, not with the paper."
)
"""What a reader of the table has to know."""


def run(
    methods: Sequence[str],
    journal: Journal,
    *,
    seeds: Sequence[int] = range(5),
    tasks: Sequence[str] = TASKS,
    config: DigitConfig = CONFIG,
    n_jobs: int = 1,
    device: str = "cpu",
    folder: str | Path | None = None,
    say: Say | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Return accuracies of methods on tasks, ready for JSON; what the journal holds is not computed again.

    `n_jobs` are processes, also side by side on one accelerator. `say` is called with a sentence that says how long it
    takes on a CPU, `progress` with the number of finished cells and of all cells.
    """
    data = None if folder is None else str(folder)
    shown = {task: samples(task, config=config, folder=data) for task in tasks}  # what is missing is missed at once
    # One cell for each seed; the page shows more of the first.
    look = {seed: {"look": True} if seed == seeds[0] else {} for seed in seeds}
    cells: dict[str, dict[str, list[Cell]]] = {
        method: {
            task: [{"task": task, "method": method, "seed": seed, **look[seed]} for seed in seeds] for task in tasks
        }
        for method in methods
    }
    every = [cell for task in tasks for method in methods for cell in cells[method][task]]

    done = run_cells(
        every,
        partial(compute, config=config, folder=data, device=device),
        journal,
        n_jobs=n_jobs,
        estimate=partial(estimate, config=config, n_jobs=effective_n_jobs(n_jobs)) if device == "cpu" else None,
        say=say,
        progress=progress,
    )
    columns = {method: _column(method, own, done) for method, own in cells.items()}
    note = {"note": NOTE} if "synth->svhn" in tasks else {}
    described = digit_identity(config)
    return table_result("digits", described, seeds, tasks, device=device, methods=columns, samples=shown, **note)


def digit_identity(config: DigitConfig) -> dict[str, Any]:
    """Return what a journal of this experiment must agree with to be continued."""
    recipe = asdict(config)
    return {
        "experiment": "digits",
        "recipe": {**recipe, **FIXED, "augmentation": OLD_CHANGES | recipe["augmentation"]},
        "versions": {"momentalign": __version__, "torch": version("torch")},
    }


def _column(method: str, cells: Mapping[str, Sequence[Cell]], done: Mapping[str, Any]) -> dict[str, Any]:
    """One method's part of the results."""
    settings = asdict(METHODS[method])
    title = settings.pop("title")
    first = {task: done[cell_key(own[0])] for task, own in cells.items()}
    return {
        "title": title,
        "settings": settings if METHODS[method].discrepancy is not None else {},
        **figures_of(("accuracy", "source_accuracy", "scores", "shares_away", "seconds"), cells, done),
        "closely": {
            task: {"confusion": one["confusion"], "orders": one["orders"], **one["look"]} for task, one in first.items()
        },
    }


def estimate(cells: Sequence[Cell], *, config: DigitConfig = CONFIG, n_jobs: int = 1) -> float | None:
    """Return how many seconds cells will take on a CPU, from a few updates of each method; None for no cells."""
    if not cells:
        return None
    with one_thread():
        known = {name: seconds_per_update(METHODS[name], config=config) for name in {cell["method"] for cell in cells}}
    return sum(known[cell["method"]] for cell in cells) * config.steps / max(min(n_jobs, len(cells)), 1)


def compute(
    cells: Sequence[Cell], *, config: DigitConfig = CONFIG, folder: str | None = None, device: str = "cpu"
) -> list[dict[str, Any]]:
    """Train the network of each cell and evaluate it on the target's test images.

    A cell names ``task``, ``method`` and ``seed``, and may have ``look``, for what the page shows of one network.
    """
    return [_compute(cell, config, folder, device) for cell in cells]


def _compute(cell: Cell, config: DigitConfig, folder: str | None, device: str) -> dict[str, Any]:
    source, target = cell["task"].split("->")
    read = partial(digits_on_device, synth_size=config.synth_size, folder=folder, device=device)
    training = read(source, "train"), read(target, "train")
    started = time.perf_counter()
    network, orders, away = train(METHODS[cell["method"]], *training, cell["seed"], config=config, device=device)
    seconds = time.perf_counter() - started
    images, labels = read(target, "test")
    predicted = probabilities_of(network, images).argmax(1)
    unlabelled = probabilities_of(network, training[1][0][:SCORED]).cpu().numpy().astype(np.float64)
    unlabelled /= unlabelled.sum(axis=1, keepdims=True)
    # Counts by digit (rows) and prediction (columns).
    confusion = torch.bincount(labels * CLASSES + predicted, minlength=CLASSES**2).view(CLASSES, CLASSES)
    result = {
        "accuracy": float((predicted == labels).float().mean()),
        "source_accuracy": accuracy_of(network, *read(source, "test")),
        "scores": {
            "nuclear_norm": nuclear_norm(probabilities=unlabelled),
            "mutual_information": mutual_information(probabilities=unlabelled),
        },
        "confusion": confusion.tolist(),
        "orders": orders,
        "shares_away": None if away is None else round(away, 4),
        "seconds": round(seconds, 1),
    }
    if cell.get("look"):
        result["look"] = _look(network, read(source, "test")[0], images)
    return result


def _look(network: DigitCNN, source: Tensor, target: Tensor) -> dict[str, Any]:
    """What the page shows of one network: predictions for a few images, and embeddings of more in the plane."""
    from sklearn.manifold import TSNE

    probabilities = probabilities_of(network, target[_spread(len(target), SHOWN)])
    both = [activations_of(network, images[_spread(len(images), PLACED)]) for images in (source, target)]
    embeddings = torch.cat(both).float().cpu().numpy()
    # Two coordinates in which near rows stay near (t-SNE; L. van der Maaten, G. Hinton, 2008).
    plane = TSNE(init="pca", random_state=0, perplexity=min(30, len(embeddings) // 4)).fit_transform(embeddings)
    return {
        "predictions": probabilities.argmax(1).tolist(),
        "chances": [round(value, 3) for value in probabilities.amax(1).tolist()],
        "places": [[round(float(value), 2) for value in point] for point in plane],
    }


def samples(task: str, *, config: DigitConfig = CONFIG, folder: str | None = None) -> dict[str, Any]:
    """Return the images and labels that the page shows of a task, images as bytes in hexadecimal rows."""
    domains = [load_digits(name, "test", config.synth_size, folder) for name in task.split("->")]
    found: dict[str, Any] = {}
    for domain, digits in zip(("source", "target"), domains, strict=True):
        rows = _spread(len(digits.labels), SHOWN)
        found[f"{domain}_images"] = [digits.images[row].tobytes().hex() for row in rows]
        found[f"{domain}_labels"] = digits.labels[rows].tolist()
    placed = [digits.labels[_spread(len(digits.labels), PLACED)].tolist() for digits in domains]
    return {**found, "placed_labels": placed}


def _spread(rows: int, count: int) -> list[int]:
    """Rows at even distances, the same for every method."""
    return [int(row) for row in np.linspace(0, rows - 1, min(count, rows))]


@cache
def digits_on_device(name: str, split: Split, synth_size: int, folder: str | None, device: str) -> Images:
    """Return images as bytes and labels, on the device that trains, kept for the next cell."""
    images, labels = load_digits(name, split, synth_size, folder)
    torch_device = open_device(device)
    return torch.from_numpy(images).to(torch_device), torch.from_numpy(labels).to(torch_device)


def load_digits(name: str, split: Split, synth_size: int, folder: str | None) -> Digits:
    """Return a domain's images: loaded, or drawn for the stand-in of SynthDigits."""
    if name == "synth":
        size, seed = (synth_size, SYNTH_SEED) if split == "train" else (SYNTH_TEST_SIZE, SYNTH_TEST_SEED)
        return make_synth_digits(size, seed=seed, n_jobs=-1)
    loaders: dict[str, Callable[..., Digits]] = {"mnist": load_mnist, "svhn": load_svhn, "mnist-m": load_mnist_m}
    return loaders[name](split, folder)


# The page.
PLAIN, FIRST = "cnn", ("cmd", "cv-cmd")
DOT, CROSS = "h0", "m-3-3l6 6m0-6l-6 6"
CELL, SIDE = 36.0, 34.0
DARKEST = 0.5  # so that text on it can be read
ORDERS = {1: "1, mean", 2: "2, variance"}


def digits_page(result: Result) -> str:
    """Return the page of one result of ``momentalign reproduce digits``."""
    comparison = compare(result, DIGITS)
    recipe = dict(result["recipe"])
    # Changes of the images that were left out are left out.
    changes = {name: value for name, value in recipe.pop("augmentation").items() if value}
    plain = {name: ("yes" if value else "no") if isinstance(value, bool) else value for name, value in recipe.items()}
    whole = {**result, "protocol": {**plain, **changes, "device": result["device"]}, "data": {}}
    more = [Section(long_task(task), _task(result, comparison, task)) for task in comparison.tasks]
    tested = "Source → target; accuracy on the target's test images."
    return comparison_page(whole, DIGITS, title="Digit recognition", pair=(PLAIN, "cmd"), tested=tested, more=more)


def _task(result: Result, comparison: Comparison, task: str) -> list[Markup]:
    """The images of both domains and what networks without and with alignment make of them."""
    samples = result["samples"][task]
    source, target = long_task(task).split(" → ")
    labelled = [Tile(label, "", [Answer(label)]) for label in map(str, samples["source_labels"])]
    # Shown together: the plain network, if there is one, and each aligned one.
    plain = [method for method in comparison.titles if method == PLAIN]
    aligned = [method for method in comparison.titles if method != PLAIN]
    aligned.sort(key=lambda method: FIRST.index(method) if method in FIRST else len(FIRST))
    choices = [_choice(result, comparison, task, [*plain, method]) for method in aligned]
    choices = choices or [_choice(result, comparison, task, plain)]
    lead = f"Shown below are the networks of seed {result['seeds'][0]}."
    if len(choices) > 1:
        lead += " The buttons choose the aligned one; their bars are the accuracies without and with alignment."
    return [
        _figures(result, comparison, task),
        heading(f"Labelled images of {source}"),
        sheet(sprite(samples["source_images"]), [tiles(f"Images of {source} with their labels", labelled)]),
        heading(f"What becomes of {target}"),
        text(lead),
        sheet(sprite(samples["target_images"]), [picker(choices) if len(choices) > 1 else choices[0].panel]),
    ]


def sprite(images: Sequence[str]) -> str:
    """Return images (3, 32, 32) of bytes in hexadecimal, side by side as the address of one picture in PNG.

    Examples
    --------
    >>> sprite(["ff" * 3072])[:40]
    'data:image/png;base64,iVBORw0KGgoAAAANSU'
    """
    from PIL import Image

    pixels = np.frombuffer(bytes.fromhex("".join(images)), np.uint8).reshape(len(images), 3, 32, 32)
    file = io.BytesIO()
    Image.fromarray(np.hstack(list(pixels.transpose(0, 2, 3, 1)))).save(file, "PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode('ascii')}"


def _figures(result: Result, comparison: Comparison, task: str) -> Markup:
    """What was measured on one task, averaged over seeds."""
    rows = []
    for method, title in comparison.titles.items():
        column = result["methods"][method]
        shares = [float(np.mean(column[name][task])) for name in ("accuracy", "source_accuracy")]
        names = ("nuclear_norm", "mutual_information")
        scores = [float(np.mean([score[name] for score in column["scores"][task]])) for name in names]
        seconds = float(np.mean(column["seconds"][task]))
        cells = [number_cell(share, percent) for share in shares]
        cells += [number_cell(score, "{:.3f}".format) for score in scores]
        rows.append([TableCell(title), *cells, number_cell(seconds, "{:.0f}".format)])
    caption = (
        f"{long_task(task)}: accuracy on test images, scores of target images without their labels, time to train; "
        "means over seeds"
    )
    return table(caption, ["Method", "Target", "Source", "Nuclear norm", "Mutual information", "Seconds"], rows)


class _Network(NamedTuple):
    """A network as the page shows it: its title alone and with what it is, its style, and what was kept of it."""

    title: str
    name: str
    css: str
    kept: Mapping[str, Any]


def _choice(result: Result, comparison: Comparison, task: str, shown: Sequence[str]) -> Choice:
    """The picker's entry of one aligned method: predictions, confusions, embeddings and distances."""
    networks = [
        _Network(
            comparison.titles[method],
            f"{comparison.titles[method]}, {'without' if method == PLAIN else 'with'} alignment",
            "ma-nn" if method == PLAIN else "ma-mann",
            result["methods"][method]["closely"][task],
        )
        for method in shown
    ]
    labels, placed = (result["samples"][task][name] for name in ("target_labels", "placed_labels"))
    terms = {network.css: np.asarray(network.kept["orders"], dtype=float).T.tolist() for network in networks}
    names = {network.css: network.name for network in networks}
    orders = [
        figure(order_panel(order, dict(zip(terms, values, strict=True)), names=names))
        for order, values in enumerate(zip(*terms.values(), strict=False), start=1)
    ]
    confusions = [figure(confusion_panel(n.kept["confusion"], name=n.name), n.name) for n in networks]
    planes = [figure(embedding_panel(n.kept["places"], placed, name=n.name), n.name) for n in networks]
    signs = [
        Sign(marks([12], [7], DOT, "ma-spot ma-digit-0"), "source"),
        Sign(marks([12], [7], CROSS, "ma-stroke ma-digit-0"), "target"),
    ]
    parts = [
        *_predictions(networks, labels, long_task(task).split(" → ")[1]),
        heading("Which digit is taken for which"),
        text("A row for each digit, a column for each prediction, in percent of the row."),
        row(confusions, least="18rem", css="pair"),
        heading("Where images lie"),
        text(
            "Embeddings of test images, brought into the plane by t-SNE; a colour for each digit, its name in the "
            "middle of the source's images."
        ),
        key(signs),
        row(planes, least="18rem", css="pair"),
        heading("Distance, order by order"),
        text(
            "Terms of the central moment discrepancy between training images of source and target, before training "
            "and after each epoch; each picture has its own height."
        ),
        key([line_sign(f"ma-line {network.css}", network.name) for network in networks]),
        row(orders, least="9.5rem", css="plain"),
    ]
    anchor = f"{Section(long_task(task), ()).anchor}-{Section(shown[-1], ()).anchor}"
    means = [round(comparison.entries[method][task].mean) for method in shown]
    bars = [Bar(network.css, mean) for network, mean in zip(networks, means, strict=True)]
    return Choice(anchor, networks[-1].title, bars, Markup("").join(parts))


def _predictions(networks: Sequence[_Network], labels: Sequence[int], target: str) -> list[Markup]:
    """Images of the target with what each network predicts."""

    def answer(network: _Network, index: int) -> Answer:
        predicted, probability = (network.kept[name][index] for name in ("predictions", "chances"))
        note = f"{network.title} predicts {predicted} with {percent(probability)}"
        return Answer(f"{network.title} {predicted}", bool(predicted == labels[index]), note)

    entries = [Tile(f"{digit}", f"{digit}", [answer(n, at) for n in networks]) for at, digit in enumerate(labels)]
    right = [
        f"{network.title} reads {sum(entry.answers[index].right is True for entry in entries)}"
        for index, network in enumerate(networks)
    ]
    return [
        text(f"Of these {len(entries)} images {' and '.join(right)} right: ✓ is right, ✗ is wrong."),
        tiles(f"Images of {target} with what the networks predict", entries),
    ]


def confusion_panel(counts: Sequence[Sequence[int]], *, name: str) -> Picture:
    """Draw how often each digit (row) is taken for each digit (column), in percent of the row.

    A field is the darker the more frequent; mistakes have another colour.

    Examples
    --------
    >>> confusion_panel([[3, 1], [0, 2]], name="CNN").title
    'Confusion of digits, CNN, percent right: 0: 75, 1: 100; most frequent mistake: 0 taken for 1, 25 %'
    """
    table = np.asarray(counts, dtype=float)
    shares = table / np.maximum(table.sum(axis=1, keepdims=True), 1)
    parts = [label(SIDE + CELL * len(shares) / 2, 11, "what the network predicts")]
    for digit in range(len(shares)):
        middle = SIDE + CELL * (digit + 0.5)
        parts += [label(middle, 28, str(digit), "ma-heading"), label(16, middle + 4, str(digit), "ma-heading")]
    for (digit, predicted), share in np.ndenumerate(shares):
        x, y = SIDE + CELL * predicted, SIDE + CELL * digit
        css = "ma-mann" if digit == predicted else "ma-mistake"
        parts.append(
            Markup('<path class="ma-bar {}" fill-opacity="{:.2f}" d="M{} {}h{}v{}h-{}z"/>').format(
                css, DARKEST * share + 0.03, number(x + 0.5), number(y + 0.5), *[number(CELL - 1)] * 3
            )
        )
        if share >= 0.005:
            parts.append(label(x + CELL / 2, y + CELL / 2 + 4, f"{100 * share:.0f}", "ma-count"))
    right = ", ".join(f"{digit}: {100 * share:.0f}" for digit, share in enumerate(shares.diagonal()))
    mistakes = shares - np.diag(shares.diagonal())
    digit, predicted = np.unravel_index(mistakes.argmax(), mistakes.shape)
    most = f"{digit} taken for {predicted}, {100 * mistakes.max():.0f} %" if mistakes.max() > 0 else "none"
    title = f"Confusion of digits, {name}, percent right: {right}; most frequent mistake: {most}"
    size = SIDE + CELL * len(shares) + 1
    return Picture(size, size, title, Markup("").join(parts))


def embedding_panel(
    points: Sequence[Sequence[float]], labels: Sequence[Sequence[int]], *, name: str, size: float = 400
) -> Picture:
    """Draw embeddings in the plane: a colour for each digit, dots for the source, crosses for the target.

    `points` are two coordinates of every image, those of the source first; `labels` the digits of the source's images
    and those of the target's; `name` that of the network.
    """
    plane = np.asarray(points, dtype=float)
    middle = (plane.min(axis=0) + plane.max(axis=0)) / 2
    half = max(float(np.abs(plane - middle).max()), 1e-9)
    frame = Frame(
        x_range=(middle[0] - half, middle[0] + half), y_range=(middle[1] - half, middle[1] + half),
        width=size, height=size, left=10, right=10, top=10, bottom=10,
    )  # fmt: skip
    x, y = frame.x(plane[:, 0]), frame.y(plane[:, 1])
    digits, source = np.concatenate([np.asarray(part, dtype=int) for part in labels]), len(labels[0])
    of_source = np.arange(len(digits)) < source

    def by_digit(chosen: NDArray[np.bool_]) -> list[tuple[int, NDArray[np.intp]]]:
        return [(int(digit), np.flatnonzero(chosen & (digits == digit))) for digit in np.unique(digits[chosen])]

    parts = [
        group("", [marks(x[own], y[own], stroke, f"{css} ma-digit-{digit}") for digit, own in by_digit(chosen)])
        for stroke, css, chosen in ((DOT, "ma-spot", of_source), (CROSS, "ma-stroke", ~of_source))
    ]
    tags = [
        label(float(np.median(x[own])), float(np.median(y[own])) + 5, str(digit), "ma-tag")
        for digit, own in by_digit(of_source)
    ]
    title = (
        f"Embeddings of {source} source and {len(digits) - source} target images in the plane, {name}: "
        "a colour for each digit, dots for the source, crosses for the target"
    )
    return draw(frame, title, *parts, *tags)


def order_panel(order: int, values: Mapping[str, Sequence[float]], *, names: Mapping[str, str]) -> Picture:
    """Draw one order's term of the CMD over epochs, a line for each network.

    `values` are the term before training and after each epoch, and `names` those of the networks, both by the style of
    the line.
    """
    last = max(len(term) for term in values.values()) - 1
    top = max(1.08 * max(max(term) for term in values.values()), 1e-6)
    frame = Frame(
        x_range=(0, max(last, 1)), y_range=(0, top), width=220, height=150, left=44, right=10, top=26, bottom=22
    )
    x_ticks, y_ticks = [(0, "0"), (last, str(last))], [(at, f"{at:g}") for at in ticks(0, top, count=3)]
    parts = [
        label(4, 13, f"Order {ORDERS.get(order, str(order))}", "ma-heading", anchor="start"),
        axes(frame, x_ticks=x_ticks, y_ticks=y_ticks),
        *(line(frame.x(range(len(term))), frame.y(term), f"ma-line {css}") for css, term in values.items()),
    ]
    ends = ", ".join(f"{names[css]} from {term[0]:.3g} to {term[-1]:.3g}" for css, term in values.items())
    title = f"Distance of order {order} over {last} epochs: {ends}"
    return draw(frame, title, *parts)
