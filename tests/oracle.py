"""Definitions written out once more, slowly and without torch: exact fractions, plain loops, no shared code."""

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import combinations_with_replacement, product

Rows = list[list[Fraction]]


def exact(rows: list[list[float]]) -> Rows:
    return [[Fraction(value) for value in row] for row in rows]


def _mean(values: list[Fraction]) -> Fraction:
    return sum(values, Fraction(0)) / len(values)


def central_moment(rows: Rows, features: tuple[int, ...]) -> Fraction:
    """E prod_f (x_f - E x_f); a single feature gives its mean."""
    if len(features) == 1:
        return _mean([row[features[0]] for row in rows])
    means = [_mean(list(column)) for column in zip(*rows, strict=True)]
    return _mean([math.prod(row[f] - means[f] for f in features) for row in rows])


def _moments_of_order(width: int, order: int, *, every: bool) -> list[tuple[int, ...]]:
    if not every:
        return [(feature,) * order for feature in range(width)]
    # Deliberately not combinations_with_replacement: sort all words and keep each once.
    return sorted({tuple(sorted(word)) for word in product(range(width), repeat=order)})


def squared_term(source: Rows, target: Rows, order: int, *, every: bool) -> Fraction:
    wanted = _moments_of_order(len(source[0]), order, every=every)
    return sum(((central_moment(source, m) - central_moment(target, m)) ** 2 for m in wanted), Fraction(0))


def cmd_terms(
    source: Rows, target: Rows, n_moments: int, *, cross: int = 1, length: Fraction = Fraction(1)
) -> list[float]:
    terms = []
    for order in range(1, n_moments + 1):
        square = squared_term(source, target, order, every=order <= cross) / length ** (2 * order)
        terms.append(math.sqrt(square / 2 if cross == 2 and order == 2 else square))
    return terms


def weighted_samples(population: Rows, size: int) -> Iterator[tuple[Rows, Fraction]]:
    """All samples of `size` rows drawn with replacement, up to the order of rows, with their probabilities."""
    for chosen in combinations_with_replacement(range(len(population)), size):
        ways = math.factorial(size)
        for index in set(chosen):
            ways //= math.factorial(chosen.count(index))
        yield [population[i] for i in chosen], Fraction(ways, len(population) ** size)


def mmd(source: list[list[float]], target: list[list[float]], kernel: Callable, *, unbiased: bool = False) -> float:
    """The double loop over all pairs of rows."""

    def own(rows: list[list[float]]) -> float:
        values = [kernel(x, y) for i, x in enumerate(rows) for j, y in enumerate(rows) if not (unbiased and i == j)]
        return sum(values) / len(values)

    between = [kernel(x, y) for x in source for y in target]
    return own(source) + own(target) - 2 * sum(between) / len(between)


def dot(x: list[float], y: list[float]) -> float:
    return sum(a * b for a, b in zip(x, y, strict=True))


def squared_distance(x: list[float], y: list[float]) -> float:
    return sum((a - b) ** 2 for a, b in zip(x, y, strict=True))
