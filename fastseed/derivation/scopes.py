"""Scopes, and the ranges of what keys are derived from. Imports no torch."""

from __future__ import annotations

from typing import NamedTuple

from .._backend.reference import scalar
from .._utils import validation


class _Shared(int):
    """The rank of what all ranks share, with a name in error messages."""

    def __repr__(self) -> str:
        return "fastseed.SHARED"

    def __reduce__(self) -> str:
        return "SHARED"


SHARED = _Shared(scalar.SHARED_RANK)
"""The rank of streams that all ranks share: pass it as ``rank``."""

MAX_MASTER = MAX_STEP = 2**64 - 1
MAX_EPOCH = 2**32 - 1
MAX_TASK = 2**24 - 1
MAX_RANK = 2**24 - 2
MAX_WORKER = 2**32 - 1
MAX_INDEX = 2**64 - 1
MAX_MEMBERS = 2**40
"""The largest number of members that one call derives, or that a pool or bank has."""

NARROW_BITS = (31, 32)
"""The sizes of seeds that two ranks never have in common at one point of the job."""

OWN_NAMES = ("python", "numpy", "torch.cpu", "torch.cuda", "torch.xpu", "torch.mps")
"""The built-in streams."""


class Scope(NamedTuple):
    """A point in time of a job."""

    task: int
    epoch: int
    step: int


START = Scope(0, 0, 0)
"""Where ``init`` leaves a process."""


def read_master_seed(function: str, variable: str, text: str) -> int:
    """Return the master seed that an environment variable holds; ValueError if it is not one."""
    if text.isascii() and text.isdigit() and len(text) <= 20 and int(text) <= MAX_MASTER:
        return int(text)
    raise validation.value_error(function, variable, f"an integer in [0, {MAX_MASTER}]", text)


def check_scope(function: str, task: object, epoch: object, step: object) -> Scope:
    """Return a scope; TypeError or ValueError if one is invalid."""
    if (
        type(task) is type(epoch) is type(step) is int
        and 0 <= task <= MAX_TASK
        and 0 <= epoch <= MAX_EPOCH
        and 0 <= step <= MAX_STEP
    ):  # nearly every call
        return tuple.__new__(Scope, (task, epoch, step))
    return Scope(
        validation.check_int(function, "task", task, 0, MAX_TASK),
        validation.check_int(function, "epoch", epoch, 0, MAX_EPOCH),
        validation.check_int(function, "step", step, 0, MAX_STEP),
    )


def check_master_seed(function: str, argument: str, seed: object) -> int:
    """Return a master seed; TypeError or ValueError if it is not one."""
    return validation.check_int(function, argument, seed, 0, MAX_MASTER)


def check_name(function: str, name: object) -> str:
    """Return a stream name: any non-empty string that UTF-8 can encode."""
    return validation.check_text(function, "name", name)
