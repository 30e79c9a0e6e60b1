"""
With Lightning
==============

One call adapts a network at a named layer. Lightning does the training, so its features (checkpoints, precision,
several devices) are available too. Needs the extra ``deep``: ``pip install ".[deep]"`` in a checkout.
"""

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import momentalign as ma

torch.manual_seed(0)
images, labels = (torch.tensor(part) for part in load_digits(return_X_y=True))
images = images.float().reshape(-1, 1, 8, 8) / 16.0
source = TensorDataset(images[:900], labels[:900])
# The target is seen through another camera: darker, with a bright frame. Its labels are kept for the last line only.
other = torch.nn.functional.pad(0.5 * images[900:, :, 1:7, 1:7], (1, 1, 1, 1), value=0.4)
target = TensorDataset(other)

# %%
# The network, and the name of the layer to align
# -----------------------------------------------

network = nn.Sequential()
network.add_module("features", nn.Sequential(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(576, 64)))
network.add_module("squash", nn.Sigmoid())
network.add_module("head", nn.Linear(64, 10))

# %%
# One call, with weight 0 and with weight 1
# -----------------------------------------
# The given network stays as it is; the call returns an adapted copy.

found = {}
for weight in (0.0, 1.0):
    torch.manual_seed(0)
    adapted = ma.adapt(
        network,
        "squash",
        DataLoader(source, batch_size=300, shuffle=True),
        DataLoader(target, batch_size=300, shuffle=True),
        weight=weight,
        max_epochs=40,
        learning_rate=3e-3,
    )
    with torch.no_grad():
        found[weight] = adapted(other).argmax(1)
    print(f"weight {weight:g}: {(found[weight] == labels[900:]).float().mean():.1%} of the target right")

# %%
# Some target images and both predictions
# ---------------------------------------

figure, axes = plt.subplots(2, 8, figsize=(8, 2.6), layout="constrained")
for index, axis in enumerate(axes.flat):
    axis.imshow(other[index, 0].numpy(), cmap="gray", vmin=0, vmax=1)
    axis.set_title(f"{found[0.0][index]} → {found[1.0][index]}", fontsize=9)
    axis.axis("off")
