r"""The ratios of Figure 5: how the accuracy changes with the parameters of CMD and MMD and with the hidden layer.

Stands for Section 6.6 and Fig. 5 of Zellinger et al. (2019). The upper panels show, for each task :math:`t` and value
:math:`v` of a parameter,

.. math:: \frac{\bar a_{t,v}}{\bar a_{t,v_0}}, \qquad \bar a_{t,v} = \frac{1}{|\Lambda|} \sum_{\lambda \in \Lambda}
   a_{t,\lambda,v},

with :math:`v_0 = 5` moments for the CMD and :math:`\beta_0 = 1.2` for the MMD; the lower panels the accuracy with each
distance over that of the plain network with as many hidden nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from momentalign.errors import InvalidInputError
from momentalign.experiments.paper_results import (
    IMPROVEMENT,
    MOST_ACCURATE_BETA,
    ORDERS_LIKE_FIVE,
    ORDERS_TOLERANCE,
)

__all__ = ["Claim", "Panel", "claims", "make_panels", "ratios_to_reference"]

Floats = NDArray[np.float64]
Result = Mapping[str, Any]

DEFAULT_ORDER, LOW_ORDERS = 5, (1, 2)


class Panel(NamedTuple):
    """One panel of Figure 5; `ratios` has a row per task and a column per value."""

    title: str
    axis: str
    reference: str
    values: tuple[float, ...]
    ratios: Floats

    @property
    def mean(self) -> Floats:
        """The ratios averaged over tasks."""
        return np.asarray(self.ratios.mean(axis=0))


class Claim(NamedTuple):
    """What the paper reads from Figure 5, what is seen here, and whether that agrees."""

    paper: str
    here: str
    holds: bool


def ratios_to_reference(accuracy: ArrayLike, column: int) -> Floats:
    """Average accuracies [task][weight][value] over the weights and divide each task's by that of one value.

    Examples
    --------
    >>> ratios_to_reference([[[0.5, 0.75], [0.75, 0.5]]], 1).tolist()
    [[1.0, 1.0]]
    """
    means = np.asarray(accuracy, dtype=float).mean(axis=1)
    return np.asarray(means / means[:, [column]])


def make_panels(result: Result) -> dict[str, Panel]:
    """Return the panels of Figure 5 that a sensitivity result has data for, by name and in the paper's order."""
    found = result["panels"]
    panels = {}
    if "cmd_orders" in found:
        panels["cmd_orders"] = _upper(
            result, "cmd_orders", "orders", DEFAULT_ORDER, "CMD, by the number of moments", "k"
        )
    if "mmd_betas" in found:
        panels["mmd_betas"] = _upper(
            result, "mmd_betas", "betas", MOST_ACCURATE_BETA, "MMD, by the kernel parameter", "β"
        )
    for name, title in (("cmd", "CMD"), ("mmd", "MMD")):
        if {name, "nn"} <= set(found.get("hidden", ())):
            panels[f"{name}_hidden"] = _lower(result, name, f"{title}, by the number of hidden nodes")
    return panels


def claims(result: Result) -> list[Claim]:
    """Return what the paper says of Figure 5 beside what this result shows, as far as it has the panels."""
    panels = make_panels(result)
    found = []
    orders = set(panels["cmd_orders"].values) if "cmd_orders" in panels else set()
    if orders >= {*ORDERS_LIKE_FIVE}:
        found.append(_middle_orders(panels["cmd_orders"]))
    if orders >= {*LOW_ORDERS}:
        found.append(_low_orders(panels["cmd_orders"]))
    if {"cmd_orders", "mmd_betas"} <= set(panels):
        found.append(_more_sensitive(panels["cmd_orders"], panels["mmd_betas"]))
    if "mmd_betas" in panels:
        found.append(_best_beta(result["panels"]["mmd_betas"]))
    if "cmd_hidden" in panels:
        found.append(_steady_improvement(panels["cmd_hidden"]))
    if "mmd_hidden" in panels:
        found.append(_falling_improvement(panels["mmd_hidden"]))
    return found


def _upper(result: Result, name: str, parameter: str, reference: float, title: str, symbol: str) -> Panel:
    data = result["panels"][name]
    values = tuple(data[parameter])
    accuracy = _accuracy(result, data["accuracy"], f"{name}.accuracy", (len(data["weights"]), len(values)))
    column = _nearest(values, reference)
    return Panel(title, symbol, f"{symbol} = {values[column]:.3g}", values, ratios_to_reference(accuracy, column))


def _lower(result: Result, name: str, title: str) -> Panel:
    data = result["panels"]["hidden"]
    sizes = tuple(data["sizes"])
    aligned, plain = (_accuracy(result, data[n], f"hidden.{n}", (len(sizes),)) for n in (name, "nn"))
    return Panel(title, "hidden nodes", "the plain network", sizes, aligned / plain)


def _accuracy(result: Result, values: ArrayLike, name: str, rest: tuple[int, ...]) -> Floats:
    accuracy = np.asarray(values, dtype=float)
    shape = (len(result["tasks"]), *rest)
    if accuracy.shape != shape:
        raise InvalidInputError(
            f"result['panels'] has {name} of shape {accuracy.shape}, its tasks and values ask for {shape}; "
            "finish the run to get all."
        )
    if not (accuracy > 0).all():
        raise InvalidInputError(
            f"result['panels'] has {name} with {accuracy.min():g} in it; accuracies to divide by must be positive."
        )
    return accuracy


def _nearest(values: Sequence[float], wanted: float) -> int:
    return int(np.argmin(np.abs(np.asarray(values) - wanted)))


def _middle_orders(panel: Panel) -> Claim:
    chosen = [panel.values.index(order) for order in ORDERS_LIKE_FIVE]
    changes = np.abs(panel.ratios[:, chosen] - 1)
    inside = int((changes < ORDERS_TOLERANCE).sum())
    return Claim(
        f"With k = {', '.join(map(str, ORDERS_LIKE_FIVE))} instead of 5 the accuracy of a task changes by less than "
        f"{100 * ORDERS_TOLERANCE:g} %.",
        f"It does in {inside} of {changes.size} cases; at most {100 * changes.max():.2f} %, on average "
        f"{100 * changes.mean():.2f} %.",
        inside == changes.size,
    )


def _low_orders(panel: Panel) -> Claim:
    worse = [int((panel.ratios[:, panel.values.index(order)] < 1).sum()) for order in LOW_ORDERS]
    counts = " and ".join(f"{count} with k = {order}" for count, order in zip(worse, LOW_ORDERS, strict=True))
    return Claim(
        "With k = 1 and k = 2 many tasks are less accurate.",
        f"Of {len(panel.ratios)} tasks: {counts}.",
        all(2 * count > len(panel.ratios) for count in worse),
    )


def _more_sensitive(cmd: Panel, mmd: Panel) -> Claim:
    one, other = (100 * float(np.abs(panel.ratios - 1).mean()) for panel in (cmd, mmd))
    return Claim(
        "The MMD is more sensitive to its kernel parameter than the CMD to the number of moments.",
        f"On average the accuracy is {other:.2f} % off the reference with the MMD and {one:.2f} % with the CMD.",
        other > one,
    )


def _best_beta(data: Mapping[str, Any]) -> Claim:
    betas = data["betas"]
    best = int(np.asarray(data["accuracy"], dtype=float).mean(axis=(0, 1)).argmax())
    return Claim(
        f"The MMD is most accurate with β = {MOST_ACCURATE_BETA:g}.",
        f"It is with β = {betas[best]:.3g}.",
        best == _nearest(betas, MOST_ACCURATE_BETA),
    )


def _steady_improvement(panel: Panel) -> Claim:
    low, high = 100 * float(panel.mean.min() - 1), 100 * float(panel.mean.max() - 1)
    least, most = (100 * share for share in IMPROVEMENT)
    return Claim(
        f"The CMD improves the accuracy by {least:g} to {most:g} %, whatever the number of hidden nodes.",
        f"Averaged over tasks by {low:.1f} to {high:.1f} %.",
        round(low) >= least and round(high) <= most,
    )


def _falling_improvement(panel: Panel) -> Claim:
    first, last = (100 * float(panel.mean[index] - 1) for index in (0, -1))
    return Claim(
        "The improvement by the MMD shrinks as hidden nodes are added.",
        f"Averaged over tasks from {first:.1f} % at {panel.values[0]:g} to {last:.1f} % at {panel.values[-1]:g} nodes.",
        last < first,
    )
