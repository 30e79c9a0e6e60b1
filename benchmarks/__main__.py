"""``python -m benchmarks [NAME ...]``: print every figure as a JSON line; exit 1 if one misses its bar."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

NAMES = ("distances", "precision", "stacks", "first_fit", "growth", "streams", "artificial", "tables")
BESIDE = Path(__file__).parents[2] / "shared" / "data"


def main(names: list[str]) -> int:
    """Run the named benchmarks, all by default."""
    if BESIDE.is_dir():
        os.environ.setdefault("MOMENTALIGN_DATA", str(BESIDE))
    failed = 0
    for name in names or NAMES:
        for figure in importlib.import_module(f"benchmarks.{name}").figures():
            print(figure.line(), flush=True)
            failed += not figure.passed
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
