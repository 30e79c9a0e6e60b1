"""Pages: links inside lead somewhere, code runs and prints what it says, words are spelled, the site can be read."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), *sorted(ROOT.glob("*.md"))]
PAGES = [page for page in PAGES if "_build" not in page.parts and "gallery" not in page.parts]
# Pages whose python blocks are a walk-through that runs from top to bottom.
WALKS = [
    "start.md",
    "serving.md",
    "architecture.md",
    *(f"distances/{name}.md" for name in ("cmd", "cv_cmd", "mmd", "coral", "adversarial")),
    "pipelines.md",  # last: it turns metadata routing on
]


def names(pages):
    return [str(page.relative_to(ROOT)) for page in pages]


@pytest.mark.parametrize("page", PAGES, ids=names(PAGES))
def test_links_inside_lead_to_files(page):
    words = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
    for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", words):
        place = page.parent / target
        if "gallery" in place.parts:  # written when the site is built, from the examples
            place = ROOT / "examples" / f"{place.stem}.py"
        assert place.exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=names(PAGES))
def test_files_named_in_a_page_exist(page):
    for name in re.findall(r"`((?:docs|examples|benchmarks|tests|src)/[\w./-]+\.\w+)`", page.read_text()):
        assert (ROOT / name).exists(), f"{page.name} names {name}"


@pytest.mark.parametrize("page", PAGES, ids=names(PAGES))
def test_commands_named_in_a_page_are_there(page):
    for module in re.findall(r"python -m (benchmarks\.\w+)", page.read_text()):
        path = ROOT / module.replace(".", "/")
        assert path.with_suffix(".py").exists() or path.is_dir(), f"{page.name} names {module}"


def test_walks_run_from_top_to_bottom(tmp_path):
    pages = [re.findall(r"```python\n(.*?)```", (ROOT / "docs" / page).read_text(), re.S) for page in WALKS]
    assert all(pages)
    walk = tmp_path / "walk.py"
    walk.write_text("\n".join(block for blocks in pages for block in blocks))
    run = subprocess.run(
        [sys.executable, "-W", "error", walk], check=True, cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    printed = " ".join(run.stdout.split())
    shown = [
        text for page in WALKS for text in re.findall(r"```text\n(.*?)```", (ROOT / "docs" / page).read_text(), re.S)
    ]
    assert shown
    for text in shown:
        assert " ".join(text.split()) in printed


def test_words_are_spelled():
    found = subprocess.run(
        [sys.executable, "-m", "codespell_lib", "src", "docs", "examples", "benchmarks", *names(ROOT.glob("*.md"))],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert found.stdout == ""
    assert found.returncode == 0


def test_a_page_that_cannot_be_read_is_noticed(page_faults, tmp_path):
    page = '<!doctype html><html lang="en"><title>page</title><body><main><h1>Page</h1>{}</main>'
    pages = {
        "good": "<p>Words.</p>",
        "wide": '<p style="width: 900px">Words.</p>',
        "within": '<div class="content" style="overflow-x: auto" tabindex="0"><p style="width: 900px">Words.</p></div>',
        "pale": '<p style="color: #ccc; background: white">Words.</p>',
    }
    (tmp_path / "site").mkdir()
    for name, words in pages.items():
        (tmp_path / "site" / f"{name}.html").write_text(page.format(words))
    found = page_faults(tmp_path / "site", tmp_path / "profile")
    assert [re.split(", <| by ", fault)[0] for fault in found] == [
        "/pale.html at 1280, light: color-contrast",
        "/pale.html at 390, dark: color-contrast",
        "/wide.html at 390, dark: too wide",
        "/within.html at 390, dark: too wide",
    ]


@pytest.mark.long
def test_the_site_builds_without_a_warning_and_everyone_can_read_it(page_faults, tmp_path):
    site = tmp_path / "site"
    sphinx = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-d", tmp_path / "cache"]
    subprocess.run([*sphinx, "docs", site], cwd=ROOT, check=True)
    assert (site / "gallery" / "plot_artificial.html").exists()
    assert page_faults(site, tmp_path / "profile") == []
