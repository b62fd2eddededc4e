"""Rank 1 of two calls verify_agreement and init when rank 0, which keeps the store, stops and ends.

Prints for each call the error and the seconds that it took, as one line of JSON.
"""

import json
import os
import signal
import time

import torch.distributed as dist

import fastseed
from fastseed.distributed import rendezvous

rendezvous.GRACE = 1.0


def outcome(call, *arguments, **more):
    since = time.monotonic()
    try:
        call(*arguments, **more)
        said = "no error"
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
    return said, time.monotonic() - since


dist.init_process_group("gloo")
rank = dist.get_rank()
pids = [None, None]
dist.all_gather_object(pids, os.getpid())
fastseed.init(42)
dist.barrier()
found = {}
if rank == 0:
    os.kill(os.getpid(), signal.SIGSTOP)
else:
    verify = fastseed.distributed.verify_agreement
    time.sleep(0.5)
    found["stopped"] = outcome(verify, timeout=1.0)
    os.kill(pids[0], signal.SIGCONT)
    time.sleep(0.5)
    found["ended"] = outcome(verify, timeout=1.0)
    found["init"] = outcome(fastseed.init, 42)
print(json.dumps(found), flush=True)
os._exit(0)
