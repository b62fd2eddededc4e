"""Torch's random functions, and what ``random.keyed`` does in place of each.

``DRAWS`` has a handler for each function that Python calls: it gets the draws of the block, the
function and its arguments. A call that draws nothing goes to torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import Any

import torch
from torch.nn import functional as torch_functional
from torch.nn import init

from .._backend import private_torch, tensors
from .._backend.ops import dropout as dropout_op
from .._utils import validation
from . import dropout, dropout_calls, fills, inplace, layout
from .fills import Fill
from .functional import key_on
from .keyed_draws import Draws

Handler = Callable[..., object]

_FUNCTION = "random.keyed"


def check_memory(func: Any, args: Sequence[object], options: Mapping[str, object]) -> None:
    """ValueError for a tensor that was freed, which torch would read or write all the same."""
    if func in (torch.rand_like, torch.randn_like, torch.randint_like):  # read its shape alone
        return
    written = options.get("out"), args[0] if args and func.__name__.endswith("_") else None
    for value in (*args, *options.values()):
        if not isinstance(value, torch.Tensor) or value.is_nested or value.layout != torch.strided:
            continue
        local = layout.local_part(value)
        is_read = not any(value is one for one in written)
        is_plain = type(local) in (torch.Tensor, torch.nn.Parameter)
        if is_plain and not (is_read and private_torch.is_zero(local)):
            tensors.check_dense(_FUNCTION, f"a tensor of {func.__name__}", local)


def _making(fill: Fill, make: Callable[..., torch.Tensor]) -> Handler:
    """Handle a function that fills what ``make`` makes of the same arguments."""

    def handle(
        block: Draws, _: object, *args: Any, generator: None = None, **options: Any
    ) -> object:
        return block.draw(fill, make(*args, **options))

    return handle


def _writing(fill: Fill, **names: str) -> Handler:
    """Handle a method that fills its tensor; ``names`` are those that the fill has for others."""

    def handle(
        block: Draws, _: object, tensor: torch.Tensor, *args: Any, generator: None = None,
        **options: Any,
    ) -> object:  # fmt: skip
        options = {names.get(name, name): _number(value) for name, value in options.items()}
        return _overwrite(block, fill, tensor, *map(_number, args), **options)

    return handle


def _overwrite(
    block: Draws, fill: Fill, tensor: torch.Tensor, *parameters: Any, **named: Any
) -> torch.Tensor:
    if tensor.requires_grad and torch.is_grad_enabled():
        tensor.zero_()  # as torch: what it was gets a gradient of 0
    return block.draw(fill, tensor, *parameters, **named)


def _number(value: Any) -> Any:
    """Return a parameter; torch takes a tensor without dimensions for a number."""
    return value.item() if isinstance(value, torch.Tensor) and value.dim() == 0 else value


def _give(found: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
    return found if out is None else out.resize_(found.shape).copy_(found)


def _bounds(given: Sequence[Any], low: int, high: int | None) -> tuple[int, int | None]:
    """Return (low, high) of a call that may leave out the lower bound."""
    given = [*map(_number, given)]
    if len(given) == 2:
        return given[0], given[1]
    if given:
        return (low, given[0]) if high is None else (given[0], high)
    return low, high


def _random(
    block: Draws, _: object, tensor: torch.Tensor, *given: Any, to: int | None = None,
    generator: None = None, **options: Any,
) -> object:  # fmt: skip
    return _overwrite(block, fills.randint, tensor, *_bounds(given, options.get("from", 0), to))


def _randint(
    block: Draws, _: object, *args: Any, low: int = 0, high: int | None = None,
    size: Any = None, generator: None = None, dtype: torch.dtype | None = None, **options: Any,
) -> object:  # fmt: skip
    *given, size = args if size is None else (*args, size)
    dtype = torch.int64 if dtype is None and options.get("out") is None else dtype
    tensor = torch.empty(size, dtype=dtype, **options)
    return block.draw(fills.randint, tensor, *_bounds(given, low, high))


def _randint_like(
    block: Draws, _: object, input: torch.Tensor, *given: Any, low: int = 0,
    high: int | None = None, generator: None = None, **options: Any,
) -> object:  # fmt: skip
    tensor = torch.empty_like(input, **options)
    return block.draw(fills.randint, tensor, *_bounds(given, low, high))


def _randperm(
    block: Draws, _: object, n: int, *, out: torch.Tensor | None = None,
    generator: None = None, dtype: torch.dtype | None = None, **options: Any,
) -> object:  # fmt: skip
    dtype = torch.int64 if dtype is None and out is None else dtype
    return block.draw(fills.randperm, torch.empty(n, dtype=dtype, out=out, **options))


def _normal(
    block: Draws, _: object, mean: Any = 0.0, std: Any = 1.0, size: Any = None, *,
    out: torch.Tensor | None = None, generator: None = None, **options: Any,
) -> object:  # fmt: skip
    if size is not None:
        if out is None:
            options.setdefault("device", "cpu")  # as torch, whatever the default device is
        tensor = torch.empty(size, out=out, **options)
        return block.draw(fills.normal, tensor, _number(mean), _number(std))
    given = [value for value in (mean, std) if isinstance(value, torch.Tensor)]
    tensor = sum(given[1:], given[0]).to(given[0].dtype)
    tensor = tensor.clone(memory_format=torch.contiguous_format)
    return _give(_overwrite(block, fills.scaled, tensor, mean, std), out)


def _bernoulli(
    block: Draws, _: object, input: torch.Tensor, p: Any = None, *,
    out: torch.Tensor | None = None, generator: None = None,
) -> object:  # fmt: skip
    tensor = input.clone(memory_format=torch.contiguous_format)
    return _give(_overwrite(block, fills.bernoulli, tensor, input if p is None else p), out)


def _multinomial(
    block: Draws, _: object, input: torch.Tensor, num_samples: int,
    replacement: bool = False, *, generator: None = None, out: torch.Tensor | None = None,
) -> object:  # fmt: skip
    fills.check_weights(_FUNCTION, input, num_samples, replacement)
    shape = (*input.shape[:-1], num_samples)
    tensor = torch.empty(shape, dtype=torch.int64, device=input.device, out=out)
    return block.draw(fills.multinomial, tensor, input, replacement)


def _initializing(fill: Fill, **names: str) -> Handler:
    """Handle a function of ``torch.nn.init``, which fills parameters without gradients."""
    write = _writing(fill, **names)

    def handle(block: Draws, func: object, *args: Any, **options: Any) -> object:
        with torch.no_grad():
            return write(block, func, *args, **options)

    return handle


def _init_kaiming(
    block: Draws, func: Any, tensor: torch.Tensor, a: float = 0, mode: str = "fan_in",
    nonlinearity: Any = "leaky_relu", generator: None = None,
) -> object:  # fmt: skip
    if tensor.dim() < 2 or tensor.numel() == 0 or mode.lower() not in ("fan_in", "fan_out"):
        return func(tensor, a, mode, nonlinearity)
    fan = tensor.size(1 if mode.lower() == "fan_in" else 0) * math.prod(tensor.shape[2:])
    bound = math.sqrt(3.0) * (init.calculate_gain(nonlinearity, a) / math.sqrt(fan))
    return block.draw(fills.uniform, tensor, -bound, bound)


# ---------------------------------------------------------------- functions of layers


def _drop(block: Draws, func: Any, *args: Any, **options: Any) -> object:
    if not dropout_calls.draws(func, args, options):
        return func(*args, **options)
    kind = dropout_calls.DROPOUTS[func]
    call = dropout_calls.read_drop(func, *args, **options)
    has_no_batch = call.input.dim() == kind.channels + 1 if kind.channels else False
    input = call.input.unsqueeze(0) if has_no_batch else call.input
    drop = _alpha_dropped if kind.alpha else dropped
    found = drop(block, input, _number(call.p), kind.channels is not None)
    if has_no_batch:
        found = found.squeeze(0)  # no view: a DTensor without rows refuses one
    return call.input.copy_(found) if call.inplace else found


def dropped(block: Draws, input: torch.Tensor, p: float, channels: bool = False) -> torch.Tensor:
    """Return an input with elements dropped, or ``channels``, by the key of the next draw."""
    threshold = dropout.check_input(_FUNCTION, input, p)
    if channels and input.dim() < 2:
        raise validation.value_error(_FUNCTION, "input", "of shape (N, C, ...)", input)
    is_compiling = torch.compiler.is_compiling()
    keys = key_on(_FUNCTION, "key", block.next_key(input, is_compiling), input.device)
    mask = dropout.Mask(keys, (), (), 0, threshold)
    if layout.is_dtensor(input):
        found = dropout.drop_dtensor(_FUNCTION, input, mask, channels=channels)
    else:
        found = dropout.drop(input, mask, layout.WHOLE, channels)
    if threshold < dropout_op.LEVELS and input.numel():
        block.count(is_compiling)
    return found


def _alpha_dropped(
    block: Draws, input: torch.Tensor, p: float, channels: bool = False
) -> torch.Tensor:
    """Do what ``alpha_dropout`` does (Klambauer et al., 2017): keep mean and variance."""
    kept = dropped(block, torch.ones_like(input), p, channels) != 0
    low = -1.7580993408473766
    scale = 0.0 if p == 1 else ((1 - p) * (1 + p * low**2)) ** -0.5
    return torch.where(kept, input, low) * scale - scale * p * low


def _attend(block: Draws, func: Any, *args: Any, **options: Any) -> object:
    if not dropout_calls.draws(func, args, options):
        return func(*args, **options)
    given = dropout_calls.read_attention(func, *args, **options)
    p = given.pop("dropout_p")
    attend = dropout.attend_heads if func is dropout_calls.HEADS else dropout.attend
    return attend(_FUNCTION, lambda weights: dropped(block, weights, p), **given)


def _gumbel_softmax(
    block: Draws, _: object, logits: torch.Tensor, tau: float = 1, hard: bool = False,
    eps: float = 1e-10, dim: int = -1,
) -> object:  # fmt: skip
    """Do what ``gumbel_softmax`` does (Jang et al., 2017): ``eps`` has no effect in torch."""
    drawn = torch.empty_like(logits.detach(), memory_format=torch.contiguous_format)
    noise = -block.draw(inplace.exponential_, drawn).log()
    soft = ((logits + noise) / tau).softmax(dim)
    if not hard:
        return soft
    one_hot = torch.zeros_like(soft).scatter_(dim, soft.argmax(dim, keepdim=True), 1.0)
    return one_hot - soft.detach() + soft


def _refuse(instead: str) -> Handler:
    """Handle a function without a keyed form, of which some calls draw nothing."""

    def handle(_: object, func: Any, *args: Any, **options: Any) -> object:
        has_samples = options.get("_random_samples") is not None  # of fractional pooling
        is_known = func in dropout_calls.MAY_DRAW
        if has_samples or (is_known and not dropout_calls.draws(func, args, options)):
            return func(*args, **options)
        raise RuntimeError(
            f"fastseed.{_FUNCTION}: {func.__name__} has no keyed form and would draw from torch's "
            f"generator: {instead}"
        )

    return handle


_NAMES = {"from": "low", "to": "high", "lambd": "rate"}  # torch's for parameters of fills

DRAWS: dict[object, Handler] = {
    torch.rand: _making(fills.uniform, torch.empty),
    torch.rand_like: _making(fills.uniform, torch.empty_like),
    torch.randn: _making(fills.normal, torch.empty),
    torch.randn_like: _making(fills.normal, torch.empty_like),
    torch.randint: _randint,
    torch.randint_like: _randint_like,
    torch.randperm: _randperm,
    torch.normal: _normal,
    torch.bernoulli: _bernoulli,
    torch.Tensor.bernoulli: _bernoulli,
    torch.multinomial: _multinomial,
    torch.Tensor.multinomial: _multinomial,
    **{
        getattr(torch.Tensor, name): _writing(fill, **_NAMES)
        for name, fill in fills.FILLS.items()
        if name.endswith("_")
    },
    torch.Tensor.random_: _random,
    init.uniform_: _initializing(fills.uniform, a="low", b="high"),
    init.normal_: _initializing(fills.normal),
    init.kaiming_uniform_: _init_kaiming,
    **dict.fromkeys(dropout_calls.DROPOUTS, _drop),
    dropout_calls.ATTENTION: _attend,
    dropout_calls.HEADS: _attend,
    torch_functional.gumbel_softmax: _gumbel_softmax,
    **dict.fromkeys(
        dropout_calls.RNN,
        _refuse("set the layer's dropout to 0, and call F.dropout between layers"),
    ),
    **dict.fromkeys(dropout_calls.RRELU, _refuse("use leaky_relu")),
    torch.native_dropout: _refuse("call torch.nn.functional.dropout"),
    **dict.fromkeys(
        (torch_functional.fractional_max_pool2d, torch_functional.fractional_max_pool3d),
        _refuse("pass _random_samples=torch.rand(N, C, 2 or 3)"),
    ),
    **dict.fromkeys(
        (torch.poisson, torch.binomial, *private_torch.GAMMA_FUNCTIONS),
        _refuse("draw it outside of the block, from generators that fastseed.reseed sets"),
    ),
}


def handler_of_substitute(func: object) -> Handler | None:
    """Return the handler of what a library, as transformers, puts in place of ``torch.nn.init``.

    Torch's own function, which the substitute calls, then hands over the substitute.
    """
    name = func.__name__ if isinstance(func, FunctionType) else ""
    return _INITIALIZERS.get(name) if vars(init).get(name, name) is func else None


_INITIALIZERS = {
    name: DRAWS[getattr(init, name)] for name in ("uniform_", "normal_", "kaiming_uniform_")
}
