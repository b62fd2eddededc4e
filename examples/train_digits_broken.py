"""The twin of train_digits.py that cannot be repeated: each of its faults is one that people make.

    fastseed lint train_digits_broken.py

It runs, trains and prints, and nothing makes two runs of it alike. A line that ends in `fault: ID`
has the fault of that rule; docs/lint.md says how to mend it.
"""

from __future__ import annotations

import argparse
import os
import random
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, DistributedSampler, random_split

import fastseed as seeder

INITIALISATION = 0


class Digits(Dataset):
    """1,797 images of 8x8 pixels, varied at random."""

    def __init__(self, extra: Path | None) -> None:
        pixels, labels = load_digits(return_X_y=True)
        self.images = torch.from_numpy(pixels / 16).float().reshape(-1, 1, 8, 8)
        names = [f"digit {label}" for label in labels]
        classes = list(set(names))  # fault: FS402
        self.labels = torch.tensor([classes.index(name) for name in names])
        self.rng = np.random.default_rng()  # fault: FS102
        if extra is not None:
            more = [torch.load(extra / name) for name in os.listdir(extra)]  # fault: FS401
            self.images = torch.cat([self.images, *more])

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        noise = torch.from_numpy(self.rng.normal(0.0, 0.1, (1, 8, 8))).float()
        shift = random.randint(-1, 1), random.randint(-1, 1)
        return torch.roll(self.images[index], shift, dims=(1, 2)) + noise, self.labels[index]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(1, 16, kernel_size=3, padding=1)  # fault: FS502
        self.last = nn.Linear(16 * 16 * 16, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        large = functional.interpolate(images, scale_factor=2, mode="bilinear")  # fault: FS501
        hidden = functional.dropout(functional.relu(self.convolution(large)), 0.2, self.training)
        return self.last(hidden.flatten(1))


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train on scikit-learn's digits, each time anew.")
    parser.add_argument("--seed", type=int, default=int(time.time()))  # fault: FS104
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--extra", type=Path, help="folder of more images")
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    seeder.init(args.seed)
    seeder.reseed(INITIALISATION)
    torch.manual_seed(args.seed)  # fault: FS101

    model = Net()
    optimizer = torch.optim.Adam(model.parameters())
    train_set, held_out = random_split(Digits(args.extra), [0.8, 0.2])  # fault: FS202
    sampler = DistributedSampler(train_set) if dist.is_initialized() else None  # fault: FS204
    order = torch.Generator()  # fault: FS103
    if sampler is None:
        loader = DataLoader(  # fault: FS203 FS205
            train_set, batch_size=32, shuffle=True, num_workers=args.workers
        )
    else:
        loader = DataLoader(train_set, 32, sampler=sampler, generator=order)
    for epoch in range(args.epochs):  # fault: FS301
        model.train()
        for images, labels in loader:
            loss = functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            images, labels = zip(*held_out, strict=True)
            right = (model(torch.stack(images)).argmax(1) == torch.stack(labels)).float().mean()
        print(f"epoch {epoch}  held-out accuracy {right:.1%}")
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
