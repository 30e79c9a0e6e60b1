"""The progress bar: on standard error, with all its figures, wherever it is asked for, and only there."""

import re

import numpy as np
import pytest

import momentalign as ma
from momentalign.progress import epoch_bar, progress_bar

X = np.random.default_rng(0).normal(size=(80, 4))
y = np.arange(80) % 2
SETTINGS = {"hidden": (3,), "max_epochs": 30, "patience": None, "random_state": 0}
FITS = {
    "classifier": lambda verbose: ma.MANNClassifier(**SETTINGS, verbose=verbose).fit(X, y, X + 1.0),
    "regressor": lambda verbose: ma.MANNRegressor(**SETTINGS, verbose=verbose).fit(X, X[:, 0], X + 1.0),
    "chunks": lambda verbose: ma.MANNClassifier(**SETTINGS, verbose=verbose).fit_chunks([(X, y)], [X + 1.0]),
}


@pytest.fixture
def shown(monkeypatch, capsys):
    """What stands on standard error, without colours; standard output stays empty."""
    monkeypatch.setenv("COLUMNS", "200")

    def read():
        out, err = capsys.readouterr()
        assert out == ""
        return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", err)

    return read


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize("name", FITS)
def test_a_training_shows_its_epochs_and_their_figures_only_where_asked(monkeypatch, shown, name, terminal):
    monkeypatch.setenv("TTY_COMPATIBLE", "01"[terminal])
    FITS[name](0)
    assert shown() == ""
    model = FITS[name](1)
    text = shown()
    assert type(model).__name__ in text
    assert "30/30" in text
    history = {key: values[-1] for key, values in model.history_.items()}
    assert f"source loss {history['source_loss']:.4f}, distance {history['distance']:.4f}" in text
    assert re.search(r"\d:\d\d:\d\d", text)  # the time


def test_parts_are_counted(monkeypatch, shown):
    monkeypatch.setenv("TTY_COMPATIBLE", "0")
    with progress_bar("parts", verbose=1) as show:
        show(3, 7)
        show(4, 7, "best score 0.5")
    text = shown()
    assert all(part in text for part in ("parts", "4/7", "best score 0.5"))


@pytest.mark.parametrize("bar", [progress_bar, epoch_bar])
def test_without_verbose_there_is_nothing_to_call(bar):
    with bar("title", verbose=0) as show:
        assert show is None
