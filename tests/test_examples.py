"""The examples run as their first lines say."""

import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def run(name, *arguments):
    return subprocess.run(
        [sys.executable, EXAMPLES / name, *map(str, arguments)], check=True, capture_output=True, text=True
    ).stdout


def test_two_files_have_a_shift_and_the_target_no_labels(tmp_path):
    assert "284 labelled and 285 unlabelled rows" in run("two_files.py", tmp_path / "tumours")
    source, target, checked = (
        pd.read_csv(tmp_path / "tumours" / f"{name}.csv") for name in ("source", "target", "checked")
    )
    assert list(source.columns) == [*target.columns, "diagnosis"]
    assert (source["diagnosis"] == "malignant").mean() < 0.2 < 0.5 < (checked["diagnosis"] == "malignant").mean()


@pytest.mark.data
def test_review_files_hold_both_categories(tmp_path):
    import os

    run("review_files.py", os.environ["MOMENTALIGN_DATA"], tmp_path)
    books = pd.read_csv(tmp_path / "books.csv")
    assert books.shape == (2000, 201)
    assert (books["opinion"] == "good").sum() == 1000
    assert len((tmp_path / "kitchen.svmlight").read_text().splitlines()) == 2000
