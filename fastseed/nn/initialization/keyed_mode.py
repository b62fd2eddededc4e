"""The mode under which tensors are filled from keys where torch would draw random numbers.

A dispatch mode sees torch's operators. ``trunc_normal_``, ``orthogonal_`` and ``sparse_`` of
``torch.nn.init`` compute with random numbers in Python, and libraries hold them under other names:
transformers in a table, torchtitan in ``functools.partial``. So the three functions have other code
while a block is open in any thread. In a thread without a mode, they run torch's own code.
"""

from __future__ import annotations

import contextlib
import inspect
import threading
import types
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ..._backend import private_torch
from ...random.fills import Arguments, Fill, Keywords
from .fills import FILLS, INITIALIZERS

if TYPE_CHECKING:
    from torch._ops import OpOverload


class KeyedMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Replaces torch's random operators by fills, for the thread that enters it."""

    function: str  # the public one, for error messages

    def __torch_dispatch__(
        self, func: OpOverload, types: object, args: Arguments = (), kwargs: Keywords | None = None
    ) -> object:
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return self.run(func, args, kwargs)
        fill, find = FILLS.get(func, (None, None))
        found = None if find is None else find(func, args, kwargs)
        if fill is None or found is None:
            raise self.refusal(func, args, kwargs)
        return self.replace(func, fill, *found, generator=kwargs.get("generator"))

    def replace(
        self,
        operator: object,
        fill: Fill,
        tensor: torch.Tensor,
        *parameters: object,
        generator: object = None,
        **named: object,
    ) -> torch.Tensor:
        """Run the fill that takes the place of an operator, with what the operator is given."""
        if generator is not None:
            raise RuntimeError(
                f"fastseed.{self.function}: generator must be None, as numbers come from keys of "
                f"names, got {generator!r} for {operator}; nothing was drawn"
            )

        def draw(key: int) -> None:
            fill(tensor, key, *parameters, **named)

        self.fill(operator, tensor, draw)
        return tensor

    def fill(self, operator: object, tensor: torch.Tensor, draw: Callable[[int], None]) -> None:
        """Let ``draw`` fill ``tensor`` from the key that it has."""
        raise NotImplementedError

    def run(self, func: OpOverload, args: Arguments, kwargs: Keywords) -> object:
        """Run an operator that draws nothing."""
        raise NotImplementedError

    def refusal(self, func: OpOverload, args: Arguments, kwargs: Keywords) -> RuntimeError:
        """Return the error for a random operator without a keyed form."""
        raise NotImplementedError


def run_initializer(name: str, args: Arguments, kwargs: Keywords) -> object:
    """Run ``torch.nn.init.<name>``: as a fill under a mode of this thread, else as torch does."""
    original = _originals[name]
    for mode in reversed(private_torch.dispatch_modes()):
        if isinstance(mode, KeyedMode):
            given = inspect.signature(original).bind(*args, **kwargs)
            given.apply_defaults()
            return mode.replace(f"torch.nn.init.{name}", INITIALIZERS[name], **given.arguments)
    return original(*args, **kwargs)


def _replacement(*args, **kwargs):  # type: ignore[no-untyped-def]
    from fastseed.nn.initialization.keyed_mode import run_initializer

    return run_initializer("<name>", args, kwargs)


def _code_for(name: str) -> types.CodeType:
    """Return the code of ``_replacement``, which runs with the globals of ``torch.nn.init``."""
    code = _replacement.__code__
    return code.replace(co_consts=tuple(name if c == "<name>" else c for c in code.co_consts))


def _copy(f: Any) -> Any:
    """Return a function that keeps the code that ``f`` has now."""
    copy = types.FunctionType(f.__code__, f.__globals__, f.__name__, f.__defaults__)
    copy.__kwdefaults__ = f.__kwdefaults__
    return copy


_functions: dict[str, Any] = {n: inspect.unwrap(getattr(torch.nn.init, n)) for n in INITIALIZERS}
_originals: dict[str, Any] = {name: _copy(function) for name, function in _functions.items()}
_replaced = {name: _code_for(name) for name in INITIALIZERS}


_lock = threading.Lock()
_open: set[KeyedMode] = set()
"""The modes of all threads whose blocks are open."""


@contextlib.contextmanager
def keyed(mode: KeyedMode) -> Iterator[None]:
    """Activate a mode in this thread for a block."""
    try:
        with _lock:
            _open.add(mode)
            _choose_code(replaced=True)
        with mode:
            yield
    finally:
        with _lock:
            _open.discard(mode)
            _choose_code(replaced=bool(_open))


def _choose_code(*, replaced: bool) -> None:
    for name, function in _functions.items():
        function.__code__ = _replaced[name] if replaced else _originals[name].__code__
