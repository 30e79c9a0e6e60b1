"""Fuzzes one reader: ``python fuzz/run.py csv -max_total_time=60``, with any options of libFuzzer; needs atheris.

What makes a reader fail is written as a file ``crash-...``. Its bytes, given to ``readers.try_bytes``, show the failure
again, and belong into ``tests/fuzz/test_found.py`` when it is mended.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris

# Only our own code is watched: the libraries below it would take minutes to prepare.
with atheris.instrument_imports(include=["momentalign"]):
    import readers


def TestOneInput(content: bytes) -> None:  # noqa: N802  (the name that fuzzers know)
    """Give some bytes to the reader that was asked for."""
    readers.try_bytes(NAME, content)


if __name__ == "__main__":
    NAME = sys.argv.pop(1)
    with tempfile.TemporaryDirectory() as corpus:
        for number, seed in enumerate(readers.SEEDS[NAME]()):
            (Path(corpus) / str(number)).write_bytes(seed)
        atheris.Setup([*sys.argv, corpus], TestOneInput)
        atheris.Fuzz()
