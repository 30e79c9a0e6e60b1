"""The root of the command line: version, help, and errors as one line."""

from __future__ import annotations

import sys
import warnings
from typing import Annotated, NoReturn, TextIO

import typer

from momentalign.cli.paper import datasets, demo, reproduce
from momentalign.cli.results import (
    INTERRUPTED,
    came_of_interruption,
    hear_termination,
    help_if_alone,
    interrupted_code,
)
from momentalign.cli.tables import diagnose, fit, predict

__all__ = ["app", "main"]

app = typer.Typer(
    name="momentalign",
    help="Unsupervised domain adaptation by moment alignment: train where there are labels, work where there are none.",
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command()(diagnose)
app.command()(fit)
app.command()(predict)
app.command()(demo)
app.add_typer(datasets, name="datasets")
app.add_typer(reproduce, name="reproduce")


def main() -> None:
    """Run the command line; every error the user can mend becomes one line and exit code 2."""
    warnings.showwarning = _show_warning
    hear_termination()
    try:
        code = app(standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        _fail("interrupted", code=interrupted_code())
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)
    except Exception as error:
        _fail(" ".join(_mendable(error).split()), code=2)
    if code == INTERRUPTED:  # Newer versions of typer turn ^C into the code it stands for.
        _fail("interrupted", code=interrupted_code())
    sys.exit(code if isinstance(code, int) else 0)


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,  # noqa: ARG001
    line: str | None = None,
) -> None:
    """Show what was decided for the user as one line; other warnings as Python does."""
    if category.__name__ == "MomentAlignWarning":
        typer.echo(f"momentalign: warning: {' '.join(str(message).split())}", err=True)
    else:
        typer.echo(warnings.formatwarning(message, category, filename, lineno, line), err=True, nl=False)


def _mendable(error: Exception) -> str:
    """Return the message of an error the user can mend; raise any other, unless it came of ^C."""
    from momentalign.errors import MomentAlignError

    missing = isinstance(error, ModuleNotFoundError) and "pip install momentalign[" in str(error)
    if isinstance(error, MomentAlignError) or missing:
        return str(error)
    if hasattr(error, "format_message"):  # A wrong option or command; where its class lives depends on typer's version.
        return f"{error.format_message()} Try --help."
    if came_of_interruption(error):
        _fail("interrupted", code=interrupted_code())
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


@app.callback()
def root(
    context: typer.Context,
    version: Annotated[  # noqa: ARG001  (its callback does the work)
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version, torch and device."),
    ] = False,
) -> None:
    """Unsupervised domain adaptation by moment alignment: train where there are labels, work where there are none."""
    help_if_alone(context)
