"""Calls of torch's dropout in the forward of a converted module, which become keyed or an error."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as torch_functional
from torch.overrides import TorchFunctionMode

from ..._backend import private_torch
from ...derivation import context
from . import functional
from .layers import Cut, drop_layer
from .scope import LayerName, this_thread

_FUNCTION = "nn.convert"

_ATTENTION = torch_functional.scaled_dot_product_attention
_CHANNELS: dict[object, int | None] = {
    torch_functional.dropout: None,
    torch.dropout: None,
    torch_functional.dropout1d: 1,
    torch_functional.dropout2d: 0,  # which takes (N, C, L) too
    torch_functional.dropout3d: 3,  # of which an input of 4 dimensions has no batch
}
"""Functions of dropout: ``channels`` of ``drop_layer``."""


class Calls:
    """The names of the functional calls of one module, and how their inputs lie."""

    def __init__(self, name: str, batch_dim: int | None) -> None:
        self.name = name
        self.dropout = LayerName(f"{name}/dropout")
        self.attention = LayerName(f"{name}/attention")
        self.batch_dim = batch_dim
        self.cut: Cut | None = None

    def drop(
        self,
        func: object,
        input: torch.Tensor,
        p: float = 0.5,
        training: bool = True,
        inplace: bool = False,
        train: bool = True,
    ) -> torch.Tensor:
        """Do what a function of dropout does: ``training`` and ``train`` are one, by two names."""
        if functional.check_probability(_FUNCTION, p) == 0 or not (training and train):
            return input
        found = drop_layer(self.dropout, input, p, self.batch_dim, self.cut, _CHANNELS[func])
        return input.copy_(found) if inplace else found

    def attend(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> torch.Tensor:
        """Do what ``scaled_dot_product_attention`` does."""

        def drop_weights(weights: torch.Tensor) -> torch.Tensor:
            return drop_layer(self.attention, weights, dropout_p, self.batch_dim, self.cut)

        tensors = query, key, value
        return functional.attend(drop_weights, *tensors, attn_mask, is_causal, scale, enable_gqa)


def _drops(
    input: object, p: float = 0.5, training: bool = False, inplace: bool = False,
    train: bool = False,
) -> bool:  # fmt: skip
    """Return whether a call of ``dropout`` or ``alpha_dropout`` with these arguments draws."""
    return functional.check_probability(_FUNCTION, p) > 0 and (training or train)


def _drops_heads(*args: Any, dropout_p: float = 0.0, training: bool = True, **_: object) -> bool:
    """Read the arguments of ``multi_head_attention_forward``, which has them in places 10, 13."""
    return (args[10] if len(args) > 10 else dropout_p) > 0 and (
        args[13] if len(args) > 13 else training
    )


def _drops_layers(*args: Any, **options: Any) -> bool:
    """Read the arguments of ``torch.lstm`` and its like: the first bool begins the settings.

    They are ``has_biases, num_layers, dropout, train, ...``; a packed input is one tensor more.
    """
    flag = next((i for i, value in enumerate(args) if isinstance(value, bool)), len(args))
    given = dict(zip(("has_biases", "num_layers", "dropout", "train"), args[flag:], strict=False))
    given.update(options)
    return given.get("dropout", 0.0) > 0 and bool(given.get("train"))


def _rectifies(*args: Any, training: bool = False, **_: object) -> bool:
    """Return whether a call of ``rrelu`` draws its slopes: ``input, lower, upper, training``."""
    return bool(args[3] if len(args) > 3 else training)


_ALPHA: tuple[object, ...] = (
    *(torch_functional.alpha_dropout, torch_functional.feature_alpha_dropout),
    *(torch.alpha_dropout, torch.alpha_dropout_, torch.feature_alpha_dropout),
    *(torch.feature_alpha_dropout_, torch.feature_dropout, torch.feature_dropout_),
    *(torch.dropout_, torch.native_dropout),
)
_RNN: tuple[object, ...] = (torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu)
_RRELU = (torch_functional.rrelu, torch_functional.rrelu_, torch.rrelu, torch.rrelu_)
_DRAWS: dict[object, Callable[..., bool]] = {
    **dict.fromkeys(_ALPHA, _drops),
    **dict.fromkeys(_RNN, _drops_layers),
    **dict.fromkeys(_RRELU, _rectifies),
    torch_functional.multi_head_attention_forward: _drops_heads,
}
"""Functions without a keyed form: whether a call with such arguments draws."""


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
        calls: Calls | None = this_thread.calls
        if calls is None:
            return func(*args, **kwargs)
        if func in _CHANNELS:
            return calls.drop(func, *args, **kwargs)
        if func is _ATTENTION:
            if (kwargs.get("dropout_p", 0.0) if len(args) < 5 else args[4]) > 0:
                return calls.attend(*args, **kwargs)
        elif func in _DRAWS and _DRAWS[func](*args, **kwargs):
            raise _refusal(calls, func.__name__)
        elif func is torch.Tensor.unflatten:  # written in Python, where torch.compile stops
            return args[0].unflatten(*args[1:], **kwargs)
        return func(*args, **kwargs)


def _refusal(calls: Calls, name: str) -> RuntimeError:
    where = f"the forward of {calls.name!r}" if calls.name else "the forward of the model"
    return RuntimeError(
        f"fastseed.{_FUNCTION}: {name} in {where} would draw from torch's generator: set its p "
        "or dropout to 0, or use torch.nn.functional.dropout, leaky_relu or "
        "scaled_dot_product_attention there"
    )


_mode = _ReplaceCalls()


def _leave_stale_mode() -> None:
    if this_thread.calls is None:  # no converted forward runs
        private_torch.leave_function_mode(_mode)


context.stale_modes.append(_leave_stale_mode)


@functools.cache
def calling_class(cls: Any) -> Any:
    """Return a subclass of a module's class whose forward runs in the mode."""

    @functools.wraps(cls.forward)
    def forward(self: Any, *args: object, **kwargs: object) -> object:
        outer = this_thread.calls
        this_thread.calls = self.fastseed_calls
        try:
            if outer is not None:
                return cls.forward(self, *args, **kwargs)
            with _mode:
                return cls.forward(self, *args, **kwargs)
        finally:
            this_thread.calls = outer

    def reduce(self: object, protocol: object) -> tuple[object, ...]:
        get_state: Any = getattr(cls, "__getstate__", None)  # of object from Python 3.11 on
        own = get_state is not None and get_state is not getattr(object, "__getstate__", None)
        return _rebuilt, (cls,), get_state(self) if own else self.__dict__

    body = {"forward": forward, "__reduce_ex__": reduce, "fastseed_original": cls}
    names = {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}
    return type(cls.__name__, (cls,), {**body, **names})


def _rebuilt(cls: type) -> object:
    """Return an empty module of a converted class, for pickle and copy."""
    converted = calling_class(cls)
    return converted.__new__(converted)
