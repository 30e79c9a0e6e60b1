"""Search over all parameters of a network with Optuna, without a label of the target.

Optuna proposes parameters, ``LabelFreeSearch`` scores them by the network's predictions for target rows that were held
out of its training. The split is the same in every trial, so that the scores can be compared.

    pip install optuna
    python examples/search_with_optuna.py
"""

import numpy as np
import optuna
from sklearn.datasets import load_wine
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

import momentalign as ma

# Half of the wines are the labelled source. The other half is the target, measured with instruments that are off.
rows, makers = load_wine(return_X_y=True)
source, target, labels, truth = train_test_split(
    StandardScaler().fit_transform(rows), makers, test_size=0.5, random_state=0, stratify=makers
)
target = target + np.random.default_rng(0).uniform(-1.5, 1.5, rows.shape[1])


def network(parameters):
    """A network with these parameters."""
    settings = {**parameters, "hidden": (parameters["hidden"],)}
    return ma.MANNClassifier(optimizer="adam", max_epochs=100, patience=None, random_state=0, **settings)


def score(trial):
    """The mutual information of target rows and predicted classes: high where predictions are confident and vary."""
    parameters = {
        "hidden": trial.suggest_int("hidden", 8, 64, log=True),
        "learning_rate": trial.suggest_float("learning_rate", 1e-3, 3e-2, log=True),
        "weight": trial.suggest_float("weight", 0.1, 10.0, log=True),
    }
    model = network(parameters)
    search = ma.LabelFreeSearch(
        model, {"weight": [model.weight]}, rule="mutual-information", refit=False, random_state=0
    )
    return search.fit(source, labels, X_target=target).best_score_


optuna.logging.set_verbosity(optuna.logging.WARNING)
study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=0))
study.optimize(score, n_trials=20)
found = ", ".join(f"{name} {value:.3g}" for name, value in study.best_params.items())
print(f"best of {len(study.trials)} trials: {found}")

# The target's labels, which no user has, measure the result and choose nothing.
plain = ma.MANNClassifier(discrepancy=None, optimizer="adam", learning_rate=0.01, max_epochs=100, random_state=0)
best = network(study.best_params).fit(source, labels, target)
print(f"plain network {plain.fit(source, labels).score(target, truth):.1%}, found {best.score(target, truth):.1%}")
