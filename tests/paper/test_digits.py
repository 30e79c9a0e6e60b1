"""Table 5: what a cell trains and returns, that it depends on itself alone, what a run keeps, and the page of it."""

import base64
import html
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import cache, partial

import numpy as np
import pytest
import torch
from PIL import Image

from momentalign.discrepancies.central_moment import cmd_terms
from momentalign.errors import DataNotFoundError
from momentalign.journal import Journal
from momentalign.paper import digit_networks, digits
from momentalign.paper.digit_networks import (
    CONFIG,
    METHODS,
    Augmentation,
    DeviceBatches,
    DigitConfig,
    activations_of,
)
from momentalign.paper.digits import (
    NOTE,
    TASKS,
    compute,
    confusion_panel,
    digit_identity,
    digits_page,
    estimate,
    load_digits,
    run,
    samples,
    sprite,
)
from momentalign.paper.digits_data import load_mnist, load_mnist_m, load_svhn
from momentalign.paper.tables import DIGITS, compare, markdown

SMALL = DigitConfig(batch_size=10, steps=2, epochs=2, synth_size=250)
TASK = "svhn->mnist"


def train(folder, method="cmd", *, seed=0, config=SMALL, **more):
    """Compute a small cell and return what it tells, but for the time it took."""
    cell = {"task": TASK, "method": method, "seed": seed, **more}
    (result,) = compute([cell], config=config, folder=str(folder))
    assert result.pop("seconds") >= 0
    return result


@pytest.fixture
def networks(monkeypatch):
    """The networks of the cells that are computed."""
    made = []

    def keep(*arguments, **settings):
        made.append(train_network(*arguments, **settings))
        return made[-1]

    train_network = digits.train
    monkeypatch.setattr(digits, "train", keep)
    return made


@pytest.fixture(scope="module")
def usual(digit_folder):
    """The cells of the small config by method, each trained once."""
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
    shown = np.array(samples(TASK, config=SMALL, folder=str(digit_folder))["target_labels"])
    assert len(look["predictions"]) == len(look["chances"]) == len(shown) == 24
    assert all(0.1 <= chance <= 1 for chance in look["chances"])
    del result["look"]
    assert result == usual("cmd")


def test_a_network_that_trains_longer_learns_and_is_looked_at_as_it_ended(digit_folder, networks):
    config = replace(SMALL, steps=40, batch_size=30, decay=0.8, augmentation=Augmentation())
    result = train(digit_folder, "cnn", config=config)
    assert result["source_accuracy"] > 0.5
    images, labels = (torch.from_numpy(part) for part in load_mnist("test", digit_folder))
    right = digit_networks.probabilities_of(networks[0].network, images).argmax(1) == labels
    assert result["accuracy"] == pytest.approx(float(right.double().mean()))


def test_a_cell_depends_on_itself_alone_and_moves_no_generator(usual, digit_folder):
    first, before = usual("dann"), torch.get_rng_state()
    assert train(digit_folder, "dann", seed=1) != first
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(3)
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


def test_the_orders_are_those_of_the_cmd_on_the_first_images(digit_folder, networks, monkeypatch):
    monkeypatch.setattr(digit_networks, "WATCHED", 40)
    result = train(digit_folder, config=replace(SMALL, decay=1e-9))  # the average is the last network
    loaded = ((load_svhn, "train"), (load_mnist, "train"))
    images = [torch.from_numpy(load(part, digit_folder).images[:40]) for load, part in loaded]
    embedded = [activations_of(networks[0].network, part) for part in images]
    expected = cmd_terms(*embedded, n_moments=5, interval=(-1.0, 1.0))
    assert result["orders"][-1] == pytest.approx(expected.tolist(), abs=2e-5)


def test_domains_are_read_or_drawn(digit_folder, few_images):
    folder = str(digit_folder)
    for name, load in (("mnist", load_mnist), ("svhn", load_svhn), ("mnist-m", load_mnist_m)):
        for split in ("train", "test"):
            np.testing.assert_array_equal(load_digits(name, split, 250, folder).images, load(split, folder).images)
    train, test = (load_digits("synth", split, 250, None) for split in ("train", "test"))
    assert (len(train.labels), len(test.labels)) == (250, 50)
    assert (train.images[:50] != test.images).any()


def test_samples_are_spread_over_the_test_images(digit_folder):
    shown = samples("mnist->mnist-m", config=SMALL, folder=str(digit_folder))
    source, target = load_mnist("test", digit_folder), load_mnist_m("test", digit_folder)
    assert bytes.fromhex(shown["source_images"][-1]) == source.images[-1].tobytes()
    assert bytes.fromhex(shown["target_images"][0]) == target.images[0].tobytes()
    assert shown["placed_labels"] == [source.labels.tolist(), target.labels.tolist()]
    for rows in (1, 24, 60, 10_000):
        spread = digits._spread(rows, 24)
        assert len(spread) == len(set(spread)) == min(rows, 24)
        assert (spread[0], spread[-1]) == (0, rows - 1)


def test_a_journal_of_another_config_or_version_is_another():
    assert digit_identity(CONFIG) == digit_identity(DigitConfig())
    assert digit_identity(CONFIG) != digit_identity(SMALL)
    assert set(digit_identity(CONFIG)["versions"]) == {"momentalign", "torch"}
    # Journals of earlier versions name changes of images that cannot be made any more.
    assert digit_identity(CONFIG)["recipe"]["augmentation"].items() >= {"noise": 0.0, "rotation": 10.0}.items()


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


FOLLOWING = replace(SMALL, batch_size=40, steps=8, epochs=8, learning_rate=0.02, follow_beyond=0.0)


def train_aligned(folder, config):
    images = [digits.digits_on_device(name, "train", 250, str(folder), "cpu") for name in ("svhn", "mnist")]
    return digit_networks.train(METHODS["cmd"], *images, 0, config=config).shares_away


def test_from_half_of_the_way_on_source_batches_follow_the_target(digit_folder, followed, monkeypatch):
    """The shares are those of the network that has seen balanced batches only, on average over a quarter of the way."""
    found = []

    def note(network, images):
        found.append(probabilities(network, images))
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
    config = replace(FOLLOWING, batch_size=10, steps=4, epochs=4)
    away = train_aligned(digit_folder, config)
    ((_, shares),) = followed
    assert away == pytest.approx(float((shares - 0.1).abs().sum()) / 2, abs=1e-6)
    train_aligned(digit_folder, replace(config, follow_beyond=away - 0.001))
    assert len(followed) == 2
    train_aligned(digit_folder, replace(config, follow_beyond=away + 0.001))
    assert len(followed) == 2


@pytest.mark.parametrize(
    ("method", "change", "sizes", "times"),
    [
        ("cnn", {}, [10, 10], 0), ("adda", {}, [10, 10, 30, 30], 1), ("cmd", {}, [30, 30], 1), ("dsn", {}, [30, 30], 1),
        ("cmd", {"epochs": 1}, [30, 30], 0),
    ],
)  # fmt: skip
def test_a_distance_sees_more_rows_than_count_in_the_loss_and_shares_are_followed_once(
    digit_folder, followed, monkeypatch, method, change, sizes, times
):
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
    config = replace(SMALL, aligned_times=3, **{"follow_beyond": 0.0, **change})
    away = train(digit_folder, method, config=config)["shares_away"]
    assert made == sizes
    assert set(labelled) == ({(10, 10)} if method in ("cmd", "dsn") else set())
    assert len(followed) == times
    assert (away is not None) == bool(times)


@pytest.fixture
def journal(tmp_path):
    return Journal(tmp_path / "cells.jsonl", digit_identity(SMALL))


def test_a_run_is_kept_reported_and_shown_and_the_second_trains_nothing(digit_folder, few_images, journal, monkeypatch):
    calls, told = [], []
    ask = {"seeds": range(2), "tasks": TASKS[2:], "config": SMALL, "folder": digit_folder}
    result = run(["cnn", "cmd"], journal, progress=lambda *call: calls.append(call), say=told.append, **ask)
    assert told == ["4 of 4 trainings are to be done: less than a minute"]
    assert calls == [(done, 4) for done in range(5)]
    assert result == json.loads(json.dumps(result))
    assert {json.loads(key)["seed"] for key, kept in journal.done().items() if "look" in kept} == {0}
    assert (result["kind"], result["tasks"], result["seeds"]) == ("digits", ["synth->svhn"], [0, 1])
    assert result["note"] == NOTE
    assert result["recipe"]["steps"] == 2
    for method, column in result["methods"].items():
        assert column["title"] == METHODS[method].title
        assert len(column["accuracy"]["synth->svhn"]) == len(column["seconds"]["synth->svhn"]) == 2
        closely, shown = column["closely"]["synth->svhn"], result["samples"]["synth->svhn"]
        assert len(closely["orders"]) == 1 + SMALL.epochs
        assert len(closely["predictions"]) == len(shown["target_images"]) == 24
        assert len(closely["places"]) == sum(map(len, shown["placed_labels"]))
    assert result["methods"]["cnn"]["settings"] == {}
    assert result["methods"]["cmd"]["settings"] == {"discrepancy": "cmd", "weight": 1.0, "schedule": "constant"}

    page = digits_page(result)
    assert NOTE in page
    assert "SynthDigits→SVHN" in markdown(compare(result, DIGITS))
    assert "note" not in run([], journal, **{**ask, "tasks": TASKS[1:2]})

    lines = journal.path.read_bytes()
    monkeypatch.setattr(digits, "compute", lambda *_, **__: pytest.fail("a finished cell was trained again"))
    assert run(["cnn", "cmd"], journal, say=lambda words: pytest.fail(words), **ask) == result
    assert journal.path.read_bytes() == lines


def test_what_is_missing_is_missed_before_anything_is_measured(journal, tmp_path):
    with pytest.raises(DataNotFoundError, match="SVHN"):
        run(["cnn"], journal, config=SMALL, folder=tmp_path, say=lambda words: pytest.fail(words))


def test_the_estimate_counts_networks_methods_and_workers(monkeypatch):
    monkeypatch.setattr(digits, "seconds_per_update", lambda method, **_: 0.5 if method.discrepancy else 0.1)
    cells = [{"method": name, "task": "svhn->mnist", "seed": seed} for name in ("cnn", "cmd") for seed in range(2)]
    config = DigitConfig(steps=100)
    assert estimate(cells, config=config) == pytest.approx(120.0)
    assert estimate(cells, config=config, n_jobs=3) == pytest.approx(40.0)
    assert estimate(cells[:1], config=config, n_jobs=3) == pytest.approx(10.0)


@pytest.mark.data
@pytest.mark.skipif(os.name != "posix", reason="signals are of POSIX")
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.long)]
)
def test_an_interrupted_command_says_so(tmp_path, number, code):
    """Lightning alone would end with code 1 and no message."""
    command = f"{sys.executable} -m momentalign reproduce digits --methods cnn --tasks mnist:mnist-m --no-open --out p"
    with subprocess.Popen(command.split(), cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr.readline().startswith("5 of 5 trainings are to be done: about ")
        time.sleep(2)
        process.send_signal(number)
        _, told = process.communicate(timeout=60)
    assert process.returncode == code
    assert told == "momentalign: interrupted\n"


# The page.
TITLES = {"cnn": "CNN", "coral": "CORAL", "cmd": "CMD", "cv-cmd": "CV-CMD"}


@pytest.fixture
def result(digits_result):
    return digits_result("cnn", "coral", "cmd", "cv-cmd")


def words_of(page):
    """What a reader sees, in one line."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", page)).replace("\xa0", " ").split())


def test_every_image_has_its_label_and_what_both_networks_say(result):
    page = digits_page(result)
    first = result["samples"]["svhn->mnist"]
    lists = re.findall(r'<ol class="tiles".*?</ol>', page, re.S)
    assert len(lists) == 3 * (1 + 3)
    labelled, read = lists[:2]
    assert re.findall(r"</span><span>(\d)</span>", labelled) == [str(label) for label in first["source_labels"]]
    assert re.findall(r"<b>(\d)</b>", read) == [str(label) for label in first["target_labels"]]
    answers = re.findall(r'<span( class="wrong")? title="[^"]*">(C\w+) (\d) (.)</span>', read)
    assert len(answers) == 48
    for (wrong, title, said, sign), place in zip(answers, np.repeat(range(24), 2), strict=True):
        right = int(said) == first["target_labels"][place]
        assert (sign == "✓", wrong == "") == (right, right)
        assert title in ("CNN", "CMD")
    assert "Of these 24 images CNN reads 12 and CMD reads 17 right" in page
    assert all(f'style="--tile: {place}"' in read for place in range(24))
    assert page.count("data:image/png;base64,") == 6


@pytest.mark.parametrize("methods", [("cnn",), ("cmd",), ("cnn", "cmd"), ("coral", "cmd")])
def test_any_methods_can_be_shown(digits_result, methods):
    page = digits_page(digits_result(*methods, tasks=DIGITS.tasks[:1], shown=3, placed=5))
    assert ('class="picker"' in page) == (methods == ("coral", "cmd"))
    shown = set(re.findall(r"Confusion of digits, ([\w-]+), with", page))
    assert shown == {TITLES[method] for method in methods}
    assert not re.search(r"\b(?:nan|None|inf)\b", words_of(page))


def test_images_stand_in_a_row_of_one_picture():
    images = np.random.default_rng(1).integers(0, 256, (3, 3, 32, 32), np.uint8)
    head, content = sprite([image.tobytes().hex() for image in images]).split(",")
    assert head == "data:image/png;base64"
    pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(content, validate=True))))
    assert pixels.shape == (32, 96, 3)
    for index, image in enumerate(images):
        np.testing.assert_array_equal(pixels[:, 32 * index : 32 * (index + 1)], image.transpose(1, 2, 0))


def test_a_confusion_is_in_percent_of_its_row_and_a_mistake_has_another_colour():
    picture = confusion_panel([[6, 2, 0], [0, 5, 0], [0, 0, 0]], name="CMD")
    assert re.findall(r'class="ma-count"[^>]*>(\d+)<', picture.content) == ["75", "25", "100"]
    boxes = re.findall(r'class="ma-bar (ma-\w+)"', picture.content)
    assert [css == "ma-mann" for css in boxes] == np.eye(3, dtype=bool).ravel().tolist()
    assert picture.title.endswith("percent right: 0: 75, 1: 100, 2: 0; most frequent mistake: 0 taken for 1, 25 %")
    assert confusion_panel(np.eye(3, dtype=int).tolist(), name="x").title.endswith("mistake: none")
