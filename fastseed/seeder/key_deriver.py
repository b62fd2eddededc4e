"""Keys and seeds of any stream at any point of a job, without touching a generator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from .._backend import derive_ops, draw_ops
from .._backend import native as _native
from .._backend.compile import eager
from .._utils import validation
from ..derivation import streams
from ..derivation.streams import Stream
from ..distributed.mesh import RankFields
from ..random import functional
from .fork_rng import ForkRng
from .registry import Registry

# Both look-ups in native code, where there is any; they return None rather than raise.
_fast_key: Callable[..., int | None] = getattr(_native.generators, "key", lambda *_: None)
_fast_seed: Callable[..., int | None] = getattr(_native.generators, "seed", lambda *_: None)


class LookUps:
    """What a seeder can be asked: pure functions of its master seed, rank and registrations."""

    master_seed: int
    rank: int
    scheme: str
    _registry: Registry
    rank_fields: RankFields
    _fork_rng: ForkRng

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
        """The 128-bit key of a stream, without touching any generator.

        Args:
            name: the stream's name, registered or not.
            task: see :meth:`reseed`, as for ``epoch`` and ``step``.
            epoch: see above.
            step: see above.
            rank: [0, 2**24 - 1), or ``fastseed.SHARED``; with a mesh the place along what the
                stream varies along. None: what ``name`` has here: this rank, ``SHARED`` where it
                is shared, or its place in the mesh.
            worker: the worker field, [0, 2**24): 0 is the main process, k + 1 DataLoader worker k.
            index: [0, 2**40), the member of a bulk group.

        Raises:
            TypeError, ValueError: for an argument that is out of its range, or when the scheme is
                the predecessor's, which has no keys.
        """
        return self._one("derive_key", _fast_key, 128, name, task, epoch, step, rank, worker, index)

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
        """The low 64 bits of :meth:`key`, with the same arguments and errors."""
        return self._one(
            "derive_seed", _fast_seed, 64, name, task, epoch, step, rank, worker, index
        )

    def _one(
        self,
        function: str,
        native: Callable[..., int | None],
        bits: int,
        name: str,
        task: int,
        epoch: int,
        step: int,
        rank: int | None,
        worker: int,
        index: int,
    ) -> int:
        """In one native call, or step by step where an argument needs a closer look."""
        if self.scheme == "philox-v1" and type(name) is str and name and name.isprintable():
            place = self._own_rank(name) if rank is None else rank
            name_id = streams.name_id(name)
            found = native(self.master_seed, task, epoch, step, name_id, place, worker, index)
            if found is not None:
                return found
        stream = self._stream(function, name, task, epoch, step, rank)
        worker = validation.check_int(function, "worker", worker, 0, streams.MAX_WORKER)
        index = validation.check_int(function, "index", index, 0, streams.MAX_INDEX)
        return stream.key(index, worker) & ((1 << bits) - 1)

    def _own_rank(self, name: str) -> int:
        """The rank of a stream where none is given: what it varies along, SHARED for nothing."""
        entry = self._registry.find(name)
        if entry is not None and entry.place is not None:
            return entry.place
        field = self._fork_rng.rank_field(name)
        return self.rank_fields.of(name) if field is None else field

    def _stream(
        self, function: str, name: str, task: int, epoch: int, step: int, rank: int | None
    ) -> Stream:
        if self.scheme != "philox-v1":
            raise ValueError(
                f"fastseed.{function}: scheme must be 'philox-v1', got {self.scheme!r}"
            )
        name = streams.check_name(function, name)
        at = streams.check_coordinates(function, task, epoch, step)
        if rank is None:
            rank = self._own_rank(name)
        return streams.stream(self.master_seed, at, name, streams.check_rank(function, rank))

    @eager
    def derive_keys(
        self,
        n: int,
        *,
        name: str,
        task: int,
        epoch: int = 0,
        step: int = 0,
        rank: int | None = None,
        worker: int = 0,
        start: int = 0,
        out: torch.Tensor | None = None,
        device: torch.device | str | None = None,
    ) -> torch.Tensor:
        """The keys of the ``n`` indices from ``start`` on: shape (n, 2), torch.uint64, [lo, hi].

        Args:
            n: how many; ``start + n`` is at most 2**40.
            name: the stream's name.
            task: [0, 2**24), as for :meth:`reseed`; ``epoch`` and ``step`` likewise.
            epoch: [0, 2**32).
            step: [0, 2**64).
            rank: see :meth:`key`, as for ``worker``.
            worker: see above.
            start: the first index.
            out: write here: shape (n, 2), torch.uint64, any device and strides.
            device: where the result shall be, the CPU unless given. Keys are derived there if that
                is a CUDA device and the CUDA part was built; else on the CPU, and copied.

        Raises:
            TypeError, ValueError: for an argument that is out of its range, or an ``out`` of the
                wrong dtype, shape or device; it has not changed.
        """
        at = (name, task, epoch, step, rank, worker, start)
        return self._many("derive_keys", n, (2,), derive_ops.fill_keys, out, device, *at)

    @eager
    def derive_seeds(
        self,
        n: int,
        *,
        name: str,
        task: int,
        epoch: int = 0,
        step: int = 0,
        rank: int | None = None,
        worker: int = 0,
        start: int = 0,
        out: torch.Tensor | None = None,
        device: torch.device | str | None = None,
    ) -> torch.Tensor:
        """The low 64 bits of the same keys: shape (n,), torch.uint64. See :meth:`derive_keys`."""
        at = (name, task, epoch, step, rank, worker, start)
        return self._many("derive_seeds", n, (), derive_ops.fill_seeds, out, device, *at)

    @eager
    def derive_scope(
        self,
        task: int,
        epoch: int = 0,
        step: int = 0,
        *,
        out: torch.Tensor | None = None,
        device: torch.device | str | None = None,
    ) -> torch.Tensor:
        """The scope itself, [key, tweak], for :meth:`StreamBank.reseed_from_scope`.

        All streams of all ranks at that point of the job follow from it. Write it into ``out``
        between two replays of a CUDA graph, and the graph's reseed takes the new one.

        Args:
            task: [0, 2**24), as for :meth:`reseed`; ``epoch`` and ``step`` likewise.
            epoch: [0, 2**32).
            step: [0, 2**64).
            out: write here: shape (2,), torch.uint64, any device and strides.
            device: where the result shall be, the CPU unless given.

        Raises:
            TypeError, ValueError: a coordinate is none, the scheme is the predecessor's, or ``out``
                is of the wrong dtype, shape or device; it has not changed.
            RuntimeError: a CUDA graph is being captured.
        """
        if self.scheme != "philox-v1":
            raise ValueError(f"fastseed.scope: scheme must be 'philox-v1', got {self.scheme!r}")
        at = streams.check_coordinates("derive_scope", task, epoch, step)
        if out is not None:
            _check_out("derive_scope", out, (2,), device)
        target = (
            out.device if out is not None else torch.device("cpu" if device is None else device)
        )
        draw_ops.refuse_capture("derive_scope", target, "call it between replays, with out=")
        found = torch.from_numpy(np.array(derive_ops.scope_key(self.master_seed, *at), np.uint64))
        return found.to(target) if out is None else out.copy_(found)

    def _many(
        self,
        function: str,
        n: int,
        tail: tuple[int, ...],
        fill: Callable[..., None],
        out: torch.Tensor | None,
        device: torch.device | str | None,
        name: str,
        task: int,
        epoch: int,
        step: int,
        rank: int | None,
        worker: int,
        start: int,
    ) -> torch.Tensor:
        stream = self._stream(function, name, task, epoch, step, rank)
        worker = validation.check_int(function, "worker", worker, 0, streams.MAX_WORKER)
        start = validation.check_int(function, "start", start, 0, streams.MAX_INDEX + 1)
        n = validation.check_int(function, "n", n, 0, streams.MAX_INDEX + 1 - start)
        if out is not None:
            _check_out(function, out, (n, *tail), device)
        place = out.device if out is not None else torch.device("cpu" if device is None else device)
        on_cuda = place.type == "cuda" and draw_ops.has_cuda
        if out is not None and out.is_contiguous() and (on_cuda or place.type == "cpu"):
            target = out
        elif on_cuda:
            target = torch.empty((n, *tail), dtype=torch.uint64, device=place)
        else:
            target = derive_ops.empty_like_keys(n, *tail)
        fill(target, stream.scope, stream.name_id, stream.rank, worker << 40 | start)
        if out is None:
            return target.to(place)
        return out if target is out else out.copy_(target)


def _check_out(
    function: str, out: Any, shape: tuple[int, ...], device: torch.device | str | None
) -> None:
    if not isinstance(out, torch.Tensor):
        raise TypeError(
            f"fastseed.{function}: out must be a tensor, got {validation.describe(out)}"
        )
    if out.dtype != torch.uint64:
        raise TypeError(f"fastseed.{function}: out must be of dtype torch.uint64, got {out.dtype}")
    if tuple(out.shape) != shape:
        raise ValueError(
            f"fastseed.{function}: out must be of shape {shape}, got {tuple(out.shape)}"
        )
    functional.check_memory(function, "out", out)
    if device is not None and torch.device(device).type != out.device.type:
        raise ValueError(f"fastseed.{function}: out must be on device {device}, got {out.device}")
