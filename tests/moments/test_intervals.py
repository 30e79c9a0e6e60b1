import pytest

from momentalign.errors import InvalidInputError
from momentalign.validation import check_interval


@pytest.mark.parametrize(
    ("interval", "length"),
    [((0.0, 1.0), 1.0), ((-1, 1), 2.0), ((3.0, 1.0), 2.0), ([-5, -1.5], 3.5), ((1e-300, 0), 1e-300)],
)
def test_the_length_of_an_interval(interval, length):
    assert check_interval(interval) == length
    assert type(check_interval(interval)) is float


@pytest.mark.parametrize("interval", [(0.0, 1.0, 2.0), (1.0,), 1.0, None, "01", ("a", "b"), (0, 10**400)])
def test_what_is_no_pair_is_refused(interval):
    with pytest.raises(InvalidInputError) as caught:
        check_interval(interval)
    assert str(caught.value) == (
        f'interval must be a pair (a, b) or "data", got {interval!r}; try interval=(0.0, 1.0).'
    )


@pytest.mark.parametrize("interval", [(1.0, 1.0), (0.0, float("nan")), (float("-inf"), 0.0), (-1e308, 1e308)])
def test_what_has_no_length_is_refused(interval):
    with pytest.raises(InvalidInputError) as caught:
        check_interval(interval)
    assert str(caught.value) == f"interval must be finite and not empty, got {interval!r}; try interval=(0.0, 1.0)."
