"""Epochs of samplers: those that loaders set, and those that the script sets itself."""

from __future__ import annotations

import contextlib
import weakref
from typing import Any

from ..order.shuffle import ShuffleSampler

# The epoch that a loader set last, by sampler; None: the script sets it from then on.
_epochs: weakref.WeakKeyDictionary[Any, int | None] = weakref.WeakKeyDictionary()


def users_epoch(samplers: list[object]) -> int | None:
    """Return the epoch that the script set on one of ``samplers``; None if it set none.

    So scripts that count epochs with ``set_epoch`` alone keep working. A ShuffleSampler has one
    only if the script set it. That of another sampler is the script's if no loader set it, from
    then on; a sampler without weak references follows ``reseed``.
    """
    chosen = map(_users_epoch, _epoch_setters(samplers))
    return next((epoch for epoch in chosen if epoch is not None), None)


def set_epochs(samplers: list[object], task: int, epoch: int) -> None:
    """Set task and epoch of ``samplers``, but not the epoch where the script sets it."""
    setters = [s for s in _epoch_setters(samplers) if not isinstance(s, ShuffleSampler)]
    chosen = [_users_epoch(sampler) for sampler in setters]
    for sampler, own in zip(setters, chosen, strict=True):
        if hasattr(sampler, "set_scope"):
            sampler.set_scope(task, epoch if own is None else own)
        elif own is None:
            sampler.set_epoch(epoch)
    for sampler, own in zip(setters, chosen, strict=True):  # afterwards: one may set another
        with contextlib.suppress(TypeError):
            _epochs[sampler] = _epoch_of(sampler) if own is None else None


def _users_epoch(sampler: Any) -> int | None:
    if isinstance(sampler, ShuffleSampler):
        return sampler.epoch
    epoch = _epoch_of(sampler)
    try:
        return None if epoch == _epochs.get(sampler, 0) else epoch
    except TypeError:  # no weak references
        return None


def _epoch_of(sampler: object) -> int:
    epoch = getattr(sampler, "epoch", None)
    return epoch if type(epoch) is int else 0


def _epoch_setters(samplers: list[object]) -> list[Any]:
    """Return the samplers that implement ``set_scope`` or ``set_epoch``."""
    found: list[object] = []
    for sampler in samplers:
        method = getattr(sampler, "set_scope", None) or getattr(sampler, "set_epoch", None)
        owner = getattr(method, "__self__", sampler)
        if method is not None and not any(owner is other for other in found):
            found.append(owner)
    return found
