"""The functions that derive keys and seeds."""

from __future__ import annotations

import torch
from torch.utils.data import get_worker_info

from .._backend import derive, native, recomputation, tensors
from .._backend.compile import eager, refuse_capture
from .._backend.reference.scalar import ScopeKey
from .._utils import validation
from . import context, scopes, streams
from .place import Place
from .scopes import MAX_INDEX, MAX_MEMBERS

SEED_BITS = (31, 32, 63, 64)
_LOW_INDEX = MAX_INDEX - MAX_MEMBERS  # a call that starts here or below ends in the range


def derive_key(
    name: str,
    *,
    task: int | None = None,
    epoch: int = 0,
    step: int = 0,
    rank: int | None = None,
    worker: int = 0,
    index: int = 0,
) -> int:
    """Return the 128-bit key of a named stream, without touching any generator.

    Args:
        name: the stream's name, registered or not.
        task: [0, 2**24). None: task, epoch and step of the last ``reseed``.
        epoch: [0, 2**32).
        step: [0, 2**64).
        rank: [0, 2**24 - 1), or ``fastseed.SHARED``. None: the one that ``name`` has on this rank:
            the rank, its index in the mesh, or ``SHARED``.
        worker: [0, 2**32): 0 is the main process, k + 1 DataLoader worker k.
        index: [0, 2**64): the member of a group of streams; 0 for a single generator.

    Returns:
        An integer in [0, 2**128), which ``torch.export`` with ``strict=False`` keeps for ever, and
        which compiled code cannot take from call to call: ``derive_keys(name, 1)[0]`` is a tensor.

    Raises:
        TypeError, ValueError: an argument is invalid.
        RuntimeError: before ``init``; without ``task``, before the first ``reseed`` or in a
            DataLoader worker.

    Examples:
        >>> import fastseed
        >>> fastseed.init(42)
        >>> fastseed.reseed(task=1, epoch=3)
        >>> key = fastseed.derive_key("dropout")
        >>> key == fastseed.derive_key("dropout", task=1, epoch=3)
        True
    """
    stream = stream_of("derive_key", None, name, task, epoch, step, rank, worker)
    return stream.key(validation.check_int("derive_key", "index", index, 0, MAX_INDEX))


def derive_seed(
    name: str,
    *,
    task: int | None = None,
    epoch: int = 0,
    step: int = 0,
    rank: int | None = None,
    worker: int = 0,
    index: int = 0,
    bits: int = 64,
) -> int:
    """Return an integer seed of a named stream, without touching any generator.

    See ``fastseed.derive_key`` for the other arguments and the errors.

    Args:
        bits: 31, 32, 63 or 64. 63 and 64 are the low bits of the key. Two ranks never have the same
            seed of 31 or 32 bits at one point of the job.

    Returns:
        An integer in [0, 2**bits).

    Examples:
        >>> import fastseed
        >>> fastseed.init(42)
        >>> seed = fastseed.derive_seed("request", task=1, index=7)
        >>> seed == fastseed.derive_key("request", task=1, index=7) % 2**64
        True
    """
    function = "derive_seed"
    bits = validation.check_choice(function, "bits", bits, SEED_BITS)
    stream = stream_of(function, None, name, task, epoch, step, rank, worker)
    return stream.seed(bits, validation.check_int(function, "index", index, 0, MAX_INDEX))


@eager
def derive_keys(
    name: str,
    n: int,
    *,
    task: int | None = None,
    epoch: int = 0,
    step: int = 0,
    rank: int | None = None,
    worker: int = 0,
    start: int = 0,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return the 128-bit keys of ``n`` streams of one name, in one call.

    See ``fastseed.derive_key`` for the other arguments and the errors. While a CUDA graph is
    captured, a call for that device is refused.

    Args:
        n: [0, 2**40].
        start: the index of the first member.
        out: write here: shape (n, 2), torch.uint64, any device and strides.

    Returns:
        Shape (n, 2), torch.uint64: low and high half of each key.

    Examples:
        >>> import fastseed
        >>> fastseed.init(42)
        >>> keys = fastseed.derive_keys("prompts", 3, task=1)
        >>> lo, hi = keys[2].tolist()
        >>> lo | hi << 64 == fastseed.derive_key("prompts", task=1, index=2)
        True
    """
    stream = stream_of("derive_keys", None, name, task, epoch, step, rank, worker)
    return members("derive_keys", stream, start, (n, 2), out)


@eager
def derive_seeds(
    name: str,
    n: int,
    *,
    task: int | None = None,
    epoch: int = 0,
    step: int = 0,
    rank: int | None = None,
    worker: int = 0,
    start: int = 0,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return 64-bit seeds of ``n`` streams of one name, in one call: the low halves of their keys.

    See ``fastseed.derive_key`` and ``fastseed.derive_keys`` for the arguments; ``out`` has shape
    (n,).

    Returns:
        Shape (n,), torch.uint64.

    Examples:
        >>> import fastseed
        >>> fastseed.init(42)
        >>> seeds = fastseed.derive_seeds("prompts", 3, task=1)
        >>> seeds[2].item() == fastseed.derive_seed("prompts", task=1, index=2)
        True
    """
    stream = stream_of("derive_seeds", None, name, task, epoch, step, rank, worker)
    return members("derive_seeds", stream, start, (n,), out)


def stream_of(
    function: str,
    place: Place | None,
    name: str,
    task: int | None,
    epoch: int,
    step: int,
    rank: int | None,
    worker: int,
) -> streams.Stream:
    """Return the stream of a derivation; without a place that of the process."""
    if place is None:
        place = context.current(function).place
    name = scopes.check_name(function, name)
    if task is None:
        scope = _present_scope(function, place, epoch, step)
    else:
        at = scopes.check_scope(function, task, epoch, step)
        scope = derive.scope_key(place.master_seed, *at)
    if rank is None:
        rank_field = place.fields.of(name)
    else:
        rank_field = validation.check_int(function, "rank", rank, 0, scopes.SHARED)
    if type(worker) is not int or worker != 0:
        worker = validation.check_int(function, "worker", worker, 0, scopes.MAX_WORKER)
    return streams.stream_in(scope, name, rank_field, worker)


def _present_scope(function: str, place: Place, epoch: int, step: int) -> ScopeKey:
    """Return the scope of the last ``reseed``, or of the forward pass in a recomputation."""
    if type(epoch) is not int or type(step) is not int or epoch or step:
        _, epoch, step = scopes.check_scope(function, 0, epoch, step)
    if epoch or step:
        raise validation.value_error(function, "task", "given together with epoch and step", None)
    if get_worker_info() is not None:
        raise RuntimeError(
            f"fastseed.{function}: task must be given in a DataLoader worker, which does not know "
            "the last reseed of its parent"
        )
    context.scope_of(place, function, ", or give task=")
    return recomputation.used(function, place.scope_key)


def members(
    function: str,
    stream: streams.Stream,
    start: int,
    shape: tuple[int, ...],
    out: torch.Tensor | None,
) -> torch.Tensor:
    """Return the keys, (n, 2), or the seeds, (n,), of n members from ``start`` on."""
    n = shape[0]
    if not (type(n) is type(start) is int and 0 <= start <= _LOW_INDEX and 0 <= n <= MAX_MEMBERS):
        start = validation.check_int(function, "start", start, 0, MAX_INDEX)
        most = min(MAX_MEMBERS, MAX_INDEX + 1 - start)
        shape = (validation.check_int(function, "n", n, 0, most), *shape[1:])
    at = stream.name_key, stream.rank_word, stream.worker, start
    if out is None:
        return derive.fill(derive.empty_words(*shape), *at)
    tensors.check_out(function, out, shape, torch.uint64)
    refuse_capture(function, out.device, "call it outside of the capture")
    kind = out.device.type
    if out.is_contiguous() and (kind == "cpu" or (kind == "cuda" and native.has_cuda)):
        return derive.fill(out, *at)
    return out.copy_(derive.fill(derive.empty_words(*shape), *at))
