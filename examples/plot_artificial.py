"""
The artificial problem
======================

Three classes in the plane, each turned and shifted in the target (Section 6.2 of the paper). One network never sees
the target; the other has its hidden activations aligned with it. Neither sees a target label.
"""

import matplotlib.pyplot as plt
import numpy as np

import momentalign as ma
from momentalign.paper.problems import make_artificial

problem = make_artificial(seed=0)

# %%
# Two networks
# ------------
# Fifteen hidden units and full batches, as in the paper. The only difference between the networks is the distance.

settings = {
    "hidden": (15,),
    "optimizer": "adadelta",
    "batch_size": None,
    "max_epochs": 3000,
    "patience": None,
    "validation_fraction": 0,
    "random_state": 0,
}
plain = ma.MANNClassifier(discrepancy=None, **settings).fit(problem.source, problem.source_labels, problem.target)
aligned = ma.MANNClassifier(**settings).fit(problem.source, problem.source_labels, problem.target)
for name, model in {"plain": plain, "aligned": aligned}.items():
    print(f"{name}: {model.score(problem.target, problem.target_labels):.1%} of the target right")

# %%
# Where the boundaries are
# ------------------------
# Crosses are labelled source points, coloured by class; dots are unlabelled target points. The aligned network has
# moved its boundaries to where the target's classes are.


def show(axis, model, title):
    """Draw the regions of a network, source points as crosses, target points as dots."""
    low, high = np.vstack([problem.source, problem.target]).min(0), np.vstack([problem.source, problem.target]).max(0)
    x, y = np.meshgrid(np.linspace(low[0], high[0], 200), np.linspace(low[1], high[1], 200))
    axis.contourf(x, y, model.predict(np.column_stack([x.ravel(), y.ravel()])).reshape(x.shape), alpha=0.2)
    axis.scatter(*problem.source.T, c=problem.source_labels, marker="x", s=12, linewidths=0.8)
    axis.scatter(*problem.target.T, c="black", s=3, linewidths=0)
    axis.set(title=title, xticks=[], yticks=[])


figure, axes = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
show(axes[0], plain, "plain")
show(axes[1], aligned, "aligned")

# %%
# What alignment did
# ------------------
# The distance between the activations of both domains, order by order.

for name, model in {"plain": plain, "aligned": aligned}.items():
    terms = ma.cmd_terms(model.transform(problem.source), model.transform(problem.target))
    print(f"{name}: " + " ".join(f"{term:.3f}" for term in terms))
