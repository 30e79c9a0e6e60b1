"""What the paper prints of its experiments: Tables 2, 4 and 5, and the words on Figure 5.

Zellinger, Moser, Grubinger, Lughofer, Natschläger, Saminger-Platz: Robust unsupervised domain adaptation for neural
networks via moment alignment, Information Sciences 483 (2019), Sections 6.3 to 6.6. The paper prints no
deviations. Table 4 is on features of AlexNet; of its columns CNN, CMD and FP-CMD are the authors' own runs.
Its columns DANN and TCA are quoted there from Ganin et al. (2016) and Li et al. (2017); the latter searched the
dimension of the TCA with target labels. Figure 5 prints no numbers beyond those in its text.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = [
    "DIGITS",
    "DIGIT_TASKS",
    "IMPROVEMENT",
    "MOST_ACCURATE_BETA",
    "OBJECTS",
    "OBJECT_TASKS",
    "ORDERS_LIKE_FIVE",
    "ORDERS_TOLERANCE",
    "REVIEWS",
    "TABLE_2",
    "TABLE_2_AVERAGE",
    "TABLE_2_RANK",
    "TABLE_4",
    "TABLE_4_AVERAGE",
    "TABLE_4_RANK",
    "TABLE_5",
    "TABLE_5_AVERAGE",
    "TABLE_5_RANK",
    "TASKS",
    "PaperTable",
]


class PaperTable(NamedTuple):
    """A table of accuracies as printed, in percent; `words` is how it is called beside ours."""

    words: str
    tasks: tuple[str, ...]
    columns: dict[str, dict[str, float]]
    averages: dict[str, float]
    ranks: dict[str, float]


TASKS = (
    "books->dvd",
    "books->electronics",
    "books->kitchen",
    "dvd->books",
    "dvd->electronics",
    "dvd->kitchen",
    "electronics->books",
    "electronics->dvd",
    "electronics->kitchen",
    "kitchen->books",
    "kitchen->dvd",
    "kitchen->electronics",
)

_COLUMNS = {
    "nn": (78.7, 71.4, 74.5, 74.6, 72.4, 76.5, 71.1, 71.9, 84.4, 69.9, 73.4, 83.3),
    "dann": (78.4, 73.3, 77.9, 72.3, 75.4, 78.3, 71.3, 73.8, 85.4, 70.9, 74.0, 84.3),
    "coral": (79.2, 73.1, 75.0, 77.6, 74.9, 79.2, 71.6, 72.4, 84.5, 73.0, 75.3, 84.0),
    "tca": (78.9, 74.2, 73.9, 77.5, 77.5, 79.6, 72.7, 75.7, 86.6, 71.7, 74.1, 83.5),
    "mmd": (79.6, 75.8, 78.7, 78.0, 76.6, 79.6, 73.3, 74.8, 85.7, 74.0, 76.3, 84.4),
    "cmd": (80.5, 78.7, 81.3, 79.5, 79.7, 83.0, 74.4, 76.3, 86.0, 75.6, 77.5, 85.4),
}

TABLE_2 = {method: dict(zip(TASKS, column, strict=True)) for method, column in _COLUMNS.items()}
"""Accuracy on the target in percent, by method and task, in the paper's order."""

TABLE_2_AVERAGE = {"nn": 75.2, "dann": 76.3, "coral": 76.7, "tca": 77.2, "mmd": 78.1, "cmd": 79.8}
"""The row "Average" of Table 2, in percent."""

TABLE_2_RANK = {"nn": 5.8, "dann": 4.5, "coral": 4.0, "tca": 3.3, "mmd": 2.3, "cmd": 1.1}
"""The row "Average rank". On D->K, TCA and MMD are equal: if they share ranks 2 and 3, TCA has 3.375, printed 3.3."""

REVIEWS = PaperTable("paper", TASKS, TABLE_2, TABLE_2_AVERAGE, TABLE_2_RANK)

OBJECT_TASKS = (
    "amazon->webcam",
    "dslr->webcam",
    "webcam->dslr",
    "amazon->dslr",
    "dslr->amazon",
    "webcam->amazon",
)

_OBJECT_COLUMNS = {
    "cnn": (52.9, 94.7, 99.0, 62.5, 50.2, 48.1),
    "tca": (61.0, 95.4, 95.2, 60.8, 51.6, 50.9),
    "mmd": (63.8, 94.6, 98.8, 65.8, 52.8, 51.9),
    "coral": (66.4, 95.7, 99.2, 66.8, 52.8, 51.5),
    "dann": (73.0, 96.4, 99.2, 72.3, 53.4, 51.2),
    "cmd": (62.8, 96.7, 99.3, 66.0, 53.6, 51.9),
    "fp-cmd": (64.8, 95.4, 99.4, 67.0, 55.1, 53.5),
}

TABLE_4 = {method: dict(zip(OBJECT_TASKS, column, strict=True)) for method, column in _OBJECT_COLUMNS.items()}
"""Accuracy on the target in percent on features of AlexNet, by method and task, in the paper's order."""

TABLE_4_AVERAGE = {
    "cnn": 67.9, "tca": 69.2, "mmd": 71.3, "coral": 72.1, "dann": 74.3, "cmd": 71.7, "fp-cmd": 72.5,
}  # fmt: skip
"""The column "Average" of Table 4, in percent."""

TABLE_4_RANK = {"cnn": 6.3, "tca": 6.0, "mmd": 4.7, "coral": 3.2, "dann": 2.5, "cmd": 2.7, "fp-cmd": 2.0}
"""The column "Average rank". Equal methods, such as TCA and FP-CMD on D->W, have the better of their ranks there."""

OBJECTS = PaperTable("paper on AlexNet", OBJECT_TASKS, TABLE_4, TABLE_4_AVERAGE, TABLE_4_RANK)

DIGIT_TASKS = ("svhn->mnist", "mnist->mnist-m", "synth->svhn")

_DIGIT_COLUMNS = {
    "cnn": (66.74, 70.85, 80.94),
    "coral": (69.39, 77.34, 83.58),
    "adda": (76.00,),
    "mmd": (76.90, 71.10, 88.00),
    "dann": (76.66, 73.85, 91.09),
    "dsn": (83.20, 82.70, 91.20),
    "cmd": (84.52, 85.04, 85.52),
    "cv-cmd": (86.34, 88.03, 85.42),
}

TABLE_5 = {method: dict(zip(DIGIT_TASKS, column, strict=False)) for method, column in _DIGIT_COLUMNS.items()}
"""Accuracy on the target in percent, by method and task, in the paper's order; ADDA has the first task only.

CNN, CORAL, CMD and CV-CMD are the authors' own runs; the others are quoted there from Tzeng et al. (2017), Bousmalis et
al. (2016) and Ganin et al. (2016), who used other networks. The source of the last task is SynthDigits; what
:func:`~momentalign.data.synthetic_digits.make_synth_digits` draws stands in for it, so that task compares methods with
each other but not with the paper.
"""

TABLE_5_AVERAGE = {
    "cnn": 72.84, "coral": 76.77, "adda": 76.00, "mmd": 78.67, "dann": 80.53, "dsn": 85.70, "cmd": 85.03,
    "cv-cmd": 86.60,
}  # fmt: skip
"""The column "Average" of Table 5, in percent."""

TABLE_5_RANK = {
    "cnn": 7.3, "coral": 5.3, "adda": 5.0, "mmd": 4.7, "dann": 4.3, "dsn": 2.3, "cmd": 2.7, "cv-cmd": 2.3,
}  # fmt: skip
"""The column "Average rank" of Table 5, that of ADDA over its one task.

The printed accuracies give CORAL 5.7, ADDA 6.0, MMD 4.3 and DANN 4.0.
"""

DIGITS = PaperTable("paper", DIGIT_TASKS, TABLE_5, TABLE_5_AVERAGE, TABLE_5_RANK)

ORDERS_LIKE_FIVE, ORDERS_TOLERANCE = (3, 4, 6, 7), 0.005
"""Figure 5, upper left: with these k the accuracy differs from that with k = 5 by less than this share."""

MOST_ACCURATE_BETA = 1.2
"""Figure 5, upper right: the kernel parameter with the highest mean accuracy, the reference of that panel."""

IMPROVEMENT = (0.04, 0.06)
"""Figure 5, lower left: the range of the improvement by the CMD over the numbers of hidden nodes."""
