"""What fastseed uses of torch's private names, one small function for each.

An upgrade of torch that renames one of them is a change of this file alone.
"""

from __future__ import annotations

import contextvars
from typing import Any

import torch
from torch._guards import TracingContext
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import get_proxy_mode
from torch.utils import _python_dispatch


def has_kernel(operator: str, dispatch_key: str) -> bool:
    """Return whether an operator has a kernel: no public query covers the stable ABI's ones."""
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(operator, dispatch_key))


def is_wrapped(tensor: torch.Tensor) -> bool:
    """Return whether a transform of ``torch.func`` wraps a tensor, whose memory cannot be read."""
    return bool(torch._C._functorch.is_functorch_wrapped_tensor(tensor))


def is_batched(tensor: torch.Tensor) -> bool:
    """Return whether ``torch.vmap`` maps over a tensor, whose strides are those of one example."""
    return bool(torch._C._functorch.is_batchedtensor(tensor))


# ---------------------------------------------------------------- fake tensors, autograd


def is_fake(tensor: torch.Tensor) -> bool:
    """Return whether a tensor has no values: torch has no public type for it."""
    return type(tensor) is FakeTensor


def is_traced() -> bool:
    """Return whether operators are recorded into a graph, where fake tensors stand for real."""
    return get_proxy_mode() is not None


def in_backward() -> bool:
    """Return whether this thread runs a backward pass."""
    return bool(torch._C._current_graph_task_id() != -1)


def context_of_backward() -> contextvars.Context | None:
    """Return the context of the thread that called ``backward()``, in a thread of autograd."""
    if not torch._C._is_key_in_tls("context"):
        return None
    found: contextvars.Context = torch._C._get_obj_in_tls("context")
    return found


def graph_being_traced() -> object:
    """Return what stands for the graph that ``torch.compile`` traces now, or None."""
    return TracingContext.try_get()


def answer_at_trace(function: Any) -> Any:
    """Let ``torch.compile`` call a function while it traces: its own decorator imports Dynamo."""
    function._dynamo_marked_constant = True
    return function


def has_tangents() -> bool:
    """Return whether forward-mode derivatives are computed."""
    level: Any = vars(forward_ad)["_current_level"]
    return bool(level >= 0)


# ---------------------------------------------------------------- modes

_FLAGS = (
    "_is_in_torch_dispatch_mode",
    "_is_in_non_infra_torch_dispatch_mode",
    "_is_in_any_mode_without_ignore_compile_internals",
)


def dispatch_modes() -> list[object]:
    """Return the dispatch modes of this thread, the innermost one last."""
    return list(_python_dispatch._get_current_dispatch_mode_stack())


def dispatch_mode_flags() -> dict[str, bool]:
    """Return the flags of the process that say whether some dispatch mode is active."""
    return {name: value for name, value in vars(_python_dispatch).items() if name in _FLAGS}


def leave_dispatch_mode(mode: Any, flags: dict[str, bool]) -> None:
    """Leave a mode that an interrupt has left half entered or active; set the flags before it.

    Torch itself can only pop the innermost mode.
    """
    is_active = mode in dispatch_modes()
    if not is_active and not mode.old_dispatch_mode_flags:
        return
    above: list[Any] = []
    while is_active and (last := _python_dispatch._pop_mode()) is not mode:
        above.append(last)
    for other in reversed(above):
        _python_dispatch._push_mode(other)
    vars(_python_dispatch).update(flags)
    tell_dynamo = vars(_python_dispatch).get("set_is_in_mode_without_ignore_compile_internals")
    if tell_dynamo is not None:
        tell_dynamo(flags[_FLAGS[-1]])


def is_plain_eager() -> bool:
    """Return whether new tensors are ordinary ones: neither traced nor made by a dispatch mode.

    torch has no public function that says so.
    """
    return not torch.compiler.is_compiling() and torch._C._len_torch_dispatch_stack() == 0
