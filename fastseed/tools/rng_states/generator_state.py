"""The state of one generator of any library, and the distance of two states in words drawn."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np

CUDA = "CUDA Philox"
BIT_GENERATORS = ("MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64")
MOST_WORDS = 10_000_000
"""How far ``words_between`` searches by default; a tenth of a second for each direction."""

_NEAR, _CHUNK = 1 << 13, 1 << 20
_SAME = 32  # words in a row that are equal only if the streams are


@dataclass(frozen=True)
class GeneratorState:
    """The state of a generator.

    Attributes:
        algorithm: the name of a bit generator of NumPy (also for Python's generator and for torch's
            on the CPU), or ``"CUDA Philox"`` for the one of torch on a GPU.
        text: its state as JSON: what the ``state`` of that bit generator takes, or seed and offset.
        seed: the seed that torch stores with the state; None for other libraries.
        cached: numbers that were made but not yet returned (Gaussians).
    """

    algorithm: str
    text: str
    seed: int | None = None
    cached: tuple[float, ...] = ()


def make_state(state: dict[str, Any], cached: Any = (), seed: int | None = None) -> GeneratorState:
    """Return the state of a bit generator of NumPy; ValueError if NumPy does not take it."""
    kind = state["bit_generator"]
    scratch = getattr(np.random, kind)(0)
    scratch.state = state
    if not 0 <= scratch.state.get("buffer_pos", 0) <= 4 or not _position(scratch.state) <= 624:
        raise ValueError("its position is outside its buffer")  # where NumPy would read
    text = json.dumps(scratch.state, default=lambda array: array.tolist())
    return GeneratorState(kind, text, seed, tuple(map(float, cached)))


def make_mt19937(words: Any, position: int, cached: Any = (), seed: int | None = None) -> Any:
    """Return the state of an MT19937, which Python, NumPy and torch on the CPU have."""
    inner = {"key": np.asarray(words, dtype=np.uint64).astype(np.uint32), "pos": position}
    return make_state({"bit_generator": "MT19937", "state": inner}, cached, seed)


def make_cuda(seed: int, offset: int) -> GeneratorState:
    """Return the state of torch's generator of a GPU."""
    return GeneratorState(CUDA, json.dumps([seed, offset]), seed)


def _position(state: dict[str, Any]) -> int:
    found = state["state"].get("pos", 0) if isinstance(state["state"], dict) else 0
    return int(found) if found >= 0 else 2**31


def words_between(a: GeneratorState, b: GeneratorState, most: int = MOST_WORDS) -> int | None:
    """Return how many words ``b`` is further than ``a`` on one stream; negative if it is behind.

    A word is one output of the bit generator, 32 bits of MT19937 and 64 bits of the others; of
    torch's generator of a GPU it is one step of the offset.

    Returns:
        The number; None if the states are on different streams or further apart than ``most``.
    """
    if a.algorithm != b.algorithm or a.seed != b.seed:  # torch keeps the seed with the state
        return None
    if a.text == b.text:
        return 0
    if a.algorithm == CUDA:
        return int(json.loads(b.text)[1]) - int(json.loads(a.text)[1])
    for reach in (min(most, _NEAR), most):  # near states first, in both directions
        for start, target, sign in ((a, b, 1), (b, a, -1)):
            found = _find(start, target, reach)
            if found is not None:
                return sign * found
    return None


def _find(start: GeneratorState, target: GeneratorState, most: int) -> int | None:
    """Return after how many words ``start`` gives the numbers of ``target``."""
    walker = _bit_generator(start)
    wanted = _bit_generator(target).random_raw(_SAME)
    held = walker.random_raw(_SAME - 1)
    for done in range(0, most + 1, _CHUNK):
        size = min(_CHUNK, most + 1 - done)
        held = np.concatenate([held[1 - _SAME :], walker.random_raw(size)])
        for at in np.flatnonzero(held[:size] == wanted[0]):
            if np.array_equal(held[at : at + _SAME], wanted):
                return done + int(at)
    return None


def _bit_generator(state: GeneratorState) -> Any:
    made: Any = getattr(np.random, state.algorithm)(0)
    made.state = _with_arrays(json.loads(state.text))
    return made


def _with_arrays(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _with_arrays(held) for name, held in value.items()}
    return np.array(value, dtype=np.uint64) if isinstance(value, list) else value
