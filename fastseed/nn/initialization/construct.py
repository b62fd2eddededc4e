"""Keyed initialization of models that draw their weights while they are constructed.

A parameter has no name before its model exists. So the model is constructed twice: the first time
each random operator is numbered, and what becomes of its result is followed up to the parameters
and buffers of the finished model; the second time each draws from the key of that name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._pytree import tree_leaves

from ..._utils import validation
from ...random.fills import Arguments, Keywords
from ..module_names import check_prefix
from .keyed_mode import KeyedMode, keyed
from .names import EqualNames, Owner, keys_at, named_tensors, storage_of, weak_storage

if TYPE_CHECKING:
    from torch._ops import OpOverload

M = TypeVar("M", bound=torch.nn.Module)

_FUNCTION = "nn.construct"
_Event = tuple[str, tuple[int, ...]]
"""A random operator that ran, and the shape that it filled."""


class _ConstructionMode(KeyedMode):  # type: ignore[no-untyped-call]
    """Fills what random operators return from keys by their number."""

    function = _FUNCTION

    def __init__(self, key_of: Callable[[int, _Event], int]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._key_of = key_of
        self.events: list[_Event] = []
        self._sources: dict[int, tuple[StorageWeakRef, frozenset[int]]] = {}

    def run(self, func: OpOverload, args: Arguments, kwargs: Keywords) -> object:
        result = func(*args, **kwargs)
        used = self._events_of(tree_leaves((args, kwargs)))
        if used:
            self._mark(tree_leaves(result), used)
        return result

    def refusal(self, func: OpOverload, args: Arguments, kwargs: Keywords) -> RuntimeError:
        return RuntimeError(
            f"fastseed.{_FUNCTION}: random operators must be in-place fills, rand, randn, "
            "randperm or initializers of torch.nn.init, without a generator, "
            f"got {func}; nothing was drawn"
        )

    def fill(self, operator: object, tensor: torch.Tensor, draw: Callable[[int], None]) -> None:
        """Fill ``tensor`` with the random numbers of this event."""
        number, event = len(self.events), (str(operator), tuple(tensor.shape))
        self.events.append(event)
        if not tensor.is_meta:
            draw(self._key_of(number, event))
        self._mark([tensor], frozenset([number]))

    def _events_of(self, values: Iterable[object]) -> frozenset[int]:
        """Return the numbers of the events that the values depend on."""
        storages = [storage_of(value) for value in values if isinstance(value, torch.Tensor)]
        found = [self._sources[storage][1] for storage in storages if storage in self._sources]
        return frozenset().union(*found)

    def _mark(self, values: Iterable[object], events: frozenset[int]) -> None:
        """Record that the values depend on these events."""
        for value in values:
            if isinstance(value, torch.Tensor):
                known = events | self._events_of([value])
                self._sources[storage_of(value)] = (weak_storage(value), known)

    def names_of_events(self, model: torch.nn.Module) -> dict[int, str]:
        """Return the first name of the model that the numbers of each event went into."""
        names: dict[int, str] = {}
        for name, tensor, _ in named_tensors(model):
            for number in self._events_of([tensor]):
                names.setdefault(number, name)
        return names


def construct(
    factory: Callable[..., M],
    *args: Any,
    task: int = 0,
    epoch: int = 0,
    step: int = 0,
    prefix: str = "",
    **kwargs: Any,
) -> M:
    """Return ``factory(*args, **kwargs)``, a model whose weights depend on their names alone.

    The factory runs twice, since names are known only when a model is whole. Weights are those that
    ``fastseed.nn.initialize`` would give the same parameters: it describes the other arguments.
    Numbers of other threads are torch's.

    Args:
        factory: a class or function that returns the model; it has to do the same each time.
        args: its arguments.
        kwargs: the arguments of ``factory`` by name.

    Returns:
        The model.

    Raises:
        TypeError, ValueError: an argument is invalid, or ``factory`` returns no module.
        RuntimeError: before ``init``; for a random operator that cannot be mapped; or if the
            factory does not do the same twice.

    Examples:
        >>> import torch
        >>> fastseed.init(42)
        >>> model = fastseed.nn.construct(torch.nn.Linear, 4, 3, bias=False)
        >>> again = torch.nn.Linear(4, 3, bias=False)
        >>> with fastseed.nn.initialize(again, task=0):
        ...     again.reset_parameters()
        >>> torch.equal(model.weight, again.weight)
        True
    """
    if not callable(factory):
        raise validation.type_error(_FUNCTION, "factory", "callable", factory)
    prefix = check_prefix(_FUNCTION, prefix)
    scope, key_of = keys_at(_FUNCTION, task, epoch, step)
    first = _ConstructionMode(lambda number, _: key_of("", number))
    with keyed(first):
        model = factory(*args, **kwargs)
    validation.check_instance(_FUNCTION, "factory()", model, torch.nn.Module, "a torch.nn.Module")
    names, events = first.names_of_events(model), first.events
    del model, first
    counts: Counter[str] = Counter()

    def key_of_event(number: int, event: _Event) -> int:
        if number >= len(events) or events[number] != event:
            raise RuntimeError(
                f"fastseed.{_FUNCTION}: factory must draw the same each time, "
                f"got {event} as random operator {number} of the second time"
            )
        if number not in names:  # of a weight that another one has replaced, as tied ones are
            return key_of("", number)
        name = prefix + names[number]
        counts[name] += 1
        return key_of(name, counts[name] - 1)

    with keyed(_ConstructionMode(key_of_event)):
        model = factory(*args, **kwargs)
    equal_names = EqualNames(_FUNCTION, scope)
    for name, _, module in named_tensors(model):
        if prefix + name in counts:
            equal_names.note(Owner(prefix + name, module))
    equal_names.warn()
    return model
