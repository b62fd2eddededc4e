"""Keeping calls with side effects out of compiled graphs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import torch

P = ParamSpec("P")
R = TypeVar("R")

# What Dynamo has set to look at each Python frame: None outside of compiled regions. A torch
# without this query is asked through torch.compiler.disable on every call, which costs more.
_is_tracing = torch.compiler.is_dynamo_compiling
_frame_callback: Callable[[], Any] = getattr(
    torch._C._dynamo.eval_frame, "get_eval_frame_callback", lambda: False
)


def eager(function: Callable[P, R]) -> Callable[P, R]:
    """Run ``function`` eagerly on every call, also from inside a ``torch.compile``d region.

    There it breaks the graph; under ``fullgraph=True`` torch raises its error for that. What
    :func:`torch.compiler.disable` does, but applied only inside such regions: it imports Dynamo,
    which takes seconds, and then costs microseconds a call.
    """
    disabled: Callable[P, R] | None = None

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        nonlocal disabled
        if torch.compiler.is_exporting() and not _is_tracing():
            raise RuntimeError(
                f"fastseed.{function.__name__}: must not be called while a model is exported, "
                "which would leave it out; call it outside of the model"
            )
        # Dynamo takes the first question for True as it traces; while it runs the code between two
        # graphs, the second one says so.
        if not _is_tracing() and _frame_callback() is None:
            return function(*args, **kwargs)
        if disabled is None:
            reason = f"fastseed.{function.__name__} is never compiled"
            disabled = torch.compiler.disable(function, reason=reason)  # type: ignore[no-untyped-call]
        return disabled(*args, **kwargs)

    return call
