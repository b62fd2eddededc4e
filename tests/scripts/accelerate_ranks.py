"""``accelerate_ranks.py FOLDER``: a rank of a job under Accelerate, as torchrun starts it.

It saves in mid-epoch and continues, then loads that and continues again. Prints, of both, what this
rank saw and drew; what Accelerate deals out of fastseed's samplers and its own; and an error.
"""

import json
import logging
import os
import sys
import warnings

import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration
from torch.utils.data import DataLoader

import fastseed
from fastseed.data.resumable_loader import ResumableLoader
from fastseed.data.sampler import ShuffleSampler
from fastseed.integrations.accelerate import AcceleratedJob

folder = sys.argv[1]
warnings.simplefilter("ignore")
logging.disable(logging.WARNING)


def rest(batches):
    return [[int(i) for i in batch] for batch in batches], torch.rand(2).tolist()


def dealt(loader, epoch):
    fastseed.reseed(1, epoch)
    return [int(i) for batch in loader for i in batch]


accelerator = Accelerator(
    cpu=True, dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True)
)
job = AcceleratedJob(accelerator, 42)
batches = ResumableLoader(range(12), batch_size=2, shuffle=True)
accelerator.register_for_checkpointing(batches)

job.train(1)
going = iter(batches)
next(going)
torch.rand(3)
accelerator.save_state(folder)
first = rest(going)
accelerator.wait_for_everyone()  # rank 0 writes what all ranks load

fastseed.reseed(3, 9)
accelerator.load_state(folder)
job.train(job.epoch)
again = rest(batches)

ours = accelerator.prepare(
    DataLoader(range(12), batch_size=2, sampler=ShuffleSampler(12, rank=0, world_size=1))
)
theirs = accelerator.prepare(DataLoader(range(12), batch_size=2, shuffle=True))
fastseed.register_generator(ours, name="ours")
fastseed.register_generator(theirs, name="theirs")
orders = [[dealt(loader, epoch) for epoch in (5, 6, 5)] for loader in (ours, theirs)]
accelerator.rng_types = ["torch"]
try:
    error = AcceleratedJob(accelerator)
except ValueError as refused:
    error = str(refused)
print(json.dumps({"first": first, "again": again, "orders": orders, "error": error}), flush=True)
os._exit(0)
