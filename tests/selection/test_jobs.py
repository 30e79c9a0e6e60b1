"""Jobs are threads of this process, as many as were asked for; networks train on the device of their model."""

import joblib
import numpy as np
import pytest
from joblib.parallel import LokyBackend, ThreadingBackend

from momentalign.selection import reverse
from momentalign.selection import search as label_free
from momentalign.selection.search import LabelFreeSearch, ReverseValidationSearch
from momentalign.training.config import NetworkSpec, TrainingConfig

KINDS = [ReverseValidationSearch, LabelFreeSearch]


@pytest.fixture
def asked():
    """How many jobs each parallel step asked for."""
    counts = []

    class Counting(ThreadingBackend):
        def configure(self, n_jobs=1, **options):
            counts.append(n_jobs)
            return super().configure(n_jobs=n_jobs, **options)

    joblib.register_parallel_backend("counting", Counting)
    with joblib.parallel_config(backend="counting"):
        yield counts
    del joblib.parallel.BACKENDS["counting"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_step_takes_as_many_as_were_asked_for(quick, problem, asked, monkeypatch, kind):
    monkeypatch.setattr("momentalign.training.compiled_engine.WORTH_COMPILING", 0.0)
    kind(quick(max_epochs=2), {"weight": [0.5, 1.0]}, random_state=0, refit=False, n_jobs=2).fit(*problem[:3])
    # Networks are trained, then judged; the networks on their way back train one by one within their jobs.
    assert [count for count in asked if count != 1] == [2, 2]


def test_one_is_taken_where_none_was_asked_for(problem, asked):
    rows = (problem.X.astype(np.float32), problem.y, problem.X_target.astype(np.float32))
    reverse.reverse_scores(
        *rows, 2, TrainingConfig(hidden=(3,), max_epochs=1), [NetworkSpec(0), NetworkSpec(1)], seed=0
    )
    assert set(asked) == {1}


@pytest.mark.parametrize(("kind", "module", "count"), [(KINDS[0], reverse, 3), (KINDS[1], label_free, 1)])
def test_networks_train_on_the_device_of_their_model(quick, problem, monkeypatch, kind, module, count):
    train, seen = module.train_stack, []

    def watched(task, *arguments, device, **options):
        seen.append((task.n_classes, device))
        return train(task, *arguments, device=device, **options)

    monkeypatch.setattr(module, "train_stack", watched)
    model = quick(max_epochs=2, device="cpu:0")
    kind(model, {"weight": [0.5, 1.0]}, random_state=0, refit=False).fit(*problem[:3])
    assert seen == [(2, "cpu:0")] * count


class NoProcesses(LokyBackend):
    """In the place of the processes that joblib starts where nothing is said of threads."""

    def configure(self, n_jobs=1, **options):
        assert n_jobs == 1, "processes were asked for"
        return super().configure(n_jobs=n_jobs, **options)


@pytest.mark.parametrize("kind", KINDS)
def test_no_process_is_started(quick, problem, monkeypatch, kind):
    monkeypatch.setitem(joblib.parallel.BACKENDS, "loky", NoProcesses)
    with pytest.raises(AssertionError, match="processes were asked for"):
        joblib.Parallel(n_jobs=2)(joblib.delayed(abs)(number) for number in range(2))
    kind(quick(max_epochs=2), {"weight": [0.5, 1.0]}, random_state=0, refit=False, n_jobs=2).fit(*problem[:3])
