"""Buffers that a forward pass changes, such as the statistics of BatchNorm."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import nn

from .._backend import private_torch
from .._utils import validation
from .collector import Rows, SlotPlan, describe
from .exchange import Bucket, Place, gather_means, make_buckets
from .peers import FUNCTION

_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


class _Buffer(NamedTuple):
    """A buffer of the model, which a forward pass may write or replace."""

    label: str
    owner: nn.Module
    name: str
    tensor: torch.Tensor  # in the model between the slots

    @property
    def now(self) -> torch.Tensor | None:
        return private_torch.buffers_of(self.owner).get(self.name)


class SlotBuffers:
    """Gives each slot the values at the start of the step, and leaves the mean of what slots left.

    The mean is that of ``TreeSum``, without the weights of the slots, for buffers of floating point
    numbers that changed. Other buffers, such as counters, must have one value after every slot.

    Buffers that changed in an earlier step are sent after each slot. Those that change for the
    first time are kept until the end of the step, and sent then; constants are never sent.
    """

    def __init__(self, model: nn.Module, plan: SlotPlan, bucket_bytes: int) -> None:
        self._model, self._plan, self._bucket_bytes = model, plan, bucket_bytes
        self.device = next(model.parameters()).device
        """The device on which flags are added over ranks."""
        found = _find(model)
        self._floats = [buffer for buffer in found if buffer.tensor.dtype in _FLOATS]
        self._others = [buffer for buffer in found if buffer.tensor.dtype not in _FLOATS]
        self._all = self._floats + self._others
        self._at_start = [buffer.tensor.detach().clone() for buffer in self._all]
        self._buckets: list[Bucket] = []
        self._where: dict[int, Place] = {}  # of the floats that are sent after each slot
        self._kept: list[dict[int, torch.Tensor]] = []  # what else changed, in each micro-step
        self._changed = torch.zeros(0)  # by a slot of this rank, for each buffer
        self._first: list[torch.Tensor] = []  # values of the others after the first slot
        self._differs = torch.zeros(0)  # whether another slot left another value there

    def describe(self) -> Rows:
        """Return dtype and shape of each buffer, which all ranks must have in common."""
        return [[f"buffer {buffer.label!r}", describe(buffer.tensor)] for buffer in self._all]

    def begin(self) -> None:
        """Take the values at the start of a step.

        Raises:
            RuntimeError: buffers were added, removed or replaced. Nothing has changed.
        """
        found, known = (
            {(buffer.label, id(buffer.tensor)) for buffer in buffers}
            for buffers in (_find(self._model), self._all)
        )
        if found != known:
            changed = sorted({label for label, _ in found ^ known})
            raise RuntimeError(
                f"fastseed.{FUNCTION}.step: the buffers must be those of the model that was given, "
                f"but {changed[:3]} were added, removed or replaced since: make a new "
                "SlotGradients, on every rank"
            )
        for buffer, value in zip(self._all, self._at_start, strict=True):
            value.copy_(buffer.tensor)
        self._changed = torch.zeros(len(self._all), dtype=torch.bool, device=self.device)
        self._differs = torch.zeros(len(self._others), dtype=torch.bool, device=self.device)
        self._first, self._kept = [], []

    def collect(self, micro_step: int) -> None:
        """Take or send the values that a slot has left, and restore those at the step's start.

        Raises:
            RuntimeError: a buffer has another shape, dtype or device than before.
        """
        if self._plan.slot(micro_step) is not None:
            values = [self._value(buffer) for buffer in self._all]
            for index, place in self._where.items():
                self._buckets[place.bucket].write(place.member, values[index])
            changed = self._compare(values, self._at_start)
            self._changed |= changed
            self._keep(values, changed)
            others = values[len(self._floats) :]
            if self._first:
                self._differs |= self._compare(others, self._first)
            else:
                self._first = [value.clone() for value in others]
        self.restore()
        for bucket in self._buckets:
            bucket.send(micro_step)

    def _keep(self, values: list[torch.Tensor], changed: torch.Tensor) -> None:
        """Copy the floats that changed and are not sent; it waits for the device if any may."""
        unsent = [i for i in range(len(self._floats)) if i not in self._where]
        flags = changed[unsent].tolist() if unsent else []
        self._kept.append(
            {i: values[i].clone() for i, was in zip(unsent, flags, strict=True) if was}
        )

    def restore(self) -> None:
        """Give every buffer the value at the start of the step."""
        for buffer, value in zip(self._all, self._at_start, strict=True):
            private_torch.buffers_of(buffer.owner)[buffer.name] = buffer.tensor
            if not _is_expanded(buffer.tensor):  # else it cannot be written, also by a slot
                with torch.no_grad():
                    buffer.tensor.copy_(value)

    def changed(self) -> list[bool]:
        """Return for each buffer whether a slot of this rank changed it."""
        return [bool(was) for was in self._changed.tolist()]

    def finish(self, changed: list[bool]) -> None:
        """Leave the mean, or the common value, in the buffers that changed on some rank.

        Raises:
            RuntimeError: slots left different values in a buffer of integers; on every rank.
        """
        floats, others = changed[: len(self._floats)], changed[len(self._floats) :]
        if any(others):
            self._take_others([i for i, was in enumerate(others) if was])
        if not any(floats):
            self.discard()
            return
        self._send_new([i for i, was in enumerate(floats) if was and i not in self._where])
        gather_means(self._buckets, Fraction(self._plan.slots))
        for index, place in self._where.items():
            if floats[index]:
                with torch.no_grad():
                    mean = self._buckets[place.bucket].view(place.member)
                    self._floats[index].tensor.copy_(mean)

    def _send_new(self, indices: list[int]) -> None:
        """Send what slots left in buffers that changed for the first time, from now on always."""
        tensors = [self._floats[i].tensor for i in indices]
        buckets, places = make_buckets(tensors, self._plan, self._bucket_bytes)
        for micro_step in range(self._plan.micro_steps):
            if self._plan.slot(micro_step) is not None:
                for index, place in zip(indices, places, strict=True):
                    value = self._kept[micro_step].get(index, self._at_start[index])
                    buckets[place.bucket].write(place.member, value)
            for bucket in buckets:
                bucket.send(micro_step)
        for index, place in zip(indices, places, strict=True):
            self._where[index] = place._replace(bucket=place.bucket + len(self._buckets))
        self._buckets += buckets

    def _take_others(self, indices: list[int]) -> None:
        """Take the values after slot 0, if those after all other slots are equal."""
        plan, buffers = self._plan, [self._others[i] for i in indices]
        own = self._first or self._at_start[len(self._floats) :]
        values = [own[i].clone(memory_format=torch.contiguous_format) for i in indices]
        if plan.ranks > 1:
            flat = torch.cat([_bytes(value).to(self.device) for value in values])
            plan.wait(dist.broadcast(flat, group=plan.group, group_src=0, async_op=True), flat)
            parts = torch.split(flat, [value.numel() * value.element_size() for value in values])
            for value, part in zip(values, parts, strict=True):
                _bytes(value).copy_(part)
            if self._first:
                self._differs[indices] |= self._compare(values, [own[i] for i in indices])
            differs = self._differs.to(torch.int64)
            plan.wait(dist.all_reduce(differs, group=plan.group, async_op=True), differs)
            self._differs = differs > 0
        wrong = [b.label for b, i in zip(buffers, indices, strict=True) if self._differs[i]]
        if wrong:
            raise RuntimeError(
                f"fastseed.{FUNCTION}.step: slots leave different values in the buffers "
                f"{wrong[:3]}, which have no mean: buffers that are not of floating point numbers "
                "must have one value after every slot, as a counter of steps has"
            )
        for buffer, value in zip(buffers, values, strict=True):
            buffer.tensor.copy_(value)

    def discard(self) -> None:
        """Forget the values of the slots."""
        self._kept = []
        for bucket in self._buckets:
            bucket.discard()

    def _value(self, buffer: _Buffer) -> torch.Tensor:
        """Return the value that a slot has left."""
        now, before = buffer.now, buffer.tensor
        if now is None or (now.shape, now.dtype, now.device) != (
            before.shape,
            before.dtype,
            before.device,
        ):
            raise RuntimeError(
                f"fastseed.{FUNCTION}.step: the buffer {buffer.label!r} must keep its shape, dtype "
                f"and device in a step: it was of shape {tuple(before.shape)}, and a slot left "
                f"{'None' if now is None else tuple(now.shape)}"
            )
        return now.detach()

    def _compare(self, ones: list[torch.Tensor], others: list[torch.Tensor]) -> torch.Tensor:
        """Return for each pair whether a bit differs, without waiting for the device."""
        differs = [(_bytes(a) != _bytes(b)).any() for a, b in zip(ones, others, strict=True)]
        return torch.stack([d.to(self.device) for d in differs]) if differs else self._differs[:0]


def _find(model: nn.Module) -> list[_Buffer]:
    """Return the buffers of a model, each tensor once."""
    found: dict[int, _Buffer] = {}
    for prefix, module in model.named_modules():
        for name, tensor in module.named_buffers(recurse=False):
            label = f"{prefix}.{name}" if prefix else name
            if tensor.layout != torch.strided:
                rule = f"with dense buffers, but {label!r} is not: keep it as an attribute"
                raise validation.value_error(FUNCTION, "model", rule, tensor.layout)
            found.setdefault(id(tensor), _Buffer(label, module, name, tensor))
    return list(found.values())


def _is_expanded(tensor: torch.Tensor) -> bool:
    """Return whether elements of a tensor share memory, as those of ``Tensor.expand`` do."""
    return any(
        size > 1 and step == 0 for size, step in zip(tensor.shape, tensor.stride(), strict=True)
    )


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.reshape(-1).view(torch.uint8)
