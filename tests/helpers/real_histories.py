"""Histories of ``fastseed.data.steps`` on real loaders: what each rank was given, row by row."""

from __future__ import annotations

import json
import random

from torch.utils.data import DataLoader, Dataset

import fastseed
from fastseed.data import MixtureSampler, steps

from .loaders import Slots, point, same

Rows = dict[tuple[int, int], set[tuple[int, int, int, int, int]]]
"""(rank, slot, row, sample, occurrence) of each (epoch, step)."""


class Noted(Dataset):
    """Sample i is (i, its occurrence)."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: int):
        return int(i), getattr(i, "occurrence", 0)


class RealJob:
    """Attempts on several ranks, which run one after another in this process.

    Args:
        seed: of the history.
        workers: the greatest number of workers of an attempt.
    """

    def __init__(self, seed: int, workers: int = 0) -> None:
        self.random = random.Random(seed)
        self.workers = workers
        self.slots = self.random.choice([None, None, 3])
        self.size = self.random.choice([23, 40])
        self.drop_last = self.random.random() < 0.5
        self.is_mixture = self.random.random() < 0.4
        self.epochs = 2
        self.rows: Rows = {}
        self.state: dict | None = None

    def make(self, batch: int, workers: int, assignment: str):
        settings: dict = {"collate_fn": same, "num_workers": workers, "drop_last": self.drop_last}
        if self.is_mixture:
            half = self.size // 2
            sizes = {"a": half, "b": self.size - half}
            sampler = MixtureSampler(sizes, {"a": 2, "b": 1}, drop_last=self.drop_last)
            settings["sampler"] = sampler
        else:
            settings["shuffle"] = True
        loader = DataLoader(Noted(self.size), batch, **settings)
        slots = Slots(self.slots, assignment) if self.slots else None
        return steps(loader, self.epochs, task=1, slots=slots)

    def run(self) -> RealJob:
        for last in (False, False, True):
            self.attempt(None if last else self.random.randint(1, 5))
        return self

    def attempt(self, stop: int | None) -> None:
        """Go on from the latest state; later rows are those of this attempt."""
        choose = self.random
        world, batch = choose.randint(1, 4), 2 if self.slots else choose.randint(1, 4)
        workers = choose.randint(0, self.workers)
        assignment = choose.choice(["blocks", "deal"])
        at = (0, 0) if self.state is None else point(self.state)
        self.rows = {point: rows for point, rows in self.rows.items() if point < at}
        removed = choose.sample(range(self.size), 2), choose.randint(1, 3)
        skipped = choose.random() < 0.7
        states: list[list[dict]] = []
        for rank in range(world):
            fastseed.init(7, rank=rank, world_size=world)
            loop = self.make(batch, workers, assignment)
            edges = [r * self.slots // world for r in (rank, rank + 1)] if self.slots else ()
            if self.state is not None:
                loop.load_state_dict(self.state)
            states.append([])
            for count, (epoch, step, batches) in enumerate(loop, 1):
                own = enumerate(batches) if self.slots else [(0, batches)]
                for k, samples in own:
                    slot = rank + k * world if self.slots else rank
                    if self.slots and assignment == "blocks":
                        slot = range(*edges)[k]
                    rows = {(rank, slot, i, *sample) for i, sample in enumerate(samples)}
                    self.rows.setdefault((epoch, step), set()).update(rows)
                self.rows.setdefault((epoch, step), set())
                if count == removed[1]:
                    loop.quarantine(removed[0])
                if (
                    skipped
                    and count == 2
                    and world == 1
                    and loop.lineage().history.has_steps(epoch, step + 2)
                ):
                    loop.skip(epoch, step + 1, step + 2)
                states[-1].append(loop.state_dict())
                if count == stop:
                    break
            if stop is None:
                states[-1].append(loop.state_dict())
        journals = [[json.loads(state["journal"]) for state in each] for each in states]
        assert all(each == journals[0] for each in journals), "any rank's journal serves all"
        self.state = states[0][-1] if stop is None else choose.choice(states[0])
        after = point(self.state)
        self.rows = {point: rows for point, rows in self.rows.items() if point < after}
