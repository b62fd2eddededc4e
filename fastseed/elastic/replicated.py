"""Gradients of a model of which every rank has all of the parameters."""

from __future__ import annotations

import threading
import weakref
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import get_gradient_edge

from .._utils import StateDict, validation
from ..random.layout import is_dtensor
from .arguments import FUNCTION
from .collector import SlotPlan
from .exchange import gather_means, make_buckets
from .parameters import TrainableParameters


class ReplicatedCollector:
    """Collects gradients in buckets, which are sent while the backward pass still runs."""

    needs_every_rank = False

    def __init__(self, model: nn.Module, plan: SlotPlan, bucket_bytes: int) -> None:
        self._plan = plan
        self._trainable = TrainableParameters(model)
        self._names, self._parameters = self._trainable.names, self._trainable.tensors
        for name, parameter in zip(self._names, self._parameters, strict=True):
            if is_dtensor(parameter) or not parameter.is_floating_point():
                rule = f"of real numbers that every rank has whole (here: {name!r})"
                raise validation.value_error(FUNCTION, "model", rule, parameter)
        leaves = [parameter.detach() for parameter in self._parameters]
        self._buckets, self._where = make_buckets(leaves, plan, bucket_bytes)
        self._lock = threading.Lock()  # hooks run in a thread for each device
        self._micro_step: int | None = None
        self._used = [False] * len(self._parameters)
        self._missing: list[set[int]] = []  # the parameters of each bucket without a leaf so far
        self._sent = 0  # buckets of this micro-step
        self._nodes = [get_gradient_edge(p).node for p in self._parameters]
        handles = [handle for i in range(len(self._nodes)) for handle in self._hook(i)]
        weakref.finalize(self, _remove, handles)

    def _hook(self, index: int) -> list[Any]:
        """Call this object before and after a gradient is added to a parameter."""
        this = weakref.ref(self)

        def check(_: object) -> None:
            if (collector := this()) is not None:
                collector._check(index)

        def take(_: object) -> None:
            if (collector := this()) is not None:
                collector._take(index)

        parameter = self._parameters[index]
        return [
            self._nodes[index].register_prehook(check),
            parameter.register_post_accumulate_grad_hook(take),  # type: ignore[no-untyped-call]
        ]

    def describe(self) -> StateDict:
        """See ``Collector``."""
        return self._trainable.describe()

    def begin(self) -> None:
        """See ``Collector``."""
        self._trainable.check()
        self._used = [False] * len(self._parameters)

    def start(self, micro_step: int) -> None:
        """See ``Collector``."""
        self._micro_step, self._sent = micro_step, 0
        self._missing = [set(range(len(bucket))) for bucket in self._buckets]

    def _check(self, index: int) -> None:
        """RuntimeError before a gradient is added where none is expected."""
        name = self._names[index]
        if self._micro_step is None or self._plan.slot(self._micro_step) is None:
            raise RuntimeError(
                f"fastseed.{FUNCTION}: a backward pass reaches {name!r} outside of a slot: "
                "backward() belongs into the loop over gradients.step(batches), and a model has "
                "one SlotGradients at a time"
            )
        bucket, place = self._where[index]
        if place not in self._missing[bucket]:
            raise RuntimeError(
                f"fastseed.{FUNCTION}: {name!r} gets a second gradient in slot "
                f"{self._plan.slot(self._micro_step)}, which has one backward pass: add the losses "
                "first, and checkpoint a module that is used several times with use_reentrant=False"
            )

    def _take(self, index: int) -> None:
        """Write a gradient to its bucket, and send the buckets that are complete, in order."""
        parameter = self._parameters[index]
        gradient, parameter.grad = parameter.grad, None
        assert gradient is not None
        if gradient.layout != torch.strided:
            raise RuntimeError(
                f"fastseed.{FUNCTION}: the gradient of {self._names[index]!r} must be dense, got "
                f"{gradient.layout}: make the module with sparse=False"
            )
        bucket, place = self._where[index]
        with self._lock:
            self._buckets[bucket].write(place, gradient)
            self._missing[bucket].discard(place)
            self._used[index] = True
            while self._sent < len(self._buckets) and not self._missing[self._sent]:
                self._send()

    def _send(self) -> None:
        assert self._micro_step is not None
        self._buckets[self._sent].send(self._micro_step)
        self._sent += 1

    def collect(self) -> None:
        """See ``Collector``."""
        assert self._micro_step is not None
        slot = self._plan.slot(self._micro_step)
        if slot is not None and all(
            len(m) == len(b) for m, b in zip(self._missing, self._buckets, strict=True)
        ):
            raise RuntimeError(f"fastseed.{FUNCTION}.step: slot {slot} has no backward pass")
        while self._sent < len(self._buckets):
            for place in self._missing[self._sent] if slot is not None else ():
                self._buckets[self._sent].write(place, None)
            self._send()
        self._micro_step = None

    def used(self) -> list[bool]:
        """See ``Collector``."""
        return self._used

    def finish(self, divisor: float, used: list[bool]) -> None:
        """See ``Collector``."""
        self._trainable.check_unchanged()
        gather_means(self._buckets, divisor)
        for index, parameter in enumerate(self._parameters):
            if used[index]:
                bucket, place = self._where[index]
                parameter.grad = self._buckets[bucket].view(place).to(parameter.dtype)

    def discard(self) -> None:
        """See ``Collector``."""
        self._micro_step = None
        for bucket in self._buckets:
            bucket.discard()
        for parameter in self._parameters:
            parameter.grad = None


def _remove(handles: list[Any]) -> None:
    for handle in handles:
        handle.remove()
