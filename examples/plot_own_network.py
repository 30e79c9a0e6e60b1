"""
Your own PyTorch network, one line
==================================

You have a training loop. Add the distance between the hidden activations of a labelled and of an unlabelled batch.
"""

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits
from torch import nn

import momentalign as ma

# %%
# Data
# ----
# Handwritten digits are the source; others in low contrast are the target.

images, labels = (torch.tensor(part) for part in load_digits(return_X_y=True))
images = images.float() / 16.0
source, source_labels = images[:900], labels[:900]
target, target_labels = 0.3 * images[900:] + 0.35, labels[900:]

# %%
# The loop
# --------
# ``CMDLoss()`` expects activations in [0, 1], such as those of a sigmoid; ``interval=(-1, 1)`` is for tanh.


def train(weight):
    """Train for 100 epochs and return the accuracy on the target after each."""
    torch.manual_seed(0)
    body = nn.Sequential(nn.Linear(64, 64), nn.Sigmoid())
    head = nn.Linear(64, 10)
    align = ma.CMDLoss()
    optimizer = torch.optim.Adam([*body.parameters(), *head.parameters()], lr=3e-3)
    curve = []
    for _ in range(100):
        for rows in torch.randperm(900).split(300):
            hidden, elsewhere = body(source[rows]), body(target[torch.randperm(len(target))[:300]])
            loss = nn.functional.cross_entropy(head(hidden), source_labels[rows])
            loss = loss + weight * align(hidden, elsewhere)  # the one line
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            curve.append((head(body(target)).argmax(1) == target_labels).float().mean().item())
    return curve


curves = {weight: train(weight) for weight in (0.0, 1.0)}
for weight, curve in curves.items():
    print(f"weight {weight:g}: {curve[-1]:.1%} of the target right")

# %%
# The accuracy after every epoch, without the line (weight 0) and with it.

figure, axis = plt.subplots(figsize=(6, 3.5), layout="constrained")
for weight, curve in curves.items():
    axis.plot(curve, label=f"weight {weight:g}")
axis.set(xlabel="epoch", ylabel="accuracy on the target", ylim=(0, 1))
axis.legend()
