"""Draw docs/images/idea.svg: one hidden unit of the demo's networks on both domains, before and after alignment."""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import momentalign as ma
from momentalign.paper.problems import make_artificial

plt.rcParams["svg.hashsalt"] = "momentalign"
plt.rcParams["svg.fonttype"] = "none"
plt.rcParams["font.size"] = 15  # still to be read on a phone, where the picture has half its width
COLOURS = {"source": "#2f6fb0", "target": "#d9822b"}


def main() -> None:
    """Train both networks and draw the unit that alignment moved most."""
    problem = make_artificial(0)
    settings = {"hidden": (15,), "optimizer": "adadelta", "batch_size": None, "max_epochs": 3000, "patience": None}
    domains = {"source": problem.source, "target": problem.target}
    units = {}
    for name, distance in {"before": None, "after": "cmd"}.items():
        model = ma.MANNClassifier(discrepancy=distance, validation_fraction=0, random_state=0, **settings)
        model.fit(problem.source, problem.source_labels, problem.target)
        units[name] = {domain: model.transform(rows) for domain, rows in domains.items()}
    apart = {
        name: np.array([ma.cmd(both["source"][:, [unit]], both["target"][:, [unit]]) for unit in range(15)])
        for name, both in units.items()
    }
    unit = int(np.argmax(apart["before"] - apart["after"]))
    figure, axes = plt.subplots(1, 2, figsize=(8, 3.4), sharey=True, layout="constrained")
    for axis, (name, both) in zip(axes, units.items(), strict=True):
        for domain, values in both.items():
            axis.hist(
                values[:, unit], np.linspace(0, 1, 31), density=True, alpha=0.6, color=COLOURS[domain], label=domain
            )
        axis.set_title(f"{name}: distance {apart[name][unit]:.2f}", fontsize=17)
        axis.set(xlabel="activation", yticks=[], xticks=[0, 0.5, 1])
        axis.spines[["left", "right", "top"]].set_visible(False)
    axes[0].legend(frameon=False)
    figure.patch.set_facecolor("white")
    figure.savefig(Path(__file__).with_suffix(".svg"), metadata={"Date": None})


if __name__ == "__main__":
    main()
