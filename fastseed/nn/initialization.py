"""Keyed initialisation of unmodified models: a mode that replaces random operators by fills.

Torch's initialisers end in a few in-place operators (``normal_``, ``uniform_``, ...), which the
mode intercepts. Three of them compute with random numbers in Python (``trunc_normal_``,
``orthogonal_``, ``sparse_``); their code is replaced meanwhile, because libraries hold these
functions under names of their own (transformers in a dict).
"""

from __future__ import annotations

import contextlib
import contextvars
import threading
import types
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .._utils import validation
from ..derivation.coordinates import SHARED
from ..random import (
    bernoulli_,
    exponential_,
    normal_,
    randint_,
    shards,
    trunc_normal_,
    uniform_,
)
from ..seeder.derive_api import derive_key
from . import init
from .parameter_names import OwnerTable, local_part

_ATEN = torch.ops.aten


# ---------------------------------------------------------------- operators as fills


def _uniform(tensor: torch.Tensor, key: int, low: float = 0.0, high: float = 1.0) -> None:
    if low == high:  # of a bias whose bound is 0
        tensor.fill_(low)
    else:
        uniform_(tensor, key, low, high)


def _randint(tensor: torch.Tensor, key: int, low: int = 0, high: int | None = None) -> None:
    randint_(tensor, key, low, torch.iinfo(tensor.dtype).max + 1 if high is None else high)


def _randint_below(tensor: torch.Tensor, key: int, high: int) -> None:
    randint_(tensor, key, 0, high)


FILLS: dict[Any, Callable[..., Any]] = {
    _ATEN.normal_.default: normal_,
    _ATEN.uniform_.default: _uniform,
    _ATEN.exponential_.default: exponential_,
    _ATEN.bernoulli_.float: bernoulli_,
    _ATEN.random_.default: _randint,
    getattr(_ATEN.random_, "from"): _randint,
    _ATEN.random_.to: _randint_below,
}
"""In-place operators, and what fills the same tensor from a key."""
_LIKE = (_ATEN.empty_like.default, _ATEN.new_empty.default)  # scratch memory of initialisers


class _Filling(Protocol):
    """A dispatch mode that fills tensors."""

    def __enter__(self) -> Any: ...

    def __exit__(self, *error: Any) -> Any: ...

    def fill(
        self, operator: Any, fill: Callable[..., Any], tensor: torch.Tensor, *parameters: Any
    ) -> torch.Tensor: ...


class InitializationMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Fills tensors of a model from keys of their names, instead of drawing random numbers.

    Attributes:
        fills: how many random fills each name has had.
    """

    def __init__(self, owners: OwnerTable, key_of: Callable[[str, int], int]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.owners, self._key_of = owners, key_of
        self.fills: Counter[str] = Counter()
        self._rows: dict[int, _Row] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator, or the fill that takes its place."""
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded in func.tags:
            fill = FILLS.get(func)
            if fill is not None:
                return self.fill(func, fill, *args)
            if func in (_ATEN.randperm.out, _ATEN.randperm.generator_out):
                out = kwargs["out"]
                if args[0] == out.numel():
                    return self.fill(func, init.randperm_, out)
            tensors = [a for a in (*args, *kwargs.values()) if isinstance(a, torch.Tensor)]
            raise _unmapped(func, self.owners.name_of(tensors[0]) if tensors else None)
        if func._schema.is_mutable and (row := self._rows.get(id(args[0]))) is not None:
            return row.write(func, *args[1:])
        if func is _ATEN.copy_.default and self._is_part(*args[:2]):
            return init.keep_part("initialize", args[0], args[1].expand(args[0].shape))
        result = func(*args, **kwargs)
        if func in _LIKE and (name := self.owners.name_of(args[0])) is not None:
            self.owners.add(result, name)
        elif func is _ATEN.select.int and shards.is_dtensor(args[0]):
            self._watch_row(result, *args)
        return result

    def _is_part(self, target: Any, whole: Any) -> bool:
        """Return whether a parameter's part of a whole tensor is copied, as torch refuses to do."""
        return (
            shards.is_dtensor(target)
            and not shards.is_dtensor(whole)
            and self.owners.name_of(target) is not None
        )

    def _watch_row(self, row: Any, whole: Any, dim: int, index: int) -> None:
        name = self.owners.name_of(whole)
        if name is not None and self.owners.name_of(row) is None:
            self._rows[id(row)] = _Row(row, whole, dim, index, name)

    def fill(
        self, operator: Any, fill: Callable[..., Any], tensor: torch.Tensor, *parameters: Any
    ) -> torch.Tensor:
        """Fill ``tensor`` with the next random numbers of its name."""
        name = self.owners.name_of(tensor)
        if name is None:
            raise _unmapped(operator, None)
        if not local_part(tensor).is_meta:  # which has no elements: nothing is drawn
            try:
                fill(tensor, self._key_of(name, self.fills[name]), *parameters)
            except (TypeError, ValueError) as error:
                raise type(error)(f"{error} ({operator} on {name})") from error
            self.fills[name] += 1
        return tensor


class _Row(NamedTuple):
    """``whole.select(dim, place)`` of a ``DTensor`` that is cut along ``dim``: a copy."""

    row: torch.Tensor
    whole: Any
    dim: int
    place: int
    name: str

    def write(self, operator: Any, value: Any = 0) -> torch.Tensor:
        """Fill the row of the whole, which torch would leave as it is, as of a padding index."""
        if operator not in (_ATEN.zero_.default, _ATEN.fill_.Scalar, _ATEN.fill_.Tensor):
            raise RuntimeError(
                "fastseed.initialize: a row of a DTensor that is cut along its rows must be "
                f"written by zero_ or fill_, got {operator} on a row of {self.name}, where torch "
                "writes to a copy"
            )
        local, runs = shards.runs_of_dtensor("initialize", self.whole)
        place, at = self.place % self.whole.size(self.dim), 0
        for first, count in runs[self.dim] if local.numel() else ():
            if first <= place < first + count:
                local.select(self.dim, at + place - first).fill_(value)
            at += count
        return self.row.fill_(value)


def _unmapped(operator: Any, name: str | None) -> RuntimeError:
    where = "a tensor that is no parameter or buffer of the model" if name is None else name
    return RuntimeError(
        "fastseed.initialize: random operators must be normal_, uniform_, trunc_normal_, "
        "exponential_, bernoulli_, random_, orthogonal_, sparse_ or randperm(out=) on a parameter "
        f"or buffer of the model, got {operator} on {where}; nothing was drawn. Write that value "
        "with a function of fastseed.nn.init, or outside of the context"
    )


# ---------------------------------------------------------------- initialisers written in Python


def _trunc_normal_(  # type: ignore[no-untyped-def]
    tensor, mean=0.0, std=1.0, a=-2.0, b=2.0, generator=None
):
    from fastseed.nn.initialization import run_initializer

    return run_initializer("trunc_normal_", generator, tensor, mean, std, a, b)


def _orthogonal_(tensor, gain=1, generator=None):  # type: ignore[no-untyped-def]
    from fastseed.nn.initialization import run_initializer

    return run_initializer("orthogonal_", generator, tensor, gain)


def _sparse_(tensor, sparsity, std=0.01, generator=None):  # type: ignore[no-untyped-def]
    from fastseed.nn.initialization import run_initializer

    return run_initializer("sparse_", generator, tensor, sparsity, std)


_REPLACED: dict[str, tuple[Any, Any]] = {
    "trunc_normal_": (torch.nn.init.trunc_normal_, _trunc_normal_),
    "orthogonal_": (torch.nn.init.orthogonal_, _orthogonal_),
    "sparse_": (torch.nn.init.sparse_, _sparse_),
}
_originals = {
    name: types.FunctionType(f.__code__, f.__globals__, name, f.__defaults__)
    for name, (f, _) in _REPLACED.items()
}
_mode: contextvars.ContextVar[_Filling | None] = contextvars.ContextVar(
    "fastseed.nn.initialize", default=None
)
_lock, _users = threading.Lock(), Counter[str]()


def run_initializer(name: str, generator: Any, tensor: torch.Tensor, *parameters: Any) -> Any:
    """Run ``torch.nn.init.<name>``: as a fill in a context of this thread, else as torch does."""
    mode = _mode.get()
    if mode is None:
        return _originals[name](tensor, *parameters, generator=generator)
    fill = trunc_normal_ if name == "trunc_normal_" else getattr(init, name)
    return mode.fill(f"torch.nn.init.{name}", fill, tensor, *parameters)


def _replace(by: int) -> None:
    """Count a user of the replacements in (1) or out (-1)."""
    with _lock:
        _users["contexts"] += by
        for name, (function, replacement) in _REPLACED.items():
            code = replacement.__code__ if _users["contexts"] else _originals[name].__code__
            function.__code__ = code


@contextlib.contextmanager
def initializer_mode(mode: _Filling) -> Iterator[None]:
    """Run a block under a mode, which ``torch.nn.init`` calls as well."""
    token = _mode.set(mode)
    _replace(1)
    try:
        with mode:
            yield
    finally:
        _replace(-1)
        _mode.reset(token)


# ---------------------------------------------------------------- public


def key_derivation(task: int, epoch: int = 0, step: int = 0) -> Callable[[str, int], int]:
    """Return the function of name and count that gives the key of a fill; arguments are checked."""

    def key_of(name: str, count: int) -> int:
        return derive_key(
            f"init/{name}", task=task, epoch=epoch, step=step, rank=SHARED, index=count
        )

    key_of("", 0)
    return key_of


@contextlib.contextmanager
def initialize(
    model: torch.nn.Module,
    *,
    task: int = 0,
    epoch: int = 0,
    step: int = 0,
    prefix: str = "",
) -> Iterator[None]:
    """Make the initialisation of ``model`` in this block independent of its parallel layout.

    Random operators on a parameter or buffer become fills from the key of its qualified name, so
    that the weights do not depend on the ranks, the mesh, the order of modules, or what else the
    model has. Torch's generators are neither used nor changed.

    Args:
        model: the model, or a part of one. Parameters may be plain tensors, on any device or on
            the meta device until ``to_empty``, or ``DTensor``; modules may be added in the block.
        task: [0, 2**24). The key is that of the stream ``init/<name>`` at this task, epoch and
            step, shared by all ranks, with the count of fills that the name has had as its index.
        epoch: [0, 2**32).
        step: [0, 2**64).
        prefix: what stands before the names of ``model`` in the whole model, such as
            ``"layers.3."`` for a stage of a pipeline.

    Returns:
        A context manager.

    Raises:
        TypeError, ValueError: an argument is invalid.
        RuntimeError: before ``init``; in the block, for a random operator that cannot be mapped,
            which is named with its parameter.

    Examples:
        >>> import torch
        >>> fastseed.init(42)
        >>> small, large = torch.nn.Linear(4, 4), torch.nn.Sequential(torch.nn.Linear(4, 4))
        >>> with fastseed.nn.initialize(small, prefix="0."):
        ...     small.reset_parameters()
        >>> with fastseed.nn.initialize(large):
        ...     large[0].reset_parameters()
        >>> torch.equal(small.weight, large[0].weight)
        True
    """
    validation.check_instance("initialize", "model", model, torch.nn.Module, "a torch.nn.Module")
    validation.check_instance("initialize", "prefix", prefix, str, "a string")
    key_of = key_derivation(task, epoch, step)
    with initializer_mode(InitializationMode(OwnerTable(model, prefix), key_of)):
        yield
