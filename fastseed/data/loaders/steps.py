"""The loop over epochs and batches that reseeds, and whose state says where it is."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

from torch.utils.data import DataLoader

from ..._utils import StateDict, validation
from ...derivation import context, scopes
from ...seeder import api
from ..lineage.answers import Lineage
from ..order.slots import SlotSampler
from .history import History
from .iteration import Iteration
from .loader import prepared_settings, slot_settings
from .resumable import ResumableLoader
from .saved_state import check_state

FORMAT = "fastseed.steps"
VERSION = 1

Step = tuple[int, int, Any]  # epoch, number in it, batch; with slots an iterator of batches

_CLASS = "data.steps"


class MicroBatches(Iterator[Any]):
    """This rank's micro-batches of a step, which are fetched one by one.

    After an error it has no more, since what the loader has next is the batch of another slot.
    """

    def __init__(self, batches: Iterable[Any], count: int) -> None:
        self._batches, self.left = itertools.islice(batches, count), count

    def __next__(self) -> Any:
        batch = next(self._batches)
        self.left -= 1
        return batch


class Steps:
    """Iterate the batches of all epochs as (epoch, step, batch), each step in its own scope.

    Before each step it calls ``reseed(task, epoch, step)``, so a run that resumes draws what the
    uninterrupted run draws, and what the body draws has no effect on later steps. ``step``
    counts the steps of an epoch from 0; after resuming it continues, with any number of ranks.

    A state belongs to the end of a step: take it where the parameters are saved, after the
    optimizer's step. It contains the state of the loader, and counts the batch that the loop has,
    not those that workers fetched ahead. After ``break``, another loop continues with the next
    step.

    ``len(steps)`` is the number of steps of an epoch, as that of a DataLoader, for schedulers.

    Args:
        loader: a ``ResumableLoader``. Any other DataLoader becomes one with its settings, as by
            ``prepare``; the argument is not changed. Under Accelerate, use
            ``fastseed.integrations.accelerate.AcceleratedJob.train`` instead.
        epochs: the number of epochs, [0, 2**32); None for a script that has the loop over epochs
            itself and calls ``in_epoch``.
        task: the task of ``reseed``, [0, 2**24).
        slots: None; or the number of micro-batches of a step, [1, 2**24), which
            ``fastseed.elastic.SlotGradients`` sums, whatever the number of ranks. Slot s of step t
            then has the ``batch_size`` samples from position (t * slots + s) * batch_size of the
            order on, and rank r of w has slots r, r + w, r + 2 * w, and so on. In place of a batch
            the loop yields an iterator of this rank's micro-batches, which must be exhausted before
            the next step; a rank may have none. With ``drop_last`` the loader leaves out an
            incomplete last step; without, it is filled up with samples from the front of the order,
            of type ``Repeat``. The loader must have ``batch_size``, and ``shuffle=True``, its
            dataset's order, a ``ShuffleSampler`` or a ``MixtureSampler``.

    Attributes:
        loader: the ``ResumableLoader``.
        epoch: the epoch of the next step.
        step: the number of the next step in it; it may be one after the last step of the epoch.

    Raises:
        TypeError, ValueError: an argument has the wrong type or is out of range; or ``slots`` is
            given, and ``loader`` is iterable-style, a ``ResumableLoader``, or has another sampler.

    Examples:
        >>> import fastseed, torch
        >>> fastseed.init(42, rank=0, world_size=1)
        >>> batches = torch.utils.data.DataLoader(range(10), batch_size=4, shuffle=True)
        >>> steps = fastseed.data.steps(batches, epochs=2, task=1)
        >>> for epoch, step, batch in steps:
        ...     print(epoch, step, batch.tolist())  # train here
        ...     if (epoch, step) == (0, 1):
        ...         saved = steps.state_dict()
        0 0 [2, 7, 6, 4]
        0 1 [0, 3, 5, 8]
        0 2 [9, 1]
        1 0 [6, 9, 5, 2]
        1 1 [7, 4, 8, 1]
        1 2 [0, 3]
        >>> resumed = fastseed.data.steps(batches, epochs=2, task=1)
        >>> resumed.load_state_dict(saved)  # in another process, on other ranks
        >>> epoch, step, batch = next(iter(resumed))
        >>> epoch, step, batch.tolist()
        (0, 2, [9, 1])
    """

    def __init__(
        self,
        loader: DataLoader[Any],
        epochs: int | None = None,
        *,
        task: int = 1,
        slots: int | None = None,
    ) -> None:
        if epochs is not None:
            epochs = validation.check_int(_CLASS, "epochs", epochs, 0, scopes.MAX_EPOCH)
        self._epochs = epochs
        self._task = validation.check_int(_CLASS, "task", task, 0, scopes.MAX_TASK)
        self._slots: SlotSampler | None = None
        if slots is not None:
            slots = validation.check_int(_CLASS, "slots", slots, 1, scopes.MAX_RANK)
            if isinstance(loader, ResumableLoader):
                rule = "the DataLoader that it is made of, with slots"
                raise validation.type_error(_CLASS, "loader", rule, loader)
            settings = slot_settings(_CLASS, loader, slots)
            loader, self._slots = ResumableLoader(**settings), settings["batch_sampler"]
        elif not isinstance(loader, ResumableLoader):
            loader = ResumableLoader(**prepared_settings(_CLASS, loader))
        self.loader = loader
        self._history = History(loader, self._task)
        self.epoch = self.step = 0
        self._is_loaded = False  # a state, and no loop began since
        self._own: Iteration | None = None  # the loader's iteration that this loop is in
        self._given = MicroBatches((), 0)  # those of the step that the loop is in

    @property
    def dataset(self) -> Any:
        """The dataset of the loader."""
        return self.loader.dataset

    def __len__(self) -> int:
        """Return the number of steps of a whole epoch; TypeError if the dataset has no length."""
        return len(self.loader) if self._slots is None else self._slots.steps

    def __iter__(self) -> Iterator[Step]:
        if self._epochs is None:
            rule = (
                "the number of epochs to iterate them all; a loop over in_epoch(epoch) needs none"
            )
            raise validation.type_error(_CLASS, "epochs", rule, None)
        return self._in_all_epochs(self._epochs)

    def _in_all_epochs(self, epochs: int) -> Iterator[Step]:
        while self.epoch < epochs:
            yield from self.in_epoch(self.epoch)

    def in_epoch(self, epoch: int) -> Iterator[Step]:
        """Iterate one epoch, for scripts that have a loop over epochs of their own.

        Args:
            epoch: [0, 2**32). If it is ``self.epoch``, the loop begins at ``self.step``: at 0,
                unless a state was loaded or a loop was left in that epoch.

        Returns:
            An iterator over (epoch, step, batch); ``reseed`` is called when its first step is
            requested.

        Raises:
            TypeError, ValueError: ``epoch`` has the wrong type or is out of range; or it is not
                ``self.epoch``, at which the state that was loaded continues.
            RuntimeError: from the iterator, if the loader was iterated elsewhere, or has a loaded
                state of another scope, or the micro-batches of a step were not all taken.
        """
        function = f"{_CLASS}.in_epoch"
        epoch = validation.check_int(function, "epoch", epoch, 0, scopes.MAX_EPOCH)
        if self._is_loaded and epoch != self.epoch and not self._is_next(epoch):
            rule = f"{self.epoch}, where the loaded state continues: start the loop at steps.epoch"
            raise validation.value_error(function, "epoch", rule, epoch)
        return self._in_epoch(epoch)

    def _is_next(self, epoch: int) -> bool:
        """Return True for the epoch after one whose last step was the end of the loaded state."""
        return epoch == self.epoch + 1 and not self.loader.has_rest()

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
                        f"fastseed.{_CLASS}: a state was loaded or another loop began inside this "
                        "loop: leave it by break first"
                    )
                self._check_taken()
                is_cut = self._history.is_cut(epoch, self.step)
                if is_cut:
                    break
                api.reseed(self._task, epoch, self.step)
        self.epoch, self.step = epoch + 1, 0

    def _begin(self, epoch: int) -> Iterator[Any]:
        """Begin an iteration of the loader at the next step, or at the first one of an epoch."""
        first = self.step if epoch == self.epoch else 0
        if first:
            self._check_loader("in_epoch")
            self.loader.load_state_dict(self.loader.state_dict())
            self._own = None
        self.loader.check_scope(self._task, epoch)
        first = self._history.begin(epoch, first, (self.epoch, self.step))
        api.reseed(self._task, epoch, first)
        batches: Iterator[Any] = iter(self.loader)
        own = self._own = self.loader.latest_iteration
        self.epoch, self.step, self._is_loaded = epoch, first, False
        self._given = MicroBatches((), 0)
        if self._slots is not None and own is not None:
            return self._micro_batches(self._slots, own, batches)
        return batches

    def _micro_batches(
        self, slots: SlotSampler, iteration: Iteration, batches: Iterator[Any]
    ) -> Iterator[MicroBatches]:
        count = len(slots.own_slots())
        for step in range(self.step, slots.steps):
            iteration.position = slots.position(step + 1)
            self._given = MicroBatches(batches, count)
            yield self._given
        next(batches, None)  # the end, which the loader notices only then

    def _check_taken(self) -> None:
        if self._given.left:
            raise RuntimeError(
                f"fastseed.{_CLASS}: {self._given.left} micro-batches of step {self.step - 1} were "
                "not taken, and would be skipped: take all before the next step, or load a state"
            )

    def _check_loader(self, method: str) -> None:
        self._check_taken()
        if self._own is not None and self.loader.latest_iteration is not self._own:
            raise RuntimeError(
                f"fastseed.{_CLASS}.{method}: the loader was iterated outside of this loop, so "
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
        place = {"epoch": self.epoch, "step": self.step}
        journal = self._history.dump(self.epoch, self.step)
        parts = {"loader": self.loader.state_dict(), "journal": journal}
        return {**self._own_fields(), **place, **parts}

    def _own_fields(self) -> dict[str, str | int]:
        fields: dict[str, str | int] = {"format": FORMAT, "version": VERSION, "task": self._task}
        if self._slots is None:
            return fields
        return {**fields, "slots": self._slots.slots, "batch_size": self._slots.batch_size}

    def load_state_dict(self, state: StateDict, *, new_order: bool = False) -> None:
        """Start the next loop after the step in which ``state`` was taken.

        Args:
            state: what ``state_dict`` returned, on any rank.
            new_order: True if the loader has another order since, as a ``MixtureSampler`` with
                other weights and the samples so far as ``skip``: the next step is the one after
                that of ``state``, and has the first samples of the new order. Streams of workers
                then start as in step 0 (those of ``per_sample`` do not depend on it).

        Raises:
            TypeError, ValueError: ``state`` is damaged, or of another version, task, master seed or
                order, or of a dataset of another size (of the dataset only the size is compared);
                with ``slots`` also of another number of slots or batch size; nothing is changed.
            RuntimeError: ``fastseed.init`` was not called.
        """
        function = f"{_CLASS}.load_state_dict"
        master_seed = context.current(function).master_seed
        new_order = validation.check_bool(function, "new_order", new_order)
        others = ("epoch", "step", "loader", "journal")
        check_state(function, "loop", state, self._own_fields(), others)
        limits = {"epoch": scopes.MAX_EPOCH + 1, "step": scopes.MAX_STEP}
        epoch, step = (
            validation.check_int(function, f"state[{field!r}]", state[field], 0, limit)
            for field, limit in limits.items()
        )
        if new_order and self._slots is not None and step:
            rule = "False with slots within an epoch: begin the order with an epoch"
            raise validation.value_error(function, "new_order", rule, new_order)
        loaded = None if new_order else self.loader.parse_state(function, state["loader"])
        journal = self._history.parse(function, state, new_order)
        for saved in (
            master_seed if loaded is None else loaded["master_seed"],
            journal.master_seed,
        ):
            if saved != master_seed:
                raise ValueError(
                    f"fastseed.{function}: the state was saved under master seed {saved}, but the "
                    f"job has {master_seed}: call fastseed.init({saved})"
                )
        if loaded is None:
            self.loader.restart()
        else:
            self.loader.load_state_dict(loaded)
        self._history.load(journal)
        self.epoch, self.step, self._own, self._is_loaded = epoch, step, None, True
        self._given = MicroBatches((), 0)

    # ------------------------------------------------------------------ lineage

    def lineage(self) -> Lineage:
        """Return which samples the steps of this job have, before and after now.

        Raises:
            RuntimeError: ``fastseed.init`` was not called.
        """
        return Lineage(self._history.planned(self.epoch, self.step))

    def quarantine(self, samples: int | Iterable[int], source: str | None = None) -> None:
        """Remove samples from the order, from the next step on.

        The sample of a spare position, beyond the end of the epoch's order, takes each of their
        places, as a ``Repeat``; every other sample keeps its place and its random numbers. That
        holds on any number of ranks, and is part of the state. All ranks must call it in the same
        step. The loader's iteration begins again with the next step, as when a job resumes.

        Args:
            samples: one index in the dataset, or several.
            source: None; or the source of a ``MixtureSampler`` that ``samples`` is counted in.

        Raises:
            TypeError, ValueError: an argument has the wrong type; a sample does not exist; more
                than a third of the dataset is removed, or more than spare positions serve; or the
                order is not that of a ``ShuffleSampler``. Nothing is changed.
            RuntimeError: ``fastseed.init`` was not called.
        """
        self._history.quarantine(samples, source, (self.epoch, self.step))

    def skip(self, epoch: int, first_step: int, last_step: int) -> None:
        """Leave out steps to come; all others keep their numbers and samples.

        It is part of the state; all ranks must call it in the same step. If the number of ranks or
        the batch size changes before, the steps of these numbers are those of the new size.

        Args:
            epoch: [0, 2**32).
            first_step: the first step that is left out, not before the next step.
            last_step: the last one, below the number of steps of the epoch.

        Raises:
            TypeError, ValueError: an argument has the wrong type or is out of range; some of these
                steps are skipped already; or the order is not that of a ``ShuffleSampler``. Nothing
                is changed.
            RuntimeError: ``fastseed.init`` was not called.
        """
        self._history.skip(epoch, first_step, last_step, (self.epoch, self.step))


steps = Steps
"""The class ``Steps``, by the name of a function."""
