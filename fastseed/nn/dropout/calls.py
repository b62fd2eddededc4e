"""Calls of torch's dropout in the forward of a converted module, which become keyed or an error."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ..._backend import private_torch, recomputation
from ..._utils.log import warn_once
from ...random import dropout, dropout_calls
from ...random.dropout_calls import ATTENTION, DROPOUTS, HEADS, draws, read_attention, read_drop
from ...random.torch_functions import DRAWS
from .layers import Cut, drop_layer
from .scope import LayerName, this_thread

_FUNCTION = "nn.convert"
_OTHER_DRAWS = frozenset(DRAWS) - dropout_calls.MAY_DRAW
FAST_PATHS = (torch.nn.TransformerEncoder, torch.nn.TransformerEncoderLayer)
"""Modules that call no dropout, and in eval a fast path which torch has outside of modes alone."""


class Calls:
    """The name of the functional calls of one module, its class, and how their inputs lie."""

    def __init__(self, name: str, class_name: str, batch_dim: int | None) -> None:
        self.name, self.class_name = name, class_name
        self.batch_dim = batch_dim
        self.cut: Cut | None = None


_known_name = functools.cache(LayerName)


@private_torch.answer_at_trace  # which cannot hash
def _layer_name(name: str, number: int) -> LayerName:
    return _known_name(name, number)


class Forward:
    """One forward of a converted module, which numbers its functional calls that draw."""

    def __init__(self, calls: Calls) -> None:
        self.calls = calls
        self.made = {"dropout": 0, "attention": 0}

    def _next(self, kind: str) -> LayerName:
        self.made[kind] += 1
        name: LayerName = _layer_name(f"{self.calls.name}/{kind}", self.made[kind] - 1)
        return name

    def drop(self, func: object, input: torch.Tensor, p: float, inplace: bool) -> torch.Tensor:
        channels = DROPOUTS[func].channels
        at = (self.calls.batch_dim, self.calls.cut, channels)
        found = drop_layer(self._next("dropout"), input, p, *at)
        return input.copy_(found) if inplace else found

    def attend(self, func: object, dropout_p: float, **arguments: Any) -> object:
        """Do what a function of attention does; the weights of heads have the rows first."""
        batch_dim, cut = self.calls.batch_dim, self.calls.cut
        if func is HEADS and batch_dim is not None:
            batch_dim = 0
        name = self._next("attention")

        def drop_weights(weights: torch.Tensor) -> torch.Tensor:
            return drop_layer(name, weights, dropout_p, batch_dim, cut)

        attend: Callable[..., object] = dropout.attend_heads if func is HEADS else dropout.attend
        return attend(_FUNCTION, drop_weights, **arguments)


class _ReplaceCalls(TorchFunctionMode):
    """Replaces the dropout that the forward of a converted module calls."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> object:
        kwargs = kwargs or {}
        here: Forward | None = this_thread.calls
        if here is None:
            return func(*args, **kwargs)
        if draws(func, args, kwargs):
            if not torch.compiler.is_compiling():  # a checkpoint in this forward has no mode later
                recomputation.wrap(functools.partial(_in_forward_of, here.calls), _FORWARD)
            if func in DROPOUTS and DROPOUTS[func].is_layer:
                return here.drop(func, *read_drop(func, *args, **kwargs))
            if func in (ATTENTION, HEADS):
                return here.attend(func, **read_attention(func, *args, **kwargs))
            raise _refusal(here.calls.name, func.__name__)
        if func in _OTHER_DRAWS and kwargs.get("generator") is None:
            _warn_of_draw(func.__name__, here.calls.class_name)
        if func is torch.Tensor.unflatten:  # written in Python, where torch.compile stops
            return args[0].unflatten(*args[1:], **kwargs)
        return func(*args, **kwargs)


@private_torch.answer_at_trace
def _warn_of_draw(function: str, class_name: str) -> None:
    warn_once(
        "fastseed.nn.convert: %s in the forward of %s still draws from torch's generator, so its "
        "numbers depend on the ranks: draw it in `with fastseed.random.keyed(name)`, a name for "
        "each module, or a mask of rows, as DropPath's, by torch.nn.functional.dropout of ones",
        function,
        class_name,
    )


def _refusal(module: str, name: str) -> RuntimeError:
    where = f"the forward of {module!r}" if module else "the forward of the model"
    return RuntimeError(
        f"fastseed.{_FUNCTION}: {name} in {where} would draw from torch's generator: set its p "
        "or dropout to 0, or use torch.nn.functional.dropout, leaky_relu or "
        "scaled_dot_product_attention there"
    )


_mode = _ReplaceCalls()


@contextlib.contextmanager
def _in_forward_of(calls: Calls) -> Iterator[None]:
    outer = this_thread.calls
    this_thread.calls = Forward(calls)
    try:
        with _mode if outer is None else contextlib.nullcontext():
            yield
    finally:
        this_thread.calls = outer


def is_of_torch(cls: Any) -> bool:
    home = getattr(cls.forward, "__module__", None) or ""  # None: generated, as by fx
    return home.startswith("torch.")


class _Converted(torch.nn.Module):
    """A base of the classes that ``convert`` makes, of which their own bases are not told."""

    def __init_subclass__(cls, **_: object) -> None:
        pass


@functools.cache
def calling_class(cls: Any) -> Any:
    """Return a subclass of a module's class whose forward runs in the mode."""
    has_fast_path = issubclass(cls, FAST_PATHS) and is_of_torch(cls)

    @functools.wraps(cls.forward)
    def forward(self: Any, *args: object, **kwargs: object) -> object:
        outer = this_thread.calls
        draws = self.training or not is_of_torch(cls)
        if draws and has_fast_path:
            return cls.forward(self, *args, **kwargs)
        this_thread.calls = Forward(self.fastseed_calls) if draws else None
        try:
            if not draws:
                with private_torch.without_modes(_ReplaceCalls):
                    return cls.forward(self, *args, **kwargs)
            if outer is not None:
                return cls.forward(self, *args, **kwargs)
            with _mode:
                return cls.forward(self, *args, **kwargs)
        finally:
            this_thread.calls = outer

    def reduce(self: object, protocol: object) -> tuple[object, ...]:
        if "fastseed_original" not in vars(type(self)):  # a class of torch is on top of it
            return cls.__reduce_ex__(self, protocol)  # type: ignore[no-any-return]
        get_state: Any = getattr(cls, "__getstate__", None)  # of object from Python 3.11 on
        own = get_state is not None and get_state is not getattr(object, "__getstate__", None)
        return _rebuilt, (cls,), get_state(self) if own else self.__dict__

    body = {"forward": forward, "__reduce_ex__": reduce, "fastseed_original": cls}
    names = {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}
    return type(cls.__name__, (_Converted, cls), {**body, **names})


_FORWARD = next(  # the code of every forward that it makes
    code
    for code in calling_class.__wrapped__.__code__.co_consts
    if getattr(code, "co_name", "") == "forward"
)


def _rebuilt(cls: type) -> object:
    """Return an empty module of a converted class, for pickle and copy."""
    converted = calling_class(cls)
    return converted.__new__(converted)
