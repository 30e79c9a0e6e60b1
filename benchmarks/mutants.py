"""Mutation testing: the code changed in many small ways, one at a time, and the share that a test notices.

``make mutants GROUP=journal [SAMPLE=60]``, JSON lines; hours for all groups. What no test can notice, and why, is in
docs/mutants.md. Mutmut has an environment of its own, since it does not work with the newest pytest.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import sys
import sysconfig
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.figure import Figure

ROOT = Path(__file__).parents[1]
BAR = 0.9
ENDED = {"killed", "timeout", "suspicious", "segfault"}
# A forked test inherits full caches, which hide a change, and threads of Dask that are dead.
FORKED = """

@pytest.fixture(autouse=True)
def forked():
    import dask
    from momentalign.discrepancies import unbiased

    for function in (unbiased.h_statistic_coefficients, unbiased._augmented):
        function.cache_clear()
    with dask.config.set(scheduler="synchronous"):
        yield
"""


@dataclass(frozen=True)
class Group:
    """Files to change, the tests that look at them, slow ones that do not, and files whose tests cannot be followed."""

    files: tuple[str, ...]
    tests: tuple[str, ...]
    slow: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


GROUPS = {
    "journal": Group(
        ("journal.py",),
        ("tests/test_journal.py", "tests/promises/test_golden.py::test_an_old_journal_goes_on"),
        (
            "tests/test_journal.py::test_ten_processes_lose_no_line",
            "tests/test_journal.py::test_a_writer_waits_for_the_one_before",
            "tests/test_journal.py::test_killed_writers_cost_nothing_but_time",
        ),
    ),
    "checkpoints": Group(
        ("files.py", "training/deep/checkpoint.py"),
        ("tests/test_files.py", "tests/training/test_checkpoints.py", "tests/training/deep/test_checkpoint.py"),
    ),
    "selection": Group(
        ("selection/*",),
        ("tests/selection",),
        (
            "tests/selection/test_base.py::test_labels_that_explode_when_touched_stay_whole",
            "tests/selection/test_base.py::test_labels_that_count_are_touched_zero_times",
            "tests/selection/test_base.py::test_a_killed_search_goes_on_and_gives_the_same",
            "tests/selection/test_search.py::test_a_grid_of_many_recipes_is_scored_as_point_by_point",
        ),
    ),
    "moments": Group(
        ("moments/*",),
        ("tests/moments", "tests/discrepancies/test_bad_input.py"),
        ("tests/moments/test_streaming.py::test_loops_are_the_python_they_are_written_in",),
    ),
    "discrepancies": Group(
        ("discrepancies/*",),
        ("tests/discrepancies", "tests/promises/test_ranks.py"),
        (
            "tests/discrepancies/test_triton.py",
            "tests/discrepancies/test_adversarial.py::test_it_adapts_rotated_moons",
            "tests/discrepancies/test_central_moment.py::test_the_interval_of_the_data_is_said_aloud",
            "tests/discrepancies/test_central_moment.py::test_the_plain_estimate_of_one_distribution_is_far_from_zero",
            "tests/discrepancies/test_several_domains.py::test_a_barycentre_is_never_farther_than_the_pairs",
            "tests/discrepancies/test_unbiased.py::test_two_samples_of_one_distribution_average_to_zero",
            "tests/discrepancies/test_unbiased.py::test_ten_moments_of_twenty_rows_are_finite",
            "tests/discrepancies/test_mmd.py::test_without_bias_two_samples_of_one_distribution_average_to_zero",
            "tests/promises/test_ranks.py::test_loss_and_gradient_are_those_of_the_joined_batch",
            "tests/promises/test_ranks.py::test_the_average_of_the_ranks_distances_fails_the_same_comparison",
            "tests/promises/test_ranks.py::test_a_group_of_two_ranks_joins_their_shards_and_is_refused_by_the_others",
            "tests/promises/test_ranks.py::test_the_interval_of_the_data_is_that_of_all_ranks",
            "tests/promises/test_ranks.py::test_every_rank_learns_of_what_cannot_be_computed",
            "tests/promises/test_ranks.py::test_distributed_data_parallel_trains_the_weights_of_one_process",
            "tests/promises/test_ranks.py::test_the_example_trains_on_two_processes",
        ),
        left_out=("discrepancies/_triton.py",),
    ),
}


def figures(name: str, sample: int | None) -> Iterator[Figure]:
    """Yield the share of changes that a test notices, for each file of a group and for the group."""
    folder = copy_of_the_tree(name)
    some: list[str] = []
    if sample:
        mutmut(folder, "run", "none")  # makes the changes, tries none of them
        some = chosen(sorted(outcomes(folder)), sample)
    mutmut(folder, "run", "--max-children", "2", *some)
    by_file = defaultdict(list)
    for change, outcome in outcomes(folder).items():
        if outcome != "not checked":
            by_file[file_of(change)].append(outcome)
            if outcome not in ENDED:
                print(change, outcome, file=sys.stderr)
    for file, found in sorted(by_file.items()):
        yield Figure("mutants", f"{file}, {len(found)} changes: share noticed", share(found), at_least=0.0)
    every = [outcome for found in by_file.values() for outcome in found]
    yield Figure("mutants", f"{name}, {len(every)} changes: share noticed", share(every), at_least=BAR)


def copy_of_the_tree(name: str) -> Path:
    """A copy of what is tracked or new, told what to change and how to test it."""
    folder = ROOT / "build" / "mutants" / name
    shutil.rmtree(folder, ignore_errors=True)
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout  # noqa: S603
    for file in listed.splitlines():
        if (ROOT / file).is_file():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / file, folder / file)
    group = GROUPS[name]
    tests = [*group.tests, *(f"--deselect={slow}" for slow in group.slow)]
    with (folder / "pyproject.toml").open("a") as settings:
        settings.write(
            "\n[tool.mutmut]\n"
            'source_paths = ["src"]\n'
            f"only_mutate = {[f'src/momentalign/{file}' for file in group.files]}\n"
            f"do_not_mutate = {[f'src/momentalign/{file}' for file in group.left_out]}\n"
            f"pytest_add_cli_args_test_selection = {tests}\n"
            'pytest_add_cli_args = ["-p", "no:randomly", "-p", "no:cacheprovider"]\n'
        )
    with (folder / "tests" / "conftest.py").open("a") as fixtures:
        fixtures.write(FORKED)
    # Processes that tests start are to find the changed package, before the one that is installed.
    Path(sysconfig.get_paths()["purelib"], "0_mutants.pth").write_text(f"{folder / 'mutants' / 'src'}\n")
    return folder


def mutmut(folder: Path, *arguments: str) -> str:
    """Return what mutmut says."""
    threads = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    command = [str(Path(sys.executable).with_name("mutmut")), *arguments]
    environment = {**os.environ, **threads}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True).stdout  # noqa: S603


def outcomes(folder: Path) -> dict[str, str]:
    """Every change and what came of it."""
    lines = mutmut(folder, "results", "--all", "true").splitlines()
    return dict(line.strip().split(": ", 1) for line in lines if "__mutmut_" in line)


def chosen(changes: Iterable[str], sample: int) -> list[str]:
    """Some changes of every file, the same ones every time."""
    by_file = defaultdict(list)
    for change in changes:
        by_file[file_of(change)].append(change)
    draw = random.Random(0)  # noqa: S311
    return [one for own in by_file.values() for one in draw.sample(own, min(sample, len(own)))]


def file_of(change: str) -> str:
    """The module of a change."""
    return re.sub(r"\.x[_ǁ].*", "", change)


def share(outcomes_of_changes: list[str]) -> float:
    """The part that ended in anything but tests that passed."""
    return sum(outcome in ENDED for outcome in outcomes_of_changes) / max(1, len(outcomes_of_changes))


if __name__ == "__main__":
    if sys.argv[1] not in GROUPS:
        sys.exit(f"there is no group {sys.argv[1]!r}; choose from {', '.join(GROUPS)}.")
    missed = 0
    for figure in figures(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else None):
        print(figure.line(), flush=True)
        missed += not figure.passed
    sys.exit(int(missed > 0))
