"""What scikit-learn promises for its meta-estimators."""

import json
import os
import subprocess
import sys

import pytest
import sklearn
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from sklearn.utils import get_tags

from momentalign.errors import MomentAlignWarning
from momentalign.selection.search import LabelFreeSearch, ReverseValidationSearch

KINDS = [ReverseValidationSearch, LabelFreeSearch]

# The checks know no target: the rows they give serve as one.
CHECKS = """
import json, sys, warnings
from sklearn.utils.estimator_checks import check_estimator
from momentalign import MANNClassifier
from momentalign.selection.search import LabelFreeSearch
from momentalign.selection.search import ReverseValidationSearch

class Search({kind}):
    def fit(self, X, y):
        return super().fit(X, y, X_target=X)

    def fit_transform(self, X, y):
        return self.fit(X, y).transform(X)

warnings.simplefilter("ignore")
model = MANNClassifier(hidden=(4,), max_epochs=25, optimizer="adam", learning_rate=0.3, batch_size=None)
search = Search(model, {{"weight": [0.1]}}, random_state=0)
results = check_estimator(search, on_skip=None, on_fail=None)
print(json.dumps([(r["check_name"], r["status"], r["expected_to_fail"], repr(r["exception"])) for r in results]))
"""


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_every_check_of_scikit_learn_passes_and_none_is_skipped(kind):
    environment = {**os.environ, "SCIPY_ARRAY_API": "1"}  # without it the checks of the array API are skipped
    program = CHECKS.format(kind=kind.__name__)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=True)
    results = json.loads(done.stdout)
    assert len(results) > 50
    assert [result for result in results if result[1:3] != ["passed", False]] == []


@pytest.mark.parametrize("kind", KINDS)
def test_clone_and_nested_names(kind, quick, problem):
    search = kind(quick(), {"weight": [0.5]}, random_state=0).fit(*problem[:3])
    copy = clone(search)
    assert copy.estimator is not search.estimator
    assert not [name for name in vars(copy) if name.endswith("_")]
    assert copy.get_params()["estimator__max_epochs"] == 15
    copy.set_params(estimator__max_epochs=3, share=0.5)
    assert (copy.estimator.max_epochs, search.estimator.max_epochs, copy.share) == (3, 15, 0.5)
    assert copy.fit(*problem[:3]).best_estimator_.n_epochs_ == 3


@pytest.mark.parametrize("kind", KINDS)
def test_tags_say_what_a_search_takes_and_gives(kind, quick):
    tags = get_tags(kind(quick(), {"weight": [0.5]}))
    assert tags.input_tags.sparse
    assert tags.estimator_type == "classifier"
    assert tags.transformer_tags is not None
    assert get_tags(kind(quick(), {"weight": [0.5]}, refit=False)).transformer_tags is None


def test_values_of_the_grid_are_not_changed(quick, problem):
    hidden = [4]
    ReverseValidationSearch(quick(), {"hidden": [hidden]}, random_state=0).fit(*problem[:3])
    assert hidden == [4]


def test_a_target_that_scikit_learn_would_cut_is_told(quick, problem):
    search = ReverseValidationSearch(quick(), {"weight": [1.0]}, random_state=0)
    with pytest.warns(MomentAlignWarning, match="X_target has as many rows as X, and this ReverseValidationSearch"):
        cross_val_score(search, problem.X, problem.y, cv=2, params={"X_target": problem.X + 1.0}, error_score="raise")
    search.fit(problem.X, problem.y, problem.X + 1.0)  # Nothing is cut here, and nothing told.


def test_the_target_is_routed(quick, problem):
    with sklearn.config_context(enable_metadata_routing=True):
        search = ReverseValidationSearch(quick(), {"weight": [1.0]}, random_state=0).set_fit_request(X_target=True)
        scores = cross_val_score(
            search, problem.X, problem.y, cv=2, params={"X_target": problem.X_target}, error_score="raise"
        )
    assert len(scores) == 2


def test_activations_of_the_best_model_follow_a_fit(quick, problem):
    search = ReverseValidationSearch(quick(), {"weight": [1.0]}, random_state=0)
    hidden = search.fit_transform(problem.X, problem.y, problem.X_target)
    assert (hidden == search.best_estimator_.transform(problem.X)).all()
