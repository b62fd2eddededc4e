"""Keeping calls with side effects out of compiled and captured graphs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch

from .._utils.log import warn_once
from . import private_torch

P = ParamSpec("P")
R = TypeVar("R")


_PUBLIC = {
    **{f"ForkBlock.__{end}__": "fork_rng" for end in ("enter", "exit")},
    **{f"Perturbation.{name}": "perturbed" for name in ("__enter__", "__exit__", "flip")},
    "Members.reseed": "StreamBank.reseed or GeneratorPool.reseed",
    "Members.load_state_dict": "StreamBank.load_state_dict or GeneratorPool.load_state_dict",
    "PerSample._fetch": "per_sample",
    "PerBatch.__call__": "per_batch",
}
"""The names under which users know methods of what functions return."""


def eager(function: Callable[P, R]) -> Callable[P, R]:
    """Do what ``torch.compiler.disable`` does, which would import Dynamo and take seconds."""
    package = function.__module__.split(".")[1]
    # what these have is at the top level
    path = "" if package in ("seeder", "generators", "derivation") else f"{package}."
    name = f"fastseed.{path}{_PUBLIC.get(function.__qualname__, function.__qualname__)}"
    what = "parameters" if package == "nn" else "the state of random number generators"
    reason = (
        f"{name} changes {what}, which a compiled graph would leave "
        "out; call it outside of the compiled function, or compile without fullgraph=True"
    )
    disabled: Callable[P, R] | None = None

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        nonlocal disabled
        if not private_torch.is_seen():
            return function(*args, **kwargs)
        if torch.compiler.is_exporting():
            raise RuntimeError(
                f"{name}: must not be called while a model is exported, "
                "which would leave it out; call it outside of the model"
            )
        if disabled is None:
            disabled = torch.compiler.disable(function, reason=reason)  # type: ignore[no-untyped-call]
        return disabled(*args, **kwargs)

    private_torch.mark_eager(call, reason)
    return call


@private_torch.answer_at_trace
def is_exporting() -> bool:
    """Return whether ``torch.export`` traces: in code that it traces, torch 2.10 says always."""
    return bool(torch.compiler.is_exporting())


def warn_if_exporting(function: str) -> None:
    """Warn once, where ``torch.export`` traces, that a saved program will not follow the job."""
    if is_exporting():
        warn_once(
            f"fastseed.{function}: an exported program follows fastseed.reseed in this process; "
            "saved and loaded, it repeats the random numbers of this scope for ever: export the "
            "model in eval where it is to be saved"
        )


BETWEEN_REPLAYS = (
    "call it between replays, which read the seed again, or use a StreamBank, whose "
    "reseed_from_scope can be captured"
)
"""The way out for functions that seed torch's own generators."""


def refuse_capture(function: str, device: torch.device, instead: str) -> None:
    """RuntimeError, naming what to do ``instead``, while a CUDA graph is captured."""
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        raise RuntimeError(
            f"fastseed.{function}: must not be called while a CUDA graph is captured, which would "
            f"keep one key for ever; {instead}"
        )
