"""An evolution strategy whose ranks exchange scores alone: eight members, on any number of ranks.

    python examples/train_evolution.py
    torchrun --standalone --nproc-per-node 4 examples/train_evolution.py

A member of a generation is the model plus noise from a seed of its own. Each rank scores its
members. Every rank then knows all scores, makes the noise of all members again from their seeds,
and adds it with the weights of an evolution strategy (Salimans et al., 2017). All runs print the
same SHA-256 of the weights.
"""

from __future__ import annotations

import argparse
import hashlib
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

import fastseed

MEMBERS, SCALE, RATE = 8, 0.02, 0.05


def score(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    """Return how well a member does, the larger the better."""
    return -F.mse_loss(model(x), y).item()


@torch.no_grad()
def train(model: nn.Module, generations: int) -> list[float]:
    """Return the score of the model before each generation."""
    rank, ranks = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    x = torch.linspace(-3, 3, 256).unsqueeze(1)
    y, found = x.sin(), []
    for generation in range(generations):
        found.append(score(model, x, y))
        scores = torch.zeros(MEMBERS, dtype=torch.float64)
        for member in range(rank, MEMBERS, ranks):
            seed = generation * MEMBERS + member
            with fastseed.nn.perturbed(model, seed=seed, scale=SCALE):
                scores[member] = score(model, x, y)
        if ranks > 1:
            dist.all_reduce(scores)  # 64 bytes: each member has a score on one rank, else 0
        merit = ((scores - scores.mean()) / (scores.std() + 1e-12)).tolist()
        log = [(generation * MEMBERS + member, merit[member]) for member in range(MEMBERS)]
        fastseed.nn.apply_log(model, log, lr=RATE / MEMBERS)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--generations", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1234, help="master seed")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    fastseed.init(args.seed)
    model = nn.Sequential(
        nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1)
    )
    with fastseed.nn.initialize(model):
        for part in model:
            if isinstance(part, nn.Linear):
                part.reset_parameters()
    scores = train(model, args.generations)
    found = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters()))
    if not dist.is_initialized() or dist.get_rank() == 0:
        print(f"score of the first and the last generation: {scores[0]:.4f} and {scores[-1]:.4f}")
        print(f"{args.generations} generations: weights {found.hexdigest()}", flush=True)
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
