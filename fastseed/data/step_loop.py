"""What ``steps`` returns: a loop over epochs and batches, and its state."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from torch.utils.data import DataLoader

from .._utils import StateDict, validation
from .._utils.log import warn_once
from ..derivation import context, scopes
from ..distributed.agreement import agree
from ..seeder import api
from .history import History, Point, check_known, with_quarantine, with_skip
from .journal import to_json
from .layout import SlotSource
from .limits import EpochSteps, Limits, MicroBatches, Step, loader_of
from .lineage import Lineage
from .loader.iteration import Iteration
from .loader.states import check_resumable, check_state
from .order.samplers import SlotSampler
from .plan import Plan, compare_ranks, plan_of

_NAME = "data.steps"
_FORMAT: dict[str, str | int] = {"format": "fastseed.steps", "version": 3}


class StepLoop:
    """The loop that ``steps`` returns."""

    def __init__(
        self,
        loader: DataLoader[Any],
        limits: Limits,
        task: int,
        slots: int | SlotSource | None,
        check: bool,
    ) -> None:
        self._limits, self._before = limits, 0  # steps of earlier epochs
        self._task = validation.check_int(_NAME, "task", task, 0, scopes.MAX_TASK)
        self._is_compared = not validation.check_bool(_NAME, "check", check)  # with other ranks
        if slots is not None and limits.accumulate is not None:
            rule = "None with slots, which are the micro-batches of a step"
            raise validation.value_error(_NAME, "accumulate", rule, limits.accumulate)
        self.loader = loader_of(_NAME, loader, slots)
        batches: Any = self.loader.batch_sampler
        self._slots: SlotSampler | None = None if slots is None else batches
        self._earlier = 0  # _before of the epoch before
        self._is_saved = False  # a state of the next step
        self._since: Point = (0, 0)  # the next step when it was last chosen what comes
        self._continue_at(0, 0, None)

    def _continue_at(self, epoch: int, step: int, history: History | None) -> None:
        self.epoch, self.step, self._history = epoch, step, history
        self._is_changed = False  # what is left out, since the loader's iteration began
        self._loaded: StateDict | None = None  # a state, and no loop began since
        self._own: Iteration | None = None  # the loader's iteration that this loop is in
        self._given: MicroBatches | None = None  # those of the step that the loop is in
        self._thread: int | None = None  # of the loop's last next()

    @property
    def dataset(self) -> Any:
        """The dataset of the loader."""
        return self.loader.dataset

    @property
    def _done(self) -> int:
        return self._before + self.step  # steps of all epochs

    def __repr__(self) -> str:
        limits = [f"{k}={v}" for k, v in self._limits._asdict().items() if v is not None]
        at = f"epoch={self.epoch}", f"step={self.step}", f"task={self._task}"
        return f"<fastseed.{_NAME}: {', '.join((*at, *limits))}>"

    def __len__(self) -> int:
        """Return the number of steps that are left; TypeError if that is not known."""
        self._check_limited()
        at = self.epoch, self.step
        return self._limits.count_all(self._planned(*at), self.loader, at, self._done)

    def _check_limited(self) -> None:
        if self._limits.epochs is None and self._limits.total is None:
            rule = "the number of epochs, or total that of steps; in_epoch(epoch) needs none"
            raise validation.type_error(_NAME, "epochs", rule, None)

    def __iter__(self) -> Iterator[Step]:
        self._check_limited()
        epochs, total = self._limits[:2]
        while epochs is None or self.epoch < epochs:
            before, is_whole = self._done, not self.step
            yield from self.in_epoch(self.epoch)
            if total is not None and self._done >= total:
                return
            if epochs is None and is_whole and self._done == before:
                rule = "one that yields batches in each epoch, until total"
                raise validation.value_error(_NAME, "loader", rule, self.loader)

    def in_epoch(self, epoch: int) -> EpochSteps:
        """Iterate one epoch, for scripts that have the loop over epochs; ``len()`` is known.

        Args:
            epoch: [0, 2**32). If it is ``self.epoch``, the loop begins at ``self.step``: at 0,
                unless a state was loaded or a loop was left in that epoch.

        Raises:
            TypeError, ValueError: ``epoch`` is none, or not that in which a loaded state continues.
            RuntimeError: from the iterator, if a state was loaded into the loader, micro-batches
                of a step are left, or ``init`` gave another seed inside this epoch.
        """
        function = f"{_NAME}.in_epoch"
        epoch = validation.check_int(function, "epoch", epoch, 0, scopes.MAX_EPOCH)
        is_other = self._loaded is not None and epoch != self.epoch
        # The state may be of the last step of the epoch before.
        if is_other and (epoch != self.epoch + 1 or self._has_step_left()):
            rule = f"{self.epoch}, where the loaded state continues: start at steps.epoch"
            raise validation.value_error(function, "epoch", rule, epoch)
        return EpochSteps(self._in_epoch(epoch), functools.partial(self._steps_left, epoch))

    def _steps_left(self, epoch: int) -> int:
        step = self.step if epoch == self.epoch else 0
        count = self._limits.count_epoch(self._planned(epoch, step), self.loader, epoch, step)
        left = self._limits.left(self._before + step, step)
        return count if left is None else min(count, left)

    def _in_epoch(self, epoch: int) -> Iterator[Step]:
        is_cut = True
        while is_cut:
            batches, is_cut = self._begin(epoch), False
            own = self._own
            for batch in batches:
                self.step, self._thread = self.step + 1, threading.get_ident()
                self._is_saved = False
                yield epoch, self.step - 1, batch
                if self._own is not own:
                    raise RuntimeError(
                        f"fastseed.{_NAME}: a state was loaded or another loop began inside this "
                        "loop: leave it by break first"
                    )
                self._check_taken()
                history = self._history
                assert history is not None
                if self._is_changed or history.skips:
                    is_cut = self._is_changed or history.first_kept(epoch, self.step) != self.step
                if is_cut:
                    break
                api.reseed(self._task, epoch, self.step)
        self._own = None
        if self._done != self._limits.total:  # with more of them, the epoch continues
            self._leave(epoch + 1)

    def _leave(self, epoch: int) -> None:
        self._earlier, self._before = self._before, self._done
        self.epoch, self.step, self._is_saved = epoch, 0, False

    def _begin(self, epoch: int) -> Iterator[Any]:
        """Begin an iteration of the loader at the next step, or at the first one of an epoch."""
        loader, first = self.loader, self.step if epoch == self.epoch else 0
        if first:
            self._check_taken()
        if loader._loaded is not None:
            raise RuntimeError(
                f"fastseed.{_NAME}: a state was loaded into the loader of this loop: load the "
                "state of the loop into the loop, or call restart() of the loader"
            )
        whole = plan_of(loader, context.current(_NAME))
        try:
            check_resumable(_NAME, loader, whole)
        except (TypeError, ValueError) as error:
            warn_once("%s; this loop is iterated, but state_dict() will raise this", error)
        plan = self._limits.cut(whole)
        if plan.steps and plan.has_own_place:
            rule = "None for an iterable dataset that cannot seek: pass total"
            raise validation.value_error(_NAME, "steps_per_epoch", rule, plan.steps)
        if not plan.has_whole_epoch():
            rule = f"of a step in an epoch, which drop_last gives {plan.layout.step_size} samples"
            raise validation.value_error(_NAME, "loader", rule, f"{plan.spec.n} samples")
        if plan.is_ours and not first:
            plan = plan._replace(start=plan.source._take_position())  # of the user's seek
        history = self._planned(epoch, first, plan)
        step = history.first_kept(epoch, first)
        if step:
            plan = plan._replace(start=history.position_at(epoch, step))
        count = history.quarantines_at(epoch, first)
        if count or history.skips:
            check_known(_NAME, "the order of the loader", history.latest_order)
        if count:
            plan = plan._replace(order=history.order(epoch, history.latest_order, count))
        state = self._loaded or {}
        if first and self._loaded is None:
            state = self._beside_position(plan)
        is_over = epoch == self.epoch and bool(state.get("over"))
        if epoch != self.epoch:
            if self._is_saved and self._has_step_left():
                warn_once(
                    "fastseed.data.steps: a state was saved at step %d of epoch %d, which the loop "
                    "leaves, but a run that resumes there finishes it: pass steps_per_epoch",
                    *(self.step, self.epoch),
                )
            self._leave(epoch)
        api.reseed(self._task, epoch, step)
        if not self._is_compared:  # also the seed that reseed gives a registered sampler
            compare_ranks(_NAME, loader, plan, self._task, epoch, first)
            self._is_compared = True
        plan = plan._replace(layout=whole.layout)
        batches: Iterator[Any] = loader._iterate(self._task, epoch, plan, is_over, state)
        self._continue_at(epoch, step, history)
        self._own = loader._latest
        if self._slots is not None:
            batches = self._micro_batches(self._slots, batches)
        left = self._limits.left(self._done, step)
        return self._limits.steps_of(batches, plan.layout.drop_last, left)

    def _micro_batches(self, slots: SlotSampler, batches: Iterator[Any]) -> Iterator[MicroBatches]:
        for _ in range(self.step, slots.steps):
            self._given = MicroBatches(batches, slots.own_slots())
            yield self._given
        next(batches, None)  # the end, which the loader notices only then

    def _check_taken(self) -> None:
        if self._given is not None and self._given.left:
            raise RuntimeError(
                f"fastseed.{_NAME}: {self._given.left} micro-batches of step {self.step - 1} were "
                "not taken, and would be skipped: take all before the next step, or load a state"
            )

    def _check_seed(self) -> None:
        seed, history = context.current(_NAME).master_seed, self._history
        if self.step and history is not None and history.master_seed != seed:
            raise RuntimeError(
                f"fastseed.{_NAME}: this epoch began under master seed {history.master_seed}, but "
                f"the job has {seed}, and no state repeats both: finish the epoch first"
            )

    def _has_step_left(self) -> bool:
        over = self._loaded is not None and self._loaded.get("over")
        if over or self._limits.left(self._done, self.step) == 0:
            return False
        start = self._current_history().position_at(self.epoch, self.step)
        plan = self._plan()._replace(start=start)
        return self.loader._has_batch_left(self._task, self.epoch, plan)

    def state_dict(self, *, after: tuple[int, int] | None = None) -> StateDict:
        """Return where the loop is: after the step that it is in.

        Args:
            after: None; or the (epoch, step) that was done last, of this epoch or the one before,
                where a wrapper took more steps from the loop.

        Returns:
            A dict: the journal, and of a dataset its own state, or of another sampler a digest of
            its indices. All ranks must be in the same step; the state of any rank serves all.

        Raises:
            RuntimeError: ``fastseed.init`` was not called, or with another seed inside this epoch;
                micro-batches of the step are left; or without ``after``, another thread took the
                latest step from the loop.
            TypeError, ValueError: the loader cannot resume, as with ``in_order=False``, a sampler
                of torch with a generator, or an iterable dataset that cannot; or ``after`` is no
                step of this loop since ``skip`` or ``quarantine``, or the dataset has a state.
        """
        if after is not None:
            return self._state_after(after)
        if self._thread not in (None, threading.get_ident()):
            raise RuntimeError(
                f"fastseed.{_NAME}.state_dict: another thread takes the steps, which may be ahead: "
                "pass after=(epoch, step), the step that was done last"
            )
        return self._state()

    def _state(self) -> StateDict:
        self._check_taken()
        self._check_seed()
        plan = self._plan()
        check_resumable(f"{_NAME}.state_dict", self.loader, plan)
        history = self._current_history()._replace(epoch=self.epoch, step=self.step)
        if not history.entries:
            history = self._planned(self.epoch, self.step)
        beside = self._beside_position(plan) if self._loaded is None else self._loaded
        self._is_saved = self.step > 0
        return {**beside, **_FORMAT, "before": self._before, "journal": to_json(history)}

    def _state_after(self, after: tuple[int, int]) -> StateDict:
        function, rule = f"{_NAME}.state_dict", "(epoch, step), as the loop yields them"
        if not (isinstance(after, tuple) and [*map(type, after)] == [int, int]):
            raise validation.type_error(function, "after", rule, after)
        epoch, step = after
        state, history = self._state(), self._current_history()
        is_given = self._since < (epoch, step + 1) <= (self.epoch, self.step)
        if not (is_given and epoch >= self.epoch - 1 and history.has_steps(epoch, step)):
            rule = "a step that this loop gave since skip(), quarantine() or load_state_dict()"
            raise validation.value_error(function, "after", rule, after)
        if "dataset" in state:
            raise validation.value_error(function, "after", "None with a dataset's state", after)
        if "read" in state:
            state["read"] = ""
        before = self._before if epoch == self.epoch else self._earlier
        return {**state, "before": before, "journal": to_json(history.until(epoch, step + 1))}

    def _beside_position(self, plan: Plan) -> StateDict:
        own, is_ahead = self._own, False
        if own is not None and not own.plan.is_ours:  # after an interrupt
            is_ahead = own.position > self._current_history().position_at(self.epoch, self.step)
        is_lost = is_ahead or own not in (None, self.loader._latest)
        if is_lost and plan.has_own_place:
            raise RuntimeError(
                f"fastseed.{_NAME}: the dataset lost its place, as the loader was iterated outside "
                "of this loop or next() was interrupted: load an earlier state"
            )
        return self.loader._beside_position(plan, None if is_ahead else own)

    def load_state_dict(self, state: StateDict, *, new_order: bool = False) -> None:
        """Start the next loop after the step in which ``state`` was taken.

        Args:
            state: what ``state_dict`` returned, on any rank.
            new_order: True if the loader has another order since, as a ``MixtureSampler`` with
                other weights and ``skip``: the next step has the first samples of the new order.

        Raises:
            TypeError, ValueError: ``state`` is damaged, or of another version, task, master seed,
                order, size of the dataset, number of slots or size of theirs; nothing is changed.
            RuntimeError: there was no ``init``; or the order is not ours, and the ranks are others.
        """
        function = f"{_NAME}.load_state_dict"
        seeder = context.current(function)
        new_order = validation.check_bool(function, "new_order", new_order)
        plan = self._plan()
        check_resumable(function, self.loader, plan)
        check_state(function, "loop", state, _FORMAT, {"before", "journal", *plan.beside_position})
        top = scopes.MAX_STEP
        before = validation.check_int(function, "state['before']", state["before"], 0, top)
        job = seeder.master_seed, self._task
        history = plan.parse_history(function, state["journal"], *job, new_order)
        self._continue_at(*history.point, history)
        self._before, self._is_saved = before, False
        self._loaded = {name: state[name] for name in plan.beside_position}
        self._since = history.point

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

        All ranks must call it in the same step. With other ranks or batches, these are other steps.

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
        function, before = f"{_NAME}.{method}", self._planned(self.epoch, self.step)
        after = make(function, before, *arguments)
        digest = hash((after.task, after.skips, after.quarantines))  # of integers: on each rank
        agree(function, {"next step": list(after.point), "left out": digest}, seconds=60.0)
        if after is not before:
            self._history, self._is_changed, self._since = after, True, after.point

    def _current_history(self) -> History:
        """Return the history; that of a loop without a step needs ``fastseed.init``."""
        seed, history = context.current(_NAME).place.master_seed, self._history
        if history is not None and history.master_seed == seed:
            return history
        # Another init is another job. Damaged samples stay damaged; steps get other samples.
        removed = () if history is None else history.quarantines
        moved = tuple(quarantine._replace(epoch=0, step=0) for quarantine in removed)
        return History(seed, self._task, quarantines=moved)

    def _planned(self, epoch: int, step: int, plan: Plan | None = None) -> History:
        """Return the history of a job that continues with a step."""
        plan = self._plan() if plan is None else plan
        if step:
            self._check_seed()
        history = self._current_history()._replace(epoch=self.epoch, step=self.step)
        if self._own is not None and (epoch, step) == history.point and step:
            return history
        position = history.position_at(epoch, step) if step else plan.start
        return history.with_entry(plan.entry(epoch, step, position), plan.spec)

    def _plan(self) -> Plan:
        """Return what a whole epoch reads, in batches as large as the steps."""
        return self._limits.cut(plan_of(self.loader, context.current(_NAME)))
