"""The command line: parses, calls, prints. Heavy imports stand inside the commands, so that help is instant.

Exit codes: 0 done, 2 for what the user can mend (one line on standard error), 130 on ^C.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

__all__ = ["app", "main"]

app = typer.Typer(
    name="momentalign",
    help="Unsupervised domain adaptation by moment alignment: train where there are labels, work where there are none.",
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
reproduce = typer.Typer(
    help="Run an experiment of the paper and put ours beside the paper's.",
    invoke_without_command=True,
    rich_markup_mode=None,
)
app.add_typer(reproduce, name="reproduce")

Seeds = Annotated[int, typer.Option(min=1, max=1000, help="Networks to train, with seeds one after the other.")]
FirstSeed = Annotated[int, typer.Option(min=0, help="Seed of the first network.")]
Out = Annotated[Path, typer.Option(help="The page to write; its results are written beside it as JSON.")]
Browser = Annotated[
    bool | None, typer.Option("--open/--no-open", help="Open the page in a browser (default: in a terminal).")
]
ReviewData = Annotated[Path | None, typer.Option(help="Folder with amazon_reviews.npz (default: MOMENTALIGN_DATA).")]
Jobs = Annotated[int, typer.Option(help="Processes to compute in; -1 takes every core.")]
Device = Annotated[str, typer.Option(help="cpu, or cuda where there is one: all tasks side by side.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Forget what an earlier run finished.")]


def main() -> None:
    """Run the command line; every error the user can mend becomes one line and exit code 2."""
    try:
        code = app(standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        _fail("interrupted", code=130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)
    except Exception as error:
        _fail(" ".join(_mendable(error).split()), code=2)
    sys.exit(code if isinstance(code, int) else 0)


def _mendable(error: Exception) -> str:
    """Return the message of an error the user can mend; raise any other."""
    from momentalign.errors import MomentAlignError

    if isinstance(error, MomentAlignError):
        return str(error)
    if hasattr(error, "format_message"):  # A wrong option or command; where its class lives depends on typer's version.
        return f"{error.format_message()} Try --help."
    raise error


def _fail(message: str, *, code: int) -> NoReturn:
    typer.echo(f"momentalign: {message}", err=True)
    sys.exit(code)


def _show_version(wanted: bool) -> None:
    if not wanted:
        return
    from importlib.metadata import version

    import torch

    from momentalign import __version__

    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    typer.echo(f"momentalign {__version__}, torch {version('torch')}, device {device}")
    raise typer.Exit


def _help_if_alone(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.callback()
def root(
    context: typer.Context,
    version: Annotated[  # noqa: ARG001  (its callback does the work)
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version, torch and device."),
    ] = False,
) -> None:
    """Unsupervised domain adaptation by moment alignment: train where there are labels, work where there are none."""
    _help_if_alone(context)


@reproduce.callback()
def reproduce_root(context: typer.Context) -> None:
    """Run an experiment of the paper and put ours beside the paper's."""
    _help_if_alone(context)


@app.command()
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
    from momentalign.data.generators import make_artificial
    from momentalign.experiments.artificial import PAPER

    problem, networks = make_artificial(data_seed), range(first_seed, first_seed + seeds)
    _artificial(problem, PAPER, networks, out, open_page, data="generated", data_seed=data_seed)


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
    from momentalign.data.benchmarks import load_artificial
    from momentalign.experiments.artificial import find_setting

    chosen, networks = find_setting(setting), range(first_seed, first_seed + seeds)
    _artificial(load_artificial(data), chosen, networks, out, open_page, data="authors", data_seed=None)


@reproduce.command("overpenalization")
def reproduce_overpenalization(out: Out = Path("momentalign-overpenalization.html"), open_page: Browser = None) -> None:
    """Section 7.1 and Figure 2: where distances of raw moments prefer the wrong distribution.

    Examples: momentalign reproduce overpenalization; momentalign reproduce overpenalization --out figure_2.html
    """
    from momentalign.experiments.overpenalization import run
    from momentalign.report.overpenalization import figure_2, overpenalization_page

    result = run()
    for row in result["rows"]:
        typer.echo(f"{row['metric']:34s} left {row['left']:.6f}  right {row['right']:.6f}  closer: {row['prefers']}")
    _write(result, overpenalization_page(result), out, open_page, figures={"figure_2.svg": figure_2(result)})


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
    from momentalign.data.benchmarks import REVIEWS, find_file
    from momentalign.experiments.review_cells import identity
    from momentalign.experiments.sentiment import refuse_unknown, run
    from momentalign.experiments.tables import compare, latex, markdown
    from momentalign.report.sentiment import sentiment_page
    from momentalign.training.batched import open_device

    find_file(REVIEWS, data)
    chosen = list(dict.fromkeys(name.strip() for name in methods.split(",") if name.strip()))
    refuse_unknown(chosen)
    open_device(device)
    with _counted("sentiment") as progress:
        journal = _journal(out, identity("sentiment"), fresh=fresh)
        result = run(chosen, journal, seeds=range(seeds), n_jobs=jobs, device=device, folder=data, progress=progress)
    comparison = compare(result)
    typer.echo(markdown(comparison))
    figures = {"table_2.md": markdown(comparison), "table_2.tex": latex(comparison)}
    _write(result, sentiment_page(result), out, open_page, figures=figures)


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
    from momentalign.data.benchmarks import REVIEWS, find_file
    from momentalign.experiments.review_cells import identity
    from momentalign.experiments.sensitivity import refuse_unknown, run
    from momentalign.experiments.sensitivity_figures import claims
    from momentalign.report.sensitivity import figure_5, sensitivity_page
    from momentalign.training.batched import open_device

    find_file(REVIEWS, data)
    chosen = list(dict.fromkeys(name.strip() for name in panels.split(",") if name.strip()))
    refuse_unknown(chosen)
    open_device(device)
    with _counted("sensitivity") as progress:
        journal = _journal(out, identity("sensitivity"), fresh=fresh)
        result = run(chosen, journal, n_jobs=jobs, device=device, folder=data, progress=progress)
    for claim in claims(result):
        typer.echo(f"{'yes' if claim.holds else 'no':4s}{claim.paper}; here: {claim.here}")
    _write(result, sensitivity_page(result), out, open_page, figures={"figure_5.svg": figure_5(result)})


def _journal(out: Path, identity: dict[str, Any], *, fresh: bool) -> Any:
    """The journal beside a page."""
    from momentalign.journal import Journal

    return Journal(out.with_suffix(".jsonl"), identity, fresh=fresh)


@contextmanager
def _counted(title: str) -> Iterator[Any]:
    """Show how many parts are finished, in a terminal."""
    from momentalign.estimators.progress import counting_progress

    with counting_progress(title, verbose=int(sys.stderr.isatty())) as progress:
        yield progress


def _artificial(
    problem: Any, setting: Any, seeds: range, out: Path, open_page: bool | None, *, data: str, data_seed: int | None
) -> None:
    from momentalign.estimators.progress import training_progress
    from momentalign.experiments.artificial import run
    from momentalign.report.artificial import artificial_page, figure_3, figure_4

    with training_progress("training", verbose=int(sys.stderr.isatty())) as progress:
        result = run(problem, setting, seeds=seeds, data=data, data_seed=data_seed, progress=progress)
    median = result["median"]
    nn, mann = 100 * median["nn_accuracy"], 100 * median["mann_accuracy"]
    typer.echo(
        f"target accuracy, median of {len(seeds)}: plain network {nn:.1f} %, moment-aligned network {mann:.1f} %"
    )
    typer.echo(result["sentence"])
    figures = {"figure_3.svg": figure_3(result), "figure_4.svg": figure_4(result)} if data == "authors" else {}
    _write(result, artificial_page(result), out, open_page, figures=figures)


def _write(result: dict[str, Any], page: str, out: Path, open_page: bool | None, *, figures: dict[str, str]) -> None:
    """Write the results, the figures as the paper draws them, and the page that shows all."""
    import json

    from momentalign.report.page import write_page

    write_page(json.dumps(result, allow_nan=False), out.with_suffix(".json"))
    for name, figure in figures.items():
        write_page(figure, out.with_name(name))
    write_page(page, out)
    typer.echo(f"page: {out.resolve()}")
    if open_page or (open_page is None and _has_browser()):
        import webbrowser

        webbrowser.open(out.resolve().as_uri())


def _has_browser() -> bool:
    """Whether a person sits at a terminal with a screen."""
    import os

    screen = sys.platform in ("win32", "darwin") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    return sys.stdout.isatty() and screen
