"""Work units: the numbers of rollouts, and the plan of their batches and policy versions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from .._utils import validation


class LeaseError(RuntimeError):
    """A result came too late, twice or after a drop: discard it and lease again.

    Examples:
        >>> ledger = fastseed.rollouts.Ledger(10, batch_size=1, master_seed=42)
        >>> [unit] = ledger.lease()
        >>> ledger.release(unit)
        >>> ledger.complete(unit)
        Traceback (most recent call last):
        fastseed.rollouts.LeaseError: fastseed.rollouts.Ledger.complete: unit 0 is open: ...
    """

    __module__ = "fastseed.rollouts"


class Unit(NamedTuple):
    """One rollout to generate, held by a lease: plain integers, for any transport.

    Attributes:
        number: (epoch * prompts + position) * samples + sample.
        epoch: the epoch of the prompt.
        position: in the epoch's order; ``ShuffleSampler.index`` maps it to an index of the dataset.
        sample: the number of the sample of this prompt.
        batch: the batch that the rollout is planned for.
        version: the policy version to generate with: how many batches it was trained on.
        lease: the identity of the lease.

    Examples:
        >>> ledger = fastseed.rollouts.Ledger(10, batch_size=2, samples=4, master_seed=42)
        >>> unit = ledger.lease(6)[5]
        >>> unit.epoch, unit.position, unit.sample, unit.batch, unit.version
        (0, 1, 1, 0, 0)
    """

    number: int
    epoch: int
    position: int
    sample: int
    batch: int
    version: int
    lease: int


class Batch(NamedTuple):
    """The rollouts of one training step, in the order of their numbers.

    Attributes:
        number: the number of the batch.
        units: the rollouts, with the policy versions that generated them.
        results: what ``complete`` got for each of them.

    Examples:
        >>> ledger = fastseed.rollouts.Ledger(10, batch_size=1, samples=2, master_seed=42)
        >>> for unit in reversed(ledger.lease(2)):
        ...     assert ledger.complete(unit, f"text {unit.sample}")
        >>> ledger.next_batch().results
        ['text 0', 'text 1']
    """

    number: int
    units: list[Unit]
    results: list[Any]


@dataclass(frozen=True)
class Plan:
    """The rule of the number, batch and policy version of every unit; a group is one prompt."""

    prompts: int
    samples: int
    batch_size: int
    epochs: int
    window: int
    lag: int
    max_staleness: int
    master_seed: int

    @property
    def groups(self) -> int:
        return self.prompts * self.epochs

    @property
    def batches(self) -> int:
        return -(-self.groups // self.batch_size)

    def unit(self, number: int, version: int, lease: int) -> Unit:
        group, sample = divmod(number, self.samples)
        epoch, position = divmod(group, self.prompts)
        return Unit(number, epoch, position, sample, group // self.batch_size, version, lease)

    def batch_of(self, number: int) -> int:
        return number // (self.samples * self.batch_size)

    def version_of(self, number: int) -> int:
        return max(0, self.batch_of(number) - self.lag)

    def end_of(self, batch: int) -> int:
        """Return the first group that is planned for a batch after ``batch``."""
        return max(0, min(self.groups, (batch + 1) * self.batch_size))

    def is_stale(self, number: int, version: int, now: int) -> bool:
        """Return whether a unit is too old for any batch that may have it after ``now`` batches."""
        earliest = max(now, self.batch_of(number) - self.window + 1)
        return earliest - version > self.max_staleness


def read_list(function: str, argument: str, rule: str, values: Any) -> list[Any]:
    """Return an iterable argument as a list; a tensor is none."""
    if not isinstance(values, Iterable) or hasattr(values, "dtype"):
        raise validation.type_error(function, argument, rule, values)
    return list(values)
