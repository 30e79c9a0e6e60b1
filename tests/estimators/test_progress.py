import re

import pytest

from momentalign.progress import EpochReport, counting_progress, describe, training_progress


@pytest.mark.parametrize("terminal", [False, True])
def test_the_bar_goes_to_standard_error_with_all_its_figures(quick, problem, monkeypatch, capsys, terminal):
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TTY_COMPATIBLE", "01"[terminal])
    model = quick(max_epochs=30, patience=None, verbose=1).fit(*problem[:3])
    out, err = capsys.readouterr()
    assert out == ""
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", err)
    assert "MANNClassifier" in shown
    assert "30/30" in shown
    history = {name: values[-1] for name, values in model.history_.items()}
    assert f"source loss {history['source_loss']:.4f}, distance {history['distance']:.4f}" in shown
    assert f"validation accuracy {history['validation_accuracy']:.3f}" in shown
    assert re.search(r"\d:\d\d:\d\d", shown)  # time left


def test_without_verbose_nothing_is_shown(quick, problem, capsys):
    quick(verbose=0).fit(*problem[:3])
    assert capsys.readouterr() == ("", "")


def test_figures_of_an_epoch():
    report = EpochReport(3, 10, 1, 0.51234, 0.01234, 0.875)
    assert describe(report) == "source loss 0.5123, distance 0.0123, validation accuracy 0.875"
    assert describe(report._replace(validation_accuracy=float("nan"))) == "source loss 0.5123, distance 0.0123"


def test_without_verbose_there_is_no_function_to_call():
    with training_progress("title", verbose=0) as progress:
        assert progress is None


def test_parts_are_counted(monkeypatch, capsys):
    monkeypatch.setenv("TTY_COMPATIBLE", "0")
    with counting_progress("parts", verbose=1) as progress:
        progress(3, 7)
    out, err = capsys.readouterr()
    assert out == ""
    assert "parts" in err
    assert "3/7" in err
    with counting_progress("parts", verbose=0) as progress:
        assert progress is None
