"""The accounting of rollouts: each is trained once, in any order of completion."""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from .._utils import StateDict, validation
from . import ledger_state
from .identity import check_master_seed
from .journal import Journal
from .open_units import Generated, OpenUnits
from .units import MOST, Batch, Unit, check_plan, write_ranges

_CLASS = "rollouts.Ledger"


class Ledger:
    """The rollouts of a job: which to generate next, and which to train on.

    It lives in the trainer. Producers get units by a transport of the user, generate them, and
    send results back. A unit is leased, then generated, then trained; or it is dropped with a
    reason. The state after batch b goes into the checkpoint with the optimizer's. After a restart
    exactly the units that the checkpoint has not trained or dropped are issued again.

    Units are numbered in the order of (epoch, position, sample). Unit k of G prompts a batch is
    planned for batch p = k // (samples * G), and for the policy version max(0, p - lag), where the
    version is the number of trained batches. It is leased from that version on. With ``window`` 1
    a batch holds what is planned for it, whatever the order of completion. With ``window`` w,
    batch b holds all prompts planned for batch b - w + 1 that are left, then others up to b + w - 1
    in the order of completion, together at most G. A batch has fewer prompts where some were
    dropped; all samples of a prompt are in one batch.

    A unit with a version that is older than its batch by more than ``max_staleness`` is not
    trained: it is generated again, or dropped with reason ``"stale"``. With the planned versions
    that happens only if ``max_staleness`` is below ``lag + window - 1``.

    All methods may be called from several threads. Memory holds the open units and their results.

    Args:
        prompts: the number of prompts in the dataset, [1, 2**48].
        batch_size: the number of prompts in a batch, [1, 2**31].
        samples: the number of rollouts of a prompt, [1, 2**31].
        epochs: [1, 2**32).
        window: [1, lag + 1].
        lag: how many batches before its own a unit is generated, [0, 2**31]; 0 is on-policy.
        max_staleness: [lag, lag + window - 1]; None: the largest.
        on_stale: "regenerate" or "drop".
        lease_seconds: after this time without ``renew`` a unit may be leased again, in (0, 10**9].
        master_seed: in [0, 2**64). None: that of ``fastseed.init``, else the environment variable
            FASTSEED_MASTER_SEED. Producers derive the seeds of units from it.
        journal: a file beside the checkpoints. It keeps results that ``complete`` got and that are
            not trained, the drops, and which units each batch had: after a restart these are as
            before. None: results are generated again; with ``window`` above 1, batches after the
            checkpoint may hold other prompts than before.
        clock: what returns the time in seconds, for leases.

    Raises:
        TypeError, ValueError: an argument is invalid; the journal is that of another job, or
            damaged.
        RuntimeError: there is no master seed, or another trainer has the journal.
        OSError: the journal cannot be read or written.

    Examples:
        >>> ledger = fastseed.rollouts.Ledger(10, batch_size=2, samples=4, lag=1, master_seed=42)
        >>> for unit in ledger.lease(8):
        ...     assert ledger.complete(unit, result=f"text {unit.number}")
        >>> batch = ledger.next_batch()
        >>> batch.number, len(batch.units), batch.results[7]
        (0, 8, 'text 7')
        >>> ledger.mark_trained(batch)
        >>> ledger.version, ledger.state_dict()["frontier"]
        (1, 8)
    """

    def __init__(
        self,
        prompts: int,
        *,
        batch_size: int,
        samples: int = 1,
        epochs: int = 1,
        window: int = 1,
        lag: int = 0,
        max_staleness: int | None = None,
        on_stale: str = "regenerate",
        lease_seconds: float = 600.0,
        master_seed: int | None = None,
        journal: str | os.PathLike[str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        master = check_master_seed(_CLASS, master_seed)
        self._plan = check_plan(_CLASS, prompts, batch_size, samples, epochs, window, lag, master)
        oldest = self._plan.lag + self._plan.window - 1
        self._max_staleness = validation.check_int(
            _CLASS, "max_staleness", oldest if max_staleness is None else max_staleness,
            self._plan.lag, oldest,
        )  # fmt: skip
        choices = ("regenerate", "drop")
        self._on_stale = validation.check_choice(_CLASS, "on_stale", on_stale, choices)
        self._lease_seconds = validation.check_float(
            _CLASS, "lease_seconds", lease_seconds, 2**-20, 1e9
        )
        self._clock = clock
        self._lock = threading.RLock()
        self._process = os.getpid()
        self._journal: Journal | None = None
        if journal is not None:
            path = validation.check_path(_CLASS, "journal", journal)
            self._journal = Journal(_CLASS, path, ledger_state.header(self._plan))
        self._batch: Batch | None = None
        self._start(ledger_state.State())

    def _start(self, state: ledger_state.State) -> None:
        """Become the ledger of a state, with what the journal has besides."""
        kept = ledger_state.Kept()
        if self._journal is not None:
            kept.read(self._plan, state, self._journal.records())
        units = OpenUnits(self._plan, state.groups, state.holes, state.versions, kept.drops)
        for reason, count in state.dropped.items():
            units.dropped[reason] = units.dropped.get(reason, 0) + count
        units.restore(kept.results, self._plan.end_of(state.batches + self._plan.lag))
        self._units, self._recorded = units, kept.batches
        self._version, self._batch = state.batches, None
        self._expired, self._regenerated = state.expired, state.regenerated
        self._next_lease = secrets.randbits(62)  # no lease of an earlier trainer holds

    # ------------------------------------------------------------------ producers

    def lease(self, count: int = 1) -> list[Unit]:
        """Return units to generate: the first in order that are not leased or generated.

        Args:
            count: at most so many, [1, 2**31].

        Returns:
            The units; an empty list where the trainer has to go on first, or all is generated.
        """
        count = validation.check_int(f"{_CLASS}.lease", "count", count, 1, MOST)
        with self._entered("lease"):
            now = self._clock()
            units, until = self._units, now + self._lease_seconds
            self._expired += units.expire(now)
            end = self._plan.end_of(self._version + self._plan.lag)
            found: list[Unit] = []
            while len(found) < count and (number := units.take(end)) is not None:
                self._next_lease += 1
                found.append(units.lease(number, self._next_lease, until))
            return found

    def renew(self, units: Iterable[Unit]) -> None:
        """Let the time of leases begin again: what a producer that is slow calls in between.

        Args:
            units: what ``lease`` returned.

        Raises:
            TypeError: a unit is not a ``Unit``.
            LeaseError: a lease does not hold; none was renewed.
        """
        units = list(units)
        with self._entered("renew"):
            for unit in units:
                self._units.check_held(f"{_CLASS}.renew", unit)
            until = self._clock() + self._lease_seconds
            for unit in units:
                self._units.renew(unit, until)

    def release(self, unit: Unit) -> None:
        """Give a unit back that was not generated: what a producer that leaves calls.

        Args:
            unit: what ``lease`` returned.

        Raises:
            TypeError: it is not a ``Unit``.
            LeaseError: the lease does not hold.
        """
        with self._entered("release"):
            self._units.check_held(f"{_CLASS}.release", unit)
            self._units.release(unit.number)

    def complete(self, unit: Unit, result: Any = None, *, version: int | None = None) -> bool:
        """Take the result of a unit. A lease whose time is over holds until the next one.

        With a journal the result is on the disk when this returns, and ``next_batch`` returns it as
        JSON has it (a tuple is a list then); a result None is not kept.

        Args:
            unit: what ``lease`` returned.
            result: what the trainer needs, or the name of it in a store; anything, with a journal
                JSON.
            version: the oldest policy version that generated it, [0, ``self.version``]; None: the
                planned one.

        Returns:
            True if it was taken; False if it is too old (``on_stale`` says what becomes of it).

        Raises:
            TypeError, ValueError: an argument is invalid.
            LeaseError: the unit is generated, trained or dropped already, or leased again.
            OSError: the journal cannot be written; the lease still holds.
        """
        with self._entered("complete"):
            self._units.check_held(f"{_CLASS}.complete", unit)
            number = unit.number
            if version is None:
                version = self._units.version_of(number)
            else:
                name = f"{_CLASS}.complete"
                version = validation.check_int(name, "version", version, 0, self._version)
            if self._is_stale(number, version, self._version):
                if self._journal is not None and self._on_stale == "drop":
                    self._journal.append({"unit": number, "reason": "stale"})
                self._refuse_stale(number)
                return False
            if self._journal is not None and result is not None:
                record = {"unit": number, "version": version, "result": result}
                result = self._journal.append(record)["result"]
            self._units.generate(number, Generated(version, unit.lease, result))
            return True

    def drop(self, unit: Unit, reason: str) -> None:
        """Leave a unit out for good: one that cannot be generated, or is not wanted.

        Args:
            unit: what ``lease`` returned, also after ``complete``; or a unit of the batch that
                ``next_batch`` returned, whose next call then returns the batch without it.
            reason: a text to count by, such as ``"no answer"``.

        Raises:
            TypeError, ValueError: an argument is invalid.
            LeaseError: the lease does not hold.
            OSError: the journal cannot be written; nothing was dropped.
        """
        reason = validation.check_text(f"{_CLASS}.drop", "reason", reason)
        with self._entered("drop"):
            self._units.check_held(f"{_CLASS}.drop", unit, or_generated=True)
            if self._journal is not None:
                self._journal.append({"unit": unit.number, "reason": reason})
            self._units.drop(unit.number, reason)
            self._batch = None

    # ------------------------------------------------------------------ the trainer

    def next_batch(self) -> Batch | None:
        """Return the next batch, the same until ``mark_trained``; None if it is not generated yet.

        Returns:
            The batch. It is empty if all its units were dropped: skip the optimizer's step.
        """
        with self._entered("next_batch"):
            if self._batch is None and not self.done:
                recorded = self._recorded.get(self._version)
                if recorded is None:
                    numbers = self._units.choose(self._version)
                else:
                    numbers = self._units.as_recorded(recorded)
                if numbers is not None:
                    self._batch = self._assemble(numbers)
            return self._batch

    def _assemble(self, numbers: list[int]) -> Batch:
        found = [self._units.generated[number] for number in numbers]
        units = [
            self._plan.unit(n, g.version, g.lease) for n, g in zip(numbers, found, strict=True)
        ]
        return Batch(self._version, units, [generated.result for generated in found])

    def mark_trained(self, batch: Batch) -> None:
        """Count a batch as trained, which makes the next policy version.

        Args:
            batch: what ``next_batch`` returned last.

        Raises:
            TypeError, ValueError: it is not that batch.
            OSError: the journal cannot be written; the batch is not marked.
        """
        name = f"{_CLASS}.mark_trained"
        with self._entered("mark_trained"):
            batch = validation.check_instance(name, "batch", batch, Batch, "a Batch")
            now = self._batch
            if now is None or batch.number != now.number or batch.units != now.units:
                rule = "what next_batch returned last"
                raise validation.value_error(name, "batch", rule, f"batch {batch.number}")
            numbers = [unit.number for unit in batch.units]
            stale = self._stale_after(numbers)
            dropped = write_ranges(stale if self._on_stale == "drop" else [])
            if self._journal is not None and (dropped or self._is_new(numbers)):
                record = {"batch": self._version, "units": write_ranges(numbers), "stale": dropped}
                self._journal.append(record)
            self._recorded.pop(self._version, None)
            for number in numbers:
                self._units.finish(number)
            self._version, self._batch = self._version + 1, None
            for number in stale:
                self._refuse_stale(number)

    def _is_new(self, numbers: list[int]) -> bool:
        return self._recorded.get(self._version) != numbers

    def _stale_after(self, numbers: list[int]) -> list[int]:
        """Return what is too old once these units were trained."""
        after, generated = self._version + 1, self._units.generated
        stale = [n for n, g in generated.items() if self._is_stale(n, g.version, after)]
        return sorted(set(stale).difference(numbers))

    def _is_stale(self, number: int, version: int, now: int) -> bool:
        """Return whether a unit is too old for any batch that may have it after ``now`` batches."""
        return self._plan.earliest(number, now) - version > self._max_staleness

    def _refuse_stale(self, number: int) -> None:
        if self._on_stale == "drop":
            self._units.drop(number, "stale")
        else:
            self._regenerated += 1
            self._units.reopen(number, self._version)

    # ------------------------------------------------------------------ what there is

    @property
    def version(self) -> int:
        """How many batches were trained: the policy version."""
        return self._version

    @property
    def done(self) -> bool:
        """True once all batches were trained."""
        return self._version == self._plan.batches

    @property
    def dropped(self) -> dict[str, int]:
        """How many units were dropped, by reason."""
        return dict(self._units.dropped)

    def counts(self) -> dict[str, int]:
        """Return how many units are leased, generated, trained and dropped, and what was repeated.

        Returns:
            "leased" and "generated" now; "trained" and "dropped" up to now; "expired" and
            "regenerated", how often a lease ended by time and a unit was too old.
        """
        with self._entered("counts"):
            found = {"leased": len(self._units.leases), "generated": len(self._units.generated)}
            found["trained"] = self._state().trained(self._plan)
            found["dropped"] = sum(self._units.dropped.values())
            return {**found, "expired": self._expired, "regenerated": self._regenerated}

    def _state(self) -> ledger_state.State:
        groups, holes = self._units.holes()
        return ledger_state.State(
            self._version, groups, holes, self._units.versions, self._units.dropped,
            self._expired, self._regenerated,
        )  # fmt: skip

    def state_dict(self) -> StateDict:
        """Return the state, for the checkpoint that has the weights after the last trained batch.

        Returns:
            Ints, strings and a dict of ints, for ``torch.save``, JSON and others: a frontier, the
            ranges of open units below it, and their policy versions where not as planned.
        """
        with self._entered("state_dict"):
            return ledger_state.write(self._plan, self._state())

    def load_state_dict(self, state: StateDict) -> None:
        """Go on from a state: what it has not trained or dropped is issued again.

        All leases end. With a journal, results and drops that it has are taken, and the batches
        that it has are made of the same units.

        Args:
            state: what ``state_dict`` returned.

        Raises:
            TypeError, ValueError: it is not a state of a ledger with the same arguments, or it or
                the journal is damaged; nothing was changed.
            OSError: the journal cannot be read.
        """
        with self._entered("load_state_dict"):
            self._start(ledger_state.read(self._plan, state))

    def close(self) -> None:
        """Let another ledger of this process use the journal; a process that ends does so too."""
        if self._journal is not None:
            self._journal.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"fastseed.{_CLASS}: {_STAYS}")

    # ------------------------------------------------------------------ checks

    def _entered(self, method: str) -> threading.RLock:
        """Return the lock to hold; in a process that was forked this ledger is a copy."""
        if os.getpid() != self._process:
            raise RuntimeError(f"fastseed.{_CLASS}.{method}: {_STAYS}")
        return self._lock


_STAYS = (
    "a ledger stays in the process that made it; send units to other processes, and their results "
    "back"
)
