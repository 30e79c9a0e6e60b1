"""Every block of docs/other_libraries.md runs and prints what the page says."""

import contextlib
import io
import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "other_libraries.md").read_text()
PARTS = dict(zip(*[iter(re.split(r"^## (.+)\n", f"## first\n{PAGE}", flags=re.MULTILINE)[1:])] * 2, strict=True))
ENVIRONMENTS = {"skada": "skada", "POT": "skada", "ADAPT": "adapt", "pytorch-adapt": "pytorch_adapt"}


def program(part):
    return "\n".join(re.findall(r"^```python\n(.*?)^```$", PARTS[part], flags=re.MULTILINE | re.DOTALL))


def expected(code):
    """What the comments behind calls of print say; a print in a loop over two models is said once."""
    return [
        line
        for loop, line in re.findall(r"^( *)print\(.*\)  # (.+)$", code, flags=re.MULTILINE)
        for _ in range(2 if loop else 1)
    ]


def test_the_task_of_the_page_is_solved_here():
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(program("first"), {})  # noqa: S102
    assert printed.getvalue().splitlines() == expected(program("first")) != []


def test_every_library_of_the_page_has_a_program():
    assert [name for name in PARTS if program(name)] == ["first", *ENVIRONMENTS]


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("library", ENVIRONMENTS)
def test_the_blocks_of_a_library_run_beside_it(run_in_peer, library):
    code = program("first") + program(library)
    assert run_in_peer(ENVIRONMENTS[library], "-c", code).splitlines() == expected(code)
