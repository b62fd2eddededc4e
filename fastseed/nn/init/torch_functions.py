"""Keyed forms of ``torch.nn.init.trunc_normal_``, ``orthogonal_`` and ``sparse_``.

Torch's other initialisers end in one operator, which a dispatch mode intercepts. These three
compute with random numbers in Python, and pass through no function that can be overridden.
Libraries hold them under names of their own: transformers in a table, torchtitan in
``functools.partial``, users by ``from torch.nn.init import``. New functions under torch's names
would not reach those, silently. So the code of the three functions is replaced, once, when this
module is imported. Where no mode is active in the calling thread, they run torch's own code.
"""

from __future__ import annotations

import contextlib
import inspect
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import torch

from ...random import trunc_normal_
from . import functions


class FillingMode(Protocol):
    """A dispatch mode that fills tensors."""

    def __enter__(self) -> Any: ...

    def __exit__(self, *error: Any) -> Any: ...

    @property
    def fill(self) -> Callable[..., torch.Tensor]:
        """The function of an operator, its fill, the tensor, and what the operator is given."""
        ...


class _Active(threading.local):
    """The innermost mode of each thread, as torch's own dispatch modes are of a thread."""

    mode: FillingMode | None = None


_active = _Active()
_FILLS: dict[str, Callable[..., Any]] = {
    "trunc_normal_": trunc_normal_,
    "orthogonal_": functions.orthogonal_,
    "sparse_": functions.sparse_,
}


@contextlib.contextmanager
def initializer_mode(mode: FillingMode) -> Iterator[None]:
    """Run a block under a mode, which the three functions call as well."""
    outer = _active.mode
    try:
        _active.mode = mode
        with mode:
            yield
    finally:
        _active.mode = outer


def run_initializer(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run ``torch.nn.init.<name>``: as a fill under a mode of this thread, else as torch does."""
    original = _originals[name]
    mode = _active.mode
    if mode is None:
        return original(*args, **kwargs)
    given = _signatures[name].bind(*args, **kwargs)
    given.apply_defaults()
    return mode.fill(f"torch.nn.init.{name}", _FILLS[name], **given.arguments)


# ---------------------------------------------------------------- the code of the three functions


def _trunc_normal_(*args, **kwargs):  # type: ignore[no-untyped-def]
    from fastseed.nn.init.torch_functions import run_initializer

    return run_initializer("trunc_normal_", args, kwargs)


def _orthogonal_(*args, **kwargs):  # type: ignore[no-untyped-def]
    from fastseed.nn.init.torch_functions import run_initializer

    return run_initializer("orthogonal_", args, kwargs)


def _sparse_(*args, **kwargs):  # type: ignore[no-untyped-def]
    from fastseed.nn.init.torch_functions import run_initializer

    return run_initializer("sparse_", args, kwargs)


def _take_over(name: str, code: types.CodeType) -> Callable[..., Any]:
    """Give ``torch.nn.init.<name>`` other code; return a function that is what it was."""
    function: Any = inspect.unwrap(getattr(torch.nn.init, name))
    if not hasattr(function, "fastseed_original"):  # else this module is imported a second time
        original: Any = types.FunctionType(
            function.__code__,
            function.__globals__,
            function.__name__,
            function.__defaults__,
            function.__closure__,
        )
        original.__kwdefaults__ = function.__kwdefaults__
        function.__signature__ = inspect.signature(function)
        function.fastseed_original = original
        function.__code__ = code
    found: Callable[..., Any] = function.fastseed_original
    return found


_originals = {
    name: _take_over(name, replacement.__code__)
    for name, replacement in (
        ("trunc_normal_", _trunc_normal_),
        ("orthogonal_", _orthogonal_),
        ("sparse_", _sparse_),
    )
}
_signatures = {name: inspect.signature(function) for name, function in _originals.items()}
