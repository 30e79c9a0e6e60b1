"""``momentalign fit``: two files in, a model folder and a page out."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from momentalign.cli.options import Browser, TableFile
from momentalign.cli.results import counted, say, show_page
from momentalign.cli.signals import interrupted_code

__all__ = ["fit"]

DEFAULT_FOLDER = Path("momentalign-model")


def fit(
    source: TableFile,
    target: Annotated[Path, typer.Argument(help="The unlabelled file, with the same columns.")],
    label: Annotated[str, typer.Option(help="Column of the source's labels.")],
    out: Annotated[Path, typer.Option(help="Folder of the model, and of report.html in it.")] = Path(
        "momentalign-model"
    ),
    method: Annotated[str, typer.Option(help="cmd, cv-cmd, mmd, coral, dann, or none for a plain network.")] = "cmd",
    seeds: Annotated[int, typer.Option(min=1, max=1000, help="Networks to train with each weight.")] = 1,
    max_epochs: Annotated[int | None, typer.Option(min=1, help="Most epochs of a network.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto: a GPU where there is one.")] = "auto",
    text: Annotated[str | None, typer.Option(help="A column of free text, as words and pairs of words.")] = None,
    target_label: Annotated[
        str | None, typer.Option(help="Column of the target's labels, for evaluation only.")
    ] = None,
    id_column: Annotated[str | None, typer.Option("--id", help="Column that names rows.")] = None,
    regression: Annotated[bool, typer.Option("--regression", help="Labels are numbers to predict.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Refuse columns that only one file has.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
    open_page: Browser = None,
) -> None:
    """Train on a labelled file so that the model works on an unlabelled one.

    Plain and adapted networks are trained over a grid of weights and combined without a label of the target; of those
    that predict numbers the one with weight 1 is taken. ^C leaves the model of the networks that are finished.

    Examples: momentalign fit last_year.csv this_year.csv --label churn; momentalign fit a.csv b.csv --label price
    --regression
    """
    import json

    from momentalign.report.fit import fit_page
    from momentalign.report.page import write_page
    from momentalign.workflow.fitting import fit_files

    with counted("training") as progress:
        result = fit_files(
            source, target, label=label, out=out, method=method, seeds=seeds, max_epochs=max_epochs, device=device,
            text=text, target_label=target_label, id_column=id_column, regression=regression, strict=strict,
            progress=progress,
        )  # fmt: skip
    write_page(fit_page(result.summary), out / "report.html")
    if as_json:
        typer.echo(json.dumps(result.summary, allow_nan=False))
    else:
        typer.echo(_table(result.summary))
        typer.echo(str(result.summary["verdict"]))
        typer.echo(f"model: {out.resolve()}")
        show_page(out / "report.html", open_page)
    if result.interrupted:
        say("momentalign: interrupted; the model is that of the networks that were finished")
        sys.exit(interrupted_code())


def _table(summary: Mapping[str, Any]) -> str:
    """One line for each weight and one for what was made of them.

    The columns: accuracy on held-out source rows, label-free score (nuclear norm of the target's predictions), distance
    of the hidden activations without and with alignment. Where numbers are predicted, R^2 and no label-free score.
    """
    columns = {"source_accuracy": "source", "score": "score", "distance_before": "before", "distance_after": "after"}
    on_target = {"target_accuracy": "target"}
    if summary["task"] == "regression":
        columns = {"source_r2": "source R²", "distance_before": "before", "distance_after": "after"}
        on_target = {"target_r2": "target R²"}
    if summary["evaluation"] is not None:
        columns |= on_target
    lines = [f"{'network':28s}" + "".join(f"{word:>10s}" for word in columns.values())]
    for row in summary["rows"]:
        figures = "".join(f"{'' if row.get(key) is None else format(row[key], '.3f'):>10s}" for key in columns)
        lines.append(f"{row['name'][:28]:28s}{figures}")
    return "\n".join(lines)
