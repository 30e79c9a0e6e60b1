"""No search can read a label of the target: not to compare it, not to count it, not by accident."""

import numpy as np
import pytest

from momentalign.selection.search import LabelFreeSearch, ReverseValidationSearch

TOUCHES = [
    "__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__hash__", "__bool__", "__float__", "__int__",
    "__index__", "__complex__", "__str__", "__repr__", "__bytes__", "__len__", "__iter__", "__getitem__",
    "__contains__", "__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__", "__neg__", "__abs__",
    "__copy__", "__deepcopy__", "__reduce_ex__",
]  # fmt: skip


def labels_that(touched):
    """A class whose objects call `touched` whatever is done with them."""

    def method(name):
        def touch(self, *arguments):
            return touched(name)

        return touch

    return type("Label", (), {name: method(name) for name in TOUCHES})


def explode(name):
    raise AssertionError(f"{name} of a target label was called")


SEARCHES = {
    "reverse": lambda model: ReverseValidationSearch(model, {"weight": [0.5, 20.0]}, random_state=0),
    **{
        rule: lambda model, rule=rule: LabelFreeSearch(model, {"weight": [0.5, 20.0]}, rule=rule, random_state=0)
        for rule in ("importance-weighted", "mutual-information", "balancing", "source")
    },
    "aggregate": lambda model: LabelFreeSearch(model, {"weight": [0.5, 20.0]}, aggregate=True, random_state=0),
}


@pytest.fixture
def mixed(problem):
    """Both domains as one X, source labels as strings, and where the target is."""
    domain = np.random.default_rng(5).permutation(np.repeat([1, -2], [120, 90]))
    X, y = np.empty((210, 3)), np.empty(210, dtype=object)
    X[domain > 0], X[domain < 0] = problem.X, problem.X_target
    y[domain > 0] = np.array(["no", "yes"], dtype=object)[problem.y]
    return X, y, domain


def poisoned(mixed, label):
    _, y, domain = mixed
    y = y.copy()
    for index in np.flatnonzero(domain < 0):
        y[index] = label
    return y


@pytest.mark.parametrize("search", SEARCHES)
def test_labels_that_explode_when_touched_stay_whole(quick, problem, mixed, search):
    X, _, domain = mixed
    by_ids = SEARCHES[search](quick()).fit(X, poisoned(mixed, labels_that(explode)()), sample_domain=domain)
    names = np.array(["no", "yes"], dtype=object)[problem.y]
    apart = SEARCHES[search](quick()).fit(problem.X, names, problem.X_target)
    assert by_ids.cv_results_["mean_test_score"].tolist() == apart.cv_results_["mean_test_score"].tolist()
    np.testing.assert_array_equal(by_ids.predict_proba(X), apart.predict_proba(X))
    assert by_ids.classes_.tolist() == ["no", "yes"]


@pytest.mark.parametrize("search", SEARCHES)
def test_labels_that_count_are_touched_zero_times(quick, mixed, search):
    X, _, domain = mixed
    counted = []
    SEARCHES[search](quick()).fit(X, poisoned(mixed, labels_that(counted.append)()), sample_domain=domain)
    assert counted == []


@pytest.mark.parametrize("name", TOUCHES[:15])
def test_the_poison_works(name):
    with pytest.raises(AssertionError, match="of a target label was called"):
        getattr(labels_that(explode)(), name)(None)


@pytest.mark.parametrize("kind", [float, int])
def test_numbers_in_their_place_change_no_bit(quick, mixed, kind):
    X, y, domain = mixed
    found = []
    for seed in range(2):
        labels = np.where(domain > 0, (y == "yes").astype(kind), np.random.default_rng(seed).integers(0, 9, 210))
        search = SEARCHES["reverse"](quick()).fit(X, labels.astype(kind), sample_domain=domain)
        found.append((search.cv_results_["mean_test_score"].tolist(), search.predict_proba(X).tobytes()))
    assert found[0] == found[1]


def test_there_is_no_argument_for_them(quick, problem):
    for search in SEARCHES.values():
        with pytest.raises(TypeError, match="y_target"):
            search(quick()).fit(problem.X, problem.y, problem.X_target, y_target=problem.y_target)
