"""The functions that scripts call: one :class:`Seeder` for the process, and no other state."""

from __future__ import annotations

import inspect
import logging
import os
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

import torch

from .._backend import derive_ops, draw_ops, native
from .._utils.version import __version__ as __version__
from ..derivation import context, streams
from ..determinism import switches
from .fork_rng import ForkBlock, ForkRng
from .seeder import Seeder

logger = logging.getLogger("fastseed")

P = ParamSpec("P")
R = TypeVar("R")

_seeder: Seeder | None = None


def current(function: str) -> Seeder:
    """The process-wide seeder; RuntimeError, naming ``function``, before :func:`init`."""
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
    mesh: Any = None,
    distinct_over: Any = None,
    scheme: str = "philox-v1",
    on_os_fork: str | None = None,
) -> None:
    """Start the process-wide :class:`Seeder` (see there for the arguments and errors).

    Changes no generator: call :func:`reseed` next. Calling it again starts anew and drops all
    registrations. Logs one line, at level INFO, on rank 0.

    What ``fastseed run`` leaves in the environment is taken: ``FASTSEED_MASTER_SEED`` where
    ``master_seed`` is None, and with ``FASTSEED_DETERMINISTIC`` the switches of
    :func:`fastseed.deterministic` are set.
    """
    global _seeder
    given = os.environ.get("FASTSEED_MASTER_SEED") if master_seed is None else None
    if given:
        master_seed = _seed_of("FASTSEED_MASTER_SEED", given)
    seeder = Seeder(
        master_seed,
        ngpus,
        local_rank,
        rank=rank,
        world_size=world_size,
        mesh=mesh,
        distinct_over=distinct_over,
        scheme=scheme,
        on_os_fork=on_os_fork,
    )
    switches.from_environment()
    _seeder = seeder
    context.set_current(seeder)
    streams.set_origin(streams.Origin(seeder.stream_master, seeder.rank_fields.default, scheme))
    if seeder.rank == 0:
        logger.info(
            "fastseed: master seed %d%s, rank %d of %d, %sscheme %s, backend %s%s",
            seeder.master_seed,
            " of FASTSEED_MASTER_SEED" if given else "",
            seeder.rank,
            seeder.world_size,
            f"mesh ({seeder.mesh}), " if seeder.mesh else "",
            scheme,
            derive_ops.backend,
            f" ({derive_ops.simd()})" if derive_ops.simd() else f" ({native.missing})",
        )


def _seed_of(name: str, text: str) -> Any:
    """A variable's number. What is none goes on as text: all ranks have to hear of it."""
    if text.isascii() and text.isdigit() and len(text) <= 20 and int(text) <= streams.MAX_MASTER:
        return int(text)
    return f"{name}={text}"


def get_master_seed() -> int:
    """The master seed in use, in [0, 2**64): the one given, or the one drawn."""
    return current("get_master_seed").master_seed


def reseed(task: int, epoch: int = 0, step: int = 0) -> None:
    """Reseed every generator of this process: see :meth:`Seeder.reseed`."""
    (_seeder or current("reseed")).reseed(task, epoch, step)


def _of_the_process(
    method: Callable[Concatenate[Seeder, P], R], name: str | None = None
) -> Callable[P, R]:
    """A method of the process-wide seeder as a function, with its signature and documentation."""
    name = name or method.__name__

    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        return method(_seeder or current(name), *args, **kwargs)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = method.__doc__
    whole = inspect.signature(method)
    own = list(whole.parameters.values())[1:]
    call.__signature__ = whole.replace(parameters=own)  # type: ignore[attr-defined]
    return call


register_generator = _of_the_process(Seeder.register_generator)
unregister_generator = _of_the_process(Seeder.unregister_generator)
derive_key = _of_the_process(Seeder.derive_key)
derive_seed = _of_the_process(Seeder.derive_seed)
derive_keys = _of_the_process(Seeder.derive_keys)
derive_seeds = _of_the_process(Seeder.derive_seeds)
derive_scope = _of_the_process(Seeder.derive_scope)
state_dict = _of_the_process(Seeder.state_dict)


def fork_rng(name: str, *, index: int | None = None, distinct_over: Any = None) -> ForkBlock:
    """Run a block on a named stream of torch's default generators, of the CPU and all devices.

    However the block is left, the generators are then exactly as they were before it. Blocks nest.
    Python's and NumPy's generators do not change. No accelerator is initialised; one that is
    initialised inside the block is on the stream too.

    Args:
        name: the name of the stream.
        index: in [0, 2**32 - 2], the number of a layer for example: the block starts at the
            beginning of that numbered stream of this scope whenever it is entered, so that a
            recomputation (``torch.utils.checkpoint``) repeats its random numbers. None: it
            continues where the last block of this name ended, from the beginning after each
            ``reseed``; for recomputation see :func:`fork_rng_contexts`.
        distinct_over: the dimensions of the mesh that the stream is distinct over: all of them
            unless this, or ``distinct_over`` of ``init``, says otherwise. With a preset, a name
            that the preset does not know needs it.

    Returns:
        A context manager that can be entered again, and a decorator.

    Raises:
        TypeError, ValueError: an argument is invalid, a generator of the name is registered, the
            dimensions are not those of earlier blocks, or the scheme is ``"fwr13y"``.
        RuntimeError: the block is entered before the first ``reseed``, while a CUDA graph is
            captured, in a DataLoader worker, or while another thread is in a block; or it is left
            before a block inside it. Inside: ``reseed``, ``load_state_dict``, ``state_dict(rng=True)``.

    Example:
        >>> import fastseed, torch
        >>> fastseed.init(42)
        >>> fastseed.reseed(1)
        >>> before = torch.get_rng_state()
        >>> with fastseed.fork_rng("dropout", index=3):
        ...     a = torch.rand(2)
        >>> with fastseed.fork_rng("dropout", index=3):
        ...     b = torch.rand(2)
        >>> a.equal(b), before.equal(torch.get_rng_state())
        (True, True)
    """
    # Not a method of the seeder that is current now: a decorator is made before there is one.
    return ForkBlock(_current_fork_rng, name, index, distinct_over)


def _current_fork_rng() -> ForkRng:
    return (_seeder or current("fork_rng"))._fork_rng


def load_state_dict(state: dict[str, Any]) -> None:
    """Take the master seed and coordinates of ``state`` and set every generator.

    Raises:
        TypeError, ValueError: the state is foreign, truncated or of another version or scheme; no
            generator has changed.
    """
    seeder = current("load_state_dict")
    try:
        seeder.load_state_dict(state)
    finally:  # also where a callable failed and all else is done
        streams.set_origin(
            streams.Origin(seeder.stream_master, seeder.rank_fields.default, seeder.scheme)
        )


def build_info() -> dict[str, Any]:
    """What is in use: version, backend (and why not the native one), SIMD path, CUDA, torch."""
    return {
        "version": __version__,
        "derivation": derive_ops.DERIVATION_VERSION,
        "backend": derive_ops.backend,
        "native": "loaded" if native.missing is None else f"not used: {native.missing}",
        "simd": derive_ops.simd(),
        "simd_paths": list(derive_ops.simd_paths()),
        "cuda": "built" if draw_ops.has_cuda else "not built",
        "torch": torch.__version__,
    }
