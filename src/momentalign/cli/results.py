"""What commands share: options, outputs that replace nothing else, the page, and the exit codes of ^C and SIGTERM."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, NoReturn, TextIO

import typer

from momentalign.errors import printable

__all__ = [
    "INTERRUPTED",
    "Browser",
    "Device",
    "FirstSeed",
    "Fresh",
    "Jobs",
    "Out",
    "OutOfTables",
    "ReviewData",
    "Seeds",
    "TableFile",
    "came_of_interruption",
    "check_outputs",
    "counted",
    "ended_soon",
    "hear_termination",
    "help_if_alone",
    "leave_interrupted",
    "left_at_once",
    "open_journal",
    "refuse_foreign_page",
    "say",
    "show",
    "show_notes",
    "show_page",
    "show_warning",
    "write_results",
]


_warned: set[str] = set()
# Every page shows it.
_BRAND = b'<p class="brand">momentalign</p>'
# The kinds of results that are written beside pages.
_RESULTS = {"artificial", "diagnosis", "digits", "objects", "overpenalization", "sensitivity", "sentiment"}


def check_outputs(outputs: Mapping[str, Path], inputs: Iterable[str | Path] = ()) -> None:
    """Refuse outputs of one name, and an output that is a file that is read."""
    from momentalign.tables.opening import check_outputs as check

    check(outputs, inputs)


def _check_page(out: Path) -> Path:
    """Refuse a page that would replace its own results or journal, or whose results would replace another file."""
    if not out.name:
        raise typer.BadParameter(f"--out {out} names no file.")
    results = out.with_suffix(".json")
    check_outputs({"the page": out, "its results": results, "its journal": out.with_suffix(".jsonl")})
    if results.is_file() and not _is_result(results.read_bytes()):
        _refuse_to_replace(results)
    return out


def _check_lone_page(out: Path) -> Path:
    """Refuse also a page that would replace another file, where no table is read that it could be."""
    refuse_foreign_page(_check_page(out))
    return out


def _is_result(content: bytes) -> bool:
    import json

    try:
        found = json.loads(content)
    except ValueError:
        return False
    return isinstance(found, dict) and found.get("kind") in _RESULTS


def refuse_foreign_page(path: Path) -> None:
    """Refuse to replace a file that is no page of momentalign; an empty one may be."""
    if path.is_file() and _BRAND not in (content := path.read_bytes()) and content:
        _refuse_to_replace(path)


def _refuse_to_replace(path: Path) -> NoReturn:
    from momentalign.errors import InvalidInputError

    raise InvalidInputError(
        f"{path} would be replaced and is not a result of momentalign; move it away or give another name to --out."
    )


def help_if_alone(context: typer.Context) -> None:
    """Show the help of a command that was called without one of its own."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def show(lines: str) -> None:
    """Print lines in which names of columns and files may hold anything, as what a terminal shows and does not obey."""
    typer.echo("\n".join(map(printable, lines.split("\n"))))


def show_notes(notes: Iterable[str]) -> None:
    """Print what was decided or counted, except what a warning has said already."""
    for note in notes:
        if note not in _warned:
            show(f"note: {note}")


def show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,  # noqa: ARG001
    line: str | None = None,
) -> None:
    """Show what was decided for the user as one line; other warnings as Python does."""
    if category.__name__ == "MomentAlignWarning":
        _warned.add(str(message))
        say(f"momentalign: warning: {message}")
    else:
        typer.echo(warnings.formatwarning(message, category, filename, lineno, line), err=True, nl=False)


def say(message: str) -> None:
    """Print a message on standard error, where there is one that takes it."""
    with suppress(OSError):
        typer.echo(printable(message), err=True)


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
    show(f"page: {out.resolve()}")
    if open_page or (open_page is None and _has_browser()):
        import webbrowser

        webbrowser.open(out.resolve().as_uri())


def _has_browser() -> bool:
    """Whether a person sits at a terminal with a screen."""
    screen = sys.platform in ("win32", "darwin") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    return sys.stdout.isatty() and screen


Seeds = Annotated[int, typer.Option(min=1, max=1000, help="Networks to train, with seeds one after the other.")]
FirstSeed = Annotated[int, typer.Option(min=0, help="Seed of the first network.")]
_OUT = "The page to write; its results are written beside it as JSON."
Out = Annotated[Path, typer.Option(callback=_check_lone_page, help=_OUT)]
OutOfTables = Annotated[Path, typer.Option(callback=_check_page, help=_OUT)]
Browser = Annotated[
    bool | None, typer.Option("--open/--no-open", help="Open the page in a browser (default: in a terminal).")
]
ReviewData = Annotated[Path | None, typer.Option(help="Folder with amazon_reviews.npz (default: MOMENTALIGN_DATA).")]
Jobs = Annotated[int, typer.Option(help="Processes to compute in; -1 takes every core.")]
Device = Annotated[str, typer.Option(help="cpu, or cuda where there is one: all tasks side by side.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Forget what an earlier run finished.")]
TableFile = Annotated[
    str, typer.Argument(help="CSV, Parquet, Excel, JSON lines, ..., images, or a table: sqlite:///FILE#TABLE.")
]


INTERRUPTED, TERMINATED = 130, 143

# Seconds in which a command that was interrupted may clear up.
_PATIENCE = 1.0

_heard: list[int] = []
_told: list[bool] = []
_hurried: list[bool] = []


def hear_termination() -> None:
    """Let SIGTERM, with which systems stop a process, do what ^C does."""
    if threading.current_thread() is threading.main_thread():  # No other may set what a signal does.
        signal.signal(signal.SIGTERM, _interrupt)


@contextmanager
def left_at_once() -> Iterator[None]:
    """Let ^C end the process once the main thread has cleared up, although other threads still compute."""
    _hurried.append(True)
    yield
    _hurried.clear()


@contextmanager
def ended_soon() -> Iterator[None]:
    """Let ^C end the process soon, although threads that compile or train go on to the end of what they do.

    Only for what writes nothing but whole files: it may end at any moment. A thread waits for the signal, since the
    main thread hears of it only when it comes back from the compiler.
    """
    if threading.current_thread() is not threading.main_thread():  # which alone hears signals
        yield
        return
    receiver, sender = socket.socketpair()
    sender.setblocking(False)
    earlier = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
    threading.Thread(target=_end_after, args=(receiver,), daemon=True).start()
    try:
        with left_at_once():
            yield
    finally:
        signal.set_wakeup_fd(earlier)
        sender.close()


def _end_after(receiver: socket.socket) -> None:
    with receiver:
        while numbers := receiver.recv(1):
            if numbers[0] in (signal.SIGINT, signal.SIGTERM):
                time.sleep(_PATIENCE)
                _tell()
                os._exit(TERMINATED if numbers[0] == signal.SIGTERM else INTERRUPTED)


def leave_interrupted() -> NoReturn:
    """Say that a command was interrupted, and leave with 130, or with 143 after SIGTERM."""
    _tell()
    code = TERMINATED if _heard else INTERRUPTED
    if _hurried:  # The end of the interpreter would wait for threads, and may clear up for a long time.
        os._exit(code)
    sys.exit(code)


def _tell() -> None:
    if not _told:
        _told.append(True)
        say("momentalign: interrupted")


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
