"""The hidden units of the shown run: how their activations differ between source and target, before and after.

Stands for Fig. 4 of Zellinger et al. (2019).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from momentalign.report.charts import density_panel
from momentalign.report.parts import Bar, Choice, Sign, figure, heading, key, picker, row, text
from momentalign.report.shallow import activations
from momentalign.report.svg import Picture, line

__all__ = ["NAMES", "most_different", "p_words", "unit_panel", "units_parts"]

Result = Mapping[str, Any]

NAMES = {"nn": "NN, without alignment", "mann": "MANN, with alignment"}
SHOWN = 5
SIGNIFICANT = 0.01


def units_parts(result: Result) -> list[Markup]:
    """Return the densities of Fig. 4 and a picker for every hidden unit."""
    signs = [Sign(line([2, 22], [7, 7], f"ma-line ma-{domain}"), domain) for domain in ("source", "target")]
    parts = [text(_finding(result)), key(signs)]
    for name, title in NAMES.items():
        parts.append(heading(f"Most different units: {title}"))
        parts.append(row([figure(panel) for panel in most_different(result, name)], least="9.5rem", css="plain"))
    parts.append(heading("Any unit"))
    parts.append(text("The bars on each button are the test statistic without (upper) and with alignment (lower)."))
    parts.append(picker([_choice(result, unit) for unit in range(len(result["shown"]["nn"]["ks_pvalue"]))]))
    return parts


def most_different(result: Result, name: str) -> list[Picture]:
    """Return the densities of the units with the smallest p-values of one network."""
    shown = result["shown"][name]
    order = sorted(
        range(len(shown["ks_pvalue"])), key=lambda unit: (shown["ks_pvalue"][unit], -shown["ks_statistic"][unit])
    )
    return [unit_panel(result, name, unit) for unit in order[:SHOWN]]


def unit_panel(result: Result, name: str, unit: int, *, width: float = 200, height: float = 128) -> Picture:
    """Return the densities of one unit of one network."""
    shown = result["shown"][name]
    source, target = _samples(result, name, unit)
    note = p_words(shown["ks_pvalue"][unit])
    title = f"Activation densities of hidden unit {unit + 1} on source and target, {NAMES[name]}: {note}"
    return density_panel(source, target, heading=f"Unit {unit + 1}", note=note, title=title, width=width, height=height)


def _samples(result: Result, name: str, unit: int) -> list[NDArray[np.float64]]:
    """Return one unit's activations on source and target."""
    weights = result["shown"][name]["weights"]
    return [activations(weights, result[domain]["x"])[:, unit] for domain in ("source", "target")]


def _choice(result: Result, unit: int) -> Choice:
    """Return the picker's entry of one unit."""
    shown = result["shown"]
    thin = [Bar(f"ma-{name}", round(100 * shown[name]["ks_statistic"][unit])) for name in NAMES]
    panels = [figure(unit_panel(result, name, unit, width=440, height=210), words) for name, words in NAMES.items()]
    return Choice(f"unit-{unit + 1}", f"Unit {unit + 1}", thin, row(panels, least="18rem"))


def p_words(p: float) -> str:
    """Write a p-value: plain when large, as a power of ten when small.

    Examples
    --------
    >>> p_words(0.25), p_words(3.2e-7), p_words(0.0)
    ('p = 0.25', 'p = 3·10⁻⁷', 'p < 10⁻⁹⁹')
    """
    if p >= SIGNIFICANT:
        return f"p = {p:.2f}"
    if p < 1e-99:
        return "p < 10⁻⁹⁹"
    digits, power = f"{p:.0e}".split("e")
    return f"p = {digits}·10" + str(int(power)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def _finding(result: Result) -> str:
    """Say how many units the test finds different."""
    values = [result["shown"][name]["ks_pvalue"] for name in NAMES]
    before, after = (sum(p < SIGNIFICANT for p in column) for column in values)
    return (
        "How strongly each unit answers to source and to target points; each picture has its own height. "
        f"A Kolmogorov-Smirnov test finds {before} of {len(values[0])} units different without alignment "
        f"and {after} with it (p < {SIGNIFICANT})."
    )
