"""
Choosing the weight without target labels
=========================================

The weight of the distance has to be chosen, and target labels are what you do not have. The searches need none.
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
# *Reverse validation* labels the target with the trained network, trains on these labels in the other direction, and
# counts how many source rows are predicted right. The *nuclear norm* rewards confident predictions that use all
# classes. All weights are trained as one stack.

weights = [0.0, 0.1, 0.3, 1.0, 3.0, 10.0]
grid = {"weight": weights}
reverse = ma.ReverseValidationSearch(model, grid, random_state=0).fit(source, labels, X_target=target)
norm = ma.LabelFreeSearch(model, grid, rule="nuclear-norm", random_state=0).fit(source, labels, X_target=target)
for name, search in {"reverse validation": reverse, "nuclear norm": norm}.items():
    print(f"{name}: weight {search.best_params_['weight']:g}, {search.score(target, truth):.1%} of the target right")

# %%
# Compared with the target labels, which no user has
# --------------------------------------------------

accuracy = [model.set_params(weight=weight).fit(source, labels, target).score(target, truth) for weight in weights]
positions = np.arange(len(weights))
figure, axis = plt.subplots(figsize=(6, 3.5), layout="constrained")
axis.plot(positions, accuracy, "o-", label="accuracy on the target, hidden from both")
axis.plot(positions, reverse.cv_results_["mean_test_score"], "s--", label="reverse validation")
axis.plot(positions, norm.cv_results_["mean_test_score"], "^:", label="nuclear norm")
axis.set(
    xticks=positions,
    xticklabels=[f"{weight:g}" for weight in weights],
    xlabel="weight",
    ylabel="score",
    ylim=(0.8, 1.01),
)
axis.legend(loc="lower right")

# %%
# Or combine all
# --------------
# ``weight="auto"`` trains several weights and combines the networks, again without a target label.

combined = model.set_params(weight="auto").fit(source, labels, X_target=target)
print(f"combined: {combined.score(target, truth):.1%} of the target right")
