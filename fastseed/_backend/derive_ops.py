"""The derivation, on the backend in use: native code where it is, else the NumPy reference.

Both give the same bits. Scalars are Python ints; arrays are NumPy's; ``fill_*`` write into torch
tensors of dtype uint64 on the CPU. Arguments are trusted (see :mod:`fastseed.derivation.streams`).
"""

from __future__ import annotations

import torch

from . import native
from .reference import philox
from .reference import shuffle as _reference_shuffle
from .reference.philox import (
    DERIVATION_VERSION,
    DOMAIN_SAMPLE,
    DOMAIN_SHUFFLE,
    DOMAIN_STREAM,
    SHARED_RANK,
    U32,
    U64,
    Name,
    NameKey,
    Scope,
    mt19937_state,
    name_words,
)

__all__ = [
    "DERIVATION_VERSION",
    "DOMAIN_SAMPLE",
    "DOMAIN_SHUFFLE",
    "DOMAIN_STREAM",
    "SHARED_RANK",
    "U32",
    "U64",
    "Name",
    "NameKey",
    "Scope",
    "backend",
    "derive_keys",
    "derive_seeds",
    "empty_like_keys",
    "fill_keys",
    "fill_seeds",
    "fill_shuffle",
    "mt19937_state",
    "name_key",
    "name_words",
    "narrow_seed",
    "scope_key",
    "set_simd",
    "shuffle_index",
    "shuffle_key",
    "shuffle_position",
    "signed",
    "simd",
    "simd_paths",
    "stream_key",
]

_HUGE = 4 << 20  # bytes from which a fresh output is worth huge pages

backend = "reference" if native.kernels is None else "native"


def signed(value: int) -> int:
    """Return the signed integer with the same 64 bits, as operators take them."""
    return value - 2**64 if value >= 2**63 else value


def scope_key(master: int, task: int, epoch: int, step: int) -> Scope:
    """See :func:`fastseed._backend.reference.philox.scope_key`."""
    if native.generators is None:
        return philox.scope_key(master, task, epoch, step)
    scope: Scope = native.generators.scope_key(master, task, epoch, step)
    return scope


def name_key(scope: Scope, name: Name) -> NameKey:
    """See :func:`fastseed._backend.reference.philox.name_key`."""
    if native.generators is None:
        return philox.name_key(scope, name)
    key: NameKey = native.generators.name_key(*scope, *name)
    return key


def stream_key(
    name: NameKey, rank: int, worker: int, index: int, domain: int = DOMAIN_STREAM
) -> int:
    """See :func:`fastseed._backend.reference.philox.stream_key`."""
    if native.generators is None:
        return philox.stream_key(name, rank, worker, index, domain)
    lo, hi = native.generators.stream_key(*name, rank | domain << 24, worker, index)
    key: int = lo | hi << 64
    return key


def narrow_seed(name: NameKey, rank: int, worker: int, index: int, bits: int) -> int:
    """See :func:`fastseed._backend.reference.shuffle.narrow_seed`."""
    if native.generators is None:
        return _reference_shuffle.narrow_seed(name, rank, worker, index, bits)
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
    if native.kernels is None:
        out.numpy()[:] = philox.derive_keys(name, rank, worker, start, len(out), domain)
        return
    key, tweak = name
    native.kernels.derive_keys(
        out, signed(key), signed(tweak), rank | domain << 24, worker, signed(start)
    )


def fill_seeds(
    out: torch.Tensor,
    name: NameKey,
    rank: int,
    worker: int,
    start: int,
    domain: int = DOMAIN_STREAM,
) -> None:
    """Write the seeds of indices ``start``, ``start + 1``, ... into ``out``, (n,) uint64."""
    if native.kernels is None:
        out.numpy()[:] = philox.derive_seeds(name, rank, worker, start, len(out), domain)
        return
    key, tweak = name
    native.kernels.derive_seeds(
        out, signed(key), signed(tweak), rank | domain << 24, worker, signed(start)
    )


def empty_like_keys(*shape: int, dtype: torch.dtype = torch.uint64) -> torch.Tensor:
    """A fresh tensor on the CPU; a large one is given huge pages where there are any.

    Its dtype is uint64, or another of 8 bytes.
    """
    out = torch.empty(shape, dtype=dtype, device="cpu")
    if native.kernels is not None and out.numel() * 8 >= _HUGE:
        native.kernels.advise_huge_pages(out)
    return out


def derive_keys(
    name: NameKey, rank: int, worker: int, start: int, n: int, domain: int = DOMAIN_STREAM
) -> U64:
    """See :func:`fastseed._backend.reference.philox.derive_keys`."""
    out = empty_like_keys(n, 2)
    fill_keys(out, name, rank, worker, start, domain)
    array: U64 = out.numpy()
    return array


def derive_seeds(
    name: NameKey, rank: int, worker: int, start: int, n: int, domain: int = DOMAIN_STREAM
) -> U64:
    """See :func:`fastseed._backend.reference.philox.derive_seeds`."""
    out = empty_like_keys(n)
    fill_seeds(out, name, rank, worker, start, domain)
    array: U64 = out.numpy()
    return array


def shuffle_key(scope: Scope, name: Name, n: int) -> int:
    """The 128-bit key of the order of ``n`` numbers; step 0 of the scope's epoch is meant."""
    return stream_key(name_key(scope, name), 0, 0, n, DOMAIN_SHUFFLE)


def fill_shuffle(out: torch.Tensor, key: int, n: int, start: int, stride: int) -> None:
    """Write the numbers at positions ``start``, ``start + stride``, ... into ``out``, (count,)."""
    if native.kernels is None:
        out.numpy()[:] = _reference_shuffle.indices(key, n, start, stride, len(out))
        return
    lo, hi = signed(key & (1 << 64) - 1), signed(key >> 64)
    native.kernels.shuffle(out, lo, hi, n, start, stride)


def shuffle_index(key: int, n: int, i: int) -> int:
    """See :func:`fastseed._backend.reference.shuffle.index`."""
    if native.kernels is None:
        return _reference_shuffle.index(key, n, i)
    out = torch.empty(1, dtype=torch.int64, device="cpu")
    fill_shuffle(out, key, n, i, 1)
    return int(out.item())


shuffle_position = _reference_shuffle.position


def simd_paths() -> tuple[str, ...]:
    """The instruction sets that the native kernels can use on this CPU, slowest first."""
    return () if native.kernels is None else tuple(native.kernels.simd_paths().split())


def simd() -> str | None:
    """The one in use; None on the reference backend."""
    return None if native.kernels is None else str(native.kernels.simd_path())


def set_simd(name: str | None) -> None:
    """Force one of :func:`simd_paths`; None goes back to the fastest."""
    if native.kernels is None:
        raise RuntimeError(f"fastseed: there are no native kernels here ({native.missing})")
    if name and name not in simd_paths():
        rule = f"must be one of {', '.join(simd_paths())} on this CPU"
        raise ValueError(f"fastseed.simd: name {rule}, got {name}")
    native.kernels.choose_simd_path(name or "")
