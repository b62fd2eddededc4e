"""Which rank has which slots, and what ``SlotGradients`` asks of a way to collect gradients."""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any, NamedTuple, TypeAlias

import torch
import torch.distributed as dist
from torch import nn

from .._backend import private_torch
from .._utils import validation
from ..data.layout import own_slots
from .peers import FUNCTION, Peers

Rows: TypeAlias = list[tuple[object, ...]]


class SlotPlan(NamedTuple):
    """Which rank has which slots, and which sums of them it sends when.

    With ``deal`` rank r of w has slot j w + r in micro-step j, if below V, and sends each leaf.
    With ``blocks`` it has neighbouring slots, and sends the sums of the complete subtrees inside
    its block after the last one. An empty block has one micro-step, without a slot.
    """

    slots: int  # V
    rank: int = 0  # r, in the group
    ranks: int = 1  # w
    group: dist.ProcessGroup | None = None  # None in a job of one process
    peers: Peers = Peers(None)  # how they wait for each other
    assignment: str = "deal"

    @property
    def own(self) -> range:
        return own_slots(self.slots, self.rank, self.ranks, self.assignment)

    @property
    def micro_steps(self) -> int:
        if self.assignment == "blocks":
            return max(1, len(self.own))
        return -(-self.slots // self.ranks)

    def slot(self, micro_step: int) -> int | None:
        """Return this rank's slot; None where it has none, in the last micro-step."""
        own = self.own
        return own[micro_step] if micro_step < len(own) else None

    def exchange(self, micro_step: int) -> tuple[tuple[int, ...], ...]:
        """Return the leaves of each sum that each rank sends after a micro-step.

        Rank after rank, these are sums of complete subtrees in the order of the slots; () where
        the ranks send nothing.
        """
        if self.assignment == "blocks":
            is_last = micro_step == self.micro_steps - 1
            return _subtrees_of_blocks(self.slots, self.ranks) if is_last else ()
        senders = min(self.ranks, self.slots - micro_step * self.ranks)
        return ((1,),) * senders + ((),) * (self.ranks - senders)


@functools.lru_cache(64)
def _subtrees_of_blocks(slots: int, ranks: int) -> tuple[tuple[int, ...], ...]:
    blocks = (own_slots(slots, rank, ranks, "blocks") for rank in range(ranks))
    return tuple(tuple(_subtrees(block)) for block in blocks)


def _subtrees(block: range) -> Iterator[int]:
    """Yield the leaves of the largest complete subtrees that cover a block, in their order."""
    first, end = block.start, block.stop
    while first < end:
        leaves = 1 << (end - first).bit_length() - 1
        if first:
            leaves = min(leaves, first & -first)  # a subtree begins at a multiple of its leaves
        yield leaves
        first += leaves


class Collector:
    """Takes the gradient of each slot out of the model, and leaves the mean at the end of a step.

    The calls of a step, on every rank: ``begin``; ``start`` and ``collect`` for each micro-step,
    around the passes of its slot; ``check``, ``used``, ``finish``. An error or a ``break`` ends the
    step by ``discard``. Sums are those of ``TreeSum``.
    """

    needs_every_rank = False
    """Whether a rank without a slot runs the passes all the same, because they hold collectives."""
    replicas: dist.ProcessGroup | None = None
    """The ranks that have the same shards of parameters."""
    order = 0
    """64 bits that say which collectives the passes of this rank ran in the step."""

    def __init__(self, model: nn.Module, plan: SlotPlan) -> None:
        self._model, self._plan = model, plan
        named = {name: p for name, p in model.named_parameters() if p.requires_grad}
        if not named:
            rule = "a module with parameters that require a gradient"
            raise validation.value_error(FUNCTION, "model", rule, type(model).__name__)
        self.names, self.parameters = list(named), list(named.values())
        self._known = self._fingerprint()
        self._written: list[tuple[str, torch.Tensor, int]] = []  # versions at the start of a step
        self._used = [False] * len(self.names)
        self._undo = contextlib.ExitStack()  # what this object did to the model
        weakref.finalize(self, self._undo.close)

    def _fingerprint(self) -> Rows:
        """Return what may not change between steps."""
        return [
            (name, id(p), p.shape, p.dtype, p.device)
            for name, p in self._model.named_parameters()
            if p.requires_grad
        ]

    def _after_gradient(self, tensor: torch.Tensor, hook: Callable[..., None]) -> None:
        """Call a hook after each gradient of a tensor, as long as this object exists."""
        handle: Any = tensor.register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]
        self._undo.callback(handle.remove)

    def begin(self) -> None:
        """RuntimeError if the model is not the one that was given, or has gradients already."""
        check_same("parameters with gradients", self._fingerprint(), self._known)
        for name, parameter in zip(self.names, self.parameters, strict=True):
            if parameter.grad is not None:
                raise RuntimeError(
                    f"fastseed.{FUNCTION}.step: {name!r} has a gradient at the start of the step, "
                    "which would be lost: call optimizer.zero_grad(), with set_to_none=True, first"
                )
        self._used = [False] * len(self.names)
        named = self._model.named_parameters()
        self._written = [(name, p, private_torch.version_of(p)) for name, p in named]

    def check(self) -> None:
        """RuntimeError if parameters changed, or were written in place, since the step began."""
        check_same("parameters with gradients", self._fingerprint(), self._known)
        for name, tensor, version in self._written:
            if private_torch.version_of(tensor) != version:
                raise RuntimeError(
                    f"fastseed.{FUNCTION}.step: the parameter {name!r} must not be written in a "
                    "step: later slots of this rank would see it, and those of other ranks not; "
                    "write it after the step"
                )

    def start(self, micro_step: int) -> None:
        """Take the gradients of the next backward pass as the leaf of ``plan.slot(micro_step)``."""
        raise NotImplementedError

    def skip(self) -> None:
        """Take +0 as this slot's leaf; RuntimeError where that is too late, or not possible."""
        raise RuntimeError(
            "fastseed.elastic.Slot.skip: must not be called under fully_shard, whose ranks run "
            "the passes of a micro-step together: leave a bad sample out before the step, or "
            "multiply the loss by 0"
        )

    def collect(self) -> bool:
        """Send the rest of the leaves of a micro-step; False without a backward pass."""
        raise NotImplementedError

    def used(self) -> list[bool]:
        """Return for each parameter whether it had a gradient in a slot of this rank's step."""
        return self._used

    def finish(self, divisor: Fraction, used: list[bool]) -> None:
        """Leave the sum of all leaves, divided once, in parameters that some rank has ``used``."""
        raise NotImplementedError

    def discard(self) -> None:
        """Forget the leaves of a step that is left, so that no parameter has a gradient."""
        for parameter in self.parameters:
            parameter.grad = None


def check_same(kind: str, found: Rows, known: Rows) -> None:
    """RuntimeError that names what changed between two lists of (name, ...)."""
    changed = sorted({str(row[0]) for row in {*found} ^ {*known}})
    if changed:
        raise RuntimeError(
            f"fastseed.{FUNCTION}.step: the {kind} must be those of the model that was given, but "
            f"{changed[:3]} were added, removed, replaced, frozen or moved since: make a new "
            "SlotGradients, on every rank"
        )


def weak(method: Callable[..., None], *own: object) -> Callable[..., None]:
    """Return a hook that calls a method with ``own``, and does not keep its object alive."""
    this = weakref.WeakMethod(method)

    def hook(*given: object) -> None:
        if (found := this()) is not None:
            found(*own, *given)

    return hook


def check_dense(name: str, gradient: torch.Tensor) -> None:
    if gradient.layout != torch.strided:
        raise RuntimeError(
            f"fastseed.{FUNCTION}: the gradient of {name!r} must be dense, got "
            f"{gradient.layout}: make the module with sparse=False"
        )
