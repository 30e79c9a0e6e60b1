"""What each part of the digits recipe brings: ``python -m benchmarks.digits_recipe DATA``, on an accelerator.

One line for every part left out or changed: accuracy of the CMD on the target's test images, which no choice may look
at, and the score that choices go by. docs/paper.md quotes trials of the same kind; fifteen seconds a line on an H200.
"""

import json
import sys

from momentalign.paper.digits import TASKS, compute

CHANGES = {
    "as it is": {},
    "inversion of whole images": {"augmentation": {"channel_inversion": 0.0, "inversion": 0.5}},
    "no inversion": {"augmentation": {"channel_inversion": 0.0}},
    "more rotation, scale and shear": {"augmentation": {"rotation": 15.0, "scale": 0.2, "shear": 0.1}},
    "no rotation, scale and shift": {"augmentation": {"rotation": 0.0, "scale": 0.0, "shift": 0.0}},
    "images not standardised": {"standardized": False},
    "batches of 256": {"batch_size": 256},
    "batches of 1,024": {"batch_size": 1024},
    "the distance sees no more rows than the loss": {"aligned_times": 1},
    "shares of classes always as in the target": {"follow_beyond": 0.0},
    "shares of classes never as in the target": {"follow_beyond": 1.0},
    "classes not balanced": {"balanced": False},
    "weights not averaged": {"decay": 0.0},
    "distance not divided by the root of the width": {"width_root": False},
    "twice the steps": {"steps": 4_000},
}


def main(folder: str, device: str = "cuda") -> None:
    """Print the table, one JSON object a line."""
    for name, change in CHANGES.items():
        for task in TASKS:
            cell = {"task": task, "method": "cmd", "seed": 0, "change": change}
            result = compute(cell, folder=folder, device=device)
            figures = {"accuracy": round(result["accuracy"], 4), "score": round(result["scores"]["nuclear_norm"], 4)}
            print(json.dumps({"change": name, "task": task, **figures}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
