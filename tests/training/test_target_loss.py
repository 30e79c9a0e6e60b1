"""The loss on target predictions: its value, its gradient in compiled loops, and the second phase it makes."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import sparse

from momentalign.discrepancies.central_moment import CMDLoss
from momentalign.networks.shallow import probabilities
from momentalign.training.config import NetworkSpec, Optimizer, Task, TrainingConfig
from momentalign.training.stack import train_stack
from momentalign.training.target_loss import epochs_between_shares, target_loss

CONFIG = TrainingConfig(hidden=(8,), optimizer=Optimizer("adam", 1e-2), batch_size=50, max_epochs=30, patience=None)


def _task(*, layout=np.asarray):
    random = np.random.default_rng(0)
    labels = np.arange(200) % 3
    rows = (random.normal(size=(200, 20)) + labels[:, None]).astype(np.float32)
    rows[np.abs(rows) < 0.7] = 0.0
    return Task(layout(rows), labels, layout(rows[:130] + np.float32(0.5)), 3)


def test_it_is_entropy_plus_divergence_from_the_shares():
    outputs = torch.randn(2, 5, 3, dtype=torch.float64)
    shares = torch.tensor([[0.2, 0.3, 0.5], [0.6, 0.2, 0.2]], dtype=torch.float64)
    found = outputs.softmax(-1)
    entropy = -(found * found.log()).sum(-1).mean(-1)
    mean = found.mean(-2)
    torch.testing.assert_close(target_loss(outputs, shares), entropy + (mean * (mean / shares).log()).sum(-1))


def test_classes_without_a_share_leave_it_finite():
    outputs = torch.tensor([[200.0, -200.0], [-200.0, 200.0]], requires_grad=True)
    loss = target_loss(outputs, torch.tensor([1.0, 0.0]))
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(outputs.grad).all()


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_matrix], ids=["dense", "sparse"])
@pytest.mark.parametrize("weight", [0.0, 0.5])
def test_compiled_loops_and_torch_train_the_same(layout, weight):
    spec = NetworkSpec(1, weight, CMDLoss(5) if weight else None, sharpen=0.5)
    task = _task(layout=layout)
    (compiled,) = train_stack(task, replace(CONFIG, compiled=True), [spec])
    (plain,) = train_stack(task, replace(CONFIG, compiled=False), [spec])
    for one, other in zip(compiled.layers, plain.layers, strict=True):
        np.testing.assert_allclose(one.weight, other.weight, atol=2e-4)
        np.testing.assert_allclose(one.bias, other.bias, atol=2e-4)


def test_a_sharpened_network_in_a_stack_is_the_network_alone():
    specs = [NetworkSpec(1, 0.5, CMDLoss(5), sharpen=share) for share in (0.0, 0.5, 1.0)]
    config = replace(CONFIG, compiled=False)
    together = train_stack(_task(), config, specs)
    for spec, network in zip(specs, together, strict=True):
        (alone,) = train_stack(_task(), config, [spec])
        np.testing.assert_array_equal(network.layers[0].weight, alone.layers[0].weight)


def test_predictions_for_the_target_become_more_confident():
    confidence = []
    for share in (0.0, 1.0):
        (network,) = train_stack(_task(), CONFIG, [NetworkSpec(1, sharpen=share)])
        confidence.append(probabilities(network.layers, _task().target).max(axis=1).mean())
        assert network.n_epochs == len(network.history.source_loss) == 30
    assert confidence[1] > confidence[0] + 0.02


def test_after_early_stopping_the_second_phase_is_as_long_as_the_first():
    task = _task()
    held_out = replace(task, validation=task.source[:60], validation_labels=task.labels[:60])
    config = replace(CONFIG, max_epochs=100, patience=2, optimizer=Optimizer("adam", 0.3))
    (plain,) = train_stack(held_out, config, [NetworkSpec(1)])
    (sharpened,) = train_stack(held_out, config, [NetworkSpec(1, sharpen=0.5)])
    assert sharpened.n_epochs == 2 * plain.n_epochs < 200


def test_without_a_target_nothing_is_sharpened():
    task = replace(_task(), target=None)
    (one,), (other,) = (train_stack(task, CONFIG, [NetworkSpec(1, sharpen=share)]) for share in (0.0, 1.0))
    np.testing.assert_array_equal(one.layers[0].weight, other.layers[0].weight)


def test_shares_are_looked_up_every_fifty_updates():
    assert [epochs_between_shares(updates) for updates in (1, 49, 50, 80)] == [50, 2, 1, 1]
