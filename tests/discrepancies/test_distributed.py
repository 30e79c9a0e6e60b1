"""The distance over ranks, which are threads of one process here; promises/test_ranks.py starts real processes."""

import datetime
import math
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.distributed as dist

import momentalign as ma
from momentalign.discrepancies import distributed as ranks
from momentalign.discrepancies.distributed import check_group, joined_range, joined_terms
from momentalign.errors import InvalidInputError, InvalidTypeError

EPS = torch.finfo(torch.float64).eps
WHERE = ": another rank holds NaN or infinite values, a domain has no rows on any rank, or powers overflow "
REMEDY = "; mend the data, or give the range of the activations as interval=(a, b)."


@pytest.fixture(autouse=True)
def world():
    """The group of this process alone: who asks it instead of the group of all ranks gets nothing of the others."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield dist.group.WORLD
    dist.destroy_process_group()


def on_ranks(work, *shards):
    """What `work` returns on every rank with its own shards."""
    store = dist.HashStore()

    def run(rank):
        return work(*shards[rank], dist.ProcessGroupGloo(store, rank, len(shards), datetime.timedelta(seconds=30)))

    with ThreadPoolExecutor(len(shards)) as pool:
        return list(pool.map(run, range(len(shards))))


def value_and_gradients(settings):
    def work(source, target, group):
        samples = source.clone().requires_grad_(), target.clone().requires_grad_()
        value = joined_terms(*samples, **settings, group=group).sum()
        return value.detach(), torch.autograd.grad(value, samples)

    return work


@pytest.mark.parametrize("cross", [1, 2])
@pytest.mark.parametrize("n_moments", [2, 3, 5])
@pytest.mark.parametrize(("rows", "others"), [((4, 3), (2, 3)), ((7, 0), (0, 5)), ((0, 7), (1, 4))])
def test_value_and_gradient_are_those_of_the_joined_batch(pair, n_moments, cross, rows, others):
    source, target = pair(sum(rows), sum(others), 3, grad=True)
    expected = ma.cmd(source, target, n_moments=n_moments, cross=cross, interval=(-1, 1))
    gradients = torch.autograd.grad(expected, (source, target))
    shards = zip(source.detach().split(rows), target.detach().split(others), strict=True)
    found = on_ranks(value_and_gradients({"n_moments": n_moments, "scale": 2.0, "cross": cross}), *shards)
    for value, _ in found:
        torch.testing.assert_close(value, expected.detach(), rtol=1e-12, atol=0.0)
    for domain, gradient in enumerate(gradients):
        joined = torch.cat([slopes[domain] for _, slopes in found])
        torch.testing.assert_close(joined, 2 * gradient, rtol=1e-9, atol=1e-14)  # of the sum of both ranks' losses


def test_half_precision_is_widened(pair):
    source, target = (sample.bfloat16() for sample in pair(6, 4, 3))
    found = on_ranks(
        lambda *given: joined_terms(*given[:2], n_moments=5, scale=1.0, cross=1, group=given[2]).sum(),
        *zip(source.split(3), target.split(2), strict=True),
    )
    assert [value.dtype for value in found] == [torch.float32] * 2
    torch.testing.assert_close(found[0].detach(), ma.cmd(source, target), rtol=1e-5, atol=0.0)


def test_the_shift_is_the_joined_mean_rounded(rng, world):
    source, target = (torch.tensor(1e4 + rng.random((3000, 2)), dtype=torch.float32) for _ in range(2))
    counts, shifts = ranks._counts_and_shifts(source, target[:7], world)
    assert counts.tolist() == [3000.0, 7.0]
    assert shifts.equal(torch.stack([source.double().mean(0), target[:7].double().mean(0)]).float())


def test_a_loss_that_joins_ranks_afterwards_computes_the_joined_distance_or_refuses(pair, world):
    """What the constructor refuses is refused here too: it was computed of each shard by itself."""
    source, target = pair(8, 6, 3)
    loss = ma.CMDLoss(3, cross=2)
    loss.join_ranks(world)
    torch.testing.assert_close(loss(source, target).detach(), ma.cmd(source, target, n_moments=3, cross=2))
    torch.testing.assert_close(
        loss.orders(source, target).detach(), ma.cmd_terms(source, target, n_moments=3, cross=2), rtol=1e-12, atol=0.0
    )
    for settings in ({"unbiased": True}, {"cross": 3}):
        with pytest.raises(InvalidInputError, match="joined batches of several processes have"):
            ma.CMDLoss(3, **settings).join_ranks(world)


def joined(source, target, group, *, n_moments=2, cross=1):
    return joined_terms(source, target, n_moments=n_moments, scale=1.0, cross=cross, group=group).sum().item()


LEVELS = [
    # Rows -1 and 1 against the same moved by d: the means differ by d, and both have the size 1.
    (lambda rows, d: rows + d, {"n_moments": 1}, 64),
    # Against (1 + d) times the same: variances differ by 2 d, fourth moments by 4 d, and all have the size 1.
    (lambda rows, d: rows * (1 + d), {"n_moments": 2}, 32),
    # Of two equal columns the four covariances differ by 2 d, the two off the diagonal count once; the size is 4.
    (lambda rows, d: rows * (1 + d), {"n_moments": 2, "cross": 2}, 64 / math.sqrt(3)),
]


@pytest.mark.parametrize(("other", "settings", "digits"), LEVELS)
def test_a_term_is_noise_up_to_32_last_digits_of_its_size(other, settings, digits):
    rows = torch.tensor([[-1.0], [1.0]]).double().repeat(1, settings.get("cross", 1))
    for share, is_noise in ((0.85, True), (1.15, False)):
        whole = rows, other(rows, share * digits * EPS)
        found = on_ranks(lambda *given: joined(*given, **settings), *zip(*(x.split(1) for x in whole), strict=True))
        assert [value == 0.0 for value in found] == [is_noise] * 2


def test_products_of_many_rows_have_more_noise():
    """A quarter of the root of 1600 rows is 10."""
    rows = torch.tensor([[-1.0, -1.0], [1.0, 1.0]]).double().repeat(800, 1)
    for share, is_noise in ((0.85, True), (1.15, False)):
        other = rows[:2] * (1 + share * 640 / math.sqrt(3) * EPS)
        found = on_ranks(lambda *given: joined(*given, cross=2), (rows[:1000], other), (rows[1000:], other[:0]))
        assert [value == 0.0 for value in found] == [is_noise] * 2


def test_the_range_is_that_of_all_ranks():
    shards = [([[3.0, -1.0]], [[0.5, 0.0]]), ([[2.0, 2.0]], [[-4.0, 1.0]])]
    tensors = [tuple(torch.tensor(shard) for shard in both) for both in shards]
    assert [bounds.tolist() for bounds in on_ranks(joined_range, *tensors)] == [[-4.0, 3.0]] * 2
    nothing = torch.zeros(0, 2), torch.zeros(0, 2)
    assert [bounds.tolist() for bounds in on_ranks(joined_range, tensors[0], nothing)] == [[-1.0, 3.0]] * 2


@pytest.mark.parametrize("work", [joined_range, joined])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_rank_names_its_own_bad_values(world, work, value):
    good, bad = torch.ones(2, 2), torch.tensor([[1.0, value]])
    for shards, name in (((bad, good), "source"), ((good, bad), "target")):
        own = f"{name} holds NaN or infinite values on rank 0; remove or impute them first."
        with pytest.raises(InvalidInputError) as caught:
            work(*shards, world)
        assert str(caught.value) == own


NOTHING, HUGE = torch.ones(0, 2), torch.tensor([[1e30], [-1e30]])


@pytest.mark.parametrize(("work", "sample"), [(joined_range, NOTHING), (joined, NOTHING), (joined, HUGE)])
def test_a_rank_with_good_values_says_what_may_be_wrong(world, work, sample):
    with pytest.raises(InvalidInputError) as caught:
        work(sample, sample[:1], world)
    start = "the joined batch has no finite distance, though the shards of rank 0 are finite"
    assert str(caught.value) == f"{start}{WHERE}torch.float32{REMEDY}"


@pytest.mark.parametrize("work", [joined_range, joined])
def test_a_shard_is_a_matrix(world, work):
    words = r"^source must be a matrix \(rows, features\), got shape \(3,\); reshape it to two dimensions\.$"
    with pytest.raises(InvalidInputError, match=words):
        work(torch.ones(3), torch.ones(2, 3), world)


def test_what_ranks_cannot_do_is_refused(world):
    assert check_group(None, cross=3, unbiased=True) is None
    assert check_group(world, cross=2, unbiased=False) is world
    cases = [
        (
            ("world", 1, False),
            InvalidTypeError,
            "process_group must be a torch.distributed.ProcessGroup this process belongs to, or None, got 'world'; try "
            "process_group=torch.distributed.group.WORLD after torch.distributed.init_process_group().",
        ),
        (
            (world, 3, False),
            InvalidInputError,
            "joined batches of several processes have cross=1 or cross=2, got cross=3; lower cross.",
        ),
        (
            (world, 1, True),
            InvalidInputError,
            "joined batches of several processes have no unbiased estimate; set unbiased=False.",
        ),
    ]
    for (group, cross, unbiased), error, words in cases:
        with pytest.raises(error) as caught:
            check_group(group, cross=cross, unbiased=unbiased)
        assert str(caught.value) == words
