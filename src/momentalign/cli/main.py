"""The root of the command line: version, help, and errors as one line."""

from __future__ import annotations

import sys
import warnings
from typing import Annotated, NoReturn

import typer

from momentalign.cli.paper import datasets, demo, reproduce
from momentalign.cli.results import (
    INTERRUPTED,
    came_of_interruption,
    hear_termination,
    help_if_alone,
    leave_interrupted,
    say,
    show_warning,
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
    warnings.showwarning = show_warning
    hear_termination()
    try:
        code = app(standalone_mode=False)
        if sys.stdout is not None:
            sys.stdout.flush()  # At the end of the process an error could no longer be told.
    except (KeyboardInterrupt, typer.Abort):
        leave_interrupted()
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)
    except Exception as error:
        _fail(_mendable(error), code=2)
    if code == INTERRUPTED:  # Newer versions of typer turn ^C into the code it stands for.
        leave_interrupted()
    sys.exit(code if isinstance(code, int) else 0)


def _mendable(error: Exception) -> str:
    """Return the message of an error the user can mend, as a full disk; raise any other, unless it came of ^C."""
    from momentalign.errors import MomentAlignError

    if isinstance(error, MomentAlignError):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename or 'the output'} cannot be used ({error.strerror}); give another, or make room."
    if hasattr(error, "format_message"):  # A wrong option or command; where its class lives depends on typer's version.
        return f"{error.format_message()} Try --help."
    if came_of_interruption(error):
        leave_interrupted()
    raise error


def _fail(message: str, *, code: int) -> NoReturn:
    say(f"momentalign: {message}")
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
