"""``momentalign reproduce``: the experiments of the paper, ours beside the paper's."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

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
    names_in,
    open_journal,
    say,
    show_artificial,
    write_results,
)

__all__ = ["reproduce"]

reproduce = typer.Typer(
    help="Run an experiment of the paper and put ours beside the paper's.",
    invoke_without_command=True,
    rich_markup_mode=None,
)


@reproduce.callback()
def reproduce_root(context: typer.Context) -> None:
    """Run an experiment of the paper and put ours beside the paper's."""
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
    show_artificial(load_artificial(data), chosen, networks, out, open_page, data="authors", data_seed=None)


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
    methods: Annotated[str, typer.Option(help="Columns of the table, with commas.")] = "nn,dann,coral,tca,mmd,cmd",
    seeds: Annotated[int, typer.Option(min=1, max=1000, help="Repetitions of every method on every task.")] = 10,
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
    from momentalign.paper.catalogue import REVIEWS, find_file
    from momentalign.paper.sentiment import identity, refuse_unknown, run, sentiment_page
    from momentalign.paper.tables import compare, latex, markdown
    from momentalign.training.torch_engine import open_device

    find_file(REVIEWS, data)
    chosen = names_in(methods)
    refuse_unknown(chosen)
    open_device(device)
    with counted("sentiment") as progress:
        journal = open_journal(out, identity("sentiment"), fresh=fresh)
        result = run(chosen, journal, seeds=range(seeds), n_jobs=jobs, device=device, folder=data, progress=progress)
    comparison = compare(result)
    typer.echo(markdown(comparison))
    figures = {"table_2.md": markdown(comparison), "table_2.tex": latex(comparison)}
    write_results(result, sentiment_page(result), out, open_page, figures=figures)


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
    from momentalign.paper.catalogue import REVIEWS, find_file
    from momentalign.paper.sensitivity import claims, figure_5, refuse_unknown, run, sensitivity_page
    from momentalign.paper.sentiment import identity
    from momentalign.training.torch_engine import open_device

    find_file(REVIEWS, data)
    chosen = names_in(panels)
    refuse_unknown(chosen)
    open_device(device)
    with counted("sensitivity") as progress:
        journal = open_journal(out, identity("sensitivity"), fresh=fresh)
        result = run(chosen, journal, n_jobs=jobs, device=device, folder=data, progress=progress)
    for claim in claims(result):
        typer.echo(f"{'yes' if claim.holds else 'no':4s}{claim.paper}; here: {claim.here}")
    write_results(result, sensitivity_page(result), out, open_page, figures={"figure_5.svg": figure_5(result)})


@reproduce.command("objects")
def reproduce_objects(
    methods: Annotated[
        str, typer.Option(help="Columns of the table, with commas.")
    ] = "nn,cnn,tca,mmd,coral,dann,cmd,fp-cmd,cv-cmd",
    seeds: Annotated[int, typer.Option(min=1, max=1000, help="Repetitions of every method on every task.")] = 5,
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
    from momentalign.paper.object_heads import open_features
    from momentalign.paper.objects import identity, needs_crops, objects_page, refuse_unknown, run
    from momentalign.paper.tables import OBJECTS, compare, latex, markdown
    from momentalign.training.torch_engine import open_device

    chosen = names_in(methods)
    refuse_unknown(chosen)
    open_device(device)
    folder = cache if cache is not None else out.with_name("momentalign-features")
    with counted("features") as progress:
        features = open_features(
            data, backbone=backbone, cache=folder, crops=needs_crops(chosen), device=device, n_jobs=jobs,
            say=say, progress=progress,
        )  # fmt: skip
    with counted("objects") as progress:
        journal = open_journal(out, identity(features), fresh=fresh)
        result = run(
            chosen, features, journal, seeds=range(seeds), n_jobs=jobs, device=device, say=say, progress=progress
        )
    comparison = compare(result, OBJECTS)
    typer.echo(markdown(comparison))
    figures = {"table_4.md": markdown(comparison), "table_4.tex": latex(comparison)}
    write_results(result, objects_page(result), out, open_page, figures=figures)


@reproduce.command("digits")
def reproduce_digits(
    methods: Annotated[str, typer.Option(help="Columns of the table, with commas.")] = "cnn,coral,cmd,cv-cmd",
    seeds: Annotated[int, typer.Option(min=1, max=1000, help="Repetitions of every method on every task.")] = 5,
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
    from momentalign.paper.digit_networks import RECIPE
    from momentalign.paper.digits import identity, refuse_unknown, run
    from momentalign.paper.digits_page import digits_page
    from momentalign.paper.tables import DIGITS, compare, latex, markdown
    from momentalign.training.torch_engine import open_device

    chosen, pairs = names_in(methods), names_in(tasks.replace(":", "->"))
    refuse_unknown(chosen, pairs)
    open_device(device)
    with counted("digits") as progress:
        journal = open_journal(out, identity("digits", RECIPE), fresh=fresh)
        result = run(
            chosen, journal, seeds=range(seeds), tasks=pairs, n_jobs=jobs, device=device, folder=data,
            say=say, progress=progress,
        )  # fmt: skip
    comparison = compare(result, DIGITS)
    words = markdown(comparison) + (f"\n{result['note']}\n" if "note" in result else "")
    typer.echo(words)
    figures = {"table_5.md": words, "table_5.tex": latex(comparison)}
    write_results(result, digits_page(result), out, open_page, figures=figures)
