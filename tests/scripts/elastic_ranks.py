"""One rank of a job of any size: train small models by slots, and print what came of each.

    elastic_ranks.py CASE...

Prints one line of JSON: for each case a digest of weights, optimizer state, buffers and losses, or
what the case says. A case that ends with "/all_reduce", "/arrival" or "/own" is a negative control.
"""

import gc
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
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

import fastseed
from fastseed.elastic import SlotGradients, exchange
from fastseed.elastic import slots as elastic_slots
from fastseed.elastic.tree import TreeSum

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


def make(dtype=torch.float32, norm=False):
    torch.manual_seed(0)
    return fastseed.nn.convert(Model(norm)).to(dtype)


def slots_of(step, slots, dtype):
    data = torch.randn(slots, ROWS, WIDTH, generator=torch.Generator().manual_seed(step)).to(dtype)
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


def train(slots=8, dtype=torch.float32, norm=False, weighted=False, scaled=False, bucket_mb=1e-4):
    """Train, and return a digest of everything."""
    model = make(dtype, norm)
    gradients = SlotGradients(model, slots, bucket_mb=bucket_mb)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, enabled=scaled)
    skipped = []
    for step in range(STEPS):
        fastseed.reseed(1, 0, step=step)
        for slot, batch in gradients.step(slots_of(step, slots, dtype)):
            with torch.autocast("cpu", torch.bfloat16, enabled=scaled):
                loss = model(batch).float().square()
            if weighted:
                slot.weight = 1 + slot.number % 3
            if scaled and (step, slot.number) == (1, 4):
                loss = loss * float("inf")
            scaler.scale(loss.sum() if weighted else loss.mean()).backward()
        before = digest(model.state_dict())
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        skipped.append(digest(model.state_dict()) == before)
    assert skipped == [scaled and step == 1 for step in range(STEPS)], skipped
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


def own_rows():
    """Dropout by the number of the slot among those of its rank."""

    def rows(slot, total, count):
        return fastseed.nn.rows(slot // WORLD, total, count=count)

    with mock.patch.object(elastic_slots, "rows", rows):
        return steps()


def all_reduce(slots=8):
    """As train, with the gradients of the slots of a rank added, and then those of the ranks."""
    model = make()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(STEPS):
        fastseed.reseed(1, 0, step=step)
        for j, batch in enumerate(slots_of(step, slots, torch.float32)):
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


class ArrivalSum(TreeSum):
    """Adds the leaves of a micro-step, and then their sum to the rest, as a reduce-scatter does."""

    total = now = None

    def push(self, leaf, *, borrowed=False):
        self.now = leaf.clone() if self.now is None else self.now + leaf

    def keep(self):
        if self.now is not None:
            self.total = self.now if self.total is None else self.total + self.now
            self.now = None

    def result(self):
        self.keep()
        total, self.total = self.total, None
        return total


def arrival():
    with mock.patch.object(exchange, "TreeSum", ArrivalSum):
        return train()


def own_statistics():
    """BatchNorm whose buffers are left to each rank."""
    model = make(norm=True)
    for batch in slots_of(0, 8, torch.float32):
        model.norm(model.embed(batch))
    return digest(dict(model.norm.named_buffers()))


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
        for _, batch in gradients.step(slots_of(0, WORLD, torch.float32)):
            batch[0, 0] = -1.0  # the first expert; what it leaves out would delay other buckets
            (model(batch).sum() + model.unused.sum() + model.experts[1](batch).sum()).backward()
    return events.index("last"), events.count("sent")


def memory():
    """Return by how much the object needs more memory than gradients, at its most in a step."""
    torch.manual_seed(0)
    model = nn.Linear(1019, 1)
    gradients, most = SlotGradients(model, 8), 0
    for _, batch in gradients.step([torch.ones(1, 1019)] * len(range(RANK, 8, WORLD))):
        model(batch).sum().backward()
        found = [t for t in gc.get_objects() if type(t) is torch.Tensor and t.dim() == 1]
        flat = [t for t in found if t.is_floating_point()]  # not states of generators
        storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in flat}
        most = max(most, sum(size for size in storages.values() if size > 1000))
    return most / (4 * 1020)


def traffic():
    """Return the elements that this rank sends to others in a step, and those of its parameters."""
    torch.manual_seed(0)
    model = nn.Linear(50, 20)
    gradients, sent = SlotGradients(model, 8), []
    real_scatter, real_gather = dist.all_to_all_single, exchange.all_gather

    def scatter(out, leaf, received, counts, **more):
        sent.append(leaf.numel() - (counts[RANK] if leaf.numel() else 0))
        return real_scatter(out, leaf, received, counts, **more)

    def gather(out, mean, **more):
        sent.append(mean.numel() * (WORLD - 1))
        return real_gather(out, mean, **more)

    with (
        mock.patch.object(dist, "all_to_all_single", scatter),
        mock.patch.object(exchange, "all_gather", gather),
    ):
        for _, batch in gradients.step([torch.ones(2, 50)] * len(range(RANK, 8, WORLD))):
            model(batch).sum().backward()
    return sum(sent), sum(p.numel() for p in model.parameters())


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
            for slot, batch in gradients.step(slots_of(step, 4, torch.float32)):
                model(batch).sum().backward()
                if step > 0 and slot.number > 1:
                    model.late += slot.number
            model.zero_grad()
    return sent, model.late.tolist(), model.table.sum().item()


# ---------------------------------------------------------------- errors


def refusal(call):
    try:
        call()
    except (TypeError, ValueError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def slots_differ():
    return refusal(lambda: SlotGradients(make(), 8 + (RANK == 1)))


def parameters_differ():
    model = make()
    if RANK == 1:
        model.experts.append(nn.Linear(2, 2))
    return refusal(lambda: SlotGradients(model, 8))


def first_step(model):
    """The error of the first step."""

    def step():
        for _, batch in SlotGradients(model, WORLD).step(slots_of(0, WORLD, torch.float32)):
            with fastseed.nn.label("first step"):
                model(batch).sum().backward()

    return refusal(step)


def order_differs():
    model = nn.ModuleDict()
    for name in "ab" if RANK != 1 else "ba":
        model[name] = nn.Linear(2, 2)
    return refusal(lambda: SlotGradients(model, 8))


def values_differ():
    found = []
    for change in ("weight", "buffer", "dropout"):
        model = make(norm=True)
        if RANK == 1:
            with torch.no_grad():
                if change == "weight":
                    model.experts[1].weight[0, 0] += 1
                    model.frozen += 1
                elif change == "buffer":
                    model.norm.running_var += 1
                else:
                    model.dropout.p = 0.2
        found.append(first_step(model))
    return found


def data_ranks_unknown():
    fastseed.init(42, mesh={"dp": (0, 1), "tp": (RANK, WORLD)})
    mesh = init_device_mesh("cpu", (WORLD, 1))
    return (
        refusal(lambda: SlotGradients(make(), 8)),
        refusal(lambda: SlotGradients(make(), 8, group=mesh)),
        refusal(lambda: SlotGradients(make(), 8, group=mesh if RANK == 1 else dist.group.WORLD)),
    )


def threads_differ():
    torch.set_num_threads(1 + (RANK == 1))
    found = refusal(lambda: SlotGradients(make(), 8))
    torch.set_num_threads(1)
    return found


def one_refuses():
    return refusal(lambda: SlotGradients(make(), 8 * (RANK != 1)))


def counters_differ():
    """A buffer of integers that depends on the slot, on all ranks but within none."""
    model = make()
    model.register_buffer("seen", torch.tensor(0))

    def step():
        for slot, batch in SlotGradients(model, WORLD).step(slots_of(0, WORLD, torch.float32)):
            model.seen += slot.number
            with fastseed.nn.label("counters"):
                model(batch).sum().backward()

    found = refusal(step)
    return found, model.seen.item(), [p.grad is None for p in model.parameters()]


CASES = {
    "base": train,
    "buckets": lambda: train(bucket_mb=25),
    "few": lambda: train(slots=2, norm=True),
    "odd": lambda: train(slots=5),
    "weighted": lambda: train(weighted=True),
    "bfloat16": lambda: train(dtype=torch.bfloat16),
    "float64": lambda: train(dtype=torch.float64),
    "scaled": lambda: train(scaled=True),
    "norm": lambda: train(norm=True),
    "steps": steps,
    "steps/own": own_rows,
    "base/all_reduce": all_reduce,
    "base/arrival": arrival,
    "norm/own": own_statistics,
    **{
        case.__name__: case
        for case in (
            subgroups, overlap, memory, traffic, slots_differ, parameters_differ, threads_differ,
            one_refuses, data_ranks_unknown, counters_differ, order_differs, values_differ,
            constants,
        )
    },
}  # fmt: skip


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
