"""Train on handwritten digits while workers are killed and machines leave and join.

On each machine, of which one may be missing at any time:

    export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1
    torchrun --nnodes 1:2 --nproc-per-node 1 --max-restarts 100 --rdzv-backend c10d \
        --rdzv-endpoint HOST:29400 --rdzv-id digits train_elastic.py --out SHARED_FOLDER

torchrun restarts all workers when one dies or a machine comes or goes. They resume from the newest
checkpoint, on one rank or two, and the result is that of a run without interruption, bit for bit:

- The order of the samples and their augmentation are functions of the seed, for any number of ranks
  (``steps``, ``per_sample``). A checkpoint holds the position in that order.
- A step always has two parts, which one rank computes one after the other, or two ranks at a time.
  Dropout in a part uses the stream of that part (``fork_rng``), and the sum of two gradients does
  not depend on their order. With more than two parts, sum their gradients in a fixed order.

Every rank writes a line for each part before the step that uses it, so that a checker can prove
which samples were trained on (``chaos_elastic.py``).
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import random
import time
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.nn  # imported later, its defaults keep the group after its destruction
from torch import nn
from torch.utils.data import DataLoader, Dataset

import fastseed

TRAINING = 1  # the first argument of reseed; init begins with task 0, the initialization
IMAGES, BATCH = 1440, 32  # 45 steps in an epoch
PARTS = 2  # of a batch; a multiple of every number of ranks


class Digits(Dataset):
    """The first 1,440 of scikit-learn's digits; every image is varied at random."""

    def __init__(self, out: Path) -> None:
        file = out / "digits.pt"
        if not file.exists():  # importing scikit-learn takes longer than a hundred steps
            from sklearn.datasets import load_digits

            pixels, labels = load_digits(return_X_y=True)
            images = torch.from_numpy(pixels / 16).float().reshape(-1, 1, 8, 8)
            save_atomically((images, torch.from_numpy(labels)), file)
        self.images, self.labels = torch.load(file, weights_only=True)

    def __len__(self) -> int:
        return IMAGES

    def __getitem__(self, index: int) -> tuple[int, torch.Tensor, torch.Tensor]:
        shift = random.randint(-1, 1), random.randint(-1, 1)
        contrast = float(np.random.normal(1.0, 0.1))
        image = self.images[index] + 0.1 * torch.randn(1, 8, 8)
        return int(index), contrast * image.roll(shift, dims=(1, 2)), self.labels[index]


def build_model() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 64, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.Conv2d(64, 128, kernel_size=3, padding=1, stride=2),
        nn.ReLU(),
        nn.Dropout(0.2),
        nn.Flatten(),
        nn.Linear(128 * 4 * 4, 64),
        nn.ReLU(),
        nn.Dropout(0.2),
        nn.Linear(64, 10),
    )


class Momentum:
    """SGD with momentum, written out: an optimizer of torch.optim imports the compiler first, which
    would make a restart half as long again."""

    def __init__(self, model: nn.Module) -> None:
        self.parameters = list(model.parameters())
        self.velocities = [torch.zeros_like(parameter) for parameter in self.parameters]

    @torch.no_grad()
    def step(self) -> None:
        for parameter, velocity in zip(self.parameters, self.velocities, strict=True):
            velocity.mul_(0.9).add_(parameter.grad)
            parameter.sub_(velocity, alpha=0.02)
            parameter.grad = None

    def state_dict(self) -> dict:
        return {"velocities": self.velocities}

    def load_state_dict(self, state: dict) -> None:
        self.velocities = state["velocities"]


def save_atomically(state: object, path: Path) -> None:
    """Write beside, then rename: a process that is killed meanwhile leaves no damaged file."""
    partial = path.with_suffix(f".{os.getpid()}.partial")
    with partial.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


class Saver:
    """Writes checkpoints in a thread; the training loop waits for a copy in memory only."""

    def __init__(self, out: Path) -> None:
        self.out, self.seconds = out, 0.0
        self.pool, self.writing = ThreadPoolExecutor(1), Future()
        self.writing.set_result(None)

    def save(self, done: int, state: dict) -> None:
        begin = time.perf_counter()
        self.writing.result()  # raises what the previous one raised
        self.writing = self.pool.submit(self.write, done, copy.deepcopy(state))
        self.seconds += time.perf_counter() - begin

    def write(self, done: int, state: dict) -> None:
        save_atomically(state, self.out / f"step-{done:06d}.pt")
        for file in sorted(self.out.glob("step-*.pt"))[:-3]:
            file.unlink(missing_ok=True)


def agree_on_start(out: Path) -> tuple[int, Path | None]:
    """Return the number of this attempt and its checkpoint, as rank 0 finds them."""
    found: list = [None, None]
    if dist.get_rank() == 0:
        for partial in out.glob("step-*.partial"):  # of killed processes
            partial.unlink(missing_ok=True)
        attempt = 1 + max((int(folder.name[8:]) for folder in out.glob("attempt-*")), default=0)
        (out / f"attempt-{attempt:04d}").mkdir()
        found = [attempt, max(out.glob("step-*.pt"), default=None)]
    dist.broadcast_object_list(found)
    return found[0], found[1]


def train(out: Path, *, seed: int, epochs: int, save_every: int, step_seconds: float) -> None:
    """Train from the newest checkpoint in ``out`` to the end, on the ranks of the process group."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    mine = range(rank, PARTS, world_size)  # the parts of a step that this rank computes
    torch.set_num_threads(1)  # on a GPU call fastseed.deterministic() too

    fastseed.init(seed)  # task 0: initialization
    with fastseed.fork_rng("model", distinct_over=()):  # the same on every rank
        model = build_model()
    optimizer = Momentum(model)
    digits = fastseed.data.per_sample(Digits(out))
    loader = DataLoader(digits, BATCH // world_size, shuffle=True)
    steps = fastseed.data.steps(loader, epochs, task=TRAINING)
    parts_of_state = {"model": model, "optimizer": optimizer, "steps": steps}

    attempt, checkpoint = agree_on_start(out)
    done, parent = 0, 0
    if checkpoint:
        state = torch.load(checkpoint, weights_only=True)
        for name, part in parts_of_state.items():
            part.load_state_dict(state[name])
        done, parent = state["done"], state["attempt"]
    saver = Saver(out)

    def log(**fields: object) -> None:
        with (out / f"attempt-{attempt:04d}" / f"rank-{rank}.jsonl").open("a") as file:
            print(json.dumps(fields), file=file)

    log(world_size=world_size, pid=os.getpid(), start=done, parent=parent)
    for epoch, step, batch in steps:
        begin = time.monotonic()
        done = epoch * len(steps.loader) + step + 1
        for number, part in enumerate(mine):
            # Ranks take turns in the order: these are the same rows, however many ranks there are.
            rows = [values[number :: len(mine)].contiguous() for values in batch]
            log(step=done, epoch=epoch, part=part, **backward(model, rows, part))
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        if rank == 0 and (done % save_every == 0 or done == epochs * len(steps.loader)):
            state = {name: part.state_dict() for name, part in parts_of_state.items()}
            saver.save(done, {**state, "done": done, "attempt": attempt})
        time.sleep(max(0.0, begin + step_seconds - time.monotonic()))
    saver.writing.result()
    log(parameters=fastseed.debug.digest(model).hex, seconds_saving=saver.seconds)
    dist.barrier()  # torchrun does not restart a rank once another one has ended


def backward(model: nn.Module, rows: list[torch.Tensor], part: int) -> dict:
    """Add the gradients of one part of a step, and return what is to be logged of it."""
    indices, images, labels = rows
    with fastseed.fork_rng("forward", index=part, distinct_over=()):
        loss = nn.functional.cross_entropy(model(images), labels) / PARTS
    loss.backward()
    digest = fastseed.debug.digest(images).hex
    return {"samples": indices.tolist(), "images": digest, "loss": loss.item()}


def parse(description: str) -> dict:
    """Return the arguments of the command line."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--out", type=Path, required=True, help="folder that all machines share")
    parser.add_argument("--seed", type=int, default=1234)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--save-every", type=int, default=5, metavar="STEPS")
    parser.add_argument("--step-seconds", type=float, default=0.0, help="least time of a step")
    return vars(parser.parse_args())


def main() -> None:
    arguments = parse("Train on digits, on machines that come and go.")
    arguments["out"].mkdir(parents=True, exist_ok=True)
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    train(**arguments)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
