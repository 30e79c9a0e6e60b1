from dataclasses import replace

import numpy as np
import pytest

import momentalign as ma
from momentalign.training.chunked import go_on
from momentalign.training.config import NetworkSpec, Optimizer, TrainingConfig

RECIPE = TrainingConfig(hidden=(6,), optimizer=Optimizer("adagrad", 0.1), batch_size=8)
CMD = NetworkSpec(3, 0.8, ma.CMDLoss(3))


def _halves(task, at=24):
    """Two tasks whose batches are those of the whole, one after the other."""
    return [
        replace(task, source=task.source[part], labels=task.labels[part], target=task.target[part])
        for part in (slice(None, at), slice(at, None))
    ]


def _parts(carried):
    return [part for layer in carried.layers for part in layer]


@pytest.mark.parametrize("kind", ["dense", "csr"])
@pytest.mark.parametrize("rule", ["adagrad", "adadelta", "sgd", "adam"])
@pytest.mark.parametrize("distance", [None, ma.CMDLoss(3), ma.AdversarialLoss(6)], ids=["none", "cmd", "dann"])
def test_two_parts_are_the_whole_bit_by_bit(make_task, engine, kind, rule, distance):
    task = make_task(kind, rows=48, target_rows=48, held_out=0)
    config, spec = replace(RECIPE, optimizer=Optimizer(rule)), NetworkSpec(3, 0.8, distance)
    whole, figures = go_on(task, config, spec)
    first, second = _halves(task)
    carried, before = go_on(first, config, spec)
    carried, after = go_on(second, config, spec, carried=carried)
    for part, match in zip(_parts(carried), _parts(whole), strict=True):
        np.testing.assert_array_equal(part, match)
    assert whole.compiled == (engine == "compiled")
    np.testing.assert_allclose((np.array(before) + np.array(after)) / 2, np.array(figures), rtol=1e-12)


@pytest.mark.parametrize("distance", [ma.CMDLoss(3), ma.AdversarialLoss(6)], ids=["cmd", "dann"])
def test_what_is_carried_is_left_as_it_is(make_task, engine, distance):
    task, spec = make_task(rows=48, target_rows=48), NetworkSpec(3, 0.8, distance)
    config = replace(RECIPE, optimizer=Optimizer("adam"))
    carried, _ = go_on(task, config, spec)
    twice = [go_on(task, config, spec, carried=carried)[0] for _ in range(2)]
    for part, match in zip(*map(_parts, twice), strict=True):
        np.testing.assert_array_equal(part, match)


def test_the_state_of_the_optimizer_matters_and_the_rate_is_that_of_now(make_task, engine):
    task, config = make_task(rows=48, target_rows=48), replace(RECIPE, optimizer=Optimizer("adam", 0.01))
    carried, _ = go_on(task, config, CMD)
    on, _ = go_on(task, config, CMD, carried=carried)
    fresh, _ = go_on(task, config, replace(CMD, initial=carried.layers))
    slow, _ = go_on(task, replace(RECIPE, optimizer=Optimizer("adam", 1e-12)), CMD, carried=carried)
    assert np.abs(on.layers[0].weight - fresh.layers[0].weight).max() > 1e-4
    np.testing.assert_allclose(slow.layers[0].weight, carried.layers[0].weight, atol=1e-7)


def test_the_engine_of_the_first_part_goes_on(make_task, engine, monkeypatch):
    from momentalign.training import compiled_engine as compiled

    task = make_task(rows=48, target_rows=48)
    carried, _ = go_on(task, RECIPE, CMD)
    monkeypatch.setattr(compiled, "WORTH_COMPILING", 0.0 if engine == "batched" else np.inf)
    assert go_on(task, RECIPE, CMD, carried=carried)[0].compiled == (engine == "compiled")
    assert go_on(task, RECIPE, CMD)[0].compiled == (engine == "batched")
