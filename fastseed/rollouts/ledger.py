"""The accounting of rollouts: each is trained once, in any order of completion."""

from __future__ import annotations

import functools
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from .._utils import StateDict, validation
from . import ledger_state
from .identity import check_master_seed
from .open_units import Generated, OpenUnits
from .results import Results
from .units import MOST, Batch, Unit, check_plan

_CLASS = "rollouts.Ledger"


class Ledger:
    """The rollouts of a job: which to generate next, and which to train on.

    It lives in the trainer. Producers get units by a transport of the user, generate them, and
    send results back. A unit is leased, then generated, then trained; or it is dropped with a
    reason. The state after batch b goes into the checkpoint with the optimizer's. A restart
    issues again exactly the units that the checkpoint has not trained or dropped.

    Units are numbered in the order of (epoch, position, sample). Prompt j is planned for batch
    j // batch_size; its units are leased from ``lag`` batches before on. With ``window`` 1 a batch
    holds what is planned for it. With ``window`` w it holds the prompts that were planned w - 1
    batches before, then others up to w - 1 batches ahead, as they complete; all samples of a
    prompt are in one batch. A unit that is too old for its batch, by ``max_staleness``, is not
    trained: it is generated again, or dropped with reason ``"stale"``.

    All methods may be called from several threads. An interrupt loses no unit: the call has
    happened, or not. Memory holds the open units and their results.

    Args:
        prompts: the number of prompts in the dataset, [1, 2**48].
        batch_size: the number of prompts in a batch, [1, 2**31].
        samples: the number of rollouts of a prompt, [1, 2**20].
        epochs: [1, 2**32).
        window: [1, lag + 1].
        lag: how many batches before its own a unit is generated, [0, 2**31]; 0 is on-policy.
        max_staleness: [lag, lag + window - 1]; None: the largest.
        on_stale: "regenerate" or "drop".
        lease_seconds: after this time without ``renew`` a unit may be leased again, in (0, 10**9].
        master_seed: in [0, 2**64). None: that of ``fastseed.init``, else the environment variable
            FASTSEED_MASTER_SEED. Producers derive the seeds of units from it.
        results: an SQLite file beside the checkpoints. It keeps the results of ``complete`` that
            are not trained, the drops, and the units of each batch: after a restart these are as
            before. None: results are generated again; with ``window`` above 1, batches after the
            checkpoint may hold other prompts than before.

    Raises:
        TypeError, ValueError: an argument is invalid; the file is that of another job, or damaged.
        RuntimeError: there is no master seed; another ledger uses the file; this Python has no
            sqlite3.
        OSError: the file cannot be read or written.

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
        results: str | os.PathLike[str] | None = None,
    ) -> None:
        master = check_master_seed(_CLASS, master_seed)
        self._plan = check_plan(
            _CLASS, prompts, batch_size, samples, epochs, window, lag, max_staleness, master
        )
        choices = ("regenerate", "drop")
        self._on_stale = validation.check_choice(_CLASS, "on_stale", on_stale, choices)
        self._lease_seconds = validation.check_float(
            _CLASS, "lease_seconds", lease_seconds, 2**-20, 1e9
        )
        self._clock = time.monotonic
        self._lock = threading.RLock()
        self._process = os.getpid()
        self._batch: Batch | None = None
        self._results: Results | None = None
        if results is not None:
            path = validation.check_path(_CLASS, "results", results)
            self._results = Results(_CLASS, path, ledger_state.header(self._plan))
        try:
            self._start(ledger_state.State())
        except BaseException:
            self.close()
            raise

    def _start(self, state: ledger_state.State) -> None:
        """Become the ledger of a state, with what the file of results has besides."""
        kept = ledger_state.Kept()
        if self._results is not None:
            kept.read(self._plan, state, self._results.rows())
        units = OpenUnits(
            self._plan, state.groups, state.holes, state.versions, state.dropped, kept.drops
        )
        units.expired, units.regenerated = state.expired, state.regenerated
        units.restore(kept.results, self._plan.end_of(state.batches + self._plan.lag))
        if self._results is not None and kept.settled:
            self._results.delete_to(kept.settled)
        self._units, self._recorded, self._batch = units, kept.batches, None
        self._version = state.batches
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
            now, units, before = self._clock(), self._units, self._next_lease
            units.expire(now)
            end = self._plan.end_of(self._version + self._plan.lag)
            found: list[Unit] = []
            try:
                while len(found) < count and (number := units.take(end)) is not None:
                    self._next_lease += 1
                    found.append(units.lease(number, self._next_lease, now + self._lease_seconds))
                return found
            except BaseException:
                units.release_after(before)
                raise

    def renew(self, units: Iterable[Unit]) -> None:
        """Let the time of leases begin again: what a producer that is slow calls in between.

        Raises:
            TypeError: these are not units that ``lease`` returned.
            LeaseError: a lease does not hold; none was renewed.
        """
        if not isinstance(units, Iterable):
            raise validation.type_error(f"{_CLASS}.renew", "units", "a list of units", units)
        units = list(units)
        with self._entered("renew"):
            for unit in units:
                self._units.check_held(f"{_CLASS}.renew", unit)
            until = self._clock() + self._lease_seconds
            for unit in units:
                self._units.renew(unit, until)

    def release(self, unit: Unit) -> None:
        """Give a unit back that was not generated: what a producer that leaves calls.

        Raises:
            TypeError: it is not a unit that ``lease`` returned.
            LeaseError: the lease does not hold.
        """
        with self._entered("release"):
            self._units.check_held(f"{_CLASS}.release", unit)
            self._units.release(unit.number)

    def complete(self, unit: Unit, result: Any = None, *, version: int | None = None) -> bool:
        """Take the result of a unit. A lease whose time is over holds until the next one.

        With a file of results the result is on the disk when this returns, and ``next_batch``
        returns it as JSON has it (a tuple is a list then); a result None is not kept.

        Args:
            unit: what ``lease`` returned.
            result: what the trainer needs, or the name of it in a store; anything, with a file of
                results JSON.
            version: the oldest policy version that generated it, [0, ``self.version``]; None: the
                planned one.

        Returns:
            True if it was taken; False if it is too old (``on_stale`` says what becomes of it).

        Raises:
            TypeError, ValueError: an argument is invalid.
            LeaseError: the unit is generated, trained or dropped already, or leased again.
            OSError: the file of results cannot be written; the lease still holds.
        """
        function = f"{_CLASS}.complete"
        with self._entered("complete"):
            self._units.check_held(function, unit)
            number = unit.number
            if version is None:
                version = self._units.version_of(number)
            else:
                version = validation.check_int(function, "version", version, 0, self._version)
            if self._plan.is_stale(number, version, self._version):
                if self._on_stale == "drop":
                    self._record({"unit": number, "reason": "stale"})
                _make_whole(self._refusal([number], self._version))
                return False
            if self._results is not None and result is not None:
                record = {"unit": number, "version": version, "result": result}
                result = self._results.add(record)["result"]
            _make_whole(self._units.generate, number, Generated(version, unit.lease, result))
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
            OSError: the file of results cannot be written; nothing was dropped.
        """
        reason = validation.check_text(f"{_CLASS}.drop", "reason", reason)
        with self._entered("drop"):
            self._units.check_held(f"{_CLASS}.drop", unit, or_generated=True)
            self._record({"unit": unit.number, "reason": reason})
            self._batch = None
            _make_whole(self._units.drop, [unit.number], self._units.dropped_with(reason, 1))

    def _record(self, document: StateDict) -> None:
        if self._results is not None:
            self._results.add(document)

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
            OSError: the file of results cannot be written; the batch is not marked.
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
            dropped = stale if self._on_stale == "drop" else []
            if dropped or self._recorded.get(self._version) != numbers:
                self._record({"batch": self._version, "units": numbers, "stale": dropped})
            _make_whole(self._finish, self._version, numbers, self._refusal(stale, now.number + 1))

    def _stale_after(self, numbers: list[int]) -> list[int]:
        """Return what is too old once these units were trained."""
        after, generated = self._version + 1, self._units.generated
        stale = [n for n, g in generated.items() if self._plan.is_stale(n, g.version, after)]
        return sorted(set(stale).difference(numbers))

    def _finish(self, batch: int, numbers: list[int], refuse_stale: Callable[[], None]) -> None:
        self._version, self._batch = batch + 1, None
        self._recorded.pop(batch, None)
        for number in numbers:
            self._units.finish(number)
        refuse_stale()

    def _refusal(self, numbers: list[int], version: int) -> Callable[[], None]:
        """Return what drops units that are too old, or has ``version`` generate them again."""
        units = self._units
        if self._on_stale == "drop":
            return functools.partial(units.drop, numbers, units.dropped_with("stale", len(numbers)))
        return functools.partial(units.reopen, numbers, version, units.regenerated + len(numbers))

    # ------------------------------------------------------------------ what there is

    @property
    def version(self) -> int:
        """How many batches were trained: the policy version."""
        with self._entered("version"):
            return self._version

    @property
    def done(self) -> bool:
        """True once all batches were trained."""
        with self._entered("done"):
            return self._version == self._plan.batches

    @property
    def dropped(self) -> dict[str, int]:
        """How many units were dropped, by reason."""
        with self._entered("dropped"):
            return dict(self._units.dropped)

    def counts(self) -> dict[str, int]:
        """Return how many units are "leased" and "generated", and were "trained" and "dropped".

        "expired" is how often a lease ended by time, "regenerated" how often a unit was too old.
        """
        with self._entered("counts"):
            units, state = self._units, self._state()
            return {
                "leased": len(units.leases),
                "generated": len(units.generated),
                "trained": state.trained(self._plan),
                "dropped": sum(units.dropped.values()),
                "expired": units.expired,
                "regenerated": units.regenerated,
            }

    def _state(self) -> ledger_state.State:
        groups, holes = self._units.holes()
        return ledger_state.State(
            self._version, groups, holes, self._units.versions, self._units.dropped,
            self._units.expired, self._units.regenerated,
        )  # fmt: skip

    def state_dict(self) -> StateDict:
        """Return the state, for the checkpoint that has the weights after the last trained batch.

        It is made of ints, strings and lists of them, for ``torch.save``, JSON and others: a
        frontier, the open units below it and their policy versions where not as planned.
        """
        with self._entered("state_dict"):
            return ledger_state.write(self._plan, self._state())

    def load_state_dict(self, state: StateDict) -> None:
        """Go on from a state: what it has not trained or dropped is issued again.

        All leases end. With a file of results, the results and drops in it are taken, and the
        batches in it are made of the same units. What the state includes is deleted from the file.

        Args:
            state: what ``state_dict`` returned.

        Raises:
            TypeError, ValueError: it is not a state of a ledger with the same arguments, it was
                changed since, or the file of results is damaged; nothing was changed.
            OSError: the file of results cannot be read or written.
        """
        with self._entered("load_state_dict"):
            self._start(ledger_state.read(self._plan, state))

    def close(self) -> None:
        """Let another ledger use the file of results; a process that ends does so too."""
        with self._entered("close"):
            if self._results is not None:
                self._results.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"fastseed.{_CLASS}: {_STAYS}")

    # ------------------------------------------------------------------ checks

    def _entered(self, method: str) -> threading.RLock:
        """Return the lock to hold; in a process that was forked this ledger is a copy."""
        if os.getpid() != self._process:
            raise RuntimeError(f"fastseed.{_CLASS}.{method}: {_STAYS}")
        return self._lock


def _make_whole(change: Callable[..., None], *arguments: Any) -> None:
    """Make a change; if an interrupt stops it, make it again, which comes to the same end."""
    try:
        change(*arguments)
    except BaseException:
        change(*arguments)
        raise


_STAYS = (
    "a ledger stays in the process that made it; send units to other processes, and their results "
    "back"
)
