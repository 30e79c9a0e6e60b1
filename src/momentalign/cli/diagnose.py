"""``momentalign diagnose``: what shifted between two files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from momentalign.cli.options import Browser, Out, TableFile
from momentalign.cli.results import show_page

if TYPE_CHECKING:
    from momentalign.report.diagnosis import Diagnosis

__all__ = ["diagnose"]

SHOWN = 10


def diagnose(
    source: TableFile,
    target: Annotated[Path, typer.Argument(help="The other file, with the same columns.")],
    label: Annotated[str | None, typer.Option(help="Column to leave out, where it is there.")] = None,
    id_column: Annotated[str | None, typer.Option("--id", help="Column that names rows, to leave out.")] = None,
    permutations: Annotated[int, typer.Option(min=1, help="Relabellings the distance is compared with.")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of all that is drawn.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON and write no page.")] = False,
    out: Out = Path("momentalign-diagnosis.html"),
    open_page: Browser = None,
) -> None:
    """Say what shifted between two files, how much, and whether it is significant.

    Examples: momentalign diagnose last_year.csv this_year.csv --label churn; momentalign diagnose a.npz b.npz --json
    """
    import json

    from momentalign.report.diagnosis import diagnose as find_shift
    from momentalign.report.page import write_page

    first, second = (_rows(path, label, id_column) for path in (source, target))
    found = find_shift(first, second, n_permutations=permutations, random_state=seed)
    if as_json:
        typer.echo(json.dumps(found.to_dict(), allow_nan=False))
        return
    typer.echo(found.verdict)
    typer.echo(_table(found))
    write_page(json.dumps(found.to_dict(), allow_nan=False), out.with_suffix(".json"))
    found.to_html(out)
    show_page(out, open_page)


def _rows(path: Path, label: str | None, id_column: str | None) -> Any:
    """The rows of a file without labels and names."""
    from momentalign.data.tables.reading import read_table

    return read_table(path, label=label, label_required=False, id_column=id_column).rows


def _table(found: Diagnosis) -> str:
    """The features that differ most, one in a line."""
    lines = [f"{'feature':30s} {'distance':>8s} {'p adjusted':>10s} {'mean shift':>10s}  changed in"]
    for feature in found.result["features"][:SHOWN]:
        shift = feature["mean_shift"]
        lines.append(
            f"{feature['name'][:30]:30s} {_number(feature['distance'], 8)} {_number(feature['p_adjusted'], 10)} "
            f"{_number(shift, 10)}  {', '.join(feature['changes'])}"
        )
    rest = len(found.result["features"]) - SHOWN
    return "\n".join(lines if rest <= 0 else [*lines, f"and {rest} more on the page"])


def _number(value: float | None, width: int) -> str:
    return f"{'':>{width}s}" if value is None else f"{value:{width}.3g}"
