"""Keyed forms of ``torch.nn.init.trunc_normal_``, ``orthogonal_`` and ``sparse_``.

Torch's other initializers end in one operator, which a dispatch mode intercepts. These three
compute with random numbers in Python, and pass through no function that can be overridden.
Libraries hold them under names of their own: transformers in a table, torchtitan in
``functools.partial``, users by ``from torch.nn.init import``. New functions under torch's names
would not reach those, silently. So the code of the three functions is replaced, once, when this
module is imported. Where no mode is active in the calling thread, they run torch's own code.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack

from ...random import trunc_normal_
from . import functions

Arguments = tuple[Any, ...]
Keywords = dict[str, Any]
Fill = Callable[..., object]
"""A function of a tensor, a key and parameters that writes random numbers."""

_FILLS: dict[str, Fill] = {
    "trunc_normal_": trunc_normal_,
    "orthogonal_": functions.orthogonal_,
    "sparse_": functions.sparse_,
}


class FillingMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A dispatch mode that fills tensors from keys, for the thread that enters it."""

    def fill(
        self,
        operator: object,
        fill: Fill,
        tensor: torch.Tensor,
        *parameters: object,
        generator: object = None,
        **named: object,
    ) -> torch.Tensor:
        """Run the fill that takes the place of an operator, with what the operator is given."""
        raise NotImplementedError


def run_initializer(name: str, args: Arguments, kwargs: Keywords) -> object:
    """Run ``torch.nn.init.<name>``: as a fill under a mode of this thread, else as torch does."""
    original = _originals[name]
    for mode in reversed(_get_current_dispatch_mode_stack()):
        if isinstance(mode, FillingMode):
            given = inspect.signature(original).bind(*args, **kwargs)
            given.apply_defaults()
            return mode.fill(f"torch.nn.init.{name}", _FILLS[name], **given.arguments)
    return original(*args, **kwargs)


def _replacement(*args, **kwargs):  # type: ignore[no-untyped-def]
    from fastseed.nn.init.torch_functions import run_initializer

    return run_initializer("<name>", args, kwargs)


def _take_over(name: str) -> Callable[..., object]:
    """Give ``torch.nn.init.<name>`` other code; return a function that is what it was."""
    function: Any = inspect.unwrap(getattr(torch.nn.init, name))
    if not hasattr(function, "fastseed_original"):  # else this module is imported a second time
        original: Any = types.FunctionType(
            function.__code__,
            function.__globals__,
            name,
            function.__defaults__,
            function.__closure__,
        )
        original.__kwdefaults__ = function.__kwdefaults__
        function.__signature__ = inspect.signature(function)
        function.fastseed_original = original
        code = _replacement.__code__
        constants = tuple(name if value == "<name>" else value for value in code.co_consts)
        function.__code__ = code.replace(co_consts=constants)
    found: Callable[..., object] = function.fastseed_original
    return found


_originals = {name: _take_over(name) for name in _FILLS}
