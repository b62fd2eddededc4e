"""Keeping calls with side effects out of compiled graphs."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def eager(function: Callable[P, R]) -> Callable[P, R]:
    """Run ``function`` eagerly on every call, also from inside a ``torch.compile``d region.

    There it breaks the graph; under ``fullgraph=True`` torch raises its error for that. What
    :func:`torch.compiler.disable` does, but it is applied when Dynamo is first seen to be loaded:
    importing it takes seconds, and a job that never compiles should not pay for it.
    """
    disabled: Callable[P, R] | None = None

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        nonlocal disabled
        dynamo = sys.modules.get("torch._dynamo")
        if dynamo is None or not hasattr(dynamo, "disable"):  # the latter: while it is imported
            return function(*args, **kwargs)
        if disabled is None:
            disabled = dynamo.disable(
                function, reason=f"fastseed.{function.__name__} sets generators: never compiled"
            )
        return disabled(*args, **kwargs)

    return call
