"""A sampler that mixes named sources by weight, the same on any number of ranks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sized
from typing import Any

from ..._utils import validation
from ...derivation import scopes
from ...seeder.seeder import current_seeder
from .mixture import Source, shares_of
from .samplers import ShuffleSampler, check_size
from .spec import MAX_N, MixtureSpec

_CLASS = "data.MixtureSampler"
_MOST_SOURCES = 1024  # each costs a Python loop at the start of an iteration


class MixtureSampler(ShuffleSampler):
    """A ``ShuffleSampler`` over several named sources, each chosen in proportion to its weight.

    Indices number the samples of one source after another, as ``ConcatDataset`` does. The order of
    a source depends on its name and size, not on the others. One that is exhausted begins again in
    another order, with samples of type ``Repeat``. To continue with other sources or weights, pass
    the ``counts`` so far as ``skip``. The other arguments are those of ``ShuffleSampler``.

    Args:
        sources: the datasets, or their numbers of samples, [1, 2**48], by name.
        weights: a finite positive number for each of ``sources``; only their ratios count, which
            are rounded to multiples of 2**-32. A weight that this rounds to 0 is refused.
        n: the number of positions in an epoch, [1, 2**48]; None: all samples of all sources.
        skip: how many samples of a source to leave out at the beginning of its order, by name.
        shuffle: False keeps the order within each source.
        name: the name of the choice of sources.

    Raises:
        TypeError, ValueError: an argument has the wrong type or is out of range, or the names
            differ.

    Examples:
        >>> import fastseed
        >>> fastseed.init(42, rank=0, world_size=1)
        >>> fastseed.reseed(1, 7)
        >>> sampler = fastseed.data.MixtureSampler(
        ...     {"web": 100, "code": 10}, {"web": 3, "code": 1}, n=8, shuffle=False
        ... )
        >>> list(sampler)
        [0, 1, 2, 100, 3, 4, 5, 6]
        >>> sampler.counts(8)
        {'web': 7, 'code': 1}
    """

    _path = _CLASS

    def __init__(
        self,
        sources: Mapping[str, Sized | int],
        weights: Mapping[str, float],
        *,
        n: int | None = None,
        skip: Mapping[str, int] | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        drop_last: bool = False,
        shuffle: bool = True,
        name: str = "mixture",
    ) -> None:
        validation.check_instance(_CLASS, "sources", sources, Mapping, "a dict of datasets")
        if not 1 <= len(sources) <= _MOST_SOURCES:
            rule = f"between 1 and {_MOST_SOURCES} datasets"
            raise validation.value_error(_CLASS, "sources", rule, sources)
        names = tuple(scopes.check_name(_CLASS, source) for source in sources)
        sizes = [check_size(_CLASS, f"sources[{key!r}]", data) for key, data in sources.items()]
        numbers = _numbers("weights", weights, names, validation.check_float, 0.0, math.inf)
        shares = shares_of(numbers) if any(numbers) else [0] * len(names)
        if 0 in shares:
            name = names[shares.index(0)]
            rule = "positive, and at least about 2**-32 of the sum of all weights"
            raise validation.value_error(_CLASS, f"weights[{name!r}]", rule, weights[name])
        if isinstance(skip, Mapping) or skip is None:
            skip = {**dict.fromkeys(names, 0), **(skip or {})}
        skips = _numbers("skip", skip, names, validation.check_int, 0, MAX_N)
        n = sum(sizes) if n is None else n
        n = validation.check_int(_CLASS, "n", n, 1, MAX_N)
        super().__init__(
            n, rank=rank, world_size=world_size, drop_last=drop_last, shuffle=shuffle, name=name
        )
        parts = tuple(map(Source, names, sizes, shares, skips))
        self.spec = MixtureSpec(name, n, parts, self.spec.shuffled)

    def counts(
        self, position: int, *, task: int | None = None, epoch: int | None = None
    ) -> dict[str, int]:
        """Return how many samples of each source come before a global position, in constant time.

        Those of ``skip`` are counted too, so that the result is the ``skip`` of another sampler
        that continues.

        Args:
            position: [0, 2**48].
            task: None: that of the next iteration.
            epoch: None: that of the next iteration.

        Returns:
            The counts by the name of the source.
        """
        function = f"{_CLASS}.counts"
        position = validation.check_int(function, "position", position, 0, MAX_N)
        seed = current_seeder(function).master_seed
        order: Any = self.spec.at(seed, *self._scope(function, task, epoch))
        pairs = zip(self.spec.sources, order.counts(position), strict=True)
        return {source.name: count + source.skip for source, count in pairs}


def _numbers(
    argument: str, given: Any, names: tuple[str, ...], check: Any, *bounds: float
) -> list[Any]:
    """Return the number of each source."""
    validation.check_instance(_CLASS, argument, given, Mapping, "a dict of numbers")
    if set(given) != set(names):
        rule = f"a number for each of {', '.join(map(repr, names))}"
        raise validation.value_error(_CLASS, argument, rule, dict(given))
    return [check(_CLASS, f"{argument}[{name!r}]", given[name], *bounds) for name in names]
