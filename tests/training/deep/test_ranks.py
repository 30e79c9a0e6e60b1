"""Two processes with half of every batch each train to the weights of one process with whole batches."""

import csv
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from momentalign.training.deep.ranks import BalancedSampler

PROGRAM = Path(__file__).with_name("two_processes.py")
SPEC = importlib.util.spec_from_file_location("two_processes", PROGRAM)
program = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(program)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("ranks")


@pytest.fixture(scope="module")
def ranks(folder):
    """What each of the two processes has found."""
    command = [sys.executable, str(PROGRAM), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=os.environ, cwd=folder)
    assert done.returncode == 0, done.stderr
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]


def assert_same(two, one, *, atol):
    for found, expected in zip(two["weights"], one["weights"], strict=True):
        torch.testing.assert_close(torch.tensor(found), torch.tensor(expected), rtol=0, atol=atol)
    for found, expected in zip(two["history"], one["history"], strict=True):
        assert found == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("kind", program.KINDS)
def test_two_processes_train_as_one(ranks, kind):
    one = program.train(1, 16, kind)
    assert ranks[0]["trained"][kind] == ranks[1]["trained"][kind]
    assert_same(ranks[0]["trained"][kind], one, atol=1e-10)
    assert one["history"][0]["distance"] > 0.1
    assert kind != "sharpened" or one["history"][1]["consistency"] > 0.0


@pytest.mark.parametrize(("kind", "settings"), [("later", program.LATER), ("dann", {"discrepancy": "dann"})])
def test_a_network_whose_weights_are_spread_trains_as_a_whole_one(ranks, kind, settings):
    """FSDP2; a domain classifier and the averaged network are spread too."""
    assert ranks[0]["sharded"][kind]["kinds"] == ["DTensor"]
    assert_same(ranks[0]["sharded"][kind], program.train_sharded(1, 16, **settings), atol=1e-6)


def test_logging_costs_one_reduction_a_step(ranks):
    """Of two processes that talk through gloo, whatever is logged; those of the training itself are in both counts."""
    steps, logged, silent = 8, ranks[0]["logged"], ranks[0]["silent"]
    assert logged["weights"] == silent["weights"]
    assert 4 * steps <= silent["count"] < logged["count"] <= silent["count"] + steps


def test_what_is_logged_is_that_of_all_processes(ranks, folder):
    """Not of the rows of the first."""
    program.train_in_trainer(1, 16, discrepancy="cv-cmd", logs=folder / "one")
    two, one = (
        list(csv.DictReader(path.read_text().splitlines()))
        for name in ("logs", "one")
        for path in (folder / name).rglob("metrics.csv")
    )
    names = {"source_loss", "distance", "accuracy", *(f"distance/{order}" for order in range(1, 6))}
    assert len(two) == len(one) >= 8
    assert names <= set(two[0])
    for found, expected in zip(two, one, strict=True):
        for name in names:
            assert (found[name] == "") == (expected[name] == "")
            assert float(found[name] or 0.0) == pytest.approx(float(expected[name] or 0.0), abs=1e-6)


def test_each_rank_has_its_own_part_of_the_rows(ranks):
    parts = [found["parts"] for found in ranks]
    for found in parts:
        assert found["lengths"] == [4, [0, 1]]
        assert found["again"] != found["source"]
        assert found["left alone"] == [True] * 3
        assert "source_loader has SubsetRandomSampler, which cannot be split over 2 processes" in found["refused"]
        assert found["resumed"]
    for name in ("source", "again"):
        assert sorted(parts[0][name] + parts[1][name]) == list(range(20))
    assert [found["target"] for found in parts] == [[[0, 2], [4, 6], [0, 2], [4, 6]], [[1, 3], [5, 7], [1, 3], [5, 7]]]
    together = [row for pair in zip(parts[0]["balanced"], parts[1]["balanced"], strict=True) for row in pair]
    assert together == list(BalancedSampler([0, 1] * 5))


def test_processes_may_find_each_other_after_a_loader_was_made(ranks):
    assert [(found["whole"], found["parts"]["lengths"][0]) for found in ranks] == [(7, 4)] * 2
