"""``checkpoint_alone.py FOLDER``: of two ranks the first alone saves. Prints its error."""

import json
import os
import sys
import time
from datetime import timedelta

import torch.distributed as dist

import fastseed

folder = sys.argv[1]
child = os.fork()
rank = int(child == 0)
store = dist.FileStore(os.path.join(folder, "store"), 2)
dist.init_process_group(
    "gloo", store=store, rank=rank, world_size=2, timeout=timedelta(seconds=100)
)
fastseed.init(42)
fastseed.reseed(1, 5)
if rank == 1:
    store.wait(["done"], timedelta(seconds=60))
    os._exit(0)
began = time.monotonic()
try:
    fastseed.checkpoint.save(os.path.join(folder, "one"), timeout=1, rng=True)
    text = "saved"
except TimeoutError as error:
    text = str(error)
store.set("done", "1")
os.waitpid(child, 0)
print(json.dumps([text, os.listdir(folder), time.monotonic() - began]), flush=True)
os._exit(0)
