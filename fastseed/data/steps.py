"""The loop over epochs and batches that reseeds, and whose state says where it is."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from torch.utils.data import DataLoader

from .._utils import StateDict, validation
from ..derivation import context, scopes
from ..distributed.agreement import agree
from ..seeder import api
from .history import STOPPED, Entry, History, from_json, to_json
from .layout import ASSIGNMENTS, UNKNOWN
from .lineage import Lineage, check_known, with_quarantine, with_skip
from .loader.iteration import Iteration
from .loader.loader import Loader, slot_loader
from .loader.states import check_state, is_iterable, layout_of, parse, sampler_of
from .micro_batches import MicroBatches
from .order.samplers import ShuffleSampler, SlotSampler

Step = tuple[int, int, Any]  # epoch, number in it, batch; with slots an iterator of batches

_NAME = "data.steps"


def steps(
    loader: DataLoader[Any],
    epochs: int | None = None,
    *,
    task: int = 1,
    slots: int | None = None,
    assignment: str = "blocks",
) -> StepLoop:
    """Iterate the batches of all epochs as (epoch, step, batch), each step in its own scope.

    Before each step it calls ``reseed(task, epoch, step)``. Take a state after the optimizer's
    step: it counts the batch that the loop has, not those that workers fetched ahead. After
    ``break``, another loop continues with the next step.

    Args:
        loader: a ``Loader``. Any other DataLoader becomes one with its settings; the argument is
            not changed. Under Accelerate, use
            ``fastseed.integrations.accelerate.AcceleratedJob.train`` instead.
        epochs: the number of epochs, [0, 2**32); None for a script that has the loop over epochs
            itself and calls ``in_epoch``.
        task: the task of ``reseed``, [0, 2**24).
        slots: None; or the number of micro-batches of a step, [1, 2**24), whatever the number of
            ranks, as for ``fastseed.elastic.SlotGradients``. In place of a batch the loop then
            yields an iterator of this rank's micro-batches, which must be exhausted before the next
            step; a rank may have none. The loader must have ``batch_size``, and ``shuffle=True``,
            its dataset's order, a ``ShuffleSampler`` or a ``MixtureSampler``.
        assignment: which slots a rank has, as ``SlotGradients.assignment``. ``"blocks"``: rank r of
            w has slots floor(r V / w) to floor((r + 1) V / w) - 1. ``"deal"``, for models under
            ``fully_shard``: r, r + w, r + 2 w, and so on. A job may resume with the other one.

    Returns:
        The loop. ``iter()`` of it yields the steps; ``len()`` is the number of steps of an epoch on
        this rank, for schedulers. Its attributes ``epoch`` and ``step`` are those of the next step
        (``step`` may be one after the last step of the epoch), ``loader`` is the ``Loader``, and
        ``dataset`` that of the loader. Its methods: ``in_epoch(epoch)``, ``state_dict()``,
        ``load_state_dict(state)``, ``lineage()``, ``quarantine(samples)``, ``skip(...)``.

    Raises:
        TypeError, ValueError: an argument has the wrong type or value; or, from the loop, an epoch
            has no step, as with ``drop_last`` and fewer samples than a batch.

    Examples:
        >>> import fastseed, torch
        >>> fastseed.init(42, rank=0, world_size=1)
        >>> batches = torch.utils.data.DataLoader(range(10), batch_size=4, shuffle=True)
        >>> steps = fastseed.data.steps(batches, epochs=1, task=1)
        >>> for epoch, step, batch in steps:
        ...     print(epoch, step, batch.tolist())  # train here
        ...     if step == 1:
        ...         saved = steps.state_dict()
        0 0 [2, 7, 6, 4]
        0 1 [0, 3, 5, 8]
        0 2 [9, 1]
        >>> resumed = fastseed.data.steps(batches, epochs=1, task=1)
        >>> resumed.load_state_dict(saved)  # in another process, on other ranks
        >>> [(epoch, step, batch.tolist()) for epoch, step, batch in resumed]
        [(0, 2, [9, 1])]
    """
    return StepLoop(loader, epochs, task, slots, assignment)


class StepLoop:
    """The loop that ``steps`` returns."""

    def __init__(
        self,
        loader: DataLoader[Any],
        epochs: int | None,
        task: int,
        slots: int | None,
        assignment: str,
    ) -> None:
        if epochs is not None:
            epochs = validation.check_int(_NAME, "epochs", epochs, 0, scopes.MAX_EPOCH)
        self._epochs = epochs
        self._task = validation.check_int(_NAME, "task", task, 0, scopes.MAX_TASK)
        assignment = validation.check_choice(_NAME, "assignment", assignment, ASSIGNMENTS)
        self._slots: SlotSampler | None = None
        if slots is not None:
            slots = validation.check_int(_NAME, "slots", slots, 1, scopes.MAX_RANK)
            loader = slot_loader(_NAME, loader, slots, assignment)
            self._slots = loader.batch_sampler  # type: ignore[assignment]
        elif not isinstance(loader, Loader):
            validation.check_instance(_NAME, "loader", loader, DataLoader, "a DataLoader")
            loader = Loader(loader)
        self.loader = loader
        self._continue_at(0, 0, None)

    def _continue_at(self, epoch: int, step: int, history: History | None) -> None:
        self.epoch, self.step, self._history = epoch, step, history
        self._is_changed = False  # what is left out, since the loader's iteration began
        self._is_loaded = False  # a state, and no loop began since
        self._own: Iteration | None = None  # the loader's iteration that this loop is in
        self._given = MicroBatches((), range(0))  # those of the step that the loop is in

    @property
    def dataset(self) -> Any:
        """The dataset of the loader."""
        return self.loader.dataset

    def __len__(self) -> int:
        """Return the number of steps of a whole epoch; TypeError if the dataset has no length."""
        return len(self.loader) if self._slots is None else self._slots.steps

    def __iter__(self) -> Iterator[Step]:
        if self._epochs is None:
            rule = "the number of epochs; a loop over in_epoch(epoch) needs none"
            raise validation.type_error(_NAME, "epochs", rule, None)
        while self.epoch < self._epochs:
            yield from self.in_epoch(self.epoch)

    def in_epoch(self, epoch: int) -> Iterator[Step]:
        """Iterate one epoch, for scripts that have the loop over epochs.

        Args:
            epoch: [0, 2**32). If it is ``self.epoch``, the loop begins at ``self.step``: at 0,
                unless a state was loaded or a loop was left in that epoch.

        Raises:
            TypeError, ValueError: ``epoch`` has the wrong type or is out of range; or it is not
                ``self.epoch``, at which the state that was loaded continues.
            RuntimeError: from the iterator, if the loader was iterated elsewhere or has a state of
                another scope, or micro-batches of a step are left.
        """
        function = f"{_NAME}.in_epoch"
        epoch = validation.check_int(function, "epoch", epoch, 0, scopes.MAX_EPOCH)
        is_other = self._is_loaded and epoch != self.epoch
        # The state may be of the last step of the epoch before.
        if is_other and (epoch != self.epoch + 1 or self.loader._has_batch_left()):
            rule = f"{self.epoch}, where the loaded state continues: start at steps.epoch"
            raise validation.value_error(function, "epoch", rule, epoch)
        return self._in_epoch(epoch)

    def _in_epoch(self, epoch: int) -> Iterator[Step]:
        is_cut = True
        while is_cut:
            batches, is_cut = self._begin(epoch), False
            own = self._own
            for batch in batches:
                self.step += 1
                yield epoch, self.step - 1, batch
                if self._own is not own:
                    raise RuntimeError(
                        f"fastseed.{_NAME}: a state was loaded or another loop began inside this "
                        "loop: leave it by break first"
                    )
                self._check_taken()
                history = self._current_history()
                is_cut = self._is_changed or history.first_kept(epoch, self.step) != self.step
                if is_cut:
                    break
                api.reseed(self._task, epoch, self.step)
        self.epoch, self.step = epoch + 1, 0

    def _begin(self, epoch: int) -> Iterator[Any]:
        """Begin an iteration of the loader at the next step, or at the first one of an epoch."""
        loader, first = self.loader, self.step if epoch == self.epoch else 0
        if first:
            self._check_loader("in_epoch")
            loader.load_state_dict(loader.state_dict())
            self._own = None
        loader._is_resumed_in(loader._scope_in(self._task, epoch))
        history = self._planned(epoch, first)
        samples = layout_of(loader, context.current(_NAME))
        n, step_size = samples.layout.n, samples.layout.step_size
        if n > 0 and not samples.has_batch_after(0):
            rule = f"of a step in an epoch, which drop_last gives {step_size} samples"
            raise validation.value_error(_NAME, "loader", rule, f"{n} samples")
        before, step = (loader._loaded, loader._latest), history.first_kept(epoch, first)
        try:  # nothing has begun if this fails
            self._leave_out(history, epoch, first, step)
            api.reseed(self._task, epoch, step)
            batches: Iterator[Any] = iter(loader)
        except BaseException:
            loader._loaded, loader._latest = before
            raise
        self._continue_at(epoch, step, history)
        own = self._own = loader._latest
        if self._slots is not None and own is not None:
            return self._micro_batches(self._slots, own, batches)
        return batches

    def _leave_out(self, history: History, epoch: int, first: int, step: int) -> None:
        """Make the next iteration one without removed samples and skipped steps."""
        count = history.quarantines_at(epoch, first)
        if count or history.skips:
            check_known(_NAME, "the order of the loader", history.latest_order)
        sampler = sampler_of(self.loader)
        if isinstance(sampler, ShuffleSampler):
            sampler._removed = history.removed(count) if count else None
        entry = history.entry_at(epoch, first)
        if entry is not None and step != first:
            layout = entry.layout(history.orders[entry.order].n)
            position = layout.position_after(entry.position, step - entry.step)
            self.loader._seek(self._task, epoch, position)

    def _micro_batches(
        self, slots: SlotSampler, iteration: Iteration, batches: Iterator[Any]
    ) -> Iterator[MicroBatches]:
        own = slots.own_slots()
        for step in range(self.step, slots.steps):
            iteration.finish_steps(step + 1)
            self._given = MicroBatches(batches, own)
            yield self._given
        next(batches, None)  # the end, which the loader notices only then

    def _check_taken(self) -> None:
        if self._given.left:
            raise RuntimeError(
                f"fastseed.{_NAME}: {self._given.left} micro-batches of step {self.step - 1} were "
                "not taken, and would be skipped: take all before the next step, or load a state"
            )

    def _check_loader(self, method: str) -> None:
        self._check_taken()
        if self._own is not None and self.loader._latest is not self._own:
            raise RuntimeError(
                f"fastseed.{_NAME}.{method}: the loader was iterated outside of this loop, so "
                "its position in the loop is lost: use another loader for that"
            )

    def state_dict(self) -> StateDict:
        """Return where the loop is: after the step that it is in.

        Returns:
            A dict of strings, integers and the loader's state. All ranks must be in the same step;
            the state of any rank serves all.

        Raises:
            RuntimeError: ``fastseed.init`` was not called, or the loader was iterated elsewhere
                since this loop began, or micro-batches of the step are left.
        """
        self._check_loader("state_dict")
        state: StateDict = {**self._own_fields(), "epoch": self.epoch, "step": self.step}
        history = self._current_history().at_step(self.epoch, self.step)
        loader = self.loader.state_dict()
        if self._contradict(history, loader):
            raise RuntimeError(
                f"fastseed.{_NAME}.state_dict: the loader has given a batch that the loop was not "
                f"in, as an interrupt came before step {self.step}: load an earlier state"
            )
        return {**state, "loader": loader, "journal": to_json(history)}

    def _contradict(self, history: History, loader: StateDict) -> bool:
        """Return whether the loader's state is of another step than the next one of ``history``."""
        entry, samples = history.entry_at(*history.point), layout_of(self.loader)
        is_batched = self.loader.batch_sampler is not None
        is_counted = is_batched and samples.is_regular and samples.layout.n != UNKNOWN
        if entry is None or entry.order == STOPPED or not (is_counted or is_iterable(self.loader)):
            return False
        if (loader["task"], loader["epoch"]) != (self._task, history.epoch):
            return history.step > 0
        layout = entry.layout(history.orders[entry.order].n)
        steps = history.step - entry.step
        return bool(loader["position"] != layout.position_after(entry.position, steps))

    def _own_fields(self) -> dict[str, str | int]:
        fields: dict[str, str | int] = {"format": "fastseed.steps", "version": 1}
        fields["task"] = self._task
        if self._slots is not None:
            fields |= {"slots": self._slots.slots, "batch_size": self._slots.batch_size}
        return fields

    def load_state_dict(self, state: StateDict, *, new_order: bool = False) -> None:
        """Start the next loop after the step in which ``state`` was taken.

        Args:
            state: what ``state_dict`` returned, on any rank.
            new_order: True if the loader has another order since, as a ``MixtureSampler`` with
                other weights and ``skip``: the next step has the first samples of the new order.

        Raises:
            TypeError, ValueError: ``state`` is damaged, or of another version, task, master seed,
                order, size of the dataset, number of slots or size of theirs; nothing is changed.
            RuntimeError: ``fastseed.init`` was not called.
        """
        function = f"{_NAME}.load_state_dict"
        master_seed = context.current(function).master_seed
        new_order = validation.check_bool(function, "new_order", new_order)
        others = ("epoch", "step", "loader", "journal")
        check_state(function, "loop", state, self._own_fields(), others)
        most = scopes.MAX_EPOCH + 1
        epoch = validation.check_int(function, "state['epoch']", state["epoch"], 0, most)
        step = validation.check_int(function, "state['step']", state["step"], 0, scopes.MAX_STEP)
        if new_order and self._slots is not None and step:
            rule = "False with slots within an epoch: begin the order with an epoch"
            raise validation.value_error(function, "new_order", rule, new_order)
        loaded = None if new_order else parse(function, self.loader, state["loader"])
        history = self._parse_history(function, state, new_order)
        if loaded is not None and self._contradict(history, loaded):
            rule, found = (
                f"that of epoch {epoch} and step {step}, as the journal",
                loaded["position"],
            )
            raise validation.value_error(function, "state['loader']['position']", rule, found)
        seeds = {history.master_seed, loaded["master_seed"] if loaded else master_seed}
        for saved in seeds - {master_seed}:
            raise ValueError(
                f"fastseed.{function}: the state was saved under master seed {saved}, but the job "
                f"has {master_seed}: call fastseed.init({saved})"
            )
        self.loader.restart()
        if loaded is not None:
            self.loader.load_state_dict(loaded)
        self._continue_at(epoch, step, history)
        self._is_loaded = True

    def _parse_history(self, function: str, state: StateDict, new_order: bool) -> History:
        """Return the history of a state, if it is one of this loop."""
        where, text = "state['journal']", state["journal"]
        validation.check_instance(function, where, text, str, "the text of a journal")
        history = from_json(function, where, text)
        own, given = (self._task, state["epoch"], state["step"]), (history.task, *history.point)
        if given != own:
            rule = f"of task, epoch and step {own}, as this state"
            raise validation.value_error(function, where, rule, given)
        n, latest = layout_of(self.loader).layout.n, history.entry_at(*history.point)
        if latest is not None and not new_order and history.orders[latest.order].n != n:
            rule, size = f"of {n} positions, as for this loop", history.orders[latest.order].n
            raise validation.value_error(function, where, rule, size)
        return history

    def lineage(self) -> Lineage:
        """Return which samples the steps of this job have, before and after now."""
        return Lineage(self._planned(self.epoch, self.step))

    def quarantine(self, samples: int | Iterable[int], source: str | None = None) -> None:
        """Remove samples from the order, from the next step on; the state says which.

        The sample of a spare position takes each of their places, as a ``Repeat``; every other
        sample keeps its place and its random numbers. All ranks must call it in the same step.

        Args:
            samples: one index in the dataset, or several.
            source: None; or the source of a ``MixtureSampler`` that ``samples`` is counted in.

        Raises:
            TypeError, ValueError: a sample does not exist; all removed have more than half of the
                positions; or the order is not that of a ``ShuffleSampler``. Nothing is changed.
            RuntimeError: ranks call it otherwise.
        """
        self._change("quarantine", with_quarantine, samples, source)

    def skip(self, epoch: int, first_step: int, last_step: int) -> None:
        """Leave out steps to come; all others keep their numbers and samples.

        All ranks must call it in the same step. If the ranks or the batch size change before, the
        steps of these numbers are those of the new size.

        Args:
            epoch: [0, 2**32).
            first_step: the first step that is left out, not before the next step.
            last_step: the last one, below the number of steps of the epoch.

        Raises:
            TypeError, ValueError: some steps are not to come, or skipped already; or the order is
                not that of a ``ShuffleSampler``. Nothing is changed.
            RuntimeError: ranks call it otherwise.
        """
        self._change("skip", with_skip, epoch, first_step, last_step)

    def _change(self, method: str, make: Callable[..., History], *arguments: Any) -> None:
        """Continue with another history; all ranks must make the same call in the same step."""
        function, before = f"{_NAME}.{method}", self._planned(self.epoch, self.step)
        after = make(function, before, *arguments)
        text = to_json(dataclasses.replace(after, orders=(), entries=()))
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        agree(function, {"next step": list(after.point), "left out": digest}, seconds=60.0)
        if after is not before:
            self._history, self._is_changed = after, True

    def _current_history(self) -> History:
        """Return the history; that of a loop without a step needs ``fastseed.init``."""
        seed, history = context.current(_NAME).master_seed, self._history
        if history is not None and history.master_seed == seed:
            return history
        # Another init is another job. Damaged samples stay damaged; steps get other samples.
        removed = () if history is None else history.quarantines
        moved = tuple(quarantine._replace(epoch=0, step=0) for quarantine in removed)
        return History(seed, self._task, quarantines=moved)

    def _planned(self, epoch: int, step: int) -> History:
        """Return the history of a job that continues with a step."""
        samples = layout_of(self.loader, context.current(_NAME))
        layout, position = samples.layout, self.loader._position() if step else 0
        flags = int(layout.drop_last), int(layout.ranks_drop_last)
        size = layout.batch_size, layout.slots
        entry = Entry(epoch, step, position, 0, layout.ranks, *size, *flags, layout.assignment)
        history = self._current_history().at_step(self.epoch, self.step)
        return history.with_entry(entry, samples.spec)
