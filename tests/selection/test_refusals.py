"""What a search refuses is said in one sentence: the argument, its value and the remedy."""

import numpy as np
import pytest

from momentalign import CMDLoss, MANNClassifier
from momentalign.errors import InvalidInputError, InvalidTypeError
from momentalign.selection.search import LabelFreeSearch, ReverseValidationSearch

GRIDS = {
    "no name": (
        {},
        "param_grid is empty ({}), there is nothing to choose from; try "
        'param_grid={"weight": [0.1, 1.0, 10.0]}.',
    ),
    "no grid in a list": (
        [],
        "param_grid is empty ([]), there is nothing to choose from; try "
        'param_grid={"weight": [0.1, 1.0, 10.0]}.',
    ),
    "an empty grid beside another": (
        [{"weight": [1.0]}, {}],
        "param_grid is empty ([{'weight': [1.0]}, {}]), there is nothing to choose from; try "
        'param_grid={"weight": [0.1, 1.0, 10.0]}.',
    ),
    "unknown names": (
        {"weigth": [1.0], "hiden": [(3,)]},
        "param_grid names 'hiden', 'weigth', which MANNClassifier does not have; choose among "
        f"{', '.join(MANNClassifier().get_params())}.",
    ),
    "weights that are chosen elsewhere": (
        {"weight": ["auto"]},
        'weight="auto" combines networks of several weights, and a search compares single ones; '
        'give numbers, such as param_grid={"weight": [0.1, 1.0, 10.0]}.',
    ),
}  # fmt: skip


def refusal(search, problem, **domains):
    with pytest.raises(InvalidInputError) as caught:
        search.fit(problem.X, problem.y, **{"X_target": problem.X_target, **domains})
    return caught.value


@pytest.mark.parametrize("kind", GRIDS)
def test_grids(quick, problem, kind):
    grid, sentence = GRIDS[kind]
    assert str(refusal(ReverseValidationSearch(quick(), grid), problem)) == sentence


@pytest.mark.parametrize(
    ("estimator", "shown"), [(MANNClassifier, "MANNClassifier"), (None, "NoneType"), (CMDLoss(3), "CMDLoss")]
)
def test_estimators_that_are_not_ours(problem, estimator, shown):
    error = refusal(ReverseValidationSearch(estimator, {"weight": [1.0]}), problem)
    assert isinstance(error, InvalidTypeError)
    assert str(error) == (
        f"estimator must be a MANNClassifier, whose networks train as stacks, got {shown}; "
        "try MANNClassifier(discrepancy=None) for a plain network."
    )


@pytest.mark.parametrize("domains", [{"X_target": None}, {"X_target": None, "sample_domain": np.ones(120, int)}])
def test_no_target(quick, problem, domains):
    assert str(refusal(LabelFreeSearch(quick(), {"weight": [1.0]}), problem, **domains)) == (
        "LabelFreeSearch has no target rows, there is no domain to choose for; give X_target, or negative ids in "
        "sample_domain."
    )


@pytest.mark.parametrize("name", ["X", "X_target"])
def test_values_that_are_too_large(quick, problem, name):
    search = ReverseValidationSearch(quick(), {"weight": [1.0]})
    assert str(refusal(search, problem._replace(**{name: 1e300 * getattr(problem, name)}))) == (
        f"{name} holds values too large for float32; scale its columns first."
    )


def test_one_class(quick, problem):
    search = ReverseValidationSearch(quick(), {"weight": [1.0]})
    assert str(refusal(search, problem._replace(y=np.full(120, "no")))) == (
        "y has one class only ('no'); a classifier needs the labels of at least 2 classes."
    )


@pytest.mark.parametrize("random_state", [None, np.random.RandomState(0)])
def test_splits_that_cannot_be_made_again(quick, problem, tmp_path, random_state):
    search = ReverseValidationSearch(quick(), {"weight": [1.0]}, random_state=random_state, resume=tmp_path / "a")
    assert str(refusal(search, problem)) == (
        f"resume needs the same splits in every run, but random_state is {random_state!r}; give a whole number, such "
        "as random_state=0."
    )
    assert list(tmp_path.iterdir()) == []


def test_distances_without_a_name(quick, problem, tmp_path):
    def distance(source, target):
        return (source - target).sum()

    search = ReverseValidationSearch(quick(), {"discrepancy": [distance]}, random_state=0, resume=tmp_path / "a")
    error = refusal(search, problem)
    assert isinstance(error, InvalidTypeError)
    assert str(error) == (
        f"resume cannot tell discrepancy={distance!r} from another one when it reads the journal; use a name, a number "
        "or one of the losses of momentalign, or resume=None."
    )


def test_methods_of_a_model_that_is_not_there(quick):
    search = ReverseValidationSearch(quick(), {"weight": [1.0]}, refit=False)
    with pytest.raises(AttributeError) as caught:
        _ = search.predict
    assert str(caught.value.__cause__) == (
        "this ReverseValidationSearch has refit=False: it chooses parameters and fits no model; set refit=True."
    )


def test_rules_there_are_not(quick, problem):
    assert str(refusal(LabelFreeSearch(quick(), {"weight": [1.0]}, rule="entropie"), problem)) == (
        "rule must be one of 'importance-weighted', 'deep-embedded', 'neighbourhood-density', 'nuclear-norm', "
        "'entropy', 'mutual-information', 'balancing', 'source', got 'entropie'."
    )


def test_balancing_of_more_than_the_weight(quick, problem):
    search = LabelFreeSearch(quick(), {"weight": [1.0], "patience": [3], "hidden": [(3,)]}, rule="balancing")
    assert str(refusal(search, problem)) == (
        "rule='balancing' compares networks by their weight alone, but param_grid has hidden, patience; "
        "give values of weight only, or another rule."
    )


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"aggregate": True}, "aggregate=True"),
        ({"rule": "balancing"}, "rule='balancing'"),
        ({"aggregate": True, "rule": "balancing"}, "aggregate=True"),
    ],
)
def test_what_needs_all_networks_cannot_be_resumed(quick, problem, tmp_path, options, word):
    search = LabelFreeSearch(quick(), {"weight": [1.0]}, random_state=0, resume=tmp_path / "a", **options)
    assert str(refusal(search, problem)) == (
        f"{word} needs all networks at once, and resume keeps scores only; give resume=None."
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", [ReverseValidationSearch, LabelFreeSearch])
def test_shares(quick, problem, kind):
    assert str(refusal(kind(quick(), {"weight": [1.0]}, share=1.0), problem)) == (
        "share must be a finite number above 0 and below 1, got 1.0; try share=0.8."
    )
    error = refusal(kind(quick(), {"weight": [1.0]}, share="most"), problem)
    assert isinstance(error, InvalidTypeError)
    assert str(error) == "share must be a number, got 'most'; try share=0.8."


def test_classes_that_are_too_few_to_split(quick, problem):
    y = np.where(np.arange(120) == 7, 2, problem.y)
    assert str(refusal(ReverseValidationSearch(quick(), {"weight": [1.0]}), problem._replace(y=y))) == (
        "y has 120 labels of 3 classes, 1 of the rarest, too few to hold out some of each class; give at least 2 rows "
        "of each class, or set share nearer to 0.5."
    )
