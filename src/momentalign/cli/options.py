"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["Browser", "Device", "FirstSeed", "Fresh", "Jobs", "Out", "ReviewData", "Seeds", "TableFile"]

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
TableFile = Annotated[Path, typer.Argument(help="CSV, TSV, Parquet, npz, svmlight, or a folder of images.")]
