"""A saved model to be damaged, and a forger who can seal a manifest as we do."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

from momentalign import MANNClassifier


@pytest.fixture(scope="session")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    X = np.random.default_rng(0).normal(size=(20, 2))
    path = tmp_path_factory.mktemp("saved") / "model"
    MANNClassifier(hidden=(3,), max_epochs=2, random_state=0).fit(X, np.arange(20) % 2).save(path)
    return path


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / "model"))


@pytest.fixture
def weights(folder: Path) -> Path:
    (path,) = folder.glob("*.safetensors")
    return path


def _text(body: dict[str, Any]) -> str:
    return json.dumps(body, sort_keys=True, indent=1, ensure_ascii=False)


@pytest.fixture
def forge(folder: Path) -> Callable[..., None]:
    """Change the manifest and give it the digest it should have: what an attacker can do, and bit rot cannot.

    ``forge(lambda body: ...)`` changes the manifest in place; `arrays` replaces the weights, digests included.
    """

    def write(
        change: Callable[[dict[str, Any]], Any] = lambda body: None, arrays: dict[str, Any] | None = None
    ) -> None:
        body = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        del body["digest"]
        if arrays is not None:
            (name,) = body["files"]
            packed = save(arrays)
            (folder / name).write_bytes(packed)
            body["files"][name], body["bytes"] = hashlib.sha256(packed).hexdigest(), len(packed)
        change(body)
        body["digest"] = hashlib.sha256(_text(body).encode()).hexdigest()
        (folder / "manifest.json").write_text(_text(body), encoding="utf-8")

    return write
