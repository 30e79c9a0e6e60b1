"""The commands of the paper: ``demo``, ``reproduce`` (its experiments) and ``datasets`` (what they need)."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from momentalign.cli.results import (
    Browser,
    Device,
    FirstSeed,
    Fresh,
    Jobs,
    Out,
    ReviewData,
    Seeds,
    counted,
    help_if_alone,
    open_journal,
    say,
    write_results,
)

if TYPE_CHECKING:
    from momentalign.paper.artificial import Setting
    from momentalign.paper.catalogue import DataSet
    from momentalign.paper.problems import Problem
    from momentalign.paper.tables import PaperTable

__all__ = ["datasets", "demo", "reproduce"]

reproduce = typer.Typer(
    help="Run an experiment of the paper and compare the results with the paper's.",
    invoke_without_command=True,
    rich_markup_mode=None,
)
datasets = typer.Typer(
    help="List the data sets of the paper, say where they are, and download them.",
    invoke_without_command=True,
    rich_markup_mode=None,
)

Data = Annotated[Path | None, typer.Option(help="Folder of the data sets (default: MOMENTALIGN_DATA).")]
TableSeeds = Annotated[int, typer.Option(min=1, max=1000, help="Repetitions of every method on every task.")]
Methods = Annotated[str, typer.Option(help="Columns of the table, with commas.")]
STATES = {
    "right": "here, checksums right",
    "counted": "here, no checksum is known, counts right",
    "damaged": "here, but not what it should be",
    "in part": "here in part",
    "absent": "not here",
}


def demo(
    seeds: Seeds = 5,
    first_seed: FirstSeed = 0,
    data_seed: Annotated[int, typer.Option(min=0, help="Seed of the generated data.")] = 0,
    out: Out = Path("momentalign-demo.html"),
    open_page: Browser = None,
) -> None:
    """Generate two shifted domains, train a plain and a moment-aligned network, and show both as one page.

    Examples: momentalign demo; momentalign demo --seeds 3 --out page.html --no-open
    """
    from momentalign.paper.artificial import PAPER
    from momentalign.paper.problems import make_artificial

    networks = range(first_seed, first_seed + seeds)
    _show_artificial(make_artificial(data_seed), PAPER, networks, out, open_page, data_seed=data_seed)


@reproduce.callback()
def reproduce_root(context: typer.Context) -> None:
    """Run an experiment of the paper and compare the results with the paper's."""
    help_if_alone(context)


@reproduce.command("artificial")
def reproduce_artificial(
    seeds: Seeds = 20,
    first_seed: FirstSeed = 0,
    data: Annotated[Path | None, typer.Option(help="Folder with artificial.npz (default: MOMENTALIGN_DATA).")] = None,
    setting: Annotated[
        str, typer.Option(help="paper, or momentalign for our own, picked by a label-free score.")
    ] = "paper",
    out: Out = Path("momentalign-artificial.html"),
    open_page: Browser = None,
) -> None:
    """Section 6.2, Figures 3 and 4, on the authors' 639 + 639 points.

    Examples: momentalign reproduce artificial --data DIR; momentalign reproduce artificial --setting momentalign
    """
    from momentalign.paper.artificial import find_setting
    from momentalign.paper.problems import load_artificial

    chosen, networks = find_setting(setting), range(first_seed, first_seed + seeds)
    _show_artificial(load_artificial(data), chosen, networks, out, open_page)


def _show_artificial(
    problem: Problem,
    setting: Setting,
    seeds: range,
    out: Path,
    open_page: bool | None,
    *,
    data_seed: int | None = None,
) -> None:
    """Train on the artificial problem (the authors', or one drawn from a seed), print the result and write its page."""
    from momentalign.paper.artificial import run
    from momentalign.paper.artificial_page import artificial_page, figure_3, figure_4
    from momentalign.progress import epoch_bar

    data = "authors" if data_seed is None else "generated"
    with epoch_bar("training", verbose=int(sys.stderr.isatty())) as progress:
        result = run(problem, setting, seeds=seeds, data=data, data_seed=data_seed, progress=progress)
    nn, mann = (100 * result["median"][f"{name}_accuracy"] for name in ("nn", "mann"))
    typer.echo(
        f"target accuracy, median of {len(seeds)}: plain network {nn:.1f} %, moment-aligned network {mann:.1f} %"
    )
    typer.echo(result["sentence"])
    figures = {"figure_3.svg": figure_3(result), "figure_4.svg": figure_4(result)} if data_seed is None else {}
    write_results(result, artificial_page(result), out, open_page, figures=figures)


@reproduce.command("overpenalization")
def reproduce_overpenalization(out: Out = Path("momentalign-overpenalization.html"), open_page: Browser = None) -> None:
    """Section 7.1 and Figure 2: where distances of raw moments prefer the wrong distribution.

    Examples: momentalign reproduce overpenalization; momentalign reproduce overpenalization --out figure_2.html
    """
    from momentalign.paper.overpenalization import figure_2, overpenalization_page, run

    result = run()
    for row in result["rows"]:
        typer.echo(f"{row['metric']:34s} left {row['left']:.6f}  right {row['right']:.6f}  closer: {row['prefers']}")
    write_results(result, overpenalization_page(result), out, open_page, figures={"figure_2.svg": figure_2(result)})


@reproduce.command("sentiment")
def reproduce_sentiment(
    methods: Methods = "nn,dann,coral,tca,mmd,cmd",
    seeds: TableSeeds = 10,
    data: ReviewData = None,
    jobs: Jobs = -1,
    device: Device = "cpu",
    fresh: Fresh = False,
    out: Out = Path("momentalign-sentiment.html"),
    open_page: Browser = None,
) -> None:
    """Section 6.3, Table 2: twelve tasks on the reviews, every method beside the paper's.

    NN and CMD take a minute or two on two cores; the grid of MMD, 100 settings on each task, half an hour. Finished
    parts are kept in a journal beside the page; a run that was stopped goes on where it was.

    Examples: momentalign reproduce sentiment --data DIR; momentalign reproduce sentiment --methods nn,cmd --seeds 3
    """
    from momentalign.paper.sentiment import METHODS, review_identity, run, sentiment_page
    from momentalign.paper.tables import REVIEWS

    _check_reviews(data)
    chosen = _check(methods, METHODS, "method", device)
    with counted("sentiment") as progress:
        journal = open_journal(out, review_identity("sentiment"), fresh=fresh)
        result = run(chosen, journal, seeds=range(seeds), n_jobs=jobs, device=device, folder=data, progress=progress)
    _show_table(result, REVIEWS, "table_2", sentiment_page(result), out, open_page)


@reproduce.command("sensitivity")
def reproduce_sensitivity(
    panels: Annotated[str, typer.Option(help="Parts of the figure, with commas.")] = "cmd_orders,mmd_betas,hidden",
    data: ReviewData = None,
    jobs: Jobs = -1,
    device: Device = "cpu",
    fresh: Fresh = False,
    out: Out = Path("momentalign-sensitivity.html"),
    open_page: Browser = None,
) -> None:
    """Section 6.6, Figure 5: accuracy on the reviews over the number of moments, beta, and the number of hidden nodes.

    The grid of the CMD takes a few minutes on two cores, all panels about an hour. Finished parts are kept in a journal
    beside the page; a run that was stopped goes on where it was.

    Examples: momentalign reproduce sensitivity --data DIR; momentalign reproduce sensitivity --panels cmd_orders
    """
    from momentalign.paper.sensitivity import PANELS, claims, figure_5, run, sensitivity_page
    from momentalign.paper.sentiment import review_identity

    _check_reviews(data)
    chosen = _check(panels, PANELS, "panel", device)
    with counted("sensitivity") as progress:
        journal = open_journal(out, review_identity("sensitivity"), fresh=fresh)
        result = run(chosen, journal, n_jobs=jobs, device=device, folder=data, progress=progress)
    for claim in claims(result):
        typer.echo(f"{'yes' if claim.holds else 'no':4s}{claim.paper}; here: {claim.here}")
    write_results(result, sensitivity_page(result), out, open_page, figures={"figure_5.svg": figure_5(result)})


@reproduce.command("objects")
def reproduce_objects(
    methods: Methods = "nn,cnn,tca,mmd,coral,dann,cmd,fp-cmd,cv-cmd",
    seeds: TableSeeds = 5,
    data: Annotated[
        Path | None,
        typer.Option(help="Folder with office31_jpeg.npz or with amazon, dslr, webcam (default: MOMENTALIGN_DATA)."),
    ] = None,
    backbone: Annotated[
        Path | None,
        typer.Option(help="EfficientNet-Lite0 or AlexNet, .safetensors or .pth (default: the installed package)."),
    ] = None,
    cache: Annotated[Path | None, typer.Option(help="Folder to keep features in (default: beside the page).")] = None,
    jobs: Jobs = -1,
    device: Device = "cpu",
    fresh: Fresh = False,
    out: Out = Path("momentalign-objects.html"),
    open_page: Browser = None,
) -> None:
    """Section 6.4, Table 4: six tasks on Office-31, every method on features of a frozen network.

    Features are computed once and kept. It is said beforehand how long that and the trainings take; NN and FP-CMD with
    one seed are ready within half an hour on two cores. Finished parts are kept in a journal beside the page; a run
    that was stopped goes on where it was.

    Examples: momentalign reproduce objects --methods nn,fp-cmd --seeds 1; momentalign reproduce objects --device cuda
    """
    from momentalign.paper.objects import METHODS, needs_crops, object_identity, objects_page, run
    from momentalign.paper.office import open_features
    from momentalign.paper.tables import OBJECTS

    chosen = _check(methods, METHODS, "method", device)
    folder = cache if cache is not None else out.with_name("momentalign-features")
    with counted("features") as progress:
        features = open_features(
            data, backbone=backbone, cache=folder, crops=needs_crops(chosen), device=device, n_jobs=jobs,
            say=say, progress=progress,
        )  # fmt: skip
    with counted("objects") as progress:
        journal = open_journal(out, object_identity(features), fresh=fresh)
        result = run(
            chosen, features, journal, seeds=range(seeds), n_jobs=jobs, device=device, say=say, progress=progress
        )
    _show_table(result, OBJECTS, "table_4", objects_page(result), out, open_page)


@reproduce.command("digits")
def reproduce_digits(
    methods: Methods = "cnn,coral,cmd,cv-cmd",
    seeds: TableSeeds = 5,
    tasks: Annotated[
        str, typer.Option(help="Source and target of every task, with a colon between them and commas between tasks.")
    ] = "svhn:mnist,mnist:mnist-m,synth:svhn",
    data: Annotated[
        Path | None, typer.Option(help="Folder with MNIST, SVHN and MNIST-M (default: MOMENTALIGN_DATA).")
    ] = None,
    jobs: Annotated[int, typer.Option(help="Processes to compute in, also side by side on one accelerator.")] = 1,
    device: Annotated[str, typer.Option(help="cpu, or cuda where there is one.")] = "cpu",
    fresh: Fresh = False,
    out: Out = Path("momentalign-digits.html"),
    open_page: Browser = None,
) -> None:
    """Section 6.5, Table 5: three tasks on images of digits, every method with the same convolutional network.

    Meant for an accelerator: there a network takes less than a minute, on a CPU hours; how many is said beforehand.
    Finished networks are kept in a journal beside the page; a run that was stopped goes on where it was.

    Examples: momentalign reproduce digits --device cuda --jobs 4; momentalign reproduce digits --tasks mnist:mnist-m
    """
    from momentalign.paper.digit_networks import CONFIG
    from momentalign.paper.digits import METHODS, TASKS, digit_identity, digits_page, run
    from momentalign.paper.experiment import check_names
    from momentalign.paper.tables import DIGITS

    pairs = check_names(tasks.replace(":", "->"), TASKS, "task")
    chosen = _check(methods, METHODS, "method", device)
    with counted("digits") as progress:
        journal = open_journal(out, digit_identity(CONFIG), fresh=fresh)
        result = run(
            chosen, journal, seeds=range(seeds), tasks=pairs, n_jobs=jobs, device=device, folder=data,
            say=say, progress=progress,
        )  # fmt: skip
    _show_table(result, DIGITS, "table_5", digits_page(result), out, open_page)


def _check_reviews(data: Path | None) -> None:
    from momentalign.paper.catalogue import find_file
    from momentalign.paper.problems import REVIEWS_FILE

    find_file(REVIEWS_FILE, data)


def _check(names: str, known: Iterable[str], kind: str, device: str) -> list[str]:
    """Return what is to be run, after a look at the device it is to run on."""
    from momentalign.paper.experiment import check_names
    from momentalign.training.torch_engine import open_device

    chosen = check_names(names, known, kind)
    open_device(device)
    return chosen


def _show_table(
    result: dict[str, Any], paper: PaperTable, name: str, page: str, out: Path, open_page: bool | None
) -> None:
    """Print a table beside the paper's and write it as Markdown, as LaTeX and as a page."""
    from momentalign.paper.tables import compare, latex, markdown

    comparison, note = compare(result, paper), result.get("note")
    printed = markdown(comparison) + (f"\n{note}\n" if note else "")
    typer.echo(printed)
    write_results(result, page, out, open_page, figures={f"{name}.md": printed, f"{name}.tex": latex(comparison)})


@datasets.callback()
def datasets_root(context: typer.Context) -> None:
    """List the data sets of the paper, say where they are, and download them."""
    help_if_alone(context)


@datasets.command("list")
def list_data_sets(
    data: Data = None,
    as_json: Annotated[bool, typer.Option("--json", help="Everything that is known, as JSON.")] = False,
) -> None:
    """Say what is known: what it is, its licence, whether it is here and right, and where it comes from.

    Examples: momentalign datasets list; momentalign datasets list --data DIR --json
    """
    import json
    import os

    from momentalign.paper.catalogue import DATA_SETS

    folder = data if data is not None else os.environ.get("MOMENTALIGN_DATA")
    entries = [_entry(data_set, None if folder is None else Path(folder)) for data_set in DATA_SETS]
    if as_json:
        typer.echo(json.dumps(entries, indent=1))
        return
    typer.echo(f"folder: {folder or 'none; give --data DIR or set MOMENTALIGN_DATA'}")
    for entry in entries:
        urls = [original["url"] for original in entry["originals"]]
        more = f" and {len(urls) - 1} more" if len(urls) > 1 else ""
        digests = " ".join(f"{file['name']} {file['sha256'][:12]}" for file in entry["files"])
        typer.echo(
            f"\n{entry['name']}: {STATES[entry['state']]}\n"
            f"  what     {entry['what']}\n"
            f"  licence  {entry['licence']}\n"
            f"  from     {urls[0] + more if urls else 'not published'}\n"
            f"  sha256   {digests}" + (f"\n  note     {entry['note']}" if entry["note"] else "")
        )


def _entry(data_set: DataSet, folder: Path | None) -> dict[str, Any]:
    from dataclasses import asdict

    from momentalign.paper.originals import Presence, look

    found = Presence("absent", ()) if folder is None else look(data_set, folder)
    known = asdict(data_set)
    shown = ("name", "sha256", "rebuilt_sha256", "origin")
    return {
        **{name: known[name] for name in ("name", "what", "licence")},
        "state": found.state,
        "paths": [str(path) for path in found.paths],
        "originals": known["originals"],
        "files": [{name: file[name] for name in shown} for file in known["files"]],
        "note": known["note"],
    }


@datasets.command("path")
def show_path(
    name: Annotated[str | None, typer.Argument(help="A data set; without one, the folder of all.")] = None,
    data: Data = None,
) -> None:
    """Print the folder of the data sets, or the files of one, a line each; exit code 2 where they are not there.

    Examples: momentalign datasets path; momentalign datasets path mnist --data DIR
    """
    from momentalign.errors import DataNotFoundError
    from momentalign.paper.catalogue import find_data_set
    from momentalign.paper.originals import look

    if name is None:
        folder = _folder(data, "The folder")
        if not folder.is_dir():
            raise DataNotFoundError(f"{folder} is not there; momentalign datasets get NAME makes it.")
        typer.echo(folder)
        return
    data_set = find_data_set(name)
    folder = _folder(data, name)
    found = look(data_set, folder)
    if found.state not in ("right", "counted"):
        remedy = f"momentalign datasets get {name} downloads it" if data_set.originals else data_set.note
        raise DataNotFoundError(f"{name} in {folder}: {STATES[found.state]}; {remedy}.")
    for path in found.paths:
        typer.echo(path)


@datasets.command("get")
def get_data_sets(
    names: Annotated[list[str], typer.Argument(help="Data sets to download; list shows them.", metavar="NAME")],
    data: Data = None,
    mirror: Annotated[
        str | None,
        typer.Option(help="An address with the same paths; its scheme and host replace those of every address."),
    ] = None,
) -> None:
    """Download the public originals, check them, and make them into what the experiments read.

    A transfer that was stopped goes on where it was. Where no checksum was published the content is counted, and the
    digests of the downloads are written beside it.

    Examples: momentalign datasets get mnist; momentalign datasets get artificial reviews --data DIR
    """
    from momentalign.paper.catalogue import find_data_set
    from momentalign.paper.originals import get

    chosen = [find_data_set(name) for name in dict.fromkeys(names)]
    folder = _folder(data, chosen[0].name)
    for data_set in chosen:
        found = get(data_set, folder, mirror=mirror, progress=_count_bytes)
        record = folder / f"{data_set.name}.origin.json"
        digests = f"; its digests are in {record.name}" if found.state == "counted" and record.is_file() else ""
        note = f"; {data_set.note}" if data_set.note else ""
        typer.echo(f"{data_set.name}: {STATES[found.state]}, in {folder}{digests}{note}")


def _folder(data: Path | None, name: str) -> Path:
    from momentalign.paper.catalogue import data_folder

    return data_folder(data, name=name, explanation="Any folder that can be written will do for a download.")


def _count_bytes(name: str, done: int, total: int | None) -> None:
    """A line on standard error that counts, in a terminal."""
    if not sys.stderr.isatty():
        return
    whole = "" if total is None else f" of {total / 1e6:.1f}"
    end = "\n" if done == total else ""
    sys.stderr.write(f"\r{name}: {done / 1e6:.1f}{whole} MB{end}")
