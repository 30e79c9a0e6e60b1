import copy
import inspect
import pickle
import re

import numpy as np
import pandas as pd
import pytest
import sklearn
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags

from momentalign import MANNClassifier
from momentalign.errors import InvalidInputError, InvalidTypeError
from momentalign.tables.text import DomainVectorizer

WORDS = ["plot", "hero", "dull", "great", "page", "blade", "pan", "sharp", "rust", "handle"]
BOOKS = ["a great plot", "dull, dull page", "great hero; great end", "The hero is dull"]
KITCHEN = ["sharp blade", "rust on the pan", "great pan", "handle and pan"]


def _texts(seed, rows=60, words=WORDS):
    """Texts whose words have clearly different frequencies."""
    rng = np.random.default_rng(seed)
    chance = 2.0 ** -np.arange(len(words))
    return [" ".join(rng.choice(words, 12, p=chance / chance.sum())) for _ in range(rows)]


def test_the_parameters_and_defaults_are_the_contract():
    defaults = {name: p.default for name, p in inspect.signature(DomainVectorizer).parameters.items()}
    assert defaults == {
        "max_features": 5000,
        "ngram_range": (1, 2),
        "weighting": "log",
        "norm": None,
        "lowercase": True,
        "token_pattern": r"(?u)\b\w\w+\b",
    }
    assert list(inspect.signature(DomainVectorizer.fit).parameters) == ["self", "X", "y", "X_target"]


@pytest.mark.parametrize("ngram_range", [(1, 1), (1, 2), (2, 3)])
@pytest.mark.parametrize("max_features", [1, 4, 7, None])
def test_one_domain_gives_the_selection_of_scikit_learn(ngram_range, max_features):
    texts = _texts(0, rows=400)
    theirs = CountVectorizer(ngram_range=ngram_range, max_features=max_features).fit(texts)
    totals = np.asarray(CountVectorizer(ngram_range=ngram_range).fit_transform(texts).sum(axis=0)).ravel()
    counts = np.sort(totals)[::-1]
    assert max_features is None or counts[max_features - 1] > counts[max_features]  # scikit-learn draws lots for ties
    ours = DomainVectorizer(max_features, ngram_range, "counts").fit(texts)
    assert ours.get_feature_names_out().tolist() == theirs.get_feature_names_out().tolist()
    np.testing.assert_array_equal(ours.transform(texts).toarray(), theirs.transform(texts).toarray())


def test_both_domains_are_counted_together():
    source, target = _texts(0), _texts(1, words=WORDS[::-1])
    both = DomainVectorizer(6).fit(source, X_target=target)
    assert both.vocabulary_ == DomainVectorizer(6).fit(source + target).vocabulary_
    assert {"plot", "handle"} <= set(both.vocabulary_)
    assert "handle" not in DomainVectorizer(6).fit(source).vocabulary_


def test_equal_counts_are_decided_by_the_alphabet():
    texts = ["pear", "fig fig", "kiwi", "apple", "zebra zebra zebra", "date"]
    for order in (texts, texts[::-1], texts[3:] + texts[:3]):
        for kept, expected in enumerate(["zebra", "fig", "apple", "date", "kiwi", "pear"], start=1):
            vocabulary = DomainVectorizer(kept, ngram_range=(1, 1)).fit(order).vocabulary_
            assert expected in vocabulary
            assert len(vocabulary) == kept
            assert vocabulary == sorted(vocabulary)


def test_fewer_terms_than_asked_for_are_all_kept():
    assert DomainVectorizer(100, ngram_range=(1, 1)).fit(["one two"]).vocabulary_ == ["one", "two"]


@pytest.mark.parametrize(
    ("weighting", "expected"),
    [("counts", [3.0, 1.0, 0.0]), ("binary", [1.0, 1.0, 0.0]), ("log", [np.log(4), np.log(2), 0.0])],
)
@pytest.mark.parametrize("norm", [None, "l2"])
def test_weighting_and_length_by_hand(weighting, expected, norm):
    model = DomainVectorizer(ngram_range=(1, 1), weighting=weighting, norm=norm).fit(["aa bb cc"])
    rows = model.transform(["aa bb aa aa", "unheard of", ""])
    length = np.linalg.norm(expected) if norm else 1.0
    np.testing.assert_allclose(rows.toarray(), [np.array(expected) / length, [0.0] * 3, [0.0] * 3], rtol=1e-6)
    assert rows.nnz == 2


@pytest.mark.parametrize("weighting", ["log", "binary", "counts"])
@pytest.mark.parametrize("norm", [None, "l2"])
def test_rows_stay_csr_of_float32(weighting, norm):
    model = DomainVectorizer(weighting=weighting, norm=norm)
    for rows in (model.fit_transform(BOOKS, X_target=KITCHEN), model.transform(KITCHEN)):
        assert sparse.isspmatrix_csr(rows)
        assert rows.dtype == np.float32
        assert rows.shape == (4, len(model.vocabulary_))


def test_rows_stay_csr_where_pandas_output_is_asked_for_everywhere():
    with sklearn.config_context(transform_output="pandas"):
        assert sparse.issparse(DomainVectorizer().fit(BOOKS).transform(BOOKS))


def test_fit_transform_gives_the_rows_of_the_source():
    model = DomainVectorizer()
    rows = model.fit_transform(BOOKS, X_target=KITCHEN[:1])
    assert "blade" in model.vocabulary_
    np.testing.assert_array_equal(rows.toarray(), model.transform(BOOKS).toarray())


def test_case_and_words_are_the_callers_choice():
    texts = ["Good x good"]
    assert DomainVectorizer(ngram_range=(1, 1)).fit(texts).vocabulary_ == ["good"]
    assert DomainVectorizer(ngram_range=(1, 1), lowercase=False).fit(texts).vocabulary_ == ["Good", "good"]
    letters = {"token_pattern": r"\w+"}
    assert DomainVectorizer(ngram_range=[1, 1], **letters).fit(texts).vocabulary_ == ["good", "x"]


KINDS = {
    "list": list,
    "tuple": tuple,
    "array of strings": np.array,
    "array of objects": lambda texts: np.array(texts, dtype=object),
    "column vector": lambda texts: np.array(texts, dtype=object)[:, None],
    "series": pd.Series,
    "series of strings": lambda texts: pd.Series(texts, dtype="string"),
    "series with an index of its own": lambda texts: pd.Series(texts, index=[9, 7, 5, 3]),
    "frame of one column": lambda texts: pd.DataFrame({"review": texts}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_texts_of_every_kind_are_the_same(kind):
    expected = DomainVectorizer().fit(BOOKS, X_target=KITCHEN)
    model = DomainVectorizer().fit(KINDS[kind](BOOKS), None, KINDS[kind](KITCHEN))
    assert model.vocabulary_ == expected.vocabulary_
    np.testing.assert_array_equal(
        model.transform(KINDS[kind](KITCHEN)).toarray(), expected.transform(KITCHEN).toarray()
    )


# (texts, the error, what it says after the name of the argument)
BAD_TEXTS = [
    ("one text", InvalidTypeError, r" is one text \('one text'\); give a list"),
    ([], InvalidInputError, " holds 0 texts"),
    (np.array([], dtype=object), InvalidInputError, " holds 0 texts"),
    (["fine", 3.5], InvalidTypeError, r": row 1 is 3.5 of type float, not a text"),
    (pd.Series(["fine", "too", None]), InvalidTypeError, r": row 2 is .* not a text"),
    (pd.Series(["fine", None], dtype="string"), InvalidTypeError, ": row 1 is .* not a text"),
    ([b"bytes"], InvalidTypeError, r": row 0 is b'bytes' of type bytes"),
    ([["x" * 999]], InvalidTypeError, r": row 0 is .{40} of type list"),
    (pd.DataFrame({"a": BOOKS, "b": BOOKS}), InvalidInputError, r" must be one column of texts, got shape \(4, 2\)"),
    (np.array([[["a"]]]), InvalidInputError, " must be one column of texts"),
    (None, InvalidInputError, " must be one column of texts"),
    (3, InvalidInputError, " must be one column of texts"),
    ((text for text in BOOKS), InvalidInputError, " must be one column of texts"),
    (sparse.eye(2, format="csr"), InvalidInputError, " must be one column of texts"),
]


@pytest.mark.parametrize(("texts", "error", "words"), BAD_TEXTS, ids=[row[2][:24] for row in BAD_TEXTS])
def test_what_is_no_text_is_named(texts, error, words):
    model = DomainVectorizer().fit(BOOKS)
    known = model.vocabulary_
    for refused in (model.fit, model.transform):
        with pytest.raises(error, match=f"^X{words}"):
            refused(texts)
    if texts is not None:
        with pytest.raises(error, match=f"^X_target{words}"):
            model.fit(BOOKS, X_target=texts)
    assert model.vocabulary_ is known


@pytest.mark.parametrize("parameters", [{}, {"ngram_range": (3, 3)}, {"token_pattern": r"\d+"}])
def test_texts_without_a_term_are_refused(parameters):
    texts = ["a b"] if not parameters else ["two words"]
    with pytest.raises(InvalidInputError, match=r"X has no term of \d to \d words in any text; .*ngram_range"):
        DomainVectorizer(**parameters).fit(texts, X_target=texts)


BAD_PARAMETERS = [
    ("max_features", 0),
    ("max_features", 2.5),
    ("max_features", True),
    ("max_features", "all"),
    ("ngram_range", (0, 1)),
    ("ngram_range", (1,)),
    ("ngram_range", (1.0, 2.0)),
    ("ngram_range", 2),
    ("ngram_range", (2, 1)),
    ("weighting", "tf-idf"),
    ("weighting", None),
    ("norm", "l1"),
    ("norm", True),
    ("lowercase", "yes"),
    ("token_pattern", "("),
    ("token_pattern", r"(\w)(\w)"),
    ("token_pattern", None),
]


@pytest.mark.parametrize(("name", "value"), BAD_PARAMETERS)
def test_parameters_that_cannot_work_are_named_and_shown(name, value):
    with pytest.raises(InvalidInputError, match=f"^{name} must .*got {re.escape(repr(value))}"):
        DomainVectorizer(**{name: value}).fit(BOOKS)


def test_the_remedy_for_a_falling_range_is_one():
    with pytest.raises(InvalidInputError, match=r"try \(1, 2\)"):
        DomainVectorizer(ngram_range=(2, 1)).fit(BOOKS)


@pytest.mark.parametrize("use", [lambda m: m.transform(BOOKS), lambda m: m.get_feature_names_out()])
def test_an_unfitted_vectorizer_says_so(use):
    with pytest.raises(NotFittedError):
        use(DomainVectorizer())


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])  # noqa: S301
def test_copies_give_the_same_rows(duplicate):
    model = DomainVectorizer(max_features=8, norm="l2").fit(BOOKS, X_target=KITCHEN)
    twin = duplicate(model)
    assert twin.get_params() == model.get_params()
    np.testing.assert_array_equal(twin.transform(KITCHEN).toarray(), model.transform(KITCHEN).toarray())


def test_clone_takes_parameters_and_leaves_what_was_learned():
    model = DomainVectorizer(max_features=8, ngram_range=[1, 1], weighting="binary", norm="l2").fit(BOOKS)
    twin = clone(model)
    assert twin.get_params() == model.get_params()
    assert not hasattr(twin, "vocabulary_")


def test_tags_say_that_text_comes_in():
    tags = get_tags(DomainVectorizer())
    assert tags.input_tags.string
    assert not tags.input_tags.two_d_array
    assert tags.transformer_tags.preserves_dtype == []


def test_a_pipeline_hands_raw_target_texts_to_the_vectorizer_and_rows_to_the_network():
    source, target, y = _texts(0), _texts(1, rows=50, words=WORDS[::-1]), np.arange(60) % 2
    settings = {"hidden": (5,), "max_epochs": 5, "random_state": 0}
    with sklearn.config_context(enable_metadata_routing=True):
        steps = [
            ("words", DomainVectorizer(12).set_fit_request(X_target=True)),
            ("model", MANNClassifier(**settings).set_fit_request(X_target=True)),
        ]
        pipeline = Pipeline(steps, transform_input=["X_target"]).fit(source, y, X_target=target)
    words = DomainVectorizer(12).fit(source, X_target=target)
    by_hand = MANNClassifier(**settings).fit(words.transform(source), y, words.transform(target))
    assert pipeline["words"].vocabulary_ == words.vocabulary_
    np.testing.assert_array_equal(pipeline["model"].coefs_[0], by_hand.coefs_[0])
    np.testing.assert_array_equal(pipeline.predict(target), by_hand.predict(words.transform(target)))


def test_without_routing_both_domains_may_come_as_one():
    texts, y = BOOKS + KITCHEN, np.array([0, 1, 0, 1, -1, -1, -1, -1])
    pipeline = Pipeline([("words", DomainVectorizer()), ("model", MANNClassifier((3,), max_epochs=2, random_state=0))])
    pipeline.fit(texts, y, model__sample_domain=np.repeat([1, -1], 4))
    assert "blade" in pipeline["words"].vocabulary_
    assert pipeline.predict(KITCHEN).shape == (4,)
