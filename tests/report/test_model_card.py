"""The model card: what it tells, that nothing in a table becomes markup, and that no other file is replaced."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from markdown_it import MarkdownIt

import momentalign as ma
from momentalign.cli import main
from momentalign.errors import InvalidInputError
from momentalign.workflow.model import TableModel

NASTY = "**<img src=x>** | [here](http://x.example) www.x.example a@x.example `x` ~~$x$~~"


def tables(seed: int, *, spend: str = "spend", classes: tuple[str, str] = ("no", "yes")) -> list[pd.DataFrame]:
    """A source and a target whose customers have names and whose spending is known to 12 digits."""
    random = np.random.default_rng(seed)
    frames = []
    for mean in (50.0, 56.0):
        frame = pd.DataFrame({spend: random.normal(mean, 10, 120), "visits": random.poisson(9, 120)})
        frame["label"] = np.where(frame[spend] - mean > 3, *classes)
        frame["customer"] = [f"{name}-customer" for name in random.integers(10**8, 10**9, 120)]
        frames.append(frame)
    return frames


@pytest.fixture(scope="module")
def fitted() -> TableModel:
    return ma.fit(*tables(0), label="label", target_label="label", id_column="customer")


def card(model: TableModel, folder: Path) -> str:
    model.save(folder)
    return (folder / "model_card.md").read_text(encoding="utf-8")


def test_the_card_tells_what_the_fit_found(fitted: TableModel, tmp_path: Path):
    text = card(fitted, tmp_path)
    summary = fitted.summary
    assert summary["decision"] in text
    headings = re.findall(r"^## (.*)$", text, re.M)
    expected = ["Data", "Shift", "What was done", "How good it is expected to be", "Shares of the classes", "Limits"]
    assert headings == [*expected, "Versions"]
    low, high = (round(100 * summary["estimate"][end]) for end in ("low", "high"))
    assert f"({low} to {high})" in text.split("## How good")[1]
    for share in summary["shares"]:
        assert f"| {share['class']} | {100 * share['source']:.1f}" in text
    assert re.search(r"\| spend \| \+0\.\d\d \|", text)
    assert f"momentalign {ma.__version__}" in text


def test_the_same_model_has_the_same_card_after_loading(fitted: TableModel, tmp_path: Path):
    first = card(fitted, tmp_path / "first")
    assert card(ma.load(tmp_path / "first"), tmp_path / "second") == first


def test_no_row_of_the_data_is_in_the_card(fitted: TableModel, tmp_path: Path):
    text = card(fitted, tmp_path)
    for frame in tables(0):
        assert not [name for name in frame["customer"] if name in text]
        assert not [value for value in frame["spend"] if f"{value:.3f}" in text]


def test_nothing_in_a_table_becomes_markup(tmp_path: Path):
    frames = tables(1, spend=NASTY, classes=(f"no {NASTY}", f"yes {NASTY}\n# Heading"))
    model = ma.fit(*frames, label="label", id_column="customer", method="none", max_epochs=3, device="cpu")
    text = card(model, tmp_path)
    tokens = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(text)
    kinds = {child.type for token in tokens for child in [token, *(token.children or ())]}
    assert "table_open" in kinds
    assert not kinds & {"link_open", "html_inline", "image", "strong_open", "em_open", "s_open"}
    assert [token.content for token in tokens if token.type == "html_block"] == [
        "<!-- Model card, written by momentalign -->\n"
    ]
    assert [token.content for token in tokens if token.type == "code_block"] == []
    assert not re.search(r"http://|www\.|a@x|(?<!\\)\$", text)
    cells = [re.split(r"(?<!\\)\|", line) for line in text.splitlines() if "img" in line and line.startswith("| ")]
    assert cells
    assert {len(row) for row in cells} <= {5, 6}  # tables of three and four columns, between two bars


def test_a_network_and_a_regression_have_cards(tmp_path: Path):
    frames = [frame.assign(label=frame["spend"] * 2.0 + 0.5) for frame in tables(2)]
    settings = {"label": "label", "id_column": "customer", "regression": True}
    text = card(ma.fit(*frames, **settings, method="cmd", max_epochs=3, device="cpu"), tmp_path)
    assert "a continuous value" in text
    assert "come without an estimate" in text
    assert "Shares of the classes" not in text
    assert "discrepancy cmd" in text


def test_queries_and_folders_are_not_told(tmp_path: Path):
    source, target = tables(3)
    source.to_csv(tmp_path / "last year.csv", index=False)
    settings = {"label": "label", "id_column": "customer", "method": "none", "max_epochs": 3, "device": "cpu"}
    model = ma.fit(tmp_path / "last year.csv", target, **settings)
    text = card(model, tmp_path / "model")
    assert "| read from | last year.csv | a frame |" in text
    assert str(tmp_path) not in text
    asked = {**model.summary, "source": "sqlite:///shop.db#SELECT * FROM people WHERE name = 'Ann'"}
    text = card(dataclasses.replace(model, summary=asked), tmp_path / "model")
    assert "| read from | a database | a frame |" in text


@pytest.mark.parametrize("summary", [None, {}, {"task": "classification", "columns": 3}])
def test_without_a_summary_the_card_says_so(fitted: TableModel, tmp_path: Path, summary: dict | None):
    card(fitted, tmp_path)
    text = card(dataclasses.replace(fitted, summary=summary), tmp_path)
    assert "fit it again for a full card" in text
    assert "Expected accuracy" not in text


def test_a_card_of_another_hand_is_never_replaced(fitted: TableModel, tmp_path: Path, capsys, monkeypatch):
    mine = tmp_path / "model" / "model_card.md"
    mine.parent.mkdir()
    mine.write_text("# My notes")
    with pytest.raises(InvalidInputError, match=r"model_card.md would be replaced and is not a model card"):
        fitted.save(mine.parent)
    source, target = tables(0)
    for name, frame in (("a.csv", source), ("b.csv", target)):
        frame.to_csv(tmp_path / name, index=False)
    arguments = ["fit", tmp_path / "a.csv", tmp_path / "b.csv", "--label", "label", "--out", mine.parent]
    monkeypatch.setattr("sys.argv", ["momentalign", *map(str, arguments)])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2
    assert "is not a model card of momentalign" in capsys.readouterr().err
    assert [path.name for path in mine.parent.iterdir()] == ["model_card.md"]
    assert mine.read_text() == "# My notes"
    mine.write_text("")  # as touch makes it
    assert "Limits" in card(fitted, mine.parent)
