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
from typing import Any, Protocol

from fastseed.rollouts import LeaseError, Ledger, Unit


def length_of(number: int) -> int:
    """Return the length of a rollout: Pareto distributed, 1 to 400."""
    return min(400, int(random.Random(f"length {number}").paretovariate(1.1)))


def sha(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


class Accounting(Protocol):
    """A rule of which rollout is generated next, and which are trained on."""

    version: int
    done: bool

    def take(self) -> Any: ...
    def put(self, work: Any, text: str) -> None: ...
    def leave(self, work: Any) -> None: ...
    def next_batch(self) -> list[tuple[int, str]] | None: ...
    def mark_trained(self) -> None: ...
    def state(self) -> Any: ...


class ByLedger:
    """The ledger, as a trainer uses it. ``options`` are its arguments."""

    def __init__(self, now: list[float], options: dict[str, Any], state: Any = None) -> None:
        self.ledger = Ledger(master_seed=7, lease_seconds=900.0, **options)
        self.ledger._clock = lambda: now[0]
        if self.ledger._results is not None:
            self.ledger._results._run("PRAGMA synchronous = OFF")  # no machine goes down here
        if state is not None:
            self.ledger.load_state_dict(json.loads(state))
        self.refused = 0

    @property
    def version(self) -> int:
        return self.ledger.version

    @property
    def done(self) -> bool:
        return self.ledger.done

    def take(self) -> Unit | None:
        units = self.ledger.lease()
        return units[0] if units else None

    def put(self, work: Unit, text: str) -> None:
        try:
            self.ledger.complete(work, text)
        except LeaseError:
            self.refused += 1

    def leave(self, work: Unit) -> None:
        with contextlib.suppress(LeaseError):
            self.ledger.release(work)

    def next_batch(self) -> list[tuple[int, str]] | None:
        self.batch = self.ledger.next_batch()
        if self.batch is None:
            return None
        numbers = [unit.number for unit in self.batch.units]
        return list(zip(numbers, self.batch.results, strict=True))

    def mark_trained(self) -> None:
        self.ledger.mark_trained(self.batch)

    def state(self) -> str:
        return json.dumps(self.ledger.state_dict())


class Job:
    """A run with kills.

    Args:
        start: makes the accounting, from the time (a list of one number) and a state or None.
        kills: at most so many, of trainers and producers.
        seed: decides when, and who comes and goes.
        save_every: batches between two checkpoints.
        rate: the probability of a kill after each event, and at each point of a step.
        producers_die: False kills trainers only, and no producer leaves.

    Attributes:
        chain: the batches that led to the weights, as numbers of rollouts.
        weights: by policy version.
        changed: how many batches that were trained again held something else than before.
    """

    def __init__(
        self,
        start: Any,
        *,
        kills: int,
        seed: int,
        save_every: int = 2,
        rate: float = 0.06,
        producers_die: bool = True,
    ) -> None:
        self.start, self.save_every, self.rate = start, save_every, rate
        self.producers_die = producers_die
        self.random = random.Random(seed)
        self.now, self.numbers = [0.0], itertools.count()
        self.events: list[tuple[float, int, int, Any, str]] = []
        self.producers: dict[int, Any] = {}
        self.most_kills, self.killed = kills, Counter[str]()
        self.seen: dict[int, tuple[list[int], str]] = {}
        self.changed = 0
        self.generated: Counter[int] = Counter()
        self.chain: list[list[int]] = []
        self.weights = {0: sha("weights")}
        self.saved: tuple[int, dict[int, str], Any] = (0, dict(self.weights), None)
        self.accounting: Accounting = start(self.now, None)

    def run(self) -> Job:
        """Run until all is trained."""
        while not self.accounting.done:
            self.come_and_go()
            self.give_work()
            if (
                not self.events
            ):  # all have gone, or work for a trainer that is gone: leases end by time
                self.now[0] += 1000.0
                self.train()
                continue
            self.now[0], _, producer, work, text = heapq.heappop(self.events)
            if self.producers.get(producer) is work:  # else it was killed meanwhile
                self.producers[producer] = None
                self.generated[self.number(work)] += 1
                self.accounting.put(work, text)
            self.train()
            if self.is_time_to_kill():
                self.kill()
        return self

    def number(self, work: Any) -> int:
        return work.number if isinstance(work, Unit) else work[0]

    def come_and_go(self) -> None:
        if self.producers_die and self.random.random() < 0.01 and self.producers:
            _, work = self.producers.popitem()
            if isinstance(work, Unit):
                self.accounting.leave(work)
        if len(self.producers) < 3 or (len(self.producers) < 6 and self.random.random() < 0.05):
            self.producers[next(self.numbers)] = None

    def give_work(self) -> None:
        for producer, work in self.producers.items():
            if work is None and (taken := self.accounting.take()) is not None:
                self.producers[producer] = taken
                number = self.number(taken)
                version = taken.version if isinstance(taken, Unit) else taken[1]
                text = f"{length_of(number)} {sha(self.weights[version], 7, number)}"
                ready = self.now[0] + length_of(number) * self.random.uniform(0.5, 1.5)
                heapq.heappush(self.events, (ready, next(self.numbers), producer, taken, text))

    def train(self) -> None:
        while (batch := self.accounting.next_batch()) is not None and not self.accounting.done:
            if self.kill_trainer_at("before the batch is marked"):
                return
            version = self.accounting.version
            self.accounting.mark_trained()
            del self.chain[version:]
            self.chain.append([number for number, _ in batch])
            self.weights[version + 1] = sha(self.weights[version], [text for _, text in batch])
            now = self.chain[version], self.weights[version + 1]
            self.changed += self.seen.setdefault(version, now) != now
            if self.kill_trainer_at("after a batch"):
                return
            if (version + 1) % self.save_every == 0:
                kept = {v: w for v, w in self.weights.items() if v >= version - 7}
                written = version + 1, kept, self.accounting.state()
                if self.kill_trainer_at("between the two writes"):  # the file, then its name
                    return
                self.saved = written

    # ------------------------------------------------------------------ kills

    def is_time_to_kill(self) -> bool:
        left = self.most_kills - sum(self.killed.values())
        return left > 0 and self.random.random() < self.rate

    def kill(self) -> None:
        if self.random.random() < 0.5 or not self.producers_die:
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
        self.accounting = self.start(self.now, state)

    def trained(self) -> Counter[int]:
        """Return how often each unit was trained in the chain that led to the result."""
        return Counter(itertools.chain.from_iterable(self.chain))
