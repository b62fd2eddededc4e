"""Random histories of jobs, and a log of what a simulated loader gives in them, sample by sample.

The log is made without the closed forms of ``fastseed.data.lineage``: each rank takes its positions
one after another, and a kill cuts the log back to the checkpoint.
"""

from __future__ import annotations

import dataclasses
import functools
import random

import numpy as np

from helpers.inside import (
    KINDS,
    Entry,
    History,
    Mixture,
    OrderSpec,
    Quarantine,
    Skip,
    Source,
    derive,
    scalar,
    shares_of,
)

RESERVE = 2**24
Visit = tuple[int, ...]  # as fastseed.data.lineage.Visit


@dataclasses.dataclass
class Epoch:
    """The samples of an epoch, position by position."""

    master_seed: int
    epoch: int
    spec: OrderSpec

    def __post_init__(self) -> None:
        self._entry = functools.lru_cache(None)(self._make)
        self._scope = derive.scope_key(self.master_seed, 1, self.epoch, 0)
        if self.spec.kind == "mixture":
            self._mixture = Mixture(
                self._scope, self.spec.name, self.spec.sources, bool(self.spec.shuffled)
            )
            first = [0, self.spec.n + RESERVE]
            self._known = {
                p + k: (int(index), getattr(index, "occurrence", 0))
                for p in first
                for k, index in enumerate(self._mixture.share(p, 0, 1, self.spec.n + 64))
            }
        elif self.spec.kind == "shuffle":
            name = scalar.name_words(self.spec.name)
            key = derive.shuffle_key(self._scope, name, self.spec.n)
            self._key = key

    def _make(self, p: int) -> tuple[int, int]:
        n = self.spec.n
        if self.spec.kind == "mixture":
            return self._known[p]
        i = p % n
        return (
            i if self.spec.kind == "sequence" else derive.shuffle_index(self._key, n, i)
        ), p // n

    def entry(self, p: int, gone: set[int]) -> tuple[int, int]:
        """Sample and occurrence at a position, when some samples are in quarantine."""
        sample = self._entry(p)
        if sample[0] not in gone:
            return sample
        before = sum(self._entry(q)[0] in gone for q in range(p))
        spare = self.spec.n + RESERVE
        while True:
            if self._entry(spare)[0] not in gone:
                if before == 0:
                    return self._entry(spare)
                before -= 1
            spare += 1


def steps_of(entry: Entry, n: int) -> dict[int, list[tuple[int, int, int, int]]]:
    """(rank, slot, row, position) of the samples of each step that an attempt would do."""
    found: dict[int, list[tuple[int, int, int, int]]] = {}
    size, ranks = entry.batch_size, entry.ranks
    if entry.slots:
        p, step = entry.position, entry.step
        while p + (size * entry.slots if entry.drop_last else 1) <= n:
            deal = {s: s % ranks for s in range(entry.slots)}
            edges = [rank * entry.slots // ranks for rank in range(ranks + 1)]
            blocks = {s: rank for rank in range(ranks) for s in range(*edges[rank : rank + 2])}
            owner = blocks if entry.assignment == "blocks" else deal
            rows = [(owner[s], s, i) for s in range(entry.slots) for i in range(size)]
            found[step] = [(*row, p + k) for k, row in enumerate(rows)]
            p, step = p + len(rows), step + 1
        return found
    for rank in range(ranks):
        left = max(0, n - entry.position)
        count = left // ranks if entry.ranks_drop_last else -(-left // ranks)
        own = [entry.position + rank + k * ranks for k in range(count)]
        batches = [own[k : k + size] for k in range(0, len(own), size)]
        for j, batch in enumerate(batches):
            if len(batch) == size or not entry.drop_last:
                rows = [(rank, rank, i, p) for i, p in enumerate(batch)]
                found.setdefault(entry.step + j, []).extend(rows)
    return found


class Job:
    """A job that is simulated step by step, is killed, changed and resumed at random."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.master_seed = self.random.getrandbits(64)
        self.history = History(self.master_seed, 1)
        self.log: list[Visit] = []
        self.slots = self.random.choice([0, 0, 0, 1, 3, 4])
        self.slot_batch = self.random.randint(1, 3)
        self.drop_last = self.random.randint(0, 1)
        self.epochs = self.random.randint(1, 3)
        self.spec = self.new_order({})
        self.position = 0

    def new_order(self, skips: dict[str, int]) -> OrderSpec:
        choose = self.random
        n = choose.choice([1, 2, 7, 16, 30, 61])
        if skips == {} and choose.random() < 0.6:
            return KINDS[choose.choice(["shuffle", "shuffle", "sequence"])]("shuffle", n)
        count = len(skips) or choose.randint(1, 4)
        shares = shares_of([choose.choice([1, 2, 0.5, 5]) for _ in range(count)])
        sizes = [source.size for source in self.spec.sources] if skips else None
        sources = tuple(
            Source(
                f"s{k}", sizes[k] if sizes else choose.randint(1, 20), share, skips.get(f"s{k}", 0)
            )
            for k, share in enumerate(shares)
        )
        shuffled = self.spec.shuffled if skips else choose.randint(0, 1)
        return KINDS["mixture"]("mixture", n, sources, shuffled)

    def layout(self, step: int, position: int) -> Entry:
        choose = self.random
        ranks, size = choose.randint(1, 9), choose.randint(1, 5)
        flag = choose.choice([0, 0, self.drop_last])
        if self.slots:
            ranks, size, flag = choose.randint(1, self.slots + 1), self.slot_batch, self.drop_last
        ranks_drop = 0 if self.slots else flag
        point = self.history.epoch, step
        assignment = choose.choice(["deal", "blocks"]) if self.slots else "deal"
        return Entry(*point, position, 0, ranks, size, self.slots, flag, ranks_drop, assignment)

    def run(self) -> Job:
        """Attempt after attempt; the last one comes to the end."""
        for _ in range(self.random.randint(0, 4)):
            states = self.attempt(self.random.randint(1, 12))
            self.history, length, self.position, self.spec = self.random.choice(states)
            del self.log[length:]
            is_mixture = self.spec.kind == "mixture"
            if is_mixture and self.random.random() < 0.5 and not (self.slots and self.history.step):
                self.change_weights()
        self.attempt(None)
        return self

    def change_weights(self) -> None:
        scope = derive.scope_key(self.master_seed, 1, self.history.epoch, 0)
        mixture = Mixture(scope, self.spec.name, self.spec.sources, bool(self.spec.shuffled))
        counts = mixture.counts(self.position)
        parts = zip(self.spec.sources, counts, strict=True)
        self.spec = self.new_order({source.name: source.skip + count for source, count in parts})
        self.position = 0

    def attempt(self, stop: int | None) -> list[tuple]:
        """Do steps, with what happens between them; return a state after each."""
        layout, states, done = self.layout(self.history.step, self.position), [], 0
        states.append((self.history, len(self.log), self.position, self.spec))
        while self.history.epoch < self.epochs:
            epoch, step = self.history.point
            layout = layout._replace(epoch=epoch, step=step, position=self.position)
            self.history = self.history.with_entry(layout, self.spec)
            samples = Epoch(self.master_seed, epoch, self.spec)
            planned = steps_of(layout, self.spec.n)
            if stop is not None or self.random.random() < 0.5:
                self.change(list(planned), step)
            for step, rows in planned.items():
                skipped = any(
                    s.epoch == epoch and s.first <= step <= s.last for s in self.history.skips
                )
                if not skipped:
                    self.note(samples, step, rows)
                    done += 1
                self.position = min(
                    layout.position
                    + (step + 1 - layout.step) * layout.layout(self.spec.n).step_size,
                    self.spec.n,
                )
                self.history = self.history._replace(epoch=epoch, step=step + 1)
                states.append((self.history, len(self.log), self.position, self.spec))
                if stop is not None and done >= stop:
                    return states
                if self.random.random() < 0.1:
                    self.change(list(planned), step + 1)
            self.position = 0
            self.history = self.history._replace(epoch=epoch + 1, step=0)
            states.append((self.history, len(self.log), 0, self.spec))
        return states

    def note(self, samples: Epoch, step: int, rows: list[tuple[int, int, int, int]]) -> None:
        epoch = self.history.epoch
        gone = {sample for q in self.history.quarantines for sample in q.samples}
        for rank, slot, row, p in sorted(rows, key=lambda each: each[3]):
            self.log.append((epoch, step, rank, slot, row, p, *samples.entry(p, gone)))

    def change(self, steps: list[int], first: int) -> None:
        """Skip steps to come, or quarantine samples, from step ``first`` on."""
        journal, choose = self.history, self.random
        ahead = [step for step in steps if step >= first]
        if ahead and choose.random() < 0.4:
            a, b = sorted(choose.choices(ahead, k=2))
            taken = [s for s in journal.skips if s.epoch == journal.epoch]
            if not any(s.first <= b and a <= s.last for s in taken):
                skips = tuple(sorted((*journal.skips, Skip(journal.epoch, a, b))))
                self.history = journal._replace(skips=skips)
        elif choose.random() < 0.5 and self.spec.size > 8:
            known = {sample for q in journal.quarantines for sample in q.samples}
            some = set(choose.sample(range(self.spec.size), choose.randint(1, 3))) - known
            if some and self.spec.kind != "mixture" and 4 * len(some | known) < self.spec.n:
                new = Quarantine(journal.epoch, first, tuple(sorted(some)))
                self.history = journal._replace(quarantines=(*journal.quarantines, new))


def as_tuples(visits) -> list[Visit]:
    """The visits of ``fastseed.data.Lineage`` as a log has them."""
    return [visit[:8] for visit in visits.tolist()]


def chosen_samples(job: Job) -> np.ndarray:
    """All samples that exist in every order of a history."""
    return np.arange(min(spec.size for spec in job.history.orders))
