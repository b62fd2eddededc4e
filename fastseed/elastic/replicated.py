"""Gradients of a model of which every rank has all of the parameters."""

from __future__ import annotations

import threading
from fractions import Fraction

import torch
from torch import nn
from torch.autograd.graph import get_gradient_edge

from .._utils import validation
from ..random.layout import is_dtensor
from .collector import Collector, SlotPlan, check_dense, weak
from .exchange import gather_means, make_buckets
from .peers import FUNCTION


class ReplicatedCollector(Collector):
    """Collects gradients in buckets, which are sent while the backward pass still runs."""

    def __init__(self, model: nn.Module, plan: SlotPlan, bucket_bytes: int) -> None:
        super().__init__(model, plan)
        for name, parameter in zip(self.names, self.parameters, strict=True):
            if is_dtensor(parameter) or not parameter.is_floating_point():
                rule = f"of real numbers that every rank has whole (here: {name!r})"
                raise validation.value_error(FUNCTION, "model", rule, parameter)
        leaves = [parameter.detach() for parameter in self.parameters]
        self._buckets, self._where = make_buckets(leaves, plan, bucket_bytes)
        self._lock = threading.Lock()  # hooks run in a thread for each device
        self._micro_step = 0
        self._slot: int | None = None  # that gets gradients now
        self._missing: list[set[int]] = []  # the parameters of each bucket without a leaf so far
        self._sent = 0  # buckets of this micro-step
        self._is_skipped = False
        self._nodes = [get_gradient_edge(p).node for p in self.parameters]
        for index, parameter in enumerate(self.parameters):
            check = weak(self._check, index)
            self._undo.callback(self._nodes[index].register_prehook(check).remove)
            self._after_gradient(parameter, weak(self._take, index))

    def start(self, micro_step: int) -> None:
        self._micro_step, self._slot = micro_step, self._plan.slot(micro_step)
        self._sent, self._is_skipped = 0, False
        self._missing = [set(range(len(bucket))) for bucket in self._buckets]

    def _is_empty(self) -> bool:
        return sum(map(len, self._missing)) == len(self.parameters)

    def skip(self) -> None:
        if not self._is_empty():
            raise RuntimeError(
                "fastseed.elastic.Slot.skip: must be called before the backward pass of the slot"
            )
        self._is_skipped = True

    def _check(self, index: int, _: object) -> None:
        """RuntimeError before a gradient is added where none is expected."""
        name = self.names[index]
        if self._slot is None:
            raise RuntimeError(
                f"fastseed.{FUNCTION}: a backward pass reaches {name!r} outside of a slot: "
                "backward() belongs into the loop over gradients.step(batches), or into "
                "gradients.slot(), and a model has one SlotGradients at a time"
            )
        if self._is_skipped:
            raise RuntimeError(
                f"fastseed.{FUNCTION}: a backward pass reaches {name!r} in slot {self._slot}, "
                "which is skipped"
            )
        bucket, place = self._where[index]
        if place not in self._missing[bucket]:
            raise RuntimeError(
                f"fastseed.{FUNCTION}: {name!r} gets a second gradient in slot {self._slot}, which "
                "has one backward pass: add the losses first, and checkpoint a module that is used "
                "several times with use_reentrant=False"
            )

    def _take(self, index: int, parameter: torch.Tensor) -> None:
        """Write a gradient to its bucket, and send the buckets that are complete, in order."""
        gradient, parameter.grad = parameter.grad, None
        if gradient is None:
            raise RuntimeError(
                f"fastseed.{FUNCTION}: a hook on {self.names[index]!r} must leave its gradient, "
                "which is that of one slot: call the optimizer and zero_grad() after the step"
            )
        check_dense(self.names[index], gradient)
        bucket, place = self._where[index]
        with self._lock:  # also the order of collectives, which is that of the buckets on all ranks
            self._buckets[bucket].write(place, gradient)
            self._missing[bucket].discard(place)
            self._used[index] = True
            while self._sent < len(self._buckets) and not self._missing[self._sent]:
                self._send()

    def _send(self) -> None:
        self._buckets[self._sent].send(self._micro_step)
        self._sent += 1

    def collect(self) -> bool:
        """Send the remaining buckets, with leaves of +0 for parameters without a gradient."""
        has_slot = self._slot is not None
        if has_slot and not self._is_skipped and self._is_empty():
            return False
        while self._sent < len(self._buckets):
            for place in self._missing[self._sent] if has_slot else ():
                self._buckets[self._sent].write(place, None)
            self._send()
        self._slot = None
        return True

    def finish(self, divisor: Fraction, used: list[bool]) -> None:
        gather_means(self._buckets, divisor)
        for index, parameter in enumerate(self.parameters):
            if used[index]:
                bucket, place = self._where[index]
                parameter.grad = self._buckets[bucket].view(place).to(parameter.dtype)

    def discard(self) -> None:
        super().discard()
        self._slot = None
        for bucket in self._buckets:
            bucket.discard()
