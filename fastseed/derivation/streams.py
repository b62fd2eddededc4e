"""Names, coordinates and the keys that belong to them.

A *scope* is a point in time of the job (task, epoch, step) under a master seed; a *stream* is a
named generator on a rank. Everything here checks its arguments and then asks :mod:`fastseed._backend.derive_ops`;
nothing has state but the cache of names and the *origin*: what ``init`` was told.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

from .._backend import derive_ops
from .._utils import validation

SHARED = derive_ops.SHARED_RANK
"""The rank of streams that all ranks share (2**24 - 1): pass it as ``rank``."""

MAX_MASTER = MAX_STEP = 2**64 - 1
MAX_EPOCH = 2**32 - 1
MAX_TASK = 2**24 - 1
MAX_RANK = 2**24 - 2
MAX_WORKER = 2**32 - 1
MAX_INDEX = 2**64 - 1
MAX_MEMBERS = 2**40
"""How many members of a bulk group one call derives, or a bank holds, at most."""

NARROW_BITS = (31, 32)
"""Sizes of seeds that are numbered through the ranks, so that no two of them have the same."""

OWN_NAMES = ("python", "numpy", "torch.cpu", "torch.cuda", "torch.xpu", "torch.mps")
"""The streams of the library's own."""

SCHEMES = ("philox-v1", "fwr13y")


class Coordinates(NamedTuple):
    """A point in time of a job."""

    task: int
    epoch: int
    step: int


class Stream(NamedTuple):
    """A named generator on a rank, at one point in time; its members have keys."""

    name_key: derive_ops.NameKey
    rank: int
    worker: int = 0
    """0: the main process; k + 1: DataLoader worker k."""

    def key(self, index: int = 0) -> int:
        """The 128-bit key of member ``index``."""
        return derive_ops.stream_key(self.name_key, self.rank, self.worker, index)

    def seed(self, bits: int, index: int = 0) -> int:
        """The seed of ``bits`` bits of member ``index``.

        Of 31 or 32 bits: no two ranks have the same at one point in time. Of more: the lowest bits
        of the key.
        """
        if bits in NARROW_BITS:
            return derive_ops.narrow_seed(self.name_key, self.rank, self.worker, index, bits)
        return self.key(index) & (1 << bits) - 1

    def numbered(self, number: int) -> Stream:
        """The stream whose member i is member ``number ^ i`` of this one."""
        key, tweak = self.name_key
        return self._replace(name_key=(key, tweak ^ number))


class Origin(NamedTuple):
    """What the derivation starts from in this process."""

    master_seed: int
    rank: int
    scheme: str


_origin: Origin | None = None


def set_origin(origin: Origin | None) -> None:
    """Remember what ``init`` was told, for everything that works without a :class:`Seeder`."""
    global _origin
    _origin = origin


def get_origin(function: str) -> Origin:
    """What ``init`` was told; RuntimeError, naming ``function``, before that."""
    if _origin is None:
        raise RuntimeError(f"fastseed.{function}: call fastseed.init(...) first")
    return _origin


def check_coordinates(function: str, task: Any, epoch: Any, step: Any) -> Coordinates:
    """The three coordinates of a scope, checked."""
    if (
        type(task) is type(epoch) is type(step) is int
        and 0 <= task <= MAX_TASK
        and 0 <= epoch <= MAX_EPOCH
        and 0 <= step <= MAX_STEP
    ):  # what nearly every call of the hot path is
        return Coordinates(task, epoch, step)
    return Coordinates(
        validation.check_int(function, "task", task, 0, MAX_TASK),
        validation.check_int(function, "epoch", epoch, 0, MAX_EPOCH),
        validation.check_int(function, "step", step, 0, MAX_STEP),
    )


def check_name(function: str, name: Any) -> str:
    """A stream name: any non-empty string."""
    if not isinstance(name, str):
        raise TypeError(
            f"fastseed.{function}: name must be a string, "
            f"got {validation.describe(name)} of type {type(name).__name__}"
        )
    if not name:
        raise ValueError(f"fastseed.{function}: name must not be empty, got ''")
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"fastseed.{function}: name must have a UTF-8 encoding, got {validation.describe(name)}"
        ) from error
    return name


def check_scheme(function: str, scheme: Any) -> None:
    """ValueError for anything but the name of a scheme."""
    if scheme not in SCHEMES:
        raise ValueError(f"fastseed.{function}: scheme must be one of {SCHEMES}, got {scheme!r}")


def check_rank(function: str, rank: Any) -> int:
    """A rank, or :data:`SHARED`."""
    return validation.check_int(function, "rank", rank, 0, SHARED)


@functools.lru_cache(maxsize=16384)
def name_words(name: str) -> derive_ops.Name:
    """What the derivation takes of a name: 128 bits of its SHA-256."""
    return derive_ops.name_words(name)


def stream_in(scope: derive_ops.Scope, name: str, rank: int, worker: int = 0) -> Stream:
    """The stream ``name`` of ``rank`` in a scope. Arguments are trusted."""
    return Stream(derive_ops.name_key(scope, name_words(name)), rank, worker)


def stream(master_seed: int, at: Coordinates, name: str, rank: int, worker: int = 0) -> Stream:
    """The stream ``name`` of ``rank`` at a point in time. Arguments are trusted."""
    name_key = derive_ops.name_key_at(master_seed, *at, name_words(name))
    return Stream(name_key, rank, worker)
