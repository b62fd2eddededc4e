"""Indices that an epoch has more than once."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from typing import Any, SupportsIndex

from torch.utils.data import Sampler

from ..._utils import validation
from ...derivation import scopes


class Repeat(int):
    """The index of a sample that an epoch has had before, for ``per_sample``.

    ``index`` is in [0, 2**64): the index of the sample, which is the value of the int.

    Attributes:
        occurrence: 1 when the sample comes for the second time, and so on: [1, 2**32).

    Raises:
        TypeError, ValueError: an argument has the wrong type or is out of range.

    Examples:
        >>> from fastseed.data import Repeat
        >>> Repeat(7), Repeat(7) == 7, Repeat(7, occurrence=2).occurrence
        (Repeat(7, occurrence=1), True, 2)
    """

    occurrence: int

    def __new__(cls, index: int, occurrence: int = 1) -> Repeat:
        name = "data.Repeat"
        index = validation.check_int(name, "index", index, 0, scopes.MAX_INDEX)
        repeat = super().__new__(cls, index)
        most = scopes.MAX_WORKER
        repeat.occurrence = validation.check_int(name, "occurrence", occurrence, 1, most)
        return repeat

    def __reduce__(self) -> tuple[object, ...]:
        return Repeat, (int(self), self.occurrence)

    def __repr__(self) -> str:
        return f"Repeat({int(self)}, occurrence={self.occurrence})"

    __str__ = int.__repr__  # so that file names made of an index stay the same


class CountedSampler(Sampler[object]):
    """A sampler whose repeated indices are of type ``Repeat``."""

    def __init__(self, sampler: Any) -> None:
        self.sampler = sampler

    def __len__(self) -> int:
        return len(self.sampler)

    def __getattr__(self, name: str) -> object:
        if name.startswith("__") or "sampler" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.sampler, name)

    def __iter__(self) -> Iterator[object]:
        counts: dict[int, int] = {}
        for item in self.sampler:
            is_batch = isinstance(item, (list, tuple))
            yield [_count(counts, i) for i in item] if is_batch else _count(counts, item)


def _count(counts: dict[int, int], index: SupportsIndex) -> int:
    try:
        number = operator.index(index)
    except TypeError:
        rule = "an iterable of integers or of lists of them"
        raise validation.type_error("data.count_occurrences", "sampler", rule, index) from None
    before = counts.get(number, 0)
    counts[number] = before + 1
    occurrence = max(before, getattr(index, "occurrence", 0))
    return Repeat(number, occurrence) if occurrence else number


def count_occurrences(sampler: Iterable[Any]) -> Sampler[Any]:
    """Wrap a sampler so that indices which it yields again are of type ``Repeat``.

    Each iteration and each rank counts for itself: where ranks share one sequence of indices, wrap
    that sequence, not the shares.

    Args:
        sampler: an iterable of integers or of lists of them.

    Returns:
        A sampler with the attributes and methods of ``sampler``.

    Raises:
        TypeError: ``sampler`` is not iterable.

    Examples:
        >>> from fastseed.data import count_occurrences
        >>> list(count_occurrences([3, 1, 3]))
        [3, 1, Repeat(3, occurrence=1)]
    """
    if not hasattr(sampler, "__iter__"):
        raise validation.type_error("data.count_occurrences", "sampler", "iterable", sampler)
    return CountedSampler(sampler)
