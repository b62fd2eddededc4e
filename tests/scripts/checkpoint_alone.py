"""``checkpoint_alone.py FOLDER``: of two ranks the first alone saves. Prints what it was told."""

import json
import os
import sys
from datetime import timedelta

import torch.distributed as dist

import fastseed

folder = sys.argv[1]
child = os.fork()
rank = int(child == 0)
store = dist.FileStore(os.path.join(folder, "store"), 2)
dist.init_process_group("gloo", store=store, rank=rank, world_size=2, timeout=timedelta(seconds=2))
fastseed.init(42)
fastseed.reseed(1, 5)
if rank == 1:
    store.wait(["done"], timedelta(seconds=60))
    os._exit(0)
try:
    fastseed.checkpoint.save(os.path.join(folder, "one"))
    said = "saved"
except RuntimeError as error:
    said = str(error)
store.set("done", "1")
os.waitpid(child, 0)
print(json.dumps([said, os.listdir(folder)]), flush=True)
os._exit(0)
