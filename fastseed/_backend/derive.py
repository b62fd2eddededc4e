"""The derivation, on the backend in use: native code where it is, else the NumPy reference."""

from __future__ import annotations

import numpy as np
import torch

from . import native
from .ops import keys, shuffle
from .reference import scalar
from .reference.philox import U32
from .reference.scalar import DOMAIN_SHUFFLE, DOMAIN_STREAM, Name, NameKey, ScopeKey
from .reference.scalar import signed as _signed

_LOW32, _LOW64 = 2**32 - 1, 2**64 - 1
_HUGE = 4 << 20  # bytes from which a fresh output is worth huge pages

backend = "reference" if native.kernels is None else "native"


def scope_key(master: int, task: int, epoch: int, step: int) -> ScopeKey:
    """Return (key, tweak) of a point in time of the job with this master seed."""
    if native.generators is None:
        return scalar.scope_key(master, task, epoch, step)
    scope: ScopeKey = native.generators.scope_key(master, task, epoch, step)
    return scope


def name_key(scope: ScopeKey, name: Name) -> NameKey:
    """Return (key, tweak) of a name at that point."""
    if native.generators is None:
        return scalar.name_key(scope, name)
    key: NameKey = native.generators.name_key(*scope, *name)
    return key


def stream_key(
    name: NameKey, rank_field: int, worker: int, index: int, domain: int = DOMAIN_STREAM
) -> int:
    """Return the 128-bit key of one stream."""
    if native.generators is None:
        return scalar.stream_key(name, rank_field, worker, index, domain)
    lo, hi = native.generators.stream_key(*name, rank_field | domain << 24, worker, index)
    key: int = lo | hi << 64
    return key


def narrow_seed(name: NameKey, rank_field: int, worker: int, index: int, bits: int) -> int:
    """Return the seed of 31 or 32 bits of a rank field, which no other one has."""
    if native.generators is None:
        key = stream_key(name, 0, worker, index, scalar.DOMAIN_NARROW)
        return shuffle_index(key, 1 << bits, rank_field)
    seed: int = native.generators.narrow_seed(*name, rank_field, worker, index, bits)
    return seed


def fill(
    out: torch.Tensor,
    name: NameKey,
    rank_word: int,
    worker: int,
    start: int,
) -> torch.Tensor:
    """Return ``out`` with keys, (n, 2), or seeds, (n,), of the indices from ``start`` on."""
    operator, directly = keys.DERIVE["derive_keys" if out.dim() == 2 else "derive_seeds"]
    if not directly(out, *name, rank_word, worker, start):
        operator(out, _signed(name[0]), _signed(name[1]), rank_word, worker, _signed(start))
    return out


def empty_words(*shape: int, dtype: torch.dtype = torch.uint64) -> torch.Tensor:
    """Return a fresh tensor on the CPU, of 8 bytes an element; a large one gets huge pages."""
    out = torch.empty(shape, dtype=dtype, device="cpu")
    if keys.advise_huge_pages is not None and out.numel() * 8 >= _HUGE:
        keys.advise_huge_pages(out)
    return out


def mt19937_state(key: int) -> U32:
    """Return the 624 words of an MT19937, expanded from all 128 bits of ``key``."""
    out = torch.empty(1, keys.STATE_WORDS, dtype=torch.int64, device="cpu")
    keys.mt19937_states(out, torch.from_numpy(np.array([[key & _LOW64, key >> 64]], np.uint64)))
    return out.numpy()[0, keys.MT19937].astype(np.uint32)


def shuffle_key(scope: ScopeKey, name: Name, n: int) -> int:
    """Return the 128-bit key of the order of ``n`` numbers. Pass a scope whose step is 0."""
    return stream_key(name_key(scope, name), 0, 0, n, DOMAIN_SHUFFLE)


def fill_shuffle(out: torch.Tensor, key: int, n: int, start: int, stride: int) -> None:
    """Write the numbers at positions ``start``, ``start + stride``, ... into ``out``, (count,)."""
    shuffle.shuffle(out, _signed(key & _LOW64), _signed(key >> 64), n, start, stride)


def shuffle_index(key: int, n: int, i: int) -> int:
    """Return the number at position ``i``."""
    out = torch.empty(1, dtype=torch.int64, device="cpu")
    fill_shuffle(out, key, n, i, 1)
    return int(out.item())


def shuffle_positions(key: int, n: int, samples: torch.Tensor) -> torch.Tensor:
    """Return the position of each of the int64 ``samples``, (count,); -1 outside [0, n)."""
    out = empty_words(len(samples), dtype=torch.int64)
    shuffle.shuffle_positions(out, samples, _signed(key & _LOW64), _signed(key >> 64), n)
    return out


def simd_paths() -> tuple[str, ...]:
    """Return the instruction sets that the native kernels can use on this CPU, slowest first."""
    return () if native.kernels is None else tuple(native.kernels.simd_paths().split())


def simd() -> str | None:
    """Return the one in use; None on the reference backend."""
    return None if native.kernels is None else str(native.kernels.simd_path())
