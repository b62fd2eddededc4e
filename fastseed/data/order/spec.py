"""What an order is, without the master seed, task and epoch: a kind, a name and a few integers."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..._backend import derive
from ...derivation import streams
from ..layout import UNKNOWN
from .mixture import Mixture, Source
from .permutation import Array, Order, Permutation

MAX_N = 2**48
KINDS: dict[str, type[OrderSpec]] = {}
"""The classes of orders by their ``kind``."""


class OrderSpec:
    """An order of every epoch; ``at`` makes that of one.

    Each subclass is a frozen dataclass. A journal of ``fastseed.data.steps`` keeps its ``kind`` and
    its fields (``docs/spec/data-order.md``).
    """

    kind: ClassVar[str]
    is_keyed: ClassVar[bool] = True  # False: the order needs no master seed
    is_function: ClassVar[bool] = True  # False: the order is not a function of the epoch

    name: str
    n: int  # positions in an epoch; of another order what its sampler says, or UNKNOWN
    sources: tuple[Source, ...] = ()
    shuffled: int = 1  # 0: the samples of a source, or all, keep their order

    def __init_subclass__(cls) -> None:
        KINDS[cls.kind] = cls

    def at(self, master_seed: int, task: int, epoch: int) -> Order:
        """Return the order of an epoch."""
        raise NotImplementedError

    def describe(self) -> str:
        """Return a text that is equal for equal orders; a loader's state contains it."""
        return self.name

    @property
    def end(self) -> int:
        """The number of positions in an epoch, or UNKNOWN where only a sampler knows it."""
        return self.n if self.is_function else UNKNOWN

    @property
    def size(self) -> int:
        """The number of samples of the dataset."""
        return sum(source.size for source in self.sources) or self.n

    def offsets(self) -> list[int]:
        """Return the index of the first sample of each source, and the number of all samples."""
        return list(itertools.accumulate((source.size for source in self.sources), initial=0))

    def share_of(self, samples: Array) -> float:
        """Return which part of the positions of a long epoch has one of ``samples``, sorted."""
        if not self.sources:
            return len(samples) / self.n
        counts = np.diff(np.searchsorted(samples, self.offsets()))
        pairs = zip(self.sources, counts.tolist(), strict=True)
        return float(sum(s.share / 2**32 * count / s.size for s, count in pairs))


@dataclass(frozen=True)
class ShuffleSpec(OrderSpec):
    kind = "shuffle"
    name: str
    n: int

    def at(self, master_seed: int, task: int, epoch: int) -> Order:
        scope = derive.scope_key(master_seed, task, epoch, 0)
        return Permutation(self.n, derive.shuffle_key(scope, streams.name_words(self.name), self.n))


@dataclass(frozen=True)
class SequenceSpec(OrderSpec):
    kind, is_keyed, shuffled = "sequence", False, 0
    name: str
    n: int

    def at(self, master_seed: int, task: int, epoch: int) -> Order:
        return Permutation(self.n, None)

    def describe(self) -> str:
        return "in order"


@dataclass(frozen=True)
class MixtureSpec(OrderSpec):
    """A mixture of sources, each of which is shuffled or keeps its order."""

    kind = "mixture"
    name: str
    n: int
    sources: tuple[Source, ...]
    shuffled: int

    def at(self, master_seed: int, task: int, epoch: int) -> Order:
        scope = derive.scope_key(master_seed, task, epoch, 0)
        return Mixture(scope, self.name, self.sources, bool(self.shuffled))

    def describe(self) -> str:
        mixed = ", ".join(f"{s!r}: {size} * {w} + {skip}" for s, size, w, skip in self.sources)
        return f"{self.name}{'' if self.shuffled else ' in order'} of {{{mixed}}}"


@dataclass(frozen=True)
class OtherSpec(OrderSpec):
    """An order that only its sampler knows."""

    kind, is_function = "other", False
    name: str
    n: int
