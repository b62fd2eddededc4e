"""Print what two of three gloo ranks raise when the third ends or stops: ``lost_ranks.py SIGNAL``.

One line of JSON: for each of the ranks 0 and 1 the message of each collective call.
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

LOST, WORLD = 2, 3


def messages():
    """Call whatever exchanges something between ranks; return the text of each error."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    import fastseed
    from fastseed.debug.tree_digest import assert_ranks_agree

    fastseed.init(42)
    mesh = init_device_mesh("cpu", (WORLD,))
    sharded = distribute_tensor(torch.arange(6.0), mesh, [Shard(0)])
    logits, group = torch.randn(2, 8), dist.group.WORLD
    calls = {
        "find_threshold": lambda: fastseed.sampling.find_threshold(logits, top_k=3, group=group),
        "digest": lambda: fastseed.debug.digest(sharded),
        "assert_ranks_agree": lambda: assert_ranks_agree(torch.nn.Linear(2, 2)),
    }
    dist.barrier()
    if dist.get_rank() == LOST:
        os.kill(os.getpid(), getattr(signal, sys.argv[1]))
    time.sleep(0.5)
    found = {}
    for name, call in calls.items():
        try:
            call()
            found[name] = "no error"
        except RuntimeError as error:
            found[name] = str(error)
    return found


def work(rank, path, results):
    torch.set_num_threads(1)
    where = {"init_method": f"file://{path}", "rank": rank, "world_size": WORLD}
    dist.init_process_group("gloo", timeout=timedelta(seconds=6), **where)
    results.put((rank, messages()))
    time.sleep(30)  # until the other rank has its answers, too


if __name__ == "__main__":
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    ranks = [context.Process(target=work, args=(r, sys.argv[2], results)) for r in range(WORLD)]
    for process in ranks:
        process.start()
    found = dict(results.get(timeout=100) for _ in range(WORLD - 1))
    for process in ranks:
        process.kill()
        process.join()
    print(json.dumps([found[rank] for rank in sorted(found)]))
