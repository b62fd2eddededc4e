"""The units that are neither trained nor dropped: leases, results, and which groups are complete.

A group is all samples of one prompt. Groups are opened in order; all units of a group that is not
opened yet are open.
"""

from __future__ import annotations

import bisect
import heapq
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .._utils import validation
from .ledger_state import State
from .units import LeaseError, Plan, Unit


class Generated(NamedTuple):
    """A unit that was generated: by which policy version, under which lease, and the result."""

    version: int
    lease: int
    result: Any


class OpenUnits:
    """The open units of a state, without ``drops``: reasons by unit.

    Leasing and completing take the time of a heap; making a batch takes that of its prompts.
    """

    def __init__(self, plan: Plan, state: State, drops: Mapping[int, str]) -> None:
        self.plan, self.groups, self._drops = plan, 0, drops
        self.expired, self.regenerated = state.expired, state.regenerated
        self.versions, self.dropped = dict(state.versions), Counter(state.dropped)
        self.leases: OrderedDict[int, tuple[int, float]] = OrderedDict()  # the oldest first
        self.generated: dict[int, Generated] = {}
        self._todo: list[int] = []  # a heap; also of units that are leased, generated or dropped
        self._expired: dict[int, int] = {}  # leases that hold until the unit is leased again
        self._missing: dict[int, set[int]] = {}  # of opened groups: units that are not generated
        self._ready: dict[int, None] = {}  # groups without these, in the order of completion
        self._open(state.holes, state.frontier // plan.samples)

    def state(self, batches: int) -> State:
        state = State(batches, *self._holes(), self.versions, self.dropped)
        state.expired, state.regenerated = self.expired, self.regenerated
        return state

    def _open(self, numbers: Sequence[int], groups: int) -> None:
        """Add open units, without those that are to be dropped; ``groups`` are opened then."""
        for number in numbers:
            reason = self._drops.get(number)
            if reason is not None:
                self.dropped[reason] += 1
                continue
            self._missing.setdefault(number // self.plan.samples, set()).add(number)
            heapq.heappush(self._todo, number)
        self.groups = groups

    def _open_group(self) -> None:
        self._open(self._numbers(self.groups), self.groups + 1)

    def take(self, end: int) -> int | None:
        """Return the first open unit of groups below ``end`` that is to be leased."""
        while True:
            while self._todo and self._todo[0] < self.groups * self.plan.samples:
                number = self._todo[0]
                if number not in self.leases and self.is_missing(number):
                    return number
                heapq.heappop(self._todo)
            if self.groups >= end:
                return None
            self._open_group()

    def lease(self, number: int, lease: int, until: float) -> Unit:
        """Let a lease hold a unit from now on, for the first time or again."""
        self.leases[number] = lease, until
        self.leases.move_to_end(number)  # the oldest first: ``expire`` ends at one that holds
        self._expired.pop(number, None)
        return self.plan.unit(number, self.version_of(number), lease)

    def check_held(self, function: str, unit: Unit, *, or_generated: bool = False) -> None:
        """LeaseError unless the lease, or that of the result, is the last one of its unit."""
        unit = validation.check_instance(function, "unit", unit, Unit, "a fastseed.rollouts.Unit")
        number = validation.check_int(function, "unit.number", unit.number, 0, 2**128)
        lease = validation.check_int(function, "unit.lease", unit.lease, 0, 2**128)
        generated = self.generated.get(number)
        held = self.leases.get(number, (self._expired.get(number),))[0]
        if or_generated and generated is not None:
            held = generated.lease
        if held is None or held != lease:
            raise LeaseError(f"fastseed.{function}: unit {number} {self._reason(number)}")

    def _reason(self, number: int) -> str:
        if number in self.generated:
            return "is generated already"
        if number in self.leases:
            return "is held by another lease, as the time of this one was over"
        if self.is_missing(number) or number >= self.groups * self.plan.samples:
            return "is open: this lease was released, or is that of another ledger"
        return "was trained or dropped already"

    def expire(self, now: float) -> None:
        """Let units be leased again whose time is over."""
        while self.leases:
            number, (lease, until) = next(iter(self.leases.items()))
            if until > now:
                break
            heapq.heappush(self._todo, number)
            self._expired[number] = lease  # its result is taken until another lease has the unit
            del self.leases[number]
            self.expired += 1

    def release(self, number: int) -> None:
        """Let a unit be leased again, whose lease ends here."""
        heapq.heappush(self._todo, number)
        self._end_lease(number)

    def _end_lease(self, number: int) -> None:
        self._expired.pop(number, None)
        self.leases.pop(number, None)

    def version_of(self, number: int) -> int:
        return self.versions.get(number, self.plan.version_of(number))

    def is_missing(self, number: int) -> bool:
        """Return whether a unit of an opened group is neither generated, trained nor dropped."""
        return number in self._missing.get(number // self.plan.samples, ())

    def generate(self, number: int, generated: Generated) -> None:
        self.generated[number] = generated
        self._missing.get(number // self.plan.samples, set()).discard(number)
        self._end_lease(number)
        self._settle(number // self.plan.samples)

    def restore(self, results: Mapping[int, tuple[int, Any]], end: int) -> None:
        """Take version and result of units of groups below ``end`` that are open."""
        for number, (version, result) in results.items():
            while self.groups <= number // self.plan.samples < end:
                self._open_group()
            if self.is_missing(number):
                self.generate(number, Generated(version, 0, result))

    def refuse(self, numbers: Sequence[int], on_stale: str, version: int) -> None:
        """Drop units that are too old, or let a policy version generate them again."""
        if on_stale == "drop":
            return self.drop(numbers, "stale")
        self.regenerated += len(numbers)
        for number in numbers:
            group = number // self.plan.samples
            self.versions[number] = version
            self._missing.setdefault(group, set()).add(number)
            self.generated.pop(number, None)
            self._settle(group)
            self.release(number)

    def drop(self, numbers: Sequence[int], reason: str) -> None:
        """Leave units out, and count them by the reason."""
        for number in numbers:
            self.dropped[reason] += 1
            group = number // self.plan.samples
            self.generated.pop(number, None)
            self._missing.get(group, set()).discard(number)
            self.versions.pop(number, None)
            self._end_lease(number)
            self._settle(group)

    def finish(self, number: int) -> None:
        self.generated.pop(number, None)
        self.versions.pop(number, None)
        self._ready.pop(number // self.plan.samples, None)

    def _settle(self, group: int) -> None:
        """Note whether a group is complete, and has units to train."""
        is_whole = not self._missing.get(group)
        if is_whole and any(number in self.generated for number in self._numbers(group)):
            self._ready.setdefault(group)
        else:
            self._ready.pop(group, None)
        if is_whole:
            self._missing.pop(group, None)

    def _numbers(self, group: int) -> range:
        return range(group * self.plan.samples, (group + 1) * self.plan.samples)

    def choose(self, batch: int) -> list[int] | None:
        """Return the units of a batch in order, by the rule of the window; None: not yet."""
        plan = self.plan
        first = plan.end_of(batch - plan.window)
        due = plan.end_of(batch - plan.window + 1)
        last = plan.end_of(batch + plan.window - 1)
        if self._waits_for(first, due):
            return None
        chosen = [group for group in range(first, due) if group in self._ready]
        for group in self._ready:
            if len(chosen) == plan.batch_size:
                break
            if due <= group < last:
                chosen.append(group)
        if len(chosen) < plan.batch_size and self._waits_for(due, last):
            return None
        numbers = (number for group in sorted(chosen) for number in self._numbers(group))
        return [number for number in numbers if number in self.generated]

    def _waits_for(self, first: int, end: int) -> bool:
        return end > self.groups or any(group in self._missing for group in range(first, end))

    def as_recorded(self, numbers: Sequence[int]) -> list[int] | None:
        """Return those of these units that are not dropped; None: some are not generated yet."""
        end = self.groups * self.plan.samples
        if any(number >= end or self.is_missing(number) for number in numbers):
            return None
        return [number for number in numbers if number in self.generated]

    def _holes(self) -> tuple[int, list[int]]:
        """Return a unit from which on all are open, and the open ones below it."""
        samples, end = self.plan.samples, self.groups
        numbers = sorted(self.generated.keys() | set().union(*self._missing.values()))
        del numbers[bisect.bisect_left(numbers, end * samples) :]
        while len(numbers) >= samples and numbers[-samples] == (end - 1) * samples:
            del numbers[-samples:]
            end -= 1
        return end * samples, numbers
