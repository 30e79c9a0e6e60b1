"""The ratios of Figure 5 and what the paper reads from it."""

import copy

import numpy as np
import pytest

from momentalign.errors import InvalidInputError
from momentalign.paper.sensitivity import claims, make_panels, ratios_to_reference

TASKS = ["books->dvd", "books->kitchen", "dvd->books"]
ORDERS, BETAS, SIZES = list(range(1, 8)), np.linspace(0.3, 1.7, 7).tolist(), [128, 256, 384]


def spread(columns, weights):
    """Accuracies [task][weight][value] whose mean over the weights is `columns` for every task."""
    shifts = np.linspace(-0.01, 0.01, weights)
    return (np.ones((len(TASKS), weights, 1)) * np.asarray(columns) + shifts[None, :, None]).tolist()


@pytest.fixture
def result():
    """A result in which every statement of the paper holds."""
    plain = np.full((len(TASKS), 3), 0.75)
    return {
        "tasks": TASKS,
        "panels": {
            "cmd_orders": {
                "weights": [0.3, 1.0, 3.0],
                "orders": ORDERS,
                "accuracy": spread([0.76, 0.78, 0.799, 0.8, 0.8, 0.801, 0.8], 3),
            },
            "mmd_betas": {
                "weights": [5.0, 45.0],
                "betas": BETAS,
                "accuracy": spread([0.7, 0.72, 0.74, 0.76, 0.78, 0.77, 0.76], 2),
            },
            "hidden": {
                "sizes": SIZES,
                "nn": plain.tolist(),
                "cmd": (plain * [1.04, 1.06, 1.05]).tolist(),
                "mmd": (plain * [1.03, 1.02, 1.01]).tolist(),
            },
        },
    }


def test_panels_stand_in_the_order_of_the_figure(result):
    panels = make_panels(result)
    assert list(panels) == ["cmd_orders", "mmd_betas", "cmd_hidden", "mmd_hidden"]
    assert all(panel.ratios.shape == (3, len(panel.values)) for panel in panels.values())


def test_upper_panels_are_means_over_the_weights_over_the_reference(result):
    panels = make_panels(result)
    orders = panels["cmd_orders"]
    assert (orders.reference, orders.values) == ("k = 5", tuple(ORDERS))
    assert orders.mean == pytest.approx(np.array([0.76, 0.78, 0.799, 0.8, 0.8, 0.801, 0.8]) / 0.8)
    betas = panels["mmd_betas"]
    assert betas.reference == "β = 1.23"
    assert betas.ratios[1] == pytest.approx(np.array([0.7, 0.72, 0.74, 0.76, 0.78, 0.77, 0.76]) / 0.78)


def test_the_mean_is_taken_before_the_ratio():
    accuracy = [[[0.2, 0.4], [0.9, 0.6]]]
    assert ratios_to_reference(accuracy, 1).tolist() == [[pytest.approx(1.1), 1.0]]


def test_every_task_is_divided_by_its_own_reference():
    accuracy = [[[0.4, 0.8]], [[0.9, 0.6]]]
    np.testing.assert_allclose(ratios_to_reference(accuracy, 1), [[0.5, 1.0], [1.5, 1.0]])


def test_lower_panels_are_ratios_to_the_plain_network_of_the_same_size(result):
    result["panels"]["hidden"]["nn"][2] = [0.5, 0.6, 0.7]
    panels = make_panels(result)
    assert panels["cmd_hidden"].ratios[2] == pytest.approx([0.78 / 0.5, 0.795 / 0.6, 0.7875 / 0.7])
    assert panels["mmd_hidden"].ratios[0] == pytest.approx([1.03, 1.02, 1.01])
    assert panels["cmd_hidden"].reference == "the plain network"


def test_every_statement_can_hold(result):
    found = claims(result)
    assert [claim.holds for claim in found] == [True] * 6
    assert "in 12 of 12 cases; at most 0.13 %" in found[0].here
    assert "3 with k = 1 and 3 with k = 2" in found[1].here
    assert found[3].here == "It is with β = 1.23."
    assert "by 4.0 to 6.0 %" in found[4].here
    assert "from 3.0 % at 128 to 1.0 % at 384 nodes" in found[5].here


@pytest.mark.parametrize(
    ("number", "panel", "part", "place", "value"),
    [
        (0, "cmd_orders", "accuracy", np.s_[0, :, 6], 0.81),
        (1, "cmd_orders", "accuracy", np.s_[:2, :, 1], 0.9),
        (2, "cmd_orders", "accuracy", np.s_[:, :, 0], 0.1),
        (3, "mmd_betas", "accuracy", np.s_[:, :, 0], 0.8),
        (4, "hidden", "cmd", np.s_[:, 1], 0.75 * 1.07),
        (4, "hidden", "cmd", np.s_[:, 0], 0.75 * 1.02),
        (5, "hidden", "mmd", np.s_[:, 2], 0.9),
    ],
)
def test_every_statement_can_fail_alone(result, number, panel, part, place, value):
    accuracy = np.array(result["panels"][panel][part])
    accuracy[place] = value
    result["panels"][panel][part] = accuracy.tolist()
    assert [index for index, claim in enumerate(claims(result)) if not claim.holds] == [number]


def test_a_partial_result_has_the_panels_and_statements_it_can_have(result):
    whole = copy.deepcopy(result)
    del result["panels"]["cmd_orders"], result["panels"]["hidden"]["mmd"]
    assert list(make_panels(result)) == ["mmd_betas", "cmd_hidden"]
    assert [claim.paper for claim in claims(result)] == [claims(whole)[index].paper for index in (3, 4)]
    assert make_panels({**result, "panels": {}}) == {}
    assert claims({**result, "panels": {}}) == []


def test_statements_about_orders_need_those_orders(result):
    orders = result["panels"]["cmd_orders"]
    orders |= {"orders": [4, 5], "accuracy": spread([0.8, 0.8], 3)}
    assert len(claims(result)) == 4


def test_a_shape_that_does_not_fit_is_named(result):
    del result["panels"]["hidden"]["cmd"][0]
    with pytest.raises(
        InvalidInputError, match=r"hidden\.cmd of shape \(2, 3\), its tasks and values ask for \(3, 3\)"
    ):
        make_panels(result)


@pytest.mark.parametrize("value", [0.0, None])
def test_an_accuracy_to_divide_by_must_be_there(result, value):
    result["panels"]["hidden"]["nn"][0][0] = value
    with pytest.raises(InvalidInputError, match=r"hidden\.nn with (0|nan) in it; accuracies to divide by"):
        make_panels(result)
