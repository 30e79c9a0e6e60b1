"""``momentalign datasets``: what is known, what is here, and downloads of the public originals."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from momentalign.cli.results import help_if_alone

if TYPE_CHECKING:
    from momentalign.paper.catalogue import DataSet
    from momentalign.paper.originals import NamedProgress, Presence

__all__ = ["datasets"]

datasets = typer.Typer(
    help="List the data sets of the paper, say where they are, and download them.",
    invoke_without_command=True,
    rich_markup_mode=None,
)

Data = Annotated[Path | None, typer.Option(help="Folder of the data sets (default: MOMENTALIGN_DATA).")]

WORDS = {
    "right": "here, checksums right",
    "counted": "here, no checksum is known, counts right",
    "damaged": "here, but not what it should be",
    "in part": "here in part",
    "absent": "not here",
}


@datasets.callback()
def datasets_root(context: typer.Context) -> None:
    """List the data sets of the paper, say where they are, and download them."""
    help_if_alone(context)


@datasets.command("list")
def list_data_sets(
    data: Data = None,
    as_json: Annotated[bool, typer.Option("--json", help="Everything that is known, as JSON.")] = False,
) -> None:
    """Say what is known: what it is, its licence, whether it is here and right, and where it comes from.

    Examples: momentalign datasets list; momentalign datasets list --data DIR --json
    """
    import json
    import os

    from momentalign.paper.catalogue import DATA_SETS

    place = data if data is not None else os.environ.get("MOMENTALIGN_DATA")
    entries = [_entry(data_set, None if place is None else Path(place)) for data_set in DATA_SETS]
    if as_json:
        typer.echo(json.dumps(entries, indent=1))
        return
    typer.echo("folder: " + (str(place) if place is not None else "none; give --data DIR or set MOMENTALIGN_DATA"))
    for entry in entries:
        typer.echo(_described(entry))


@datasets.command("path")
def show_path(
    name: Annotated[str | None, typer.Argument(help="A data set; without one, the folder of all.")] = None,
    data: Data = None,
) -> None:
    """Print the folder of the data sets, or the files of one, a line each; exit code 2 where they are not there.

    Examples: momentalign datasets path; momentalign datasets path mnist --data DIR
    """
    from momentalign.errors import DataNotFoundError
    from momentalign.paper.catalogue import find_data_set
    from momentalign.paper.originals import look

    if name is None:
        folder = _folder(data, "The folder")
        if not folder.is_dir():
            raise DataNotFoundError(f"{folder} is not there; momentalign datasets get NAME makes it.")
        typer.echo(folder)
        return
    data_set = find_data_set(name)
    folder = _folder(data, name)
    found = look(data_set, folder)
    if found.state not in ("right", "counted"):
        raise DataNotFoundError(f"{name} in {folder}: {WORDS[found.state]}; {_remedy(data_set)}.")
    for path in found.paths:
        typer.echo(path)


@datasets.command("get")
def get_data_sets(
    names: Annotated[list[str], typer.Argument(help="Data sets to download; list shows them.", metavar="NAME")],
    data: Data = None,
    mirror: Annotated[
        str | None,
        typer.Option(help="A place with the same paths; its scheme and host stand for those of every address."),
    ] = None,
) -> None:
    """Download the public originals, check them, and make of them what the readers read.

    A transfer that was stopped goes on where it was. Where no checksum was published the content is counted, and the
    digests that were seen are written beside it.

    Examples: momentalign datasets get mnist; momentalign datasets get artificial reviews --data DIR
    """
    from momentalign.paper.catalogue import find_data_set
    from momentalign.paper.originals import get

    chosen = [find_data_set(name) for name in dict.fromkeys(names)]
    folder = _folder(data, chosen[0].name)
    for data_set in chosen:
        found = get(data_set, folder, mirror=mirror, progress=_progress())
        typer.echo(f"{data_set.name}: {WORDS[found.state]}, in {folder}{_aside(data_set, found, folder)}")


def _folder(data: Path | None, name: str) -> Path:
    from momentalign.paper.catalogue import data_folder

    return data_folder(data, name=name, explanation="Any folder that can be written will do for a download.")


def _entry(data_set: DataSet, folder: Path | None) -> dict[str, Any]:
    from momentalign.paper.originals import look

    found = None if folder is None else look(data_set, folder)
    return {
        "name": data_set.name,
        "what": data_set.what,
        "licence": data_set.licence,
        "state": "absent" if found is None else found.state,
        "paths": [] if found is None else [str(path) for path in found.paths],
        "originals": [{"url": original.url, "sha256": original.sha256} for original in data_set.originals],
        "files": [
            {"name": file.name, "sha256": file.sha256, "rebuilt_sha256": file.rebuilt_sha256, "origin": file.origin}
            for file in data_set.files
        ],
        "note": data_set.note,
    }


def _described(entry: dict[str, Any]) -> str:
    """An entry in a few lines."""
    urls = [original["url"] for original in entry["originals"]]
    more = f" and {len(urls) - 1} more" if len(urls) > 1 else ""
    sums = " ".join(f"{file['name']} {file['sha256'][:12]}" for file in entry["files"])
    return (
        f"\n{entry['name']}: {WORDS[entry['state']]}\n"
        f"  what     {entry['what']}\n"
        f"  licence  {entry['licence']}\n"
        f"  from     {urls[0] + more if urls else 'not published'}\n"
        f"  sha256   {sums}" + (f"\n  note     {entry['note']}" if entry["note"] else "")
    )


def _remedy(data_set: DataSet) -> str:
    return f"momentalign datasets get {data_set.name} downloads it" if data_set.originals else data_set.note


def _aside(data_set: DataSet, found: Presence, folder: Path) -> str:
    record = folder / f"{data_set.name}.origin.json"
    seen = f"; the digests seen are in {record.name}" if found.state == "counted" and record.is_file() else ""
    return seen + (f"; {data_set.note}" if data_set.note else "")


def _progress() -> NamedProgress | None:
    """A line on standard error that counts, in a terminal."""
    return _count if sys.stderr.isatty() else None


def _count(name: str, done: int, total: int | None) -> None:
    whole = "" if total is None else f" of {total / 1e6:.1f}"
    end = "\n" if done == total else ""
    sys.stderr.write(f"\r{name}: {done / 1e6:.1f}{whole} MB{end}")
