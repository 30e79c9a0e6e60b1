"""Attempts to break momentalign, by kind: each is a function of an empty folder, named after what it tries.

An attempt is held if the call returns what is right, or raises an error of ours in one line. ``python -m
tests.attacks.attempts`` makes all of them and prints the table of ``docs/reliability.md``.
"""

from __future__ import annotations

import resource
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.attacks.on_commands import command_attempts, environment_attempts
from tests.attacks.on_files import journal_attempts, manifest_attempts, path_attempts, torch_attempts
from tests.attacks.on_state import concurrency_attempts, state_attempts
from tests.attacks.on_tables import label_attempts, reader_attempts
from tests.attacks.on_values import (
    estimator_attempts,
    frame_attempts,
    number_attempts,
    page_attempts,
    parameter_attempts,
)

from momentalign.errors import MomentAlignError

Attempt = Callable[[Path], Any]
LONGEST, LARGEST = 30, 2**30  # seconds of computing, and bytes by which the memory may grow
WAITING = 300  # seconds on a clock: other programs may be busy

KINDS: dict[str, Callable[[], dict[str, Attempt]]] = {
    "readers of tables": reader_attempts,
    "labels": label_attempts,
    "torch files": torch_attempts,
    "manifests with right digests": manifest_attempts,
    "journals": journal_attempts,
    "monitors and moments": state_attempts,
    "threads and processes": concurrency_attempts,
    "numbers": number_attempts,
    "estimators and evaluation": estimator_attempts,
    "parameters": parameter_attempts,
    "frames": frame_attempts,
    "paths": path_attempts,
    "pages": page_attempts,
    "commands": command_attempts,
    "environment": environment_attempts,
}


class TooLongError(Exception):
    """An attempt that did not end."""


def _stop(number: int, frame: object) -> None:
    raise TooLongError(f"took more than {LONGEST} seconds")


def broken(found: dict[str, Attempt]) -> dict[str, str]:
    """Make attempts and return what broke: its name and how."""
    results = {}
    for name, attempt in found.items():
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        before = {number: signal.signal(number, _stop) for number in (signal.SIGALRM, signal.SIGPROF)}
        signal.setitimer(signal.ITIMER_PROF, LONGEST)
        signal.alarm(WAITING)
        try:
            with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
                warnings.simplefilter("ignore")
                attempt(Path(folder))
        except MomentAlignError as error:
            if "\n" in str(error) or len(str(error)) > 2000:
                results[name] = f"no sentence: {error!r:.300}"
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            results[name] = f"{type(error).__name__}: {error!s:.300}"
        finally:
            signal.alarm(0)
            signal.setitimer(signal.ITIMER_PROF, 0)
            for number, handler in before.items():
                signal.signal(number, handler)
        grown = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory)
        if grown > LARGEST:
            results[name] = f"took {grown / 2**20:.0f} MB"
    return results


if __name__ == "__main__":
    lines = ["| kind | attempts | held |", "|---|---|---|"]
    for kind in sys.argv[1:] or KINDS:
        found = KINDS[kind]()
        failures = broken(found)
        lines.append(f"| {kind} | {len(found)} | {len(found) - len(failures)} |")
        lines += [f"  {name}: {how}" for name, how in failures.items()]
    sys.stdout.write("\n".join(lines) + "\n")
