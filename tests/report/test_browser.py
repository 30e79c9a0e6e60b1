"""A promise of the pages: in a real browser nothing fails, the controls work, and a phone can read them."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from momentalign.evaluation.diagnose import diagnose
from momentalign.paper.artificial_page import artificial_page
from momentalign.paper.digits import digits_page
from momentalign.paper.overpenalization import overpenalization_page
from momentalign.paper.sensitivity import sensitivity_page
from momentalign.paper.sentiment import sentiment_page

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine to open the pages with")

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--virtual-time-budget=2000",
    "--dump-dom",
]
WATCH = """<script>
window.problems = [];
window.addEventListener("error", (event) => problems.push(event.message));
console.error = console.warn = (...words) => problems.push(words.join(" "));
</script>"""
REPORT = """<script>
const outcome = {problems: window.problems, requests: performance.getEntriesByType("resource").length};
%s
const pre = document.createElement("pre");
pre.id = "outcome";
pre.textContent = JSON.stringify(outcome);
document.body.append(pre);
</script>"""


def open_page(page: str, script: str, folder: Path) -> dict[str, Any]:
    """Open a page with a watch for errors at its top and a script at its end; return what the script noted."""
    page = page.replace("<head>", f"<head>{WATCH}", 1).replace("</body>", f"{REPORT % script}</body>", 1)
    path = folder / "page.html"
    path.write_text(page, encoding="utf-8")
    command = [str(BROWSER), *FLAGS, f"--user-data-dir={folder / 'profile'}", path.as_uri()]
    dump = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    found = re.search(r'<pre id="outcome">(.*?)</pre>', dump, re.S)
    assert found is not None, "the script at the end of the page did not run"
    outcome: dict[str, Any] = json.loads(html.unescape(found[1]))
    return outcome


CONTROLS = """
const shown = (element) => getComputedStyle(element).display !== "none";
const table = [...document.querySelectorAll("table")].find((one) => one.caption.textContent === "All runs");
const heads = table.tHead.rows[0].cells;
const column = (index) => [...table.tBodies[0].rows].map((row) => Number(row.cells[index].dataset.value));
const press = (index) => {
  heads[index].querySelector("button").click();
  return heads[index].getAttribute("aria-sort");
};
outcome.ascending = [press(1), column(1)];
outcome.descending = [press(1), column(1)];
outcome.other = [press(2), column(2), heads[1].getAttribute("aria-sort")];
outcome.footer = table.tFoot.rows[0].cells[0].textContent;

const box = document.querySelector("input[data-shows=source]");
const layers = [...document.querySelectorAll("[data-layer=source]")];
outcome.layers = [layers.map(shown)];
for (let i = 0; i < 2; i++) { box.click(); outcome.layers.push(layers.map(shown)); }

const buttons = [...document.querySelectorAll(".picker button")];
const panels = buttons.map((button) => document.getElementById(button.getAttribute("aria-controls")));
const visible = () => panels.flatMap((panel, index) => (shown(panel) ? [index] : []));
outcome.picked = [visible()];
buttons[6].click();
outcome.picked.push(visible());
buttons[2].dispatchEvent(new PointerEvent("pointerenter"));
outcome.picked.push(visible());
document.querySelector(".picker ul").dispatchEvent(new PointerEvent("pointerleave"));
outcome.picked.push(visible());
outcome.pressed = buttons.flatMap((button, index) => (button.getAttribute("aria-pressed") === "true" ? [index] : []));
"""


def test_the_controls_of_the_artificial_page_work(artificial_result: dict[str, Any], tmp_path: Path):
    outcome = open_page(artificial_page(artificial_result), CONTROLS, tmp_path)
    # Numbers of a page are kept to five digits.
    before, after = (
        [float(f"{run[f'{name}_accuracy']:.5g}") for run in artificial_result["runs"]] for name in ("nn", "mann")
    )
    assert outcome["problems"] == []
    assert outcome["requests"] == 0
    assert outcome["ascending"] == ["ascending", sorted(before)]
    assert outcome["descending"] == ["descending", sorted(before, reverse=True)]
    assert outcome["other"] == ["ascending", sorted(after), None]
    assert outcome["footer"] == "Median"
    assert outcome["layers"] == [[True, True], [False, False], [True, True]]
    assert outcome["picked"] == [[0], [6], [2], [6]]
    assert outcome["pressed"] == [6]


def test_the_overpenalization_page_sorts_words_too(overpenalization_result: dict[str, Any], tmp_path: Path):
    script = """
    document.querySelectorAll("th button")[3].click();
    outcome.order = [...document.querySelector("tbody").rows].map((row) => row.cells[3].textContent);
    """
    outcome = open_page(overpenalization_page(overpenalization_result), script, tmp_path)
    assert outcome["problems"] == []
    assert outcome["requests"] == 0
    assert outcome["order"] == ["left, Normal"] * 3 + ["right, shifted Beta"]


@pytest.mark.parametrize(("name", "make"), [("sentiment", sentiment_page), ("sensitivity", sensitivity_page)])
def test_pages_of_measured_results_open_without_a_fault(name: str, make: Callable[[Any], str], tmp_path: Path):
    kept = Path(__file__).parents[2] / "benchmarks" / "results" / f"{name}.json"
    page = make(json.loads(kept.read_text())["result"])
    script = """
    outcome.tables = document.querySelectorAll("table").length;
    outcome.pictures = document.querySelectorAll("svg").length;
    """
    outcome = open_page(page, script, tmp_path)
    assert outcome["problems"] == []
    assert outcome["requests"] == 0
    assert outcome["tables"] >= 1
    assert outcome["pictures"] >= 1


DIGITS = """
const shown = (element) => getComputedStyle(element).display !== "none";
const section = document.getElementById("svhn-mnist"), buttons = [...section.querySelectorAll(".picker button")];
const panels = ["cmd", "cv-cmd", "coral"].map((name) => document.getElementById(`svhn-mnist-${name}`));
outcome.picked = [panels.map(shown)];
buttons[2].click();
outcome.picked.push(panels.map(shown));
outcome.keys = [...panels[2].querySelectorAll(".key")].map((key) => getComputedStyle(key).display);
const tiles = [...panels[2].querySelectorAll(".tile")].map((tile) => {
  const style = getComputedStyle(tile), box = tile.getBoundingClientRect();
  const [position, size] = [style.backgroundPosition, style.backgroundSize].map(parseFloat);
  return [style.backgroundImage, position, size, box.width / box.height];
});
outcome.sheets = new Set(tiles.map((tile) => tile[0])).size;
outcome.tiles = tiles.map((tile) => [tile[0].startsWith('url("data:image/png;base64,'), ...tile.slice(1)]);
const answer = (css) => getComputedStyle(panels[2].querySelector(css));
outcome.inks = [answer(".wrong").color === answer("li > span[title]:not(.wrong)").color, answer(".wrong").fontWeight];
outcome.outside = [...document.querySelectorAll("svg.ma-figure text")].filter((words) => {
  const box = words.getBoundingClientRect(), frame = words.closest("svg").getBoundingClientRect();
  return box.width > 0 && (box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 1);
}).map((words) => words.textContent);
"""


def test_the_page_of_digits_shows_images_and_one_aligned_method_at_a_time(
    digits_result: Callable[..., dict[str, Any]], tmp_path: Path
):
    outcome = open_page(digits_page(digits_result("cnn", "coral", "cmd", "cv-cmd", shown=5)), DIGITS, tmp_path)
    assert outcome["problems"] == []
    assert outcome["requests"] == 0
    assert outcome["picked"] == [[True, False, False], [False, False, True]]
    assert outcome["keys"] == ["flex", "flex"]
    assert outcome["sheets"] == 1
    for place, (is_sheet, position, size, ratio) in enumerate(outcome["tiles"]):
        assert is_sheet
        assert (position, size, ratio) == pytest.approx((25 * place, 500, 1), abs=0.01)
    assert outcome["inks"] == [False, "600"]
    assert outcome["outside"] == []


EXPLORER = """
const explorer = document.querySelector(".explorer"), figure = explorer.querySelector("figure");
const rows = [...explorer.querySelectorAll("tbody tr")], heads = [...explorer.querySelectorAll("thead th")];
const shown = () => [
  figure.querySelector("b").textContent,
  figure.querySelectorAll("path")[0].getAttribute("d"),
  figure.querySelectorAll("path")[1].getAttribute("d"),
  [...figure.querySelectorAll("text")].map((label) => label.textContent),
];
const row = (words) => rows.find((row) => row.cells[0].textContent === words);
const name = (row) => row.cells[0].textContent;
const current = () => rows.filter((row) => row.getAttribute("aria-current") === "true").map(name);
outcome.hidden = figure.hidden;
outcome.kept = Object.fromEntries(rows.map((row) => [name(row), [row.dataset.source, row.dataset.target]]));
outcome.first = [shown(), current()];
row("word").dispatchEvent(new PointerEvent("pointerenter"));
outcome.pointed = [shown(), current()];
explorer.querySelector("tbody").dispatchEvent(new PointerEvent("pointerleave"));
outcome.left = shown();
const button = row("same").querySelector("button");
button.focus();
outcome.reached = document.activeElement === button;
// A browser without a screen may not have the focus itself and then tells nobody that an element has it.
button.dispatchEvent(new FocusEvent("focusin", {bubbles: true}));
outcome.focused = [shown(), current()];
row("word").click();
outcome.clicked = [shown(), current()];
outcome.label = figure.querySelector("svg").getAttribute("aria-label");

const order = () => [...explorer.querySelectorAll("tbody tr")].map(name);
const press = (words) => heads.find((head) => head.textContent.startsWith(words)).querySelector("button").click();
press("Mean shift");
outcome.ascending = order();
press("Mean shift");
outcome.descending = order();
outcome.buttons = rows.every((row) => row.cells[0].querySelectorAll("button").length === 1);
"""


def test_the_explorer_of_a_diagnosis_follows_pointer_and_focus(rng: np.random.Generator, tmp_path: Path):
    source = pd.DataFrame({"same": rng.random(200), "moved": rng.random(200), "word": ["a", "b"] * 100})
    target = pd.DataFrame({"same": rng.random(200), "moved": rng.random(200) + 5, "word": ["a"] * 150 + ["b"] * 50})
    outcome = open_page(diagnose(source, target, n_permutations=99).to_html(), EXPLORER, tmp_path)
    kept = outcome["kept"]
    assert outcome["problems"] == []
    assert outcome["requests"] == 0
    assert outcome["hidden"] is False
    assert all(outlines[0].startswith("M12 164v") for outlines in kept.values())
    moved, word, same = (
        [name, *kept[name], labels]
        for name, labels in (
            ("moved", outcome["first"][0][3]),
            ("word", ["a", "b"]),
            ("same", outcome["focused"][0][3]),
        )
    )
    assert outcome["first"] == [moved, ["moved"]]
    assert outcome["pointed"] == [word, ["moved"]]
    assert outcome["left"] == moved
    assert outcome["reached"]
    assert outcome["focused"] == [same, ["same"]]
    assert outcome["clicked"] == [word, ["word"]]
    assert outcome["label"].startswith("word in source and target: categories")
    assert moved[3] != same[3]
    assert outcome["ascending"][1:] == ["moved", "word"]
    assert outcome["descending"] == ["moved", "same", "word"]
    assert outcome["buttons"]


def test_an_error_in_the_page_would_be_seen(overpenalization_result: dict[str, Any], tmp_path: Path):
    page = overpenalization_page(overpenalization_result).replace('"use strict";', '"use strict"; missing();', 1)
    assert "missing is not defined" in open_page(page, "", tmp_path)["problems"][0]


def test_everyone_can_read_every_page_on_a_desk_and_on_a_phone(
    artificial_result: dict[str, Any],
    overpenalization_result: dict[str, Any],
    digits_result: Callable[..., dict[str, Any]],
    page_faults: Callable[[Path, Path], list[str]],
    rng: np.random.Generator,
    tmp_path: Path,
):
    pages = {
        "artificial": artificial_page(artificial_result),
        "digits": digits_page(digits_result("cnn", "cmd", tasks=("svhn->mnist",), shown=5)),
        "over": overpenalization_page(overpenalization_result),
        "diagnosis": diagnose(rng.random((50, 3)), rng.random((50, 3)) + 1, n_permutations=99).to_html(),
    }
    for name, make in (("sentiment", sentiment_page), ("sensitivity", sensitivity_page)):
        kept = Path(__file__).parents[2] / "benchmarks" / "results" / f"{name}.json"
        pages[name] = make(json.loads(kept.read_text())["result"])
    (tmp_path / "pages").mkdir()
    for name, page in pages.items():
        (tmp_path / "pages" / f"{name}.html").write_text(page, encoding="utf-8")
    assert page_faults(tmp_path / "pages", tmp_path / "profile") == []
