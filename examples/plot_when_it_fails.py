"""
Where moment alignment fails, and how to notice
===============================================

Alignment makes two distributions of activations equal. Where they *should not* be equal it does harm: classes in
other shares (label shift), or a class that the target does not have. Three targets made from real analyses of wines
show what happens and which signs there are before anyone has a target label.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine
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
# Plain and aligned, and the signs
# --------------------------------
# The distance is large in all three, so it does not tell. The shares of the classes that the *plain* network sees in
# the target do: where they are far from the source's (about a third each here), think before you align. The nuclear
# norm of the predictions, a label-free score, takes the right side in the first two; a missing class fools it,
# because it rewards predictions that use every class.


def shares(model, data):
    """Return the shares of the classes that a network sees."""
    return np.bincount(model.predict(data), minlength=3) / len(data)


settings = {"optimizer": "adam", "learning_rate": 0.01, "max_epochs": 400, "patience": None, "validation_fraction": 0}
accuracy = {}
for name, (data, answers) in targets.items():
    plain = ma.MANNClassifier(discrepancy=None, random_state=0, **settings).fit(source, labels, data)
    aligned = ma.MANNClassifier(random_state=0, **settings).fit(source, labels, data)
    accuracy[name] = plain.score(data, answers), aligned.score(data, answers)
    scores = [nuclear_norm(probabilities=model.predict_proba(data)) for model in (plain, aligned)]
    print(name)
    print(f"  accuracy        plain {accuracy[name][0]:.0%}, aligned {accuracy[name][1]:.0%}")
    print(f"  distance before {ma.cmd(plain.transform(source), plain.transform(data)):.2f}")
    print(f"  shares seen     {shares(plain, data).round(2).tolist()}")
    print(f"  nuclear norm    plain {scores[0]:.3f}, aligned {scores[1]:.3f}")

# %%

figure, axis = plt.subplots(figsize=(6.5, 3.5), layout="constrained")
places = np.arange(len(accuracy))
for number, name in enumerate(("plain", "aligned")):
    axis.bar(places + 0.35 * number, [values[number] for values in accuracy.values()], 0.33, label=name)
axis.set(xticks=places + 0.175, xticklabels=list(accuracy), ylabel="accuracy on the target", ylim=(0, 1.05))
axis.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False)
