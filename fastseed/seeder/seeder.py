"""The object behind ``init`` and ``reseed``: it owns everything that a seeded process needs."""

from __future__ import annotations

import secrets
import threading
from typing import TYPE_CHECKING, Any

import torch

from .._backend.compile import eager
from .._utils import StateDict, validation
from .._utils.log import logger, warn_once
from ..derivation import context, scopes
from ..derivation.derive import SEED_BITS as DERIVED_BITS
from ..derivation.derive import members, stream_of
from ..derivation.place import Place, place_at
from ..derivation.rank_fields import RankFields
from ..derivation.scopes import Scope
from ..distributed import discovery
from .errors import ReseedError
from .generators import Generators
from .job import Job, read_job
from .process_lock import process
from .recent_scopes import RecentScopes

if TYPE_CHECKING:
    from .fork_rng import ForkBlock

SEED_BITS = 63
"""Bits of a master seed that was not given: it fits signed 64-bit integers."""


class Seeder:
    """Reseed every random generator of a process as a function of (task, epoch, step).

    ``fastseed.init`` makes one for the process. Others can exist beside it: the arguments are those
    of ``fastseed.init``, and the methods are the functions of the same names. It communicates with
    no other rank: without a master seed it draws one.

    Attributes:
        master_seed, rank, world_size, mesh: as ``fastseed.init`` found them.
        data_rank, data_world_size: this process's share of the data, and the number of shares.
        scope: the (task, epoch, step) of the last reseed; None before the first one.

    Raises:
        TypeError, ValueError, RuntimeError: as ``fastseed.init``.

    Examples:
        >>> import fastseed
        >>> seeder = fastseed.Seeder(42, rank=0, world_size=8)
        >>> seeder.reseed(task=1, epoch=3)
        >>> seeder.scope
        Scope(task=1, epoch=3, step=0)
    """

    def __init__(
        self,
        master_seed: int | None = None,
        ngpus: int | None = None,
        local_rank: int | None = None,
        *,
        rank: int | None = None,
        world_size: int | None = None,
        mesh: object = None,
        data_over: object = None,
        distinct_over: object = None,
    ) -> None:
        place = (ngpus, local_rank, rank, world_size, mesh, data_over, distinct_over)
        job = read_job("Seeder", *place)
        is_agreed = master_seed is not None or job.world_size == 1
        if master_seed is None:
            master_seed = secrets.randbits(SEED_BITS)
        master_seed = scopes.check_master_seed("Seeder", "master_seed", master_seed)
        self._start(job, master_seed, is_agreed)

    def _start(
        self, job: Job, master_seed: int, is_agreed: bool, scope: Scope | None = None
    ) -> None:
        """Make what each process has for itself; ``is_agreed``: every rank has this master seed."""
        self.job, self._is_agreed = job, is_agreed
        self.rank, self.world_size, self.mesh = job.rank, job.world_size, job.mesh
        self.data_rank, self.data_world_size = job.data
        fields = RankFields(job.rank, job.mesh, job.distinct_over, is_agreed, "init")
        self.place = place_at(master_seed, fields, scope)
        self.generators = Generators(fields)
        self.recent_scopes = RecentScopes()

    @property
    def master_seed(self) -> int:
        return self.place.master_seed

    @property
    def scope(self) -> Scope | None:
        return self.place.scope

    def __repr__(self) -> str:
        place = f"rank={self.rank}, world_size={self.world_size}"
        return f"Seeder(master_seed={self.master_seed}, {place}, scope={self.scope})"

    def __getstate__(self) -> tuple[object, ...]:
        if registered := list(self.generators.registry):
            logger.warning(
                "fastseed: a Seeder is pickled without its registered generators %s; register in "
                "the other process those that it needs",
                [entry.name for entry in registered],
            )
        return self.job, self.master_seed, self._is_agreed, self.scope

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self._start(*state)

    @eager
    def reseed(self, task: int, epoch: int = 0, step: int = 0) -> None:
        """Give every generator the state that belongs to (task, epoch, step).

        The arguments and errors are those of ``fastseed.reseed``. After a ReseedError ``scope``
        is the previous one.
        """
        if not process.is_no_worker:
            context.refuse_worker("reseed")
            process.is_no_worker = True
        self.move(task, epoch, step, remember=True)

    def move(
        self, task: int, epoch: int, step: int, function: str = "reseed", remember: bool = False
    ) -> None:
        """Do ``reseed``; ``remember`` warns about a scope that was used before."""
        with process.lock:
            if process.reseeding.locked():
                process.refuse_nested(function)
            if process.blocks:
                process.refuse_inside(function)
            at = scopes.check_scope(function, task, epoch, step)
            if self.job.is_assumed:
                self.check_group(function)
            if self.generators.accelerators:
                self.generators.refuse_capture(function)
            with process.reseeding:
                place, failures = self.generators.reseed(self.place, at)
            if failures:
                raise ReseedError(failures)
            process.thread = threading.get_ident()
            if remember:
                self.recent_scopes.note((place.master_seed, *at))
            self.place = place
            context.scope_changed(self)

    def _take(self, place: Place) -> None:
        """Take a place without setting generators."""
        self.place = place
        context.scope_changed(self)

    def check_group(self, function: str) -> None:
        """RuntimeError in a process that joined others after an ``init`` that knew of none."""
        if self.job.is_assumed and (size := discovery.process_group_size()) > 1:
            raise RuntimeError(
                f"fastseed.{function}: init must be called after init_process_group, got it before "
                f"that, so that each of {size} ranks is rank 0 of 1 and draws the same: call "
                "fastseed.init again, or give it rank and world_size"
            )

    def fork_rng(
        self, name: str, *, index: int | None = None, distinct_over: object = None
    ) -> ForkBlock:
        """Return what ``fastseed.fork_rng`` returns, for this seeder."""
        from .fork_rng import ForkBlock

        return ForkBlock(self, name, index, distinct_over)

    def register_generator(
        self,
        generator: object,
        shared: bool = False,
        *,
        name: str | None = None,
        bits: int = 31,
        distinct_over: object = None,
    ) -> None:
        """Let ``reseed`` set one more generator, as ``fastseed.register_generator``."""
        with process.lock:
            name = self.generators.registry.add(generator, shared, name, bits, distinct_over)
        if self.scope not in (None, scopes.START):  # `init` has reseeded the others to the start
            warn_once(
                "fastseed.register_generator: %r was registered after a reseed, and keeps the "
                "state that it has until the next one: register it before the loop, or call reseed "
                "before it draws",
                name,
            )

    def unregister_generator(self, generator: object) -> None:
        """Forget a registered generator, as ``fastseed.unregister_generator``."""
        with process.lock:
            self.generators.registry.remove(generator)

    def derive_key(
        self,
        name: str,
        *,
        task: int | None = None,
        epoch: int = 0,
        step: int = 0,
        rank: int | None = None,
        worker: int = 0,
        index: int = 0,
    ) -> int:
        """Return what ``fastseed.derive_key`` returns, for this seeder."""
        stream = stream_of("derive_key", self.place, name, task, epoch, step, rank, worker)
        return stream.key(validation.check_int("derive_key", "index", index, 0, scopes.MAX_INDEX))

    def derive_seed(
        self,
        name: str,
        *,
        task: int | None = None,
        epoch: int = 0,
        step: int = 0,
        rank: int | None = None,
        worker: int = 0,
        index: int = 0,
        bits: int = 64,
    ) -> int:
        """Return what ``fastseed.derive_seed`` returns, for this seeder."""
        bits = validation.check_choice("derive_seed", "bits", bits, DERIVED_BITS)
        stream = stream_of("derive_seed", self.place, name, task, epoch, step, rank, worker)
        return stream.seed(
            bits, validation.check_int("derive_seed", "index", index, 0, scopes.MAX_INDEX)
        )

    @eager
    def derive_keys(
        self,
        name: str,
        n: int,
        *,
        task: int | None = None,
        epoch: int = 0,
        step: int = 0,
        rank: int | None = None,
        worker: int = 0,
        start: int = 0,
        out: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return what ``fastseed.derive_keys`` returns, for this seeder."""
        stream = stream_of("derive_keys", self.place, name, task, epoch, step, rank, worker)
        return members("derive_keys", stream, start, (n, 2), out)

    @eager
    def derive_seeds(
        self,
        name: str,
        n: int,
        *,
        task: int | None = None,
        epoch: int = 0,
        step: int = 0,
        rank: int | None = None,
        worker: int = 0,
        start: int = 0,
        out: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return what ``fastseed.derive_seeds`` returns, for this seeder."""
        stream = stream_of("derive_seeds", self.place, name, task, epoch, step, rank, worker)
        return members("derive_seeds", stream, start, (n,), out)

    def state_dict(self, *, rng: bool = False) -> StateDict:
        """Return what ``fastseed.state_dict`` returns, for this seeder."""
        from . import state as states

        if not validation.check_bool("state_dict", "rng", rng):
            return states.save_state(self.place, self.world_size)
        context.refuse_worker("state_dict")
        with process.lock:
            process.refuse_inside("state_dict")
            return states.save_state(self.place, self.world_size, self.generators.adapters())

    @eager
    def load_state_dict(self, state: StateDict) -> None:
        """Restore a state, as ``fastseed.load_state_dict``."""
        function = "load_state_dict"
        context.refuse_worker(function)
        with process.lock:
            process.refuse_inside(function)
            self._load(state, function)

    def _load(self, state: StateDict, function: str) -> None:
        from . import state as states

        before, adapters = self.place, self.generators.adapters()
        parsed = states.parse_state(before.fields, self.generators.registry, state, adapters)
        self._take(place_at(parsed.master_seed, before.fields, parsed.scope))
        failed = None
        if parsed.scope is not None:
            try:
                self.move(*parsed.scope, function)
            except ReseedError as error:  # every other generator still gets its exact state
                failed = error
            except BaseException:  # refused, or interrupted
                self._take(before)
                raise
        for name, adapter in adapters.items():
            if name in parsed.exact:
                adapter.restore(parsed.exact[name])
        self.place = self.place._replace(entries=dict.fromkeys(parsed.entered))
        fresh = sorted(adapters.keys() - parsed.exact.keys())
        states.log_missing(self.rank, self.world_size, state, fresh)
        if failed is not None:
            raise failed


def current_seeder(function: str) -> Seeder:
    """Return the process-wide seeder; RuntimeError before ``fastseed.init``."""
    found: Seeder | None = context.seeder
    return found or context.current(function)
