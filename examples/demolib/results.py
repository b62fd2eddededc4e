"""What the ranks of a run wrote to disk, and whether the runs together are what they should be."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Run:
    """One training run, from its first epoch to its last, in however many processes."""

    name: str  # "a"
    how: str  # "torchrun"
    master_seeds: tuple[int, ...]  # of every rank of every process group
    digests: tuple[str, ...]  # SHA-256 of all parameters at the end, by rank
    losses: dict[int, float]  # by epoch
    accuracy: float
    resumed_at: int | None
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
    return Run(
        name=name,
        how=how,
        master_seeds=tuple(start["master_seed"] for launch in starts for start in launch),
        digests=tuple(rank[-1]["sha256"] for rank in launches[-1]),
        losses={line["epoch"]: line["loss"] for line in epochs},
        accuracy=epochs[-1]["accuracy"],
        resumed_at=starts[-1][0]["start_epoch"] or None,
        seconds=seconds,
    )


def rank_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("rank*.jsonl"), key=lambda file: int(file.stem[len("rank") :]))


def read_lines(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def verdict(
    runs: dict[str, Run], *, seed: int, epochs: int, ranks: int, least_accuracy: float
) -> list[Check]:
    """Every claim that the demo makes, each with whether it holds. A run that is absent fails it.

    Expected are a, b and c with the master seed ``seed``, and d1 and d2 with seeds of their own.
    """
    a, b, c, d1, d2 = (runs.get(name) for name in ("a", "b", "c", "d1", "d2"))
    if not (a and b and c and d1 and d2):
        return [Check("all five runs took place", False)]
    everyone = (a, b, c, d1, d2)
    unseeded = (d1, d2)
    return [
        Check(
            f"every run trained {epochs} epochs on {ranks} ranks",
            all(sorted(r.losses) == list(range(epochs)) for r in everyone)
            and all(len(r.digests) == ranks <= len(r.master_seeds) for r in everyone),
        ),
        Check("(a), (b) and (c) used the seed they were given", seeds_of(a, b, c) == {seed}),
        Check(
            f"(b) was stopped, and resumed at epoch {epochs // 2} by new processes",
            b.resumed_at == epochs // 2 and a.resumed_at is None,
        ),
        Check(
            "in every run, all ranks ended with the same parameters",
            all(len(set(r.digests)) == 1 for r in everyone),
        ),
        Check("(b) equals (a), to the last bit of parameters and losses", same(a, b)),
        Check("(c) equals (a), to the last bit of parameters and losses", same(a, c)),
        Check(
            "(d1) and (d2): without a seed, the ranks agreed on a drawn one",
            all(len(seeds_of(r)) == 1 for r in unseeded),
        ),
        Check(
            "(a), (d1) and (d2) had three different seeds and results",
            len(seeds_of(a, *unseeded)) == 3
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
