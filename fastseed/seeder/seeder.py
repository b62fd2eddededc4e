"""The object behind ``init`` and ``reseed``: it owns everything that a seeded process needs."""

from __future__ import annotations

import logging
import os
import threading

import torch

from .._backend import derive
from .._backend.compile import eager
from .._backend.ops import keys
from .._backend.reference import scalar
from .._utils import StateDict, validation
from ..derivation import context, forks, scopes, streams
from ..derivation.scopes import Scope
from ..distributed import discovery
from ..distributed import mesh as meshes
from ..generators.accelerator import KNOWN, AcceleratorGenerators, compiled_types
from ..generators.adapter import LOW64, GeneratorAdapter
from ..generators.default import NAMES, DefaultGenerators
from . import key_tensors, processes
from . import state as states
from .errors import ReseedError, reseed_error
from .fork_rng.block import ForkBlock, ForkRng
from .fork_rng.stack import refuse_worker, stack
from .recent_scopes import RecentScopes
from .registry import Registry
from .schemes import fwr13y
from .schemes.fwr13y import Fwr13yScheme
from .schemes.philox import PhiloxScheme

logger = logging.getLogger("fastseed")

_SEED_BITS = 63  # of a master seed that was not given: it fits signed 64-bit integers


class Seeder:
    """Reseed every random generator of a process as a function of (task, epoch, step).

    ``fastseed.init`` makes one for the process, which the functions of ``fastseed`` use. Others
    can exist beside it. The arguments are those of ``fastseed.init``, and the methods take those
    of the functions of the same name.

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
        distinct_over: object = None,
        scheme: str = "philox-v1",
        on_os_fork: str | None = None,
    ) -> None:
        legacy = isinstance(scheme, str) and scheme == Fwr13yScheme.name
        size = ngpus if world_size is None else world_size
        if size is None:
            size = discovery.process_group_size()
        here = discovery.ProcessRank(0, size if isinstance(size, int) else 0, "default")
        problem: Exception | None = None
        try:
            validation.check_choice("init", "scheme", scheme, scopes.SCHEMES)
            self.on_os_fork = forks.check_mode(on_os_fork, scheme)
            here = discovery.locate(ngpus, local_rank, rank, world_size, correct=not legacy)
            if legacy and not (mesh is None and distinct_over is None):
                rule = "None under scheme 'fwr13y'"
                raise validation.value_error("init", "mesh and distinct_over", rule, mesh)
            self.mesh, here = meshes.locate_in_mesh(mesh, distinct_over, here)
            if master_seed is not None:
                top = scopes.MAX_MASTER
                master_seed = validation.check_int("init", "master_seed", master_seed, 0, top)
        except (TypeError, ValueError) as error:
            problem = error  # raised after the collective, so that no rank hangs
        bits = fwr13y.MASTER_BITS if legacy else _SEED_BITS
        master_seed, self._agreed = discovery.agree_on_master(
            master_seed, here.world_size, bits, problem
        )
        self.rank, self.world_size, self.scheme = here.rank, here.world_size, scheme
        self._distinct_over = distinct_over
        self.scope: Scope | None = None
        self._ancestry = forks.Ancestry()
        self._make_parts(master_seed)

    def _make_parts(self, master_seed: int) -> None:
        """Make what each process has of its own.

        No part refers to this object: when its last user drops it, forked children no longer
        follow it, whether or not the garbage collector has run.
        """
        self.process_id = os.getpid()
        # This process's share of the data, and the number of shares: with a mesh, those along its
        # dimensions named `dp...`.
        share = (self.rank, self.world_size) if self.mesh is None else self.mesh.data
        self.data_rank, self.data_world_size = share
        self.rank_fields = meshes.RankFields(
            self.rank, self.mesh, self._distinct_over, self._agreed
        )
        self.defaults = DefaultGenerators()
        self.accelerators = [AcceleratorGenerators(kind) for kind in compiled_types()]
        devices = dict.fromkeys((*KNOWN, *(accelerator.kind for accelerator in self.accelerators)))
        own = (*NAMES, *(f"torch.{kind}" for kind in devices), forks.STREAM, meshes.STATE)
        functions_only = self.scheme == Fwr13yScheme.name
        self.registry = Registry(own, self.rank_fields, functions_only)
        self.master_seed = master_seed
        self.forks = ForkRng(self.registry, self.rank_fields, self.accelerators)
        self._scheme: PhiloxScheme | Fwr13yScheme
        if functions_only:
            self._scheme = Fwr13yScheme(self.rank, self.world_size, self.registry)
        else:
            self._scheme = PhiloxScheme(
                self.defaults, self.accelerators, self.registry, self.rank_fields
            )
        self.recent_scopes = RecentScopes()
        # The thread that is in `set_scope`, holding the lock of `stack`. A child that another
        # thread forks has a new lock, and not this thread.
        self._reseeding: int | None = None
        processes.watch(self)

    @property
    def stream_master(self) -> int:
        """The master seed of this process's own streams: the job's, except in a forked child."""
        return self._ancestry.master(self.master_seed, self.rank_fields.default)

    def scope_of(self, rank: int) -> scalar.ScopeKey:
        """Return key and tweak of the current scope, for the streams of a rank field."""
        scopes.require_keys("fork_rng", self.scheme)
        if self.scope is None:
            raise RuntimeError("fastseed.fork_rng: call fastseed.reseed(task, epoch) first")
        return derive.scope_key(self._ancestry.master(self.master_seed, rank), *self.scope)

    def __repr__(self) -> str:
        parts = [f"master_seed={self.master_seed}", f"rank={self.rank}"]
        parts += [f"world_size={self.world_size}", f"scheme={self.scheme!r}"]
        if self.mesh is not None:
            parts.append(f"mesh=({self.mesh})")
        if self.scope is not None:
            parts.append("task={}, epoch={}, step={}".format(*self.scope))
        if self.registry:
            parts.append(f"registered={[entry.name for entry in self.registry]}")
        if os.getpid() != self.process_id:
            parts.append(f"forked from process {self.process_id}")
        if self._ancestry.forks:
            parts.append(f"streams of master seed {self.stream_master}")
        return f"Seeder({', '.join(parts)})"

    def __getstate__(self) -> dict[str, object]:
        if self.registry:
            logger.warning(
                "fastseed: a Seeder is pickled without its registered generators %s; register in "
                "the other process those that it needs",
                [entry.name for entry in self.registry],
            )
        fields = ("rank", "world_size", "scheme", "mesh", "_distinct_over", "_agreed", "scope")
        state = {name: getattr(self, name) for name in (*fields, "on_os_fork", "_ancestry")}
        return {**state, "master_seed": self.master_seed}

    def __setstate__(self, state: StateDict) -> None:
        master_seed = state.pop("master_seed")
        self.__dict__.update(state)
        self._make_parts(master_seed)

    @eager
    def reseed(self, task: int, epoch: int = 0, step: int = 0) -> None:
        """Give every generator the state that belongs to (task, epoch, step).

        The arguments and errors are those of ``fastseed.reseed``. After a ReseedError ``scope``
        is the previous one.
        """
        refuse_worker("reseed")
        self.set_scope(task, epoch, step)
        assert self.scope is not None
        self.recent_scopes.reseeded((self.master_seed, *self.scope))

    def set_scope(self, task: int, epoch: int, step: int, function: str = "reseed") -> None:
        """Do ``reseed`` without the warning about a scope that was used before.

        The default generators belong to the process: another thread waits until this call ends.
        """
        with stack.lock:
            if self._reseeding == threading.get_ident():
                raise RuntimeError(
                    f"fastseed.{function}: must not be called by a generator that it is "
                    "reseeding; let the function take its seed and return"
                )
            for leave in context.stale_modes:
                leave()
            stack.refuse_inside(function)
            at = scopes.check_scope(function, task, epoch, step)
            for accelerator in self.accelerators:
                accelerator.refuse_capture(function)
            self._reseeding = threading.get_ident()
            try:
                failures = self._scheme.reseed(self.master_seed, self._ancestry, at)
            finally:
                self._reseeding = None
            self.forks.restart()
            if failures:
                raise reseed_error(failures)
            self._move_to(self.master_seed, at)

    def _move_to(self, master_seed: int, at: Scope | None) -> None:
        """Take a master seed and coordinates without reseeding."""
        self.master_seed, self.scope = master_seed, at
        context.scope_changed(self)

    def _follow_fork(self, fork: forks.Fork) -> None:
        """Take the streams of a child of ``os.fork``, at the coordinates of its parent."""
        self._ancestry = self._ancestry.child(fork)
        at = self.scope
        try:
            self.set_scope(*fork.at)
        finally:
            self.scope = at

    def fork_rng(
        self, name: str, *, index: int | None = None, distinct_over: object = None
    ) -> ForkBlock:
        """Return what ``fastseed.fork_rng`` returns, for this seeder."""
        return ForkBlock(lambda: self, name, index, distinct_over)

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
        self.registry.add(generator, shared, name, bits, distinct_over)

    def unregister_generator(self, generator: object) -> None:
        """Forget a registered generator, as ``fastseed.unregister_generator``."""
        self.registry.remove(generator)

    # ------------------------------------------------------------------ keys

    def _stream(
        self, function: str, name: str, at: tuple[int, ...], rank: int | None, worker: int
    ) -> streams.Stream:
        """Return a stream of the job; TypeError or ValueError if an argument is invalid."""
        scopes.require_keys(function, self.scheme)
        name = scopes.check_name(function, name)
        point = scopes.check_scope(function, *at)
        if rank is None:
            rank = self.registry.rank_field_of(name)
        rank = scopes.check_rank_field(function, rank)
        worker = validation.check_int(function, "worker", worker, 0, scopes.MAX_WORKER)
        return streams.stream(self.master_seed, point, name, rank, worker)

    def derive_key(
        self,
        name: str,
        *,
        task: int,
        epoch: int = 0,
        step: int = 0,
        rank: int | None = None,
        worker: int = 0,
        index: int = 0,
    ) -> int:
        """Return what ``fastseed.derive_key`` returns, for this seeder."""
        function = "derive_key"
        stream = self._stream(function, name, (task, epoch, step), rank, worker)
        return stream.key(validation.check_int(function, "index", index, 0, scopes.MAX_INDEX))

    def derive_seed(
        self,
        name: str,
        *,
        task: int,
        epoch: int = 0,
        step: int = 0,
        rank: int | None = None,
        worker: int = 0,
        index: int = 0,
    ) -> int:
        """Return what ``fastseed.derive_seed`` returns, for this seeder."""
        function = "derive_seed"
        stream = self._stream(function, name, (task, epoch, step), rank, worker)
        index = validation.check_int(function, "index", index, 0, scopes.MAX_INDEX)
        return stream.key(index) & LOW64

    @eager
    def derive_keys(
        self,
        name: str,
        n: int,
        *,
        task: int,
        epoch: int = 0,
        step: int = 0,
        rank: int | None = None,
        worker: int = 0,
        start: int = 0,
        out: torch.Tensor | None = None,
        device: torch.device | str | None = None,
    ) -> torch.Tensor:
        """Return what ``fastseed.derive_keys`` returns, for this seeder."""
        stream = self._stream("derive_keys", name, (task, epoch, step), rank, worker)
        op = keys.derive_keys
        return key_tensors.members("derive_keys", op, stream, start, (n, 2), out, device)

    @eager
    def derive_seeds(
        self,
        name: str,
        n: int,
        *,
        task: int,
        epoch: int = 0,
        step: int = 0,
        rank: int | None = None,
        worker: int = 0,
        start: int = 0,
        out: torch.Tensor | None = None,
        device: torch.device | str | None = None,
    ) -> torch.Tensor:
        """Return what ``fastseed.derive_seeds`` returns, for this seeder."""
        stream = self._stream("derive_seeds", name, (task, epoch, step), rank, worker)
        op = keys.derive_seeds
        return key_tensors.members("derive_seeds", op, stream, start, (n,), out, device)

    @eager
    def derive_scope_key(
        self,
        task: int,
        epoch: int = 0,
        step: int = 0,
        *,
        out: torch.Tensor | None = None,
        device: torch.device | str | None = None,
    ) -> torch.Tensor:
        """Return what ``fastseed.derive_scope_key`` returns, for this seeder."""
        scopes.require_keys("derive_scope_key", self.scheme)
        at = scopes.check_scope("derive_scope_key", task, epoch, step)
        words = derive.scope_key(self.master_seed, *at)
        return key_tensors.scope("derive_scope_key", words, out, device)

    # ------------------------------------------------------------------ state

    def adapters(self) -> dict[str, GeneratorAdapter]:
        """Return the adapter of every generator in this process, by stream name."""
        found = dict(self.defaults.adapters)
        found.update((a.name, a) for a in self.accelerators if a.generators())
        found.update((entry.name, entry.adapter) for entry in self.registry.generators)
        return found

    def state_dict(self, *, rng: bool = False) -> StateDict:
        """Return what ``fastseed.state_dict`` returns, for this seeder."""
        if not validation.check_bool("state_dict", "rng", rng):
            return states.encode(self)
        stack.refuse_inside("state_dict")
        return states.encode(self, self.adapters())

    @eager
    def load_state_dict(self, state: StateDict) -> None:
        """Restore a state, as ``fastseed.load_state_dict``."""
        function = "load_state_dict"
        refuse_worker(function)
        stack.refuse_inside(function)
        adapters = self.adapters()
        decoded = states.decode(self, state, adapters)
        before = self.master_seed, self.scope
        self._move_to(decoded.master_seed, decoded.scope)
        failed: ReseedError | None = None
        if decoded.scope is not None:
            try:
                self.set_scope(*decoded.scope, function)
            except ReseedError as error:  # every other generator still gets its exact state
                failed = error
            except BaseException:  # refused, or interrupted
                self._move_to(*before)
                raise
        for name, adapter in adapters.items():
            if name in decoded.exact:
                adapter.restore(decoded.exact[name])
        self.forks.load_states(decoded.streams)
        states.report(self, state, sorted(adapters.keys() - decoded.exact.keys()))
        if failed is not None:
            raise failed
        if decoded.exact and decoded.scope is not None:
            self.recent_scopes.restored((self.master_seed, *decoded.scope))


def process_seeder() -> Seeder | None:
    """Return the Seeder that ``fastseed.init`` made, if it was called."""
    return context.seeder


current_seeder = context.current
