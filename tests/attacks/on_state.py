"""Attempts on what goes on later: descriptions of monitors and moments that were changed, and threads and processes."""

from __future__ import annotations

import json
import multiprocessing
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from tests.attacks.on_files import leaves

import momentalign as ma
from momentalign.errors import MomentAlignError
from momentalign.journal import Journal

Attempt = Callable[[Path], Any]
WRONG: tuple[Any, ...] = (
    None, True, -1, 0, 3, 1.5, 1e308, -1e308, 10**400, "", "x", [], [[]], [1.0], [None], {}, {"a": 1}, float("nan"),
    float("inf"), [float("nan")] * 2, ["a", "a"], [[1.0, 2.0]] * 2,
)  # fmt: skip


# Descriptions: every entry of what to_dict gave is replaced or missing. What is taken all the same must go on.


def state_attempts() -> dict[str, Attempt]:
    rows = np.random.default_rng(0).normal(size=(150, 2))
    monitor = ma.DriftMonitor(rows, window=20, order=2, n_resamples=100, random_state=0)
    monitor.update(np.add(rows[:33], [0.0, 3.0]))
    described = {"monitor": monitor.to_dict(), "moments": ma.Moments.of(rows).to_dict()}

    def monitor_goes_on(description: Any) -> None:
        found = ma.DriftMonitor.from_dict(description)
        judgement = found.update(rows[:45])
        assert judgement is None or np.isfinite(judgement.statistic)
        json.dumps(found.to_dict(), allow_nan=False)
        assert len(repr(found)) < 500

    def moments_go_on(description: Any) -> None:
        found = ma.Moments.from_dict(description)
        found.update(rows)
        json.dumps(found.to_dict(), allow_nan=False)

    uses = {"monitor": monitor_goes_on, "moments": moments_go_on}

    def attempt(kind: str, path: tuple[Any, ...], value: Any, folder: Path) -> None:
        changed = json.loads(json.dumps(described[kind]))
        inside = changed
        for key in path[:-1]:
            inside = inside[key]
        if value is _MISSING:
            del inside[path[-1]]
        else:
            inside[path[-1]] = value
        uses[kind](changed)

    found = {
        f"{kind}, {'.'.join(map(str, path))} {'missing' if value is _MISSING else f'is {value!r:.15}'}": partial(
            attempt, kind, path, value
        )
        for kind, description in described.items()
        for path in leaves(description)
        if path
        for value in (*WRONG, _MISSING)
    }
    wholes = (None, 3, "x", [], {}, b"x", monitor, [["version", 1]])
    return found | {
        f"{kind} that is {value!r:.30}": partial(lambda kind, value, folder: uses[kind](value), kind, value)
        for kind in described
        for value in wholes
    }


_MISSING = object()


# Threads and processes that do one thing at the same time, beside a reader.


def concurrency_attempts() -> dict[str, Attempt]:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 3)), np.arange(60) % 2

    def fitted(seed: int = 0) -> Any:
        return ma.MANNClassifier(hidden=(3,), max_epochs=2, random_state=seed, device="cpu").fit(X, y, X)

    models = [fitted(0), fitted(1)]
    stream = rng.normal(size=(200, 3))

    def same(work: Callable[[], Any]) -> Attempt:
        """Eight threads give what one does."""

        def attempt(folder: Path) -> None:
            expected = np.asarray(work())
            with ThreadPoolExecutor(8) as pool:
                for answer in pool.map(lambda _: work(), range(16)):
                    assert np.array_equal(expected, np.asarray(answer), equal_nan=True)

        return attempt

    def watch() -> Any:
        monitor = ma.DriftMonitor(X.repeat(3, axis=0), window=20, n_resamples=100, random_state=0)
        return [
            one.statistic for one in (monitor.update(part) for part in stream.reshape(10, 20, 3)) if one is not None
        ]

    def save_beside_readers(folder: Path, workers: Callable[..., Any]) -> None:
        models[0].save(folder / "model")
        expected = {model.predict_proba(X).tobytes() for model in models}
        writers = [workers(target=_save_often, args=(model, folder / "model")) for model in models]
        for writer in writers:
            writer.start()
        seen = 0
        while any(writer.is_alive() for writer in writers) or not seen:
            assert ma.load(folder / "model").predict_proba(X).tobytes() in expected, "half of one and half of another"
            seen += 1
        for writer in writers:
            writer.join()
            assert getattr(writer, "exitcode", 0) == 0, "a writer failed"
        assert len(list((folder / "model").iterdir())) == 2, "something was left behind"

    def append(folder: Path, workers: Callable[..., Any]) -> None:
        writers = [workers(target=_append_often, args=(folder / "cells.jsonl", number)) for number in range(6)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        assert len(Journal(folder / "cells.jsonl", {"what": "attempt"}).done()) == 6 * 20

    def remove_while_reading(folder: Path) -> None:
        models[0].save(folder / "model")
        weights = next((folder / "model").glob("weights-*"))
        timer = threading.Timer(0.02, weights.unlink)
        timer.start()
        try:
            while True:
                ma.load(folder / "model")
        except MomentAlignError:
            return
        finally:
            timer.join()

    def truncate_while_appending(folder: Path) -> None:
        journal = Journal(folder / "cells.jsonl", {"what": "attempt"})
        for seed in range(20):
            journal.append({"seed": seed}, {"a": 1})
            (folder / "cells.jsonl").open("ab").write(b'{"torn')
        assert len(journal.done()) == 20

    fork, spawned = multiprocessing.get_context("fork").Process, threading.Thread
    return {
        "threads: predict": same(lambda: models[0].predict_proba(X)),
        "threads: fit": same(lambda: fitted().predict_proba(X)),
        "threads: cmd": same(lambda: ma.cmd(X, X + 1.0)),
        "threads: mmd": same(lambda: ma.mmd(X, X + 1.0)),
        "threads: moments": same(lambda: ma.Moments.of(X).mean),
        "threads: diagnose": same(lambda: ma.diagnose(X, X + 1.0, n_permutations=5, random_state=0).p_value),
        "threads: monitors": same(watch),
        "threads: class shares": same(lambda: ma.estimate_class_shares(models[0], X, y, X)),
        "threads: moment map": same(lambda: ma.MomentMap().fit_transform(X, X_target=X + 1.0)),
        "processes: two savers and a reader": partial(save_beside_readers, workers=fork),
        "threads: two savers and a reader": partial(save_beside_readers, workers=spawned),
        "processes: six appenders": partial(append, workers=fork),
        "threads: six appenders": partial(append, workers=spawned),
        "weights removed while they are read": remove_while_reading,
        "a journal torn after every line": truncate_while_appending,
    }


def _save_often(model: Any, path: Path) -> None:
    for _ in range(10):
        model.save(path)


def _append_often(path: Path, number: int) -> None:
    journal = Journal(path, {"what": "attempt"})
    for seed in range(20):
        journal.append({"seed": seed, "writer": number}, {"a": 1})
