"""Several sources and several targets: batches, and both engines against float64 autograd."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

import momentalign as ma
from momentalign.errors import InvalidInputError
from momentalign.networks.shallow import activations
from momentalign.training.config import NetworkSpec, Optimizer, TrainingConfig, domain_sizes
from momentalign.training.stack import has_loops, train_stack
from momentalign.training.torch_engine import BatchedEngine

WAYS = list(itertools.product(["pooled", "pairs", "barycentre"], ["equal", "size", "similarity", (1.0, 3.0, 0.5)]))
RECIPE = TrainingConfig(hidden=(6,), optimizer=Optimizer("adagrad", 0.05), batch_size=9)


@pytest.fixture
def make_domains(make_task):
    """Three sources, one of them small, and two targets; each with a shift of its own."""

    def make(kind="dense", **settings):
        task = make_task(kind, **{"rows": 46, "target_rows": 31, **settings})
        domains, others = np.arange(46) % 7 % 3, (np.arange(31) % 5 == 0).astype(np.intp)
        domains[:6] = 0
        if kind == "dense":
            task.source[:] += 0.4 * domains[:, None]
            task.target[:] -= 0.3 * others[:, None]
        return replace(task, source_domains=domains, target_domains=others)

    return make


@pytest.mark.parametrize(("between", "weights"), WAYS)
@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_the_loops_train_what_float64_autograd_trains(make_domains, assert_agreement, kind, between, weights):
    spec = NetworkSpec(3, 0.8, ma.CMDLoss(5), between=between, domain_weights=weights)
    assert_agreement(make_domains(kind), RECIPE, spec)


@pytest.mark.parametrize("between", ["pooled", "pairs", "barycentre"])
@pytest.mark.parametrize("distance", [ma.CMDLoss(1), ma.CMDLoss(2, interval=(-1.0, 1.0)), ma.CMDLoss(6)])
def test_other_orders_and_intervals(make_domains, assert_agreement, distance, between):
    assert_agreement(make_domains(), RECIPE, NetworkSpec(1, 1.0, distance, between=between))


@pytest.mark.parametrize("one", ["source_domains", "target_domains"])
@pytest.mark.parametrize("between", ["pooled", "pairs", "barycentre"])
def test_one_side_alone_may_be_several(make_domains, assert_agreement, one, between):
    assert_agreement(
        replace(make_domains(), **{one: None}), RECIPE, NetworkSpec(1, 1.0, ma.CMDLoss(3), between=between)
    )


def test_one_adversary_tells_sources_from_targets(make_domains, assert_agreement):
    """Its distance is that of the batches put together, which the loops know too."""
    task, spec = make_domains(), NetworkSpec(1, 0.7, ma.AdversarialLoss(6))
    assert has_loops(task, RECIPE, spec)
    assert_agreement(task, RECIPE, spec)


@pytest.mark.parametrize(("between", "weights"), WAYS)
def test_the_distance_of_an_update_is_that_of_its_domains(make_domains, between, weights):
    """One batch: what the engine reports is the public distance of the hidden activations before the step."""
    task, config = make_domains(), replace(RECIPE, batch_size=None)
    spec = NetworkSpec(3, 0.8, ma.CMDLoss(4), between=between, domain_weights=weights)
    engine = BatchedEngine(task, config, [spec])
    start = [layer._replace(weight=layer.weight.astype(float)) for layer in spec.start(task, config)]
    parts = [
        [activations(start, rows[domains == domain].astype(float)) for domain in range(domains.max() + 1)]
        for rows, domains in ((task.source, task.source_domains), (task.target, task.target_domains))
    ]
    expected = ma.multi_domain_cmd(*parts, n_moments=4, between=between, domain_weights=weights)
    np.testing.assert_allclose(engine.run_epochs(1)[0].distance, [expected], rtol=1e-4)


DISTANCES = {
    "mmd": ma.MMDLoss(beta=0.8),
    "median": ma.MMDLoss(),
    "coral": ma.CORALLoss(),
    "cv-cmd": ma.CMDLoss(3, cross=2),
    "callable": lambda source, target: (source.mean(0) - target.mean(0)).square().sum(),
}


@pytest.mark.parametrize("name", DISTANCES)
def test_any_distance_is_averaged_over_its_pairs(make_domains, name):
    task, config, distance = make_domains(), replace(RECIPE, batch_size=None), DISTANCES[name]
    start = [layer._replace(weight=layer.weight.astype(float)) for layer in NetworkSpec(3).start(task, config)]
    sources, targets = (
        [torch.tensor(activations(start, rows[domains == d].astype(float))) for d in range(domains.max() + 1)]
        for rows, domains in ((task.source, task.source_domains), (task.target, task.target_domains))
    )
    pairs = list(itertools.combinations([*sources, *targets], 2))
    expected = {
        ("pooled", "equal"): np.mean([float(distance(source, torch.cat(targets))) for source in sources]),
        ("pairs", "equal"): np.mean([float(distance(*pair)) for pair in pairs]),
        ("pairs", "size"): np.average(
            [float(distance(*pair)) for pair in pairs], weights=[len(left) * len(right) for left, right in pairs]
        ),
    }
    far = np.array([float(distance(source, torch.cat(targets))) for source in sources])
    near = np.exp(-far / (0.2 * far.mean()))
    expected["pooled", "similarity"] = np.average(far, weights=near)
    for (between, weights), value in expected.items():
        spec = NetworkSpec(3, 1.0, distance, between=between, domain_weights=weights)
        assert not has_loops(task, config, spec)
        figures = BatchedEngine(task, config, [spec]).run_epochs(1)[0]
        np.testing.assert_allclose(figures.distance, [value], rtol=1e-6)


def test_a_barycentre_needs_moments(make_domains):
    for distance in (ma.MMDLoss(), ma.CORALLoss(), ma.CMDLoss(cross=2)):
        spec = NetworkSpec(0, 1.0, distance, between="barycentre")
        with pytest.raises(InvalidInputError, match=r'between="barycentre" .* only discrepancy="cmd" .* got \w+Loss'):
            train_stack(make_domains(), RECIPE, [spec])


@pytest.mark.parametrize("compiled", [True, False])
def test_a_network_in_a_stack_is_the_network_alone(make_domains, largest_difference, compiled):
    task, config = make_domains(), replace(RECIPE, max_epochs=4, compiled=compiled)
    specs = [
        NetworkSpec(seed, 1.0, ma.CMDLoss(order), between=between, domain_weights=weights)
        for seed, (order, (between, weights)) in enumerate(zip([5, 5, 2, 3] * 3, WAYS, strict=True))
    ]
    specs += [NetworkSpec(7, 1.0, ma.MMDLoss(beta=1.0)), NetworkSpec(8), NetworkSpec(9, 1.0, ma.AdversarialLoss(6))]
    specs += [NetworkSpec(10, 1.0, ma.CMDLoss(2)), NetworkSpec(11, 1.0, ma.CMDLoss(4))]
    if compiled:
        specs = [spec for spec in specs if not isinstance(spec.distance, ma.MMDLoss)]
    for spec, network in zip(specs, train_stack(task, config, specs), strict=True):
        (alone,) = train_stack(task, config, [spec])
        assert largest_difference(network.layers, alone.layers) < (1e-30 if compiled else 1e-10)


@pytest.mark.parametrize("compiled", [True, False])
def test_weights_must_be_one_per_source(make_domains, compiled):
    spec = NetworkSpec(0, 1.0, ma.CMDLoss(), domain_weights=(1.0, 2.0))
    with pytest.raises(InvalidInputError, match="domain_weights has 2 numbers for 3 sources"):
        train_stack(make_domains(), replace(RECIPE, compiled=compiled), [spec])


def test_every_batch_has_rows_of_every_domain_in_order(make_domains):
    task = make_domains()
    epoch = RECIPE.epoch(task)
    rows_of = [np.bincount(task.source_domains), np.bincount(task.target_domains)]
    assert len(epoch) == 3  # 23 rows of the longest domain in batches of 9
    for rows, others in epoch:
        for domains, chosen, own in zip(
            (task.source_domains, task.target_domains), (rows, others), rows_of, strict=True
        ):
            assert (np.diff(domains[chosen]) >= 0).all()
            sizes = domain_sizes(domains, chosen)
            assert sizes == np.bincount(domains[chosen]).tolist()
            assert all(size >= min(total, 5) for size, total in zip(sizes, own, strict=True))
    seen = np.concatenate([rows for rows, _ in epoch])
    assert set(seen) == set(range(46))
    assert np.bincount(seen)[task.source_domains == 0].max() == 1  # the longest domain is not repeated
