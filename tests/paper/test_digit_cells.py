"""A cell of Table 5: what it trains and tells, that it depends on nothing but itself, and what a change changes."""

from dataclasses import replace
from functools import cache, partial

import numpy as np
import pytest
import torch

from momentalign.discrepancies.central_moment import cmd_terms
from momentalign.paper import digit_networks
from momentalign.paper import digits as digit_cells
from momentalign.paper.augmentation import Augmentation, DeviceBatches
from momentalign.paper.digit_networks import METHODS, RECIPE, Recipe
from momentalign.paper.digits import compute, identity, load_digits, samples
from momentalign.paper.digits_data import load_mnist, load_mnist_m, load_svhn

SMALL = Recipe(batch_size=10, steps=2, epochs=2, synth_size=250)
TASK = "svhn->mnist"


def train(folder, method="cmd", *, seed=0, recipe=SMALL, **more):
    """Compute a small cell and return what it tells, but for the time it took."""
    result = compute({"task": TASK, "method": method, "seed": seed, **more}, recipe=recipe, folder=str(folder))
    assert result.pop("seconds") >= 0
    return result


def network_of(folder, method, recipe):
    """The network that :func:`train` looked at."""
    images = [digit_cells.digits_on_device(name, "train", 250, str(folder), "cpu") for name in ("svhn", "mnist")]
    return digit_networks.train(METHODS[method], *images, 0, recipe=recipe)[0]


@pytest.fixture(scope="module")
def usual(digit_folder):
    """The cells of the small recipe by method, each trained once."""
    return cache(partial(train, digit_folder))


def test_a_cell_tells_what_its_network_does(usual, digit_folder):
    result = train(digit_folder, look=True)
    confusion = np.array(result["confusion"])
    labels = load_mnist("test", digit_folder).labels
    assert confusion.sum(axis=1).tolist() == np.bincount(labels, minlength=10).tolist()
    assert result["accuracy"] == pytest.approx(confusion.trace() / len(labels))
    assert 0 <= result["source_accuracy"] <= 1
    assert set(result["scores"]) == {"nuclear_norm", "mutual_information"}
    assert np.shape(result["orders"]) == (3, 5)
    look = result["look"]
    assert np.shape(look["places"]) == (120, 2)
    shown = np.array(samples(TASK, recipe=SMALL, folder=str(digit_folder))["target_labels"])
    assert len(look["predictions"]) == len(look["chances"]) == len(shown) == 24
    assert all(0.1 <= chance <= 1 for chance in look["chances"])
    del result["look"]
    assert result == usual("cmd")


def test_a_network_that_trains_longer_learns_and_is_looked_at_as_it_ended(digit_folder):
    recipe = replace(SMALL, steps=40, batch_size=30, decay=0.8, augmentation=Augmentation())
    result = train(digit_folder, "cnn", recipe=recipe)
    assert result["source_accuracy"] > 0.5
    network = network_of(digit_folder, "cnn", recipe)
    images, labels = (torch.from_numpy(part) for part in load_mnist("test", digit_folder))
    right = digit_networks.probabilities_of(network, images, recipe).argmax(1) == labels
    assert result["accuracy"] == pytest.approx(float(right.double().mean()))


def test_a_cell_depends_on_itself_alone_and_moves_no_generator(digit_folder):
    before = torch.get_rng_state()
    first = train(digit_folder, "dann")
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(3)
    assert train(digit_folder, "dann", seed=1) != first
    assert train(digit_folder, "dann") == first


@pytest.mark.parametrize("method", [name for name in METHODS if name != "cnn"])
def test_alignment_has_a_part_in_every_aligned_method(usual, method):
    plain, aligned = usual("cnn"), usual(method)
    assert plain["orders"][0] == aligned["orders"][0]
    assert plain["orders"][-1] != aligned["orders"][-1]


def test_the_first_stage_of_adda_is_the_plain_network(usual):
    plain, two_stages = usual("cnn")["orders"], usual("adda")["orders"]
    assert len(two_stages) == 2 * len(plain)
    assert two_stages[: len(plain)] == plain


def test_the_orders_are_those_of_the_cmd_on_the_first_images(digit_folder, monkeypatch):
    monkeypatch.setattr(digit_networks, "WATCHED", 40)
    recipe = replace(SMALL, decay=0.0)
    result = train(digit_folder, recipe=recipe)
    network = network_of(digit_folder, "cmd", recipe)
    images = [torch.from_numpy(load(part, digit_folder).images[:40]) for load, part in
              ((load_svhn, "train"), (load_mnist, "train"))]  # fmt: skip
    inputs = [(x / 255.0 - (x / 255.0).mean((1, 2, 3), keepdim=True)) for x in images]
    inputs = [x / x.square().mean((1, 2, 3), keepdim=True).sqrt() for x in inputs]
    with torch.no_grad():
        source, target = (network.embedding(network.features(x)) for x in inputs)
    expected = cmd_terms(source, target, n_moments=5, interval=(-1.0, 1.0))
    assert result["orders"][-1] == pytest.approx(expected.tolist(), abs=2e-5)


def test_the_weight_of_the_cmd_is_over_the_root_of_the_width(usual, digit_folder):
    change = {"width_root": False}
    assert train(digit_folder, change=change)["orders"][-1] != usual("cmd")["orders"][-1]
    assert train(digit_folder, "coral", change=change) == usual("coral")


def test_a_change_changes_the_recipe_and_reads_nothing_again(usual, digit_folder):
    before = usual("cmd")["orders"]
    kept = digit_cells.digits_on_device.cache_info().currsize
    change = {"n_moments": 3, "epochs": 1, "decay": 0.0, "balanced": False, "standardized": False}
    assert np.shape(train(digit_folder, change=change)["orders"]) == (2, 3)
    change = {"augmentation": {"rotation": 0.0, "scale": 0.0, "shift": 0.0, "channel_inversion": 0.0}}
    still = train(digit_folder, change=change)["orders"]
    assert still[0] == before[0]
    assert still[-1] != before[-1]
    assert digit_cells.digits_on_device.cache_info().currsize == kept


def test_a_change_is_of_some_fields_only():
    changed = digit_cells._changed(RECIPE, {"steps": 7, "augmentation": {"rotation": 3.0}})
    assert changed == replace(RECIPE, steps=7, augmentation=replace(RECIPE.augmentation, rotation=3.0))
    assert digit_cells._changed(RECIPE, {}) == RECIPE


def test_domains_are_read_or_drawn(digit_folder, few_images):
    folder = str(digit_folder)
    for name, load in (("mnist", load_mnist), ("svhn", load_svhn), ("mnist-m", load_mnist_m)):
        for split in ("train", "test"):
            np.testing.assert_array_equal(load_digits(name, split, SMALL, folder).images, load(split, folder).images)
    train, test = (load_digits("synth", split, SMALL, None) for split in ("train", "test"))
    assert (len(train.labels), len(test.labels)) == (250, 50)
    assert (train.images[:50] != test.images).any()


def test_samples_are_spread_over_the_test_images(digit_folder):
    shown = samples("mnist->mnist-m", recipe=SMALL, folder=str(digit_folder))
    source, target = load_mnist("test", digit_folder), load_mnist_m("test", digit_folder)
    assert bytes.fromhex(shown["source_images"][-1]) == source.images[-1].tobytes()
    assert bytes.fromhex(shown["target_images"][0]) == target.images[0].tobytes()
    assert shown["placed_labels"] == [source.labels.tolist(), target.labels.tolist()]
    for rows in (1, 24, 60, 10_000):
        spread = digit_cells._spread(rows, 24)
        assert len(spread) == len(set(spread)) == min(rows, 24)
        assert (spread[0], spread[-1]) == (0, rows - 1)


def test_a_journal_of_another_recipe_or_version_is_another():
    assert identity("digits", RECIPE) == identity("digits", Recipe())
    assert identity("digits", RECIPE) != identity("digits", SMALL)
    assert set(identity("digits", RECIPE)["versions"]) == {"momentalign", "torch"}


@pytest.fixture
def followed(monkeypatch):
    """What source batches were told to follow."""
    told = []

    def note(batches, shares):
        told.append((batches, shares))
        follow(batches, shares)

    follow = DeviceBatches.follow
    monkeypatch.setattr(DeviceBatches, "follow", note)
    return told


FOLLOWING = replace(SMALL, batch_size=40, steps=16, epochs=8, learning_rate=0.01, follow_beyond=0.0)


def train_aligned(folder, recipe):
    images = [digit_cells.digits_on_device(name, "train", 250, str(folder), "cpu") for name in ("svhn", "mnist")]
    return digit_networks.train(METHODS["cmd"], *images, 0, recipe=recipe).shares_away


def test_from_half_of_the_way_on_source_batches_follow_the_target(digit_folder, followed, monkeypatch):
    """The shares are those of the network that has seen balanced batches only, on average over a quarter of the way."""
    found = []

    def note(network, images, recipe):
        found.append(probabilities(network, images, recipe))
        return found[-1]

    probabilities = digit_networks.probabilities_of
    monkeypatch.setattr(digit_networks, "probabilities_of", note)
    train_aligned(digit_folder, FOLLOWING)
    ((batches, shares),) = followed
    assert len(found) == 2
    torch.testing.assert_close(shares, torch.stack([part.mean(0) for part in found]).mean(0))
    assert shares.max() > 0.15
    drawn = torch.bincount(torch.cat([labels for _, labels in batches]), minlength=10) / (80 * len(batches))
    torch.testing.assert_close(drawn, shares, atol=2 / 80, rtol=0)


def test_shares_are_followed_only_where_they_are_far_from_equal(digit_folder, followed):
    recipe = replace(FOLLOWING, batch_size=10, steps=4, epochs=4)
    away = train_aligned(digit_folder, recipe)
    ((_, shares),) = followed
    assert away == pytest.approx(float((shares - 0.1).abs().sum()) / 2, abs=1e-6)
    train_aligned(digit_folder, replace(recipe, follow_beyond=away - 0.001))
    assert len(followed) == 2
    train_aligned(digit_folder, replace(recipe, follow_beyond=away + 0.001))
    assert len(followed) == 2


@pytest.mark.parametrize(
    ("method", "sizes"), [("cnn", [10, 10]), ("adda", [10, 10, 30, 30]), ("cmd", [30, 30]), ("dsn", [30, 30])]
)
def test_a_distance_sees_more_rows_than_count_in_the_loss(digit_folder, monkeypatch, method, sizes):
    made, labelled = [], []

    def note_batches(batches, *images, batch_size, **settings):
        made.append(batch_size)
        make(batches, *images, batch_size=batch_size, **settings)

    def note_loss(outputs, labels):
        labelled.append((len(outputs), len(labels)))
        return loss(outputs, labels)

    make, loss = DeviceBatches.__init__, digit_networks.cross_entropy
    monkeypatch.setattr(DeviceBatches, "__init__", note_batches)
    monkeypatch.setattr(digit_networks, "cross_entropy", note_loss)
    train(digit_folder, method, recipe=replace(SMALL, aligned_times=3))
    assert made == sizes
    assert set(labelled) == ({(10, 10)} if method in ("cmd", "dsn") else set())


@pytest.mark.parametrize(
    ("method", "change", "times"),
    [("cmd", {}, 1), ("cnn", {}, 0), ("adda", {}, 1), ("cmd", {"follow_beyond": 0.9}, 0),
     ("cmd", {"balanced": False}, 0), ("cmd", {"epochs": 1}, 0)],
)  # fmt: skip
def test_what_aligns_balanced_batches_follows_once(digit_folder, followed, method, change, times):
    away = train(digit_folder, method, recipe=replace(SMALL, follow_beyond=0.0), change=change)["shares_away"]
    assert len(followed) == times
    assert (away is not None) == (bool(times) or "follow_beyond" in change)
