"""
Several sources
===============

Three factories have labelled their parts, a fourth has not, and each has its own instruments. ``sample_domain`` says
which row belongs to which domain: positive ids are sources, negative ones are targets.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.preprocessing import StandardScaler

import momentalign as ma

# %%
# Four domains
# ------------
# Real handwritten digits, a quarter for each domain. Every domain has its own offset and gain for each pixel.

rows, digits = load_digits(return_X_y=True)
rows = StandardScaler().fit_transform(rows)
random = np.random.default_rng(0)
domain = random.permutation(np.resize([1, 2, 3, -4], len(rows)))
for number in (1, 2, 3, -4):
    there = domain == number
    rows[there] = rows[there] * random.uniform(0.6, 1.4, 64) + random.normal(0, 0.7, 64)
target, truth = rows[domain < 0], digits[domain < 0]
settings = {"optimizer": "adam", "learning_rate": 0.01, "max_epochs": 100, "patience": None, "random_state": 0}

# %%
# One source, all sources pooled, or each as a domain of its own
# --------------------------------------------------------------

accuracy = {}
for number in (1, 2, 3):
    alone = ma.MANNClassifier(**settings).fit(rows[domain == number], digits[domain == number], target)
    accuracy[f"source {number}"] = alone.score(target, truth)
labelled, labels = rows[domain > 0], digits[domain > 0]
accuracy["pooled, plain"] = ma.MANNClassifier(discrepancy=None, **settings).fit(labelled, labels).score(target, truth)
accuracy["pooled, aligned"] = ma.MANNClassifier(**settings).fit(labelled, labels, target).score(target, truth)
several = ma.MANNClassifier(**settings).fit(rows, digits, sample_domain=domain)
accuracy["three sources"] = several.score(target, truth)
for name, value in accuracy.items():
    print(f"{name}: {value:.1%}")

# %%

figure, axis = plt.subplots(figsize=(6.5, 3), layout="constrained")
axis.barh(list(accuracy)[::-1], list(accuracy.values())[::-1], color=["#d9822b"] + ["#2f6fb0"] * 5)
axis.set(xlabel="accuracy on the fourth domain", xlim=(0, 1))

# %%
# How far each source is from the target
# ---------------------------------------
# A fitted model keeps the moments of every domain, so no rows are needed to compare them.

for number in (1, 2, 3):
    print(f"source {number}: {several.moments_[number].cmd(several.moments_[-4]):.3f}")
