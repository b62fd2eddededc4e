"""Reinforcement learning in simulated time: producers, a trainer, checkpoints, and kills of all.

The length of a text is a function of its prompt and sample, with a heavy tail, and generating it
takes so much time. The text is a function of the weights of a policy version and the unit's seed;
the weights after a batch are a function of the weights before and the batch's texts, in order.
"""

from __future__ import annotations

import contextlib
import hashlib
import heapq
import itertools
import json
import random
from collections import Counter
from typing import Any

from fastseed.rollouts import LeaseError, Ledger, Unit


def length_of(number: int) -> int:
    """Return the length of a rollout: Pareto distributed, 1 to 400."""
    return min(400, int(random.Random(f"length {number}").paretovariate(1.1)))


def sha(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


class Job:
    """A run with kills: each event, and each point of a step, is one with a small probability.

    Args:
        kills: at most so many, of trainers and producers.
        seed: decides when, and who comes and goes.
        options: the arguments of the ledger.

    Attributes:
        chain: the batches that led to the weights, as numbers of rollouts.
        weights: by policy version.
        changed: how many batches that were trained again held something else than before.
    """

    SAVE_EVERY, RATE = 2, 0.06

    def __init__(self, *, kills: int, seed: int, **options: Any) -> None:
        self.options, self.random = options, random.Random(seed)
        self.now, self.numbers = 0.0, itertools.count()
        self.events: list[tuple[float, int, int, Unit, str]] = []
        self.producers: dict[int, Unit | None] = {}
        self.most_kills, self.killed = kills, Counter[str]()
        self.seen: dict[int, tuple[list[int], str]] = {}
        self.changed = 0
        self.generated: Counter[int] = Counter()
        self.chain: list[list[int]] = []
        self.weights = {0: sha("weights")}
        self.saved: tuple[int, dict[int, str], str | None] = (0, dict(self.weights), None)
        self.ledger = self.start(None)

    def start(self, state: str | None) -> Ledger:
        ledger = Ledger(master_seed=7, lease_seconds=900.0, **self.options)
        ledger._clock = lambda: self.now
        if ledger._results is not None:
            ledger._results._run("PRAGMA synchronous = OFF")  # no machine goes down here
        if state is not None:
            ledger.load_state_dict(json.loads(state))
        return ledger

    def run(self) -> Job:
        """Run until all is trained."""
        while not self.ledger.done:
            self.come_and_go()
            self.give_work()
            if not self.events:  # all have gone, or work for a trainer that is gone
                self.now += 1000.0  # leases end by time
                self.train()
                continue
            self.now, _, producer, unit, text = heapq.heappop(self.events)
            if self.producers.get(producer) is unit:  # else it was killed meanwhile
                self.producers[producer] = None
                self.generated[unit.number] += 1
                with contextlib.suppress(LeaseError):
                    self.ledger.complete(unit, text)
            self.train()
            if self.is_time_to_kill():
                self.kill()
        self.ledger.close()
        return self

    def come_and_go(self) -> None:
        if self.random.random() < 0.01 and self.producers:
            _, unit = self.producers.popitem()
            if unit is not None:
                with contextlib.suppress(LeaseError):
                    self.ledger.release(unit)
        if len(self.producers) < 3 or (len(self.producers) < 6 and self.random.random() < 0.05):
            self.producers[next(self.numbers)] = None

    def give_work(self) -> None:
        for producer, work in self.producers.items():
            if work is None and (units := self.ledger.lease()):
                self.producers[producer] = unit = units[0]
                length = length_of(unit.number)
                text = f"{length} {sha(self.weights[unit.version], 7, unit.number)}"
                ready = self.now + length * self.random.uniform(0.5, 1.5)
                heapq.heappush(self.events, (ready, next(self.numbers), producer, unit, text))

    def train(self) -> None:
        while (batch := self.ledger.next_batch()) is not None:
            if self.kill_trainer_at("before the batch is marked"):
                return
            version = self.ledger.version
            self.ledger.mark_trained(batch)
            del self.chain[version:]
            self.chain.append([unit.number for unit in batch.units])
            self.weights[version + 1] = sha(self.weights[version], batch.results)
            now = self.chain[version], self.weights[version + 1]
            self.changed += self.seen.setdefault(version, now) != now
            if self.kill_trainer_at("after a batch"):
                return
            if (version + 1) % self.SAVE_EVERY == 0:
                kept = {v: w for v, w in self.weights.items() if v >= version - 7}
                written = version + 1, kept, json.dumps(self.ledger.state_dict())
                if self.kill_trainer_at("between the two writes"):  # the file, then its name
                    return
                self.saved = written

    def is_time_to_kill(self) -> bool:
        left = self.most_kills - sum(self.killed.values())
        return left > 0 and self.random.random() < self.RATE

    def kill(self) -> None:
        if self.random.random() < 0.5:
            self.kill_trainer("anywhere")
        elif self.producers:
            del self.producers[self.random.choice(list(self.producers))]
            self.killed["producer"] += 1

    def kill_trainer_at(self, point: str) -> bool:
        if not self.is_time_to_kill():
            return False
        self.kill_trainer(point)
        return True

    def kill_trainer(self, point: str) -> None:
        """Start another trainer from the last checkpoint; producers keep what they have."""
        self.killed[point] += 1
        version, weights, state = self.saved
        self.weights = dict(weights)
        del self.chain[version:]
        self.ledger.close()  # as a process that is killed does
        self.ledger = self.start(state)

    def trained(self) -> Counter[int]:
        """Return how often each unit was trained in the chain that led to the result."""
        return Counter(itertools.chain.from_iterable(self.chain))
