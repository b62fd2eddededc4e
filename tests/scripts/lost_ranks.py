"""Print what two of three gloo ranks raise when the third is lost: ``lost_ranks.py HOW STORE``.

It ends (SIGKILL), stops (SIGSTOP), or leaves a step by an exception and lives on (RAISE). One line
of JSON: for each of the ranks 0 and 1 the message of each collective call.
"""

import json
import multiprocessing
import os
import signal
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard, distribute_tensor

import fastseed
from fastseed import elastic
from fastseed.debug.checkup import assert_ranks_agree
from fastseed.distributed import rendezvous

LOST, WORLD = 2, 3
rendezvous.GRACE = 2.0


def messages(how):
    """Call whatever exchanges something between ranks; return the text of each error."""
    fastseed.init(42)
    torch.manual_seed(0)

    def group(seconds=60 if how == "RAISE" else 3):  # one for each call
        return dist.new_group(timeout=timedelta(seconds=seconds))

    def step(model, gradients):
        for _, x in gradients.step(torch.ones(1, 2, 4)):
            if how == "RAISE" and dist.get_rank() == LOST and gradients is not first:
                raise ValueError("of one rank")
            model(x).sum().backward()
        model.zero_grad()

    mesh = init_device_mesh("cpu", (WORLD,))
    sharded = distribute_tensor(torch.arange(6.0), mesh, [Shard(0)])
    calls = {
        "digest": lambda: fastseed.debug.digest(sharded),
        "assert_ranks_agree": lambda: assert_ranks_agree(torch.nn.Linear(2, 2)),
    }
    if how == "RAISE":
        calls = {}
    else:
        ranks = group()
        calls["mean"] = lambda: elastic.mean(torch.ones(1), group=ranks)
    first = None
    for name in ("replicated", "fully_shard"):
        of_model, model = group(), torch.nn.Linear(4, 4)
        if name == "fully_shard":
            fully_shard(model, mesh=DeviceMesh.from_group(of_model, "cpu"))
        first = gradients = elastic.SlotGradients(model, WORLD, group=of_model)
        step(model, gradients)
        first = None
        calls[name] = lambda model=model, gradients=gradients: step(model, gradients)
    if how != "RAISE":
        calls["first step"] = lambda: step(
            model, elastic.SlotGradients(torch.nn.Linear(4, 4), WORLD)
        )
        calls["verify_agreement"] = lambda: fastseed.distributed.verify_agreement(timeout=2)
        calls["init"] = lambda: fastseed.init()
    dist.barrier()
    if dist.get_rank() == LOST and how != "RAISE":
        os.kill(os.getpid(), getattr(signal, how))
    time.sleep(0.5)
    found, start = {}, time.monotonic()
    for name, call in calls.items():
        try:
            call()
            found[name] = "no error"
        except (RuntimeError, TimeoutError, TypeError, ValueError) as error:
            found[name] = str(error)
    found["seconds"] = time.monotonic() - start
    return found


def work(rank, path, results):
    torch.set_num_threads(1)
    where = {"init_method": f"file://{path}", "rank": rank, "world_size": WORLD}
    dist.init_process_group("gloo", timeout=timedelta(seconds=10), **where)
    results.put((rank, messages(sys.argv[1])))
    time.sleep(60)  # until the other rank has its answers, too


if __name__ == "__main__":
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    ranks = [context.Process(target=work, args=(r, sys.argv[2], results)) for r in range(WORLD)]
    for process in ranks:
        process.start()
    found = dict(results.get(timeout=150) for _ in range(WORLD - (sys.argv[1] != "RAISE")))
    for process in ranks:
        process.kill()
        process.join()
    print(json.dumps([found[rank] for rank in range(LOST)]))
