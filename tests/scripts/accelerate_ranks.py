"""``accelerate_ranks.py FOLDER``: a rank of jobs under Accelerate, as torchrun starts it.

Each job of ``JOBS`` runs whole, as public scripts do (a schedule, accumulation, metrics, evaluation
inside and between epochs, the main process alone saves), then again from ten of its steps, and from
steps that another number of ranks has saved in FOLDER. Prints what each run saw and drew.
"""

import gc
import hashlib
import itertools
import json
import logging
import os
import sys
import warnings

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState
from accelerate.utils import DataLoaderConfiguration
from torch.utils.data import BatchSampler, DataLoader, Dataset, Sampler, WeightedRandomSampler

import fastseed
from fastseed.data import ShuffleSampler
from fastseed.integrations.accelerate import attach

FOLDER, WORLD = sys.argv[1], int(os.environ["WORLD_SIZE"])
N, EPOCHS = 22, 2
warnings.simplefilter("ignore")
logging.disable(logging.WARNING)


class Mixed(Dataset):
    """Its sample depends on the epoch that it was told, and on generators."""

    epoch = -1

    def __len__(self):
        return N

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __getitem__(self, i):
        return torch.tensor([float(i), self.epoch, torch.rand(()).item(), np.random.rand()])


class Own(Sampler):
    """One with a generator, which Accelerate synchronizes; it continues from epoch to epoch."""

    def __init__(self):
        self.generator = torch.Generator()

    def __len__(self):
        return N

    def __iter__(self):
        return iter(torch.randperm(N, generator=self.generator).tolist())


class Lengths(Sampler):
    """Batches of 2 and 3."""

    def __len__(self):
        return 9

    def __iter__(self):
        order = iter(torch.randperm(N).tolist())
        for size in (2, 3, 2, 3, 2, 3, 2, 3, 2):
            yield [*itertools.islice(order, size)]


SHUFFLED = {"batch_size": 2, "shuffle": True}
JOBS = {  # settings of the DataLoader, of the DataLoaderConfiguration
    "plain": (SHUFFLED, {}),
    "uneven": (SHUFFLED, {"even_batches": False}),
    "split": ({**SHUFFLED, "batch_size": 4}, {"split_batches": True}),
    "dispatched": (SHUFFLED, {"dispatch_batches": True}),
    "dispatched split": (
        {**SHUFFLED, "batch_size": 4},
        {"dispatch_batches": True, "split_batches": True},
    ),
    "drop_last": ({**SHUFFLED, "batch_size": 4, "drop_last": True}, {}),
    "seedable": (SHUFFLED, {"use_seedable_sampler": True}),
    "stateful": (SHUFFLED, {"use_stateful_dataloader": True}),
    "ours": ({"batch_size": 2, "sampler": ShuffleSampler(N)}, {}),
    "weighted": ({"batch_size": 2, "sampler": WeightedRandomSampler(torch.ones(N), N)}, {}),
    "own": ({"batch_size": 2, "sampler": Own()}, {}),
    "batches": ({"batch_sampler": BatchSampler(range(N), 2, False)}, {}),
    "lengths": ({"batch_sampler": Lengths()}, {"even_batches": False}),
    "workers": ({**SHUFFLED, "num_workers": 2}, {}),
    "persistent": ({**SHUFFLED, "num_workers": 2, "persistent_workers": True}, {}),
    "dispatched workers": ({**SHUFFLED, "num_workers": 2}, {"dispatch_batches": True}),
}


def run(name, saving=False, resume=None, workers=None):
    settings, config = JOBS[name]
    gc.collect()  # persistent workers of the run before, which a fork would inherit
    AcceleratorState._reset_state()
    GradientState._reset_state()
    accelerator = Accelerator(
        cpu=True, gradient_accumulation_steps=2, dataloader_config=DataLoaderConfiguration(**config)
    )
    fastseed.derivation.context.seeder = None
    job = attach(accelerator, master_seed=42)
    settings = settings if workers is None else {**settings, "num_workers": workers}
    data = fastseed.data.per_sample(Mixed()) if settings.get("num_workers") else Mixed()
    batches, held_out = DataLoader(data, **settings), DataLoader(Mixed(), batch_size=4)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    steps = len(batches) * EPOCHS
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda i: max(0.0, 1 - i / steps))
    is_even = config.get("even_batches", True)  # else ranks would wait for one another
    model = accelerator.prepare_model(model, evaluation_mode=not is_even)
    optimizer, batches, held_out, scheduler = accelerator.prepare(
        optimizer, batches, held_out, scheduler
    )
    if resume is not None:
        accelerator.load_state(resume)
    seen = []

    def evaluate(epoch, step):
        checked = [one.tolist() for one in held_out]
        seen.append([epoch, step, "checked", checked, float(torch.rand(()))])

    for epoch in range(job.epoch, EPOCHS):
        for step, batch in enumerate(batches, job.step):
            gathered = accelerator.gather_for_metrics(batch) if is_even else batch[:0]
            with accelerator.accumulate(model):
                noise = torch.rand(())
                accelerator.backward((model(batch) * noise).mean())
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            rate = optimizer.param_groups[0]["lr"] if is_even else 0
            gathered = gathered[:, 0].tolist()
            seen.append([epoch, step, "trained", batch.tolist(), float(noise), rate, gathered])
            if step % 5 == 3:
                evaluate(epoch, step)
            # accumulated gradients are not saved
            if saving and accelerator.is_main_process and accelerator.sync_gradients:
                accelerator.save_state(f"{FOLDER}/{name}/{WORLD}-{epoch}-{step}")
        evaluate(epoch, 99)
    accelerator.wait_for_everyone()
    held = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
    return [json.loads(json.dumps(seen)), hashlib.sha256(held).hexdigest()]


def places(name, world):
    folder = f"{FOLDER}/{name}"
    found = os.listdir(folder) if os.path.isdir(folder) else []
    split = [[*map(int, one.split("-"))] for one in found]
    return sorted(one[1:] for one in split if one[0] == world)


result, is_first = {}, not any(places(name, WORLD) for name in JOBS)
for name in sys.argv[2].replace("+", " ").split(",") if len(sys.argv) > 2 else JOBS:
    result[name] = {"whole": [], "same": {}, "moved": {}}
    own = []
    if is_first:
        result[name]["whole"] = run(name, saving=True)
        torch.distributed.barrier() if torch.distributed.is_initialized() else None
        own = places(name, WORLD)
        own = own[-10:] if name in ("plain", "dispatched") else own[1::4]
        own = own[1:2] if "num_workers" in JOBS[name][0] else own
    for world in (1, 2):
        for epoch, step in own if world == WORLD else places(name, world)[1::3][:2]:
            found = run(name, resume=f"{FOLDER}/{name}/{world}-{epoch}-{step}")
            kind = "same" if world == WORLD else "moved"
            result[name][kind][f"{epoch}-{step}"] = found
print(json.dumps(result), flush=True)
os._exit(0)
