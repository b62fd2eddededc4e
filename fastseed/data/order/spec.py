"""What an order is, without the master seed, task and epoch: a kind, a name and a few integers."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np

from ..._backend import derive
from ...derivation import streams
from .mixture import Mixture, Source
from .permutation import Array, Order, Permutation

SHUFFLE, SEQUENCE, MIXTURE, OTHER = "shuffle", "sequence", "mixture", "other"
KINDS = (SHUFFLE, SEQUENCE, MIXTURE, OTHER)
MAX_N = 2**48


class OrderSpec(NamedTuple):
    """An order of every epoch; ``at`` makes that of one.

    A journal of ``fastseed.data.steps`` keeps these fields (``docs/spec/data-order.md``).
    """

    kind: str
    name: str
    n: int  # positions in an epoch; -1 if that is not known
    sources: tuple[Source, ...] = ()
    shuffled: int = 1  # 0: a mixture that keeps the order within each source

    @property
    def size(self) -> int:
        """The number of samples of the dataset."""
        return sum(source.size for source in self.sources) or self.n

    @property
    def is_function(self) -> bool:
        """True if the order is a function of the epoch."""
        return self.kind != OTHER

    def at(self, master_seed: int, task: int, epoch: int) -> Order:
        """Return the order of an epoch."""
        if self.kind == SEQUENCE:
            return Permutation(self.n, None)
        scope = derive.scope_key(master_seed, task, epoch, 0)
        if self.kind == SHUFFLE:
            name = streams.name_words(self.name)
            return Permutation(self.n, derive.shuffle_key(scope, name, self.n))
        return Mixture(scope, self.name, self.sources, bool(self.shuffled))

    def describe(self) -> str:
        """Return a text that is equal for equal orders; a loader's state contains it."""
        if self.kind == SEQUENCE:
            return "in order"
        if self.kind != MIXTURE:
            return self.name
        mixed = ", ".join(f"{s!r}: {size} * {w} + {skip}" for s, size, w, skip in self.sources)
        return f"{self.name}{'' if self.shuffled else ' in order'} of {{{mixed}}}"

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
