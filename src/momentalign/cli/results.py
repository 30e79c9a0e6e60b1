"""What commands share: options, outputs that replace nothing else, the page, and the exit codes of ^C and SIGTERM."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, NoReturn

import typer

__all__ = [
    "INTERRUPTED",
    "Browser",
    "Device",
    "FirstSeed",
    "Fresh",
    "Jobs",
    "Out",
    "ReviewData",
    "Seeds",
    "TableFile",
    "came_of_interruption",
    "check_outputs",
    "counted",
    "hear_termination",
    "help_if_alone",
    "interrupted_code",
    "names_in",
    "open_journal",
    "refuse_to_replace",
    "say",
    "show_page",
    "write_results",
]


# The kinds of results that are written beside pages.
_RESULTS = {"artificial", "diagnosis", "digits", "objects", "overpenalization", "sensitivity", "sentiment"}


def check_outputs(outputs: Mapping[str, Path], inputs: Iterable[Path] = ()) -> None:
    """Refuse outputs of one name, and an output that is a file that is read."""
    from momentalign.tables.opening import check_outputs as check

    check(outputs, inputs)


def _check_page(out: Path) -> Path:
    """Refuse a page that would replace its own results or journal, or whose results would replace another file."""
    if not out.name:
        raise typer.BadParameter(f"--out {out} names no file.")
    results = out.with_suffix(".json")
    check_outputs({"the page": out, "its results": results, "its journal": out.with_suffix(".jsonl")})
    if results.is_file():
        import json

        try:
            found = json.loads(results.read_bytes())
        except ValueError:
            found = None
        if not (isinstance(found, dict) and found.get("kind") in _RESULTS):
            refuse_to_replace(results)
    return out


def refuse_to_replace(path: Path) -> NoReturn:
    """Refuse to replace a file that momentalign did not write."""
    from momentalign.errors import InvalidInputError

    raise InvalidInputError(
        f"{path} would be replaced and is not a result of momentalign; move it away or give another name to --out."
    )


def help_if_alone(context: typer.Context) -> None:
    """Show the help of a command that was called without one of its own."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def names_in(text: str) -> list[str]:
    """Return names given with commas, each once."""
    return list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def say(message: str) -> None:
    """Print a message on standard error."""
    typer.echo(message, err=True)


def open_journal(out: Path, identity: dict[str, Any], *, fresh: bool) -> Any:
    """The journal beside a page."""
    from momentalign.journal import Journal

    return Journal(out.with_suffix(".jsonl"), identity, fresh=fresh)


@contextmanager
def counted(title: str) -> Iterator[Any]:
    """Show how many parts are finished, in a terminal."""
    from momentalign.progress import progress_bar

    with progress_bar(title, verbose=int(sys.stderr.isatty())) as progress:
        yield progress


def write_results(
    result: dict[str, Any], page: str, out: Path, open_page: bool | None, *, figures: dict[str, str]
) -> None:
    """Write the results, the figures as the paper draws them, and the page that shows all."""
    import json

    from momentalign.report.page import write_page

    outputs = {"the page": out, "its results": out.with_suffix(".json")}
    check_outputs(outputs | {name: out.with_name(name) for name in figures})
    write_page(json.dumps(result, allow_nan=False), out.with_suffix(".json"))
    for name, figure in figures.items():
        write_page(figure, out.with_name(name))
    write_page(page, out)
    show_page(out, open_page)


def show_page(out: Path, open_page: bool | None) -> None:
    """Say where a page is, and open it where that was asked for or a person sits at a screen."""
    typer.echo(f"page: {out.resolve()}")
    if open_page or (open_page is None and _has_browser()):
        import webbrowser

        webbrowser.open(out.resolve().as_uri())


def _has_browser() -> bool:
    """Whether a person sits at a terminal with a screen."""
    import os

    screen = sys.platform in ("win32", "darwin") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    return sys.stdout.isatty() and screen


Seeds = Annotated[int, typer.Option(min=1, max=1000, help="Networks to train, with seeds one after the other.")]
FirstSeed = Annotated[int, typer.Option(min=0, help="Seed of the first network.")]
Out = Annotated[
    Path, typer.Option(callback=_check_page, help="The page to write; its results are written beside it as JSON.")
]
Browser = Annotated[
    bool | None, typer.Option("--open/--no-open", help="Open the page in a browser (default: in a terminal).")
]
ReviewData = Annotated[Path | None, typer.Option(help="Folder with amazon_reviews.npz (default: MOMENTALIGN_DATA).")]
Jobs = Annotated[int, typer.Option(help="Processes to compute in; -1 takes every core.")]
Device = Annotated[str, typer.Option(help="cpu, or cuda where there is one: all tasks side by side.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Forget what an earlier run finished.")]
TableFile = Annotated[Path, typer.Argument(help="CSV, TSV, Parquet, npz, svmlight, or a folder of images.")]


INTERRUPTED, TERMINATED = 130, 143

_heard: list[int] = []


def hear_termination() -> None:
    """Let SIGTERM, with which systems stop a process, do what ^C does."""
    signal.signal(signal.SIGTERM, _interrupt)


def interrupted_code() -> int:
    """Return the exit code of a command that was interrupted: 143 after SIGTERM, else 130."""
    return TERMINATED if _heard else INTERRUPTED


def came_of_interruption(error: BaseException) -> bool:
    """Return whether an error came up while something was cleared up after an interruption.

    Examples
    --------
    >>> came_of_interruption(RuntimeError("a pool that has not started cannot be stopped"))
    False
    """
    earlier = error.__context__
    return isinstance(error, KeyboardInterrupt) or (earlier is not None and came_of_interruption(earlier))


def _interrupt(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    _heard.append(number)
    raise KeyboardInterrupt
