"""``momentalign predict``: a model folder and a file in, predictions out, row by row."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from momentalign.cli.options import TableFile
from momentalign.cli.results import counted, say

__all__ = ["predict"]


def predict(
    model: Annotated[Path, typer.Argument(help="The folder that momentalign fit wrote.")],
    data: TableFile,
    out: Annotated[Path | None, typer.Option(help="CSV, TSV or Parquet by its name (default: CSV, printed).")] = None,
    proba: Annotated[bool, typer.Option("--proba", help="Write the probability of each class too.")] = False,
    id_column: Annotated[str | None, typer.Option("--id", help="Column to keep (default: that of the model).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a summary as JSON; needs --out.")] = False,
) -> None:
    """Predict every row of a file of any size, in its order, and say when it drifted away from the model's target.

    Examples: momentalign predict model new.csv --out predictions.csv; momentalign predict model new.parquet --proba
    """
    import json

    from momentalign.errors import InvalidInputError
    from momentalign.workflow.predicting import predict_file

    if as_json and out is None:
        raise InvalidInputError(
            "--json prints a summary where predictions would be printed; say where they go, --out F."
        )
    with counted("predicting") as show:
        progress = None if show is None else lambda rows: show(rows, None)
        summary = predict_file(model, data, out=out, proba=proba, id_column=id_column, progress=progress)
    if as_json:
        typer.echo(json.dumps(summary.to_dict(), allow_nan=False))
    elif out is not None:
        found = ", ".join(f"{name} {count:,}" for name, count in summary.classes.items())
        if summary.values is not None:
            found = "mean {mean:.4g}, from {smallest:.4g} to {largest:.4g}".format(**summary.values)
        say(f"{summary.rows:,} rows: {found}; {out.resolve()}")
