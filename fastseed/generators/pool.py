"""Many torch generators behind one handle.

Converting a Python list of generators costs more than reseeding them, so a pool converts it once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from .._backend import derive_ops, draw_ops, native
from .._backend.compile import eager
from .._utils import validation
from ..derivation import streams
from .adapters import LOW64, TorchSink


class GeneratorPool:
    """Owns ``generators`` (of any devices, n of them) and reseeds them in one native call.

    Member i takes the key of index i of the stream ``name`` on this rank. CPU generators take the
    full MT19937 state, others their key's low 64 bits as seed, at offset 0. A generator may stand
    in the list more than once: its last place decides, as in a loop over the list.

    Work on CPU generators is spread over ``torch.get_num_threads()`` threads; each generator's
    mutex is held while it is written, so other threads may go on drawing.

    With CUDA members a pool refuses to seed while the current stream captures a CUDA graph, before
    any member has changed. A capture on another stream or in another thread is not asked for, by
    torch neither: there the graph takes the new seed with its next replay.

    Args:
        generators: the generators, at most 2**40; the pool holds them strongly.
        name: the stream's name for :meth:`reseed`. Pools of one name have the same keys: give
            each its own. A seeder that the pool is registered with uses the registered name.

    Raises:
        TypeError: when a member is not a :class:`torch.Generator`; its position is named.
        ValueError: when the name is one of the library's own.
    """

    def __init__(self, generators: Iterable[torch.Generator], name: str = "pool") -> None:
        self._generators: list[torch.Generator] = _listed("GeneratorPool: generators", generators)
        self.name = streams.check_name("GeneratorPool", name)
        if name in streams.OWN_NAMES:
            raise ValueError(
                f"fastseed.GeneratorPool: name must be none of {streams.OWN_NAMES}, got {name!r}"
            )
        for i, generator in enumerate(self._generators):
            if not isinstance(generator, torch.Generator):
                raise TypeError(
                    f"fastseed.GeneratorPool: generators[{i}] must be a torch.Generator, "
                    f"got {validation.describe(generator)} of type {type(generator).__name__}"
                )
        self._on_cuda = any(g.device.type == "cuda" for g in self._generators)
        self._native: Any = None
        if native.generators is not None:
            self._native = native.generators.Pool(self._generators)

    def __reduce__(self) -> tuple[Any, ...]:
        return GeneratorPool, (self._generators, self.name)

    def __len__(self) -> int:
        return len(self._generators)

    def __getitem__(self, i: int) -> torch.Generator:
        return self._generators[i]

    def __repr__(self) -> str:
        return f"GeneratorPool({len(self)} generators, name={self.name!r})"

    @eager
    def reseed(self, task: int, epoch: int = 0, step: int = 0) -> None:
        """Give every member its key at (task, epoch, step), under the seed ``init`` was given.

        Raises:
            RuntimeError: before ``init``, or with CUDA members while a CUDA graph is captured.
            TypeError, ValueError: for a coordinate that is none, or when ``init`` chose the
                predecessor's scheme, which has no keys; no generator has changed.
        """
        origin = streams.get_origin("GeneratorPool.reseed")
        if origin.scheme != "philox-v1":
            raise ValueError(
                "fastseed.GeneratorPool.reseed: scheme must be 'philox-v1', "
                f"got {origin.scheme!r}; use manual_seed"
            )
        at = streams.check_coordinates("GeneratorPool.reseed", task, epoch, step)
        self._refuse_capture("GeneratorPool.reseed")
        self.reseed_members(streams.stream(origin.master_seed, at, self.name, origin.rank))

    def _refuse_capture(self, function: str) -> None:
        """torch refuses each CUDA member; here all of them, before any other has changed."""
        if self._on_cuda:
            draw_ops.refuse_capture(function, torch.device("cuda"), draw_ops.BETWEEN_REPLAYS)

    def reseed_members(self, stream: streams.Stream) -> None:
        """Give member i the key of index i of ``stream``."""
        if self._native is not None:
            rank_word = stream.rank | derive_ops.DOMAIN_STREAM << 24
            self._native.reseed(*stream.name_key, rank_word, stream.worker)
            return
        for i, generator in enumerate(self._generators):
            TorchSink(generator).reseed(stream.key(i))

    @eager
    def manual_seed(self, seeds: torch.Tensor | npt.ArrayLike | Sequence[int]) -> None:
        """``for g, s in zip(generators, seeds): g.manual_seed(s)``, the same bits, in one call.

        Args:
            seeds: n integers: a tensor of an integer dtype (any device, shape (n,)), an array or a
                sequence of ints in [-2**63, 2**64); a negative one stands for itself plus 2**64,
                as in :meth:`torch.Generator.manual_seed`.

        Raises:
            TypeError: when they are not integers.
            ValueError: when there are not n of them or one is out of range. No generator has
                changed.
        """
        array = _seed_array(seeds, len(self))
        self._refuse_capture("GeneratorPool.manual_seed")
        if self._native is not None:
            self._native.manual_seed(array)
            return
        for generator, seed in zip(self._generators, array.tolist(), strict=True):
            generator.manual_seed(seed)

    def states(self) -> torch.Tensor:
        """The exact states, one after another: 1-D, uint8."""
        states = [TorchSink(g).state() for g in self._generators]
        return torch.cat(states) if states else torch.empty(0, dtype=torch.uint8, device="cpu")

    def split_states(self, states: torch.Tensor) -> list[torch.Tensor]:
        """The members' parts of what :meth:`states` gave; ValueError if they do not fit."""
        sizes = [TorchSink(g).size() for g in self._generators]
        if states.numel() != sum(sizes):
            raise ValueError(f"it must be {sum(sizes)} bytes, got {states.numel()}")
        parts = list(torch.split(states, sizes))
        for i, (generator, part) in enumerate(zip(self._generators, parts, strict=True)):
            try:
                TorchSink(generator).check(part)
            except ValueError as error:
                raise ValueError(f"of member {i}, {error}") from error
        return parts

    def load_states(self, states: torch.Tensor) -> None:
        """Put back what :meth:`states` gave."""
        parts = self.split_states(states)
        for generator, part in zip(self._generators, parts, strict=True):
            TorchSink(generator).load(part)


def _listed(what: str, values: Any) -> list[Any]:
    try:
        return list(values)
    except TypeError as error:
        raise TypeError(
            f"fastseed.{what} must be a sequence, "
            f"got {validation.describe(values)} of type {type(values).__name__}"
        ) from error


def _seed_array(seeds: Any, n: int) -> npt.NDArray[np.uint64]:
    """Checked seeds, modulo 2**64, contiguous."""
    what = "fastseed.GeneratorPool.manual_seed: seeds"
    if isinstance(seeds, torch.Tensor):
        seeds = seeds.detach().cpu().numpy()
    if isinstance(seeds, np.ndarray):
        if seeds.dtype.kind not in "iu":
            raise TypeError(f"{what} must be integers, got dtype {seeds.dtype}")
        array = seeds.astype(np.int64 if seeds.dtype.kind == "i" else np.uint64).view(np.uint64)
    else:
        checked = [
            validation.check_int("GeneratorPool.manual_seed", f"seeds[{i}]", s, -(2**63), LOW64)
            for i, s in enumerate(_listed("GeneratorPool.manual_seed: seeds", seeds))
        ]
        array = np.array([s & LOW64 for s in checked], dtype=np.uint64)
    if array.shape != (n,):
        raise ValueError(f"{what} must be of shape ({n},), got {tuple(array.shape)}")
    return np.ascontiguousarray(array)
