import dask
import dask.array as da
import dask.bag
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import momentalign as ma
from momentalign.errors import InvalidInputError, InvalidTypeError
from momentalign.moments import streaming as dask_tree
from momentalign.moments.readers import is_dask, is_lazy


@pytest.fixture(autouse=True)
def _in_this_process():
    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.fixture
def sample(rng):
    return rng.random((1000, 6)) ** 2


@pytest.mark.parametrize("chunks", [(1000, 6), (1, 6), (37, 6), (100, 2), (1000, 1), ((0, 500, 0, 500), 6)])
@pytest.mark.parametrize("cross", [1, 2])
def test_an_array_has_the_moments_of_its_rows_however_it_is_cut(sample, chunks, cross):
    data = da.from_array(sample, chunks=chunks)
    assert is_dask(data)
    assert is_lazy(data)
    found = ma.Moments.of(data, cross=cross)
    assert found.count == 1000
    assert found.cmd(ma.Moments.of(sample, cross=cross)) == 0.0


def test_a_data_frame_and_its_values_of_unknown_sizes(sample):
    frame = dd.from_pandas(pd.DataFrame(sample), npartitions=7)
    frame = frame[frame[0] > 0.1]
    expected = ma.Moments.of(sample[sample[:, 0] > 0.1])
    assert np.isnan(frame.values.chunks[0]).all()
    for data in (frame, frame.values):
        assert ma.Moments.of(data).cmd(expected) == 0.0


def test_blocks_may_be_sparse(sample):
    rows = np.where(sample < 0.5, 0.0, sample)
    blocks = da.from_array(rows, chunks=(100, 6)).map_blocks(sparse.csr_matrix)
    assert ma.Moments.of(blocks).cmd(ma.Moments.of(rows)) == 0.0


def test_rows_are_cut_where_columns_are_joined(rng, monkeypatch):
    """An array cut along its columns alone would otherwise become one block of everything."""
    monkeypatch.setattr(dask_tree, "_BLOCK_BYTES", 2**14)
    data = da.from_array(rng.random((4000, 4)), chunks=(4000, 1))
    blocks = dask_tree._row_blocks(data, "data")
    assert len(blocks) >= 8
    assert all(block.compute().shape[1] == 4 for block in blocks)


def test_columns_in_blocks_of_unknown_sizes_name_the_remedy(sample):
    rows = da.from_array(sample, chunks=(100, 3))
    unknown = rows[da.from_array(sample[:, 0], chunks=100) > 0.1]
    with pytest.raises(InvalidInputError) as caught:
        ma.Moments.of(unknown)
    assert str(caught.value) == (
        "the columns of data lie in 2 blocks of unknown sizes; call compute_chunk_sizes() first, or make the array "
        "with all columns in one block."
    )
    known = unknown.compute_chunk_sizes()
    assert ma.Moments.of(known).cmd(ma.Moments.of(sample[sample[:, 0] > 0.1])) == 0.0


def test_moments_are_merged_as_a_tree(sample, monkeypatch):
    """No task takes more than SPLIT_EVERY moments, and there are no more levels than that needs."""
    merged, groups = dask_tree._merged, []
    monkeypatch.setattr(dask_tree, "_merged", lambda parts: groups.append(len(parts)) or merged(parts))
    ma.Moments.of(da.from_array(sample, chunks=(10, 6)))
    assert max(groups) == dask_tree.SPLIT_EVERY
    assert len(groups) == 13 + 2 + 1


@pytest.mark.parametrize(
    "data", [da.ones(5, chunks=2), dd.from_pandas(pd.Series([1.0, 2.0]), npartitions=1), dask.bag.from_sequence([1])]
)
def test_what_has_not_two_dimensions_is_refused(data):
    with pytest.raises(InvalidTypeError) as caught:
        ma.Moments.of(data)
    got = type(data).__name__
    assert str(caught.value) == f"data must be a Dask array or data frame of two dimensions, got {got}; make one of it."


def test_a_bad_block_is_named(sample):
    sample[777, 3] = np.nan
    with pytest.raises(InvalidInputError, match=r"^data holds NaN or infinite values"):
        ma.Moments.of(da.from_array(sample, chunks=(100, 6)))
