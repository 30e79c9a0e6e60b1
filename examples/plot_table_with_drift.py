"""
A table with drift
==================

Wines were analysed last year with one set of instruments and labelled by their makers; this year's analyses come
from other instruments, and nobody has labelled them. What shifted, and does alignment help?
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

import momentalign as ma

# %%
# Two tables with the same columns
# --------------------------------
# Real analyses of 178 wines, half for each year. This year's instruments are off: some read higher, some lower, by up
# to one and a half standard deviations.

wine = load_wine(as_frame=True)
last_year, this_year, makers, unknown = train_test_split(
    wine.data, wine.target, test_size=0.5, random_state=0, stratify=wine.target
)
random = np.random.default_rng(0)
this_year = this_year + random.uniform(-1.5, 1.5, wine.data.shape[1]) * wine.data.std().to_numpy()

# %%
# What shifted
# ------------
# Each feature by itself, and a sentence that sums it up. ``.to_html("page.html")`` writes the whole page.

report = ma.diagnose(last_year, this_year)
print(report.verdict)
print(report.to_frame()[["feature", "mean_shift", "deviation_ratio", "p_adjusted"]].head(5).to_string(index=False))

# %%
# Plain and aligned
# -----------------
# The rows are standardised with last year's means and standard deviations; what remains is this year's shift. The
# simplest remedy comes first: a logistic regression with each year standardised by itself. This shift is one of
# location, which that removes completely.

simple = LogisticRegression().fit(StandardScaler().fit_transform(last_year), makers)
simple_accuracy = simple.score(StandardScaler().fit_transform(this_year), unknown)
print(f"each year standardised: {simple_accuracy:.1%} of this year's wines right")

scaler = StandardScaler().fit(last_year)
source, target = scaler.transform(last_year), scaler.transform(this_year)
settings = {"max_epochs": 300, "optimizer": "adam", "learning_rate": 0.01, "validation_fraction": 0, "patience": None}
accuracy = {"plain": [], "aligned": []}
for seed in range(5):
    plain = ma.MANNClassifier(discrepancy=None, random_state=seed, **settings).fit(source, makers)
    aligned = ma.MANNClassifier(random_state=seed, **settings).fit(source, makers, X_target=target)
    accuracy["plain"].append(plain.score(target, unknown))
    accuracy["aligned"].append(aligned.score(target, unknown))
for name, values in accuracy.items():
    print(f"{name}: {np.mean(values):.1%} of this year's wines right")

# %%
# Five seeds each: the line is their median.

figure, axis = plt.subplots(figsize=(5, 3.2), layout="constrained")
axis.boxplot(list(accuracy.values()), tick_labels=list(accuracy))
axis.axhline(simple_accuracy, color="gray", linewidth=0.8, label="logistic regression, each year standardised")
axis.legend(loc="lower right")
axis.set(ylabel="accuracy on this year's wines", ylim=(0.8, 1.005))
