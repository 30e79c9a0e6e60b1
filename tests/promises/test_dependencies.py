"""What is installed with the package: all that it imports, nothing that it does not, in versions that were tried."""

import ast
import json
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "momentalign"
TESTS_ELSEWHERE = ROOT / ".github" / "workflows" / "test.yml"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# Torch brings it where CUDA is.
COMES_WITH_TORCH = {"triton"}
# Asked for by name: by the export to ONNX, and by Lightning, whose default logger writes for TensorBoard.
NAMED_ONLY = {"onnx", "onnxscript", "openpyxl", "tensorboard"}
# What stands as a whole on a library that not everyone has; anything else can be imported without.
NEEDS_MORE = ("momentalign.training.deep.", "momentalign.report.diagnosis", "momentalign.discrepancies._triton")
NEEDS_MORE += ("momentalign.paper.digit",)

IMPORT_ALL = """
import importlib, json, pkgutil, sys
import momentalign
for module in json.loads(sys.argv[1]):
    sys.modules[module] = None
failed = []
for found in pkgutil.walk_packages(momentalign.__path__, "momentalign."):
    try:
        importlib.import_module(found.name)
    except ModuleNotFoundError:
        failed.append(found.name)
print(json.dumps(failed))
"""


def requirements(lines):
    return {canonicalize_name(found.name): found for found in map(Requirement, lines)}


RUNTIME = requirements(PROJECT["dependencies"])
EXTRAS = requirements(line for lines in PROJECT["optional-dependencies"].values() for line in lines)


def imported_modules(tree):
    """The names before the first dot of what a file imports, wherever in the file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are written from the package's name"
            yield node.module.partition(".")[0]


def imported_distributions():
    """Who ships what src/ imports -> one of the files that import it."""
    shipped_by = packages_distributions()
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        for module in set(imported_modules(ast.parse(path.read_text()))):
            if module not in sys.stdlib_module_names and module != "momentalign":
                name = canonicalize_name(shipped_by.get(module, [module])[0])
                found[name] = str(path.relative_to(ROOT))
    return found


def modules_of(distributions):
    """The modules that distributions ship."""
    return [
        module for module, names in packages_distributions().items() if {*map(canonicalize_name, names)} & distributions
    ]


def test_every_import_is_declared():
    imported = imported_distributions()
    declared = RUNTIME.keys() | EXTRAS.keys() | COMES_WITH_TORCH
    assert {name: imported[name] for name in imported.keys() - declared} == {}


def test_every_dependency_is_imported():
    imported = imported_distributions()
    assert RUNTIME.keys() - imported.keys() == set()
    assert EXTRAS.keys() - imported.keys() == NAMED_ONLY


def test_the_core_can_be_imported_without_extras():
    refused = json.dumps(modules_of(EXTRAS.keys() | COMES_WITH_TORCH))
    command = [sys.executable, "-c", IMPORT_ALL, refused]
    failed = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert "momentalign.training.deep.lightning" in failed
    assert [name for name in failed if not name.startswith(NEEDS_MORE)] == []


def test_the_lowest_versions_that_are_tried_are_the_lower_bounds():
    text = (ROOT / "constraints-lowest.txt").read_text()
    tried = requirements(line for line in text.splitlines() if not line.startswith("#"))
    bounds = {name: str(found.specifier).replace(">=", "==") for name, found in (RUNTIME | EXTRAS).items()}
    torch = bounds.pop("torch")
    assert {name: str(found.specifier) for name, found in tried.items()} == bounds
    assert f'versions: lowest, python: "3.11", torch: "torch{torch}"' in TESTS_ELSEWHERE.read_text()
    assert PROJECT["requires-python"] == ">=3.11"


def test_the_conda_recipe_asks_for_the_same():
    recipe = (ROOT / "conda" / "recipe" / "meta.yaml").read_text()
    (asked,) = re.findall(r"^  run:\n((?:    - .+\n)+)", recipe, re.MULTILINE)
    found = requirements(line.removeprefix("    - ") for line in asked.replace("pytorch", "torch").splitlines())
    bounds = {name: str(found.specifier) for name, found in RUNTIME.items()}
    expected = bounds | {"python": PROJECT["requires-python"]}
    assert {name: str(one.specifier) for name, one in found.items()} == expected
    assert f"momentalign = {PROJECT['scripts']['momentalign']}" in recipe


@pytest.mark.parametrize("name", sorted(RUNTIME | EXTRAS))
def test_every_dependency_has_a_lower_bound_and_no_upper_one(name):
    """An upper bound that turns out wrong cannot be taken back from what is already installed."""
    (bound,) = (RUNTIME | EXTRAS)[name].specifier
    assert bound.operator == ">="
