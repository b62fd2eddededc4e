"""Training without the switch: one finding. `fault: ID` ends a line with that fault."""

import torch
from torch import nn


def train(images, labels, index):
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ConvTranspose2d(4, 3, 1))  # fault: FS502
    loss = model(images).sum() + torch.gather(images, 0, index).sum()
    loss.backward()
