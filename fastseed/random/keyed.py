"""``keyed(name)``: a block in which torch's random functions draw from keys.

A function mode of torch sees the functions that Python calls, and ``torch.compile`` traces it. What
changes from call to call reaches a graph in tensors: the scope, and the number of the next draw.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from .._backend import private_torch
from .._backend.ops.dropout import layer_key
from .._backend.reference.scalar import signed
from .._utils import validation
from ..derivation import context, scopes, streams
from ..derivation.scopes import SHARED
from . import layout, scope_tensors
from .fills import Arguments, Fill, Keywords
from .functional import Key
from .scope_tensors import CPU
from .torch_functions import DRAWS

if TYPE_CHECKING:
    from torch._ops import OpOverload

_FUNCTION = "random.keyed"
MAX_INDEX = 2**40 - 1
_DRAW_BITS = 24  # of the index of a key, below the index of the block


def keyed(
    name: str, index: int = 0, *, distinct_over: object = None, check: bool = False
) -> KeyedBlock:
    """Return a ``with`` block in which torch's random functions draw from keys, not generators.

    Element j of draw k in the block is a function of (master seed, scope, ``name``, ``index``,
    rank, k, j): the same on the CPU and on every GPU, eager or compiled, whatever was drawn before.
    torch's generators are neither read nor moved. A block that is entered again in the same scope
    draws the same again: give each step its ``reseed``, or each pass its ``index``. Of nested
    blocks the innermost one draws. A block belongs to the thread that enters it.

    ``torch.rand``, ``randn``, ``randint``, ``normal``, ``bernoulli``, ``randperm``,
    ``multinomial``, their ``_like`` and in-place forms, the functions of dropout and what calls
    these, as ``torch.distributions``, draw from keys; docs/same-noise.md has the table. A call with
    ``generator=`` is as it was.

    Args:
        name: what the numbers are for; the key of draw k is that of the stream ``keyed/<name>``.
        index: [0, 2**39), for blocks of one name; the index of the key is ``index << 24 | k``.
        distinct_over: the dimensions of the mesh over which ranks draw different numbers; ``()`` is
            the same on all. None: what ``init`` says of the name, else each rank has its own. A
            ``DTensor`` is one tensor, whatever it says.
        check: name the operator, as an error, that draws from torch's generators inside. Slower.

    Raises:
        TypeError, ValueError: an argument is invalid.
        RuntimeError: before ``init`` or the first ``reseed``; for a function without a keyed form;
            for a draw after ``reseed`` or ``os.fork`` in the block, in a backward pass that began
            there, or in a checkpointed function outside of which the block was opened; at the end,
            if a default generator of torch has moved.

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

    def __init__(self, name: str, index: int, distinct_over: object, check: bool) -> None:
        super().__init__()
        self.index = validation.check_int(_FUNCTION, "index", index, 0, MAX_INDEX)
        self.name, self._distinct_over = name, distinct_over
        self.words = _words_of(name)
        self.rank_field = 0
        self.next: torch.Tensor | None = None  # (1,) int64: the index of the key of the next draw
        self.has_moved = False  # to another scope, since it was entered
        self.is_eager = False
        self._checker = _Checker() if check else None

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
        super().__enter__()
        return self

    def _begin_in_graph(self) -> None:
        self.rank_field = _rank_field(self.name, self._distinct_over, id(context.seeder))
        self.next = torch.full((1,), self.index << _DRAW_BITS, dtype=torch.int64, device=CPU)

    def _begin(self) -> None:
        self._streams = _streams_of(self.name, self._distinct_over)
        self.rank_field = self._streams[0].rank_field
        self.in_worker = self._streams[0].worker > 0
        self._process, self._in_backward = os.getpid(), private_torch.in_backward()
        self._checkpoint = private_torch.checkpoint_running()
        self._generators = _states()
        array = np.array([self.index << _DRAW_BITS], np.int64)
        self._next = memoryview(array)
        with torch.inference_mode(False):
            self.next = torch.from_numpy(array)
        self.is_eager, self.is_over = True, False
        self._thread = threading.get_ident()
        _open.add(self)
        if self._checker is not None:
            self._checker.__enter__()

    def __exit__(self, error: object = None, *rest: object) -> None:
        if not self.is_eager:
            super().__exit__(error, *rest)
            return
        self.is_over = True
        if self._checker is not None:
            self._checker.__exit__(error, *rest)
        is_innermost = private_torch.innermost_function_mode() is self
        private_torch.leave_function_mode(self)
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
        elif not self.has_moved and self._process == os.getpid():
            for before, now in zip(self._generators, _states(), strict=False):
                if not torch.equal(before, now):
                    wrong = (
                        "must draw all from keys, but a generator of torch has moved: an operator "
                        "in C++ or another thread drew from it; keyed(..., check=True) names the "
                        "operator"
                    )
        if wrong:
            raise RuntimeError(f"fastseed.{_FUNCTION}: the block {self.name!r} {wrong}")

    # ------------------------------------------------------------ draws

    def __torch_function__(
        self, func: object, types: object, args: Arguments = (), kwargs: Keywords | None = None
    ) -> object:
        handler = DRAWS.get(func)
        if handler is None:
            return func(*args, **kwargs) if kwargs else func(*args)
        kwargs = kwargs or {}
        if kwargs.get("generator") is None:
            return handler(self, func, *args, **kwargs)
        found = func(*args, **kwargs)
        if self.is_eager:
            self._generators = _states()  # it may be one of torch's own
        return found

    def draw(
        self, fill: Fill, tensor: torch.Tensor, *parameters: object, **named: object
    ) -> torch.Tensor:
        """Fill a tensor from the key of the next draw."""
        fill(tensor, self.next_key(tensor), *parameters, **named)
        self.count()
        return tensor

    def next_key(self, tensor: torch.Tensor) -> Key:
        """Return the key of the next draw, which is of this tensor or like it."""
        is_shared = layout.is_dtensor(tensor)
        if torch.compiler.is_compiling():
            return self._key_in_graph(SHARED if is_shared else self.rank_field)
        self._check_place()
        if tensor.is_cuda and torch.cuda.is_current_stream_capturing():
            return self._key_in_capture(tensor.device, SHARED if is_shared else self.rank_field)
        return self._streams[is_shared].key(self._next[0])

    def count(self) -> None:
        """Go on to the next draw."""
        assert self.next is not None
        if torch.compiler.is_compiling():
            self.next.add_(1)
        else:
            self._next[0] += 1

    def _key_in_graph(self, rank_field: int) -> torch.Tensor:
        if not scope_tensors.process_state.has_keys:
            raise RuntimeError(f"fastseed.{_FUNCTION}: call fastseed.reseed(task, epoch) first")
        if self.has_moved:
            raise RuntimeError(_moved(self.name))
        scope = scope_tensors.on_device(_FUNCTION, CPU)
        keys = torch.empty(3, dtype=torch.uint64, device=CPU)
        layer_key(keys, scope, self.next, *self.words, 0, 1, 0, rank_field)
        return keys[:2]

    def _key_in_capture(self, device: torch.device, rank_field: int) -> torch.Tensor:
        """Return a key for a CUDA graph: of this draw, in the scope of each replay."""
        keys = torch.empty(3, dtype=torch.uint64, device=device)
        zero = torch.zeros(1, dtype=torch.int64, device=device)
        scope = scope_tensors.on_device(_FUNCTION, device)
        layer_key(keys, scope, zero, *self.words, self._next[0], 0, 0, rank_field)
        return keys[:2]

    def _check_place(self) -> None:
        """RuntimeError where a draw of this block could not be repeated."""
        wrong = ""
        if self.has_moved:
            wrong = _moved(self.name)
        elif self._process != os.getpid():
            wrong = "os.fork was called in the block: open one in the child"
        elif private_torch.in_backward() and not self._in_backward:
            wrong = (
                "the backward pass draws in a block that was opened outside of it: open the block "
                "inside the checkpointed function, or inside backward"
            )
        elif private_torch.checkpoint_running() != self._checkpoint:
            wrong = (
                "a checkpointed function draws in a block that was opened outside of it, and its "
                "recomputation would run without the block: open the block inside the function"
            )
        if wrong:
            raise RuntimeError(f"fastseed.{_FUNCTION}: in the block {self.name!r}, {wrong}")


class _Checker(TorchDispatchMode):
    """Names the operator that moves a default generator."""

    def __torch_dispatch__(
        self, func: OpOverload, types: object, args: Arguments = (), kwargs: Keywords | None = None
    ) -> object:
        kwargs = kwargs or {}
        if (
            torch.Tag.nondeterministic_seeded not in func.tags
            or kwargs.get("generator") is not None
        ):
            return func(*args, **kwargs)
        before = _states()
        found = func(*args, **kwargs)
        if not all(map(torch.equal, before, _states())):
            raise RuntimeError(
                f"fastseed.{_FUNCTION}: {func} drew from torch's generator, where Python calls no "
                "function that has a keyed form"
            )
        return found


def _states() -> list[torch.Tensor]:
    """Return the states of torch's default generators."""
    states = [torch.default_generator.get_state()]
    if torch.cuda.is_initialized() and not torch.cuda.is_current_stream_capturing():  # type: ignore[no-untyped-call]
        states += [generator.get_state() for generator in torch.cuda.default_generators]
    return states


def _moved(name: str) -> str:
    return f"the job was moved to another scope: leave the block {name!r} before fastseed.reseed"


def _streams_of(name: str, distinct_over: object) -> tuple[streams.Stream, streams.Stream]:
    """Return the stream of this rank, and the one that all ranks share."""
    full, worker = f"keyed/{name}", context.worker_place
    if worker is not None:
        if distinct_over not in (None, ()):
            rule = "None or () in a DataLoader worker"
            raise validation.value_error(_FUNCTION, "distinct_over", rule, distinct_over)
        rank_field = worker.rank_field if distinct_over is None else SHARED
        own = streams.stream_in(worker.scope, full, rank_field, worker.number)
        return own, own._replace(rank_field=SHARED)
    context.refuse_worker(_FUNCTION, "pass worker_init_fn=fastseed.data.worker_init_fn to it")
    seeder = context.current(_FUNCTION)
    scopes.require_keys(_FUNCTION, seeder.scheme)
    if seeder.scope is None:
        raise RuntimeError(f"fastseed.{_FUNCTION}: call fastseed.reseed(task, epoch) first")
    rank_field = seeder._rank_fields.of_block(_FUNCTION, name, distinct_over)
    own, shared = (
        streams.stream_in(seeder._scope_key(field, seeder.scope), full, field)
        for field in (rank_field, SHARED)
    )
    return own, shared


@private_torch.answer_at_trace
def _words_of(name: str) -> tuple[int, int]:
    """Return the words that the derivation takes of a name, which compiled code cannot hash."""
    private_torch.show_to_modes(frozenset(DRAWS))
    validation.check_text(_FUNCTION, "name", name)
    low, high = streams.name_words(f"keyed/{name}")
    return signed(low), signed(high)


@private_torch.answer_at_trace
def _rank_field(name: str, distinct_over: object, seeder_id: int) -> int:
    """Return the rank field of a block in compiled code, which guards who the seeder is."""
    return _streams_of(name, distinct_over)[0].rank_field


_open: set[KeyedBlock] = set()
"""The blocks of all threads that are open, or whose end was interrupted."""


def _move() -> None:
    """Let open blocks know that the scope is another one now."""
    for block in tuple(_open):
        block.has_moved = True


def _end_what_was_interrupted() -> None:
    """End the blocks of this thread whose end was interrupted."""
    for block in tuple(_open):
        if block.is_over and block._thread == threading.get_ident():
            private_torch.leave_function_mode(block)
            _open.discard(block)


context.observe_scope(_move)
context.stale_modes.append(_end_what_was_interrupted)
