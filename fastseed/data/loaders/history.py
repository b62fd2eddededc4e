"""The journal of a loop over steps: how its loader cuts them, and what is left out."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
from torch.utils.data import BatchSampler

from ..._utils import JSON, validation
from ...derivation import scopes
from ..lineage.answers import indices_of, removed
from ..lineage.journal import Entry, Journal, Quarantine, Skip
from ..lineage.orders import OTHER, OrderSpec, spec_of
from ..lineage.reading import parse
from ..order.quarantine import RESERVE, Quarantined
from ..order.shuffle import ShuffleSampler
from ..order.slots import SlotSampler
from ..worker.scope import keyed_seeder
from .resumable import ResumableLoader
from .shared_order import index_sampler_of, order_of, samples_of

_CLASS = "data.steps"


class History:
    """The journal of the loop over a loader's steps.

    Args:
        loader: the loader.
        task: the task of the loop.
    """

    def __init__(self, loader: ResumableLoader, task: int) -> None:
        self._loader, self._task = loader, task
        self._journal: Journal | None = None
        self.is_changed = False  # since the loader's iteration began

    def journal(self) -> Journal:
        """Return the journal as it is; that of a loop without a step needs ``fastseed.init``."""
        if self._journal is None:
            return Journal(keyed_seeder(_CLASS).master_seed, self._task)
        return self._journal

    def planned(self, epoch: int, step: int) -> Journal:
        """Return the journal when the loop continues with its next step."""
        return self._begun(epoch, step, (epoch, step))

    def _begun(self, epoch: int, step: int, next_step: tuple[int, int]) -> Journal:
        journal, seed = self.journal(), keyed_seeder(_CLASS).master_seed
        if journal.master_seed != seed:  # fastseed.init was called again: another job
            journal = dataclasses.replace(journal, master_seed=seed, orders=(), entries=())
        position = self._loader.state_dict()["position"] if step else 0
        return journal.moved(*next_step).begun(*self._layout(epoch, step, position))

    def begin(self, epoch: int, step: int, next_step: tuple[int, int]) -> int:
        """Note that an iteration begins, and set it up; return the step that comes first.

        Args:
            epoch: where it begins.
            step: where it begins; the loader has the position, unless it is 0.
            next_step: the epoch and step that would be next.
        """
        journal = self._journal = self._begun(epoch, step, next_step)
        self.is_changed = False
        count = journal.in_force(epoch, step)
        if count or journal.skips:
            self._known(_CLASS, journal)
        sampler = samples_of(index_sampler_of(self._loader))
        if isinstance(sampler, ShuffleSampler):
            sampler.quarantine(removed(journal, count) if count else None)
        first, here = journal.skipped_from(epoch, step), journal.entry_at(epoch, step)
        if here is not None and first != step:
            position = here.position + (first - here.step) * here.step_size
            n = journal.orders[here.order].n
            self._loader.seek(self._task, epoch, min(position, n))
        return first

    def is_cut(self, epoch: int, step: int) -> bool:
        """Return True if the loader has to begin again before a step."""
        journal = self.journal()
        return self.is_changed or journal.skipped_from(epoch, step) != step

    # ------------------------------------------------------------------ states

    def dump(self, epoch: int, step: int) -> str:
        """Return the journal as JSON."""
        fields = self.journal().moved(epoch, step).to_dict()
        return json.dumps(fields, separators=(",", ":"), ensure_ascii=False)

    def parse(self, function: str, state: JSON, new_order: bool) -> Journal:
        """Return the journal of a state, if it is one of this loop."""
        text = validation.check_instance(
            function, "state['journal']", state["journal"], str, "the text of a journal"
        )
        journal = parse(function, "state['journal']", text)
        own = {"task": self._task, "epoch": state["epoch"], "step": state["step"]}
        for field, value in own.items():
            if getattr(journal, field) != value:
                rule = f"{value}, as of this state"
                where = f"state['journal'][{field!r}]"
                raise validation.value_error(function, where, rule, getattr(journal, field))
        n = order_of(self._loader).n
        latest = journal.entry_at(*journal.point)
        if latest is not None and not new_order and journal.orders[latest.order].n != n:
            where, rule = "state['journal']", f"of {n} positions, as for this loop"
            raise validation.value_error(function, where, rule, journal.orders[latest.order].n)
        return journal

    def load(self, journal: Journal) -> None:
        """Continue a journal."""
        self._journal, self.is_changed = journal, False

    # ------------------------------------------------------------------ what is left out

    def skip(self, epoch: int, first: int, last: int, next_step: tuple[int, int]) -> None:
        """Leave out steps; ValueError if they are not all steps to come."""
        function = f"{_CLASS}.skip"
        epoch = validation.check_int(function, "epoch", epoch, 0, scopes.MAX_EPOCH)
        first = validation.check_int(function, "first_step", first, 0, scopes.MAX_STEP)
        last = validation.check_int(function, "last_step", last, first, scopes.MAX_STEP)
        if (epoch, first) < next_step:
            rule = f"not before step {next_step[1]} of epoch {next_step[0]}, which is next"
            raise validation.value_error(function, "first_step", rule, (epoch, first))
        journal = self.planned(*next_step)
        spec, entry = self._known(function, journal), journal.entry_at(epoch, first)
        end = 0 if entry is None else entry.step + entry.left(spec.n)
        if last >= end:
            rule = f"below {end}, the number of steps of epoch {epoch}"
            raise validation.value_error(function, "last_step", rule, last)
        for skip in journal.skips:
            if skip.epoch == epoch and skip.first <= last and first <= skip.last:
                rule = f"apart from steps {skip.first} to {skip.last}, which are skipped already"
                raise validation.value_error(function, "first_step", rule, (first, last))
        skips = (*self.journal().skips, Skip(epoch, first, last))
        self._journal = self.journal().changed(skips=skips)
        self.is_changed = True

    def quarantine(self, samples: Any, source: str | None, next_step: tuple[int, int]) -> None:
        """Remove samples from the next step on; ValueError if spare positions do not suffice."""
        function = f"{_CLASS}.quarantine"
        planned = self.planned(*next_step)
        spec = self._known(function, planned)
        found = set(indices_of(function, "samples", planned, samples, source).tolist())
        known = {sample for q in planned.quarantines for sample in q.samples}
        if not found - known:
            return
        self._check_spare(function, planned, spec, np.array(sorted(found | known)))
        new = Quarantine(*next_step, tuple(sorted(found - known)))
        journal = self.journal()
        self._journal = journal.changed(quarantines=(*journal.quarantines, new))
        self.is_changed = True

    def _check_spare(self, function: str, planned: Journal, spec: OrderSpec, gone: Any) -> None:
        entry = planned.entries[-1]
        most = spec.n // 3 if spec.n == spec.size else spec.size - 1
        if len(gone) > most or entry.step_size > RESERVE:
            rule = f"at most {most} in all, in steps of at most {RESERVE} samples"
            raise validation.value_error(function, "samples", rule, len(gone))
        order = spec.order(planned.master_seed, planned.task, planned.epoch)
        try:
            Quarantined(order, spec.n, gone).places(spec.n + entry.step_size)
        except RuntimeError as error:
            rule = f"no more than {spec.n} spare positions serve"
            raise validation.value_error(function, "samples", rule, len(gone)) from error

    # ------------------------------------------------------------------ the loader

    def _known(self, function: str, journal: Journal) -> OrderSpec:
        """Return the order of the loop; ValueError if it is not a function of the epoch."""
        spec = journal.orders[journal.entries[-1].order]
        if spec.kind == OTHER:
            rule = (
                "one whose order is a function of the epoch: use shuffle=True or a ShuffleSampler"
            )
            raise validation.value_error(function, "the loader", rule, spec.name)
        return spec

    def _layout(self, epoch: int, step: int, position: int) -> tuple[Entry, OrderSpec]:
        """Return how steps are cut from here on, and the order."""
        loader = self._loader
        batches: Any = loader.batch_sampler
        order = order_of(loader, keyed_seeder(_CLASS))
        sampler, slots, is_known = samples_of(index_sampler_of(loader)), 0, True
        if isinstance(batches, SlotSampler):
            slots = batches.slots
        elif batches is not None:
            is_known = type(batches) is BatchSampler
        spec = spec_of(sampler if is_known else None, order.name, order.n)
        is_batched = batches is not None and is_known
        size = batches.batch_size if is_batched else loader.batch_size or 1
        ranks = order.ranks
        if isinstance(batches, SlotSampler):
            ranks = batches.order.rank_and_size()[1]
        flags = int(is_batched and batches.drop_last), int(order.ranks_drop)
        return Entry(epoch, step, position, 0, ranks, size, slots, *flags), spec
