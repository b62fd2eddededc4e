"""What of a seeder goes to a worker: its numbers, and its registered generators."""

from __future__ import annotations

import io
import logging
import multiprocessing.context
import multiprocessing.reduction
import operator
import pickle
from collections.abc import Iterable
from typing import Any

import torch

from .._backend import derive_ops
from .._utils.errors import reseed_error
from ..derivation import streams
from ..derivation.streams import SHARED
from ..generators.accelerator import KNOWN
from ..generators.adapter import pack
from ..generators.default import DefaultGenerators
from ..random.bank import StreamBank
from ..seeder.registry import Registration, adapter_for
from ..seeder.seeder import Seeder
from .shared_scope import Place

logger = logging.getLogger("fastseed")

RESERVED = (*streams.OWN_NAMES, *(f"torch.{kind}" for kind in KNOWN))
"""Names that no generator of a data set gets."""


class Job:
    """A seeder's master seed, share of the data and registered generators.

    In a forked worker the generators are that process's copies. In a spawned one they are what
    came with the pickle; as it also holds the data set, a generator that the data set holds too is
    one object there as it is here.
    """

    def __init__(self, master_seed: int, rank: int, entries: tuple[Registration, ...]) -> None:
        self.master_seed, self.rank, self.entries = master_seed, rank, entries

    @classmethod
    def of(cls, seeder: Seeder, function: str) -> Job:
        """Of a seeder; ValueError under the predecessor's scheme, which has no keys."""
        if seeder.scheme != "philox-v1":
            raise ValueError(
                f"fastseed.{function}: scheme must be 'philox-v1', got {seeder.scheme!r}"
            )
        return cls(seeder.master_seed, seeder.data_rank, _generators(seeder))

    def is_of(self, seeder: Seeder) -> bool:
        """Whether nothing that a job holds has changed since it was made of this seeder."""
        entries = _generators(seeder)
        return (
            self.master_seed == seeder.master_seed
            and self.rank == seeder.data_rank
            and len(self.entries) == len(entries)
            and all(map(operator.is_, self.entries, entries))
        )

    def __getstate__(self) -> dict[str, Any]:
        kept, left_out = [], []
        for entry in self.entries:
            if _can_travel(entry.generator):
                kept.append((entry.name, entry.generator, entry.shared, _bits(entry)))
            else:
                left_out.append(entry.name)
        _warn_left_out(left_out)
        return {"master_seed": self.master_seed, "rank": self.rank, "entries": kept}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.master_seed, self.rank = state["master_seed"], state["rank"]
        self.entries = tuple(
            Registration(
                name, _own(generator), adapter_for(generator, bits), SHARED if shared else self.rank
            )
            for name, generator, shared, bits in state["entries"]
        )

    def reseed_worker(
        self, place: Place, worker_id: int, found: Iterable[Registration] = ()
    ) -> None:
        """Give everything in this process its stream of worker field ``worker_id + 1``.

        Raises:
            ReseedError: some generators failed; all others are reseeded.
        """
        scope = derive_ops.scope_key(self.master_seed, place.task, place.epoch, place.start)

        def stream_of(name: str, shared: bool = False) -> streams.Stream:
            rank = SHARED if shared else self.rank
            return streams.stream_in(scope, name, rank, worker_id + 1)

        failures = process().reseed(stream_of)
        for entry in (*self.entries, *found):
            if out_of_reach(entry):
                continue
            try:
                entry.adapter.reseed(stream_of(entry.name, entry.shared))
            except Exception as error:
                failures[entry.name] = error
        if failures:
            raise reseed_error(failures)


def _generators(seeder: Seeder) -> tuple[Registration, ...]:
    """What is registered, without samplers and data sets that are told the epoch."""
    return tuple(seeder.registry.generators)


_process: DefaultGenerators | None = None


def process() -> DefaultGenerators:
    """The three global generators."""
    global _process
    if _process is None:
        _process = DefaultGenerators()
    return _process


_job: Job | None = None


def keep(job: Job) -> None:
    """In a worker: this is the job that it works for."""
    global _job
    _job = job


def kept() -> Job | None:
    """What :func:`keep` was told; None in the main process."""
    return _job


def spawning() -> bool:
    """Whether what is pickled now starts a process."""
    return multiprocessing.context.get_spawning_popen() is not None


def out_of_reach(entry: Registration) -> bool:
    """Banks on a device stay the main process's: a forked worker must not touch the device."""
    return isinstance(entry.generator, StreamBank) and entry.generator.device.type != "cpu"


def _own(generator: Any) -> Any:
    """A bank's tensors come in shared memory: what it draws here must not move it there."""
    if isinstance(generator, StreamBank) and generator.device.type == "cpu":
        generator._keys = generator._keys.clone()
        generator._positions = generator._positions.clone()
    return generator


def _bits(entry: Registration) -> int:
    return getattr(entry.adapter, "bits", 31)


def _reduce_generator(generator: torch.Generator) -> tuple[Any, ...]:
    return _rebuild_generator, (str(generator.device), generator.get_state().numpy().tobytes())


def _rebuild_generator(device: str, state: bytes) -> torch.Generator:
    generator = torch.Generator(device)
    generator.set_state(pack(state))
    return generator


# torch (2.10 to 2.13) sends a generator's state as a tensor in shared memory which is gone before
# the spawned process looks for it: it dies of that.
multiprocessing.reduction.ForkingPickler.register(torch.Generator, _reduce_generator)


class _Nowhere(io.RawIOBase):
    def write(self, data: Any) -> int:
        return len(data)


def _can_travel(generator: Any) -> bool:
    if isinstance(generator, StreamBank) and generator.device.type != "cpu":
        return False
    try:
        pickle.Pickler(_Nowhere(), pickle.HIGHEST_PROTOCOL).dump(generator)
        return True
    except Exception:  # whatever a __reduce__ raises
        pass
    if not spawning():
        return False
    try:
        multiprocessing.reduction.ForkingPickler(_Nowhere()).dump(generator)
        return True
    except Exception:
        return False


_said: set[tuple[str, ...]] = set()


def _warn_left_out(names: list[str]) -> None:
    """Once for each list of names, not for each worker of each epoch."""
    if names and tuple(names) not in _said:
        _said.add(tuple(names))
        logger.warning(
            "fastseed: workers are started without these registered generators, which cannot be "
            "pickled: %s; with the start method 'fork' they would have them",
            names,
        )
