"""Print what DataLoader workers draw, as JSON: ``forked_workers.py MODE START_METHOD``.

MODE is what ``init(fork=...)`` gets: ``none`` or ``reseed``. With ``spawn``, whose processes start
slowly, it is the first epoch alone.
"""

import json
import logging
import os
import random
import sys

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

import fastseed
from fastseed.data import per_sample, worker_init_fn

logging.getLogger("fastseed").setLevel(logging.ERROR)


class Draws(Dataset):
    """Every item is what all generators of its process draw next."""

    def __init__(self, own):
        self.own = own

    def __len__(self):
        return 8

    def __getitem__(self, index):
        own = torch.randint(2**60, (), generator=self.own).item()
        mine = [random.getrandbits(60), int(np.random.randint(2**60))]
        return [*mine, torch.randint(2**60, ()).item(), own]


def main():
    fastseed.init(
        42, rank=3, world_size=8, on_os_fork=None if sys.argv[1] == "none" else sys.argv[1]
    )
    own = torch.Generator()
    fastseed.register_generator(own, name="own")
    data, found = Draws(own), {}
    more = {"num_workers": 2, "multiprocessing_context": sys.argv[2], "collate_fn": list}
    for epoch in range(2):
        fastseed.reseed(1, epoch)
        loader = DataLoader(data, batch_size=2, worker_init_fn=worker_init_fn, **more)
        found[f"workers {epoch}"] = [item for batch in loader for item in batch]
        if sys.argv[2] == "spawn":
            print(json.dumps(found), flush=True)
            os._exit(0)
    fastseed.reseed(1, 0)
    samples = per_sample(data)
    samples.set_epoch(2)
    loader = DataLoader(samples, batch_size=2, worker_init_fn=worker_init_fn, **more)
    found["samples"] = [item for batch in loader for item in batch]
    print(json.dumps(found), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
