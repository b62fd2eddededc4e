"""Orders as a journal keeps them: a kind, a name and a few integers."""

from __future__ import annotations

import itertools
from typing import NamedTuple

from ..._backend import derive
from ..._utils import JSON, validation
from ...derivation import scopes, streams
from ..order.golden_ratio import UNIT
from ..order.mixture import Mixture, MixtureSampler
from ..order.permutation import Order, Permutation
from ..order.shuffle import MAX_N, ShuffleSampler
from .fields import check_fields, check_list

SHUFFLE, SEQUENCE, MIXTURE, OTHER = "shuffle", "sequence", "mixture", "other"


class Source(NamedTuple):
    """A source of a mixture."""

    name: str
    size: int
    share: int  # of 2**32
    skip: int  # samples that are left out at the beginning


class OrderSpec(NamedTuple):
    """An order of an epoch, without master seed, task and epoch."""

    kind: str
    name: str
    n: int  # positions in an epoch; -1 if that is not known
    sources: tuple[Source, ...] = ()
    shuffled: int = 1  # 0: a mixture that keeps the order within each source

    @property
    def size(self) -> int:
        """The number of samples of the dataset."""
        return sum(source.size for source in self.sources) or self.n

    def order(self, master_seed: int, task: int, epoch: int) -> Order:
        """Return the order of an epoch."""
        if self.kind == SEQUENCE:
            return Permutation(self.n, None)
        scope = derive.scope_key(master_seed, task, epoch, 0)
        if self.kind == SHUFFLE:
            name = streams.name_words(self.name)
            return Permutation(self.n, derive.shuffle_key(scope, name, self.n))
        names, sizes, shares, skips = zip(*self.sources, strict=True)
        return Mixture(scope, self.name, names, sizes, shares, skips, bool(self.shuffled))

    def to_dict(self) -> JSON:
        """Return the fields that the kind has."""
        found: JSON = {"kind": self.kind, "name": self.name, "n": self.n}
        if self.kind == MIXTURE:
            found["sources"] = [source._asdict() for source in self.sources]
            found["shuffled"] = self.shuffled
        return found


def spec_of(sampler: object, name: str, n: int) -> OrderSpec:
    """Return the order of a sampler; kind ``other`` if it is not a function of the epoch.

    Args:
        sampler: what yields the samples of a loader.
        name: a text for another order.
        n: its number of samples, -1 if that is not known.
    """
    other = OrderSpec(OTHER, name, n)
    if not isinstance(sampler, ShuffleSampler):
        return other
    is_own = type(sampler).__iter__ is not ShuffleSampler.__iter__
    if is_own or sampler.task is not None or sampler.epoch is not None:
        return other
    if isinstance(sampler, MixtureSampler):
        sources = tuple(Source(*source) for source in sampler.sources())
        return OrderSpec(MIXTURE, sampler.name, sampler.n, sources, int(sampler.shuffle))
    return OrderSpec(SHUFFLE if sampler.shuffle else SEQUENCE, sampler.name, sampler.n)


def parse_order(function: str, argument: str, given: JSON) -> OrderSpec:
    """Return the order of a dict; TypeError or ValueError if it is damaged."""
    validation.check_instance(function, argument, given, dict, "an object")
    kind = validation.check_choice(
        function, f"{argument}['kind']", given.get("kind"), (SHUFFLE, SEQUENCE, MIXTURE, OTHER)
    )
    least = -1 if kind == OTHER else 1
    bounds = {"n": (least, MAX_N)} | ({"shuffled": (0, 1)} if kind == MIXTURE else {})
    texts, others = ("name", "kind"), (("sources",) if kind == MIXTURE else ())
    numbers = check_fields(function, argument, given, bounds, texts, others)
    if kind != MIXTURE:
        return OrderSpec(kind, given["name"], numbers["n"])
    limits = {"size": (1, MAX_N), "share": (1, UNIT), "skip": (0, MAX_N)}
    sources = []
    for i, source in enumerate(check_list(function, f"{argument}['sources']", given["sources"])):
        where = f"{argument}['sources'][{i}]"
        fields = check_fields(function, where, source, limits, ("name",))
        scopes.check_name(function, source["name"])
        sources.append(Source(source["name"], **fields))
    total = sum(source.share for source in sources)
    names = {source.name for source in sources}
    if total != UNIT or len(names) != len(sources) or sum(s.size for s in sources) > MAX_N:
        rule = "of different names, with shares of sum 2**32 and at most 2**48 samples"
        raise validation.value_error(function, f"{argument}['sources']", rule, given["sources"])
    return OrderSpec(kind, given["name"], numbers["n"], tuple(sources), numbers["shuffled"])


def offsets(spec: OrderSpec) -> list[int]:
    """Return the index of the first sample of each source, and the number of all samples."""
    return list(itertools.accumulate((source.size for source in spec.sources), initial=0))
