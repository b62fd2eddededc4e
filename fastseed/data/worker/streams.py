"""The streams of samples, and the generators that get them."""

from __future__ import annotations

import operator
import os
import threading
from collections.abc import Callable
from typing import Any, SupportsIndex, TypeVar

import torch
from torch.utils.data import get_worker_info

from ..._backend import derive
from ..._backend.reference.scalar import ScopeKey
from ..._utils import validation
from ..._utils.log import logger, warn_once
from ...derivation import blocks, scopes, streams
from ...generators.adapter import MembersAdapter
from ...generators.torch_rng import TorchGenerator
from ...random.keyed import outside_blocks
from ...seeder.errors import ReseedError
from ...seeder.process_lock import process
from ...seeder.registry import Registration
from . import scope, seeding
from .scope import IterationScope, ScopeInSharedMemory
from .seeding import GENERATORS, WorkerSeeder, found_in, is_on_device

T = TypeVar("T")


class SampleStreams:
    """The streams of the samples of one (task, epoch), and the generators that get them."""

    def __init__(self, where: tuple[WorkerSeeder, int, int, str | None], **searched: object):
        self.where = seeder, task, epoch, name = where
        scope = derive.scope_key(seeder.master_seed, task, epoch, 0)
        self.scope = streams.named_scope(scope, name)
        self._searched = searched
        self.others: list[Registration] = []
        self.settle()
        self.is_settled = False

    def settle(self) -> list[str]:
        """Collect the generators, return the new ones; the first sample may have made some."""
        known = {id(entry.generator) for entry in self.others}
        entries = self.where[0].entries
        found: tuple[Registration, ...] = ()
        for name, held in self._searched.items():
            found += found_in(held, (*entries, *found), name)
        # All but the three global generators.
        self.others = [*(entry for entry in entries if not is_on_device(entry)), *found]
        self.is_settled = True
        return [entry.name for entry in self.others if id(entry.generator) not in known]

    def reseed(self, index: int, occurrence: int, scope: ScopeKey | None = None) -> None:
        scope = self.scope if scope is None else scope
        blocks.enter_sample(scope, index, occurrence)
        failures = GENERATORS.reseed_sample(scope, index, occurrence)
        if failures:
            raise ReseedError(failures)
        for entry in self.others:
            name, adapter = entry.name, entry.adapter
            stream = streams.sample_stream(scope, name, index, occurrence)
            if isinstance(adapter, MembersAdapter):  # the key is the scope of the members' keys
                stream = streams.stream_in(stream.scope(), name, 0)
            try:
                adapter.reseed(stream)
            except Exception as error:
                raise ReseedError({name: error}) from error


class CheckedCollate:
    """The ``collate_fn`` of a loader of ``per_sample``; it warns once if the user's own draws."""

    def __init__(self, collate: Callable[[Any], Any]) -> None:
        self.collate, self._done = collate, ScopeInSharedMemory()

    def __call__(self, samples: Any) -> Any:
        """Return the batch; the first one of the loader is searched for draws."""
        info = get_worker_info()
        if self._done.number or (info is not None and info.id):
            return self.collate(samples)
        before = seeding.states_of(found_in(self.collate, (), "collate_fn"))
        batch, names = self.collate(samples), seeding.moved_since(before)
        self._done.write(IterationScope(0, 0, 0, 1))
        if names:
            logger.warning(
                "fastseed.data.Loader: collate_fn draws from %s, which per_sample sets for samples "
                "only: its numbers depend on the number of workers, and differ after a resume; "
                "pass collate_fn=fastseed.data.per_batch(collate_fn)",
                ", ".join(map(repr, names)),
            )
        return batch


def sample_of(function: str, index: SupportsIndex, dataset: Any) -> tuple[int, int]:
    """Return the global index and the occurrence of the sample ``index`` of a dataset."""
    if type(index) is int and 0 <= index <= scopes.MAX_INDEX:
        return index, 0
    try:
        if isinstance(index, bool):
            raise TypeError
        number = operator.index(index)
    except TypeError as error:  # a tensor of several elements, for example
        raise validation.type_error(function, "index", "an integer", index) from error
    if number < 0:
        number += len(dataset)
    if not 0 <= number <= scopes.MAX_INDEX:
        raise IndexError(
            f"fastseed.{function}: index must be in [0, {scopes.MAX_INDEX}], got {number}"
        )
    return number, getattr(index, "occurrence", 0)  # of a Repeat


def torch_generator(key: int) -> torch.Generator:
    """Return a generator of the CPU in the state that ``reseed`` gives for a key."""
    generator = torch.Generator("cpu")
    TorchGenerator(generator).seed(key)
    return generator


_depths: dict[int, int] = {}  # by thread: how many reads of samples it is in, one inside another


def _forget_other_threads() -> None:
    for thread in tuple(_depths):
        if thread != threading.get_ident():
            del _depths[thread]


os.register_at_fork(after_in_child=_forget_other_threads)


def read_in_streams(
    function: str, current: SampleStreams, read: Callable[[], T], restores: bool = False
) -> T:
    """Call ``read``, which reseeds the generators for its samples; restore them where that matters.

    It does in the main process, in a worker inside another read, whose numbers are not over, and
    with ``restores``.
    """
    thread = threading.get_ident()
    depth = _depths.get(thread, 0)
    restore: Callable[[], None] | None = None
    try:
        _depths[thread] = depth + 1
        if len(_depths) > 1:
            raise RuntimeError(
                f"fastseed.{function}: two threads read samples at once, and share the generators "
                "that are reseeded: read in workers, or use per_sample(generator=)"
            )
        is_main = get_worker_info() is None
        if is_main and thread != process.thread:
            warn_once(
                "fastseed.%s: samples are read in another thread than that of reseed, and share "
                "the generators with what draws there: read in workers, or use "
                "per_sample(generator=)",
                function,
            )
        if restores or depth or is_main:
            restore = seeding.snapshot(current.others)
        elif scope.worker is not None:
            scope.worker.states = []  # these draws are the sample's
        with outside_blocks():
            return read()
    finally:
        if depth:
            _depths[thread] = depth
        else:
            _depths.pop(thread, None)
        if restore is not None:
            restore()
