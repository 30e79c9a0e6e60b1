"""The CMD of several domains against sums of the CMD of two, and against float64 differences."""

import math
from itertools import combinations, product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import momentalign as ma
from momentalign.discrepancies.several_domains import TEMPERATURE, stacked_domains
from momentalign.errors import InvalidInputError, InvalidTypeError

BETWEEN = ["pooled", "pairs", "barycentre"]
WEIGHTS = ["equal", "size", "similarity", (1.0, 3.0, 0.5)]


@pytest.fixture
def domains(rng):
    """Three sources and two targets of different sizes: ``domains(torch.float64, grad=True)``."""

    def draw(dtype=torch.float64, *, grad=False, width=4):
        powers = {"sources": [(9, 1.0), (7, 2.0), (12, 0.6)], "targets": [(8, 1.5), (6, 3.0)]}
        return [
            [torch.tensor(rng.random((rows, width)) ** power, dtype=dtype, requires_grad=grad) for rows, power in kind]
            for kind in powers.values()
        ]

    return draw


def _oracle_weights(sources, targets, weights, n_moments, interval):
    """u of all domains, by the formulas of the docstring."""
    if weights == "equal":
        return np.ones(len(sources) + len(targets))
    if weights == "size":
        return np.array([len(sample) for sample in (*sources, *targets)], dtype=float)
    if weights == "similarity":
        far = np.array([np.mean([_cmd(s, t, n_moments, interval) for t in targets]) for s in sources])
        near = np.exp(-far / (TEMPERATURE * far.mean()))
        return np.array([*(len(sources) * near / near.sum()), *np.ones(len(targets))])
    return np.array([*(np.array(weights) / np.mean(weights)), *np.ones(len(targets))])


def _cmd(source, target, n_moments, interval):
    return float(ma.cmd(source, target, n_moments=n_moments, interval=interval))


def _central(sample, n_moments, interval):
    values = sample / (interval[1] - interval[0])
    mean = values.mean(0)
    return np.stack([mean, *(((values - mean) ** order).mean(0) for order in range(2, n_moments + 1))])


def _oracle(sources, targets, between, weights, n_moments=5, interval=(0.0, 1.0)):
    sources, targets = ([sample.detach().numpy() for sample in kind] for kind in (sources, targets))
    if between == "pooled":
        targets = [np.concatenate(targets)]
    u = _oracle_weights(sources, targets, weights, n_moments, interval)
    if between == "pooled":
        return np.average([_cmd(s, targets[0], n_moments, interval) for s in sources], weights=u[: len(sources)])
    every = [*sources, *targets]
    if between == "pairs":
        pairs = list(combinations(range(len(every)), 2))
        distances = [_cmd(every[d], every[e], n_moments, interval) for d, e in pairs]
        return np.average(distances, weights=[u[d] * u[e] for d, e in pairs])
    shares = u / u.sum()
    moments = [_central(sample, n_moments, interval) for sample in every]
    middle = sum(share * own for share, own in zip(shares, moments, strict=True))
    distances = [np.linalg.norm(own - middle, axis=1).sum() for own in moments]
    return float(shares @ distances) / (1.0 - (shares**2).sum())


@pytest.mark.parametrize(("between", "weights"), list(product(BETWEEN, WEIGHTS)))
@pytest.mark.parametrize(("n_moments", "interval"), [(5, (0.0, 1.0)), (1, (0.0, 1.0)), (3, (-1.0, 1.0))])
def test_it_is_what_the_docstring_says(domains, between, weights, n_moments, interval):
    sources, targets = domains()
    settings = {"between": between, "n_moments": n_moments, "interval": interval}
    value = ma.multi_domain_cmd(sources, targets, domain_weights=weights, **settings)
    assert value.item() == pytest.approx(_oracle(sources, targets, weights=weights, **settings), rel=1e-9)


@pytest.mark.parametrize(("between", "weights"), list(product(BETWEEN, ["equal", "size", "similarity", [7.0]])))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_one_source_and_one_target_are_the_cmd(domains, between, weights, dtype):
    (source, *_), (target, *_) = domains(dtype)
    for settings in ({}, {"n_moments": 3, "interval": (-1.0, 1.0)}):
        value = ma.multi_domain_cmd([source], [target], between=between, domain_weights=weights, **settings)
        assert value.dtype == dtype
        torch.testing.assert_close(value, ma.cmd(source, target, **settings), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(("between", "weights"), list(product(BETWEEN, ["equal", "size", (1.0, 3.0, 0.5)])))
def test_gradients_are_those_of_differences(domains, between, weights):
    sources, targets = domains(grad=True, width=2)

    def distance(*samples):
        return ma.multi_domain_cmd(samples[:3], samples[3:], between=between, domain_weights=weights)

    assert torch.autograd.gradcheck(distance, (*sources, *targets), eps=1e-7, atol=1e-6)


@pytest.mark.parametrize("between", BETWEEN)
def test_no_gradient_flows_through_the_weights(domains, between):
    """The gradient is that of the same weights given as numbers."""
    sources, targets = domains(grad=True)
    known = [sample.detach().numpy() for sample in targets]
    known = [np.concatenate(known)] if between == "pooled" else known
    near = _oracle_weights([s.detach().numpy() for s in sources], known, "similarity", 5, (0.0, 1.0))[:3]
    gradients = [
        torch.autograd.grad(
            ma.multi_domain_cmd(sources, targets, between=between, domain_weights=weights), (*sources, *targets)
        )
        for weights in ("similarity", near)
    ]
    torch.testing.assert_close(*gradients, rtol=1e-9, atol=1e-12)


def test_near_sources_weigh_more(domains, rng):
    (first, *_), (target, *_) = domains()
    far = torch.tensor(0.9 + 0.1 * rng.random((9, 4)))
    near = target + 0.01
    by_nearness, equal = (
        ma.multi_domain_cmd([near, first, far], [target], domain_weights=weights) for weights in ("similarity", "equal")
    )
    assert by_nearness < 0.2 * equal


def test_weights_of_numbers_count_by_their_ratios(domains):
    sources, targets = domains()
    for between in BETWEEN:
        one, ten = (
            ma.multi_domain_cmd(sources, targets, between=between, domain_weights=np.array([1.0, 2.0, 3.0]) * factor)
            for factor in (1.0, 10.0)
        )
        torch.testing.assert_close(one, ten, rtol=1e-12, atol=0.0)
    alone = ma.multi_domain_cmd(sources, targets, domain_weights=[0, 1, 0])
    torch.testing.assert_close(alone, ma.cmd(sources[1], torch.cat(targets)))


@given(seed=st.integers(0, 10_000), n_sources=st.integers(1, 4), n_targets=st.integers(1, 3))
def test_a_barycentre_is_never_farther_than_the_pairs(seed, n_sources, n_targets):
    random = np.random.default_rng(seed)
    draw = lambda: random.random((random.integers(2, 8), 3)) ** random.uniform(0.3, 3.0)  # noqa: E731
    samples = [draw() for _ in range(n_sources)], [draw() for _ in range(n_targets)]
    for weights in ("equal", "size", "similarity"):
        values = [ma.multi_domain_cmd(*samples, between=way, domain_weights=weights) for way in ("barycentre", "pairs")]
        assert 0.0 <= values[0] <= values[1] * (1 + 1e-9)


@pytest.mark.parametrize("weights", ["equal", "size", "similarity"])
def test_the_order_of_domains_does_not_matter(domains, weights):
    sources, targets = domains()
    for between in BETWEEN:
        forth, back = (
            ma.multi_domain_cmd(sources[::way], targets[::way], between=between, domain_weights=weights)
            for way in (1, -1)
        )
        torch.testing.assert_close(forth, back, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("between", BETWEEN)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equal_domains_are_at_distance_zero_with_zero_gradient(domains, between, dtype):
    (sample, *_), _ = domains(dtype)
    # Rows in other orders round in other ways.
    copies = [sample[torch.randperm(len(sample))].clone().requires_grad_() for _ in range(4)]
    for weights in ("equal", "similarity"):
        value = ma.multi_domain_cmd(copies[:2], copies[2:], between=between, domain_weights=weights)
        assert value == 0
        assert all((slope == 0).all() for slope in torch.autograd.grad(value, copies))


@pytest.mark.parametrize("between", BETWEEN)
def test_an_offset_takes_no_digits(domains, between):
    """In float32 raw powers at 1,000 would leave nothing."""
    sources, targets = domains(torch.float32)
    moved = [[sample + 1000 for sample in kind] for kind in (sources, targets)]
    settings = {"between": between, "interval": (1000.0, 1001.0), "domain_weights": (1.0, 3.0, 0.5)}
    exact = ma.multi_domain_cmd(*([sample.double() for sample in kind] for kind in moved), **settings)
    assert ma.multi_domain_cmd(*moved, **settings).item() == pytest.approx(exact.item(), rel=2e-6)


def test_arrays_give_floats_and_tensors_give_tensors(domains):
    sources, targets = domains(torch.float32, grad=True)
    value = ma.multi_domain_cmd(sources, targets)
    assert value.dtype == torch.float32
    assert value.requires_grad
    arrays = [[sample.detach().numpy() for sample in kind] for kind in (sources, targets)]
    found = ma.multi_domain_cmd(*arrays)
    assert type(found) is float
    assert found == pytest.approx(value.item(), rel=1e-6)
    assert ma.multi_domain_cmd(tuple(arrays[0]), [targets[0].tolist()]) > 0
    halves = [[sample.detach().half() for sample in kind] for kind in (sources, targets)]
    assert ma.multi_domain_cmd(*halves).dtype == torch.float32
    mixed = [sources[0].detach().double(), *sources[1:]]
    assert ma.multi_domain_cmd(mixed, targets).dtype == torch.float64


def test_autocast_lowers_no_precision(domains):
    sources, targets = domains(torch.float32)
    expected = ma.multi_domain_cmd(sources, targets, between="barycentre")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert ma.multi_domain_cmd(sources, targets, between="barycentre") == expected


@pytest.mark.parametrize(("between", "weights"), list(product(BETWEEN, WEIGHTS)))
def test_a_stack_is_computed_as_its_parts(domains, between, weights):
    parts = [domains() for _ in range(3)]
    stacks = [[torch.stack(samples) for samples in zip(*kind, strict=True)] for kind in zip(*parts, strict=True)]
    together = stacked_domains(*stacks, 4, scale=2.0, between=between, weights=weights)
    apart = [
        ma.multi_domain_cmd(*part, n_moments=4, interval=(-1.0, 1.0), between=between, domain_weights=weights)
        for part in parts
    ]
    torch.testing.assert_close(together, torch.stack(apart), rtol=1e-12, atol=1e-14)


def test_the_loss_is_the_function(domains):
    sources, targets = domains()
    loss = ma.MultiDomainCMDLoss(3, (-1.0, 1.0), between="pairs", domain_weights="size")
    expected = ma.multi_domain_cmd(
        sources, targets, n_moments=3, interval=(-1.0, 1.0), between="pairs", domain_weights="size"
    )
    assert loss(sources, targets) == expected
    assert list(loss.parameters()) == []
    assert ma.MultiDomainCMDLoss()(sources, targets) == ma.multi_domain_cmd(sources, targets)


ONE = np.ones((3, 2))
LIST = "must be a list of samples, one matrix (rows, features) per domain, got"
WEIGHTED = 'domain_weights must be "equal", "size", "similarity" or one number per source, got'
POSITIVE = "domain_weights must be finite, none negative and one positive at least, got"
LARGE = np.array([[1e38], [0.0]], np.float32), ONE[:, :1].astype(np.float32)
BAD_SAMPLES = [
    (ONE, [ONE], InvalidTypeError, f"sources {LIST} a ndarray; try [sample]."),
    ([ONE], [], InvalidTypeError, f"targets {LIST} an empty one; try [sample]."),
    (
        [ONE, ONE[0]],
        [ONE],
        InvalidInputError,
        "sources[1] must be a matrix (rows, features), got shape (2,); reshape it to two dimensions.",
    ),
    (
        [ONE],
        [ONE, ONE[:, :1]],
        InvalidInputError,
        "sources[0] has 2 columns and targets[1] has 1; give both the same features.",
    ),
    (
        [ONE],
        [torch.ones(2, 2)],
        InvalidTypeError,
        "sources[0] and targets[0] must both be torch tensors or both be arrays, got ndarray and Tensor; convert "
        "one of them.",
    ),
    (
        [torch.ones(2, 2)],
        [torch.ones(2, 2, device="meta")],
        InvalidTypeError,
        "targets[0] is on the meta device and holds no numbers; give a tensor that does.",
    ),
    (
        [ONE, np.full((3, 2), np.nan)],
        [ONE],
        InvalidInputError,
        "sources[1] holds NaN or infinite values; remove or impute them first.",
    ),
    (
        [ONE],
        [ONE, np.full((3, 2), np.inf)],
        InvalidInputError,
        "targets[1] holds NaN or infinite values; remove or impute them first.",
    ),
    (
        [LARGE[0]],
        [LARGE[1]],
        InvalidInputError,
        "the powers of values as large as 1e+38 overflow torch.float32; give the range of the activations as "
        "interval=(a, b), scale them, or lower n_moments.",
    ),
]
BAD_SETTINGS = [
    ({"n_moments": 0}, InvalidInputError, "n_moments must be at least 1, got 0; try n_moments=5."),
    (
        {"interval": "data"},
        InvalidInputError,
        "interval must be a pair (a, b) where domains are several, got 'data'; try interval=(0.0, 1.0).",
    ),
    (
        {"interval": (1.0, 1.0)},
        InvalidInputError,
        "interval must be finite and not empty, got (1.0, 1.0); try interval=(0.0, 1.0).",
    ),
    (
        {"between": "triples"},
        InvalidInputError,
        "between must be one of 'pooled', 'pairs', 'barycentre', got 'triples'.",
    ),
    ({"between": None}, InvalidInputError, "between must be one of 'pooled', 'pairs', 'barycentre', got None."),
    ({"domain_weights": "rows"}, InvalidInputError, f"{WEIGHTED} 'rows'."),
    ({"domain_weights": 1.0}, InvalidInputError, f"{WEIGHTED} 1.0."),
    (
        {"domain_weights": ["1"]},
        InvalidTypeError,
        "domain_weights must hold numbers, got ['1']; try [1.0, 2.0] for two sources.",
    ),
    (
        {"domain_weights": [True]},
        InvalidTypeError,
        "domain_weights must hold numbers, got [True]; try [1.0, 2.0] for two sources.",
    ),
    ({"domain_weights": [2, -1]}, InvalidInputError, f"{POSITIVE} [2, -1]."),
    ({"domain_weights": [math.inf]}, InvalidInputError, f"{POSITIVE} [inf]."),
    ({"domain_weights": [0.0]}, InvalidInputError, f"{POSITIVE} [0.0]."),
    (
        {"domain_weights": [1.0, 2.0]},
        InvalidInputError,
        "domain_weights has 2 numbers for 1 sources; give one number per source.",
    ),
]


@pytest.mark.parametrize(("sources", "targets", "error", "words"), BAD_SAMPLES)
def test_samples_that_do_not_go_together_are_refused(sources, targets, error, words):
    with pytest.raises(error) as caught:
        ma.multi_domain_cmd(sources, targets)
    assert str(caught.value) == words


@pytest.mark.parametrize(("settings", "error", "words"), BAD_SETTINGS)
def test_settings_that_cannot_be_meant_are_refused(settings, error, words):
    with pytest.raises(error) as caught:
        ma.multi_domain_cmd([ONE], [ONE], **settings)
    assert str(caught.value) == words


@pytest.mark.parametrize("settings", [{"n_moments": 0}, {"between": "x"}, {"domain_weights": [-1]}, {"interval": "x"}])
def test_a_loss_refuses_bad_settings_at_once(settings):
    with pytest.raises(InvalidInputError, match=next(iter(settings))):
        ma.MultiDomainCMDLoss(**settings)
