"""Two files of product reviews, books with and kitchen goods without labels, from the benchmark file of the paper.

Run it, then use the command line on what it writes::

    python examples/review_files.py DATA reviews
    momentalign diagnose reviews/books.csv reviews/kitchen.csv --label opinion
    momentalign fit reviews/books.svmlight reviews/kitchen.svmlight --label label --out reviews/model
    momentalign predict reviews/model reviews/kitchen.svmlight --out reviews/predictions.csv
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.datasets import dump_svmlight_file
from sklearn.linear_model import LogisticRegression

from momentalign.paper.problems import load_reviews

ROWS, WORDS = 2000, 200


def main(data: str, folder: Path) -> None:
    """Write log(1 + count) of all 5,000 words as svmlight, and counts of the 200 most frequent ones as CSV."""
    reviews = load_reviews(data)
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("books", "kitchen"):
        rows, labels = reviews.rows[name][:ROWS], reviews.labels[name][:ROWS]
        dump_svmlight_file(rows.log1p(), labels, str(folder / f"{name}.svmlight"), zero_based=False)
        table = pd.DataFrame(rows[:, :WORDS].toarray().astype(int), columns=reviews.vocabulary[:WORDS])
        table.assign(opinion=np.where(labels == 1, "good", "bad")).to_csv(folder / f"{name}.csv", index=False)
    print(f"{ROWS} reviews of each are in {folder}")
    (books, opinions), (kitchen, truth) = (
        (reviews.rows[name][:ROWS].log1p(), reviews.labels[name][:ROWS]) for name in ("books", "kitchen")
    )
    accuracy = LogisticRegression(max_iter=1000).fit(books, opinions).score(kitchen, truth)
    print(f"A logistic regression trained on books has {accuracy:.1%} of the kitchen reviews right.")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2] if len(sys.argv) > 2 else "reviews"))
