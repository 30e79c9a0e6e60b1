"""Several sources and several targets by the ids of ``sample_domain``, and what is kept of each domain."""

import json

import numpy as np
import pytest
from scipy import sparse

import momentalign as ma
from momentalign.errors import DamagedFileError, InvalidInputError
from momentalign.estimators.domains import joined_task
from momentalign.files import read_folder, write_folder


@pytest.fixture
def several():
    """Sources 1, 2 and 5, targets -1 and -4, rows mixed; each domain is moved in a direction of its own."""
    rng = np.random.default_rng(3)
    domain = rng.permutation(np.repeat([1, 2, 5, -1, -4], [60, 50, 13, 40, 30]))
    labels = rng.integers(2, size=len(domain))
    X = rng.normal(size=(len(domain), 4))
    X[:, 0] += 3.0 * labels
    for number, moved in {2: 1, 5: 2, -1: 3, -4: 1}.items():
        X[domain == number, moved] += 1.5
    return X, np.where(domain > 0, labels, 99), domain


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
    assert np.bincount(whole.source_domains).tolist() == [60, 50, 13]
    ours = [
        (row.tobytes(), number)
        for row, number in zip(X[domain > 0].astype(np.float32), domain[domain > 0], strict=True)
    ]
    theirs = [(row.tobytes(), [1, 2, 5][place]) for row, place in zip(whole.source, whole.source_domains, strict=True)]
    assert sorted(ours) == sorted(theirs)
    np.testing.assert_array_equal(whole.target_domains, task.target_domains)


@pytest.mark.parametrize("settings", [{"weight": [0.5, 1.0]}, {"between": ["pooled", "pairs"]}])
@pytest.mark.parametrize("search", [ma.ReverseValidationSearch, ma.LabelFreeSearch])
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
    assert domains.source_numbers[-8:].tolist() == [0, 1, 2, 0, 1, 2, 0, 1]
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


def test_moments_are_those_of_the_last_fit(quick, problem):
    model = quick().fit(problem.X, problem.y, problem.X_target)
    model.partial_fit(problem.X, problem.y, problem.X_target)
    assert model.moments_ == {}
    assert model.domains_.tolist() == []


@pytest.mark.parametrize("kind", [list, tuple, np.array])
def test_weights_of_domains_come_back_as_numbers(quick, several, tmp_path, kind):
    X, y, domain = several
    model = quick(domain_weights=kind([1.0, 2.0, 3.0])).fit(X, y, sample_domain=domain)
    model.save(tmp_path)
    loaded = ma.load(tmp_path)
    assert loaded.domain_weights == [1.0, 2.0, 3.0]
    loaded.fit(X, y, sample_domain=domain)


def test_moments_come_back_with_a_loaded_model(quick, several, tmp_path):
    X, y, domain = several
    model = quick(domain_weights=(1.0, 2.0, 3.0)).fit(X, y, sample_domain=domain)
    model.save(tmp_path)
    loaded = ma.load(tmp_path)
    assert loaded.domains_.tolist() == model.domains_.tolist()
    assert loaded.domains_.dtype == model.domains_.dtype
    assert loaded.domain_weights == [1.0, 2.0, 3.0]
    for number, moments in model.moments_.items():
        assert loaded.moments_[number].to_dict() == moments.to_dict()


def test_older_folders_without_moments_still_load(quick, problem, tmp_path):
    model = quick().fit(problem.X, problem.y, problem.X_target)
    model.save(tmp_path)
    arrays, description = read_folder(tmp_path)
    older = {name: value for name, value in description.items() if name not in ("domains", "moments")}
    for name in ("between", "domain_weights"):
        del older["parameters"][name]
    write_folder(tmp_path, arrays, older)
    loaded = ma.load(tmp_path)
    assert loaded.moments_ == {}
    assert loaded.domains_.tolist() == []
    np.testing.assert_array_equal(loaded.predict(problem.X), model.predict(problem.X))
    loaded.save(tmp_path)
    assert ma.load(tmp_path).moments_ == {}


FORGERIES = {
    "an id of 0": lambda d: d["domains"].__setitem__(0, 0),
    "an id twice": lambda d: d["domains"].__setitem__(1, d["domains"][0]),
    "a word for an id": lambda d: d["domains"].__setitem__(0, "one"),
    "one domain too few": lambda d: d["moments"].pop(),
    "moments of no rows": lambda d: d["moments"].__setitem__(0, {"order": 5, "cross": 1, "count": 0}),
    "moments of other units": lambda d: d["moments"].__setitem__(0, ma.Moments().update(np.ones((2, 3))).to_dict()),
    "no moments": lambda d: d.__setitem__("moments", 3),
    "negative variances": lambda d: d["moments"][0]["sums"][0].__setitem__(0, -1.0),
}


@pytest.mark.parametrize("kind", FORGERIES)
def test_forged_moments_are_refused(quick, problem, tmp_path, kind):
    quick().fit(problem.X, problem.y, problem.X_target).save(tmp_path)
    arrays, description = read_folder(tmp_path)
    description = json.loads(json.dumps(description))
    FORGERIES[kind](description)
    write_folder(tmp_path, arrays, description)
    with pytest.raises(DamagedFileError):
        ma.load(tmp_path)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"between": "all"}, r'between must be "pooled", "pairs" or "barycentre", got \'all\''),
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
