"""The state of one generator of any library."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ..._utils import StateDict, strict_json
from ...generators.adapter import MT19937_BYTES, unpack, unpack_mt19937
from ...generators.torch_rng import CPU_STATE

CUDA = "CUDA Philox"
BIT_GENERATORS = {
    kind.__name__: kind
    for kind in (
        np.random.MT19937, np.random.PCG64, np.random.PCG64DXSM, np.random.Philox, np.random.SFC64,
    )
}  # fmt: skip


@dataclass(frozen=True)
class GeneratorState:
    """The state of a generator; Python's and torch's on the CPU are those of an MT19937."""

    algorithm: str  # the name of a bit generator of NumPy, or CUDA
    text: str  # what the ``state`` of that bit generator takes, or seed and offset, as JSON
    seed: int | None = None  # which torch stores with the state; None for other libraries
    cached: tuple[float, ...] = ()  # Gaussians that were made but not yet returned


def make_state(
    state: StateDict, cached: Sequence[float] = (), seed: int | None = None
) -> GeneratorState:
    """Return the state of a bit generator of NumPy; ValueError if NumPy does not take it."""
    kind = state["bit_generator"]
    scratch = BIT_GENERATORS[kind](0)
    scratch.state = state  # type: ignore[assignment]
    held: StateDict = dict(scratch.state)
    position = held["state"].get("pos", 0) if kind == "MT19937" else 0
    if not (0 <= held.get("buffer_pos", 0) <= 4 and 0 <= position <= 624):
        raise ValueError("its position is outside its buffer")  # where NumPy would read
    text = json.dumps(held, default=lambda array: array.tolist())
    return GeneratorState(kind, text, seed, tuple(map(float, cached)))


def make_mt19937(
    words: Sequence[int], position: int, cached: Sequence[float] = (), seed: int | None = None
) -> GeneratorState:
    """Return the state of an MT19937, which Python, NumPy and torch on the CPU have."""
    inner = {"key": words, "pos": position}
    return make_state({"bit_generator": "MT19937", "state": inner}, cached, seed)


def make_cuda(seed: int, offset: int) -> GeneratorState:
    """Return the state of torch's generator of a GPU."""
    return GeneratorState(CUDA, json.dumps([seed, offset]), seed)


def read_numpy(state: StateDict) -> GeneratorState:
    """Return the state of a ``numpy.random.RandomState`` or of a bit generator."""
    cached = [state["gauss"]] if state.get("has_gauss") == 1 else []
    of_bits = {k: v for k, v in state.items() if k not in ("has_gauss", "gauss", "seed_seq")}
    return make_state(of_bits, cached)


def read_torch_cpu(data: bytes) -> GeneratorState:
    """Return the state of ``torch.get_rng_state()``."""
    (held,) = np.frombuffer(data, CPU_STATE)
    cached = [float(held[kind]) for kind in ("normal", "float_normal") if held[f"has_{kind}"]]
    used = 625 - int(held["left"])  # 624 after seeding: the next word is of a new block
    return make_mt19937(held["words"].tolist(), used, cached, int(held["seed"]))


def read_adapter(state: torch.Tensor) -> GeneratorState:
    """Return what the adapter of one generator of Python, NumPy or torch on the CPU has written."""
    data = unpack(state)
    if len(data) == CPU_STATE.itemsize:
        return read_torch_cpu(data)
    if data[:1] == b"{":
        return read_numpy(strict_json.parse(data))
    if data[MT19937_BYTES : MT19937_BYTES + 1] not in (b"", b"{"):
        raise ValueError("it has more than the words of an MT19937")
    words, position, gauss = unpack_mt19937(state[:MT19937_BYTES])
    cached = [] if gauss is None else [gauss]
    return make_mt19937(np.frombuffer(words, "<u4").tolist(), position, cached)
