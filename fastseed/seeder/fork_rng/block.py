"""``fork_rng(name)``: torch's default generators on a named stream inside a ``with`` block.

A named stream has one generator on the CPU and one on each device: the streams
``<name>/torch.cpu``, ``<name>/torch.cuda`` and so on, at the rank field that the name has under
``distinct_over``. Their index is ``slot << 8 | device``: slot 0 without an index, else
``index + 1``; the device is 0 on the CPU, else relative to the current one.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable
from typing import Any

from ..._backend import recomputation
from ..._backend.compile import eager
from ..._utils import validation
from ...derivation import blocks, context, scopes, streams
from ...derivation.blocks import BlockPlace
from ...derivation.place import Place
from ...generators.torch_rng import TorchGenerator
from ...random.keyed import refuse_inside
from ..generators import Generators
from . import stack
from .stack import ForkEntry

_FUNCTION = "fork_rng"
MAX_INDEX = 2**56 - 2  # the low 8 bits of a member's index are the device


class ForkBlock(contextlib.ContextDecorator):
    """A switch to a named stream: a context manager that can be entered again, and a decorator."""

    def __init__(
        self,
        owner: Callable[[], tuple[Place, Generators]],
        name: str,
        index: int | None,
        distinct_over: object,
    ) -> None:
        self._owner, self._distinct_over = owner, distinct_over
        self._name = scopes.check_name(_FUNCTION, name)
        self._slot = 0
        if index is not None:
            self._slot = validation.check_int(_FUNCTION, "index", index, 0, MAX_INDEX) + 1
        self.entries: tuple[ForkEntry, ...] = ()

    def __call__(self, function: Callable[..., Any]) -> Any:
        kinds = inspect.isgeneratorfunction, inspect.iscoroutinefunction, inspect.isasyncgenfunction
        if any(is_kind(function) for is_kind in kinds):
            rule = "one that returns what it drew: open the block in a generator or coroutine"
            raise validation.type_error(_FUNCTION, "the decorated function", rule, function)
        return super().__call__(function)

    @eager
    def __enter__(self) -> None:
        of_job, generators = self._owner()
        use = f"{_FUNCTION}/{self._name}/{self._slot}"
        had: BlockPlace | None = recomputation.had(use)
        is_once = not self._slot and had is None
        if (place := had) is None:
            context.refuse_worker(_FUNCTION)
            refuse_inside(_FUNCTION)
            path = f"{self._name}/torch.cpu"
            place = blocks.place_of_block(_FUNCTION, path, self._distinct_over, of_job)
        generators.refuse_capture(_FUNCTION)
        entry = ForkEntry(self, self._name, generators.accelerators)
        if is_once:
            place.entries.add(_FUNCTION, _FUNCTION, self._name)
        self.entries = (*self.entries, entry)
        try:
            stack.enter(entry, lambda: self._begin(generators, place))
        except BaseException:
            self.entries = self.entries[:-1]
            if is_once:
                place.entries.discard(_FUNCTION, self._name)
            raise
        recomputation.keep(use, place)

    def _begin(self, generators: Generators, place: BlockPlace) -> None:
        """Set torch's generators to the beginning of the stream."""

        def on(kind: str) -> streams.Stream:
            stream = streams.stream_in(place.scope, f"{self._name}/{kind}", place.rank_field)
            return stream.offset_by(self._slot << 8)

        TorchGenerator().reseed(on("torch.cpu"))
        for accelerator in generators.accelerators:
            accelerator.reseed(on(accelerator.name))

    @eager
    def __exit__(self, error: object = None, *_: object) -> None:
        entry = self.entries[-1]
        try:
            stack.leave(entry, in_order=error is None)
        finally:
            self.entries = self.entries[:-1]
