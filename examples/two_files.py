"""Two files with a real shift, from data that scikit-learn ships: tumours of low texture are labelled, others not.

Run it, then use the command line on what it writes::

    python examples/two_files.py tumours
    momentalign diagnose tumours/source.csv tumours/target.csv --label diagnosis
    momentalign fit tumours/source.csv tumours/target.csv --label diagnosis --out tumours/model
    momentalign predict tumours/model tumours/target.csv --out tumours/predictions.csv
"""

import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler


def main(folder: Path) -> None:
    """Write source.csv (labelled), target.csv (not labelled) and checked.csv (the target with its labels)."""
    data = load_breast_cancer(as_frame=True)
    rows = data.frame.drop(columns="target")
    rows["diagnosis"] = np.where(data.target == 0, "malignant", "benign")
    low = rows["mean texture"] < rows["mean texture"].median()
    folder.mkdir(parents=True, exist_ok=True)
    rows[low].to_csv(folder / "source.csv", index=False)
    rows[~low].drop(columns="diagnosis").to_csv(folder / "target.csv", index=False)
    rows[~low].to_csv(folder / "checked.csv", index=False)
    print(f"{low.sum()} labelled and {(~low).sum()} unlabelled rows are in {folder}")
    shares = [(part["diagnosis"] == "malignant").mean() for part in (rows[low], rows[~low])]
    print(f"{shares[0]:.0%} of the labelled tumours are malignant, {shares[1]:.0%} of the others")
    features, labels = rows.drop(columns="diagnosis"), rows["diagnosis"]
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(features[low], labels[low])
    print(f"A logistic regression has {model.score(features[~low], labels[~low]):.1%} of the others right.")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "tumours"))
