"""Robust by default? Every method with its defaults on 47 real classification shifts and 23 of regression.

    python -m benchmarks.shifts --data DIR [--families gas,heart] [--kind regression] [--seeds 3] [--jobs 2]
        [--journal FILE.jsonl] [--out FILE.json]

Prints one row a task and one column a method (accuracy in percent, or R2), then gains over two plain networks, wins
and losses over one point, the worst task and mean ranks; it fails where the portfolio misses its bars. The plain
network is frozen here, so that it means the same in every version: 64 sigmoid units, Adam 0.003, batches of 300, 800
updates. Boosting has 20 rounds and looks at a tenth of the features in a split where features times classes exceed
5,000. Target labels measure; no method sees them. What stands in the journal is not run again.

The rules of ``momentalign.estimators.evidence`` were chosen on these tasks with their accuracies in view, so the
figures of the portfolio are those of the development tasks.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from scipy import sparse
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.metrics import r2_score

import momentalign as ma
from benchmarks.shift_tasks import FAMILIES, ShiftTask, data_folder, tasks
from momentalign.discrepancies.central_moment import CMDLoss
from momentalign.networks.shallow import outputs, probabilities
from momentalign.training.config import NetworkSpec, Optimizer, Task, TrainingConfig
from momentalign.training.stack import train_stack

SMALL = 1.0 / 8.0
WIDE = 5_000  # Features times classes from which on boosting is kept small.
LEARNERS = {
    "classification": {
        "logistic": lambda seed: LogisticRegression(max_iter=300),  # noqa: ARG005
        "forest": lambda seed: RandomForestClassifier(random_state=seed),
        "boosting": lambda seed: HistGradientBoostingClassifier(random_state=seed),
    },
    "regression": {
        "ridge": lambda seed: RidgeCV(np.logspace(-2, 4, 13)),  # noqa: ARG005
        "forest": lambda seed: RandomForestRegressor(random_state=seed),
        "boosting": lambda seed: HistGradientBoostingRegressor(random_state=seed),
    },
}


def scaled(task: ShiftTask, *, own: bool) -> tuple[Any, Any, Any]:
    """Source, unlabelled target and measured target, standardised by the source, or each domain by itself."""

    def moments(rows: Any) -> tuple[Any, Any]:
        rows = rows.toarray() if sparse.issparse(rows) else rows
        std = rows.std(axis=0)
        return rows.mean(axis=0), np.where(std > 1e-8, std, 1.0)

    source, target = moments(task.source), moments(task.unlabelled)
    of_target = target if own else source
    if sparse.issparse(task.source):
        parts = [
            task.source.multiply(1 / source[1]),
            *(rows.multiply(1 / of_target[1]) for rows in (task.unlabelled, task.target[task.evaluation])),
        ]
        return tuple(sparse.csr_matrix(part, dtype=np.float32) for part in parts)  # type: ignore[return-value]
    parts = [(task.source - source[0]) / source[1]]
    parts += [(rows - of_target[0]) / of_target[1] for rows in (task.unlabelled, task.target[task.evaluation])]
    return tuple(part.astype(np.float32) for part in parts)  # type: ignore[return-value]


def network(
    task: ShiftTask, rows: tuple[Any, Any, Any], seed: int, *, weight: float = 0.0, sharpen: float = 0.0
) -> Any:
    """The frozen network: predictions for the rows that measure."""
    source, target, measured = rows
    order = np.random.default_rng(seed).permutation(source.shape[0])
    config = TrainingConfig(hidden=(64,), optimizer=Optimizer("adam", 3e-3), patience=None, keep="last", compiled=True)
    spec = NetworkSpec(seed, weight, CMDLoss(5) if weight else None, sharpen=sharpen)
    sees_target = bool(weight or sharpen)
    if task.kind == "classification":
        classes, codes = np.unique(task.y, return_inverse=True)
        data = Task(source[order], codes[order], target if sees_target else None, len(classes))
    else:
        mean, std = task.y.mean(), task.y.std()
        data = Task(source[order], ((task.y - mean) / std).astype(np.float32)[order, None], None, 1)
        config = TrainingConfig(**{**vars(config), "loss": "squared"})
    config = TrainingConfig(**{**vars(config), "max_epochs": max(1, round(800 / len(config.epoch(data))))})
    (trained,) = train_stack(data, config, [spec])
    if task.kind == "classification":
        return probabilities(trained.layers, measured)
    return outputs(trained.layers, measured)[:, 0] * std + mean


def predictions(task: ShiftTask, seed: int) -> tuple[dict[str, Any], Any]:
    """Probabilities or values of every method for the rows that measure, and the fitted robust default."""
    of_source, of_both = scaled(task, own=False), scaled(task, own=True)
    found: dict[str, Any] = {"plain": network(task, of_source, seed), "plain, own scales": network(task, of_both, seed)}
    for name, make in LEARNERS[task.kind].items():
        model, parts = make(seed), (of_source[0], of_source[2], of_both[2])
        if name == "boosting":
            parts = tuple(rows.toarray() if sparse.issparse(rows) else rows for rows in parts)
            if task.kind == "classification" and task.source.shape[1] * len(np.unique(task.y)) > WIDE:
                model.set_params(max_iter=20, max_features=0.1)
        model.fit(parts[0], task.y)
        for suffix, rows in zip(("", ", own scales"), parts[1:], strict=True):
            found[name + suffix] = model.predict_proba(rows) if hasattr(model, "predict_proba") else model.predict(rows)
    measured = task.target[task.evaluation]
    if task.kind == "regression":
        auto = ma.AutoRegressor(random_state=seed).fit(task.source, task.y, task.unlabelled)
        return found | {"auto": auto.predict(measured)}, auto
    seven = [
        found["plain"],
        network(task, of_source, seed, sharpen=0.3),
        network(task, of_source, seed, weight=SMALL, sharpen=0.3),
        found["plain, own scales"],
        network(task, of_both, seed, sharpen=0.3),
        network(task, of_both, seed, weight=SMALL, sharpen=0.3),
        network(task, of_source, seed, weight=SMALL, sharpen=1.0),
    ]
    six = [values for name, values in found.items() if not name.startswith("plain")]
    auto = ma.AutoClassifier(random_state=seed).fit(task.source, task.y, task.unlabelled)
    return found | {"thirteen": np.mean([*seven, *six], axis=0), "auto": auto.predict_proba(measured)}, auto


def run(task: ShiftTask, seed: int) -> dict[str, Any]:
    """One line of the journal: the scores of every method, and what the robust default said."""
    warnings.simplefilter("ignore")
    started = time.perf_counter()
    found, auto = predictions(task, seed)
    line = {
        "task": task.name,
        "family": task.family,
        "seed": seed,
        "scores": {name: score(task, predicted) for name, predicted in found.items()},
        "estimate": _interval(auto.estimate_),
        "decision": auto.decision_,
        "seconds": round(time.perf_counter() - started, 1),
    }
    if task.kind == "classification":
        line |= {"expected_gain": _interval(auto.gain_), "gain": _gain(task, auto)}
    return line


def _interval(estimate: Any) -> list[float] | None:
    return None if estimate is None else [100 * estimate.value, 100 * estimate.low, 100 * estimate.high]


def _gain(task: ShiftTask, auto: ma.AutoClassifier) -> float:
    """Points of accuracy on the rows given without labels that the answer is above the portfolio's plain models."""
    plain = auto.held_out_.plain_target.argmax(axis=1)
    truth = task.y_target[: task.m]
    if len(plain) < len(truth):
        return float("nan")  # The evidence was taken from some of the rows.
    right = [(predicted == truth).mean() for predicted in (auto.predict(task.unlabelled), auto.classes_[plain])]
    return float(100.0 * (right[0] - right[1]))


def score(task: ShiftTask, predicted: Any) -> float:
    """Accuracy in percent, or R2."""
    truth = task.y_target[task.evaluation]
    if task.kind == "regression":
        return float(r2_score(truth, predicted))
    classes = np.unique(task.y)
    return float(100.0 * (classes[np.asarray(predicted).argmax(axis=1)] == truth).mean())


def summary(table: dict[str, dict[str, float]], kind: str) -> dict[str, dict[str, float]]:
    """Gains of every method over both plain networks."""
    loss = 1.0 if kind == "classification" else 0.05
    names = list(next(iter(table.values())))
    rows = {}
    ranks = np.mean([[1 + sum(task[o] > task[n] for o in names) for n in names] for task in table.values()], axis=0)
    for name, rank in zip(names, ranks, strict=True):
        row = {"mean": float(np.mean([task[name] for task in table.values()])), "rank": float(rank)}
        for plain in ("plain", "plain, own scales"):
            gains = np.array([task[name] - task[plain] for task in table.values()])
            row |= {
                f"gain over {plain}": float(gains.mean()),
                f"wins over {plain}": int((gains > loss).sum()),
                f"losses to {plain}": int((gains < -loss).sum()),
                f"worst to {plain}": float(gains.min()),
            }
        rows[name] = row
    return rows


def honesty(lines: list[dict[str, Any]]) -> dict[str, float]:
    """How good the expected accuracies are, and whether a gain is promised where there is one."""
    estimates = np.array([line["estimate"] for line in lines])
    truth = np.array([line["scores"]["auto"] for line in lines])
    # Not adapted is promised to be no worse, and is the plain answer itself.
    promised = np.array([line["expected_gain"][0] if line["expected_gain"] else 0.0 for line in lines]) >= 2.0
    gains = np.array([line["gain"] for line in lines])
    return {
        "mean absolute error": float(abs(estimates[:, 0] - truth).mean()),
        "bias": float((estimates[:, 0] - truth).mean()),
        "right intervals": float(100 * ((estimates[:, 1] <= truth) & (truth <= estimates[:, 2])).mean()),
        "width": float((estimates[:, 2] - estimates[:, 1]).mean()),
        "right claims": float(100 * np.where(promised, gains > 1.0, gains <= 3.0).mean()),
        "claimed of gains above 3": float(100 * promised[gains > 3.0].mean()),
        "losses above 3 that are promised gains": int((promised & (gains < -3.0)).sum()),
    }


def missed(found: dict[str, dict[str, float]], table: dict[str, dict[str, float]]) -> list[str]:
    """The bars the portfolio misses on the whole set of classification tasks."""
    auto, count = found["auto"], len(table)

    def mean_of(family: str) -> float:
        return float(np.mean([row["auto"] for name, row in table.items() if name.startswith(family)]))

    bars = {
        "5 points above plain": auto["gain over plain"] >= 5.0,
        "3 points above plain with own scales": auto["gain over plain, own scales"] >= 3.0,
        "0.5 above the plain average of thirteen": auto["mean"] >= found["thirteen"]["mean"] + 0.5,
        "above every method": all(auto["mean"] >= row["mean"] for row in found.values()),
        "losses to own scales on at most 5 %": auto["losses to plain, own scales"] <= 0.05 * count,
        "worst to own scales -3": auto["worst to plain, own scales"] >= -3.0,
        "losses to plain on at most 12 %": auto["losses to plain"] <= 0.12 * count,
        "worst to plain -8": auto["worst to plain"] >= -8.0,
        "reviews 82.0": mean_of("reviews") >= 82.0,
        "objects 87.0": mean_of("objects") >= 87.0,
    }
    return [name for name, met in bars.items() if not met]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data")
    parser.add_argument("--families", default=",".join(FAMILIES))
    parser.add_argument("--kind", default="classification")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1, help="tasks at once")
    parser.add_argument("--journal", type=Path, help="a line for each task and seed")
    parser.add_argument("--out")
    options = parser.parse_args(arguments)
    families = tuple(options.families.split(","))
    if options.kind == "regression" and families == FAMILIES:
        families = ("gas", "heart", "census", "diabetes")
    lines = (
        [json.loads(line) for line in options.journal.open()] if options.journal and options.journal.exists() else []
    )
    done = {(line["task"], line["seed"]) for line in lines}
    order: list[str] = []

    def waiting() -> Iterator[Any]:
        for task in tasks(data_folder(options.data), families=families, kind=options.kind):
            order.append(task.name)
            yield from (delayed(run)(task, seed) for seed in range(options.seeds) if (task.name, seed) not in done)

    for line in Parallel(n_jobs=options.jobs, return_as="generator_unordered", pre_dispatch=2 * options.jobs)(
        waiting()
    ):
        print(f"{line['task']:18s} seed {line['seed']} {line['seconds']:5.1f} s  {line['decision']}", file=sys.stderr)
        lines.append(line)
        if options.journal:
            with options.journal.open("a") as journal:
                journal.write(json.dumps(line) + "\n")
    table: dict[str, dict[str, float]] = {}
    for name in order:
        runs = [line["scores"] for line in lines if line["task"] == name and line["seed"] < options.seeds]
        table[name] = {method: float(np.mean([one[method] for one in runs])) for method in runs[0]}
    names = list(next(iter(table.values())))
    digits = 1 if options.kind == "classification" else 2
    print("task".ljust(18), *(name[:18].rjust(18) for name in names))
    for task_name, row in table.items():
        print(task_name.ljust(18), *(f"{max(row[name], -9.99):18.{digits}f}" for name in names))
    found = summary(table, options.kind)
    for name, row in found.items():
        print(name.ljust(24), ", ".join(f"{key} {value:.2f}" for key, value in row.items()))
    honest = honesty(lines) if options.kind == "classification" else {}
    print("expected accuracy:", ", ".join(f"{key} {value:.1f}" for key, value in honest.items()))
    if options.out:
        command = ["git", "rev-parse", "--short", "HEAD"]
        commit = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        result = {
            "command": "python -m benchmarks.shifts " + " ".join(arguments or sys.argv[1:]),
            "commit": commit.stdout.strip(),
            "machine": f"{platform.machine()}, {platform.python_version()}",
            "tasks": table,
            "summary": found,
            "expected accuracy": honest,
        }
        Path(options.out).write_text(json.dumps(result, indent=1))
    if options.kind == "classification" and families == FAMILIES:
        bars = missed(found, table)
        print("missed:", ", ".join(bars) or "none")
        return int(bool(bars))
    losses = found["auto"]["losses to plain"]
    return int(options.kind == "regression" and losses > 0)


if __name__ == "__main__":
    sys.exit(main())
