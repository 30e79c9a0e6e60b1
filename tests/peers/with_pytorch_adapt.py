"""Our distance in the aligner hook of pytorch-adapt."""

import numpy as np
import pytest
import torch
from pytorch_adapt.hooks import AlignerHook, AlignerPlusCHook
from pytorch_adapt.weighters import MeanWeighter
from torch import nn

import momentalign as ma

RANDOM = np.random.default_rng(0)
YS, YT = np.arange(300) % 2, np.arange(240) % 2
XS = (RANDOM.normal(size=(300, 2)) + 3.0 * YS[:, None]).astype(np.float32)
XT = (RANDOM.normal(size=(240, 2)) + 3.0 * YT[:, None] + [0.0, 3.0]).astype(np.float32)
BATCH = {
    "src_imgs": torch.from_numpy(XS),
    "src_labels": torch.from_numpy(YS),
    "target_imgs": torch.from_numpy(XT),
    "src_domain": torch.zeros(300),
    "target_domain": torch.ones(240),
}


def networks():
    torch.manual_seed(0)
    return {"G": nn.Sequential(nn.Linear(2, 8), nn.Sigmoid()), "C": nn.Linear(8, 2)}


def test_the_hook_computes_our_distance():
    models = networks()
    _, losses = AlignerHook(loss_fn=ma.CMDLoss(), layer="features")({**models, **BATCH})
    with torch.no_grad():
        expected = ma.cmd(models["G"](BATCH["src_imgs"]).numpy(), models["G"](BATCH["target_imgs"]).numpy())
    assert losses["features_confusion_loss"].item() == pytest.approx(expected, rel=1e-4)


def accuracy(weight):
    models = networks()
    optimizer = torch.optim.Adam([*models["G"].parameters(), *models["C"].parameters()], lr=0.03)
    hook = AlignerPlusCHook(
        [optimizer],
        weighter=MeanWeighter(weights={"features_confusion_loss": weight}),
        aligner_hook=AlignerHook(loss_fn=ma.CMDLoss(), layer="features"),
    )
    for _ in range(200):
        hook({**models, **BATCH})
    with torch.no_grad():
        found = models["C"](models["G"](BATCH["target_imgs"])).argmax(1).numpy()
    return (found == YT).mean()


def test_training_through_the_hook_adapts():
    assert accuracy(weight=1.0) > accuracy(weight=0.0) + 0.05
