"""How the accuracy on the reviews changes with parameters: Section 6.6, Figure 5, of Zellinger et al. (2019).

The number of moments of the CMD, the width parameter of the MMD, and the number of hidden nodes with both, on the
twelve tasks of the sentiment experiment and with its protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from momentalign.errors import InvalidInputError
from momentalign.experiments.review_cells import TASKS, compute_all, identity, task_name
from momentalign.experiments.runner import Cell
from momentalign.journal import Journal, cell_key

__all__ = ["PANELS", "refuse_unknown", "run"]

SEED = 0
CMD_WEIGHTS = tuple(np.round(np.linspace(0.3, 3.0, 10), 6).tolist())
ORDERS = tuple(range(1, 8))
MMD_WEIGHTS = tuple(float(weight) for weight in range(5, 50, 5))
BETAS = (0.3, 0.5, 0.8, 1.0, 1.2, 1.5, 1.7)
SIZES = tuple(range(128, 1665, 128))
HIDDEN = {"nn": {}, "cmd": {"weight": 1.0}, "mmd": {"weight": 9.0, "beta": 1.2}}
PANELS = ("cmd_orders", "mmd_betas", "hidden")


def run(
    panels: Sequence[str],
    journal: Journal,
    *,
    tasks: Sequence[tuple[str, str]] = TASKS,
    n_jobs: int = 1,
    device: str = "cpu",
    folder: str | Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Return the accuracies behind Figure 5, ready for JSON; what the journal holds is not computed again."""
    refuse_unknown(panels)
    wanted = {panel: [_cells(panel, *task) for task in tasks] for panel in panels}
    cells = [cell for rows in wanted.values() for row in rows for cell in row]
    done = compute_all(cells, journal, folder=folder, device=device, n_jobs=n_jobs, progress=progress)
    found = {
        panel: [[done[cell_key(cell)]["accuracy"] for cell in row] for row in rows] for panel, rows in wanted.items()
    }
    return {
        "kind": "sensitivity",
        **{name: value for name, value in identity("sensitivity").items() if name != "what"},
        "seeds": [SEED],
        "tasks": [task_name(*task) for task in tasks],
        "panels": {panel: _panel(panel, accuracy) for panel, accuracy in found.items()},
    }


def refuse_unknown(panels: Sequence[str]) -> None:
    """Name the first panel there is not."""
    for panel in panels:
        if panel not in PANELS:
            raise InvalidInputError(f"panel {panel!r} is not known; choose among {', '.join(PANELS)}.")


def _cells(panel: str, source: str, target: str) -> list[Cell]:
    """The cells of one panel and task: one per number of moments, beta, or method and size."""
    task = {"source": source, "target": target, "seeds": [SEED]}
    if panel == "cmd_orders":
        return [{**task, "method": "cmd", "n_moments": order, "grid": list(CMD_WEIGHTS)} for order in ORDERS]
    if panel == "mmd_betas":
        return [{**task, "method": "mmd", "beta": beta, "grid": list(MMD_WEIGHTS)} for beta in BETAS]
    return [
        {**task, "method": method, "hidden": size, "grid": [settings.get("weight", 0.0)]}
        | ({"beta": settings["beta"]} if "beta" in settings else {})
        for method, settings in HIDDEN.items()
        for size in SIZES
    ]


def _panel(panel: str, accuracy: list[list[list[float]]]) -> dict[str, Any]:
    """Arrange accuracies [task][cell][weight] as the figure wants them."""
    if panel == "hidden":
        parts = {
            method: [[values[0] for values in row[start : start + len(SIZES)]] for row in accuracy]
            for method, start in zip(HIDDEN, range(0, len(HIDDEN) * len(SIZES), len(SIZES)), strict=True)
        }
        return {"sizes": list(SIZES), **parts}
    by_weight = np.swapaxes(np.array(accuracy), 1, 2).tolist()
    if panel == "cmd_orders":
        return {"weights": list(CMD_WEIGHTS), "orders": list(ORDERS), "accuracy": by_weight}
    return {"weights": list(MMD_WEIGHTS), "betas": list(BETAS), "accuracy": by_weight}
