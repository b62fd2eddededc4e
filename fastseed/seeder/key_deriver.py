"""Keys and seeds of any stream at any point of a job, without touching a generator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

from .._backend import derive_ops, draw_ops, tensors
from .._utils import validation
from ..derivation import coordinates, streams
from ..derivation.coordinates import Coordinates
from ..derivation.streams import Stream
from ..generators.adapter import LOW64
from .registry import Registry


class StreamAddress(NamedTuple):
    """Which stream at which point of the job; checked once by ``checked``."""

    name: str
    task: int
    epoch: int = 0
    step: int = 0
    rank: int | None = None
    """None: the rank field that the stream has on this rank."""
    worker: int = 0
    index: int = 0  # type: ignore[assignment]  # hides tuple.index, which nothing uses

    def checked(self, function: str, index_name: str = "index") -> StreamAddress:
        """Return the address with plain integers; TypeError or ValueError if one is invalid."""
        rank = None if self.rank is None else coordinates.check_rank(function, self.rank)
        return StreamAddress(
            coordinates.check_name(function, self.name),
            *coordinates.check_coordinates(function, self.task, self.epoch, self.step),
            rank,
            validation.check_int(function, "worker", self.worker, 0, coordinates.MAX_WORKER),
            validation.check_int(function, index_name, self.index, 0, coordinates.MAX_INDEX),
        )


class KeyDeriver:
    """Derives keys from the master seed of the job; the rank field comes from the registry."""

    def __init__(self, master_seed: int, scheme: str, registry: Registry) -> None:
        self.master_seed, self._scheme, self._registry = master_seed, scheme, registry

    def require_keys(self, function: str) -> None:
        """Raise ValueError under the scheme ``"fwr13y"``, which has no keys."""
        if self._scheme != "philox-v1":
            raise validation.value_error(function, "scheme", "'philox-v1'", self._scheme)

    def _stream(self, address: StreamAddress) -> Stream:
        at = Coordinates(address.task, address.epoch, address.step)
        rank = self._registry.rank_of(address.name) if address.rank is None else address.rank
        return streams.stream(self.master_seed, at, address.name, rank, address.worker)

    def key(self, function: str, address: StreamAddress) -> int:
        """Return the 128-bit key of a stream."""
        self.require_keys(function)
        address = address.checked(function)
        return self._stream(address).key(address.index)

    def seed(self, function: str, address: StreamAddress) -> int:
        """Return the low 64 bits of the key."""
        return self.key(function, address) & LOW64

    def keys(self, function: str, address: StreamAddress, n: int, *where: Any) -> torch.Tensor:
        """Return the keys of ``n`` indices of a stream; ``where`` is ``out`` and ``device``."""
        return self._fill(function, address, n, (2,), derive_ops.fill_keys, *where)

    def seeds(self, function: str, address: StreamAddress, n: int, *where: Any) -> torch.Tensor:
        """Return the seeds of ``n`` indices of a stream; ``where`` is ``out`` and ``device``."""
        return self._fill(function, address, n, (), derive_ops.fill_seeds, *where)

    def _fill(
        self,
        function: str,
        address: StreamAddress,
        n: int,
        tail: tuple[int, ...],
        fill: Callable[..., None],
        out: torch.Tensor | None,
        device: torch.device | str | None,
    ) -> torch.Tensor:
        self.require_keys(function)
        address = address.checked(function, "start")
        most = min(coordinates.MAX_MEMBERS, coordinates.MAX_INDEX + 1 - address.index)
        n = validation.check_int(function, "n", n, 0, most)
        shape = (n, *tail)
        stream = self._stream(address)
        place = _device_of(function, out, shape, device)
        on_cuda = place.type == "cuda" and draw_ops.has_cuda
        if out is not None and out.is_contiguous() and (on_cuda or place.type == "cpu"):
            target = out
        elif on_cuda:
            target = torch.empty(shape, dtype=torch.uint64, device=place)
        else:
            target = derive_ops.empty_like_keys(*shape)
        fill(target, stream.name_key, stream.rank, stream.worker, address.index)
        if out is None:
            return target.to(place)
        return out if target is out else out.copy_(target)

    def scope(
        self,
        function: str,
        at: tuple[int, int, int],
        out: torch.Tensor | None,
        device: torch.device | str | None,
    ) -> torch.Tensor:
        """Return key and tweak of a scope."""
        self.require_keys(function)
        scope = coordinates.check_coordinates(function, *at)
        target = _device_of(function, out, (2,), device)
        draw_ops.refuse_capture(function, target, "call it between replays, with out=")
        words = derive_ops.scope_key(self.master_seed, *scope)
        found = torch.from_numpy(np.array(words, np.uint64))
        return found.to(target) if out is None else out.copy_(found)


def _device_of(
    function: str, out: Any, shape: tuple[int, ...], device: torch.device | str | None
) -> torch.device:
    """Return the device of the result; TypeError or ValueError if ``out`` does not fit."""
    where = tensors.check_device(function, device)
    if out is None:
        return tensors.check_available(function, "device", where)
    wanted = None if device is None else where
    return tensors.check_out(function, "out", out, shape, torch.uint64, wanted).device
