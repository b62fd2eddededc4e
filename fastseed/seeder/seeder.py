"""The object behind ``init`` and ``reseed``: where the job is, and every generator that follows."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from .._backend import derive_ops
from .._backend.compile import eager
from .._utils import validation, version
from .._utils.errors import ReseedError, reseed_error
from ..derivation import streams
from ..derivation.streams import SHARED, Coordinates, Stream
from ..distributed import discovery, mesh
from ..distributed.mesh import Mesh, RankFields
from ..generators.accelerator import KNOWN, AcceleratorSink, compiled_types
from ..generators.adapters import Sink
from ..generators.default import ProcessGenerators
from ..generators.epoch_setters import Follower
from ..generators.pool import GeneratorPool
from . import fork_rng_state, fwr13y_scheme, os_fork
from . import state as states
from .fork_rng import ForkBlock, ForkRng
from .fork_rng_stack import stack
from .key_deriver import LookUps
from .recent_scopes import Seen
from .registry import Bulk, Registry

logger = logging.getLogger("fastseed")

_SEED_BITS = 63  # of a master seed that was not given: it fits the signed integers it may end in


class Seeder(LookUps):
    """Reseeds every random generator of this process as a function of where the job is.

    Args:
        master_seed: an integer of [0, 2**64). None: one is drawn from the operating system on
            rank 0, and all ranks agree on it.
        ngpus: the number of ranks (the predecessor's argument, like the next).
        local_rank: this process's rank among them.
        rank: this process's global rank; believed, as is ``world_size``.
        world_size: the number of ranks. Rank and size that are not given are taken from
            torch.distributed, the launcher's environment or Horovod, else 0 of 1.
        mesh: where this rank is in a mesh that holds all ranks: a ``DeviceMesh`` with names, or
            ``{"dp": (rank, size), "tp": (rank, size)}``, the last dimension fastest.
        distinct_over: along which dimensions of it streams vary: a tuple for all that are built in or
            registered, a dict by stream name, or a preset of :mod:`fastseed.distributed.mesh`. Streams that
            are told nothing vary along all; along none, ``()``, all ranks share them.
        scheme: ``"philox-v1"``, or ``"fwr13y"`` for the predecessor's seeds bit for bit.
        on_os_fork: what a child of ``os.fork`` draws: None or ``"inherit"``: what its parent draws
            (Python's :mod:`random` alone seeds itself there, from the operating system);
            ``"reseed"``: streams of its own, decided by the order of forking within a scope
            (:mod:`fastseed.seeder.os_fork` has the rule). Look-ups stay the job's.

    Where a process group exists this is a collective call: every rank has to make it.

    Raises:
        TypeError, ValueError: for an argument that is out of its range, or master seeds that
            differ between ranks.
        RuntimeError: ``distinct_over`` has ranks share a stream that have not agreed on a master seed.
    """

    def __init__(
        self,
        master_seed: int | None = None,
        ngpus: int | None = None,
        local_rank: int | None = None,
        *,
        rank: int | None = None,
        world_size: int | None = None,
        mesh: Any = None,
        distinct_over: Any = None,
        scheme: str = "philox-v1",
        on_os_fork: str | None = None,
    ) -> None:
        legacy_scheme = scheme == "fwr13y"
        try:
            streams.check_scheme("init", scheme)
            self.on_os_fork = _check_mode(on_os_fork, scheme)
            correct = not legacy_scheme
            place = discovery.locate(ngpus, local_rank, rank, world_size, correct=correct)
        except (TypeError, ValueError) as error:
            discovery.refuse(error, ngpus if world_size is None else world_size)
        self._lineage = os_fork.ForkLineage() if on_os_fork == "reseed" else None
        problem: Exception | None = None
        try:
            found, place = _in_mesh(mesh, distinct_over, place, scheme)
            if master_seed is not None:
                master_seed = validation.check_int(
                    "init", "master_seed", master_seed, 0, streams.MAX_MASTER
                )
        except (TypeError, ValueError) as error:
            problem = error  # the other ranks have to hear of it
        bits = fwr13y_scheme.MASTER_BITS if legacy_scheme else _SEED_BITS
        self.master_seed, self._agreed = discovery.agree_on_master(
            master_seed, place.world_size, bits, problem
        )
        self.rank, self.world_size, self.scheme = place.rank, place.world_size, scheme
        self._mesh, self._distinct_over = found, distinct_over
        self._at: tuple[int, int, int] | None = None
        self.left_out: tuple[str, ...] = ()
        self._prepare()

    @property
    def scope(self) -> Coordinates | None:
        """Where the last ``reseed`` put this process; None before the first one."""
        return None if self._at is None else Coordinates(*self._at)

    @property
    def data_rank(self) -> int:
        """Which share of the data is this process's, in [0, ``data_world_size``)."""
        return self.rank if self._mesh is None else self._mesh.data[0]

    @property
    def data_world_size(self) -> int:
        """Into how many shares the data is cut: with a mesh, by its dimensions named ``dp...``."""
        return self.world_size if self._mesh is None else self._mesh.data[1]

    @property
    def mesh(self) -> Mesh | None:
        """Where this rank is in the mesh that ``init`` was given."""
        return self._mesh

    def _prepare(self) -> None:
        """What is made anew in each process."""
        self._scheme_is_ours = self.scheme == "philox-v1"
        self.rank_fields = RankFields(self.rank, self._mesh, self._distinct_over, self._agreed)
        self._pid = os.getpid()
        self._seen = Seen()
        self._repeats = 0
        self._exact: tuple[int, int, int] | None = None  # where exact states were put back last
        self._inside: int | None = None  # the thread that is reseeding what users registered
        self._process = ProcessGenerators()
        self._fields = {name: self.rank_fields.of(name) for name in self._process.sinks}
        alike = len(set(self._fields.values())) == 1
        self._common = self._fields["torch.cpu"] if alike else None  # of all three
        self._accelerators = [AcceleratorSink(kind) for kind in compiled_types()]
        devices = dict.fromkeys((*KNOWN, *(sink.kind for sink in self._accelerators)))
        own = (*self._process.sinks, *(f"torch.{kind}" for kind in devices))
        self._registry = Registry((*own, os_fork.STREAM, mesh.STATE), self.rank_fields)
        self._fork_rng = ForkRng(
            self.scheme,
            self.rank_fields,
            self._accelerators,
            self._registry.reserve,
            lambda field: self._scope_at(field),
        )
        os_fork.watch(self)

    def __repr__(self) -> str:
        parts = [f"master_seed={self.master_seed}", f"rank={self.rank}"]
        parts += [f"world_size={self.world_size}", f"scheme={self.scheme!r}"]
        if self._mesh is not None:
            parts.append(f"mesh=({self._mesh})")
        if self.scope is not None:
            parts.append("task={}, epoch={}, step={}".format(*self.scope))
        if self._registry:
            parts.append(f"registered={[entry.name for entry in self._registry]}")
        if self.left_out:
            parts.append(f"left_out={list(self.left_out)}")
        if os.getpid() != self._pid:
            own = f", with streams of master seed {self.stream_master}" if self._lineage else ""
            parts.append(f"forked from process {self._pid}, whose coordinates it has{own}")
        return f"Seeder({', '.join(parts)})"

    # ------------------------------------------------------------------ pickling (spawn)

    def __getstate__(self) -> dict[str, Any]:
        names = (*self.left_out, *(entry.name for entry in self._registry))
        return {
            "master_seed": self.master_seed,
            "agreed": self._agreed,
            "rank": self.rank,
            "world_size": self.world_size,
            "mesh": self._mesh,
            "distinct_over": self._distinct_over,
            "scheme": self.scheme,
            "scope": self._at,
            "left_out": names,
            "fork": self.on_os_fork,
            "forks": None if self._lineage is None else self._lineage.forks,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.master_seed, self._agreed = state["master_seed"], state["agreed"]
        self.rank, self.world_size = state["rank"], state["world_size"]
        self.scheme, self.left_out = state["scheme"], state["left_out"]
        self._mesh, self._distinct_over = state["mesh"], state["distinct_over"]
        self._at = state["scope"]
        self.on_os_fork, forks = state["fork"], state["forks"]
        self._lineage = None if forks is None else os_fork.ForkLineage(forks)
        self._prepare()
        if self.left_out:
            logger.warning(
                "fastseed: a Seeder was sent to this process without its registered generators %s; "
                "register those that are needed here",
                list(self.left_out),
            )

    # ------------------------------------------------------------------ reseeding

    @eager
    def reseed(self, task: int, epoch: int = 0, step: int = 0) -> None:
        """Give every generator the state that belongs to (task, epoch, step).

        Args:
            task: [0, 2**24): what the job is doing (say 0 initialisation, 1 training).
            epoch: [0, 2**32).
            step: [0, 2**64).

        Raises:
            TypeError, ValueError: a coordinate is none; no generator has changed.
            RuntimeError: a CUDA graph is being captured; no generator has changed.
            ReseedError: some generators failed; all others are reseeded. ``scope`` stays what it
                was until a call succeeds.
        """
        if self._seen.add(self.restore(task, epoch, step)):
            self._warn_repeated()

    def restore(self, task: int, epoch: int, step: int) -> int:
        """:meth:`reseed`, but repetitions are no matter; the scope's key."""
        if self._inside is not None and self._inside == threading.get_ident():
            raise RuntimeError(
                "fastseed.reseed: must not be called by a generator that it is reseeding; "
                "let the function take its seed and return"
            )
        stack.refuse_inside("reseed")
        for accelerator in self._accelerators:
            accelerator.refuse_capture("reseed")
        scope, failures = None, None
        if self._scheme_is_ours and self._common is not None:
            master = self._master_at(self._common)
            scope = self._process.reseed_in_place(master, task, epoch, step, self._common)
        if scope is None:
            task, epoch, step = at = streams.check_coordinates("reseed", task, epoch, step)
            scope = derive_ops.scope_key(self.stream_master, *at)
            if self._scheme_is_ours:
                failures = self._process.reseed_each(
                    {name: (self._scope_of(f, scope, at), f) for name, f in self._fields.items()}
                )
            else:
                failures = self._reseed_legacy(at)
        self._fork_rng.restart()
        if self._scheme_is_ours and (self._accelerators or self._registry):
            failures = {**(failures or {}), **self._reseed_others(scope, (task, epoch, step))}
        if failures:
            raise reseed_error(failures)
        self._at = task, epoch, step
        return scope[0]

    def _reseed_others(
        self, scope: derive_ops.Scope, at: tuple[int, int, int]
    ) -> dict[str, Exception]:
        """Accelerators and what users registered; what those raised that failed, by name."""
        failures: dict[str, Exception] = {}
        if self._lineage is not None and self._common != self.rank_fields.default:
            scope = derive_ops.scope_key(self.stream_master, *at)
        for accelerator in self._accelerators:
            try:
                place = self.rank_fields.of(accelerator.name)
                name_id = streams.name_id(accelerator.name)
                own = self._scope_of(place, scope, at)
                accelerator.reseed_members(Stream(own, name_id, place))
            except Exception as error:
                failures[accelerator.name] = error
        self._inside = threading.get_ident()
        try:
            for entry in self._registry:
                try:
                    if isinstance(entry.sink, Follower):
                        entry.sink.follow(at[0], at[1], self._follower_key(entry.name_id, at))
                        continue
                    place = self.rank_fields.rank if entry.place is None else entry.place
                    entry.reseed(Stream(self._scope_of(place, scope, at), entry.name_id, place))
                except Exception as error:
                    failures[entry.name] = error
        finally:
            self._inside = None
        return failures

    def _follower_key(self, name_id: int, at: tuple[int, int, int]) -> int:
        """Step 0, and the job's even in a forked child: the order of an epoch is one for all."""
        scope = derive_ops.scope_key(self.master_seed, at[0], at[1], 0)
        return Stream(scope, name_id, SHARED).key()

    def _reseed_legacy(self, at: Coordinates) -> dict[str, Exception]:
        if at.step != 0:
            raise ValueError(
                f"fastseed.reseed: step must be 0 under scheme 'fwr13y', got {at.step}"
            )
        job = self.master_seed, self.world_size, self.rank
        return fwr13y_scheme.reseed(*job, at.task, at.epoch, self._registry)

    def _warn_repeated(self) -> None:
        if self._at == self._exact:
            self._exact = None
            logger.warning(
                "fastseed.reseed: task %d, epoch %d, step %d began anew, and the exact states that "
                "load_state_dict put back there are gone; to go on with them, load after reseed",
                *(self.scope or ()),
            )
            return
        self._repeats += 1
        if self._repeats <= 10:
            logger.warning(
                "fastseed.reseed: task %d, epoch %d, step %d was used before in this process: "
                "its random numbers repeat%s",
                *(self.scope or ()),
                "; further repetitions are not reported" if self._repeats == 10 else "",
            )

    # ------------------------------------------------------------------ registration

    def register_generator(
        self,
        gen: Any,
        shared: bool = False,
        *,
        name: str | None = None,
        bits: int = 31,
        distinct_over: Any = None,
    ) -> None:
        """Let ``reseed`` set one more generator, from the next call on.

        Args:
            gen: a callable ``f(seed: int)``, :class:`torch.Generator`,
                :class:`numpy.random.Generator` or ``RandomState``, :class:`random.Random`,
                :class:`GeneratorPool`, :class:`StreamBank` or list of torch generators; or what is
                told where the job is (:mod:`fastseed.generators.epoch_setters`): a ``DistributedSampler``, or
                anything with ``set_scope`` or ``set_epoch``. Held strongly.
            shared: the same on all ranks, instead of one stream a rank.
            name: the stream's name; ``generator/<k>`` (a pool or bank: its own) unless given.
            bits: how many of the key's lowest bits a callable gets: 31, 32, 63, 64 or 128.
            distinct_over: the dimensions of the mesh along which it varies; ``()`` is ``shared``. None:
                what ``distinct_over`` of ``init`` says.

        Raises:
            TypeError, ValueError: an argument is none of these, the name's id is taken, or
                ``shared``, ``distinct_over`` and what ``init`` was told contradict each other.
            RuntimeError: ``shared`` while the ranks have not agreed on a master seed.
        """
        if shared and not self._agreed:
            raise RuntimeError(
                "fastseed.register_generator: shared must be False here: master_seed was None and "
                "there was no process group to agree on one; give init a master seed, or call "
                "torch.distributed.init_process_group before it"
            )
        if self.scheme == "fwr13y" and not callable(gen):
            raise TypeError(
                "fastseed.register_generator: gen must be a callable under scheme 'fwr13y', "
                f"got {validation.describe(gen)} of type {type(gen).__name__}"
            )
        self._registry.add(gen, shared, name, bits, distinct_over)

    def unregister_generator(self, gen: Any) -> None:
        """Forget a registered generator; ValueError if it is not registered."""
        self._registry.remove(gen)

    # ------------------------------------------------------------------ state

    def state_dict(self, *, rng: bool = False) -> dict[str, Any]:
        """Coordinates, and with ``rng`` exact states: see :mod:`fastseed.seeder.state`."""
        if not rng:
            return states.state_dict(self)
        stack.refuse_inside("state_dict")
        return states.state_dict(self, rng=True) | fork_rng_state.save(
            self._fork_rng, self.rank_fields
        )

    @eager
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go where ``state`` was; see :func:`fastseed.load_state_dict` for the errors."""
        stack.refuse_inside("load_state_dict")
        state, loaded = fork_rng_state.split(
            state, self._fork_rng, self.rank_fields, self._registry
        )
        try:
            scope = states.load_state_dict(self, state)
        except ReseedError:  # all but what failed was put back
            self._fork_rng.load_states(loaded)
            raise
        self._fork_rng.load_states(loaded)
        if scope is not None and not self._seen.add(scope):
            self._exact = self._at

    def exact_sinks(self) -> Iterator[tuple[str, Sink | Bulk]]:
        """Every generator that there is in this process, by stream name."""
        yield from self._process.sinks.items()
        for accelerator in self._accelerators:
            generators = accelerator.generators()
            if generators:
                yield accelerator.name, GeneratorPool(generators)
        for entry in self._registry:
            yield entry.name, entry.sink

    def move_to(self, master_seed: int, at: Coordinates | None) -> None:
        """Take another job's master seed and coordinates, without reseeding."""
        self.master_seed, self._at = master_seed, at

    # ------------------------------------------------------------------ fork_rng, os.fork, agreement

    def fork_rng(
        self, name: str, *, index: int | None = None, distinct_over: Any = None
    ) -> ForkBlock:
        """Return a context manager: see :func:`fastseed.fork_rng`."""
        return self._fork_rng.block(name, index=index, distinct_over=distinct_over)

    @property
    def stream_master(self) -> int:
        """The master seed of this process's own streams: the job's, except in a forked child."""
        return self._master_at(self.rank_fields.default)

    def _master_at(self, rank_field: int) -> int:
        """Return the master seed in use for streams of a rank field."""
        lineage = self._lineage
        return self.master_seed if lineage is None else lineage.master(self.master_seed, rank_field)

    def _scope_at(self, rank_field: int) -> derive_ops.Scope | None:
        """Return the scope of streams of a rank field; None before the first reseed."""
        at = self._at
        return None if at is None else derive_ops.scope_key(self._master_at(rank_field), *at)

    def _scope_of(
        self, rank_field: int, own: derive_ops.Scope, at: tuple[int, int, int]
    ) -> derive_ops.Scope:
        """Return the scope of streams of a rank field, where ``own`` is that of the default one."""
        if self._lineage is None or rank_field == self.rank_fields.default:
            return own
        return derive_ops.scope_key(self._master_at(rank_field), *at)

    def count_child(self) -> os_fork.Fork | None:
        """Count a child that is about to be forked; None where children inherit."""
        if self._lineage is None:
            return None
        return self._lineage.count_child(Coordinates(*(self._at or (0, 0, 0))))

    def become_child(self, fork: os_fork.Fork) -> None:
        """Continue as that forked child: reseed, in the scope of the parent."""
        assert self._lineage is not None
        before, at = self.stream_master, self._at
        self._lineage = self._lineage.child(fork)
        origin = streams._origin
        if origin is not None and origin[:2] == (before, self.rank_fields.default):
            streams.set_origin(origin._replace(master_seed=self.stream_master))
        if self._inside == threading.get_ident():
            raise RuntimeError(  # reseeding would call the generator that forked
                "a generator forked while it was being reseeded: its child has to call "
                "fastseed.reseed itself"
            )
        self._inside = None  # a thread that is not here
        try:
            self._seen.add(self.restore(*fork.at))
        finally:
            self._at = at

    def lockable(self) -> Iterator[Any]:
        """Yield the registered generators of torch and NumPy; pools as their members."""
        for entry in self._registry:
            if isinstance(entry.sink, GeneratorPool):
                yield from (entry.sink[i] for i in range(len(entry.sink)))
            elif isinstance(
                entry.generator, (torch.Generator, np.random.Generator, np.random.RandomState)
            ):
                yield entry.generator

    def agreement_record(self) -> dict[str, Any]:
        """Return what :func:`fastseed.distributed.verify_agreement` compares, in JSON's types."""
        mesh = self._mesh
        return {
            "version": version.__version__,
            "derivation": derive_ops.DERIVATION_VERSION,
            "scheme": self.scheme,
            "master_seed": self.master_seed,
            "world_size": self.world_size,
            "scope": None if self.scope is None else self.scope._asdict(),
            "mesh": None if mesh is None else dict(zip(mesh.names, mesh.sizes, strict=True)),
            "distinct_over": self.rank_fields.rules(),
            "on_os_fork": self.on_os_fork or "inherit",
            "registered": sorted(
                f"{entry.name} (shared)" if entry.shared else entry.name for entry in self._registry
            ),
            "rank": self.rank,
            "mesh coordinates": None if mesh is None else list(mesh.ranks),
        }


def _check_mode(mode: Any, scheme: str) -> str | None:
    """Return the argument ``on_os_fork`` of ``init``."""
    if mode is None:
        return None
    choices = os_fork.MODES if scheme == "philox-v1" else ("inherit",)
    return validation.check_choice("init", "on_os_fork", mode, choices)


def _in_mesh(
    given: Any, distinct_over: Any, place: discovery.ProcessRank, scheme: str
) -> tuple[Mesh | None, discovery.ProcessRank]:
    """The argument ``mesh``, checked with ``distinct_over``; the rank, and how many there are."""
    if scheme == "fwr13y" and not (given is None and distinct_over is None):
        raise ValueError(
            "fastseed.init: mesh and distinct_over must be None under scheme 'fwr13y', "
            f"got {validation.describe(given)} and {validation.describe(distinct_over)}"
        )
    found = None if given is None else mesh.read_mesh(given)
    if found is not None and place.source == "default":
        place = discovery.ProcessRank(*found.along(found.names), "mesh")
    if found is not None:
        mesh.check_world(found, place.world_size)
    RankFields(place.rank, found, distinct_over, agreed=True)
    if found is not None and place.rank == 0:
        mesh.warn_undivided_data(found, distinct_over)
    return found, place
