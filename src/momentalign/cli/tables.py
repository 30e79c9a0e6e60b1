"""The commands for tables: ``fit`` makes a model of two files, ``diagnose`` compares them, ``predict`` predicts."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from momentalign.cli.results import (
    Browser,
    OutOfTables,
    TableFile,
    check_outputs,
    counted,
    ended_soon,
    left_at_once,
    refuse_foreign_page,
    say,
    show,
    show_notes,
    show_page,
)

if TYPE_CHECKING:
    from momentalign.evaluation.diagnose import Diagnosis

__all__ = ["diagnose", "fit", "predict"]

# Features that diagnose prints; the page has all.
SHOWN = 10


def fit(
    source: TableFile,
    target: Annotated[str, typer.Argument(help="The unlabelled file, with the same columns.")],
    label: Annotated[str, typer.Option(help="Column of the source's labels.")],
    out: Annotated[Path, typer.Option(help="Folder of the model, with report.html and model_card.md.")] = Path(
        "momentalign-model"
    ),
    method: Annotated[
        str, typer.Option(help="auto, a portfolio; or networks: cmd, cv-cmd, mmd, coral, dann, none for a plain one.")
    ] = "auto",
    weight: Annotated[float | None, typer.Option(min=0, help="Weight of the distance in a network.")] = None,
    seeds: Annotated[
        int, typer.Option(min=1, max=1000, help="Models to train; the best on held-out rows is kept.")
    ] = 1,
    max_epochs: Annotated[int | None, typer.Option(min=1, help="Most epochs of a network.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto: a GPU where there is one.")] = "auto",
    text: Annotated[str | None, typer.Option(help="A column of free text, as words and pairs of words.")] = None,
    target_label: Annotated[
        str | None, typer.Option(help="Column of the target's labels, for evaluation only.")
    ] = None,
    id_column: Annotated[str | None, typer.Option("--id", help="Column that names rows.")] = None,
    regression: Annotated[bool, typer.Option("--regression", help="Labels are numbers to predict.")] = False,
    threshold: Annotated[
        str | None,
        typer.Option(help="Probability from which on the rarer of two classes is predicted: a number, f1, cost:FP,FN."),
    ] = None,
    class_weight: Annotated[str | None, typer.Option(help="balanced: classes count alike in training.")] = None,
    sample_weight: Annotated[str | None, typer.Option(help="Column of the source that holds row weights.")] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse rows without a label and columns that only one file has.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of all that is drawn.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
    open_page: Browser = None,
) -> None:
    """Train on a labelled file so that the model works on an unlabelled one.

    A portfolio of plain and adapted models is trained and averaged as far as the evidence supports, without a label of
    the target. --weight, --seeds, --max-epochs and a GPU are settings of networks: with one of them and no method, the
    method is cmd. ^C leaves an earlier model of the folder as it was.

    Examples: momentalign fit last_year.csv this_year.csv --label churn; momentalign fit a.csv b.csv --label price
    --regression
    """
    import json

    import momentalign as ma
    from momentalign.files import check_folder
    from momentalign.report.model_card import refuse_foreign_card
    from momentalign.report.sentences import printed

    page = out / "report.html"
    check_outputs({"the model": out, "its page": page}, [source, target])
    refuse_foreign_page(page)
    refuse_foreign_card(out)
    check_folder(out)
    with ended_soon():
        model = ma.fit(
            source, target, label=label, method=method, weight=weight, seeds=seeds, max_epochs=max_epochs,
            device=device, text=text, target_label=target_label, id_column=id_column, regression=regression,
            threshold=threshold, class_weight=class_weight, sample_weight=sample_weight, strict=strict,
            random_state=seed, verbose=int(sys.stderr.isatty()),
        )  # fmt: skip
    model.save(out)
    model.report(page)
    summary = {**(model.summary or {}), "model": str(out)}
    if as_json:
        typer.echo(json.dumps(summary, allow_nan=False))
        return
    show(printed(summary))
    show_notes(summary["notes"])
    show(f"model: {out.resolve()}")
    show_page(page, open_page)


def diagnose(
    source: TableFile,
    target: Annotated[str, typer.Argument(help="The other file, with the same columns.")],
    label: Annotated[str | None, typer.Option(help="Column to leave out, where it is there.")] = None,
    id_column: Annotated[str | None, typer.Option("--id", help="Column that names rows, to leave out.")] = None,
    permutations: Annotated[int, typer.Option(min=1, help="Relabellings the distance is compared with.")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of all that is drawn.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON and write no page.")] = False,
    out: OutOfTables = Path("momentalign-diagnosis.html"),
    open_page: Browser = None,
) -> None:
    """Say what shifted between two files, how much, and whether it is significant.

    Examples: momentalign diagnose last_year.csv this_year.csv --label churn; momentalign diagnose a.npz b.npz --json
    """
    import json

    from momentalign.evaluation.diagnose import diagnose as find_shift
    from momentalign.report.page import write_page
    from momentalign.tables.read import read_table

    if not as_json:
        check_outputs({"the page": out, "its results": out.with_suffix(".json")}, [source, target])
        refuse_foreign_page(out)
    first, second = (
        read_table(path, label=label, label_required=False, id_column=id_column).rows for path in (source, target)
    )
    with ended_soon():
        found = find_shift(first, second, n_permutations=permutations, random_state=seed)
    if as_json:
        typer.echo(json.dumps(found.to_dict(), allow_nan=False))
        return
    show(found.verdict)
    show(_features(found))
    write_page(json.dumps(found.to_dict(), allow_nan=False), out.with_suffix(".json"))
    found.to_html(out)
    show_page(out, open_page)


def _features(found: Diagnosis) -> str:
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


def predict(
    model: Annotated[Path, typer.Argument(help="The folder that momentalign fit wrote.")],
    data: TableFile,
    out: Annotated[Path | None, typer.Option(help="CSV, TSV or Parquet by its name (default: CSV, printed).")] = None,
    proba: Annotated[bool, typer.Option("--proba", help="Write the probability of each class too.")] = False,
    risk: Annotated[
        bool, typer.Option("--risk", help="Write how confident the model is of each row too, and flag risky rows.")
    ] = False,
    id_column: Annotated[str | None, typer.Option("--id", help="Column to keep (default: that of the model).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a summary as JSON; needs --out.")] = False,
) -> None:
    """Predict every row of a file of any size, in its order, and say when it drifted away from the model's target.

    Examples: momentalign predict model new.csv --out predictions.csv; momentalign predict model new.parquet --proba
    """
    import json

    from momentalign.errors import InvalidInputError
    from momentalign.workflow.predict import predict_file

    if as_json and out is None:
        raise InvalidInputError(
            "--json prints a summary where predictions would be printed; say where they go, --out F."
        )
    with left_at_once(), counted("predicting") as show:
        progress = None if show is None else lambda rows: show(rows, None)
        summary = predict_file(model, data, out=out, proba=proba, risk=risk, id_column=id_column, progress=progress)
    if as_json:
        typer.echo(json.dumps(summary.to_dict(), allow_nan=False))
    elif out is not None:
        found = ", ".join(f"{name} {count:,}" for name, count in summary.classes.items())
        if summary.values is not None:
            found = "mean {mean:.4g}, from {smallest:.4g} to {largest:.4g}".format(**summary.values)
        say(f"{summary.rows:,} rows: {found}; {out.resolve()}")
