"""The operators of keys: ``torch.ops.fastseed.derive_keys``, ``reseed_streams`` and others."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from ..reference import draws, philox, scalar
from .register import define, direct, operator

_LOW64 = 2**64 - 1

STATE_WORDS, MT19937 = 632, slice(3, 627)
"""The integers of 64 bits of a state of torch's CPU generator, and which are its MT19937."""


def _derive(out: Tensor, name: scalar.NameKey, rank_word: int, worker: int, start: int) -> None:
    keys = philox.derive_keys(name, rank_word, worker, start & _LOW64, len(out), domain=0)
    out.numpy()[:] = keys if out.dim() == 2 else keys[:, 0]


def _derive_of_words(
    out: Tensor, key: int, tweak: int, rank_word: int, worker: int, start: int
) -> None:
    """Write the keys of consecutive indices, (n, 2), or their low halves, (n,)."""
    _derive(out, (key & _LOW64, tweak & _LOW64), rank_word, worker, start)


_WORDS = "(Tensor(a0!) out, int key, int tweak, int rank_word, int worker, int start) -> ()"
DERIVE = {
    name: (define(name + _WORDS, _derive_of_words), direct(name))
    for name in ("derive_keys", "derive_seeds")
}
"""The operator, and ``direct`` of it, of keys, (n, 2), and of seeds, (n,)."""


@operator("(Tensor(a0!) out, Tensor keys) -> ()")
def mt19937_states(out: Tensor, keys: Tensor) -> None:
    """Write the states of torch's CPU generator that belong to keys, (n, 632) of int64."""
    begin = np.full(len(keys), 4 * (scalar.DOMAIN_STATE << 56), np.uint64)  # in words
    words = draws.bits(keys.numpy(), begin, 0, 624, 1)
    words[:, 0] |= np.uint32(1 << 31)
    states = out.numpy()
    states[:] = 0
    states[:, 0] = keys.numpy()[:, 0].view(np.int64)
    states[:, 1] = 1 | 1 << 32
    states[:, MT19937] = words


@operator(
    "(Tensor(a0!) keys, Tensor(a1!) positions, int key, int tweak, int rank_word, int worker, "
    "int start) -> ()"
)
def reseed_streams(
    keys: Tensor, positions: Tensor, key: int, tweak: int, rank_word: int, worker: int, start: int
) -> None:
    """Give each stream its key under a name's key, and position 0."""
    _derive(keys, (key & _LOW64, tweak & _LOW64), rank_word, worker, start)
    positions.zero_()


@operator(
    "(Tensor(a0!) keys, Tensor(a1!) positions, Tensor scope, int name_lo, int name_hi, int "
    "rank_word, int worker, int start) -> ()"
)
def reseed_streams_at(
    keys: Tensor, positions: Tensor, scope: Tensor,
    name_lo: int, name_hi: int, rank_word: int, worker: int, start: int,
) -> None:  # fmt: skip
    """Give each stream its key at a scope that is a tensor, and position 0."""
    key, tweak = scope.tolist()
    name = scalar.name_key((key, tweak), (name_lo & _LOW64, name_hi & _LOW64))
    _derive(keys, name, rank_word, worker, start)
    positions.zero_()


@operator(
    "(Tensor(a0!) keys, Tensor(a1!) positions, Tensor seeds, Tensor? indices, int name_lo, "
    "int name_hi) -> ()"
)
def reseed_streams_from(
    keys: Tensor, positions: Tensor, seeds: Tensor, indices: Tensor | None,
    name_lo: int, name_hi: int,
) -> None:  # fmt: skip
    """Give each stream the key of its own master seed and index."""
    rank_word = scalar.SHARED_RANK | scalar.DOMAIN_STREAM << 24
    at = [0] * len(keys) if indices is None else indices.tolist()
    for row, (seed, i) in enumerate(zip(seeds.tolist(), at, strict=True)):
        scope = scalar.scope_key(seed, 0, 0, 0)
        name = scalar.name_key(scope, (name_lo & _LOW64, name_hi & _LOW64))
        _derive(keys[row : row + 1], name, rank_word, 0, i)
    positions.zero_()


advise_huge_pages = define("advise_huge_pages(Tensor(a0!) out) -> ()")
"""Ask for huge pages for a fresh tensor; None without native code."""
