"""Domains by X_target, sample_domain and y_target: two, or several of each."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import momentalign as ma
from momentalign import MANNClassifier
from momentalign.errors import InvalidInputError
from momentalign.estimators.classifier import ClassLabels
from momentalign.estimators.domains import joined_task, read_domains


def read(X, y, X_target, **options):
    """The domains with labels as they were given, not coded."""
    labels = ClassLabels()
    domains = read_domains(MANNClassifier(), X, y, X_target, labels=labels, **options)
    return domains._replace(labels=labels.classes[domains.labels])


@pytest.fixture
def mixed(problem):
    """Both domains as one X, their rows mixed but in order within a domain, with ids as skada has them."""
    domain = np.random.default_rng(5).permutation(np.repeat([1, -2], [120, 90]))
    X, y = np.empty((210, 4)), np.full(210, 99)
    X[domain > 0], X[domain < 0] = problem.X, problem.X_target
    y[domain > 0] = problem.y
    return X, y, domain


def test_sample_domain_and_x_target_are_the_same_model(either, problem, mixed, assert_same_weights):
    """What the ids of one source and one target are does not matter."""
    X, y, domain = mixed
    expected = either().fit(problem.X, problem.y, problem.X_target)
    for ids in (domain, np.where(domain > 0, 7, -100).astype(np.int8)):
        assert_same_weights(either().fit(X, y, sample_domain=ids), expected)


@pytest.mark.parametrize("poison", [-1, 1, 10**9, np.nan, -np.inf])
def test_target_labels_are_not_looked_at(either, mixed, assert_same_weights, poison):
    X, y, domain = mixed
    model = either().fit(X, np.where(domain < 0, poison, y), sample_domain=domain)
    assert_same_weights(model, either().fit(X, y, sample_domain=domain))
    assert getattr(model, "classes_", np.arange(2)).tolist() == [0, 1]


@pytest.mark.parametrize("poison", [None, "?", np.nan])
def test_target_labels_may_be_garbage(quick, mixed, assert_same_weights, poison):
    X, y, domain = mixed
    names = np.array(["no", "yes"], dtype=object)[np.minimum(y, 1)]
    poisoned = np.where(domain < 0, poison, names)
    model = quick().fit(X, poisoned, sample_domain=domain)
    assert_same_weights(model, quick().fit(X, names, sample_domain=domain))
    assert model.classes_.tolist() == ["no", "yes"]


@pytest.mark.parametrize("convert", [sparse.csr_matrix, pd.DataFrame, lambda rows: rows.tolist()])
def test_sample_domain_splits_any_kind_of_rows(quick, mixed, convert):
    X, y, domain = mixed
    expected = quick().fit(X, y, sample_domain=domain).predict_proba(X)
    if convert is pd.DataFrame:
        frame = pd.DataFrame(X, columns=list("abcd"), index=np.arange(len(X))[::-1])
        model = quick().fit(frame, pd.Series(y), sample_domain=pd.Series(domain))
        np.testing.assert_allclose(model.predict_proba(frame), expected, atol=1e-6)
    else:
        model = quick().fit(convert(X), y, sample_domain=domain.tolist())
        np.testing.assert_allclose(model.predict_proba(X), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: np.where(np.arange(len(d)) == 3, 0, d), r"sample_domain holds 0; use positive ids"),
        (lambda d: d[:-1], r"sample_domain must be one whole number per row of X \(210\)"),
        (lambda d: d * 1.0, r"sample_domain must be one whole number per row .* got float64"),
        (lambda d: np.array(["s"] * len(d)), r"sample_domain must be one whole number per row"),
        (lambda d: d[:, None], r"sample_domain must be one whole number per row .* shape \(210, 1\)"),
        (lambda d: -np.abs(d), r"sample_domain has no positive id"),
        (lambda d: np.where(np.arange(len(d)) == 1, -1, 1), r"the target has 1 sample"),
        (lambda d: np.where(np.arange(len(d)) == 0, 1, -1), r"the source has 1 sample"),
        (
            lambda d: np.full(len(d), 2**63 + 5, np.uint64),
            r"holds 9223372036854775813; use ids below 2\^63",
        ),
    ],
)
def test_ids_that_cannot_be_meant_are_refused(quick, mixed, change, message):
    X, y, domain = mixed
    with pytest.raises(InvalidInputError, match=message):
        quick().fit(X, y, sample_domain=change(domain))
    with pytest.raises(InvalidInputError, match="either X_target or sample_domain, not both"):
        quick().fit(X, y, X, sample_domain=domain)


MISSING = {
    "nan": (np.nan, float),
    "none": (None, object),
    "minus one": (-1, int),
    "minus one in floats": (-1.0, float),
    "nan among objects": (np.nan, object),
}


@pytest.mark.parametrize("kind", MISSING)
def test_labelled_target_rows_join_the_source(quick, problem, kind):
    X, y, X_target, y_target = problem
    missing, dtype = MISSING[kind]
    known = np.arange(len(X_target)) % 9 == 0
    labels = np.array([label if k else missing for label, k in zip(y_target, known, strict=True)], dtype=dtype)
    domains = read(X, y, X_target, y_target=labels)
    np.testing.assert_array_equal(domains.source, np.concatenate([X, X_target[known]]))
    np.testing.assert_array_equal(domains.labels, np.concatenate([y, y_target[known]]))
    np.testing.assert_array_equal(domains.target, X_target)
    assert domains.labels.dtype == y.dtype
    nothing = read(X, y, X_target, y_target=np.full(90, missing, dtype=dtype))
    np.testing.assert_array_equal(nothing.source, X)


def test_minus_one_is_a_label_where_the_source_has_that_class(quick, problem):
    X, y, X_target, y_target = problem
    signs, target_signs = 2 * y - 1, (2.0 * y_target - 1)
    target_signs[50:] = np.nan
    domains = read(X, signs, X_target, y_target=target_signs)
    np.testing.assert_array_equal(domains.labels, np.concatenate([signs, 2 * y_target[:50] - 1]))
    model = quick().fit(X, signs, X_target, y_target=target_signs)
    assert model.classes_.tolist() == [-1, 1]


@pytest.mark.parametrize("missing", [-1, None, float("nan"), pd.NA, np.int8(-1)])
@pytest.mark.parametrize("kind", [list, lambda values: np.array(values, dtype=object), pd.Series])
def test_missing_entries_are_seen_one_by_one(quick, problem, missing, kind):
    """Among names -1 is no number's array, and a list of both would become one of names."""
    names = np.array(["no", "yes"])
    labels = [str(names[label]) if row < 9 else missing for row, label in enumerate(problem.y_target)]
    domains = read(problem.X, names[problem.y], problem.X_target, y_target=kind(labels))
    np.testing.assert_array_equal(domains.labels, names[np.concatenate([problem.y, problem.y_target[:9]])])
    flags = [bool(label) if row < 9 else missing for row, label in enumerate(problem.y_target)]
    domains = read(problem.X, problem.y == 1, problem.X_target, y_target=kind(flags))
    np.testing.assert_array_equal(domains.labels, np.concatenate([problem.y, problem.y_target[:9]]) == 1)


def test_nullable_whole_numbers_join(quick, problem):
    labels = pd.Series(problem.y_target, dtype="Int64").where(np.arange(90) < 9)
    domains = read(problem.X, problem.y, problem.X_target, y_target=labels)
    assert domains.labels.dtype == problem.y.dtype
    np.testing.assert_array_equal(domains.labels, np.concatenate([problem.y, problem.y_target[:9]]))


KINDS = {
    "longer strings": (np.array(["a", "b"]), np.array(["a", "unheard-of"])),
    "larger whole numbers": (np.array([0, 1], np.int8), np.array([0, 256])),
    "larger whole numbers as floats": (np.array([0, 1], np.int8), np.array([0.0, 256.0])),
    "objects": (np.array(["a", "b"], dtype=object), np.array(["a", "c"], dtype=object)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_target_labels_are_neither_cut_nor_wrapped_around(quick, problem, kind):
    classes, target_classes = KINDS[kind]
    y, y_target = classes[problem.y], target_classes[problem.y_target]
    domains = read(problem.X, y, problem.X_target, y_target=y_target)
    assert set(domains.labels) == {*classes, *target_classes}


@pytest.mark.parametrize(
    ("y_target", "message"),
    [
        (np.where(np.arange(90) < 9, np.inf, np.nan), "y_target holds an infinite label; mark missing ones"),
        (np.where(np.arange(90) < 9, -np.inf, np.nan), "y_target holds an infinite label"),
        (np.where(np.arange(90) < 9, 1e300, np.nan), "y: Unknown label type: continuous"),
        (np.full(90, "a"), "y_target holds labels such as 'a', y is of int64; give labels of one kind"),
        (np.full(90, 0.5), "y: Unknown label type: continuous"),
        (np.ones(3), r"y_target must hold one entry per target row \(90\), got shape \(3,\)"),
        (np.ones((90, 1)), r"y_target must hold one entry per target row \(90\), got shape \(90, 1\)"),
        (1, r"y_target must hold one entry per target row \(90\), got shape \(\)"),
    ],
)
def test_target_labels_that_cannot_be_meant_are_refused(quick, problem, y_target, message):
    with pytest.raises(InvalidInputError, match=message):
        quick().fit(*problem[:3], y_target=y_target)
    with pytest.raises(InvalidInputError, match=r"y_target must hold one entry per target row \(0\)"):
        quick().fit(problem.X, problem.y, y_target=problem.y_target)


def test_with_sample_domain_labels_belong_to_the_target_rows_in_order(quick, problem, mixed, assert_same_weights):
    X, y, domain = mixed
    labels = np.where(np.arange(90) < 20, problem.y_target, -1)
    model = quick().fit(X, y, sample_domain=domain, y_target=labels)
    assert_same_weights(model, quick().fit(*problem[:3], y_target=labels))


def test_target_labels_mend_what_adaptation_cannot(make_problem):
    """A target whose classes have changed sides."""
    X, y, X_target, _ = make_problem(target_rows=120, features=2, shift=8.0)
    flipped = 1 - np.arange(120) % 2
    labels = np.where(np.arange(120) < 60, flipped, -1)
    settings = {"hidden": (10,), "optimizer": "adam", "learning_rate": 0.05, "max_epochs": 100, "random_state": 0}
    model = MANNClassifier(weight=0.1, **settings).fit(X, y, X_target, y_target=labels)
    assert model.score(X_target[60:], flipped[60:]) > 0.8
    assert MANNClassifier(weight=0.1, **settings).fit(X, y, X_target).score(X_target[60:], flipped[60:]) < 0.6


def _task(model, X, y, domain):
    return model._prepare(X, y, None, domain)[1]


@pytest.mark.parametrize("between", ["pooled", "pairs", "barycentre"])
@pytest.mark.parametrize("weights", ["equal", "size", "similarity", [1, 2.0, 0.5]])
def test_the_ids_are_used(quick, several, between, weights):
    X, y, domain = several
    model = quick(between=between, domain_weights=weights).fit(X, y, sample_domain=domain)
    parts = [model.transform(X[domain == number]) for number in model.domains_]
    assert model.domains_.tolist() == [1, 2, 5, -1, -4]
    two = quick().fit(X, y, sample_domain=np.sign(domain))
    assert not np.array_equal(model.coefs_[0], two.coefs_[0])
    distance = ma.multi_domain_cmd(parts[:3], parts[3:], between=between, domain_weights=weights)
    assert 0.2 * distance < model.history_["distance"][-1] < 5.0 * distance


def test_alignment_makes_all_domains_alike(several):
    X, y, domain = several
    settings = {"hidden": (8,), "max_epochs": 60, "learning_rate": 0.1, "batch_size": 60, "random_state": 0}
    for between in ("pooled", "pairs", "barycentre"):
        distances = []
        for weight in (0.0, 3.0):
            moments = (
                ma.MANNClassifier(weight=weight, between=between, **settings).fit(X, y, sample_domain=domain).moments_
            )
            distances.append(np.mean([moments[source].cmd(moments[-1]) for source in (1, 2, 5)]))
        assert distances[1] < 0.6 * distances[0]


def test_the_order_of_rows_of_other_domains_does_not_matter_to_ids(quick, several, assert_same_weights):
    """The place of an id among the others decides, not its value."""
    X, y, domain = several
    renamed = np.vectorize({1: 3, 2: 10, 5: 11, -1: -20, -4: -21}.get)(domain)
    weights = [1.0, 2.0, 3.0]
    assert_same_weights(
        quick(domain_weights=weights).fit(X, y, sample_domain=domain),
        quick(domain_weights=weights).fit(X, y, sample_domain=renamed),
    )


def test_sparse_rows_and_a_regressor(quick, several):
    X, y, domain = several
    expected = quick(between="pairs").fit(X, y, sample_domain=domain)
    model = quick(between="pairs").fit(sparse.csr_matrix(X), y, sample_domain=domain)
    np.testing.assert_allclose(model.predict_proba(X), expected.predict_proba(X), atol=1e-6)
    np.testing.assert_allclose(model.moments_[-4].mean, expected.moments_[-4].mean, atol=1e-6)
    values = np.where(domain > 0, X[:, 0], np.nan)
    number = ma.MANNRegressor(hidden=(5,), max_epochs=5, batch_size=40, between="barycentre", random_state=0)
    assert list(number.fit(X, values, sample_domain=domain).moments_) == [1, 2, 5, -1, -4]
    assert all(distance > 0 for distance in number.history_["distance"])


@pytest.mark.parametrize("discrepancy", ["mmd", "coral", "cv-cmd", "dann", None])
def test_every_discrepancy_knows_several_domains(quick, several, discrepancy):
    X, y, domain = several
    for between in ("pooled", "pairs"):
        model = quick(discrepancy=discrepancy, between=between, max_epochs=2).fit(X, y, sample_domain=domain)
        assert len(model.moments_) == 5
    if discrepancy in ("dann", None):
        return
    with pytest.raises(InvalidInputError, match=r'only discrepancy="cmd"'):
        quick(discrepancy=discrepancy, between="barycentre").fit(X, y, sample_domain=domain)


def test_sources_alone_are_a_plain_network_of_all_of_them(quick, several, assert_same_weights):
    X, y, domain = several
    source = domain > 0
    model = quick().fit(X[source], y[source], sample_domain=domain[source])
    assert_same_weights(model, quick().fit(X[source], y[source]))
    assert model.domains_.tolist() == [1, 2, 5]


def test_automatic_weights_take_several_domains(quick, several):
    X, y, domain = several
    model = quick(weight="auto", between="pairs").fit(X, y, sample_domain=domain)
    assert len(model.networks_) == 4
    np.testing.assert_allclose(model.moments_[5].mean, model.transform(X[domain == 5]).mean(0), atol=1e-6)
    task = _task(model, X, y, domain)
    whole = joined_task(task)
    given = zip(X[domain > 0].astype(np.float32), domain[domain > 0], strict=True)
    joined = zip(whole.source, np.array([1, 2, 5])[whole.source_domains], strict=True)
    assert sorted((row.tobytes(), number) for row, number in joined) == sorted((r.tobytes(), n) for r, n in given)
    np.testing.assert_array_equal(whole.target_domains, task.target_domains)


@pytest.mark.parametrize(
    ("search", "settings"),
    [(ma.ReverseValidationSearch, {"weight": [0.5, 1.0]}), (ma.LabelFreeSearch, {"between": ["pooled", "pairs"]})],
)
def test_searches_train_with_several_domains(quick, several, search, settings, tmp_path):
    X, y, domain = several
    weights = {"domain_weights": [1.0, 2.0, 3.0]}
    found = search(quick(**weights), settings, random_state=0, resume=tmp_path / "a").fit(X, y, sample_domain=domain)
    pooled = search(quick(**weights), settings, random_state=0).fit(X, y, sample_domain=domain * 1)
    np.testing.assert_array_equal(found.cv_results_["mean_test_score"], pooled.cv_results_["mean_test_score"])
    assert list(found.best_estimator_.moments_) == [1, 2, 5, -1, -4]
    other = np.where(domain == 5, 2, np.where(domain == 2, 5, domain))
    with pytest.raises(InvalidInputError, match="another"):
        search(quick(**weights), settings, random_state=0, resume=tmp_path / "a").fit(X, y, sample_domain=other)


def test_a_search_scores_networks_that_compare_several_domains(quick, several):
    X, y, domain = several
    variants = (domain, np.where(domain > 0, 1, domain), np.where(domain < 0, -1, domain), np.sign(domain))
    scores = [
        ma.LabelFreeSearch(quick(between="pairs"), {"weight": [3.0]}, rule="entropy", refit=False, random_state=0)
        .fit(X, y, sample_domain=ids)
        .best_score_
        for ids in variants
    ]
    assert len(set(scores)) == 4


def test_a_small_domain_is_not_held_out(quick, several):
    X, y, domain = several
    domain = domain.copy()
    domain[np.flatnonzero(domain == 5)[2:]] = 2
    model = quick(validation_fraction=0.9)
    task = _task(model, X, y, domain)
    assert np.bincount(task.source_domains)[2] == 2
    assert (task.validation_domains != 2).all()
    assert len(task.validation) == len(task.validation_domains) == len(task.validation_labels)
    model.fit(X, y, sample_domain=domain)


def test_labelled_target_rows_are_shared_out_among_the_sources(quick, several):
    X, y, domain = several
    known = np.where(np.arange((domain < 0).sum()) < 8, 1, -1)
    *_, domains = quick()._prepare(X, y, None, domain, known)
    assert domains.task().source_domains[-8:].tolist() == [0, 1, 2, 0, 1, 2, 0, 1]
    model = quick().fit(X, y, sample_domain=domain, y_target=known)
    assert [model.moments_[number].count for number in (1, 2, 5, -1, -4)] == [60, 50, 13, 40, 30]


def test_two_domains_have_the_ids_of_skada_and_moments_too(quick, problem):
    model = quick().fit(problem.X, problem.y, problem.X_target, y_target=np.where(np.arange(90) < 9, 1, -1))
    assert model.domains_.tolist() == [1, -2]
    for number, rows in ((1, problem.X), (-2, problem.X_target)):
        hidden = model.transform(rows)
        moments = model.moments_[number]
        assert moments.count == len(rows)
        np.testing.assert_allclose(moments.mean, hidden.mean(0), rtol=1e-6)
        np.testing.assert_allclose(moments.central[3], ((hidden - hidden.mean(0)) ** 5).mean(0), rtol=1e-4, atol=1e-12)
    alone = quick().fit(problem.X, problem.y)
    assert alone.domains_.tolist() == list(alone.moments_) == [1]
    # Of the last fit only.
    model.partial_fit(problem.X, problem.y, problem.X_target)
    assert (model.moments_, model.domains_.tolist()) == ({}, [])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"between": "all"}, r"between must be one of 'pooled', 'pairs', 'barycentre', got 'all'"),
        ({"domain_weights": "rows"}, r'domain_weights must be "equal", "size", "similarity" or one number per source'),
        ({"domain_weights": [1.0, 2.0]}, r"domain_weights has 2 numbers for 3 sources"),
        ({"discrepancy": ma.MultiDomainCMDLoss()}, r'takes lists of them; give discrepancy="cmd" with between'),
    ],
)
def test_settings_that_cannot_work_are_refused(quick, several, settings, message):
    X, y, domain = several
    with pytest.raises(InvalidInputError, match=message):
        quick(**settings).fit(X, y, sample_domain=domain)


def test_a_domain_of_one_row_is_refused(quick, several):
    X, y, domain = several
    for lonely in (9, -9):
        ids = domain.copy()
        ids[np.flatnonzero(np.sign(ids) == np.sign(lonely))[0]] = lonely
        with pytest.raises(InvalidInputError, match=rf"domain {lonely} of sample_domain has 1 sample only"):
            quick().fit(X, y, sample_domain=ids)
