"""Resuming with generators; cudnn as an option says; a shuffle where the file seeds."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader

options = argparse.Namespace(deterministic=True)
torch.manual_seed(1)
torch.backends.cudnn.deterministic = options.deterministic
first = DataLoader([1, 2], shuffle=True)  # fault: FS205
second = DataLoader([3, 4], shuffle=True)


def resume(model, optimizer, path):
    checkpoint = torch.load(path)
    model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    torch.set_rng_state(checkpoint["rng"])


def train(images):
    nn.Conv2d(3, 4, 3)(images).sum().backward()
