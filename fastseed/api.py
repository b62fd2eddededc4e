"""The functions that scripts call: one :class:`Seeder` for the process, and no other state."""

from __future__ import annotations

import logging
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

from . import _native, _ops, streams
from .seeder import Seeder

logger = logging.getLogger("fastseed")

try:
    __version__ = version("fastseed")
except PackageNotFoundError:  # run from a source tree that was never installed
    __version__ = "unknown"

_seeder: Seeder | None = None


def _current(function: str) -> Seeder:
    if _seeder is None:
        raise RuntimeError(f"fastseed.{function}: call fastseed.init(...) first")
    return _seeder


def init(
    master_seed: int | None = None,
    ngpus: int | None = None,
    local_rank: int | None = None,
    *,
    rank: int | None = None,
    world_size: int | None = None,
    scheme: str = "philox-v1",
) -> None:
    """Start the process-wide :class:`Seeder` (see there for the arguments and errors).

    Changes no generator: call :func:`reseed` next. Calling it again starts anew and drops all
    registrations. Logs one line, at level INFO, on rank 0.
    """
    global _seeder
    seeder = Seeder(master_seed, ngpus, local_rank, rank=rank, world_size=world_size, scheme=scheme)
    _seeder = seeder
    streams.set_origin(streams.Origin(seeder.master_seed, seeder.rank, scheme))
    if seeder.rank == 0:
        logger.info(
            "fastseed: master seed %d, rank %d of %d, scheme %s, backend %s%s",
            seeder.master_seed,
            seeder.rank,
            seeder.world_size,
            scheme,
            _ops.backend,
            f" ({_ops.simd()})" if _ops.simd() else f" ({_native.missing})",
        )


def get_master_seed() -> int:
    """The master seed in use, in [0, 2**64): the one given, or the one drawn."""
    return _current("get_master_seed").master_seed


def reseed(task: int, epoch: int = 0, step: int = 0) -> None:
    """Reseed every generator of this process: see :meth:`Seeder.reseed`."""
    (_seeder or _current("reseed")).reseed(task, epoch, step)


def register_generator(
    gen: Any, shared: bool = False, *, name: str | None = None, bits: int = 31
) -> None:
    """Let :func:`reseed` set one more generator: see :meth:`Seeder.register_generator`."""
    _current("register_generator").register_generator(gen, shared, name=name, bits=bits)


def unregister_generator(gen: Any) -> None:
    """Forget a registered generator; ValueError if it is not registered."""
    _current("unregister_generator").unregister_generator(gen)


def key(
    name: str,
    *,
    task: int,
    epoch: int = 0,
    step: int = 0,
    rank: int | None = None,
    worker: int = 0,
    index: int = 0,
) -> int:
    """The 128-bit key of a stream, without touching any generator: see :meth:`Seeder.key`."""
    return _current("key").key(
        name, task=task, epoch=epoch, step=step, rank=rank, worker=worker, index=index
    )


def seed(
    name: str,
    *,
    task: int,
    epoch: int = 0,
    step: int = 0,
    rank: int | None = None,
    worker: int = 0,
    index: int = 0,
) -> int:
    """The low 64 bits of :func:`key`."""
    return _current("seed").seed(
        name, task=task, epoch=epoch, step=step, rank=rank, worker=worker, index=index
    )


def derive_keys(
    n: int,
    *,
    name: str,
    task: int,
    epoch: int = 0,
    step: int = 0,
    rank: int | None = None,
    worker: int = 0,
    start: int = 0,
    out: torch.Tensor | None = None,
    device: torch.device | str | None = None,
) -> torch.Tensor:
    """The keys of the ``n`` indices from ``start`` on: shape (n, 2), torch.uint64, [lo, hi].

    Args:
        n: how many; ``start + n`` is at most 2**40.
        name: the stream's name.
        task: [0, 2**24), as for :func:`reseed`; ``epoch`` and ``step`` likewise.
        epoch: [0, 2**32).
        step: [0, 2**64).
        rank: see :meth:`Seeder.key`, as for ``worker``.
        worker: see above.
        start: the first index.
        out: write here: shape (n, 2), torch.uint64, any device and strides.
        device: where the result shall be, the CPU unless given. Keys are derived on the CPU and
            copied.

    Raises:
        TypeError, ValueError: for an argument that is out of its range or has the wrong dtype or
            shape; ``out`` has not changed.
    """
    return _current("derive_keys").derive_keys(
        n,
        name=name,
        task=task,
        epoch=epoch,
        step=step,
        rank=rank,
        worker=worker,
        start=start,
        out=out,
        device=device,
    )


def derive_seeds(
    n: int,
    *,
    name: str,
    task: int,
    epoch: int = 0,
    step: int = 0,
    rank: int | None = None,
    worker: int = 0,
    start: int = 0,
    out: torch.Tensor | None = None,
    device: torch.device | str | None = None,
) -> torch.Tensor:
    """The low 64 bits of the same keys: shape (n,), torch.uint64. See :func:`derive_keys`."""
    return _current("derive_seeds").derive_seeds(
        n,
        name=name,
        task=task,
        epoch=epoch,
        step=step,
        rank=rank,
        worker=worker,
        start=start,
        out=out,
        device=device,
    )


def state_dict(*, rng: bool = False) -> dict[str, Any]:
    """Where this process is, and with ``rng=True`` what its generators hold exactly.

    Returns:
        A dict of ints, strings and uint8 tensors: see :mod:`fastseed.checkpoint`.
    """
    return _current("state_dict").state_dict(rng=rng)


def load_state_dict(state: dict[str, Any]) -> None:
    """Take the master seed and coordinates of ``state`` and set every generator.

    Raises:
        TypeError, ValueError: the state is foreign, truncated or of another version or scheme; no
            generator has changed.
    """
    seeder = _current("load_state_dict")
    try:
        seeder.load_state_dict(state)
    finally:  # also where a callable failed and all else is done
        streams.set_origin(streams.Origin(seeder.master_seed, seeder.rank, seeder.scheme))


def build_info() -> dict[str, Any]:
    """What is in use: version, backend (and why not the native one), SIMD path, CUDA, torch."""
    return {
        "version": __version__,
        "derivation": _ops.DERIVATION_VERSION,
        "backend": _ops.backend,
        "native": "loaded" if _native.missing is None else f"not used: {_native.missing}",
        "simd": _ops.simd(),
        "simd_paths": list(_ops.simd_paths()),
        "cuda": "not built",
        "torch": torch.__version__,
    }
