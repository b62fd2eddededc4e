"""The adapter of ``torch.Generator``."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence

import numpy as np
import torch

from .._backend import native, tensors
from .._backend.ops import keys as ops
from .._utils import validation
from ..derivation.streams import Stream
from .adapter import LOW64, MT_WORDS, adapts, check_words, unpack

# Generator.get_state() of a CPU generator. `normal` is what torch.randn of float64 caches,
# `float_normal` that of float32; torch no longer uses the two numbers before `normal`.
CPU_STATE = np.dtype(
    [
        ("seed", "u8"), ("left", "i4"), ("seeded", "i4"), ("next", "u8"),
        ("words", "u8", (MT_WORDS,)),
        ("normal_x", "f8"), ("normal", "f8"), ("normal_rho", "f8"), ("has_normal", "u4"),
        ("unused", "u4"), ("float_normal", "f4"), ("has_float_normal", "u4"),
    ]
)  # fmt: skip

_TOGETHER = 64
_spare: list[tuple[torch.Tensor, list[torch.Tensor]]] = []


@adapts(torch.Generator)
class TorchGenerator:
    """A ``torch.Generator`` of any device; the default one of the CPU unless given.

    On the CPU it takes the full MT19937 state and reports the key's low 64 bits as its seed; on
    other devices it takes that seed, at offset 0. Its mutex is held while it is written.
    """

    def __init__(self, generator: torch.Generator | None = None) -> None:
        self._generator = torch.default_generator if generator is None else generator

    def reseed(self, stream: Stream) -> None:
        self.seed(stream.key())

    def seed(self, key: int) -> None:
        """Set the state that belongs to all 128 bits of ``key``."""
        if native.generators is not None:
            native.generators.reseed(self._generator, key & LOW64, key >> 64)
        else:
            halves = np.array([[key & LOW64, key >> 64]], np.uint64)
            seed_all([self._generator], [self.is_mt19937()], torch.from_numpy(halves))

    def is_mt19937(self) -> bool:
        """Return whether it is torch's own CPU generator; other libraries have others."""
        return self._generator.device.type == "cpu" and self.size() == CPU_STATE.itemsize

    def size(self) -> int:
        """Return the number of bytes of ``state``."""
        return self._generator.get_state().numel()

    def state(self) -> torch.Tensor:
        return self._generator.get_state()

    def parse_state(self, state: torch.Tensor) -> torch.Tensor:
        """Return a copy for ``set_state()``; ValueError if the state is invalid.

        ``set_state`` itself accepts states that read outside the 624 words, that give only zeros,
        and cached normals that are not finite; and torch 2.13 crashes on a view.
        """
        size = self.size()
        if state.numel() != size:
            raise ValueError(f"it must be {size} bytes long, got {state.numel()}")
        if self.is_mt19937():
            _check_cpu_state(unpack(state))
        elif self._generator.device.type == "cuda" and size == 16:
            (offset,) = struct.unpack_from("=q", unpack(state), 8)
            if offset < 0 or offset % 4 != 0:
                raise ValueError(f"its offset must be a multiple of 4, got {offset}")
        return state.cpu().clone(memory_format=torch.contiguous_format)

    save = state

    def restore(self, saved: torch.Tensor) -> None:
        self._generator.set_state(saved)


def seed_all(
    generators: Sequence[torch.Generator], are_mt19937: Sequence[bool], keys: torch.Tensor
) -> None:
    """Give each generator the state of its key, a row of (n, 2), without ``_generators``.

    From 60 generators on faster than a loop of ``manual_seed``: some states are made in one call.
    """
    try:
        states, rows = _spare.pop()  # of this thread until it is put back
    except IndexError:
        words = np.empty((_TOGETHER, ops.STATE_WORDS), np.int64)
        # set_state takes no views of torch: it reads from the beginning of their storage
        states, rows = torch.from_numpy(words), [*map(torch.from_numpy, words.view(np.uint8))]
    for begin in range(0, len(generators), _TOGETHER):
        part = keys[begin : begin + _TOGETHER]
        ops.mt19937_states(states[: len(part)], part)
        for i, row in enumerate(rows[: len(part)], begin):
            if are_mt19937[i]:
                generators[i].set_state(row)
            else:
                generators[i].manual_seed(int(keys[i, 0]))
    _spare.append((states, rows))


def pack_states(generators: Sequence[torch.Generator]) -> torch.Tensor:
    """Return the exact states of several generators, one after another."""
    states = [generator.get_state() for generator in generators]
    return torch.cat(states) if states else torch.empty(0, dtype=torch.uint8, device="cpu")


def parse_states(
    function: str, generators: Sequence[torch.Generator], states: torch.Tensor
) -> list[torch.Tensor]:
    """Return what each ``set_state`` takes; TypeError or ValueError if a state is invalid."""
    rule = "a 1-D uint8 tensor"
    validation.check_instance(function, "states", states, torch.Tensor, rule)
    if states.dtype != torch.uint8 or states.dim() != 1:
        raise validation.type_error(function, "states", rule, states)
    adapters = [TorchGenerator(generator) for generator in generators]
    sizes = [adapter.size() for adapter in adapters]
    if states.numel() != sum(sizes):
        raise ValueError(f"it must be {sum(sizes)} bytes long, got {states.numel()}")
    is_strided = states.layout == torch.strided
    if not (is_strided and tensors.has_data(states) and tensors.has_memory(states)):
        raise ValueError("it must be a strided tensor with data")
    parsed = []
    for i, (adapter, part) in enumerate(zip(adapters, torch.split(states, sizes), strict=True)):
        try:
            parsed.append(adapter.parse_state(part))
        except ValueError as error:
            raise ValueError(f"the state of member {i} is invalid: {error}") from error
    return parsed


def _check_cpu_state(data: bytes) -> None:
    (held,) = np.frombuffer(data, CPU_STATE)
    left, following = int(held["left"]), int(held["next"])
    # `left` is 1 before the first random number of all, and then the number of words not used.
    expected = 1 if following == 0 else MT_WORDS + 1 - following
    if held["seeded"] != 1 or following > MT_WORDS or left != expected:
        raise ValueError(f"its position must be one that torch sets, got {following} and {left}")
    words = held["words"]
    check_words(words)
    if words.max() >> np.uint64(32):
        raise ValueError("its words must be below 2**32")
    for kind in ("normal", "float_normal"):
        if held[f"has_{kind}"] & 0xFF and not math.isfinite(held[kind]):
            raise ValueError(f"its cached normal must be finite, got {held[kind]}")
