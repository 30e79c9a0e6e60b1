"""
Where moment alignment fails, and how to notice
===============================================

Alignment makes two distributions of activations equal. Where they *should not* be equal it does harm: classes in
other shares (label shift), or a class that the target does not have. Three targets made from real analyses of wines
show what happens, which signs there are before anyone has a target label, and what the robust default makes of them.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

import momentalign as ma
from momentalign.evaluation.scores import nuclear_norm

rows, makers = load_wine(return_X_y=True)
source, rest, labels, truth = train_test_split(
    StandardScaler().fit_transform(rows), makers, test_size=0.5, random_state=0, stratify=makers
)

# %%
# Three targets
# -------------

offsets = np.random.default_rng(0).uniform(-1.5, 1.5, rows.shape[1])
one_maker = np.concatenate([np.flatnonzero(truth == 0), np.flatnonzero(truth == 1)[:4], np.flatnonzero(truth == 2)[:3]])
two_makers = np.flatnonzero(truth != 2)
targets = {
    "instruments are off": (rest + offsets, truth),
    "mostly one maker": (rest[one_maker], truth[one_maker]),
    "a maker is missing": (rest[two_makers], truth[two_makers]),
}

# %%
# Plain, aligned, and the robust default
# --------------------------------------
# The distance is large in all three, so it does not tell them apart. The class shares that the *plain* network
# predicts for the target do: where they are far from the source's (about a third each here), think before you align.
# The nuclear norm of the predictions, a label-free score, prefers the right network in the first two; a missing class
# fools it, because it rewards predictions that use every class. The robust default compares how well plain models
# agree on the target and on held-out source rows.


def shares(model, data):
    """Return the shares of the classes that a network predicts."""
    return np.bincount(model.predict(data), minlength=3) / len(data)


settings = {"optimizer": "adam", "learning_rate": 0.01, "max_epochs": 400, "patience": None, "validation_fraction": 0}
accuracy = {}
for name, (data, answers) in targets.items():
    plain = ma.MANNClassifier(discrepancy=None, random_state=0, **settings).fit(source, labels, data)
    aligned = ma.MANNClassifier(random_state=0, **settings).fit(source, labels, data)
    robust = ma.AutoClassifier(random_state=0).fit(source, labels, data)
    standardised = LogisticRegression().fit(StandardScaler().fit_transform(source), labels)
    accuracy[name] = {
        "plain": plain.score(data, answers),
        "aligned": aligned.score(data, answers),
        "domains standardised": standardised.score(StandardScaler().fit_transform(data), answers),
        "robust default": robust.score(data, answers),
    }
    scores = [nuclear_norm(probabilities=model.predict_proba(data)) for model in (plain, aligned)]
    print(name)
    print("  accuracy        " + ", ".join(f"{method} {value:.0%}" for method, value in accuracy[name].items()))
    print(f"  distance before {ma.cmd(plain.transform(source), plain.transform(data)):.2f}")
    print(f"  shares          {shares(plain, data).round(2).tolist()}")
    print(f"  nuclear norm    plain {scores[0]:.3f}, aligned {scores[1]:.3f}")
    print(f"  robust default  {robust.decision_}")

# %%
# A logistic regression with each domain standardised by itself stands for the simplest way to adapt.

figure, axis = plt.subplots(figsize=(7.5, 3.5), layout="constrained")
positions = np.arange(len(accuracy))
for number, method in enumerate(accuracy["a maker is missing"]):
    axis.bar(positions + 0.2 * number, [values[method] for values in accuracy.values()], 0.18, label=method)
axis.set(xticks=positions + 0.3, xticklabels=list(accuracy), ylabel="accuracy on the target", ylim=(0, 1.05))
axis.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4, frameon=False)
