"""What the kept trials of the digits recipe say: ``python -m benchmarks.digits_trials``.

Prints, from benchmarks/results, what docs/paper.md quotes: the label-free score of the candidates, its rank correlation
with the accuracy, every trial with both, and what other recipes gave. Nothing is trained.
"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean
from typing import Any

from scipy.stats import spearmanr

RESULTS = Path(__file__).parent / "results"
KEPT = RESULTS / "digits_trials.json"
SAID = ("round", "name", "task", "method", "seed", "ema", "raw")
SCORED = ("svhn->mnist", "mnist->mnist-m")
# Rotation and probability of inverting a colour; all with batches of 256.
CANDIDATES = {"a": (15, 0.5), "d": (10, 0.5), "b": (15, 0.25), "c": (10, 0.25)}


def main() -> None:
    """Print candidates, correlations, trials."""
    every = json.loads(KEPT.read_text())["trials"]
    trials = [trial for trial in every if "ema_s" in trial]  # those whose weights were averaged
    for name, (rotation, inversion) in CANDIDATES.items():
        scores = [_score(trials, rotation, inversion, m, task) for m in ("cmd", "cv") for task in ("svhn", "mnistm")]
        print(f"candidate {name}: rotation {rotation}, inversion {inversion}: {sum(scores):.3f}")
    for task in ("svhn", "mnistm"):
        pairs = [(trial["ema_s"]["bnm"], trial["ema"]) for trial in trials if trial["task"] == task]
        print(f"{task}: rank correlation {spearmanr(*zip(*pairs, strict=True)).statistic:.2f} of {len(pairs)} trials")
    for trial in every:
        print(
            json.dumps({key: trial[key] for key in SAID if key in trial} | {"score": trial.get("ema_s", {}).get("bnm")})
        )
    kept = json.loads((RESULTS / "digits.json").read_text())
    others = kept["other_recipes"]
    for recipe in [kept | {"changed": {}}, *others["whole"]]:
        for method, tasks in recipe["accuracy"].items():
            means = {task: round(100 * fmean(values), 2) for task, values in tasks.items()}
            print(json.dumps({"recipe": recipe["changed"], "method": method, "accuracy": means}))
        scores = recipe["nuclear_norm_of_unlabelled_target"]
        chosen_by = [fmean(scores[method][task]) for method in ("cmd", "cv-cmd") for task in SCORED]
        print(json.dumps({"recipe": recipe["changed"], "score": round(sum(chosen_by), 4)}))
    for network in [*others["one_network_each"], *others["one_network_each_new_stand_in"]]:
        print(json.dumps(network))


def _score(trials: list[dict[str, Any]], rotation: int, inversion: float, method: str, task: str) -> float:
    """The score of the last trial of a candidate."""
    wanted = {"rot": rotation, "cinv": inversion, "method": method, "task": task, "steps": 2500}
    found = [trial for trial in trials if wanted.items() <= trial.items() and not _other(trial)]
    return float(found[-1]["ema_s"]["bnm"])


def _other(trial: dict[str, Any]) -> bool:
    """Whether something else was changed too."""
    changed = {"batch", "act", "std", "grad", "field", "noise", "taug"} & trial.keys()
    return bool(changed) or trial.get("lam", 1.0) != 1.0


if __name__ == "__main__":
    main()
