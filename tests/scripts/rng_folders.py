"""``rng_folders.py FOLDER``: a rank of a plain job of Accelerate, as torchrun starts it.

The job does not use fastseed. It saves after two of four steps (``saved``) and at the end
(``whole``), then resumes from ``saved`` and saves again at the end (``resumed``). Then it writes
folders of torch.distributed.checkpoint: ``dcp-shared``, where all ranks save under one name,
and ``dcp-ranks``, where each has its own.
"""

import logging
import os
import random
import sys
import warnings
from pathlib import Path

import numpy as np
import torch
import torch.distributed.checkpoint as dcp
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader

folder = Path(sys.argv[1])
warnings.simplefilter("ignore")
logging.disable(logging.WARNING)

accelerator = Accelerator(cpu=True)
set_seed(7, device_specific=True)
model, loader = accelerator.prepare(
    torch.nn.Linear(3, 1), DataLoader(torch.rand(24, 3), batch_size=3, shuffle=True)
)


def train(batches, save_after=None):
    for step, points in enumerate(batches):
        accelerator.backward(model(torch.nn.functional.dropout(points, 0.5)).mean())
        if step + 1 == save_after:
            accelerator.save_state(folder / "saved")


train(loader, save_after=2)
accelerator.save_state(folder / "whole")
accelerator.load_state(folder / "saved")
train(accelerator.skip_first_batches(loader, 2))
accelerator.save_state(folder / "resumed")

states = {
    "torch": torch.get_rng_state(),
    "numpy": np.random.get_state(),
    "python": random.getstate(),
}
dcp.save({"rng": states}, checkpoint_id=folder / "dcp-shared")
dcp.save({f"rank{accelerator.process_index}": states}, checkpoint_id=folder / "dcp-ranks")
print("[]", flush=True)
accelerator.wait_for_everyone()
os._exit(0)
