"""The accounting of rollouts: each is trained once, in any order of completion."""

from __future__ import annotations

import functools
import os
import secrets
import threading
import time
from collections.abc import Iterable
from typing import Any, NoReturn

from .._utils import StateDict, validation
from ..derivation import scopes
from . import ledger_state
from .identity import check_master_seed
from .open_units import Generated, OpenUnits
from .results import Results
from .units import Batch, Plan, Unit, read_list

_CLASS = "rollouts.Ledger"
_MOST = 2**31  # prompts of a batch, batches of lag, units of a call


class Ledger:
    """The rollouts of a job: which to generate next, and which to train on.

    A unit is leased by a producer, generated, and trained, or dropped with a reason. The state
    after a batch goes into the checkpoint with the optimizer's; a restart issues again exactly the
    units that the checkpoint has not trained or dropped. Units are numbered in the order of
    (epoch, position, sample); prompt j is planned for batch j // batch_size.

    Threads may call all methods at once. After an interrupt in a call load a state: none is lost.

    Args:
        prompts: the number of prompts in the dataset, [1, 2**48].
        batch_size: the number of prompts in a batch, [1, 2**31].
        samples: the number of rollouts of a prompt, [1, 2**20].
        epochs: [1, 2**32). A state or file of a job with fewer is taken where ``batch_size``
            divides ``prompts``, so that every batch is whole.
        window: with w a batch first takes all that is left over from w - 1 batches ago, then
            complete prompts of the next w - 1 batches; [1, lag + 1].
        lag: how many batches before its own a unit is generated, [0, 2**31]; 0 is on-policy.
        max_staleness: by how many batches a unit may be older than its own, [lag, lag + window -
            1]; None: the largest.
        on_stale: what becomes of one that is older, "regenerate" or "drop".
        lease_seconds: after this time without ``renew`` a unit may be leased again, in (0, 10**9].
        master_seed: as for ``seed``. Producers derive the seeds of units from it.
        results: an SQLite file beside the checkpoints. It keeps results that are not trained, the
            drops, and the units of each batch. None: results are generated again.

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
        check = functools.partial(validation.check_int, _CLASS)
        lag = check("lag", lag, 0, _MOST)
        window = check("window", window, 1, lag + 1)
        if max_staleness is None:
            max_staleness = lag + window - 1
        self._plan = Plan(
            prompts=check("prompts", prompts, 1, 2**48),
            samples=check("samples", samples, 1, 2**20),  # memory holds all of an open prompt
            batch_size=check("batch_size", batch_size, 1, _MOST),
            epochs=check("epochs", epochs, 1, scopes.MAX_EPOCH),
            window=window,
            lag=lag,
            max_staleness=check("max_staleness", max_staleness, lag, lag + window - 1),
            master_seed=check_master_seed(_CLASS, master_seed),
        )
        choices = "regenerate", "drop"
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
        units = OpenUnits(self._plan, state, kept.drops)
        units.restore(kept.results, self._plan.end_of(state.batches + self._plan.lag))
        if self._results is not None:
            self._results.delete_to(kept.settled)
        self._units, self._recorded, self._batch = units, kept.batches, None
        self._version = state.batches
        self._next_lease = secrets.randbits(62)  # no lease of an earlier trainer holds

    def lease(self, count: int = 1, *, timeout: float = 0.0) -> list[Unit]:
        """Return units to generate: the first in order that are not leased or generated.

        Args:
            count: at most so many, [1, 2**31].
            timeout: for how many seconds to wait, [0, 10**6], while there is none and not all is
                trained: for the trainer, or for the end of another lease.

        Returns:
            The units; none where the trainer has to go on first, or all is generated.
        """
        count = validation.check_int(f"{_CLASS}.lease", "count", count, 1, _MOST)
        last = self._clock() + validation.check_float(f"{_CLASS}.lease", "timeout", timeout, 0, 1e6)
        while True:
            with self._entered("lease"):
                found: list[Unit] = []
                self._units.expire(now := self._clock())
                end = self._plan.end_of(self._version + self._plan.lag)
                while len(found) < count and (number := self._units.take(end)) is not None:
                    self._next_lease += 1
                    until = now + self._lease_seconds
                    found.append(self._units.lease(number, self._next_lease, until))
                if found or now >= last or self.done:
                    return found
            time.sleep(min(last - now, 0.02))  # without the lock: other threads go on

    def renew(self, units: Iterable[Unit]) -> None:
        """Let the time of leases begin again; LeaseError, and none is renewed, if one is over."""
        name = f"{_CLASS}.renew"
        units = read_list(name, "units", "a list of what lease returned", units)
        with self._entered("renew"):
            for unit in units:
                self._units.check_held(name, unit)
            until = self._clock() + self._lease_seconds
            for unit in units:
                self._units.lease(unit.number, unit.lease, until)

    def release(self, unit: Unit) -> None:
        """Give a unit back that was not generated, as a producer does that leaves."""
        with self._entered("release"):
            self._units.check_held(f"{_CLASS}.release", unit)
            self._units.release(unit.number)

    def complete(self, unit: Unit, result: Any = None, *, version: int | None = None) -> bool:
        """Take the result of a unit. A lease whose time is over holds until the next one.

        With a file of results the result is on the disk when this returns, and batches have it as
        JSON has it (a tuple is a list then); a result None is not kept.

        Args:
            unit: what ``lease`` returned.
            result: what the trainer needs; with a file of results JSON.
            version: the oldest policy version that generated it, [0, ``self.version``]; None: the
                planned one.

        Returns:
            True if it was taken; False if it is too old (``on_stale`` says what becomes of it).

        Raises:
            TypeError, ValueError: an argument is invalid.
            LeaseError: the unit is generated, trained or dropped already, or leased again.
            OSError: the file of results cannot be written; the lease still holds.
        """
        return self._complete("complete", [(unit, result)], version)[0]

    def complete_many(
        self, results: Iterable[tuple[Unit, Any]], *, version: int | None = None
    ) -> list[bool]:
        """Take many results, all in one write or none; return for each what ``complete`` does.

        Args:
            results: pairs of a unit and its result; no unit twice.
            version: as for ``complete``, of all.

        Raises:
            TypeError, ValueError, LeaseError, OSError: as for ``complete``; nothing has changed.
        """
        name, rule = f"{_CLASS}.complete_many", "a list of pairs of a unit and its result"
        pairs = read_list(name, "results", rule, results)
        for i, pair in enumerate(pairs):
            if not isinstance(pair, (tuple, list)) or len(pair) != 2:
                raise validation.type_error(name, f"results[{i}]", "a unit and its result", pair)
        return self._complete("complete_many", pairs, version)

    def _complete(
        self, method: str, pairs: list[tuple[Unit, Any]], version: int | None
    ) -> list[bool]:
        function = f"{_CLASS}.{method}"
        with self._entered(method):
            if version is not None:
                version = validation.check_int(function, "version", version, 0, self._version)
            is_taken: dict[int, bool] = {}
            taken: dict[int, Generated] = {}
            rows: list[StateDict] = []
            for unit, result in pairs:
                self._units.check_held(function, unit)
                number = unit.number
                if number in is_taken:
                    rule = "pairs with different units"
                    raise validation.value_error(function, "results", rule, f"{number} twice")
                by = self._units.version_of(number) if version is None else version
                is_taken[number] = not self._plan.is_stale(number, by, self._version)
                if is_taken[number]:
                    taken[number] = Generated(by, unit.lease, result)
                    if result is not None:
                        rows.append({"unit": number, "version": by, "result": result})
                elif self._on_stale == "drop":
                    rows.append({"unit": number, "reason": "stale"})
            for row in self._record(rows):
                if "result" in row:
                    taken[row["unit"]] = taken[row["unit"]]._replace(result=row["result"])
            stale = [number for number, is_in_time in is_taken.items() if not is_in_time]
            self._units.refuse(stale, self._on_stale, self._version)
            for number, generated in taken.items():
                self._units.generate(number, generated)
            return list(is_taken.values())

    def drop(self, unit: Unit, reason: str) -> None:
        """Leave a unit out for good: one that cannot be generated, or is not wanted.

        Args:
            unit: what ``lease`` returned, also after ``complete``; or a unit of the batch, which
                ``next_batch`` then returns without it.
            reason: a text to count by, such as ``"no answer"``.

        Raises:
            TypeError, ValueError: an argument is invalid.
            LeaseError: the lease does not hold.
            OSError: the file of results cannot be written; nothing has changed.
        """
        reason = validation.check_text(f"{_CLASS}.drop", "reason", reason)
        with self._entered("drop"):
            self._units.check_held(f"{_CLASS}.drop", unit, or_generated=True)
            self._record([{"unit": unit.number, "reason": reason}])
            self._batch = None
            self._units.drop([unit.number], reason)

    def _record(self, rows: list[StateDict]) -> list[StateDict]:
        """Write to the file of results, all or nothing, and return what is in it."""
        return rows if self._results is None or not rows else self._results.add(rows)

    def next_batch(self) -> Batch | None:
        """Return the next batch, the same until ``mark_trained``; None if it is not generated yet.

        It is empty if all its units were dropped: skip the optimizer's step.
        """
        with self._entered("next_batch"):
            if self._batch is None and not self.done:
                recorded = self._recorded.get(self._version)
                if recorded is None:
                    numbers = self._units.choose(self._version)
                else:
                    numbers = self._units.as_recorded(recorded)
                if numbers is not None:
                    found = {number: self._units.generated[number] for number in numbers}
                    units = [self._plan.unit(n, g.version, g.lease) for n, g in found.items()]
                    results = [generated.result for generated in found.values()]
                    self._batch = Batch(self._version, units, results)
            return self._batch

    def mark_trained(self, batch: Batch) -> None:
        """Count a batch as trained, which makes the next policy version.

        Args:
            batch: what ``next_batch`` returned last.

        Raises:
            TypeError, ValueError: it is not that batch.
            OSError: the file of results cannot be written; nothing has changed.
        """
        name = f"{_CLASS}.mark_trained"
        with self._entered("mark_trained"):
            batch = validation.check_instance(name, "batch", batch, Batch, "a Batch")
            number = validation.check_int(name, "batch.number", batch.number, 0, 2**128)
            now = self._batch
            if now is None or number != now.number or batch.units != now.units:
                rule = "what next_batch returned last"
                raise validation.value_error(name, "batch", rule, f"batch {number}")
            numbers = [unit.number for unit in batch.units]
            after, generated = self._version + 1, self._units.generated
            others = sorted(generated.keys() - set(numbers))
            stale = [n for n in others if self._plan.is_stale(n, generated[n].version, after)]
            dropped = stale if self._on_stale == "drop" else []
            if dropped or self._recorded.get(self._version) != numbers:
                self._record([{"batch": self._version, "units": numbers, "stale": dropped}])
            for trained in numbers:
                self._units.finish(trained)
            self._units.refuse(stale, self._on_stale, after)
            self._recorded.pop(self._version, None)
            self._version, self._batch = after, None

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
            units = self._units
            return {
                "leased": len(units.leases),
                "generated": len(units.generated),
                "trained": units.state(self._version).trained,
                "dropped": sum(units.dropped.values()),
                "expired": units.expired,
                "regenerated": units.regenerated,
            }

    def state_dict(self) -> StateDict:
        """Return the state, for the checkpoint that has the weights after the last trained batch.

        It is made of ints, strings and lists, for ``torch.save``, JSON and others.
        """
        with self._entered("state_dict"):
            return ledger_state.write(self._plan, self._units.state(self._version))

    def load_state_dict(self, state: StateDict) -> None:
        """Go on from a state: what it has not trained or dropped is issued again.

        All leases end. Results, drops and batches of the file that the state does not include are
        taken, and what it includes is deleted from the file.

        Args:
            state: what ``state_dict`` returned.

        Raises:
            TypeError, ValueError: it is the state of another job, or the state or the file is
                damaged; nothing has changed.
            OSError: the file of results cannot be read or written.
        """
        with self._entered("load_state_dict"):
            self._start(ledger_state.read(f"{_CLASS}.load_state_dict", self._plan, state))

    def forget(self, state: StateDict) -> None:
        """Delete from the file of results what a saved state includes; leases go on.

        Call it once the checkpoint is on the disk. From an earlier state, what was deleted is then
        generated again.

        Args:
            state: what ``state_dict`` returned.

        Raises:
            TypeError, ValueError, OSError: as for ``load_state_dict``; or the state has more
                batches than this ledger.
        """
        function = f"{_CLASS}.forget"
        with self._entered("forget"):
            saved = ledger_state.read(function, self._plan, state)
            if saved.batches > self._version:
                rule = f"at most the {self._version} of this ledger"
                raise validation.value_error(function, "state['batches']", rule, saved.batches)
            if self._results is not None:
                kept = ledger_state.Kept()
                kept.read(self._plan, saved, self._results.rows())
                self._results.delete_to(kept.settled)

    def close(self) -> None:
        """Let another ledger use the file of results, as the end of the process does."""
        with self._entered("close"):
            if self._results is not None:
                self._results.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"fastseed.{_CLASS}: {_STAYS}")

    def _entered(self, method: str) -> threading.RLock:
        """Return the lock to hold; in a process that was forked this ledger is a copy."""
        if os.getpid() != self._process:
            raise RuntimeError(f"fastseed.{_CLASS}.{method}: {_STAYS}")
        return self._lock


_STAYS = "a ledger stays in the process that made it; send units and results, not the ledger"
