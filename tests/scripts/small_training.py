"""A small training run without a fault; tests of `fastseed verify` plant them by its lines."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import fastseed

SAMPLES, BATCH, FEATURES = 32, 8, 16
STEPS = SAMPLES // BATCH


class Points(Dataset):
    """Points of a plane."""

    def __init__(self) -> None:
        draw = np.random.default_rng(5)
        self.x = draw.normal(size=(SAMPLES, FEATURES)).astype(np.float32)
        self.y = self.x.sum(axis=1, keepdims=True)

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, i: int):
        x = self.x[i]
        return x, self.y[i]


def penalty(weight: torch.Tensor) -> torch.Tensor:
    return 0.01 * weight.square().sum()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--resume", type=Path)
    parser.add_argument("--seed", type=int)
    args = parser.parse_args()
    torch.set_num_threads(1)

    begin, state = 0, None
    if args.resume:
        state = torch.load(args.resume, weights_only=True)
        args.seed, begin = state["seed"], state["epoch"]
    fastseed.init(args.seed)
    fastseed.reseed(0, 0)
    model = nn.Sequential(nn.Linear(FEATURES, 8), nn.Tanh(), nn.Dropout(0.2), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    points = Points()
    loader = DataLoader(points, batch_size=BATCH)
    if state:
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])

    with (
        fastseed.debug.Watch(model, optimizer, step=begin * STEPS) as watch,
        args.log.open("w") as log,
    ):
        for epoch in range(begin, args.epochs):
            fastseed.reseed(1, epoch)
            for i, (x, y) in enumerate(loader):
                loss = nn.functional.mse_loss(model(x), y) + penalty(model[0].weight)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                watch.record()
                row = {"step": epoch * STEPS + i, "loss": loss.item()}
                print(json.dumps(row), file=log, flush=True)
    saved = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "epoch": args.epochs,
        "seed": fastseed.get_master_seed(),
    }
    torch.save(saved, args.checkpoint)


if __name__ == "__main__":
    main()
