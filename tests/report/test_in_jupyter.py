"""A real notebook, run in a kernel: cards where objects are shown, one line of text for a progress bar, no widgets."""

import json
import os
import sys

import pytest

pytest.importorskip("ipykernel", reason="needs Jupyter's kernel (ipykernel, nbclient)")
nbclient = pytest.importorskip("nbclient", reason="needs Jupyter's kernel (ipykernel, nbclient)")
nbformat = pytest.importorskip("nbformat", reason="needs Jupyter's kernel (ipykernel, nbclient)")

CELLS = [
    "import numpy as np, momentalign as ma\nX = np.random.default_rng(0).normal(size=(60, 2))\ny = np.arange(60) % 2",
    "network = ma.MANNClassifier(hidden=(3,), max_epochs=30, patience=None, random_state=0, verbose=1)\n"
    "network.fit(X, y, X + 0.5)",
    "network.plot()",
    "ma.diagnose(X, X + 1.0, n_permutations=19)",
]


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::RuntimeWarning", "ignore::UserWarning")
def test_a_notebook_shows_cards_pictures_and_one_line_of_progress(tmp_path, monkeypatch):
    from jupyter_client.kernelspec import KernelSpecManager

    kernel = tmp_path / "kernels" / "here"
    kernel.mkdir(parents=True)
    spec = {"argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"], "display_name": "here"}
    (kernel / "kernel.json").write_text(json.dumps({**spec, "language": "python"}))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    assert "here" in KernelSpecManager().find_kernel_specs()
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in CELLS])
    nbclient.NotebookClient(notebook, kernel_name="here", timeout=300, env=dict(os.environ)).execute()
    shown = [cell["outputs"] for cell in notebook["cells"]]
    assert shown[0] == []
    line, result = shown[1]
    assert line["output_type"] == "display_data"
    assert line["data"]["text/plain"].startswith("MANNClassifier 30/30  source loss 0.")
    assert list(line["data"]) == ["text/plain"]
    assert "Training" in result["data"]["text/html"]
    assert shown[2][0]["data"]["text/html"].startswith("<img ")
    assert "What shifted" in shown[3][0]["data"]["text/html"]
