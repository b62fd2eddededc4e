"""``keyed(name)``: a block in which torch's random functions draw from keys.

A function mode of torch sees the functions that Python calls, and ``torch.compile`` traces it. What
changes from call to call reaches a graph in tensors: the scope, and the number of the next draw.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from .._backend import private_torch, recomputation
from .._backend.compile import is_exporting, warn_if_exporting
from .._backend.ops.dropout import layer_key
from .._backend.reference.scalar import SHARED_RANK, signed
from .._utils import validation
from ..derivation import blocks, context, streams
from ..derivation import place as places
from ..derivation.blocks import BlockPlace
from . import fills, layout, scope_tensors
from .fills import Arguments, Fill, Keywords
from .functional import Key
from .positions import Checker, have_moved, positions
from .scope_tensors import CPU
from .torch_functions import DRAWS, check_memory, handler_of_substitute

if TYPE_CHECKING:
    import numpy.typing as npt

_FUNCTION = "random.keyed"
MAX_INDEX = 2**39 - 1
_DRAW_BITS = 24  # of the index of a key, below the index of the block
_FUNCTIONS = frozenset(DRAWS)
_NOT_COMPILED = (
    f"fastseed.{_FUNCTION}: compiled code must not draw in a DataLoader worker or a sample, whose "
    "streams it does not have: call the function without torch.compile there"
)


def keyed(
    name: str, index: int | None = None, *, distinct_over: object = None, check: bool = False
) -> KeyedBlock:
    """Return a ``with`` block in which torch's random functions draw from keys, not generators.

    Element j of draw k in the block is a function of (master seed, scope, ``name``, ``index``,
    rank, k, j): the same on the CPU and on every GPU, eager or compiled, whatever was drawn before.
    torch's generators are neither read nor moved. Of nested blocks the innermost one draws. A block
    belongs to the thread, and the ``asyncio`` task, that enters it.

    A block without an index is entered once in a scope: call ``reseed`` before each step, or give
    each micro-batch, layer or sample its ``index``. Under ``data.per_sample`` and ``per_batch``
    each sample or batch is a scope, whoever reads it; else that of a DataLoader worker is its own.
    A recomputation repeats the blocks of its forward pass, also after ``reseed``.

    ``torch.rand``, ``randn``, ``randint``, ``normal``, ``bernoulli``, ``randperm``,
    ``multinomial``, their ``_like`` and in-place forms, the functions of dropout and what calls
    these, as ``torch.distributions``, draw from keys; docs/same-noise.md has the table. A call with
    a ``generator=`` that is not ``torch.default_generator`` is as it was.

    Args:
        name: what the numbers are for; the key of draw k is that of the stream ``keyed/<name>``.
        index: [0, 2**39), for blocks of one name, which draw the same on every entry; the index of
            the key is ``index << 24 | k``. None: the numbers of index 0, once. Compiled code, and
            the capture of a CUDA graph, need an index.
        distinct_over: the dimensions of the mesh over which ranks draw different numbers; ``()`` is
            the same on all. None: what ``init`` says, else each rank has its own. A ``DTensor`` is
            one tensor, whatever it says.
        check: name the operator, as an error, that draws from torch's generators inside. Slower.

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
    validation.check_bool(_FUNCTION, "check", check)
    return KeyedBlock(name, index, distinct_over, check)


class KeyedBlock(TorchFunctionMode):
    """The mode of a block; ``fastseed.random.keyed`` makes it."""

    def __init__(self, name: str, index: int | None, distinct_over: object, check: bool) -> None:
        super().__init__()
        self.is_once = index is None  # whether it may be entered once in a scope
        self.index = 0
        if index is not None:
            self.index = validation.check_int(_FUNCTION, "index", index, 0, MAX_INDEX)
        self.name, self._distinct_over = name, distinct_over
        self.words = _words_of(name)
        self.rank_field = 0
        self.next: torch.Tensor | None = None  # (1,) int64: the index of the key of the next draw
        self.scope: torch.Tensor | None = None  # (2,) uint64: of the forward pass, if another one
        self.has_moved = False  # to another scope, since it was entered
        self.is_eager = False
        self._checker: Any = Checker() if check else None  # type: ignore[no-untyped-call]

    # ------------------------------------------------------------ beginning and end

    def __enter__(self) -> KeyedBlock:
        if self.next is not None:
            raise RuntimeError(
                f"fastseed.{_FUNCTION}: the block {self.name!r} must not be entered a second time: "
                "call keyed again"
            )
        if torch.compiler.is_compiling():
            self._begin_in_graph()
        else:
            self._begin()
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def _begin_in_graph(self) -> None:
        if self.is_once:
            raise self._needs_index("in compiled code")
        guarded = id(context.seeder), places.worker is None, blocks.readers
        self.rank_field = _rank_field(self.name, self._distinct_over, guarded)
        self.next = torch.full((1,), self.index << _DRAW_BITS, dtype=torch.int64, device=CPU)

    def _begin(self) -> None:
        private_torch.replace_dtensor_draws(_draw_dtensor)
        self._place = place = self._enter_place()
        self.rank_field = int(place.rank_field)  # torch.compile of 2.10 knows no other integers
        self._streams: dict[int, streams.Stream] = {}  # by rank field
        self._process = os.getpid()
        self._task = blocks.current_task()
        self._checkpoint = recomputation.innermost()
        self._generators = positions()
        array = np.array([self.index << _DRAW_BITS], np.int64)
        self._next: memoryview[int] = memoryview(array)  # type: ignore[arg-type]
        self.next = _usual_tensor(array)
        self.is_eager = True
        _open.add(self)
        if self._checker is not None:
            self._checker.__enter__()

    def _enter_place(self) -> BlockPlace:
        """Return where the block begins: in a recomputation, where its forward pass began."""
        use = f"keyed/{self.name}/{self.index}"
        place: BlockPlace | None = recomputation.had(use)
        if place is None:
            path = f"keyed/{self.name}"
            place = blocks.place_of_block(_FUNCTION, path, self._distinct_over)
            if self.is_once:
                if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():  # type: ignore[no-untyped-call]
                    raise self._needs_index("while a CUDA graph is captured")
                place.entries.add(_FUNCTION, "keyed", self.name)
        if place.scope != scope_tensors.words():
            self.scope = torch.tensor(place.scope, dtype=torch.uint64, device=CPU)
        recomputation.keep(use, place)
        return place

    def _needs_index(self, where: str) -> RuntimeError:
        return RuntimeError(
            f"fastseed.{_FUNCTION}: the block {self.name!r} must have an index= {where}, where "
            "nothing notices that it is entered a second time in a scope"
        )

    def __exit__(self, error: object = None, *rest: object) -> None:
        if not self.is_eager:
            super().__exit__(error, *rest)  # type: ignore[no-untyped-call]
            return
        if self._checker is not None:
            self._checker.__exit__(error, *rest)
        is_innermost = private_torch.leave_function_mode(self)
        _open.discard(self)
        if error is None:
            self._check_end(is_innermost)
        self.next, self.has_moved = None, False

    def _check_end(self, is_innermost: bool) -> None:
        wrong = ""
        if not is_innermost:
            wrong = "must be left before the blocks around it"
        elif self._next[0] - (self.index << _DRAW_BITS) > 1 << _DRAW_BITS:
            wrong = f"must draw at most 2**{_DRAW_BITS} times: give parts of it an index"
        elif self.has_moved or self._process != os.getpid():
            pass  # the generators were set
        elif have_moved(self._generators):
            wrong = (
                "must draw all from keys, but a generator of torch has moved: an operator in C++ "
                "or another thread drew from it; keyed(..., check=True) names the operator"
            )
        if wrong:
            raise RuntimeError(f"fastseed.{_FUNCTION}: the block {self.name!r} {wrong}")

    def __reduce_ex__(self, protocol: Any) -> Any:
        if self.next is not None:
            raise TypeError(f"fastseed.{_FUNCTION}: an open block must not be copied")
        return super().__reduce_ex__(protocol)

    # ------------------------------------------------------------ draws

    def __torch_function__(
        self, func: Any, types: object, args: Arguments = (), kwargs: Keywords | None = None
    ) -> object:
        handler = DRAWS.get(func)
        if handler is None and not torch.compiler.is_compiling():
            handler = handler_of_substitute(func)
        if handler is None:
            return func(*args, **kwargs) if kwargs else func(*args)
        kwargs = kwargs or {}
        generator = kwargs.get("generator")
        if generator is not None and generator is not torch.default_generator:
            return func(*args, **kwargs)
        if torch.compiler.is_compiling():
            return handler(self, func, *args, **kwargs)
        check_memory(func, args, kwargs)
        number = self._next[0]
        try:
            return handler(self, func, *args, **kwargs)
        except BaseException:  # also after the draw
            self._next[0] = number
            raise

    def draw(
        self, fill: Fill, tensor: torch.Tensor, *parameters: object, **named: object
    ) -> torch.Tensor:
        """Fill a tensor from the key of the next draw."""
        key = self.next_key(tensor)
        with private_torch.without_function_modes():
            found = fill(tensor, key, *parameters, **named)
        if found is not False and tensor.numel():
            self.count()
        return tensor

    def next_key(self, tensor: torch.Tensor) -> Key:
        """Return the key of the next draw, which is of this tensor or like it."""
        rank_field = SHARED_RANK if layout.is_dtensor(tensor) else self.rank_field
        is_compiling = torch.compiler.is_compiling()
        self._check_place(is_compiling)
        if is_compiling:
            return self._key_in_graph(rank_field)
        if tensor.is_cuda and torch.cuda.is_current_stream_capturing():
            return self._key_in_capture(tensor.device, rank_field)
        stream = self._streams.get(rank_field)
        if stream is None:
            at = self._place.scope, f"keyed/{self.name}", rank_field, self._place.worker
            stream = self._streams[rank_field] = streams.stream_in(*at)
        return stream.key(self._next[0])

    def count(self) -> None:
        """Go on to the next draw."""
        assert self.next is not None
        if torch.compiler.is_compiling():
            self.next.add_(1)
        else:
            self._next[0] += 1

    def _key_in_graph(self, rank_field: int) -> torch.Tensor:
        if self.is_eager and self._place.worker:
            raise RuntimeError(_NOT_COMPILED)
        if not scope_tensors.process_state.has_keys:
            raise RuntimeError(f"fastseed.{_FUNCTION}: call fastseed.reseed(task, epoch) first")
        scope = scope_tensors.on_device(_FUNCTION, CPU) if self.scope is None else self.scope
        keys = torch.empty(3, dtype=torch.uint64, device=CPU)
        layer_key(keys, scope, self.next, *self.words, 0, 1, 0, rank_field)
        return keys[:2]

    def _key_in_capture(self, device: torch.device, rank_field: int) -> torch.Tensor:
        """Return a key for a CUDA graph: of this draw, in the scope of each replay."""
        if self.is_once:
            raise self._needs_index("while a CUDA graph is captured")
        if self.scope is not None:
            wrong = "a backward pass must be captured before the next fastseed.reseed"
            raise RuntimeError(f"fastseed.{_FUNCTION}: {wrong}")
        keys = torch.empty(3, dtype=torch.uint64, device=device)
        zero = torch.zeros(1, dtype=torch.int64, device=device)
        scope = scope_tensors.on_device(_FUNCTION, device)
        layer_key(keys, scope, zero, *self.words, self._next[0], 0, 0, rank_field)
        return keys[:2]

    def _check_place(self, is_compiling: bool) -> None:
        """RuntimeError where a draw of this block could not be repeated."""
        if self.has_moved:
            wrong = "the scope is another one now: leave the block before fastseed.reseed"
        elif private_torch.is_vmapped():
            wrong = (
                "torch.vmap would give all of its examples the same numbers: draw them outside of "
                "it, or pass it randomness='same'"
            )
        elif is_compiling and self.is_eager and is_exporting():
            wrong = "torch.export would keep its count: open the block in the exported function"
        elif not is_compiling and self._process != os.getpid():
            wrong = "os.fork was called in the block: open one in the child"
        elif not is_compiling and blocks.current_task() is not self._task:
            wrong = f"another asyncio task draws: {blocks.ONE_TASK}"
        elif self._is_recomputed(is_compiling):
            wrong = (
                "a function is recomputed (by a checkpoint, or by the compiler for the sake of "
                "activation_memory_budget), which would run without the block: open the block "
                "inside the function"
            )
        else:
            return
        raise RuntimeError(f"fastseed.{_FUNCTION}: in the block {self.name!r}, {wrong}")

    def _is_recomputed(self, is_compiling: bool) -> bool:
        """Return whether a checkpointed function draws outside of which the block was opened."""
        if is_compiling:
            return self.is_eager and (
                private_torch.is_drawn_again()
                or (self._checkpoint is None and private_torch.is_checkpointed())
            )
        return recomputation.innermost() != self._checkpoint


def _draw_dtensor(function: object, make: Callable[[], torch.Tensor]) -> torch.Tensor | None:
    """Return what a function of ``torch.distributed.tensor`` draws in a block; None outside."""
    *_, block = private_torch.function_modes() or [None]
    if not isinstance(block, KeyedBlock):
        return None
    return block.draw(fills.uniform if function is torch.rand else fills.normal, make())


def _usual_tensor(array: npt.NDArray[np.int64]) -> torch.Tensor:
    """Return a tensor in the memory of an array, which compiled code may write anywhere."""
    if not torch.is_inference_mode_enabled():
        return torch.from_numpy(array)
    with torch.inference_mode(False):
        return torch.from_numpy(array)


@private_torch.answer_at_trace
def _words_of(name: str) -> tuple[int, int]:
    """Return the words that the derivation takes of a name, which compiled code cannot hash."""
    return _known_words(validation.check_text(_FUNCTION, "name", name))


@functools.lru_cache(maxsize=4096)
def _known_words(name: str) -> tuple[int, int]:
    private_torch.show_to_modes(_FUNCTIONS)
    low, high = streams.name_words(f"keyed/{name}")
    return signed(low), signed(high)


@private_torch.answer_at_trace
def _rank_field(name: str, distinct_over: object, guarded: object) -> int:
    """Return the rank field of a block in compiled code, which guards whose place it has."""
    warn_if_exporting(_FUNCTION)
    if places.worker is not None or blocks.place_in_sample.get() is not None:
        raise RuntimeError(_NOT_COMPILED)
    return int(blocks.place_of_block(_FUNCTION, f"keyed/{name}", distinct_over).rank_field)


_open: set[KeyedBlock] = set()
"""The blocks of all threads that are open."""


def outside_blocks() -> contextlib.AbstractContextManager[object]:
    """Leave this thread's blocks for a while, for samples: they have streams of their own."""
    return private_torch.without_modes(KeyedBlock) if _open else contextlib.nullcontext()


@contextlib.contextmanager
def apart_from_blocks() -> Iterator[None]:
    """Leave this thread's blocks for a while in which the scope is another one and comes back."""
    before = {block: block.has_moved for block in tuple(_open)}
    try:
        with outside_blocks():
            yield
    finally:
        for block, has_moved in before.items():
            block.has_moved = has_moved


def open_blocks() -> list[object]:
    """Return the blocks that this thread is in."""
    modes = private_torch.function_modes() if _open else []
    return [mode for mode in modes if isinstance(mode, KeyedBlock)]


def refuse_inside(function: str) -> None:
    """RuntimeError in a block of this thread, which does not read torch's generators."""
    if open_blocks():
        raise RuntimeError(
            f"fastseed.{function}: must not be entered in a block of random.keyed, which does not "
            "draw from torch's generators: give it a keyed block"
        )


def leave_inherited() -> None:
    """Leave the blocks that a DataLoader worker was forked in: it has streams of its own."""
    for block in tuple(_open):
        if block._process != os.getpid():
            private_torch.leave_function_mode(block)
            _open.discard(block)


def _move() -> None:
    """Let open blocks know that the scope is another one now."""
    for block in tuple(_open):
        block.has_moved = True


context.observe_scope(_move)
