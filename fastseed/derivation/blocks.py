"""Where a block of ``random.keyed`` or ``fork_rng`` begins, and whose it is."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar

from .._backend import private_torch
from .._backend.reference.scalar import ScopeKey
from . import context, place, streams
from .place import Place
from .rank_fields import SameRank

place_in_sample: ContextVar[Callable[[str], Place] | None]
"""The place of a stream's block while this thread reads a sample or makes a batch."""
place_in_sample = ContextVar("place_in_sample", default=None)

readers = 0
"""How many reads of samples and batches run in this process; compiled code guards it."""

_counting = threading.Lock()


@contextlib.contextmanager
def around_samples() -> Iterator[None]:
    """Read samples, each of which is entered; afterwards blocks are where they were before."""
    global readers
    before = place_in_sample.set(_refuse)
    with _counting:
        readers += 1
    try:
        yield
    finally:
        with _counting:
            readers -= 1
        place_in_sample.reset(before)


_OF_SAMPLES = SameRank(0)


def _refuse(path: str) -> Place:
    raise RuntimeError(
        "fastseed.data.per_sample: with transform=, the dataset must open no block, since a batch "
        f"is read at once, got {path!r}: let transform open it, or leave transform= out"
    )


def enter_sample(scope: ScopeKey, index: int, occurrence: int) -> None:
    """Let the blocks of this thread belong to a sample, whichever process reads it."""
    entries: dict[str, object] = {}

    def place_of(path: str) -> Place:
        key = streams.sample_stream(scope, path, index, occurrence)
        return Place(0, _OF_SAMPLES, None, key.scope(), entries)

    place_in_sample.set(place_of)


def place_of_block(
    function: str, path: str, distinct_over: object, of_job: Place | None = None
) -> tuple[Place, int]:
    """Return where a block begins, in a sample, a worker or the job, and its rank field there."""
    in_sample = place_in_sample.get()
    found = place.worker if in_sample is None else in_sample(path)
    if found is None:
        context.refuse_worker(function, "pass worker_init_fn=fastseed.data.worker_init_fn to it")
        found = of_job or context.current(function).place
        context.scope_of(found, function)
    return found, found.fields.under(function, path, distinct_over)


open_modes: set[object] = set()
"""The blocks of ``random.keyed`` of all threads that are open."""


def open_keyed() -> list[object]:
    """Return those that this thread is in."""
    modes = private_torch.function_modes() if open_modes else []
    return [mode for mode in modes if any(mode is one for one in tuple(open_modes))]


def refuse_in_keyed(function: str) -> None:
    """RuntimeError in a block of this thread, which does not read torch's generators."""
    if open_keyed():
        raise RuntimeError(
            f"fastseed.{function}: must not be entered in a block of random.keyed, which does not "
            "draw from torch's generators: give it a keyed block"
        )


ONE_TASK = (
    "a block belongs to the task that enters it, so do not await in it; asyncio.wait_for makes "
    "another task on Python 3.10 and 3.11"
)


def current_task() -> object:
    """Return the asyncio task that this thread runs, or None."""
    loop = asyncio._get_running_loop()
    return None if loop is None else asyncio.current_task(loop)
