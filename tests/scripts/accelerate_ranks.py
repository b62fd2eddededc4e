"""``accelerate_ranks.py FOLDER``: a rank of a job under Accelerate, as torchrun starts it.

It trains as public scripts do: a schedule over the loader's length, accumulation, metrics, and the
main process alone saves. Then it resumes. Prints what this rank saw and drew, and errors.
"""

import hashlib
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
from fastseed.data import Loader, ShuffleSampler
from fastseed.integrations.accelerate import AcceleratedJob

folder, SAVED, EPOCHS, N = sys.argv[1], 10 if os.environ["WORLD_SIZE"] == "2" else 4, 2, 22
warnings.simplefilter("ignore")
logging.disable(logging.WARNING)


def run(resume=False, theirs=False):
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=4)
    fastseed.derivation.context.seeder = None
    job = AcceleratedJob(accelerator, master_seed=42)
    points = torch.arange(float(N))[:, None]
    batches = DataLoader(points, batch_size=2, shuffle=True)
    held_out = DataLoader(points, batch_size=3)
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    steps = len(batches) * EPOCHS
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda i: max(0.0, 1 - i / steps))
    model, optimizer, batches, held_out, scheduler = accelerator.prepare(
        model, optimizer, batches, held_out, scheduler
    )
    if resume:
        accelerator.load_state(folder)
    seen, rates, gathered, updates = [], [], [], 0
    for epoch in range(job.epoch, EPOCHS):
        metrics, checked = [], []
        for step, batch in enumerate(batches) if theirs else job.train(batches, epoch):
            rates.append(optimizer.param_groups[0]["lr"])
            metrics += accelerator.gather_for_metrics(batch).flatten().tolist()
            with accelerator.accumulate(model):
                noise = torch.rand(())
                accelerator.backward((model(batch) * noise).sum())
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            updates += accelerator.sync_gradients
            seen.append((epoch, step, batch.flatten().int().tolist(), float(noise)))
            if len(seen) == SAVED and accelerator.is_main_process and not (resume or theirs):
                accelerator.save_state(folder)
        with job.validate(epoch):
            for batch in held_out:
                checked += accelerator.gather_for_metrics(batch).flatten().tolist()
        gathered += [metrics, checked]
    accelerator.wait_for_everyone()  # rank 0 writes what all ranks load
    held = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
    return seen, rates, gathered, updates, hashlib.sha256(held).hexdigest()


def refused(made, seedable=False):
    config = DataLoaderConfiguration(use_seedable_sampler=seedable)
    accelerator = Accelerator(cpu=True, dataloader_config=config)
    try:
        return list(accelerator.prepare(made))
    except (TypeError, RuntimeError) as error:
        return str(error)


seen, rates, gathered, updates, digest = run()
rest, _, _, _, same = run(resume=True)
theirs = run(theirs=True)[1]
result = {"whole": seen, "rest": rest, "saved": SAVED, "digests": [digest, same]}
result |= {"rates": rates, "theirs": theirs, "gathered": gathered, "updates": updates}
fastseed.reseed(1, 0)
result["refused"] = {
    "resumable": refused(Loader(range(N), batch_size=2, shuffle=True)),
    "loader": refused(Loader(range(N), batch_size=2, shuffle=True)),
    "sampler": refused(DataLoader(range(N), batch_size=2, sampler=ShuffleSampler(N))),
    "seedable": refused(DataLoader(range(N), batch_size=2, sampler=ShuffleSampler(N)), True),
}
accelerator = Accelerator(cpu=True)
accelerator.rng_types = ["torch"]
try:
    result["error"] = str(AcceleratedJob(accelerator))
except ValueError as error:
    result["error"] = str(error)
print(json.dumps(result), flush=True)
os._exit(0)
