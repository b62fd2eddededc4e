"""Find the samples behind a jump of the loss, and train on from before it without them.

    python find_poisoned_batch.py --out first
    python find_poisoned_batch.py --out second --resume first/step-50.pt --leave-out 55

A small network learns scikit-learn's digits. The labels of 64 samples are permuted, and the order
has these samples in one step, where the loss jumps. The second command asks the checkpoint for the
samples of that step, quarantines them and trains on; then it compares the batches with those of the
first run, bit by bit. ``docs/lineage.md`` does the same with the command line.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, Dataset

import fastseed
from fastseed.tools import checkpoints

EPOCHS, BATCH, POISONED_STEP = 4, 64, 65  # counted over all epochs
Record = dict[int, dict[str, torch.Tensor]]  # by the number of the step


class Digits(Dataset):
    """Images of 8x8 pixels, with noise that is a function of the sample and the epoch."""

    def __init__(self) -> None:
        pixels, labels = load_digits(return_X_y=True)
        self.images, self.labels = torch.from_numpy(pixels / 16).float(), torch.from_numpy(labels)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int, generator: torch.Generator) -> tuple:
        noise = 0.1 * torch.randn(64, generator=generator)
        return int(index), self.images[index] + noise, self.labels[index]


class Job:
    """The parts of the training job."""

    def __init__(self) -> None:
        fastseed.init(42, rank=0, world_size=1)
        self.model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-2)
        data = Digits()
        samples = fastseed.data.per_sample(data, "torch")
        loader = DataLoader(samples, BATCH, shuffle=True, drop_last=True)
        self.steps = fastseed.data.steps(loader, EPOCHS)
        self.steps_per_epoch = len(self.steps.in_epoch(0))  # before any is done
        self.poisoned = self.samples_of(POISONED_STEP)
        order = torch.randperm(BATCH, generator=torch.Generator().manual_seed(0))
        data.labels[self.poisoned] = data.labels[self.poisoned[order]]

    def samples_of(self, number: int) -> torch.Tensor:
        lineage = self.steps.lineage()
        return torch.from_numpy(lineage.at(*checkpoints.locate(lineage, number)).sample)

    def parts(self) -> dict:
        return {"model": self.model, "optimizer": self.optimizer, "steps": self.steps}

    def save(self, path: Path) -> None:
        torch.save({name: part.state_dict() for name, part in self.parts().items()}, path)

    def load(self, path: Path) -> None:
        states = torch.load(path, weights_only=True)
        for name, part in self.parts().items():
            part.load_state_dict(states[name])

    def train(self, out: Path) -> Record:
        """Train to the end, with a checkpoint after every tenth step."""
        out.mkdir(parents=True, exist_ok=True)
        record: Record = {}
        for epoch, step, (indices, images, labels) in self.steps:
            number = epoch * self.steps_per_epoch + step
            loss = nn.functional.cross_entropy(self.model(images), labels)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            record[number] = {"samples": indices, "images": images, "loss": loss.detach()}
            if (number + 1) % 10 == 0:
                self.save(out / f"step-{number + 1}.pt")
        self.save(out / "last.pt")
        torch.save(record, out / "record.pt")
        return record


def jump(record: Record) -> tuple[int, float, float]:
    """Return the step with the largest jump of the loss, the loss there and in the 5 before."""
    losses = {number: float(one["loss"]) for number, one in record.items()}
    rises = {n: losses[n] - sum(losses[n - k] for k in range(1, 6)) / 5 for n in sorted(losses)[5:]}
    worst = max(rises, key=lambda n: rises[n])
    return worst, losses[worst], losses[worst] - rises[worst]


def compare(before: Record, after: Record, gone: torch.Tensor) -> str:
    """Compare two runs row by row; rows that had a sample of ``gone`` may have another one."""
    whole = other = 0
    for number, new in after.items():
        old = before[number]
        filled = torch.isin(old["samples"], gone)
        same = (old["samples"] == new["samples"]) & (old["images"] == new["images"]).all(dim=1)
        whole += int(same.all())
        other += int((~same & ~filled).sum())
        assert not torch.isin(new["samples"], gone).any(), f"step {number} has a removed sample"
    filled = sum(int(torch.isin(before[n]["samples"], gone).sum()) for n in after)
    return (
        f"{len(after)} steps: {whole} equal to the last bit; in the others {filled} rows of "
        f"removed samples are filled, and {other} other rows differ"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Find the samples behind a jump of the loss.")
    parser.add_argument("--out", type=Path, required=True, help="folder for checkpoints")
    parser.add_argument("--resume", type=Path, help="checkpoint from before the jump")
    parser.add_argument("--leave-out", type=int, metavar="STEP", help="whose samples go")
    args = parser.parse_args()
    torch.set_num_threads(1)
    job = Job()
    if args.resume is None:
        number, loss, usual = jump(job.train(args.out))
        print(f"the loss jumps from {usual:.2f} to {loss:.2f} at step {number}")
        return
    job.load(args.resume)
    gone = job.samples_of(args.leave_out)
    job.steps.quarantine(gone)
    after = job.train(args.out)
    before = torch.load(args.resume.parent / "record.pt", weights_only=True)
    old, new = (float(record[args.leave_out]["loss"]) for record in (before, after))
    print(f"the loss at step {args.leave_out} was {old:.2f}, and is {new:.2f}")
    print(compare(before, after, gone))


if __name__ == "__main__":
    main()
