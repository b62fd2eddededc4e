"""Print what two gloo ranks raise when a third is lost in a step: ``lost_in_step.py FOLDER``.

There is a job for each phase of a step, and for SIGKILL and SIGSTOP; all of them wait at the same
time. One line of JSON: for each job, the messages of the two ranks, whose models must be those of
before the step, without gradients.
"""

import json
import multiprocessing
import os
import signal
import sys
import time
from datetime import timedelta
from unittest import mock

import torch
import torch.distributed as dist
from torch import nn

import fastseed
from fastseed.distributed import rendezvous
from fastseed.elastic import SlotGradients, exchange

WORLD, SLOTS = 3, 6
PHASES = {  # the rank that is lost, and where: in which call of which function of its step
    "before its first slot": (2, None, "batch", 1),
    "in its block": (2, None, "batch", 2),
    "in the all-to-all": (2, dist, "all_to_all_single", 3),
    "in the record of the step": (2, dist, "all_reduce", 1),
    "in the counters": (2, dist, "all_reduce", 2),
    "in the all-to-all of buffers": (2, dist, "all_to_all_single", 8),
    "before the means of buffers are gathered": (2, exchange, "start_gather", 1),
    "while means of gradients are gathered": (2, exchange, "start_gather", 4),
}
WAYS = ("SIGKILL", "SIGSTOP")
rendezvous.GRACE = 3.0


def lost_at(how, count, call):
    """Return a function whose ``count``-th call ends or stops this process."""
    calls = iter(range(1, 1000))

    def counted(*given, **more):
        if next(calls) == count:
            time.sleep(0.5)  # what was sent before arrives
            os.kill(os.getpid(), getattr(signal, how))
        return call(*given, **more)

    return counted


def message(rank, phase, how):
    """Return the error of a step in which a rank is lost."""
    lost, module, name, count = PHASES[phase]
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    group = dist.new_group(timeout=timedelta(seconds=3))
    gradients = SlotGradients(model, SLOTS, group=group, bucket_mb=1e-6)

    def step(batch=lambda: torch.randn(2, 4)):
        for _, x in gradients.step(batch() for _ in gradients.own_slots):
            model(x).sum().backward()

    step()
    model.zero_grad()
    before = [tensor.clone() for tensor in model.state_dict().values()]
    dist.barrier()
    try:
        if rank != lost:
            step()
        elif module is None:
            step(lost_at(how, count, lambda: torch.randn(2, 4)))
        else:
            with mock.patch.object(module, name, lost_at(how, count, getattr(module, name))):
                step()
        return "no error"
    except RuntimeError as error:
        assert all(p.grad is None for p in model.parameters())
        after = model.state_dict().values()
        assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
        return str(error)


def work(rank, phase, how, path, results):
    torch.set_num_threads(1)
    where = {"init_method": f"file://{path}", "rank": rank, "world_size": WORLD}
    dist.init_process_group("gloo", timeout=timedelta(seconds=60), **where)
    fastseed.init(42)
    try:
        found = message(rank, phase, how)
    except AssertionError:
        found = "half applied"
    results.put((phase, how, rank, found))
    time.sleep(60)  # until the other rank has its message, too


if __name__ == "__main__":
    context = multiprocessing.get_context("fork")
    results, processes = context.Queue(), []
    for number, (phase, how) in enumerate((p, h) for p in PHASES for h in WAYS):
        for rank in range(WORLD):
            given = (rank, phase, how, f"{sys.argv[1]}/{number}", results)
            processes.append(context.Process(target=work, args=given, daemon=True))
            processes[-1].start()
    found = {}
    for _ in range(len(PHASES) * len(WAYS) * (WORLD - 1)):
        phase, how, rank, text = results.get(timeout=60)
        found.setdefault(f"{phase}, {how}", {})[rank] = text
    for process in processes:
        process.kill()
        process.join()
    print(json.dumps(found))
