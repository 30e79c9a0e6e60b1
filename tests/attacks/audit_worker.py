"""Loads every hostile file of a folder and prints what happened: ``python audit_worker.py FOLDER``, one JSON object.

``FOLDER/sound/KIND`` is loaded first, so that all is imported; then nothing may be run, imported, written or sent, and
of files nothing may be opened outside of the folder.
"""

import json
import os
import pickle
import sys
import tracemalloc
from pathlib import Path

import torch
from torch import nn

import momentalign as ma
from momentalign.errors import MomentAlignError
from momentalign.training.deep.checkpoint import SafetensorsIO
from momentalign.workflow.model import load_model

FAMILIES = {
    "compile", "ctypes", "exec", "http", "import", "marshal", "pickle", "shutil", "socket", "subprocess", "tempfile",
    "urllib",
}  # fmt: skip
CALLS = {
    "os.chmod", "os.chown", "os.exec", "os.fork", "os.link", "os.mkdir", "os.posix_spawn", "os.remove", "os.rename",
    "os.rmdir", "os.symlink", "os.system", "os.truncate", "os.utime",
}  # fmt: skip


def read_into_a_network(path: Path) -> None:
    network = nn.Sequential(nn.Linear(3, 4), nn.Sigmoid(), nn.Dropout(0.25), nn.Linear(4, 2))
    before = [parameter.clone() for parameter in network.parameters()]
    try:
        ma.load_weights(network, path)
    except BaseException:
        assert all(map(torch.equal, before, network.parameters())), "a refused file changed the network"
        raise


LOADERS = {
    "estimator": ma.load,
    "table": load_model,
    "deep": lambda path: SafetensorsIO().load_checkpoint(path),
    "network": read_into_a_network,
}
seen: list[tuple[str, str]] = []


def watch(event: str, arguments: tuple[object, ...]) -> None:
    written = event == "open" and (
        set(str(arguments[1] or "r")) & set("wax+") or int(arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    )
    elsewhere = event == "open" and isinstance(arguments[0], str) and not arguments[0].startswith(sys.argv[1])
    if written or elsewhere or event.partition(".")[0] in FAMILIES or event in CALLS:
        seen.append((event, repr(arguments)[:200]))


def attempt(kind: str, path: Path) -> dict[str, object]:
    seen.clear()
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    try:
        LOADERS[kind](path)
        outcome = "loaded"
    except MomentAlignError as error:
        outcome = f"{type(error).__name__}: {error}"
    except Exception as error:
        outcome = f"escaped: {error!r}"
    taken = tracemalloc.get_traced_memory()[1] - before
    return {"outcome": outcome, "events": list(seen), "memory": taken}


def main(folder: Path) -> None:
    for kind, load in LOADERS.items():
        load(folder / "sound" / kind)
    cases = [(kind, path) for kind in LOADERS for path in sorted((folder / kind).iterdir())]
    sys.addaudithook(watch)
    tracemalloc.start()
    found = {f"{kind}: {path.name}": attempt(kind, path) for kind, path in cases}
    sound = [attempt(kind, folder / "sound" / kind) for kind in list(LOADERS)]
    # A loader that unpickles, to see that it would be seen.
    LOADERS["careless"] = lambda path: pickle.loads(path.read_bytes())  # noqa: S301
    sys.stdout.write(json.dumps([found, sound, attempt("careless", folder / "network" / "pickle")]))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
