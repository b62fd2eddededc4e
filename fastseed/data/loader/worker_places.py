"""Where the copies of an iterable dataset in workers are, by the state that each of them has.

A batch brings the state of its worker. torch takes batches from workers in turn, so a loop resumes
from the states with which its latest round of turns began, and drops the batches of the round. A
dataset may say anything after its end, so a worker's last batch, if incomplete, is read again too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from torch.utils.data import get_worker_info

from ..._utils import StateDict, validation
from ..._utils.log import warn_once
from ...seeder.seeder import Seeder

_NAME = "data.Loader"


class PlacedBatch(NamedTuple):
    """A batch, the worker that read it, and the state of its dataset after it."""

    batch: Any
    worker: int
    state: Any
    is_last: bool  # the dataset has ended


class PlacedCollate:
    """A ``collate_fn`` in workers that adds where the dataset is."""

    def __init__(self, collate: Callable[[Any], Any], batch_size: int | None) -> None:
        self.collate, self.batch_size = collate, batch_size

    def __call__(self, samples: Any) -> PlacedBatch:
        is_last = self.batch_size is not None and len(samples) < self.batch_size
        batch = self.collate(samples)
        info: Any = get_worker_info()
        return PlacedBatch(batch, info.id, info.dataset.state_dict(), is_last)


class LoadPlace:
    """A ``worker_init_fn`` that loads the state of its worker before the script's own is called."""

    def __init__(self, states: list[Any], user_init: Callable[[int], object] | None) -> None:
        self.states, self.user_init = states, user_init

    def __call__(self, worker: int) -> None:
        if self.states[worker] is not None:
            info: Any = get_worker_info()
            info.dataset.load_state_dict(self.states[worker])
        if self.user_init is not None:
            self.user_init(worker)


class WorkerPlaces:
    """The places of an iteration: the states that its latest round began with, and its batches."""

    def __init__(self, workers: int, seeder: Seeder, loaded: Any = None) -> None:
        self._at = {
            "workers": workers,
            "rank": seeder.data_rank,
            "ranks": seeder.data_world_size,
        }
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
        """Return where the loop is."""
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


def refuse_places(state: Any) -> None:
    """Raise ValueError for a state of workers, which the main process cannot load."""
    if isinstance(state, dict) and {"workers", "states", "drop"} <= {*state}:
        rule = "of workers 0, as here: a stream resumes with the same"
        raise validation.value_error(_NAME, "state['dataset']", rule, state["workers"])
