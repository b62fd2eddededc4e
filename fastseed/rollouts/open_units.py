"""The units that are neither trained nor dropped: leases, results, and which groups are complete.

Structures without checks and locks, for :class:`fastseed.rollouts.Ledger`. A group is all samples
of one prompt. Groups are opened in order; all units of a group that is not opened yet are open.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .._utils import validation
from .units import LeaseError, Plan, Unit


class Generated(NamedTuple):
    """A unit that was generated: by which policy version, under which lease, and the result."""

    version: int
    lease: int
    result: Any


class OpenUnits:
    """Every change of a unit is one method; all take constant time, but for a heap's logarithm.

    Args:
        plan: the plan.
        groups: how many groups are opened.
        holes: their open units, in order.
        versions: the policy versions of open units, where not those of the plan.
        drops: reasons by unit; they are dropped when their group is opened.
    """

    def __init__(
        self,
        plan: Plan,
        groups: int,
        holes: Sequence[int],
        versions: Mapping[int, int],
        drops: Mapping[int, str],
    ) -> None:
        self.plan, self.groups = plan, groups
        self.open = set(holes)
        self.versions, self.drops = dict(versions), dict(drops)
        self.leases: OrderedDict[int, tuple[int, float]] = OrderedDict()  # the oldest first
        self.generated: dict[int, Generated] = {}
        self.dropped: dict[str, int] = {}
        self._todo = list(holes)  # a heap; may hold units that were generated or dropped meanwhile
        self._expired: dict[int, int] = {}  # leases that hold until the unit is leased again
        self._missing: dict[int, int] = {}  # of opened groups: units that are not generated yet
        self._ready: dict[int, None] = {}  # groups without these, in the order of completion
        for number in holes:
            group = number // plan.samples
            self._missing[group] = self._missing.get(group, 0) + 1
        self._drop_as_recorded(holes)

    def _drop_as_recorded(self, numbers: Sequence[int]) -> None:
        if self.drops:
            for number in numbers:
                if number in self.drops:
                    self.drop(number, self.drops.pop(number))

    def open_group(self) -> None:
        samples = self.plan.samples
        numbers = range(self.groups * samples, (self.groups + 1) * samples)
        self._missing[self.groups] = samples
        self.groups += 1
        self.open.update(numbers)
        for number in numbers:
            heapq.heappush(self._todo, number)
        self._drop_as_recorded(numbers)

    # ------------------------------------------------------------------ leases

    def take(self, end: int) -> int | None:
        """Return the first open unit of groups below ``end`` that is to be leased."""
        while True:
            while self._todo:
                number = heapq.heappop(self._todo)
                if number not in self.leases and self.is_missing(number):
                    return number
            if self.groups >= end:
                return None
            self.open_group()

    def lease(self, number: int, lease: int, until: float) -> Unit:
        self._expired.pop(number, None)
        self.leases[number] = lease, until
        return self.plan.unit(number, self.version_of(number), lease)

    def check_held(self, function: str, unit: Unit, *, or_generated: bool = False) -> None:
        """LeaseError unless the unit's lease is the last one of its unit, expired or not.

        ``or_generated``: a lease under which the unit was generated will do.
        """
        unit = validation.check_instance(function, "unit", unit, Unit, "a fastseed.rollouts.Unit")
        number, generated = unit.number, self.generated.get(unit.number)
        held = self.leases.get(number, (self._expired.get(number),))[0]
        if or_generated and generated is not None:
            held = generated.lease
        if held != unit.lease:
            raise LeaseError(f"fastseed.{function}: unit {number} {self._reason(number)}")

    def _reason(self, number: int) -> str:
        """Return why a lease does not hold its unit."""
        if number in self.generated:
            return "is generated already"
        if number in self.leases:
            return "is held by another lease, as the time of this one was over"
        if number in self.open:
            return "is open: this lease was released, or is that of an earlier ledger"
        if 0 <= number < self.groups * self.plan.samples:
            return "was trained or dropped already"
        return "is not leased: this lease is that of another ledger"

    def renew(self, unit: Unit, until: float) -> None:
        self._expired.pop(unit.number, None)
        self.leases[unit.number] = unit.lease, until
        self.leases.move_to_end(unit.number)

    def expire(self, now: float) -> int:
        """Let units be leased again whose time is over; return how many."""
        count = 0
        while self.leases:
            number, (lease, until) = next(iter(self.leases.items()))
            if until > now:
                break
            self.release(number)
            self._expired[number] = lease
            count += 1
        return count

    def release(self, number: int) -> None:
        """Let a unit be leased again, whose lease ends here."""
        self._end_lease(number)
        heapq.heappush(self._todo, number)

    def _end_lease(self, number: int) -> None:
        if self.leases.pop(number, None) is None:
            self._expired.pop(number, None)

    # ------------------------------------------------------------------ results

    def version_of(self, number: int) -> int:
        """Return the policy version to generate an open unit with."""
        found = self.versions.get(number)
        return self.plan.version_of(number) if found is None else found

    def is_missing(self, number: int) -> bool:
        """Return whether a unit of an opened group is neither generated, trained nor dropped."""
        return number in self.open and number not in self.generated

    def generate(self, number: int, generated: Generated) -> None:
        self._end_lease(number)
        self.generated[number] = generated
        self._one_less(number)

    def restore(self, results: Mapping[int, tuple[int, Any]], end: int) -> None:
        """Take version and result of units of groups below ``end`` that are open."""
        for number, (version, result) in results.items():
            while self.groups <= number // self.plan.samples < end:
                self.open_group()
            if self.is_missing(number):
                self.generate(number, Generated(version, 0, result))

    def reopen(self, number: int, version: int) -> None:
        """Let a unit be generated, again, with another policy version."""
        if self.generated.pop(number, None) is not None:
            group = number // self.plan.samples
            self._ready.pop(group, None)
            self._missing[group] = self._missing.get(group, 0) + 1
        self.versions[number] = version
        self.release(number)

    def drop(self, number: int, reason: str) -> None:
        self._end_lease(number)
        self.open.remove(number)
        self.versions.pop(number, None)
        self.dropped[reason] = self.dropped.get(reason, 0) + 1
        if self.generated.pop(number, None) is None:
            self._one_less(number)
        elif not self._generated_in(number // self.plan.samples):
            self._ready.pop(number // self.plan.samples, None)

    def finish(self, number: int) -> None:
        """Forget a unit that was trained."""
        self.open.remove(number)
        self.versions.pop(number, None)
        del self.generated[number]
        self._ready.pop(number // self.plan.samples, None)

    def _one_less(self, number: int) -> None:
        group = number // self.plan.samples
        left = self._missing[group] - 1
        if left:
            self._missing[group] = left
            return
        del self._missing[group]
        if self._generated_in(group):
            self._ready[group] = None

    def _generated_in(self, group: int) -> list[int]:
        samples = self.plan.samples
        return [n for n in range(group * samples, (group + 1) * samples) if n in self.generated]

    # ------------------------------------------------------------------ batches

    def choose(self, batch: int) -> list[int] | None:
        """Return the units of a batch in order, by the rule of the window; None: not yet."""
        plan = self.plan
        first, due = plan.end_of(batch - plan.window), plan.end_of(batch - plan.window + 1)
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
        return [number for group in sorted(chosen) for number in self._generated_in(group)]

    def _waits_for(self, first: int, end: int) -> bool:
        return end > self.groups or any(group in self._missing for group in range(first, end))

    def as_recorded(self, numbers: Sequence[int]) -> list[int] | None:
        """Return those of these units that are not dropped; None: some are not generated yet."""
        end = self.groups * self.plan.samples
        if any(number >= end or self.is_missing(number) for number in numbers):
            return None
        return [number for number in numbers if number in self.generated]

    def holes(self) -> tuple[int, list[int]]:
        """Return a group from which on all units are open, and the open ones below it."""
        samples, end = self.plan.samples, self.groups
        numbers = sorted(self.open)
        while len(numbers) >= samples and numbers[-samples] == (end - 1) * samples:
            del numbers[-samples:]
            end -= 1
        return end, numbers
