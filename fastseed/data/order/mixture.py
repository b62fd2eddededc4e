"""A sampler that mixes named sources by weight, the same on any number of ranks.

The choice of a source is a low-discrepancy sequence, shuffled in blocks (docs/spec/derivation.md
specifies it). So how often a source was chosen before a position is a closed form, and any part of
the order can be computed at once.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sized
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import torch

from ..._backend import derive
from ..._backend.reference import scalar
from ..._utils import validation
from ...derivation import scopes, streams
from ..worker.scope import keyed_seeder
from .golden_ratio import BLOCK, STEP, UNIT, ShareOfPoints
from .occurrences import Repeat
from .permutation import Array, Order, Permutation, check_visits
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
        self._names = tuple(scopes.check_name(_CLASS, source) for source in sources)
        self._sizes = tuple(
            check_size(_CLASS, f"sources[{name!r}]", source) for name, source in sources.items()
        )
        self._shares = _checked_shares(weights, self._names)
        self._skip = _skipped(skip, self._names)
        n = sum(self._sizes) if n is None else validation.check_int(_CLASS, "n", n, 1, MAX_N)
        super().__init__(
            n, rank=rank, world_size=world_size, drop_last=drop_last, shuffle=shuffle, name=name
        )

    def __repr__(self) -> str:
        return f"MixtureSampler({self.describe_order()}, n={self.n}, drop_last={self.drop_last})"

    def describe_order(self) -> str:
        """Return a text that is equal for equal orders; a loader's state contains it."""
        mixed = ", ".join(f"{s!r}: {size} * {w} + {skip}" for s, size, w, skip in self.sources())
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
        """
        function = f"{_CLASS}.counts"
        position = validation.check_int(function, "position", position, 0, MAX_N)
        found = self._order(function, task, epoch).counts(position)
        totals = (count + skip for count, skip in zip(found, self._skip, strict=True))
        return dict(zip(self._names, totals, strict=True))

    def sources(self) -> Iterator[tuple[str, int, int, int]]:
        """Yield name, size, share of 2**32 and skipped samples of each source."""
        return zip(self._names, self._sizes, self._shares, self._skip, strict=True)

    def _order(self, function: str, task: int | None, epoch: int | None) -> Mixture:
        master_seed = keyed_seeder(function).master_seed
        scope = derive.scope_key(master_seed, *self._scope(function, task, epoch), 0)
        parts = self._names, self._sizes, self._shares, self._skip
        return Mixture(scope, self.name, *parts, self.shuffle)


def _skipped(skip: Mapping[str, int] | None, names: tuple[str, ...]) -> tuple[int, ...]:
    skip = {} if skip is None else skip
    validation.check_instance(_CLASS, "skip", skip, Mapping, "a dict of numbers")
    skip = dict.fromkeys(names, 0) | dict(skip)
    _check_names("skip", skip, names)
    return tuple(
        validation.check_int(_CLASS, f"skip[{name!r}]", skip[name], 0, MAX_N) for name in names
    )


def _checked_shares(weights: Mapping[str, float], names: tuple[str, ...]) -> tuple[int, ...]:
    validation.check_instance(_CLASS, "weights", weights, Mapping, "a dict of numbers")
    _check_names("weights", weights, names)
    numbers = [
        validation.check_float(_CLASS, f"weights[{name!r}]", weights[name], 0.0, math.inf)
        for name in names
    ]
    shares = tuple(shares_of(numbers)) if any(numbers) else (0,) * len(names)
    for name, weight, share in zip(names, numbers, shares, strict=True):
        if not share:
            rule = "positive, and at least about 2**-32 of the sum of all weights"
            raise validation.value_error(_CLASS, f"weights[{name!r}]", rule, weight)
    return shares


def _check_names(argument: str, given: Mapping[str, float], names: tuple[str, ...]) -> None:
    if set(given) != set(names):
        rule = f"a number for each of {', '.join(map(repr, names))}"
        raise validation.value_error(_CLASS, argument, rule, dict(given))


# ------------------------------------------------------------------ the order


def shares_of(weights: list[float]) -> list[int]:
    """Return integers in proportion to ``weights`` whose sum is 2**32, by largest remainders."""
    total = sum(map(Fraction, weights))
    exact = [Fraction(weight) / total * UNIT for weight in weights]
    shares = [int(share) for share in exact]
    by_remainder = sorted(range(len(shares)), key=lambda s: shares[s] - exact[s])
    for s in by_remainder[: UNIT - sum(shares)]:
        shares[s] += 1
    return shares


@dataclass(frozen=True)
class Mixture(Order):
    """The order of a mixture in one epoch; it has no end."""

    scope: scalar.ScopeKey
    name: str
    names: tuple[str, ...]  # of the sources
    sizes: tuple[int, ...]
    shares: tuple[int, ...]
    skip: tuple[int, ...]  # samples of each source to leave out
    shuffle: bool

    def counts(self, position: int) -> list[int]:
        """Return how many samples each source has before ``position``, without those skipped."""
        block, i = divmod(position, BLOCK)
        before = np.array(self._before(block))
        inside = np.bincount(self._sources(block)[:i], minlength=len(before))
        return list((before + inside).tolist())

    def part(self, start: int, count: int, stride: int = 1) -> torch.Tensor:
        indices = itertools.chain.from_iterable(self._chunks(start, stride, count))
        return torch.tensor(list(map(int, indices)), dtype=torch.int64, device="cpu")

    def entries(self, start: int, count: int) -> tuple[Array, Array]:
        found = [(np.empty(0, np.int64),) * 2, *self._parts(start, start + count)]
        samples, occurrences = map(np.concatenate, zip(*found, strict=True))
        return samples, occurrences

    def _chunks(self, start: int, stride: int, size: int) -> Iterator[list[int]]:
        """Yield the samples at every stride-th position, those of a block at a time."""
        for samples, occurrences in self._parts(start, start + size * stride, stride):
            columns = zip(samples.tolist(), occurrences.tolist(), strict=True)
            yield [Repeat(j, times) if times else j for j, times in columns]

    def _parts(self, start: int, end: int, stride: int = 1) -> Iterator[tuple[Array, Array]]:
        """Yield (samples, occurrences) at every stride-th position, those of a block at a time."""
        known, before = -1, np.empty(0, np.int64)
        while start < end:
            block, i = divmod(start, BLOCK)
            if block != known:
                before = np.array(self._before(block))
            sources, part = self._sources(block), slice(i, end - block * BLOCK)
            passed = np.bincount(sources[:i], minlength=len(before))
            samples, occurrences = self._of_sources(sources[part], (before + passed).tolist())
            yield samples[::stride], occurrences[::stride]
            before += np.bincount(sources, minlength=len(before))
            known = block + 1
            start += -(-len(samples) // stride) * stride

    def _of_sources(self, sources: np.ndarray, before: list[int]) -> tuple[Array, Array]:
        """Return (samples, occurrences) where these sources are chosen, so often chosen before."""
        samples, occurrences = np.empty(len(sources), np.int64), np.empty(len(sources), np.int64)
        offset = 0
        for s, size in enumerate(self.sizes):
            own = np.flatnonzero(sources == s)
            done, turn = 0, before[s] + self.skip[s]
            while done < len(own):  # a pass through the source at a time
                times, i = divmod(turn + done, size)
                here = own[done : done + size - i]
                samples[here] = self._pass(s, times).part(i, len(here)).numpy() + offset
                occurrences[here] = times
                done += len(here)
            offset += size
        return samples, occurrences

    def visits(self, samples: Array, limit: int) -> tuple[Array, Array, Array]:
        ends = np.cumsum(self.sizes)
        found = [(np.empty(0, np.int64),) * 3]
        sources = np.searchsorted(ends, samples, side="right")
        for s in np.unique(sources[(samples >= 0) & (samples < ends[-1])]).tolist():
            which = np.flatnonzero(sources == s)
            own = samples[which] - (ends[s] - self.sizes[s])
            skipped, size = self.skip[s], self.sizes[s]
            count = self.counts(limit)[s]
            passes = range(skipped // size, -(-(count + skipped) // size))
            check_visits(len(own), len(passes))
            for times in passes:
                turns = self._pass(s, times).positions(torch.from_numpy(own)).numpy()
                turns = turns + (times * size - skipped)
                here = np.flatnonzero((turns >= 0) & (turns < count))
                places = self.positions(s, turns[here])
                found.append((which[here], places, np.full(len(here), times)))
        which, places, occurrences = map(np.concatenate, zip(*found, strict=True))
        return which, places, occurrences

    def positions(self, source: int, turns: np.ndarray) -> np.ndarray:
        """Return where a source is chosen for the ``turns``-th time, from 0, without those skipped.

        Args:
            source: its number, [0, number of sources).
            turns: (count,), int64, at least 0.

        Returns:
            The positions, (count,), int64; -1 where that is not below 2**48.
        """
        low = sum(self.shares[:source])
        of_source = ShareOfPoints(self._start(), low, low + self.shares[source])
        blocks, rest = of_source.blocks_of(turns)
        out = np.full(len(turns), -1, np.int64)
        for block in np.unique(blocks[blocks >= 0]).tolist():
            here = blocks == block
            own = np.flatnonzero(self._sources(block) == source)
            out[here] = block * BLOCK + own[rest[here]]
        return out

    def _sources(self, block: int) -> np.ndarray:
        """Return the source of each position of a block."""
        key = derive.stream_key(
            self._name_key(self.name), scopes.SHARED, 0, block, scalar.DOMAIN_SHUFFLE
        )
        order = derive.empty_words(BLOCK, dtype=torch.int64)
        derive.fill_shuffle(order, key, BLOCK, 0, 1)
        points = (self._start() + (block * BLOCK + order.numpy()) * STEP) % UNIT
        return np.searchsorted(np.cumsum(self.shares), points, side="right")

    def _before(self, block: int) -> list[int]:
        """Return how often each source is chosen before a block."""
        start = self._start()
        ends = itertools.pairwise(itertools.accumulate(self.shares, initial=0))
        return [ShareOfPoints(start, *bounds).before(block) for bounds in ends]

    def _start(self) -> int:
        """Return the first point of the sequence."""
        return derive.stream_key(self._name_key(self.name), scopes.SHARED, 0, 0) % UNIT

    def _pass(self, s: int, times: int) -> Permutation:
        """Return the order of a source when it was exhausted so many times."""
        if not self.shuffle:
            return Permutation(self.sizes[s], None)
        if times > scopes.MAX_WORKER:
            raise RuntimeError(
                f"fastseed.{_CLASS}: source {self.names[s]!r} must be exhausted fewer than 2**32 "
                f"times, got {times}"
            )
        name, n = self._name_key(self.names[s]), self.sizes[s]
        return Permutation(n, derive.stream_key(name, 0, times, n, scalar.DOMAIN_SHUFFLE))

    def _name_key(self, name: str) -> scalar.NameKey:
        return derive.name_key(self.scope, streams.name_words(name))
