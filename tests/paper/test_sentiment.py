"""Table 2 from real reviews: tasks, starts, methods, devices, what is chosen, kept and reported."""

import numpy as np
import pytest
from sklearn.base import clone

from momentalign.discrepancies.coral import CORALLoss
from momentalign.errors import InvalidInputError
from momentalign.journal import Journal, cell_key
from momentalign.networks.shallow import outputs
from momentalign.paper import sentiment
from momentalign.paper.sentiment import METHODS, preset, review_identity
from momentalign.paper.tables import AVERAGE, compare

SHORT = {"source": "books", "target": "kitchen", "seeds": [0]}


@pytest.fixture
def journal(tmp_path):
    return Journal(tmp_path / "cells.jsonl", review_identity("test"))


@pytest.mark.data
def test_a_task_is_what_the_protocol_says():
    found = sentiment.load_task("electronics", "dvd")
    task = found.task
    assert task.source.shape == (1400, 5000) == task.target.shape
    assert task.validation.shape == (600, 5000)
    assert found.test.shape == (3586, 5000) == (len(found.test_labels), 5000)
    assert np.bincount(np.r_[task.labels, task.validation_labels]).tolist() == [1000, 1000]


@pytest.mark.data
def test_labels_of_the_target_have_no_part_in_a_task(monkeypatch):
    """The same reviews with all labels of the target turned around make the same task."""
    found, every = sentiment.load_task("books", "dvd"), sentiment._reviews(None)
    turned = every._replace(labels={**every.labels, "dvd": 1 - every.labels["dvd"]})
    monkeypatch.setattr(sentiment, "_reviews", lambda _: turned)
    again = sentiment.load_task("books", "dvd")
    assert (again.test_labels == 1 - found.test_labels).all()
    for name in ("source", "target", "validation"):
        assert (getattr(again.task, name) != getattr(found.task, name)).nnz == 0
    for name in ("labels", "validation_labels"):
        np.testing.assert_array_equal(getattr(again.task, name), getattr(found.task, name))


@pytest.mark.data
def test_every_method_starts_from_the_same_weights_after_one_epoch():
    task = sentiment.load_task("books", "dvd").task
    config = sentiment.config_of(10)
    (first,), (second,) = (sentiment.starts([task], config, [seed], device="cpu")[0] for seed in (0, 1))
    assert (first[0].weight != second[0].weight).any()
    (again,) = sentiment.starts([task], config, [0], device="cpu")[0]
    assert (first[0].weight == again[0].weight).all()
    right = (outputs(first, task.source).argmax(1) == task.labels).mean()
    assert 0.6 < right < 1.0  # something is learned, not everything


BOTH = [{**SHORT, "method": "nn"}, {**SHORT, "method": "cmd", "weight": 1.0}]


@pytest.fixture(scope="module")
def accuracies(tmp_path_factory):
    """Accuracies of one network without and one with alignment, each computed alone."""
    journal = Journal(tmp_path_factory.mktemp("alone") / "cells.jsonl", review_identity("test"))
    found = sentiment.compute_all(BOTH, journal, folder=None)
    return [found[cell_key(cell)]["accuracy"][0] for cell in BOTH]


@pytest.mark.data
@pytest.mark.parametrize(
    ("settings", "low"),
    [
        *(({"method": method, "weight": 1.0}, 0.65) for method in ("cv-cmd", "coral", "dann")),
        ({"method": "tca", "components": 50, "mu": 0.1, "seeds": [0, 1]}, 0.7),
        ({"method": "auto"}, 0.8),
    ],
)
def test_each_method_is_trained_and_tested(journal, settings, low):
    (result,) = sentiment.compute_all([{**SHORT, **settings}], journal, folder=None).values()
    assert len(result["accuracy"]) == len(result["epochs"]) == len(settings.get("seeds", [0]))
    assert len(set(result["accuracy"])) == 1
    assert low < result["accuracy"][0] < 0.9


@pytest.mark.data
def test_adaptation_helps_and_neither_process_nor_grid_changes_a_number(journal, accuracies):
    plain, aligned = accuracies
    assert aligned > plain + 0.04
    grid = {**SHORT, "method": "cmd", "grid": [0.0, 1.0]}
    spread = sentiment.compute_all([BOTH[0], grid], journal, folder=None, n_jobs=2)
    assert spread[cell_key(BOTH[0])]["accuracy"] == [plain]
    assert spread[cell_key(grid)]["accuracy"][1] == aligned != spread[cell_key(grid)]["accuracy"][0]


@pytest.mark.data
def test_weights_are_scored_by_reverse_validation(journal):
    cell = {"source": "books", "target": "kitchen", "method": "cmd", "weights": [0.0, 1.0]}
    (result,) = sentiment.compute_all([cell], journal, folder=None).values()
    assert len(result["scores"]) == 2
    assert all(0.5 < score < 1.0 for score in result["scores"])


@pytest.mark.data
def test_tasks_side_by_side_are_the_tasks_one_by_one(journal, accuracies):
    """The path of an accelerator, on the CPU: what is done is not done again."""
    both = [{**cell, "target": target} for cell in BOTH for target in ("dvd", "kitchen")]
    journal.append(both[0], {"accuracy": [0.25], "epochs": [1]})
    calls = []
    found = sentiment.compute_all(both, journal, folder=None, device="cpu:0", progress=lambda *call: calls.append(call))
    assert calls == [(1, 4), (2, 4), (4, 4)]
    assert found[cell_key(both[0])]["accuracy"] == [0.25]
    for cell, expected in zip((both[1], both[3]), accuracies, strict=True):
        assert abs(found[cell_key(cell)]["accuracy"][0] - expected) < 0.01


def test_distances_carry_their_parameters():
    assert sentiment.distance_of("nn", {}) is None
    assert sentiment.distance_of("cmd", {"n_moments": 3}).n_moments == 3
    assert sentiment.distance_of("mmd", {"beta": 0.5}).beta == 0.5
    assert sentiment.distance_of("dann", {"hidden": 7}).width == 7
    assert isinstance(sentiment.distance_of("coral", {}), CORALLoss)


@pytest.mark.gpu
@pytest.mark.data
@pytest.mark.parametrize(
    ("method", "there"), [("nn", (0.790, 0.743)), ("cmd", (0.809, 0.823)), ("dann", (0.800, 0.746))]
)
def test_a_gpu_gives_the_accuracies_of_the_cpu(journal, method, there):
    """Beside the means over ten seeds that both give."""
    cell = {**SHORT, "method": method, "weight": 0.0 if method == "nn" else 1.0}
    both = [{**cell, "target": name} for name in ("dvd", "kitchen")]
    found = sentiment.compute_all(both, journal, folder=None, device="cuda")
    for other, expected in zip(both, there, strict=True):
        assert abs(found[cell_key(other)]["accuracy"][0] - expected) < 0.02


@pytest.mark.data
def test_a_run_is_resumed_and_reported(journal):
    calls, ask = [], {"seeds": range(2), "tasks": ["books->kitchen"]}
    result = sentiment.run(["nn", "cmd"], journal, **ask)
    lines = journal.path.read_bytes()
    assert sentiment.run(["nn", "cmd"], journal, progress=lambda *call: calls.append(call), **ask) == result
    assert journal.path.read_bytes() == lines
    assert calls[-1] == (2, 2)
    comparison = compare(result)
    assert comparison.entries["cmd"][AVERAGE].mean > comparison.entries["nn"][AVERAGE].mean + 4.0
    assert result["methods"]["cmd"]["settings"]["weights"] == (1.0,)


def test_the_best_reverse_accuracy_chooses_and_of_equals_the_smallest_weight():
    cells = sentiment._search_cells("mmd", "books->dvd")
    assert len(cells) == 10
    assert all(len(cell["weights"]) == 10 for cell in cells)
    scores = {cell_key(cell): {"scores": [0.5] * 10} for cell in cells}
    scores[cell_key(cells[3])] = {"scores": [0.5, 0.5, 0.8, 0.5, 0.8, 0.5, 0.5, 0.5, 0.5, 0.5]}
    chosen = sentiment._choose("mmd", "books->dvd", scores)
    assert chosen == {"weight": cells[3]["weights"][2], "beta": cells[3]["beta"]}


def test_what_is_not_searched_has_no_cells_to_search():
    for method in ("nn", "cmd", "coral", "dann", "tca", "cv-cmd"):
        assert sentiment._search_cells(method, "books->dvd") == []
    assert set(sentiment._choose("tca", "books->dvd", {})) == {"components", "mu"}


@pytest.mark.parametrize("method", sorted(set(METHODS) - {"mmd", "tca"}))
def test_a_preset_fits_two_domains(method, rng):
    y = np.arange(60) % 2
    X = rng.normal(size=(60, 3)) + 2.0 * y[:, None]
    model = clone(preset(method, random_state=0)).set_params(max_epochs=3, hidden=(4,))
    assert model.fit(X, y, X_target=X[:50] + 0.5).predict(X).shape == (60,)


def test_every_network_of_table_2_is_a_preset_and_mmd_searches_the_grid_of_the_paper():
    search = preset("mmd", random_state=0)
    assert len(search.param_grid["weight"]) == len(search.param_grid["discrepancy"]) == 10
    assert preset("coral").weight == 100_000.0
    for name in ("magic", "tca"):
        with pytest.raises(InvalidInputError, match=f"there is no preset '{name}'; choose among nn, dann"):
            preset(name)
