"""Networks whose rows arrive in parts are those trained on the whole, bit by bit."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse

import momentalign as ma
from momentalign.errors import DivergedError, InvalidInputError
from momentalign.training import chunked, stack
from momentalign.training.chunked import (
    ChunkedTask,
    Labelled,
    resume,
    stream_batches,
    train_chunks,
)
from momentalign.training.config import NetworkSpec, Optimizer, TrainingConfig, batches, count_batches
from momentalign.training.stack import is_compiled, train_stack

RECIPE = TrainingConfig(hidden=(6,), optimizer=Optimizer("adagrad", 0.1), batch_size=8, max_epochs=4, patience=None)
CMD = NetworkSpec(3, 0.8, ma.CMDLoss(3))
SHORT = replace(RECIPE, max_epochs=1500, patience=10)


def _cut(rows, labels, size):
    """Cut rows into a function of chunks, with one that is empty."""
    starts = range(0, rows.shape[0], size)
    parts = [Labelled(rows[i : i + size], None if labels is None else labels[i : i + size]) for i in starts]
    return lambda: iter(parts)


def _in_chunks(task, size, target_size=None):
    """The rows of a task in chunks."""
    nothing = task.source[:0]
    return ChunkedTask(
        _cut(task.source, task.labels, size),
        None if task.target is None else _cut(task.target, None, target_size or size),
        task.source.shape[0],
        0 if task.target is None else task.target.shape[0],
        replace(task, source=nothing, labels=task.labels[:0], target=None if task.target is None else nothing),
    )


def _assert_same(network, other):
    for layer, match in zip(network.layers, other.layers, strict=True):
        np.testing.assert_array_equal(layer.weight, match.weight)
        np.testing.assert_array_equal(layer.bias, match.bias)
    assert (network.n_epochs, network.best_epoch) == (other.n_epochs, other.best_epoch)
    for name, values in vars(network.history).items():
        np.testing.assert_allclose(values, getattr(other.history, name), rtol=1e-12)


@pytest.fixture
def small_blocks(monkeypatch):
    """Few batches at a time, so that small tasks are laid out in many blocks."""
    monkeypatch.setattr(chunked, "BLOCK", 3 * 8 * 20)


@pytest.mark.parametrize("size", [1, 3, 8, 29, 1000])
@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_the_network_is_that_of_the_whole_data_bit_by_bit(make_task, engine, small_blocks, kind, size):
    task = make_task(kind, rows=61, target_rows=45)
    (whole,) = train_stack(task, RECIPE, [CMD])
    _assert_same(train_chunks(_in_chunks(task, size, 2 * size), RECIPE, CMD), whole)


@pytest.mark.parametrize(
    ("rows", "target_rows", "held_out"),
    [(61, 0, 16), (61, 200, 16), (200, 21, 0), (7, 61, 16), (61, 5, 0), (64, 64, 9)],
)
def test_whatever_the_sizes_of_the_domains(make_task, engine, small_blocks, rows, target_rows, held_out):
    """The shorter one is read again in the middle of an epoch, after a last batch of another size."""
    task = make_task(rows=rows, target_rows=target_rows, held_out=held_out)
    (whole,) = train_stack(task, RECIPE, [CMD])
    _assert_same(train_chunks(_in_chunks(task, 13, 17), RECIPE, CMD), whole)


@pytest.mark.parametrize("rule", ["adadelta", "sgd", "adam"])
def test_whatever_the_optimizer(make_task, engine, small_blocks, rule):
    task = make_task(rows=61, target_rows=45)
    config = replace(RECIPE, optimizer=Optimizer(rule, decay=0.1))
    (whole,) = train_stack(task, config, [CMD])
    _assert_same(train_chunks(_in_chunks(task, 10), config, CMD), whole)


@pytest.mark.parametrize(
    "distance",
    [None, ma.CMDLoss(3, cross=2), ma.MMDLoss(beta=1.2), ma.CORALLoss(), ma.AdversarialLoss(6)],
    ids=["none", "cv-cmd", "mmd", "coral", "dann"],
)
def test_whatever_the_distance(make_task, engine, small_blocks, distance):
    task, spec = make_task(rows=61, target_rows=45), NetworkSpec(3, 0.8, distance)
    (whole,) = train_stack(task, RECIPE, [spec])
    _assert_same(train_chunks(_in_chunks(task, 10), RECIPE, spec), whole)


def test_any_callable_and_several_hidden_layers(make_task, small_blocks):
    task = make_task(rows=61, target_rows=45)
    config = replace(RECIPE, hidden=(6, 4))
    spec = NetworkSpec(3, 0.8, lambda source, target: (source.mean(0) - target.mean(0)).square().sum())
    (whole,) = train_stack(task, config, [spec])
    _assert_same(train_chunks(_in_chunks(task, 10), config, spec), whole)


def test_numbers_are_learned_too(make_task, rng_values, small_blocks):
    task = make_task(rows=61, target_rows=45, held_out=10)
    task = replace(task, labels=rng_values(61), validation_labels=rng_values(10), n_classes=2)
    config = replace(RECIPE, loss="squared")
    (whole,) = train_stack(task, config, [CMD])
    _assert_same(train_chunks(_in_chunks(task, 10), config, CMD), whole)


@pytest.fixture
def rng_values():
    random = np.random.default_rng(5)
    return lambda rows: random.normal(size=(rows, 2)).astype(np.float32)


def test_it_stops_early_and_keeps_the_best_epoch(make_task, engine, small_blocks):
    task = make_task(rows=61, target_rows=45)
    config = replace(RECIPE, max_epochs=200, patience=3, optimizer=Optimizer("adam", 0.1))
    (whole,) = train_stack(task, config, [CMD])
    network = train_chunks(_in_chunks(task, 10), config, CMD)
    assert network.n_epochs < 200
    assert network.best_epoch < network.n_epochs
    _assert_same(network, whole)


def test_a_training_that_diverges_says_so(make_task):
    task, config = make_task(), replace(RECIPE, optimizer=Optimizer("sgd", 1e30))
    with pytest.raises(DivergedError, match="lower learning_rate"):
        train_chunks(_in_chunks(task, 10), config, CMD)


def test_every_epoch_is_reported(make_task):
    seen = []
    train_chunks(_in_chunks(make_task(), 10), RECIPE, CMD, progress=seen.append)
    assert [report.epoch for report in seen] == [1, 2, 3, 4]


def test_what_needs_the_whole_sample_is_refused(make_task):
    with pytest.raises(InvalidInputError, match=r"needs the whole sample.*batch_size=300"):
        train_chunks(_in_chunks(make_task(), 10), replace(RECIPE, batch_size=None), CMD)


@pytest.mark.parametrize(("rows", "target_rows"), [(30_000, 10_000), (10_000, 30_000), (30_000, 0)])
def test_the_engine_is_chosen_as_for_the_whole_data(make_task, monkeypatch, rows, target_rows):
    """No rows are needed to ask."""
    config, task = TrainingConfig(hidden=(50,), max_epochs=10), make_task(rows=rows, target_rows=target_rows)
    for limit in (10.0, 1.5, 1.0, 0.5, 0.1):
        monkeypatch.setattr(stack, "WORTH_COMPILING", limit)
        chunks = _in_chunks(task, 10_000)
        sizes = chunks.source_rows, chunks.target_rows
        asked = is_compiled(chunks.empty, config, [CMD], "cpu", domain_rows=sizes)
        assert asked == is_compiled(task, config, [CMD], "cpu")


def test_dense_chunks_that_are_mostly_zero_are_trained_as_dense(make_task, engine, small_blocks):
    task = make_task("mostly zero", rows=61, target_rows=45)
    (whole,) = train_stack(task, RECIPE, [CMD])
    network = train_chunks(_in_chunks(task, 10), RECIPE, CMD)
    for layer, match in zip(network.layers, whole.layers, strict=True):
        np.testing.assert_allclose(layer.weight, match.weight, atol=1e-5)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 10])
def test_a_stream_is_cut_like_a_matrix(size):
    for rows in range(1, 45):
        cut = [batch.tolist() for batch in batches(np.arange(rows), size)]
        assert count_batches(rows, size) == len(cut)
        for chunk in (1, 4, 9, 50):
            parts = _cut(np.arange(rows)[:, None], np.arange(rows), chunk)()
            streamed = list(stream_batches(parts, size))
            assert [batch.labels.tolist() for batch in streamed] == cut
            assert [batch.rows.ravel().tolist() for batch in streamed] == cut


def test_no_rows_make_no_batch():
    assert list(stream_batches([], 10)) == []


def test_csr_stays_csr_and_a_batch_keeps_no_chunk_alive():
    rows = sparse.random(50, 6, density=0.3, format="csr", random_state=0)
    streamed = list(stream_batches(_cut(rows, None, 7)(), 10))
    assert all(sparse.issparse(batch.rows) and batch.labels is None for batch in streamed)
    np.testing.assert_array_equal(np.concatenate([batch.rows.toarray() for batch in streamed]), rows.toarray())
    chunks = [Labelled(np.zeros((1000, 2)), None), Labelled(np.zeros((9, 2)), None)]
    last = list(stream_batches(chunks, 600))[-1]
    assert last.rows.base is None or last.rows.base.shape[0] < 1000


def test_only_the_last_pair_of_a_block_has_another_size(make_task, small_blocks):
    task = make_task(rows=61, target_rows=201)
    sizes = []
    for block in chunked.blocks(_in_chunks(task, 10), RECIPE):
        pairs = RECIPE.epoch(block)
        assert all(len(part) == 8 for pair in pairs[:-1] for part in pair)
        sizes += [(len(source), len(target)) for source, target in pairs]
    assert sizes == [(len(source), len(target)) for source, target in RECIPE.epoch(task)]
    assert math.prod(block.source.shape) <= chunked.BLOCK


def _halves(task, at=24):
    """Two tasks whose batches are those of the whole, one after the other."""
    return [
        replace(task, source=task.source[part], labels=task.labels[part], target=task.target[part])
        for part in (slice(None, at), slice(at, None))
    ]


def _weights(state):
    return [part for layer in state.layers for part in layer]


@pytest.mark.parametrize("kind", ["dense", "csr"])
@pytest.mark.parametrize("rule", ["adagrad", "adadelta", "sgd", "adam"])
@pytest.mark.parametrize("distance", [None, ma.CMDLoss(3), ma.AdversarialLoss(6)], ids=["none", "cmd", "dann"])
def test_two_parts_are_the_whole_bit_by_bit(make_task, engine, kind, rule, distance):
    task = make_task(kind, rows=48, target_rows=48, held_out=0)
    config, spec = replace(SHORT, optimizer=Optimizer(rule)), NetworkSpec(3, 0.8, distance)
    whole, figures = resume(task, config, spec)
    first, second = _halves(task)
    state, before = resume(first, config, spec)
    state, after = resume(second, config, spec, state=state)
    for part, match in zip(_weights(state), _weights(whole), strict=True):
        np.testing.assert_array_equal(part, match)
    assert whole.compiled == (engine == "compiled")
    np.testing.assert_allclose((np.array(before) + np.array(after)) / 2, np.array(figures), rtol=1e-12)


@pytest.mark.parametrize("distance", [ma.CMDLoss(3), ma.AdversarialLoss(6)], ids=["cmd", "dann"])
def test_what_is_state_is_left_as_it_is(make_task, engine, distance):
    task, spec = make_task(rows=48, target_rows=48), NetworkSpec(3, 0.8, distance)
    config = replace(SHORT, optimizer=Optimizer("adam"))
    state, _ = resume(task, config, spec)
    twice = [resume(task, config, spec, state=state)[0] for _ in range(2)]
    for part, match in zip(*map(_weights, twice), strict=True):
        np.testing.assert_array_equal(part, match)


def test_the_state_of_the_optimizer_matters_and_the_rate_is_that_of_now(make_task, engine):
    task, config = make_task(rows=48, target_rows=48), replace(SHORT, optimizer=Optimizer("adam", 0.01))
    state, _ = resume(task, config, CMD)
    on, _ = resume(task, config, CMD, state=state)
    fresh, _ = resume(task, config, replace(CMD, initial=state.layers))
    slow, _ = resume(task, replace(SHORT, optimizer=Optimizer("adam", 1e-12)), CMD, state=state)
    assert np.abs(on.layers[0].weight - fresh.layers[0].weight).max() > 1e-4
    np.testing.assert_allclose(slow.layers[0].weight, state.layers[0].weight, atol=1e-7)


def test_the_engine_of_the_first_part_goes_on(make_task, engine, monkeypatch):
    task = make_task(rows=48, target_rows=48)
    state, _ = resume(task, SHORT, CMD)
    monkeypatch.setattr(stack, "WORTH_COMPILING", 0.0 if engine == "batched" else np.inf)
    assert resume(task, SHORT, CMD, state=state)[0].compiled == (engine == "compiled")
    assert resume(task, SHORT, CMD)[0].compiled == (engine == "batched")
