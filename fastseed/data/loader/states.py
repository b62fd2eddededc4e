"""The state of a loader, which says where it is, and what has none.

Copies of an iterable dataset in workers are where their own states say. A batch brings the state of
its worker. torch takes batches from workers in turn, so a loop resumes from the states with which
its latest round of turns began, and drops the batches of the round. A dataset may say anything
after its end, so a worker's last batch, if incomplete, is read again too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

import numpy as np
from torch.utils.data import DataLoader, get_worker_info

from ..._utils import StateDict, validation
from ..._utils.log import warn_once
from ...seeder.seeder import Seeder
from ..order.samplers import RANDOM_SAMPLERS
from ..plan import Plan

_NAME = "data.Loader"
Collate = Callable[[Any], Any]


def check_resumable(function: str, loader: DataLoader[Any], plan: Plan) -> None:
    """Raise TypeError or ValueError if no state says where the loader is that reads a plan."""
    if not loader.in_order:
        rule = "True, so that the number of batches says which were delivered"
        raise validation.value_error(function, "in_order", rule, False)
    for sampler in plan.samplers:
        if isinstance(sampler, RANDOM_SAMPLERS) and sampler.generator:
            rule = "without a generator, whose state is lost: use shuffle=True"
            raise validation.value_error(function, "sampler", rule, sampler)
    dataset = loader.dataset
    has_state = hasattr(dataset, "state_dict") and hasattr(dataset, "load_state_dict")
    if plan.has_own_place and not has_state:
        rule = "map-style, a Seekable, or have seek(position), or a state_dict"
        raise validation.type_error(function, "dataset", rule, dataset)


def check_state(
    function: str,
    noun: str,
    state: StateDict,
    expected: Mapping[str, str | int],
    others: Collection[str],
) -> None:
    """Raise TypeError or ValueError unless ``state`` has ``expected`` and the fields ``others``."""
    validation.check_instance(function, "state", state, dict, "a dict from state_dict()")
    fields = sorted({*expected, *others})
    if set(state) != set(fields):
        rule = f"a dict of {', '.join(fields)}, from the state_dict() of a {noun}"
        raise validation.value_error(function, "state", rule, list(state))
    if "read" in state:
        rule = "a digest of indices"
        validation.check_instance(function, "state['read']", state["read"], str, rule)
    if "over" in state:
        validation.check_int(function, "state['over']", state["over"], 0, 1)
    for field, value in expected.items():
        given = state[field]
        # Tensors are never read, since their memory may have been freed.
        if not isinstance(given, (str, int, np.integer)) or given != value:
            rule = f"{value!r}, as for this {noun}"
            raise validation.value_error(function, f"state[{field!r}]", rule, given)


class PlacedBatch(NamedTuple):
    """A batch, the worker that read it, and the state of its dataset after it."""

    batch: Any
    worker: int
    state: Any
    is_last: bool  # the dataset has ended


def collate_placed(collate: Collate, batch_size: int | None, samples: Any) -> PlacedBatch:
    """Return a batch in a worker, with the place of the dataset."""
    is_last = batch_size is not None and len(samples) < batch_size
    batch = collate(samples)
    info: Any = get_worker_info()
    return PlacedBatch(batch, info.id, info.dataset.state_dict(), is_last)


def load_place(states: list[Any], user_init: Callable[[int], object] | None, worker: int) -> None:
    """Load the state of a worker, before the script's own ``worker_init_fn`` is called."""
    if states[worker] is not None:
        info: Any = get_worker_info()
        info.dataset.load_state_dict(states[worker])
    if user_init is not None:
        user_init(worker)


class WorkerPlaces:
    """The places of an iteration: the states that its latest round began with, and its batches."""

    def __init__(self, workers: int, seeder: Seeder, loaded: Any = None) -> None:
        self._at = {"workers": workers, "rank": seeder.data_rank, "ranks": seeder.data_world_size}
        if loaded is not None:
            saved = loaded if isinstance(loaded, dict) else {}
            for name, here in self._at.items():
                if saved.get(name) != here:
                    rule = f"of {name} {here}, as here: a stream resumes with the same"
                    found = saved.get(name, "none: saved without workers")
                    raise validation.value_error(_NAME, "state['dataset']", rule, found)
        saved = {"states": [None] * workers, "drop": []} if loaded is None else loaded
        self.states: list[Any] = list(saved["states"])  # with which the round began
        self._latest = list(self.states)
        self._to_drop = {*saved["drop"]}  # workers whose next batch the loop had
        self._round: set[int] = set()  # workers that gave a batch in this round
        self._ended: set[int] = set()  # workers that give none after the batch that their state has
        self.delivered = 0

    def take(self, placed: PlacedBatch) -> bool:
        """Note the place of a batch; return False if the loop had it before the state was taken."""
        worker = placed.worker
        if any(worker <= other for other in self._round):
            self.states, self._round = list(self._latest), set()
        self._round.add(worker)
        if placed.is_last:
            self._ended.add(worker)
        else:
            self._latest[worker] = placed.state
        is_new = worker not in self._to_drop
        self._to_drop.discard(worker)
        self.delivered += is_new
        return is_new

    def state_dict(self) -> StateDict:
        drop = sorted(self._to_drop | self._round | self._ended)
        return {**self._at, "states": list(self.states), "drop": drop}


def warn_at_border(loader: Any) -> None:
    """Warn of workers that keep their datasets, whose places between two epochs no state has."""
    if loader.persistent_workers and not hasattr(loader.dataset, "set_epoch"):
        warn_once(
            "fastseed.data.Loader: %s has a state, and persistent workers keep their copies: where "
            "it goes on from epoch to epoch, a run that resumes between two begins anew; leave out "
            "persistent_workers, or let set_epoch(epoch) begin it anew",
            type(loader.dataset).__name__,
        )
