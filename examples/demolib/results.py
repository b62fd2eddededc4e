"""Read what the ranks of a run wrote, and check that the runs agree as they should."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Run:
    """One training run, from its first epoch to its last, in however many processes."""

    name: str  # "a"
    how: str  # "torchrun"
    ranks: int  # that ended it
    master_seeds: tuple[int, ...]  # of every rank of every process group
    digests: tuple[str, ...]  # SHA-256 of all parameters at the end, by rank
    losses: dict[int, float]  # by epoch
    accuracy: float
    samples: str  # SHA-256 of the log of all samples, in the order of the epochs
    resumed_at: tuple[int, int] | None  # epoch, step
    seconds: float


@dataclass(frozen=True)
class Check:
    claim: str
    holds: bool


def read_run(name: str, how: str, folders: list[Path], seconds: float) -> Run:
    """Put a run together from the folders of its launches, the last of which ended it."""
    launches = [[read_lines(file) for file in rank_files(folder)] for folder in folders]
    starts = [[rank[0] for rank in launch] for launch in launches]
    epochs = [line for launch in launches for line in launch[0] if line["event"] == "epoch"]
    last = starts[-1][0]
    return Run(
        name=name,
        how=how,
        ranks=last["ranks"],
        master_seeds=tuple(start["master_seed"] for launch in starts for start in launch),
        digests=tuple(rank[-1]["sha256"] for rank in launches[-1]),
        losses={line["epoch"]: line["loss"] for line in epochs},
        accuracy=epochs[-1]["accuracy"],
        samples=sample_log(folders),
        resumed_at=(last["epoch"], last["step"]) if last["epoch"] or last["step"] else None,
        seconds=seconds,
    )


def sample_log(folders: list[Path]) -> str:
    """Return a digest of the samples that all ranks logged, in the order of the epochs."""
    lines = [
        line.split()
        for folder in folders
        for file in folder.glob("rank*.txt")
        for line in file.read_text(encoding="utf-8").splitlines()
    ]
    lines.sort(key=lambda line: (int(line[0]), int(line[1])))
    return hashlib.sha256("\n".join(map(" ".join, lines)).encode()).hexdigest()


def rank_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("rank*.jsonl"), key=lambda file: int(file.stem[len("rank") :]))


def read_lines(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def verdict(
    runs: dict[str, Run],
    *,
    seed: int,
    epochs: int,
    ranks: int,
    stop: tuple[int, int],
    least_accuracy: float,
) -> list[Check]:
    """Every claim that the demo makes, each with whether it holds. A run that is absent fails it.

    Expected are a, b, c and e with the master seed ``seed``, b and e resumed at epoch and step
    ``stop``, e on one rank; and d1 and d2 with seeds of their own.
    """
    a, b, c, d1, d2, e = (runs.get(name) for name in ("a", "b", "c", "d1", "d2", "e"))
    if not (a and b and c and d1 and d2 and e):
        return [Check("all six runs took place", False)]
    everyone = (a, b, c, d1, d2, e)
    unseeded = (d1, d2)
    middle = f"epoch {stop[0]}, step {stop[1]}"
    return [
        Check(
            f"every run trained {epochs} epochs on {ranks} ranks, (e) ended on one",
            all(sorted(r.losses) == list(range(epochs)) for r in everyone)
            and all(len(r.digests) == r.ranks <= len(r.master_seeds) for r in everyone)
            and all(r.ranks == (1 if r is e else ranks) for r in everyone),
        ),
        Check(
            "(a), (b), (c) and (e) used the seed they were given", seeds_of(a, b, c, e) == {seed}
        ),
        Check(
            f"(b) and (e) were stopped mid-epoch, and resumed at {middle}",
            b.resumed_at == e.resumed_at == stop and a.resumed_at is None and stop[1] > 0,
        ),
        Check(
            "in every run, all ranks ended with the same parameters",
            all(len(set(r.digests)) == 1 for r in everyone),
        ),
        Check("(b) equals (a), to the last bit of parameters and losses", same(a, b)),
        Check("(c) equals (a), to the last bit of parameters and losses", same(a, c)),
        Check(
            "(b), (c) and (e) trained on the samples of (a): same order, same augmentation",
            all(r.samples == a.samples for r in (b, c, e)),
        ),
        Check(
            "(d1) and (d2): without a seed, the ranks agreed on a drawn one",
            all(len(seeds_of(r)) == 1 for r in unseeded),
        ),
        Check(
            "(a), (d1) and (d2) had three different seeds, samples and results",
            len(seeds_of(a, *unseeded)) == 3
            and len({r.samples for r in (a, *unseeded)}) == 3
            and len({digest for r in (a, *unseeded) for digest in r.digests}) == 3,
        ),
        Check(
            f"every run is right about more than {least_accuracy:.0%} of the held-out images",
            all(r.accuracy > least_accuracy for r in everyone),
        ),
    ]


def seeds_of(*runs: Run) -> set[int]:
    return {seed for run in runs for seed in run.master_seeds}


def same(one: Run, other: Run) -> bool:
    return one.digests == other.digests and one.losses == other.losses
