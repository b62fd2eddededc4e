"""One rank of a job of any size: train small models by slots, and print what came of each.

    elastic_ranks.py CASE...

Prints one line of JSON: for each case a digest of weights, optimizer state and buffers, or what the
case returns. ``all_reduce`` is the negative control.
"""

import hashlib
import json
import logging
import os
import sys
import warnings
from unittest import mock

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

import fastseed
from fastseed.elastic import SlotGradients

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
STEPS, ROWS, WIDTH = 4, 4, 6

warnings.simplefilter("ignore")
logging.disable(logging.WARNING)
torch.set_num_threads(1)


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
    torch.manual_seed(0)
    return fastseed.nn.convert(Model(norm))


def slots_of(step, slots):
    data = torch.randn(slots, ROWS, WIDTH, generator=torch.Generator().manual_seed(step))
    return [data[s] for s in range(RANK, slots, WORLD)]


def digest(*values):
    """SHA-256 of the bits of tensors in nested containers."""
    found, todo = hashlib.sha256(), list(values)
    while todo:
        value = todo.pop(0)
        if isinstance(value, torch.Tensor):
            found.update(value.detach().reshape(-1).view(torch.uint8).numpy().tobytes())
        elif isinstance(value, dict):
            todo[:0] = [part for item in value.items() for part in item]
        elif isinstance(value, (list, tuple)):
            todo[:0] = value
        else:
            found.update(repr(value).encode())
    return found.hexdigest()


def train(slots=8, norm=False, weighted=False, bucket_mb=1e-4):
    """Train, and return a digest of everything."""
    model = make(norm)
    gradients = SlotGradients(model, slots, bucket_mb=bucket_mb)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(STEPS):
        fastseed.reseed(1, 0, step=step)
        for slot, batch in gradients.step(slots_of(step, slots)):
            loss = model(batch).square()
            if weighted:
                slot.weight = 1 + slot.number % 3
            (loss.sum() if weighted else loss.mean()).backward()
        optimizer.step()
        optimizer.zero_grad()
    assert model.unused not in optimizer.state
    return digest(model.state_dict(), optimizer.state_dict()["state"])


def steps():
    """Train on a dataset: order, slots, dropout and gradients together."""
    model = make()
    gradients, optimizer = SlotGradients(model, 6), torch.optim.AdamW(model.parameters(), lr=1e-2)
    data = torch.randn(50, WIDTH, generator=torch.Generator().manual_seed(0))
    loader = torch.utils.data.DataLoader(data, batch_size=2, shuffle=True)
    for _, _, batches in fastseed.data.steps(loader, epochs=1, task=1, slots=6):
        for _, batch in gradients.step(batches):
            model(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return digest(model.state_dict(), optimizer.state_dict()["state"])


def all_reduce(slots=8):
    """As train, with the gradients of the slots of a rank added, and then those of the ranks."""
    model = make()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(STEPS):
        fastseed.reseed(1, 0, step=step)
        for j, batch in enumerate(slots_of(step, slots)):
            with fastseed.nn.rows(j * WORLD + RANK, slots, count=1):
                (model(batch).square().mean() / slots).backward()
        for p in model.parameters():
            if p.grad is None and p.requires_grad:
                p.grad = torch.zeros_like(p)
            if WORLD > 1 and p.requires_grad:
                dist.all_reduce(p.grad)
        optimizer.step()
        optimizer.zero_grad()
    return digest(model.state_dict())


def subgroups():
    """The first rank alone, and the others together."""
    groups = [dist.new_group([0]), dist.new_group(list(range(1, WORLD)))]
    group = groups[RANK > 0]
    rank, ranks = dist.get_rank(group), dist.get_world_size(group)
    if RANK > 0:
        group = DeviceMesh.from_group(group, "cpu")
    model = make()
    data = torch.randn(5, ROWS, WIDTH, generator=torch.Generator().manual_seed(0))
    for _, batch in SlotGradients(model, 5, group=group).step([*data[rank::ranks]]):
        model(batch).square().mean().backward()
    return digest([p.grad for p in model.parameters() if p.grad is not None])


# ---------------------------------------------------------------- what is sent, and when


def overlap():
    """Return how many of the buckets were sent before the backward pass had its last gradient."""
    model, events = make(), []
    model.embed.weight.register_post_accumulate_grad_hook(lambda p: events.append("last"))
    gradients = SlotGradients(model, WORLD, bucket_mb=1e-6)
    real = dist.all_to_all_single

    def send(*args, **more):
        events.append("sent")
        return real(*args, **more)

    with mock.patch.object(dist, "all_to_all_single", send):
        for _, batch in gradients.step(slots_of(0, WORLD)):
            batch[0, 0] = -1.0  # the first expert; what it leaves out would delay other buckets
            (model(batch).sum() + model.unused.sum() + model.experts[1](batch).sum()).backward()
    return events.index("last"), events.count("sent")


def constants():
    """Return the elements of buffers that are sent in three steps, and the buffers afterwards.

    ``late`` changes in the second step for the first time.
    """
    torch.manual_seed(0)
    model, sent = nn.Linear(WIDTH, 1), []
    model.register_buffer("table", torch.ones(1000))
    model.register_buffer("late", torch.zeros(10))
    gradients, real = SlotGradients(model, 4), dist.all_to_all_single

    def scatter(out, leaf, *more, **options):
        sent[-1] += leaf.numel()
        return real(out, leaf, *more, **options)

    with mock.patch.object(dist, "all_to_all_single", scatter):
        for step in range(3):
            sent.append(0)
            for slot, batch in gradients.step(slots_of(step, 4)):
                model(batch).sum().backward()
                if step > 0 and slot.number > 1:
                    model.late += slot.number
            model.zero_grad()
    return sent, model.late.tolist(), model.table.sum().item()


# ---------------------------------------------------------------- errors


def first_step(model, slots=WORLD):
    """Return the error of the object and its first step."""
    try:
        for slot, batch in SlotGradients(model, slots).step(slots_of(0, slots)):
            with fastseed.nn.label("first step"):
                model(batch).sum().backward()
            if hasattr(model, "seen"):
                model.seen += slot.number
    except (TypeError, ValueError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def models_differ():
    """Return the errors where rank 1 has another order, number, value or setting."""
    found = {}
    for change in ("order", "one more", "weight", "buffer", "dropout", "slots"):
        model = make(norm=True)
        if RANK == 1:
            with torch.no_grad():
                if change == "order":
                    model.norm = model._modules.pop("norm")
                elif change == "one more":
                    model.experts.append(nn.Linear(2, 2))
                elif change == "weight":
                    model.experts[1].weight[0, 0] += 1
                    model.frozen += 1
                elif change == "buffer":
                    model.norm.running_var += 1
                elif change == "dropout":
                    model.dropout.p = 0.2
        found[change] = first_step(model, WORLD + (change == "slots" and RANK == 1))
    return found


def one_refuses():
    return first_step(make(), WORLD * (RANK != 1))


def counters_differ():
    """A buffer of integers that depends on the slot, on all ranks but within none."""
    model = make()
    model.register_buffer("seen", torch.tensor(0))
    found = first_step(model)
    return found, model.seen.item(), [p.grad is None for p in model.parameters()]


CASES = {
    "base": train,
    "buckets": lambda: train(bucket_mb=25),
    "few": lambda: train(slots=2, norm=True),
    "odd": lambda: train(slots=5, norm=True, weighted=True),
    **{
        case.__name__: case
        for case in (
            *(steps, all_reduce, subgroups, overlap, constants),
            *(models_differ, one_refuses, counters_differ),
        )
    },
}


def main():
    if WORLD > 1:
        dist.init_process_group("gloo")
    found = {}
    for case in sys.argv[1:]:
        fastseed.init(42)
        found[case] = CASES[case]()
    print(json.dumps(found))
    if WORLD > 1:
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
