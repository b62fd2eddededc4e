"""Train a small convolutional network on scikit-learn's handwritten digits, repeatably.

    torchrun --nproc-per-node 2 train_digits.py --seed 1234 --workers 2 --checkpoint digits.pt
    torchrun --nproc-per-node 2 train_digits.py --resume digits.pt --epochs 40
    python train_digits.py                        # alone; the seed is drawn and printed

Random numbers come from everywhere at once, as they do in real scripts: initialization, dropout,
shuffling, and augmentation in worker processes that draws from ``random``, ``numpy.random`` and
``torch``. The lines with ``fastseed`` are all it takes to make every one of those a function of the
master seed, the epoch, the step and, for a sample, its index. A resumed job therefore restores
weights, the seed and where the loop was, and no generator; it may resume mid-epoch with other
ranks and workers (``--stop-after`` ends one there).
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import os
import random
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.nn  # imported later, its defaults keep the group after its destruction
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from tqdm import tqdm

import fastseed


class Digits(Dataset):
    """1,797 images of 8x8 pixels; every fifth is held out. Training images are varied at random."""

    def __init__(self, train: bool) -> None:
        pixels, labels = load_digits(return_X_y=True)
        chosen = (np.arange(len(labels)) % 5 != 0) == train
        self.images = torch.from_numpy(pixels[chosen] / 16).float().reshape(-1, 1, 8, 8)
        self.labels = torch.from_numpy(labels[chosen])
        self.train = train

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[int, torch.Tensor, torch.Tensor]:
        image = self.images[index]
        return int(index), (vary(image) if self.train else image), self.labels[index]


def vary(image: torch.Tensor) -> torch.Tensor:
    """Shift, change contrast, add noise: draws from three libraries."""
    shift = random.randint(-1, 1), random.randint(-1, 1)
    contrast = float(np.random.normal(1.0, 0.1))
    noise = 0.1 * torch.randn_like(image)
    return torch.roll(image, shift, dims=(1, 2)) * contrast + noise


def build_model() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 32, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, kernel_size=3, padding=1, stride=2),
        nn.ReLU(),
        nn.Dropout(0.2),
        nn.Flatten(),
        nn.Linear(64 * 4 * 4, 64),
        nn.ReLU(),
        nn.Dropout(0.2),
        nn.Linear(64, 10),
    )


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train on scikit-learn's digits, repeatably.")
    parser.add_argument("--seed", type=int, help="master seed (default: drawn, and printed)")
    parser.add_argument("--epochs", type=int, default=20, help="epochs in all (default: 20)")
    parser.add_argument("--batch-size", type=int, default=32, help="images per rank and step")
    parser.add_argument("--learning-rate", type=float, default=2e-3)
    parser.add_argument("--workers", type=int, default=0, help="loader processes of each rank")
    parser.add_argument("--checkpoint", type=Path, help="file to write after every epoch")
    parser.add_argument(
        "--stop-after", type=int, metavar="STEPS", help="write it and end after so many steps"
    )
    parser.add_argument("--resume", type=Path, help="checkpoint to resume from, seed included")
    parser.add_argument("--metrics", type=Path, help="folder for one file of JSON lines per rank")
    parser.add_argument("--samples", type=Path, help="folder for a log of every sample, per rank")
    parser.add_argument("--watch", type=Path, help="folder for digests of every step, per rank")
    args = parser.parse_args()
    if args.stop_after and not args.checkpoint:
        parser.error("--stop-after needs a --checkpoint to write")
    if args.resume and args.seed is not None:
        parser.error("--resume takes the seed from the checkpoint; leave out --seed")
    return args


def join_job() -> tuple[int, int, torch.device]:
    """Rank, world size and device, from what the launcher left in the environment."""
    rank, world_size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    local_rank = int(os.environ.get("LOCAL_RANK", rank))
    ranks_here = int(os.environ.get("LOCAL_WORLD_SIZE", world_size))
    device = torch.device("cpu")
    if torch.cuda.device_count() >= max(2, ranks_here):
        device = torch.device("cuda", local_rank)
        torch.cuda.set_device(device)
    if "RANK" in os.environ:
        dist.init_process_group("gloo" if device.type == "cpu" else "nccl")
    return rank, world_size, device


def run_deterministically() -> None:
    """Seeding fixes which numbers are drawn; this fixes what is computed from them."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    torch.set_num_threads(1)


def settle_buckets(parallel: nn.Module, images: torch.Tensor) -> None:
    """Let DistributedDataParallel see one backward pass, and forget its gradients.

    After its first pass it packs the gradients again, in the order of arrival. Three or more
    ranks then add some of them up in another order, which shows in the last bits; and a resumed
    process has its first pass in mid-training. With this one, every real step is packed alike.
    """
    parallel(images).sum().backward()
    parallel.zero_grad()


def train_step(model, optimizer, images, labels, device) -> None:
    model.train()
    loss = nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


@torch.no_grad()
def evaluate(model: nn.Module, data: Digits, device: torch.device) -> tuple[float, float]:
    """Mean loss and accuracy on the held-out images."""
    model.eval()
    labels = data.labels.to(device)
    outputs = model(data.images.to(device))
    right = (outputs.argmax(dim=1) == labels).double().mean()
    return nn.functional.cross_entropy(outputs, labels).item(), right.item()


def digest(model: nn.Module) -> str:
    """SHA-256 of every parameter's name, shape and bits."""
    sha = hashlib.sha256()
    for name, parameter in model.named_parameters():
        sha.update(f"{name} {tuple(parameter.shape)}\n".encode())
        sha.update(parameter.detach().cpu().contiguous().numpy().tobytes())
    return sha.hexdigest()


def save_checkpoint(path: Path, state: dict) -> None:
    """Write beside, then rename: a job killed in between leaves the previous checkpoint whole."""
    partial = path.with_suffix(".partial")
    torch.save(state, partial)
    partial.replace(path)


class Metrics:
    """One JSON object a line, each written out at once, in a file of this rank's own."""

    def __init__(self, folder: Path | None, rank: int) -> None:
        self.file = None
        if folder:
            folder.mkdir(parents=True, exist_ok=True)
            self.file = (folder / f"rank{rank}.jsonl").open("w", encoding="utf-8")

    def write(self, event: str, **fields: object) -> None:
        if self.file:
            print(json.dumps({"event": event, **fields}), file=self.file, flush=True)


class SampleLog:
    """A line for each sample that was trained on: epoch, place in its order, index, SHA-256."""

    def __init__(self, folder: Path | None, rank: int) -> None:
        self.file = None
        if folder:
            folder.mkdir(parents=True, exist_ok=True)
            self.file = (folder / f"rank{rank}.txt").open("w", encoding="utf-8")

    def write(self, epoch, place, stride, indices: torch.Tensor, images: torch.Tensor) -> None:
        if self.file:
            for k, (index, image) in enumerate(zip(indices.tolist(), images, strict=True)):
                sha = hashlib.sha256(image.numpy().tobytes()).hexdigest()
                print(epoch, place + k * stride, index, sha[:16], file=self.file)
            self.file.flush()


def train(args: argparse.Namespace, rank: int, world_size: int, device: torch.device) -> None:
    checkpoint = None
    if args.resume:
        checkpoint = torch.load(args.resume, map_location=device, weights_only=True)
        args.seed = checkpoint["master_seed"]

    fastseed.init(master_seed=args.seed)  # rank and world size are those of the launcher
    args.seed = fastseed.get_master_seed()

    model = build_model().to(device)  # initialized at task 0
    optimizer = torch.optim.Adam(model.parameters(), lr=args.learning_rate)
    train_set, held_out = Digits(train=True), Digits(train=False)
    loader = DataLoader(
        fastseed.data.per_sample(train_set),
        batch_size=args.batch_size,
        shuffle=True,
        drop_last=True,  # equal batches: the same ones, cut among however many ranks
        num_workers=args.workers,
        persistent_workers=args.workers > 0,
    )
    steps = fastseed.data.steps(loader, task=1)
    parts = {"model": model, "optimizer": optimizer, "steps": steps}
    if checkpoint:
        for name, part in parts.items():
            part.load_state_dict(checkpoint[name])
    parallel = DistributedDataParallel(model) if dist.is_initialized() else model
    settle_buckets(parallel, train_set.images[: args.batch_size].to(device))

    def save() -> None:
        if rank == 0 and args.checkpoint:
            states = {name: part.state_dict() for name, part in parts.items()}
            save_checkpoint(args.checkpoint, {"master_seed": args.seed, **states})

    if args.watch:
        number = steps.epoch * len(loader) + steps.step
        fastseed.debug.Watch(parallel, optimizer, path=args.watch, step=number).attach()
    metrics, samples = Metrics(args.metrics, rank), SampleLog(args.samples, rank)
    at = {"epoch": steps.epoch, "step": steps.step}
    metrics.write("start", master_seed=args.seed, ranks=world_size, **at)
    if rank == 0:
        print(f"master seed {args.seed}, {world_size} rank(s) on {device.type}", flush=True)
    begin = time.perf_counter()

    trained, stopped = 0, False
    # disable=None: no bar where standard error is not a terminal.
    bar = tqdm(range(steps.epoch, args.epochs), desc="epochs", disable=None if rank == 0 else True)
    for epoch in bar:
        for _, step, (indices, images, labels) in steps.in_epoch(epoch):  # reseeds each step
            place = step * args.batch_size * world_size + rank  # ranks take turns
            samples.write(epoch, place, world_size, indices, images)
            train_step(parallel, optimizer, images, labels, device)
            trained += 1
            if stopped := trained == args.stop_after:
                break
        if stopped:
            save()
            break
        loss, right = evaluate(model, held_out, device)
        metrics.write("epoch", epoch=epoch, loss=loss, accuracy=right)
        if rank == 0:
            tqdm.write(f"epoch {epoch:3d}  held-out loss {loss:.4f}  accuracy {right:.1%}")
        save()

    metrics.write("end", sha256=digest(model), seconds=time.perf_counter() - begin)


def main() -> None:
    args = parse_args()
    rank, world_size, device = join_job()
    run_deterministically()
    train(args, rank, world_size, device)
    # Were the model the last to hold gloo's threads, its end could wait for one that waits for
    # Python's lock: for ever (pytorch#56297). A Watch and the model hold each other.
    gc.collect()
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
