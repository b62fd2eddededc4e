"""A model for ``SlotGradients`` on several ranks, and the batches of its slots."""

import torch
import torch.distributed as dist
from torch import nn

import fastseed

ROWS, WIDTH = 4, 6


class Model(nn.Module):
    """Dropout, two experts, a tied head, a frozen and an unused parameter, and maybe BatchNorm."""

    def __init__(self, norm=False):
        super().__init__()
        self.embed = nn.Linear(WIDTH, WIDTH, bias=False)
        self.norm = nn.BatchNorm1d(WIDTH) if norm else nn.LayerNorm(WIDTH)
        self.experts = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2))
        self.dropout = nn.Dropout(0.3)
        self.head = nn.Linear(WIDTH, WIDTH, bias=False)
        self.head.weight = self.embed.weight
        self.frozen = nn.Parameter(torch.full((WIDTH,), 0.5), requires_grad=False)
        self.unused = nn.Parameter(torch.ones(3))

    def forward(self, x):
        hidden = self.norm(self.embed(x) * self.frozen)
        return self.head(self.dropout(self.experts[int(x[0, 0] > 0)](hidden).tanh()))


def make(norm=False):
    fastseed.init(42)
    torch.manual_seed(0)
    return fastseed.nn.convert(Model(norm))


def place():
    return (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)


def slots_of(step, slots, own=None):
    rank, world = place()
    data = torch.randn(slots, ROWS, WIDTH, generator=torch.Generator().manual_seed(step))
    return [data[s] for s in (range(rank, slots, world) if own is None else own)]
