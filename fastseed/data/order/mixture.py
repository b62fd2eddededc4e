"""A sampler that mixes named sources by weight, the same on any number of ranks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sized
from typing import Any

from ..._backend import derive_ops
from ..._utils import validation
from ...derivation import coordinates
from ..worker.scope import keyed_seeder
from .mixture_order import Mixture, shares_of
from .permutation import Order
from .shuffle import MAX_N, ShuffleSampler, check_size

_CLASS = "data.MixtureSampler"
_MOST_SOURCES = 2**16


class MixtureSampler(ShuffleSampler):
    """A ``ShuffleSampler`` over several named sources, each chosen in proportion to its weight.

    Indices number the samples of all sources, one source after another, as
    ``torch.utils.data.ConcatDataset(sources.values())`` does. Each source keeps an order of its
    own, which depends on its name and size, not on the other sources: adding a source changes how
    often the others come, but not in which order their samples come. Add it at the end, so that
    the indices of the others stay. A source that is exhausted begins again in another order; its
    samples are then of type ``Repeat``, so that ``per_sample`` draws new random numbers.

    Which source is at a position is a function of the scope and the position, so a job resumes
    with other ranks and workers as with a ``ShuffleSampler``. In the first 1024 k positions a
    source comes as often as its weight says, up to a few samples; in between, as in a random order.
    To continue with other sources or weights, pass the ``counts`` so far as ``skip``.

    Args:
        sources: the datasets, or their numbers of samples, [1, 2**48], by name.
        weights: a finite positive number for each of ``sources``; only their ratios count, which
            are rounded to multiples of 2**-32. A weight that this rounds to 0 is refused.
        n: the number of positions in an epoch, [1, 2**48]; None: all samples of all sources.
        skip: how many samples of a source to leave out at the beginning of its order, by name.
        rank: as for ``ShuffleSampler``, as are ``world_size`` and ``drop_last``. The last
            round of ranks is filled up with the samples at the positions from n on.
        world_size: the number of ranks.
        drop_last: leave out the last positions instead.
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
        self._names = tuple(coordinates.check_name(_CLASS, source) for source in sources)
        self._sizes = tuple(
            check_size(_CLASS, f"sources[{name!r}]", source) for name, source in sources.items()
        )
        self._shares = _shares(_weights(weights, self._names), self._names)
        self._skip = _skipped(skip, self._names)
        n = sum(self._sizes) if n is None else validation.check_int(_CLASS, "n", n, 1, MAX_N)
        options: dict[str, Any] = {"drop_last": drop_last, "shuffle": shuffle, "name": name}
        super().__init__(n, rank=rank, world_size=world_size, **options)

    def __repr__(self) -> str:
        return f"MixtureSampler({self.describe_order()}, n={self.n}, drop_last={self.drop_last})"

    def describe_order(self) -> str:
        """Return a text that is equal for equal orders; a loader's state contains it."""
        parts = zip(self._names, self._sizes, self._shares, self._skip, strict=True)
        mixed = ", ".join(f"{s!r}: {size} * {w} + {skip}" for s, size, w, skip in parts)
        return f"{self.name}{'' if self.shuffle else ' in order'} of {{{mixed}}}"

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

        Raises:
            TypeError, ValueError, RuntimeError: as for ``index``.
        """
        function = f"{_CLASS}.counts"
        position = validation.check_int(function, "position", position, 0, MAX_N)
        found = self._mixture(function, task, epoch).counts(position)
        totals = (count + skip for count, skip in zip(found, self._skip, strict=True))
        return dict(zip(self._names, totals, strict=True))

    def _order(self, function: str, task: int | None, epoch: int | None) -> Order:
        return self._mixture(function, task, epoch)

    def _mixture(self, function: str, task: int | None, epoch: int | None) -> Mixture:
        master_seed = keyed_seeder(function).master_seed
        scope = derive_ops.scope_key(master_seed, *self._scope(function, task, epoch), 0)
        parts = self._names, self._sizes, self._shares, self._skip
        return Mixture(scope, self.name, *parts, self.shuffle)


def _skipped(skip: Any, names: tuple[str, ...]) -> tuple[int, ...]:
    if skip is None:
        return (0,) * len(names)
    validation.check_instance(_CLASS, "skip", skip, Mapping, "a dict of numbers")
    skip = {name: 0 for name in names} | dict(skip)
    _check_names("skip", skip, names)
    return tuple(
        validation.check_int(_CLASS, f"skip[{name!r}]", skip[name], 0, MAX_N) for name in names
    )


def _weights(weights: Any, names: tuple[str, ...]) -> list[float]:
    validation.check_instance(_CLASS, "weights", weights, Mapping, "a dict of numbers")
    _check_names("weights", weights, names)
    found = []
    for name in names:
        argument, most = f"weights[{name!r}]", math.inf
        weight = validation.check_float(_CLASS, argument, weights[name], 0.0, most)
        if not weight:
            raise validation.value_error(_CLASS, argument, "positive", weight)
        found.append(weight)
    return found


def _shares(weights: list[float], names: tuple[str, ...]) -> tuple[int, ...]:
    shares = tuple(shares_of(weights))
    for name, weight, share in zip(names, weights, shares, strict=True):
        if not share:
            rule = "large enough to be sampled: at least about 2**-32 of the sum of all weights"
            raise validation.value_error(_CLASS, f"weights[{name!r}]", rule, weight)
    return shares


def _check_names(argument: str, given: Mapping[str, Any], names: tuple[str, ...]) -> None:
    if set(given) != set(names):
        rule = f"a number for each of {', '.join(map(repr, names))}"
        raise validation.value_error(_CLASS, argument, rule, dict(given))
