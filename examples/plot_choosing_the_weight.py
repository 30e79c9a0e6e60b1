"""
Picking the weight without labels
=================================

The weight of the distance has to be chosen, and target labels are what you do not have. A search splits both
domains itself and never asks for them.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

import momentalign as ma

# %%
# Wines analysed with two sets of instruments, one of which is off; only the first half has labels.

rows, makers = load_wine(return_X_y=True)
source, target, labels, truth = train_test_split(
    StandardScaler().fit_transform(rows), makers, test_size=0.5, random_state=0, stratify=makers
)
target = target + np.random.default_rng(0).uniform(-1.5, 1.5, rows.shape[1])
model = ma.MANNClassifier(
    optimizer="adam", learning_rate=0.01, max_epochs=300, patience=None, validation_fraction=0, random_state=0
)

# %%
# Two rules
# ---------
# *Reverse validation* labels the target by what was learned, trains back, and looks how much of the source comes out
# right. *Nuclear norm* asks for predictions that are sure and use all classes. All weights are trained as one stack.

weights = [0.0, 0.1, 0.3, 1.0, 3.0, 10.0]
grid = {"weight": weights}
reverse = ma.ReverseValidationSearch(model, grid, random_state=0).fit(source, labels, X_target=target)
norm = ma.LabelFreeSearch(model, grid, rule="nuclear-norm", random_state=0).fit(source, labels, X_target=target)
for name, search in {"reverse validation": reverse, "nuclear norm": norm}.items():
    print(f"{name}: weight {search.best_params_['weight']:g}, {search.score(target, truth):.1%} of the target right")

# %%
# Beside the truth, which no user has
# -----------------------------------

accuracy = [model.set_params(weight=weight).fit(source, labels, target).score(target, truth) for weight in weights]
places = np.arange(len(weights))
figure, axis = plt.subplots(figsize=(6, 3.5), layout="constrained")
axis.plot(places, accuracy, "o-", label="accuracy on the target, hidden from both")
axis.plot(places, reverse.cv_results_["mean_test_score"], "s--", label="reverse validation")
axis.plot(places, norm.cv_results_["mean_test_score"], "^:", label="nuclear norm")
axis.set(
    xticks=places, xticklabels=[f"{weight:g}" for weight in weights], xlabel="weight", ylabel="score", ylim=(0.8, 1.01)
)
axis.legend(loc="lower right")

# %%
# Or combine all
# --------------
# ``weight="auto"`` trains several weights and combines the networks, again without a target label.

combined = model.set_params(weight="auto").fit(source, labels, X_target=target)
print(f"combined: {combined.score(target, truth):.1%} of the target right")
