"""Where this process is in its job: what a stream depends on, beside its name and its index."""

from __future__ import annotations

from typing import NamedTuple

from .._backend import derive
from .._backend.reference.scalar import ScopeKey
from .._utils import forks
from .rank_fields import RankFields
from .scopes import Scope
from .streams import Stream, stream_in


class Place(NamedTuple):
    """A value, which ``reseed`` and a DataLoader worker replace; each ``Seeder`` has one."""

    master_seed: int
    fields: RankFields
    scope: Scope | None  # of the last reseed; None before the first one
    scope_key: ScopeKey
    """That of ``scope``; in a DataLoader worker that of the iteration, under its loader's name."""
    entries: dict[str, object]
    """The blocks without an index that were entered here, as ``fork_rng/a``, ``keyed/a``."""
    worker: int = 0
    """The worker word of streams: 0 in the main process, k + 1 in DataLoader worker k."""
    forks: int = 0
    """``forks.count``, which is another one where a parent came here, and was then forked."""

    def note_entry(self, function: str, kind: str, name: str) -> None:
        """Note a block's entry; RuntimeError if it was entered before, also by another thread."""
        mine = object()
        if self.entries.setdefault(f"{kind}/{name}", mine) is not mine:  # in one step, for threads
            raise RuntimeError(
                f"fastseed.{function}: the block {name!r} must be entered once in a scope, and a "
                "second entry would draw the same numbers: call fastseed.reseed(task, epoch, "
                "step=...) before each step, give the block an index= (of the layer, micro-batch "
                "or sample), or wrap the dataset that opens it in fastseed.data.per_sample"
            )

    def stream(self, name: str) -> Stream:
        """Return a stream of this rank."""
        return stream_in(self.scope_key, name, self.fields.of(name), self.worker)


worker: Place | None = None
"""That of a DataLoader worker whose generators fastseed has seeded; None in other processes."""


def place_at(
    master_seed: int, fields: RankFields, scope: Scope | None, key: ScopeKey | None = None
) -> Place:
    """Return the place in a scope, whose key may be known, in which no block was entered."""
    if key is None:
        key = (0, 0) if scope is None else derive.scope_key(master_seed, *scope)
    # as Place(...), without its call in Python
    return tuple.__new__(Place, (master_seed, fields, scope, key, {}, 0, forks.count))
