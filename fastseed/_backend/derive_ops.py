"""The derivation, on the backend in use: native code where it is, else the NumPy reference.

Both give the same bits. Scalars are Python ints; ``fill_*`` write into torch tensors on the CPU.
Arguments are trusted (see ``fastseed.derivation.streams``).
"""

from __future__ import annotations

import numpy as np
import torch

from . import draw_ops as _draw_ops  # noqa: F401  (defines the operators)
from . import native
from .reference import philox
from .reference import shuffle as _shuffle
from .reference.philox import (
    DERIVATION_VERSION,
    DOMAIN_SAMPLE,
    DOMAIN_SCOPE,
    DOMAIN_SHUFFLE,
    DOMAIN_STATE,
    DOMAIN_STREAM,
    SHARED_RANK,
    U32,
    U64,
    Name,
    NameKey,
    ScopeKey,
    name_words,
    signed,
)

__all__ = [
    "DERIVATION_VERSION", "DOMAIN_SAMPLE", "DOMAIN_SCOPE", "DOMAIN_SHUFFLE", "DOMAIN_STREAM",
    "SHARED_RANK", "Name", "NameKey", "ScopeKey", "name_words", "signed",
]  # fmt: skip

_OPS = torch.ops.fastseed
_LOW32, _LOW64 = 2**32 - 1, 2**64 - 1
_HUGE = 4 << 20  # bytes from which a fresh output is worth huge pages

backend = "reference" if native.kernels is None else "native"


def scope_key(master: int, task: int, epoch: int, step: int) -> ScopeKey:
    """See ``fastseed._backend.reference.philox.scope_key``."""
    if native.generators is None:
        return philox.scope_key(master, task, epoch, step)
    scope: ScopeKey = native.generators.scope_key(master, task, epoch, step)
    return scope


def name_key(scope: ScopeKey, name: Name) -> NameKey:
    """See ``fastseed._backend.reference.philox.name_key``."""
    if native.generators is None:
        return philox.name_key(scope, name)
    key: NameKey = native.generators.name_key(*scope, *name)
    return key


def stream_key(
    name: NameKey, rank: int, worker: int, index: int, domain: int = DOMAIN_STREAM
) -> int:
    """See ``fastseed._backend.reference.philox.stream_key``."""
    if native.generators is None:
        return philox.stream_key(name, rank, worker, index, domain)
    lo, hi = native.generators.stream_key(*name, rank | domain << 24, worker, index)
    key: int = lo | hi << 64
    return key


def narrow_seed(name: NameKey, rank: int, worker: int, index: int, bits: int) -> int:
    """See ``fastseed._backend.reference.shuffle.narrow_seed``."""
    if native.generators is None:
        return _shuffle.narrow_seed(name, rank, worker, index, bits)
    seed: int = native.generators.narrow_seed(*name, rank, worker, index, bits)
    return seed


def fill_keys(
    out: torch.Tensor,
    name: NameKey,
    rank: int,
    worker: int,
    start: int,
    domain: int = DOMAIN_STREAM,
) -> None:
    """Write the keys of indices ``start``, ``start + 1``, ... into ``out``, (n, 2) uint64."""
    key, tweak = name
    at = (rank | domain << 24, worker, signed(start))
    _OPS.derive_keys(out, signed(key), signed(tweak), *at)


def fill_seeds(
    out: torch.Tensor,
    name: NameKey,
    rank: int,
    worker: int,
    start: int,
    domain: int = DOMAIN_STREAM,
) -> None:
    """Write the seeds of indices ``start``, ``start + 1``, ... into ``out``, (n,) uint64."""
    key, tweak = name
    at = (rank | domain << 24, worker, signed(start))
    _OPS.derive_seeds(out, signed(key), signed(tweak), *at)


def empty_like_keys(*shape: int, dtype: torch.dtype = torch.uint64) -> torch.Tensor:
    """A fresh tensor on the CPU, of 8 bytes an element; a large one is given huge pages."""
    out = torch.empty(shape, dtype=dtype, device="cpu")
    if native.kernels is not None and out.numel() * 8 >= _HUGE:
        _OPS.advise_huge_pages(out)
    return out


def mt19937_state(key: int) -> U32:
    """The 624 words of ``fastseed._backend.reference.philox.mt19937_state``."""
    out = torch.empty(philox.MT_WORDS // 4, 2, dtype=torch.uint64, device="cpu")
    hi = key >> 64
    # block j has the counter (j, domain, hi): the tweak holds the domain in its upper half
    _OPS.derive_keys(out, signed(key & _LOW64), DOMAIN_STATE << 56, hi & _LOW32, hi >> 32, 0)
    words: U32 = out.numpy().astype("<u8", copy=False).view("<u4").reshape(-1).astype(np.uint32)
    words[0] |= np.uint32(0x80000000)
    return words


def derive_seed_grid(name: NameKey, ranks: U64, workers: U64, indices: U64) -> U64:
    """See ``fastseed._backend.reference.philox.derive_seed_grid``."""
    if native.kernels is None:
        return philox.derive_seed_grid(name, ranks, workers, indices)
    out = empty_like_keys(len(indices), workers.shape[1])
    grid = map(torch.from_numpy, (indices, workers, ranks))
    _OPS.derive_seed_grid(out, *grid, *map(signed, name))
    array: U64 = out.numpy()
    return array


def shuffle_key(scope: ScopeKey, name: Name, n: int) -> int:
    """The 128-bit key of the order of ``n`` numbers; step 0 of the scope's epoch is meant."""
    return stream_key(name_key(scope, name), 0, 0, n, DOMAIN_SHUFFLE)


def fill_shuffle(out: torch.Tensor, key: int, n: int, start: int, stride: int) -> None:
    """Write the numbers at positions ``start``, ``start + stride``, ... into ``out``, (count,)."""
    _OPS.shuffle(out, signed(key & _LOW64), signed(key >> 64), n, start, stride)


def shuffle_index(key: int, n: int, i: int) -> int:
    """See ``fastseed._backend.reference.shuffle.index``."""
    if native.kernels is None:
        return _shuffle.index(key, n, i)
    out = torch.empty(1, dtype=torch.int64, device="cpu")
    fill_shuffle(out, key, n, i, 1)
    return int(out.item())


def shuffle_position(key: int, n: int, j: int) -> int:
    """See ``fastseed._backend.reference.shuffle.position``."""
    if native.kernels is None:
        return _shuffle.position(key, n, j)
    return int(shuffle_positions(key, n, torch.tensor([j], device="cpu")).item())


def shuffle_positions(key: int, n: int, samples: torch.Tensor) -> torch.Tensor:
    """The position of each of the int64 ``samples``, (count,), -1 of one outside [0, n)."""
    out = empty_like_keys(len(samples), dtype=torch.int64)
    _OPS.shuffle_positions(out, samples, signed(key & _LOW64), signed(key >> 64), n)
    return out


def simd_paths() -> tuple[str, ...]:
    """The instruction sets that the native kernels can use on this CPU, slowest first."""
    return () if native.kernels is None else tuple(_OPS.simd_paths().split())


def simd() -> str | None:
    """The one in use; None on the reference backend."""
    return None if native.kernels is None else str(_OPS.simd_path())


def set_simd(name: str | None) -> None:
    """Force one of ``simd_paths``; None goes back to the fastest."""
    if native.kernels is None:
        raise RuntimeError(f"fastseed: there are no native kernels here ({native.missing})")
    if name and name not in simd_paths():
        rule = f"must be one of {', '.join(simd_paths())} on this CPU"
        raise ValueError(f"fastseed.simd: name {rule}, got {name}")
    _OPS.choose_simd_path(name or "")
