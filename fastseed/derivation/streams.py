"""Names, coordinates and the keys that belong to them.

A *scope* is a point in time of the job (task, epoch, step) under a master seed; a *stream* is a
named generator on a rank. Everything here checks its arguments and then asks :mod:`fastseed._backend.derive_ops`. The only state is a
cache of names.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

from .._backend import derive_ops
from .._utils import validation


class _Shared(int):
    """The integer that stands for all ranks, with a name in error messages."""

    def __repr__(self) -> str:
        return "fastseed.SHARED"

    def __reduce__(self) -> str:
        return "SHARED"


SHARED = _Shared(derive_ops.SHARED_RANK)
"""The rank of streams that all ranks share: pass it as ``rank``."""

MAX_MASTER = MAX_STEP = 2**64 - 1
MAX_EPOCH = 2**32 - 1
MAX_TASK = 2**24 - 1
MAX_RANK = 2**24 - 2
MAX_WORKER = 2**32 - 1
MAX_INDEX = 2**64 - 1
MAX_MEMBERS = 2**40
"""The largest number of members that one call derives, or that a pool or bank has."""

NARROW_BITS = (31, 32)
"""The sizes of seeds that two ranks never have in common at one point of the job."""

OWN_NAMES = ("python", "numpy", "torch.cpu", "torch.cuda", "torch.xpu", "torch.mps")
"""The built-in streams."""

_ANY = 2**1000

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
    domain: int = derive_ops.DOMAIN_STREAM

    @property
    def rank_word(self) -> int:
        """Rank and domain, as native code takes them."""
        return self.rank | self.domain << 24

    def key(self, index: int = 0) -> int:
        """Return the 128-bit key of member ``index``."""
        return derive_ops.stream_key(self.name_key, self.rank, self.worker, index, self.domain)

    def seed(self, bits: int, index: int = 0) -> int:
        """Return the seed of ``bits`` bits of member ``index``.

        With 31 or 32 bits, two ranks never have the same at one point in time. With more, it is the
        lowest bits of the key; of samples, which have no rank, always.
        """
        if bits in NARROW_BITS and self.domain == derive_ops.DOMAIN_STREAM:
            return derive_ops.narrow_seed(self.name_key, self.rank, self.worker, index, bits)
        return self.key(index) & (1 << bits) - 1

    def numbered(self, number: int) -> Stream:
        """Return the stream whose member i is member ``number ^ i`` of this one."""
        key, tweak = self.name_key
        return self._replace(name_key=(key, tweak ^ number))


def check_coordinates(function: str, task: Any, epoch: Any, step: Any) -> Coordinates:
    """Return the three coordinates of a scope; TypeError or ValueError if one is invalid."""
    if (
        type(task) is type(epoch) is type(step) is int
        and 0 <= task <= MAX_TASK
        and 0 <= epoch <= MAX_EPOCH
        and 0 <= step <= MAX_STEP
    ):  # nearly every call
        return Coordinates(task, epoch, step)
    return Coordinates(
        validation.check_int(function, "task", task, 0, MAX_TASK),
        validation.check_int(function, "epoch", epoch, 0, MAX_EPOCH),
        validation.check_int(function, "step", step, 0, MAX_STEP),
    )


def check_name(function: str, name: Any) -> str:
    """Return a stream name: any non-empty string that UTF-8 can encode."""
    return validation.check_text(function, "name", name)


def check_scheme(function: str, scheme: Any) -> None:
    """Raise ValueError for anything but the name of a scheme."""
    validation.check_choice(function, "scheme", scheme, SCHEMES)


def check_rank(function: str, rank: Any) -> int:
    """Return a rank, or :data:`SHARED`."""
    rule = f"in [0, {MAX_RANK}] or fastseed.SHARED"
    number = validation.check_int(function, "rank", rank, -_ANY, _ANY)
    if not 0 <= number <= SHARED:
        raise validation.value_error(function, "rank", rule, rank)
    return number


@functools.lru_cache(maxsize=16384)
def name_words(name: str) -> derive_ops.Name:
    """Return what the derivation takes of a name: 128 bits of its SHA-256."""
    return derive_ops.name_words(name)


def stream_in(scope: derive_ops.Scope, name: str, rank: int, worker: int = 0) -> Stream:
    """Return the stream ``name`` of ``rank`` in a scope. Arguments are trusted."""
    return Stream(derive_ops.name_key(scope, name_words(name)), rank, worker)


def stream(master_seed: int, at: Coordinates, name: str, rank: int, worker: int = 0) -> Stream:
    """Return the stream ``name`` of ``rank`` at a point in time. Arguments are trusted."""
    return stream_in(derive_ops.scope_key(master_seed, *at), name, rank, worker)
