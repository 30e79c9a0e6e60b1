"""A virtual environment for each peer under ``.peers``, made once and again when its packages change."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parents[2] / ".peers"
TORCH = ("torch==2.13.0", "numpy==2.4.6", "scipy==1.17.1")

# What pip is called with, call by call. Torch is always named, so that no other package pulls in a newer one.
PACKAGES: dict[str, list[tuple[str, ...]]] = {
    "torch": [TORCH],
    # Not skada[deep]: it adds torchvision, which only the image data sets of skada import.
    "skada": [(*TORCH, "scikit-learn==1.9.1", "skada==0.6.0", "skorch==1.4.0")],
    "adapt": [("adapt==0.4.5", "tensorflow==2.15.1", "numpy==1.26.4", "scipy==1.17.1", "scikit-learn==1.9.1")],
    # Its data sets import torchvision at the top, though nothing that is measured uses it. From 0.17 on torchvision
    # refuses to start beside a torch it was not built for; 0.16.2 starts without its compiled operators.
    "pytorch_adapt": [
        (*TORCH, "scikit-learn==1.9.1", "pillow==13.0.0", "requests==2.34.2", "setuptools==80.10.2", "tqdm==4.70.1"),
        ("packaging==26.3",),
        (
            "--no-deps", "pytorch-adapt==0.0.83", "pytorch-metric-learning==1.6.3", "torchmetrics==0.9.3",
            "torchvision==0.16.2",
        ),
    ],
}  # fmt: skip


def python_of(name: str) -> Path:
    """Return the interpreter a library runs on; ours runs on this one."""
    return FOLDER / name / "bin" / "python" if name in PACKAGES else Path(sys.executable)


def make_ready(name: str) -> None:
    """Make the environment of a peer, unless the one that stands there was made from the same packages."""
    if name not in PACKAGES:
        return
    stamp, wanted = FOLDER / name / ".ready", json.dumps(PACKAGES[name])
    if stamp.is_file() and stamp.read_text() == wanted:
        return
    print(f"installing {name} into {stamp.parent}", file=sys.stderr, flush=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", stamp.parent], check=True)  # noqa: S603
    install = (python_of(name), "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    for packages in PACKAGES[name]:
        subprocess.run([*install, *packages], check=True)  # noqa: S603
    stamp.write_text(wanted)
