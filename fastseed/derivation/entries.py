"""Which blocks were entered in a scope: one without an index is entered once."""

from __future__ import annotations

from collections.abc import Iterable


class Entries:
    """The names of the blocks without an index that were entered in the present scope.

    A name has the function that the block belongs to in front: ``fork_rng/a``, ``keyed/a``.
    """

    __slots__ = ("_names",)

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names: dict[str, object] = dict.fromkeys(names)

    def add(self, function: str, kind: str, name: str) -> None:
        """Note an entry; RuntimeError if the block was entered before, also by another thread."""
        mine = object()
        if self._names.setdefault(f"{kind}/{name}", mine) is not mine:  # in one step, for threads
            raise RuntimeError(
                f"fastseed.{function}: the block {name!r} must be entered once in a scope, and a "
                "second entry would draw the same numbers: call fastseed.reseed(task, epoch, "
                "step=...) before each step, give the block an index= (of the layer, micro-batch "
                "or sample), or wrap the dataset that opens it in fastseed.data.per_sample"
            )

    def discard(self, kind: str, name: str) -> None:
        """Forget an entry that failed."""
        self._names.pop(f"{kind}/{name}", None)

    def names(self) -> list[str]:
        """Return the names in order."""
        return sorted(self._names)
