"""The state of a loader, which says where it is, and what has none."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from torch.utils.data import DataLoader

from ..._utils import StateDict, validation
from ...derivation import context
from ..order.samplers import RANDOM_SAMPLERS
from ..plan import is_iterable, plan_of, samplers_of
from .seekable import Seekable


def check_resumable(function: str, loader: DataLoader[Any]) -> None:
    """Raise TypeError or ValueError if no state says where the loader is."""
    if not loader.in_order:
        rule = "True, so that the number of batches says which were delivered"
        raise validation.value_error(function, "in_order", rule, False)
    for sampler in samplers_of(loader):
        if isinstance(sampler, RANDOM_SAMPLERS) and sampler.generator:
            rule = "without a generator, whose state is lost: use shuffle=True"
            raise validation.value_error(function, "sampler", rule, sampler)
    dataset = loader.dataset
    if not is_iterable(loader) or isinstance(dataset, Seekable):
        return
    if not (hasattr(dataset, "state_dict") and hasattr(dataset, "load_state_dict")):
        rule = "map-style, a Seekable, or have seek(position), or a state_dict"
        raise validation.type_error(function, "dataset", rule, dataset)


def beside_position(loader: DataLoader[Any]) -> tuple[str, ...]:
    """Return what a state has beside the position: of a dataset or a sampler that only it knows."""
    plan = plan_of(loader, context.seeder)
    if plan.has_own_place:
        return ("dataset", "over")
    return ("read",) if plan.is_foreign else ()


def check_state(
    function: str,
    noun: str,
    state: StateDict,
    expected: Mapping[str, str | int],
    others: Collection[str],
) -> None:
    """Raise TypeError or ValueError unless ``state`` has ``expected`` and the fields ``others``."""
    validation.check_instance(function, "state", state, dict, "a dict from state_dict()")
    fields = sorted({*expected, *others})
    if set(state) != set(fields):
        rule = f"a dict of {', '.join(fields)}, from the state_dict() of a {noun}"
        raise validation.value_error(function, "state", rule, list(state))
    if "read" in state:
        rule = "a digest of indices"
        validation.check_instance(function, "state['read']", state["read"], str, rule)
    if "over" in state:
        validation.check_int(function, "state['over']", state["over"], 0, 1)
    for field, value in expected.items():
        given = state[field]
        # Tensors are never read, since their memory may have been freed.
        is_of_type = isinstance(given, (type(value), np.integer)) and not isinstance(given, bool)
        if not is_of_type or given != value:
            rule = f"{value!r}, as for this {noun}"
            raise validation.value_error(function, f"state[{field!r}]", rule, given)
