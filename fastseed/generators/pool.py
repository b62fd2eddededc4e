"""Many torch generators behind one handle: converting a list costs more than reseeding it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from .._backend import native, tensors
from .._backend.compile import BETWEEN_REPLAYS, eager, refuse_capture
from .._utils import validation
from ..derivation import reserved, scopes
from ..derivation.member_states import Members, users
from ..derivation.streams import Stream
from .adapter import LOW64
from .torch_rng import TorchGenerator, pack_states, parse_states, seed_all


class GeneratorPool(Members):
    """Reseed many torch generators of any devices in one native call.

    Member i takes the key of index i of the stream ``name`` on this rank. A generator may be in the
    list more than once: its last index decides. Other threads may draw meanwhile.

    Args:
        generators: the generators; the pool holds them strongly.
        name: the name of the streams, different for each pool.

    Raises:
        TypeError: a member is not a ``torch.Generator``.
        ValueError: the name is one that fastseed uses itself.

    Examples:
        >>> import fastseed, torch
        >>> fastseed.init(42)
        >>> pool = fastseed.GeneratorPool([torch.Generator() for _ in range(1000)], "envs")
        >>> pool.reseed(task=1, epoch=3)
        >>> key = fastseed.derive_key("envs", task=1, epoch=3, index=7)
        >>> pool[7].initial_seed() == key % 2**64
        True
    """

    _path = "GeneratorPool"

    def __init__(self, generators: Iterable[torch.Generator], name: str) -> None:
        function = "GeneratorPool"
        self._generators = check_generators(function, generators)
        self._name = reserved.check_free(function, scopes.check_name(function, name))
        self._on_cuda = any(g.device.type == "cuda" for g in self._generators)
        self._native: Any = None
        if native.generators is not None:
            self._native = native.generators.Pool(self._generators)
        else:
            self._are_mt19937 = [TorchGenerator(g).is_mt19937() for g in self._generators]

    def __reduce__(self) -> tuple[type[GeneratorPool], tuple[object, ...]]:
        return GeneratorPool, (self._generators, self.name)

    def __len__(self) -> int:
        return len(self._generators)

    def __getitem__(self, i: int) -> torch.Generator:
        return self._generators[i]

    def __repr__(self) -> str:
        return f"GeneratorPool({len(self)} generators, name={self.name!r})"

    def _refuse_capture(self, function: str) -> None:
        if self._on_cuda:
            refuse_capture(function, torch.device("cuda"), BETWEEN_REPLAYS)

    def _reseed_members(self, stream: Stream) -> None:
        self._refuse_capture("GeneratorPool.reseed")
        users.warn_if_shared(self, self.name, stream)
        if self._native is not None:
            self._native.reseed(*stream.name_key, stream.rank_word, stream.worker)
            return
        seed_all(self._generators, self._are_mt19937, stream.keys(len(self)))

    @eager
    def reseed_from_seeds(self, seeds: torch.Tensor | npt.ArrayLike | Sequence[int]) -> None:
        """Give each generator its own seed: ``g.manual_seed(s)`` bit for bit, in one call.

        Args:
            seeds: n integers: a tensor or array of an integer dtype, shape (n,), or a sequence of
                ints in [-2**63, 2**64). A negative one means itself plus 2**64, as in torch.

        Raises:
            TypeError, ValueError: they are not n integers in this range; no generator has changed.
            RuntimeError: with CUDA members while a CUDA graph is captured.

        Examples:
            >>> import fastseed, torch
            >>> pool = fastseed.GeneratorPool([torch.Generator() for _ in range(3)], "envs")
            >>> pool.reseed_from_seeds([7, 8, 9])
            >>> [generator.initial_seed() for generator in pool]
            [7, 8, 9]
        """
        array = _seed_array(seeds, len(self))
        self._refuse_capture("GeneratorPool.reseed_from_seeds")
        if self._native is not None:
            self._native.manual_seed(array)
            return
        for generator, seed in zip(self._generators, array.tolist(), strict=True):
            generator.manual_seed(seed)

    def _pack(self) -> torch.Tensor:
        return pack_states(self._generators)

    def _parse(self, states: torch.Tensor) -> list[torch.Tensor]:
        return parse_states("GeneratorPool.load_state_dict", self._generators, states)

    def _load(self, parsed: list[torch.Tensor]) -> None:
        for generator, state in zip(self._generators, parsed, strict=True):
            generator.set_state(state)


def check_generators(function: str, generators: Iterable[torch.Generator]) -> list[torch.Generator]:
    """Return the members of a pool, if all are generators of torch."""
    if isinstance(generators, torch.Tensor) or not isinstance(generators, Iterable):
        rule = "a sequence of torch.Generators"
        raise validation.type_error(function, "generators", rule, generators)
    found = list(generators)
    for i, generator in enumerate(found):
        validation.check_instance(
            function, f"generators[{i}]", generator, torch.Generator, "a torch.Generator"
        )
    return found


def _seed_array(seeds: object, n: int) -> npt.NDArray[np.uint64]:
    """Return checked seeds, modulo 2**64, contiguous."""
    function = "GeneratorPool.reseed_from_seeds"
    if isinstance(seeds, np.ndarray) and seeds.dtype.kind in "iu":
        seeds = torch.from_numpy(seeds.astype(np.int64, order="C"))
    cpu = torch.device("cpu")
    checked = tensors.as_int64(function, "seeds", seeds, n, -(2**63), LOW64, cpu)
    return checked.to(cpu).numpy().view(np.uint64)
