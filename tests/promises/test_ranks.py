"""On any number of ranks the loss, its gradient and the trained weights are those of one process with the joined batch.

The ranks are real processes that talk through gloo; ranks_worker.py is what each of them runs.
"""

import copy
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist

import momentalign as ma
from momentalign.discrepancies import distributed as ranks
from momentalign.errors import InvalidInputError, InvalidTypeError, MomentAlignWarning

WORKER = Path(__file__).with_name("ranks_worker.py")
EXAMPLE = Path(__file__).parents[2] / "examples" / "train_on_several_nodes.py"
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 1e-2}

spec = importlib.util.spec_from_file_location("momentalign_ranks_worker", WORKER)
worker = importlib.util.module_from_spec(spec)
spec.loader.exec_module(worker)


def _finish(*processes):
    """Wait for all; a rank that hangs, or fails and lets the others wait, ends the test and all of them."""
    try:
        output = [process.communicate(timeout=120)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0] * len(processes), "\n".join(output)
    return output


def _start(*arguments):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
    )


@pytest.fixture(scope="module", params=[2, 4])
def found(request, tmp_path_factory):
    """What every rank got for every case."""
    folder = tmp_path_factory.mktemp(f"ranks{request.param}")
    _finish(*(_start("-W", "error", WORKER, rank, request.param, folder) for rank in range(request.param)))
    return [dict(np.load(folder / f"rank{rank}.npz")) for rank in range(request.param)]


def _one_process(case, number):
    """Loss and gradients of the joined batch, the gradients cut into the rows of each rank."""
    parts = worker.shards(case, number)
    joined = [torch.cat(samples) for samples in zip(*parts, strict=True)]
    value, *gradients = worker.loss_and_gradients(ma.CMDLoss(**case.settings), *joined)
    shards = [
        gradient.double().split([len(part[domain]) for part in parts]) for domain, gradient in enumerate(gradients)
    ]
    return value.item(), *shards


def _agree(found, name, expected, tolerance):
    """The loss on every rank; the gradient of a rank is that of the sum of all ranks' (equal) losses."""
    value, source, target = expected
    number = len(source)
    for rank in range(number):
        assert found[rank][f"{name}/loss"] == pytest.approx(value, rel=tolerance)
        for domain, shards in (("source", source), ("target", target)):
            peak = max(shard.abs().max().item() for shard in shards if len(shard))
            np.testing.assert_allclose(
                found[rank][f"{name}/{domain}"] / number, shards[rank], rtol=0, atol=tolerance * peak
            )


@pytest.mark.parametrize("name", worker.CASES)
def test_loss_and_gradient_are_those_of_the_joined_batch(found, name):
    case = worker.CASES[name]
    _agree(found, name, _one_process(case, len(found)), TOLERANCE[case.dtype])
    assert len({rank[f"{name}/loss"].item() for rank in found}) == 1


@pytest.mark.parametrize("name", [name for name, case in worker.CASES.items() if case.rows == worker.UNEQUAL])
def test_the_average_of_the_ranks_distances_fails_the_same_comparison(found, name):
    case = worker.CASES[name]
    with pytest.raises(AssertionError):
        _agree(found, f"naive {name}", _one_process(case, len(found)), TOLERANCE[case.dtype])


@pytest.mark.parametrize("found", [4], indirect=True)
def test_a_group_of_two_ranks_joins_their_shards_and_is_refused_by_the_others(found):
    _agree(found, "pair", _one_process(worker.CASES["five moments"], 2), 1e-12)
    for rank in found[2:]:
        assert "a torch.distributed.ProcessGroup this process belongs to" in rank["stranger"].item()


def test_the_interval_of_the_data_is_that_of_all_ranks(found):
    parts = worker.shards(worker.CASES["empty shards"], len(found))
    source, target = (5 * torch.cat(samples) - 1 for samples in zip(*parts, strict=True))
    values = torch.cat([source, target])
    for rank in found:
        assert rank["interval"].tolist() == [values.min(), values.max()]
        assert [str(text).split(":")[0] for text in rank["warnings"]] == [
            "the interval of the activations is estimated from the data"
        ]
        expected = ma.cmd(source, target, interval=tuple(rank["interval"])).item()
        assert rank["data/loss"] == pytest.approx(expected, rel=1e-12)


def test_every_rank_learns_of_what_cannot_be_computed(found):
    for name in ("nan", "data nan"):
        assert found[0][name].item().startswith("the joined batch has no finite distance, though the shards of rank 0")
        assert found[1][name].item().startswith("source holds NaN or infinite values on rank 1; remove")
    for rank, messages in enumerate(found):
        assert f"rank {rank} are finite" in messages["no rows"].item()
        assert "a domain has no rows on any rank" in messages["no rows"].item()
        assert "powers overflow torch.float64" in messages["overflow"].item()


@pytest.mark.parametrize("found", [2], indirect=True)
def test_distributed_data_parallel_trains_the_weights_of_one_process(found):
    expected = worker.weights(worker.trained(worker.Network(), ma.CMDLoss(), range(2)))
    for rank in found:
        np.testing.assert_allclose(rank["joined weights"], expected, rtol=0, atol=1e-10)
        assert np.abs(rank["naive weights"] - expected).max() > 1e-3


def test_a_metric_has_the_distance_of_all_rows(found):
    batches = [worker.shards(worker.CASES[name], len(found)) for name in worker.METRIC]
    for name, seen in (("metric", batches), ("metric again", [*batches, batches[0]])):
        expected = _distance([pair for parts in seen for pair in parts])
        assert [rank[name].item() for rank in found] == pytest.approx([expected] * len(found), rel=1e-12)
        alone = [_distance([parts[rank] for parts in seen]) for rank in range(len(found))]
        assert abs(np.mean(alone) - expected) > 1e-3, "the mean of the ranks is another number"
    for rank, figures in enumerate(found):
        assert figures["metric rows"] == sum(len(parts[rank][0]) for parts in batches), "its own rows after computing"


def _distance(pairs):
    return ma.cmd(*(torch.cat(samples) for samples in zip(*pairs, strict=True))).item()


@pytest.fixture
def group():
    """A group of this process alone."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield dist.group.WORLD
    dist.destroy_process_group()


def test_two_collectives_run_forward_and_one_backward(group, pair, monkeypatch):
    sizes = []
    reduce = dist.all_reduce

    def counted(tensor, *arguments, **named):
        sizes.append(tensor.numel())
        return reduce(tensor, *arguments, **named)

    monkeypatch.setattr(ranks.dist, "all_reduce", counted)
    value = ma.CMDLoss(n_moments=5, cross=2, process_group=group)(*pair(width=3, grad=True))
    assert sizes == [2 * (1 + 3), 2 * 6 * 3 + 3 * 3]
    value.backward()
    assert sizes[2:] == [2 * 6 * 3 + 3 * 3]


@pytest.mark.parametrize("cross", [1, 2])
def test_gradients_can_be_differentiated_again(group, pair, cross):
    loss = ma.CMDLoss(n_moments=3, cross=cross, process_group=group)
    samples = pair(4, 3, 2, grad=True)
    assert torch.autograd.gradcheck(loss, samples)
    assert torch.autograd.gradgradcheck(loss, samples)


def test_equal_samples_have_no_distance_and_no_gradient(group, rng):
    sample = torch.tensor(rng.random((50, 4)) + 1e4, dtype=torch.float32, requires_grad=True)
    for cross in (1, 2):
        value = ma.CMDLoss(cross=cross, process_group=group)(sample, sample.detach().flip(0))
        value.backward()
        assert value == 0
        assert not sample.grad.any()


def test_without_gradients_the_loss_is_a_plain_number(group, pair):
    with torch.no_grad():
        assert not ma.CMDLoss(process_group=group)(*pair()).requires_grad


def test_autocast_lowers_no_product(group, pair):
    source, target = pair(dtype=torch.float32)
    loss = ma.CMDLoss(cross=2, process_group=group)
    with torch.autocast("cpu", torch.bfloat16):
        value = loss(source, target)
    assert value == loss(source, target)


def test_alone_in_a_group_the_interval_of_the_data_is_that_of_one_process(group, pair):
    source, target = (5 * sample - 1 for sample in pair())
    losses = [ma.CMDLoss(interval="data", process_group=process_group) for process_group in (group, None)]
    for loss in losses:
        with pytest.warns(MomentAlignWarning, match="estimated from the data"):
            loss(source, target)
    assert losses[0].interval == losses[1].interval


@pytest.mark.parametrize("interval", [(0.0, 1.0), "data"])
def test_what_has_no_distance_is_named_by_rank(group, pair, interval):
    source, target = pair()
    loss = ma.CMDLoss(interval=interval, process_group=group)
    with pytest.raises(InvalidInputError, match="target holds NaN or infinite values on rank 0"):
        loss(source, target / 0.0)
    with pytest.raises(InvalidInputError, match="a domain has no rows on any rank"):
        loss(source[:0], target[:0])


def test_a_copy_talks_through_the_same_group(group, pair):
    loss = ma.CMDLoss(n_moments=3, interval=(-1.0, 1.0), process_group=group)
    copied = copy.deepcopy(torch.nn.ModuleList([loss, loss]))
    assert copied[0] is copied[1] is not loss
    assert copied[0].process_group is group
    assert copied[0](*pair()).item() > 0
    assert repr(copied[0]) == repr(loss)
    assert repr(loss).endswith("unbiased=False, process_group of 1 ranks)")
    assert copy.deepcopy(ma.CMDLoss()).process_group is None


def test_what_ranks_cannot_do_is_refused(group, pair):
    with pytest.raises(InvalidInputError, match="several processes have cross=1 or cross=2, got cross=3"):
        ma.CMDLoss(cross=3, process_group=group)
    with pytest.raises(InvalidInputError, match="set unbiased=False"):
        ma.CMDLoss(unbiased=True, process_group=group)
    with pytest.raises(InvalidTypeError, match=r"process_group must be .* got 'world'; try .*group\.WORLD after"):
        ma.CMDLoss(process_group="world")
    with pytest.raises(InvalidInputError, match="source has 3 columns and target has 2"):
        ma.CMDLoss(process_group=group)(torch.zeros(0, 3), torch.zeros(4, 2))
    with pytest.raises(InvalidTypeError, match="source must hold real floating-point numbers"):
        ma.CMDLoss(process_group=group)(torch.zeros(0, 3, dtype=torch.int64), torch.zeros(4, 3))


def test_the_example_trains_on_two_processes():
    command = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    (output,) = _finish(_start(*command, EXAMPLE))
    assert output.startswith("2 processes: source accuracy 0.9")
    assert float(output.split()[-1]) > 0.9, "without alignment it is 0.85"
