"""Calls of torch's functions that drop elements: which of them draw, and how they are given.

``DROPOUTS``, ``ATTENTION`` and ``HEADS`` are those with a keyed form. ``draws`` says whether a call
draws; ``read_drop`` reads one of ``DROPOUTS``, ``read_attention`` one of the others.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch.nn import functional as torch_functional

ATTENTION = torch_functional.scaled_dot_product_attention
HEADS = torch_functional.multi_head_attention_forward
RNN: tuple[object, ...] = (torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu)
RRELU = (torch_functional.rrelu, torch_functional.rrelu_, torch.rrelu, torch.rrelu_)


class Dropout(NamedTuple):
    """What a function of dropout drops."""

    # How many dimensions behind (N, C) go at once; 0: any; None: single elements.
    channels: int | None = None
    alpha: bool = False  # as for SELU
    inplace: bool = False
    is_layer: bool = False  # a layer of torch.nn calls it


DROPOUTS: dict[object, Dropout] = {
    torch_functional.dropout: Dropout(is_layer=True),
    torch.dropout: Dropout(is_layer=True),
    torch.dropout_: Dropout(inplace=True),
    torch_functional.dropout1d: Dropout(1, is_layer=True),
    torch_functional.dropout2d: Dropout(0, is_layer=True),  # which takes (N, C, L) too
    torch_functional.dropout3d: Dropout(3, is_layer=True),
    torch.feature_dropout: Dropout(0),
    torch.feature_dropout_: Dropout(0, inplace=True),
    torch_functional.alpha_dropout: Dropout(alpha=True),
    torch.alpha_dropout: Dropout(alpha=True),
    torch.alpha_dropout_: Dropout(alpha=True, inplace=True),
    torch_functional.feature_alpha_dropout: Dropout(0, alpha=True),
    torch.feature_alpha_dropout: Dropout(0, alpha=True),
    torch.feature_alpha_dropout_: Dropout(0, alpha=True, inplace=True),
}
"""Functions of dropout."""
_ARGUMENTS: dict[object, Sequence[str]] = {
    ATTENTION: (
        *("query", "key", "value", "attn_mask", "dropout_p"),
        *("is_causal", "scale", "enable_gqa"),
    ),
    HEADS: tuple(inspect.signature(HEADS).parameters),
}


def draws(func: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether a call of a function, of dropout or not, draws from torch's generator."""
    if func in DROPOUTS:
        return read_drop(func, *args, **kwargs).p > 0
    if func in _ARGUMENTS:
        given = read_attention(func, *args, **kwargs)
        return bool(given.get("dropout_p", 0.0) > 0 and given.get("training", True))
    reads = _READERS.get(func)
    return reads is not None and reads(*args, **kwargs)


class Drop(NamedTuple):
    """What a call drops: ``p`` is 0 outside of training."""

    input: torch.Tensor
    p: float
    inplace: bool


def read_drop(
    func: object,
    input: torch.Tensor,
    p: float = 0.5,
    training: bool = True,
    inplace: bool = False,
    train: bool = True,
) -> Drop:
    """Read a call of one of ``DROPOUTS``: ``training`` and ``train`` are one, by two names."""
    return Drop(input, p if training and train else 0.0, inplace or DROPOUTS[func].inplace)


def read_attention(func: object, *args: Any, **kwargs: Any) -> dict[str, Any]:
    """Return the arguments of a call of ``ATTENTION`` or ``HEADS`` by their names."""
    return {**dict(zip(_ARGUMENTS[func], args, strict=False)), **kwargs}


def _drops_layers(*args: Any, **options: Any) -> bool:
    """Read the arguments of ``torch.lstm`` and its like: the first bool begins the settings.

    They are ``has_biases, num_layers, dropout, train, ...``; a packed input is one tensor more.
    """
    flag = next((i for i, value in enumerate(args) if isinstance(value, bool)), len(args))
    given = dict(zip(("has_biases", "num_layers", "dropout", "train"), args[flag:], strict=False))
    given.update(options)
    return given.get("dropout", 0.0) > 0 and bool(given.get("train"))


def _rectifies(*args: Any, training: bool = False, **_: object) -> bool:
    """Read the arguments of ``rrelu``, ``input, lower, upper, training``, which draws slopes."""
    return bool(args[3] if len(args) > 3 else training)


_READERS: dict[object, Callable[..., bool]] = {
    torch.native_dropout: lambda input, p, train: p > 0 and train,
    **dict.fromkeys(RNN, _drops_layers),
    **dict.fromkeys(RRELU, _rectifies),
}
MAY_DRAW = frozenset((*DROPOUTS, *_ARGUMENTS, *_READERS))
"""Functions of which ``draws`` says whether a call draws."""
