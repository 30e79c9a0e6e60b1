"""Whatever holds a matrix of numbers is read, gives the kind of result it came as, and stays as it was."""

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
import torch

import momentalign as ma
from momentalign.errors import InvalidInputError

FUNCTIONS = {
    "cmd": ma.cmd,
    "cmd cross=2": lambda s, t: ma.cmd(s, t, cross=2),
    "cmd cross=3": lambda s, t: ma.cmd(s, t, cross=3),
    "cmd unbiased": lambda s, t: ma.cmd(s, t, n_moments=3, unbiased=True),
    "mmd": ma.mmd,
    "mmd polynomial": lambda s, t: ma.mmd(s, t, kernel="polynomial"),
    "mmd linear time": lambda s, t: ma.mmd(s, t, linear_time=True),
    "coral": ma.coral,
}


def _read_only(x):
    x = x.copy()
    x.flags.writeable = False
    return x


def _strided(x):
    wide = np.full((2 * len(x), 2 * x.shape[1]), np.nan)
    wide[::2, ::2] = x
    return wide[::2, ::2]


KINDS = {
    "list": np.ndarray.tolist,
    "tuples": lambda x: tuple(map(tuple, x.tolist())),
    "list of rows": list,
    "frame": lambda x: pd.DataFrame(x, columns=list("abc")),
    "Fortran": np.asfortranarray,
    "negative strides": lambda x: x[::-1, ::-1].copy()[::-1, ::-1],
    "strided": _strided,
    "read-only": _read_only,
    "big-endian": lambda x: x.astype(">f8"),
    "longdouble": lambda x: x.astype(np.longdouble),
}


@pytest.fixture(params=FUNCTIONS)
def distance(request):
    return FUNCTIONS[request.param]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_matrix_gives_the_same_float(pair, distance, kind):
    source, target = (sample.numpy() for sample in pair(8, 7))
    value = distance(KINDS[kind](source), KINDS[kind](target))
    assert type(value) is float
    assert value == distance(source, target)


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint8, np.int64, ">i4"])
def test_whole_numbers_are_read_as_float64(rng, distance, dtype):
    source, target = (rng.integers(0, 2, (rows, 3)) for rows in (9, 8))
    assert distance(source.astype(dtype), target.astype(dtype)) == distance(source.astype(float), target.astype(float))


@pytest.mark.parametrize(("narrow", "wide"), [(np.float16, np.float32), (">f4", np.float32), (">f2", np.float32)])
def test_short_floats_are_widened(pair, distance, narrow, wide):
    source, target = (sample.numpy().astype(narrow) for sample in pair(8, 7))
    assert distance(source, target) == pytest.approx(
        distance(source.astype(wide), target.astype(wide)), rel=1e-4, abs=1e-6
    )


def test_two_kinds_of_arrays_may_be_mixed(pair):
    source, target = (sample.numpy() for sample in pair())
    assert ma.cmd(pd.DataFrame(source), target.tolist()) == ma.cmd(source, target)


@pytest.mark.parametrize(
    ("given", "result"),
    [
        (torch.float16, torch.float32),
        (torch.bfloat16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
    ],
)
def test_tensors_give_a_differentiable_scalar(pair, distance, given, result):
    source, target = (sample.to(given).requires_grad_() for sample in pair(8, 7))
    value = distance(source, target)
    assert value.shape == ()
    assert value.dtype == result
    assert value.device == source.device
    value.backward()
    for sample in (source, target):
        assert sample.grad.dtype == given
        assert sample.grad.isfinite().all()


def test_tensors_of_every_layout_give_the_same_value(pair, distance):
    source, target = pair(8, 7)
    value = distance(source, target)
    torch.testing.assert_close(distance(source.T.contiguous().T, target), value, rtol=1e-12, atol=1e-15)
    torch.testing.assert_close(distance(source.repeat_interleave(2, 1)[:, ::2], target), value, rtol=1e-12, atol=1e-15)
    torch.testing.assert_close(distance(torch.nn.Parameter(source), target), value, rtol=0, atol=0)


def test_terms_come_as_they_went_in(pair):
    source, target = pair(dtype=torch.float32)
    tensor, array = ma.cmd_terms(source, target), ma.cmd_terms(source.numpy(), target.numpy())
    assert isinstance(array, np.ndarray)
    assert tensor.dtype == torch.float32
    assert array.shape == tensor.shape == (5,)


def test_inputs_stay_as_they_were(pair, distance):
    samples = pair(8, 7)
    copies = [sample.clone() for sample in samples]
    distance(*samples)
    distance(*(sample.numpy() for sample in samples))
    assert all(torch.equal(sample, copy) for sample, copy in zip(samples, copies, strict=True))


def test_no_call_touches_global_state(pair, distance):
    def state():
        kind, keys, *rest = np.random.get_state()  # noqa: NPY002 - the state that must not move
        return (
            torch.get_rng_state().tolist(),
            (kind, keys.tolist(), *rest),
            torch.get_default_dtype(),
            torch.is_grad_enabled(),
            torch.get_num_threads(),
            np.geterr(),
        )

    before = state()
    source, target = pair(8, 7, grad=True)
    distance(source, target).backward()
    distance(source.detach().numpy(), target.detach().numpy())
    assert state() == before


def test_another_default_dtype_changes_nothing(pair, distance):
    source, target = pair(8, 7, dtype=torch.float32)
    expected = distance(source, target)
    torch.set_default_dtype(torch.float64)
    try:
        value = distance(source, target)
    finally:
        torch.set_default_dtype(torch.float32)
    assert value == expected
    assert value.dtype == torch.float32


def test_an_axis_of_one_entry_may_run_backwards(pair, distance):
    source, target = (sample.numpy() for sample in pair(8, 7, 1))
    assert distance(source[:, ::-1], target[:, ::-1]) == distance(source, target)


IN_MEMORY = {
    "cmd": ma.cmd,
    "cmd_terms": ma.cmd_terms,
    "cmd cross=2": lambda source, target: ma.cmd(source, target, cross=2),
    "mmd": ma.mmd,
    "coral": ma.coral,
}
CHUNKED = {
    "dask": lambda frame: dd.from_pandas(frame, npartitions=2),
    "table": pa.table,
    "reader": lambda frame: pa.table(frame).to_reader(),
    "dataset": lambda frame: ds.dataset(pa.table(frame)),
    "scanner": lambda frame: ds.dataset(pa.table(frame)).scanner(),
    "iterator": lambda frame: iter([frame[:9], frame[9:]]),
}
WORDS = "target has the column 'b' where source has 'a'; give both the same columns in the same order."


@pytest.fixture
def frame(rng):
    return pd.DataFrame({"a": rng.random(20), "b": rng.random(20) + 1.0})


def _refused_order(act, words=WORDS):
    with pytest.raises(InvalidInputError) as caught:
        act()
    assert str(caught.value) == words


@pytest.mark.parametrize("name", IN_MEMORY)
def test_frames_with_columns_in_another_order_are_refused(frame, name):
    distance, swapped = IN_MEMORY[name], frame[["b", "a"]]
    _refused_order(lambda: distance(frame, swapped))
    _refused_order(lambda: distance(frame, pa.table(swapped)))
    assert np.sum(distance(frame, frame.copy())) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("name", IN_MEMORY)
def test_columns_are_taken_by_position_where_one_sample_has_no_names(frame, name):
    distance, swapped = IN_MEMORY[name], frame[["b", "a"]]
    expected = distance(frame.to_numpy(), swapped.to_numpy())
    for unnamed in (swapped.to_numpy(), pd.DataFrame(swapped.to_numpy())):
        np.testing.assert_array_equal(distance(frame, unnamed), expected)


@pytest.mark.parametrize("form", CHUNKED)
def test_chunks_with_columns_in_another_order_are_refused(frame, form):
    read, swapped = CHUNKED[form], frame[["b", "a"]]
    _refused_order(lambda: ma.cmd(read(frame), read(swapped)))
    _refused_order(lambda: ma.cmd_terms(frame, read(swapped)))
    assert ma.cmd(read(frame), read(frame)) == 0.0
    assert ma.cmd(read(frame), swapped.to_numpy()) > 1.0


def test_chunks_are_refused_before_they_are_read(frame):
    batches = iter([])
    reader = pa.RecordBatchReader.from_batches(pa.table(frame).schema, batches)
    _refused_order(lambda: ma.cmd(reader, pa.table(frame[["b", "a"]])))


def test_a_column_of_another_name_is_refused(frame):
    renamed = frame.rename(columns={"b": "c"})
    words = "target has the column 'c' where source has 'b'; give both the same columns in the same order."
    _refused_order(lambda: ma.cmd(frame, renamed), words)


def test_several_domains_are_held_against_the_first_that_has_names(frame):
    swapped = frame[["b", "a"]]
    words = "targets[0] has the column 'b' where sources[1] has 'a'; give both the same columns in the same order."
    _refused_order(lambda: ma.multi_domain_cmd([frame.to_numpy(), frame], [swapped]), words)
    words = "sources[1] has the column 'b' where sources[0] has 'a'; give both the same columns in the same order."
    _refused_order(lambda: ma.multi_domain_cmd([frame, swapped], [frame]), words)
    assert ma.multi_domain_cmd([frame, frame.to_numpy()], [frame]) == 0.0
