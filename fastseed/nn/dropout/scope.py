"""The scope, the rows and the label, on which the key of a layer depends besides its name.

The scope belongs to the process, rows and label to a thread. Scope and first row lie in tensors on
each device that ``reseed`` and the blocks write in place, for compiled models and captured graphs.
"""

from __future__ import annotations

import contextvars
import threading
import weakref
from typing import Any, NamedTuple

import torch

from ..._backend import native, private_torch
from ..._backend.compile import warn_if_exporting
from ..._backend.reference import scalar
from ..._backend.reference.scalar import signed
from ..._utils import validation
from ..._utils.log import logger
from ...derivation import context
from ...random import scope_tensors
from ...random.scope_tensors import CPU

_CLASS = "nn.Dropout"


class LayerName:
    """The name of a layer, and the words that the derivation takes of it.

    The calls of one forward have one ``use``, of which a recomputation repeats some in their order.
    """

    def __init__(self, name: str, number: int = 0) -> None:
        self.use = f"dropout/{validation.check_text('nn.Dropout', 'name', name)}"
        self.name = f"{name}.{number}" if number else name
        # kept, because compiled code cannot hash
        self.words = tuple(map(signed, scalar.name_words(f"dropout/{self.name}")))

    def __repr__(self) -> str:
        return f"LayerName({self.name!r})"


class _ProcessState:
    """The state of the process: one object, whose attributes compiled code guards."""

    def __init__(self) -> None:
        self.data_ranks = 0  # of the seeder; 0 where there is no scope to take keys from
        self.used: dict[tuple[str, int], list[_Use]] = {}
        self.recomputed: set[tuple[str, int, _Use]] = set()  # where no one knows the forward pass
        self.threads_in_blocks: list[ThreadScope] = []
        self.last_thread: ThreadScope | None = None  # of the last block, or reseed with a GPU


process_state = _ProcessState()


def _follow_scope() -> None:
    """Take over the new scope, for the next use of each layer."""
    process_state.used, process_state.recomputed = {}, set()
    seeder = context.seeder
    has_keys = scope_tensors.process_state.has_keys
    process_state.data_ranks = seeder.data_world_size if seeder is not None and has_keys else 0
    if scope_tensors.process_state.current is not None:
        this_thread.scope.first_row(scope_tensors.process_state.current)
        process_state.last_thread = this_thread.scope


class RowRange:
    """Which rows of the global batch the inputs in a block hold."""

    def __init__(self, start: int, total: int, step: int, count: int | None) -> None:
        self.start, self.total, self.step, self.count = start, total, step, count


class ThreadScope:
    """The blocks that a thread is in."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self.rows: RowRange | None = None
        self.label_index = 0  # without a label
        with torch.inference_mode(False):
            first_row = torch.zeros(1, dtype=torch.int64, device=CPU)
        self.first_rows: dict[torch.device, torch.Tensor] = {CPU: first_row}

    def enter(self, block: Block) -> None:
        self.blocks.append(block)
        self._choose()

    def leave(self, block: Block) -> None:
        for i in reversed(range(len(self.blocks))):
            if self.blocks[i] is block:
                del self.blocks[i]
                break
        self._choose()

    def _choose(self) -> None:
        rows, label_index = None, 0
        for block in self.blocks:
            if isinstance(block.value, RowRange):
                rows = block.value
            else:
                label_index = block.value
        self.rows, self.label_index = rows, label_index
        for device, held in tuple(scope_tensors.process_state.devices.items()):
            if held.is_usable:
                self.first_row(device).fill_(self._start())
        threads = process_state.threads_in_blocks
        if self.blocks:
            process_state.last_thread = self
            if self not in threads:
                threads.append(self)
        elif self in threads:
            threads.remove(self)

    def _start(self) -> int:
        return 0 if self.rows is None else self.rows.start

    def first_row(self, device: torch.device) -> torch.Tensor:
        """Return the tensor with the first row on a device, (1,) int64."""
        found = self.first_rows.get(device)
        if found is None:
            scope_tensors.check_not_compiling(_CLASS, device)
            with torch.inference_mode(False):
                found = torch.full((1,), self._start(), dtype=torch.int64, device=device)
            self.first_rows[device] = found
        return found


class _Thread(threading.local):
    """What belongs to the thread that reads it."""

    def __init__(self) -> None:  # not in the class: compiled code guards where attributes are
        self.scope = ThreadScope()
        self.calls: Any = None  # fastseed.nn.dropout.calls.Forward, of the innermost one
        # Autograd runs the backward pass of an accelerator in threads that Python did not start.
        self.is_foreign = isinstance(threading.current_thread(), threading._DummyThread)


this_thread = _Thread()
_scope_of_thread: contextvars.ContextVar[ThreadScope] = contextvars.ContextVar("scope_of_thread")


class Block:
    """A ``with`` block that gives layers their rows, or the index of their label."""

    value: RowRange | int

    def __enter__(self) -> None:
        scope = this_thread.scope
        try:
            scope.enter(self)
        except BaseException:  # an interrupt, after which there is no block
            scope.leave(self)
            raise

    def __exit__(self, *error: object) -> None:
        this_thread.scope.leave(self)


def thread_scope() -> ThreadScope:
    """Return the scope that layers run in: for a thread of autograd, that of its caller."""
    scope = this_thread.scope
    if this_thread.is_foreign and not scope.blocks:
        return _scope_of_caller()
    if not torch.compiler.is_compiling():
        _scope_of_thread.set(scope)
    return scope


def _scope_of_caller() -> ThreadScope:
    """Return the scope of the thread for which this one works, which Python did not start."""
    if not torch.compiler.is_compiling():
        backward = private_torch.context_of_backward()
        caller = None if backward is None else backward.get(_scope_of_thread)
        if caller is not None:  # else the caller is such a thread itself
            return caller
    threads = process_state.threads_in_blocks
    if len(threads) > 1:
        raise RuntimeError(
            "fastseed.nn.Dropout: one thread at a time must be in blocks of fastseed.nn.rows or "
            "label in a backward pass of compiled code, which cannot see its caller"
        )
    if threads:
        return threads[0]
    return this_thread.scope if process_state.last_thread is None else process_state.last_thread


def has_values(tensor: torch.Tensor) -> bool:
    """Return whether a new tensor has values: under ``FakeTensorMode`` none has."""
    is_graph = torch.compiler.is_compiling() or private_torch.is_traced()
    return is_graph or not private_torch.is_fake(tensor)


_follow_scope()  # a name may be loaded at its first use, after reseed
context.observe_scope(_follow_scope)


class _Use(NamedTuple):
    """Which rows a layer was used for, and the size of a row."""

    taken: range
    row_elements: int


def check_use(layer: LayerName, label_index: int, taken: range, row_elements: int) -> None:
    """RuntimeError where a layer takes rows again in one scope, or a backward pass takes others."""
    seeder = context.seeder
    if seeder is not None:
        context.warn_in_child(seeder.place, "nn.Dropout")
    uses = process_state.used.setdefault((layer.name, label_index), [])
    mine = _Use(taken, row_elements)
    if private_torch.in_backward():
        again = (layer.name, label_index, mine)
        if mine in uses and again not in process_state.recomputed:
            process_state.recomputed.add(again)
            return
        raise RuntimeError(
            f"fastseed.nn.Dropout: {layer.name!r} is used in a backward pass for {_named(taken)}, "
            "which it was not used for in this scope, or twice: a checkpoint must keep its "
            "function on ctx before it calls it, as torch.utils.checkpoint does"
        )
    uses.append(mine)  # before the check: of two threads the second one sees the first one's
    for other in tuple(uses):
        if other is mine:
            return
        if _overlap(taken, other.taken):
            break
    uses.remove(mine)
    raise RuntimeError(
        f"fastseed.nn.Dropout: {layer.name!r} is used a second time in this scope for "
        f"{_named(taken)}, and its mask would repeat: call fastseed.reseed(task, epoch, "
        "step=...) before each step, or wrap a second pass in `with fastseed.nn.label(...)`, and "
        "other rows of the batch in `with fastseed.nn.rows(start, total)`"
    )


_traced: weakref.WeakKeyDictionary[object, set[tuple[str, int]]] = weakref.WeakKeyDictionary()
"""The names and labels of the layers in each graph that ``torch.compile`` traces."""


@private_torch.answer_at_trace
def _repeats_in_graph(name: str, label_index: int) -> str:
    """Note a layer of the graph that is being traced; return what is wrong if it was there."""
    warn_if_exporting("nn.Dropout")
    layers = _traced.setdefault(private_torch.graph_being_traced(), set())
    if (name, label_index) not in layers:
        layers.add((name, label_index))
        return ""
    wrong = (
        f"fastseed.nn.Dropout: {name!r} is used twice in one compiled graph with one mask: use a "
        "layer of another name for the second"
    )
    logger.warning(wrong)  # also where torch goes on after the error, in two graphs
    return wrong


def check_use_in_graph(layer: LayerName, label_index: int) -> None:
    """RuntimeError, and a warning, where a compiled graph uses a layer twice."""
    if wrong := _repeats_in_graph(layer.name, label_index):
        raise RuntimeError(wrong)


def _check_label(keys: torch.Tensor, label_index: int) -> None:
    """RuntimeError where an exported program, whose label is a constant, runs in another one."""
    if thread_scope().label_index != label_index:
        raise RuntimeError(
            "fastseed.nn.label: an exported program must run with the label of its export, which "
            "its masks have: leave the block, or export the model in one of this label too"
        )


native.library.define("check_label(Tensor(a0!) keys, int label_index) -> ()")  # type: ignore[no-untyped-call]
native.library.impl("check_label", _check_label, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
torch.library.register_fake("fastseed::check_label", lambda *_: None, lib=native.library)


def _named(taken: range) -> str:
    return f"rows {taken.start} to {taken[-1]}" if taken else "no rows"


def _overlap(a: range, b: range) -> bool:
    if not a or not b or a[-1] < b.start or b[-1] < a.start:
        return False
    if a.step == b.step:
        return (a.start - b.start) % a.step == 0
    return any(i in b for i in a)
