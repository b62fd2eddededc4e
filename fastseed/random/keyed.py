"""``keyed(name)``: a block in which torch's random functions draw from keys.

A function mode of torch sees the functions that Python calls, and ``torch.compile`` traces it.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from .._backend import private_torch, recomputation
from .._backend.compile import warn_if_exporting
from .._backend.reference.scalar import signed
from .._utils import validation
from ..derivation import blocks, context, streams
from ..derivation import place as places
from ..derivation.place import Place
from . import fills
from .fills import Arguments, Keywords
from .keyed_draws import DRAW_BITS, FUNCTION, NOT_COMPILED, Draws, have_moved, positions
from .scope_tensors import CPU
from .torch_functions import DRAWS, check_memory, handler_of_substitute

MAX_INDEX = 2**39 - 1
_FUNCTIONS = frozenset(DRAWS)


def keyed(name: str, index: int | None = None, *, distinct_over: object = None) -> KeyedBlock:
    """Make a ``with`` block in which torch's random functions draw the same on every device.

    A number is a function of (master seed, scope, ``name``, ``index``, rank, which draw of the
    block, which element), whatever was drawn before. torch's generators are neither read nor moved.
    Of nested blocks the innermost one draws. A block belongs to the thread, and the ``asyncio``
    task, that enters it.

    A block without an index is entered once in a scope: call ``reseed`` before each step, or give
    each micro-batch, layer or sample its ``index``. Under ``data.per_sample`` and ``per_batch``
    each sample or batch is a scope. A recomputation repeats the blocks of its forward pass.

    ``torch.rand``, ``randn``, ``randint``, ``normal``, ``bernoulli``, ``randperm``,
    ``multinomial``, their ``_like`` and in-place forms, the functions of dropout and what calls
    these, as ``torch.distributions``, draw from keys; docs/same-noise.md has the table. A call with
    a ``generator=`` that is not ``torch.default_generator`` is as it was.

    Args:
        name: what the numbers are for. Draw k has the key of the stream ``keyed/<name>`` and the
            index ``index << 24 | k``.
        index: [0, 2**39); a block with an index draws the same on every entry. None: the numbers of
            index 0, once. Compiled code, and the capture of a CUDA graph, need an index.
        distinct_over: the dimensions of the mesh over which ranks draw different numbers; ``()`` is
            the same on all. None: what ``init`` says, else each rank has its own. A ``DTensor`` is
            one tensor, whatever it says.

    Raises:
        TypeError, ValueError: an argument is invalid.
        RuntimeError: before ``init`` or the first ``reseed``; where a block without an index was
            entered before, or is compiled or captured; for a function without a keyed form; for a
            draw after ``reseed`` or ``os.fork`` in the block, of another task, in ``torch.vmap``
            (unless its randomness is "same"), or in a checkpointed function outside of which the
            block was opened; at the end, if a default generator of torch has moved, as by a
            backward pass that draws.

    Examples:
        >>> import torch
        >>> fastseed.init(42)
        >>> fastseed.reseed(task=1, step=3)
        >>> with fastseed.random.keyed("flow"):
        ...     noise = torch.randn(2, 3)
        ...     t = torch.randint(0, 1000, (2,))
        >>> key = fastseed.derive_key("keyed/flow", index=1)
        >>> torch.equal(t, fastseed.random.randint(key, (2,), 0, 1000))
        True
    """
    return KeyedBlock(name, index, distinct_over)


class KeyedBlock(TorchFunctionMode):
    """The mode of a block; ``fastseed.random.keyed`` makes it."""

    def __init__(self, name: str, index: int | None, distinct_over: object) -> None:
        super().__init__()
        if index is not None:
            index = validation.check_int(FUNCTION, "index", index, 0, MAX_INDEX)
        self.draws = Draws(name, _words_of(name), index)
        self._distinct_over = distinct_over

    def __enter__(self) -> KeyedBlock:
        draws = self.draws
        if draws.next is not None:
            raise RuntimeError(
                f"fastseed.{FUNCTION}: the block {draws.name!r} must not be entered a second time: "
                "call keyed again"
            )
        if torch.compiler.is_compiling():
            if draws.is_once:
                raise draws.needs_index("in compiled code")
            guarded = id(context.seeder), places.worker is None, blocks.readers
            draws.rank_field = _rank_field(draws.name, self._distinct_over, guarded)
            first = draws.index << DRAW_BITS
            draws.next = torch.full((1,), first, dtype=torch.int64, device=CPU)
        else:
            private_torch.replace_dtensor_draws(_draw_dtensor)
            self._generators = positions()
            draws.begin(*self._enter_place())
            _open.add(self)
            context.following.add(draws)
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def _enter_place(self) -> tuple[Place, int]:
        """Return where the block begins: in a recomputation, where its forward pass began."""
        draws = self.draws
        use = f"keyed/{draws.name}/{draws.index}"
        found: tuple[Place, int] | None = recomputation.had(use)
        if found is None:
            path = f"keyed/{draws.name}"
            found = blocks.place_of_block(FUNCTION, path, self._distinct_over)
            if draws.is_once:
                if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():  # type: ignore[no-untyped-call]
                    raise draws.needs_index("while a CUDA graph is captured")
                found[0].note_entry(FUNCTION, "keyed", draws.name)
        recomputation.keep(use, found)
        return found

    def __exit__(self, error: object = None, *rest: object) -> None:
        if not self.draws.is_eager:
            super().__exit__(error, *rest)  # type: ignore[no-untyped-call]
            return
        is_innermost = private_torch.leave_function_mode(self)
        _open.discard(self)
        context.following.discard(self.draws)
        if error is None:
            self._check_end(is_innermost)
        self.draws.next, self.draws.has_moved = None, False

    def _check_end(self, is_innermost: bool) -> None:
        draws, wrong = self.draws, ""
        if not is_innermost:
            wrong = "must be left before the blocks around it"
        elif draws.number[0] - (draws.index << DRAW_BITS) > 1 << DRAW_BITS:
            wrong = f"must draw at most 2**{DRAW_BITS} times: give parts of it an index"
        elif draws.has_moved or draws.process != os.getpid():
            pass  # the generators were set
        elif have_moved(self._generators):
            wrong = (
                "must draw all from keys, but a generator of torch has moved: an operator in C++ "
                "or another thread drew from it: open blocks around less, to find what it is"
            )
        if wrong:
            raise RuntimeError(f"fastseed.{FUNCTION}: the block {draws.name!r} {wrong}")

    def __reduce_ex__(self, protocol: Any) -> Any:
        if self.draws.next is not None:
            raise TypeError(f"fastseed.{FUNCTION}: an open block must not be copied")
        return super().__reduce_ex__(protocol)

    def __torch_function__(
        self, func: Any, types: object, args: Arguments = (), kwargs: Keywords | None = None
    ) -> object:
        handler = DRAWS.get(func)
        is_compiling = torch.compiler.is_compiling()
        if handler is None and not is_compiling:
            handler = handler_of_substitute(func)
        if handler is None:
            return func(*args, **kwargs) if kwargs else func(*args)
        kwargs = kwargs or {}
        generator = kwargs.get("generator")
        if generator is not None and generator is not torch.default_generator:
            return func(*args, **kwargs)
        if is_compiling:
            return handler(self.draws, func, *args, **kwargs)
        check_memory(func, args, kwargs)
        number = self.draws.number[0]
        try:
            return handler(self.draws, func, *args, **kwargs)
        except BaseException:  # also after the draw
            self.draws.number[0] = number
            raise


def _draw_dtensor(function: object, make: Callable[[], torch.Tensor]) -> torch.Tensor | None:
    """Return what a function of ``torch.distributed.tensor`` draws in a block; None outside."""
    *_, block = private_torch.function_modes() or [None]
    if not isinstance(block, KeyedBlock):
        return None
    return block.draws.draw(fills.uniform if function is torch.rand else fills.normal, make())


@private_torch.answer_at_trace
def _words_of(name: str) -> tuple[int, int]:
    """Return the words that the derivation takes of a name, which compiled code cannot hash."""
    return _known_words(validation.check_text(FUNCTION, "name", name))


@functools.lru_cache(maxsize=4096)
def _known_words(name: str) -> tuple[int, int]:
    private_torch.show_to_modes(_FUNCTIONS)
    low, high = streams.name_words(f"keyed/{name}")
    return signed(low), signed(high)


@private_torch.answer_at_trace
def _rank_field(name: str, distinct_over: object, guarded: object) -> int:
    """Return the rank field of a block in compiled code, which guards whose place it has."""
    warn_if_exporting(FUNCTION)
    if places.worker is not None or blocks.place_in_sample.get() is not None:
        raise RuntimeError(NOT_COMPILED)
    return int(blocks.place_of_block(FUNCTION, f"keyed/{name}", distinct_over)[1])


_open: Any = blocks.open_modes


def outside_blocks() -> contextlib.AbstractContextManager[object]:
    """Leave this thread's blocks for a while, for samples: they have streams of their own."""
    return private_torch.without_modes(KeyedBlock) if _open else contextlib.nullcontext()


@contextlib.contextmanager
def apart_from_blocks() -> Iterator[None]:
    """Leave this thread's blocks for a while in which the scope is another one and comes back."""
    before = {block: block.draws.has_moved for block in tuple(_open)}
    try:
        with outside_blocks():
            yield
    finally:
        for block, has_moved in before.items():
            block.draws.has_moved = has_moved


def leave_inherited() -> None:
    """Leave the blocks that a DataLoader worker was forked in: it has streams of its own."""
    for block in tuple(_open):
        if block.draws.process != os.getpid():
            private_torch.leave_function_mode(block)
            _open.discard(block)
            context.following.discard(block.draws)
