"""Mean over-penalisation (Section 7.1, Figure 2): which of two targets a metric takes to be nearer to the source.

The source is 0.8 Y + 0.1 where Y follows Beta(0.4, 0.4); the left target is Normal with mean 0.5 and standard deviation
0.27, the right target the source shifted by 0.02. A law is the tuple of its raw moments of orders 0, 1, 2, ... as
fractions: the inequalities of the paper are decided without rounding.

Every preference the paper claims is right, but four of its six printed chains of inequalities do not hold to the letter
and are reported so: d_P1 and cmd_4 of the right target are 0.02 exactly, where the paper has strict inequalities with
0.02; the MMDs of the left target are 0.000256 and 0.00421, where the paper has less than 0.00025 and less than 0.004.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from fractions import Fraction
from importlib.metadata import version
from itertools import accumulate, pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from markupsafe import Markup
from scipy import stats

from momentalign.paper.pages import draw, line_sign, made_with
from momentalign.report.page import Cell, Section, figure, key, number_cell, render_page, row, table, text
from momentalign.report.svg import Frame, Picture, area, axes, clipped, line, mosaic, standalone, ticks

__all__ = ["LEFT", "RIGHT", "SOURCE", "figure_2", "overpenalization_page", "run"]

RawMoments: TypeAlias = tuple[Fraction, ...]


def beta_moments(alpha: Fraction, beta: Fraction, order: int) -> RawMoments:
    r"""Return the raw moments of the Beta law, :math:`\prod_{i<j} (\alpha + i) / (\alpha + \beta + i)`."""
    factors = ((alpha + i) / (alpha + beta + i) for i in range(order))
    return tuple(accumulate(factors, operator.mul, initial=Fraction(1)))


def normal_moments(mean: Fraction, variance: Fraction, order: int) -> RawMoments:
    r"""Return those of the Normal law, :math:`\mu \mathbb E[X^{j-1}] + (j-1) \sigma^2 \mathbb E[X^{j-2}]`."""
    moments = [Fraction(1), mean]
    for j in range(2, order + 1):
        moments.append(mean * moments[j - 1] + (j - 1) * variance * moments[j - 2])
    return tuple(moments)


def affine_moments(raw: RawMoments, scale: Fraction, shift: Fraction) -> RawMoments:
    """Return the raw moments of ``scale * Y + shift``, given those of Y; with scale 1 this is Eq. (10)'s expansion."""
    return tuple(
        sum((math.comb(j, i) * scale**i * shift ** (j - i) * raw[i] for i in range(j + 1)), Fraction(0))
        for j in range(len(raw))
    )


def central_moments(raw: RawMoments) -> RawMoments:
    """Return the moments about the mean."""
    return affine_moments(raw, Fraction(1), -raw[1])


def ipm(source: RawMoments, target: RawMoments, order: int) -> Fraction:
    r"""Return :math:`d_{\mathcal P^k} = |\mathbb E_S[x^k] - \mathbb E_T[x^k]|`, Eqs. (9) and (10).

    Orders 1 and 2 are also the mean and the covariance feature matching metrics of McGan (Mroueh et al., 2017) with the
    identity as feature, as Section 7.1 says: their covariances are not centred.
    """
    return abs(source[order] - target[order])


def mmd(source: RawMoments, target: RawMoments, degree: int) -> Fraction:
    """Return the (squared) MMD with the kernel (1 + xy)^d."""
    return sum((math.comb(degree, j) * (source[j] - target[j]) ** 2 for j in range(1, degree + 1)), Fraction(0))


def cmd(source: RawMoments, target: RawMoments, order: int) -> Fraction:
    """Return the CMD, Eq. (13) with all weights 1."""
    pairs = zip(central_moments(source)[2 : order + 1], central_moments(target)[2 : order + 1], strict=True)
    return sum((abs(left - right) for left, right in pairs), abs(source[1] - target[1]))


_SHAPE, _SCALE, _MEAN, _STD = Fraction("0.4"), Fraction("0.8"), Fraction("0.5"), Fraction("0.27")
_START, _SHIFTED_START = Fraction("0.1"), Fraction("0.12")

SOURCE = affine_moments(beta_moments(_SHAPE, _SHAPE, 4), _SCALE, _START)
LEFT = normal_moments(_MEAN, _STD**2, 4)
RIGHT = affine_moments(beta_moments(_SHAPE, _SHAPE, 4), _SCALE, _SHIFTED_START)


class Claim(NamedTuple):
    """One line of Section 7.1."""

    metric: str
    chain: str
    """The inequalities as printed, left and right standing for the distances of the two targets."""
    distance: Callable[[RawMoments, RawMoments, int], Fraction]
    order: int
    remark: str = ""


CLAIMS = (
    Claim("d_P1", "left = 0 < 0.02 < right", ipm, 1, "not quite: right is 0.02 exactly"),
    Claim("d_P2", "left < 0.016 < 0.02 < right", ipm, 2),
    Claim("d_P4", "left < 0.02 < 0.021 < right", ipm, 4),
    Claim("MMD (1 + xy)^2", "left < 0.00025 < 0.0012 < right", mmd, 2, "not quite: left is 0.000256"),
    Claim("MMD (1 + xy)^4", "left < 0.004 < 0.006 < right", mmd, 4, "not quite: left is 0.00421"),
    Claim("mean feature matching", "left < right", ipm, 1, "coincides with d_P1"),
    Claim("covariance feature matching", "left < right", ipm, 2, "coincides with d_P2"),
    Claim("cmd_4", "left > 0.0207 > 0.02 > right", cmd, 4, "not quite: right is 0.02 exactly"),
)

_RELATIONS = {"<": operator.lt, "=": operator.eq, ">": operator.gt}


def run() -> dict[str, Any]:
    """Return every metric of Section 7.1 beside the printed inequality, and the densities of Fig. 2, ready for JSON.

    Each row has ``metric``, the distances ``left`` and ``right`` of the two targets from the source, the inequality of
    the ``paper`` (with a remark in brackets), whether it ``holds`` to the letter in exact numbers, and which target
    the metric ``prefers``, that is, takes to be nearer.

    Examples
    --------
    >>> for row in run()["rows"]:
    ...     print(f"{row['metric']:27} {row['left']:.6f} {row['right']:.6f} {row['prefers']}")
    d_P1                        0.000000 0.020000 left
    d_P2                        0.015989 0.020400 left
    d_P4                        0.019268 0.021496 left
    MMD (1 + xy)^2              0.000256 0.001216 left
    MMD (1 + xy)^4              0.004206 0.006313 left
    mean feature matching       0.000000 0.020000 left
    covariance feature matching 0.015989 0.020400 left
    cmd_4                       0.020704 0.020000 right
    """
    return {
        "kind": "overpenalization",
        "rows": [_row(claim) for claim in CLAIMS],
        "densities": _densities(),
        "versions": {name: version(name) for name in ("momentalign", "numpy", "scipy")},
    }


def _row(claim: Claim) -> dict[str, Any]:
    left, right = (claim.distance(SOURCE, target, claim.order) for target in (LEFT, RIGHT))
    return {
        "metric": claim.metric,
        "left": float(left),
        "right": float(right),
        "paper": f"{claim.chain} ({claim.remark})" if claim.remark else claim.chain,
        "holds": _is_true(claim.chain, left=left, right=right),
        "prefers": "left" if left < right else "right",
    }


def _is_true(chain: str, **distances: Fraction) -> bool:
    """Decide a chain such as ``left < 0.016 < 0.02 < right`` in exact arithmetic."""
    parts = chain.split()
    values = [distances[part] if part in distances else Fraction(part) for part in parts[::2]]
    relations = zip(pairwise(values), parts[1::2], strict=True)
    return all(_RELATIONS[sign](*pair) for pair, sign in relations)


def _densities() -> dict[str, list[float]]:
    # Midpoints of cells of 0.005: the Beta densities are infinite at 0.1, 0.12, 0.9 and 0.92, which are cell borders.
    x = -0.4 + 0.005 * (np.arange(360) + 0.5)
    shape, scale = float(_SHAPE), float(_SCALE)
    return {
        "x": x.tolist(),
        "source": stats.beta.pdf(x, shape, shape, loc=float(_START), scale=scale).tolist(),
        "left": stats.norm.pdf(x, loc=float(_MEAN), scale=float(_STD)).tolist(),
        "right": stats.beta.pdf(x, shape, shape, loc=float(_SHIFTED_START), scale=scale).tolist(),
    }


Result = Mapping[str, Any]

TARGETS = {"left": "Normal", "right": "shifted Beta"}


def overpenalization_page(result: Result) -> str:
    """Return the page of one result of ``momentalign reproduce overpenalization``."""
    made = [
        ("Source", "0.8 Y + 0.1, where Y follows Beta(0.4, 0.4)"),
        ("Left target", "Normal with mean 0.5 and standard deviation 0.27"),
        ("Right target", "0.8 Y + 0.12: the source, moved by 0.02"),
    ]
    sections = [
        Section("Source and two targets", _targets(result)),
        Section("Every metric", [_metrics(result)]),
        Section("How this was made", [made_with(result, made)]),
    ]
    return render_page("Mean over-penalisation", _headline(result), sections)


def figure_2(result: Result) -> str:
    """Return Fig. 2 as the text of an SVG file: source dashed, the Normal target left, the shifted Beta right."""
    title = "Source density dashed; on the left a Normal target, on the right a slightly shifted Beta target"
    return standalone(mosaic(title, [[_panel(result, side) for side in TARGETS]]))


def _headline(result: Result) -> str:
    """The one sentence that says what was found."""
    misled = [entry for entry in result["rows"] if entry["prefers"] == "left"]
    right = [entry["metric"] for entry in result["rows"] if entry["prefers"] == "right"]
    verb = "finds" if len(misled) == 1 else "find"
    rest = f"; {' and '.join(right)} {'does' if len(right) == 1 else 'do'} not" if right else ""
    return (
        f"{len(misled)} of {len(result['rows'])} metrics {verb} a Normal closer to the source "
        f"than the source itself after a small step to the right{rest}."
    )


def _targets(result: Result) -> list[Markup]:
    """Both panels of Fig. 2."""
    lead = (
        "The left target shares the source's mean but not its shape, the right one its shape but not quite its mean. "
        "The Beta densities grow without bound at their ends, so the axis is cut."
    )
    signs = [line_sign("ma-line ma-dashed ma-source", "source"), line_sign("ma-line ma-target", "target")]
    panels = [figure(_panel(result, side), f"{side.capitalize()}: {name}") for side, name in TARGETS.items()]
    return [text(lead), key(signs), row(panels)]


def _panel(result: Result, side: str) -> Picture:
    """One panel of Fig. 2: the source dashed, one target solid."""
    densities = result["densities"]
    x = np.asarray(densities["x"], dtype=float)
    top = 2 * float(np.nanmax(np.asarray(densities["left"], dtype=float)))
    frame = Frame(x_range=(float(x.min()), float(x.max())), y_range=(0, top), height=280, top=12, bottom=28)
    # Poles, which JSON writes as null, reach beyond the axis.
    source, target = (
        np.nan_to_num(np.asarray(densities[name], dtype=float), nan=4 * top, posinf=4 * top).clip(max=4 * top)
        for name in ("source", side)
    )
    shapes = [
        area(frame.x(x), frame.y(target), frame.floor, "ma-area ma-target"),
        line(frame.x(x), frame.y(target), "ma-line ma-target"),
        line(frame.x(x), frame.y(source), "ma-line ma-dashed ma-source"),
    ]
    marked = [[(at, f"{at:g}") for at in ticks(*limits, count=4)] for limits in (frame.x_range, frame.y_range)]
    title = f"Density of the source (dashed) and of the {side} target, a {TARGETS[side]} (solid)"
    return draw(frame, title, axes(frame, x_ticks=marked[0], y_ticks=marked[1]), clipped(frame, shapes))


def _metrics(result: Result) -> Markup:
    """The table of all metrics."""
    columns = ["Metric", "To the Normal (left)", "To the shifted Beta (right)", "Finds closer", "In the paper"]
    rows = [
        [
            Cell(entry["metric"]),
            *(number_cell(entry[side], "{:.5f}".format) for side in TARGETS),
            Cell(f"{entry['prefers']}, {TARGETS[entry['prefers']]}"),
            Cell(entry["paper"]),
        ]
        for entry in result["rows"]
    ]
    return table("Distance from the source to each target", columns, rows)
