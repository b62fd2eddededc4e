"""Buffers that a forward pass changes, such as the statistics of BatchNorm."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import nn

from .._backend import private_torch
from .._backend.ops.draws import REALS
from .._backend.tensors import INTEGER_OF_SIZE, bytes_of, is_expanded
from .._utils import validation
from .collector import Rows, SlotPlan, check_same
from .exchange import gather_means, make_buckets
from .peers import FUNCTION


class _Buffer(NamedTuple):
    """A buffer of the model, which a forward pass may write or replace."""

    label: str
    owner: nn.Module
    name: str
    tensor: torch.Tensor  # in the model between the slots


class SlotBuffers:
    """Gives each slot the values at the start of the step, and leaves the mean of what slots left.

    The mean is that of ``TreeSum``, without weights. Buffers of integers, such as counters, must
    have one value after every slot. What changed is kept until the end of the step, and sent then.
    """

    def __init__(self, model: nn.Module, plan: SlotPlan, bucket_bytes: int) -> None:
        self._model, self._plan, self._bucket_bytes = model, plan, bucket_bytes
        self.device = next(model.parameters()).device  # of flags that are added over ranks
        self._all = _find(model)
        self._at_start = [buffer.tensor.detach().clone() for buffer in self._all]
        self._moving: set[int] = set()  # buffers that changed in this or an earlier step
        self._kept: list[dict[int, torch.Tensor]] = []  # what each slot of this rank left in them

    def begin(self) -> None:
        """Take the values at the start of a step; RuntimeError if there are other buffers now."""
        found: Rows = [(buffer.label, id(buffer.tensor)) for buffer in _find(self._model)]
        check_same("buffers", found, [(buffer.label, id(buffer.tensor)) for buffer in self._all])
        for buffer, value in zip(self._all, self._at_start, strict=True):
            value.copy_(buffer.tensor)
        self._kept = []

    def keep(self) -> None:
        """Keep what a slot has left; it waits for the device unless all have changed before."""
        # Versions do not serve: torch counts no writes of BatchNorm, nor those through .data.
        values = [_value(buffer) for buffer in self._all]
        constant = [i for i in range(len(values)) if i not in self._moving]
        start = [self._at_start[i] for i in constant]
        flags = self._differ([values[i] for i in constant], start)
        self._moving |= {i for i, differs in zip(constant, flags, strict=True) if differs}
        self._kept.append({i: values[i].clone() for i in self._moving})

    def restore(self, *, kept: bool = False) -> None:
        """Give back the values at the start; right after ``keep`` only those that changed."""
        for i, (buffer, value) in enumerate(zip(self._all, self._at_start, strict=True)):
            held = private_torch.buffers_of(buffer.owner)
            is_constant = kept and i not in self._moving and held[buffer.name] is buffer.tensor
            held[buffer.name] = buffer.tensor  # a slot may have put another one there
            # an expanded one cannot be written, also by a slot
            if not is_constant and not is_expanded(buffer.tensor):
                with torch.no_grad():
                    buffer.tensor.copy_(value)

    def changed(self) -> list[bool]:
        pairs = [(i, value) for kept in self._kept for i, value in kept.items()]
        start = [self._at_start[i] for i, _ in pairs]
        flags = self._differ([value for _, value in pairs], start)
        changed = {i for (i, _), differs in zip(pairs, flags, strict=True) if differs}
        return [i in changed for i in range(len(self._all))]

    def finish(self, changed: list[bool]) -> None:
        """Leave the mean, or the common value, in the buffers that changed on some rank.

        It raises RuntimeError, on every rank, if slots left different values in one without a mean.
        """
        indices = [i for i, was in enumerate(changed) if was]
        floats = [i for i in indices if self._all[i].tensor.dtype in REALS]
        others = [i for i in indices if i not in floats]
        if others:
            self._take_common_values(others)
        if floats:
            self._take_means(floats)

    @torch.no_grad()
    def _take_means(self, indices: list[int]) -> None:
        tensors = [self._all[i].tensor for i in indices]
        buckets, places = make_buckets(tensors, self._plan, self._bucket_bytes)
        where = dict(zip(indices, places, strict=True))
        for micro_step in range(self._plan.micro_steps):
            if self._plan.slot(micro_step) is not None:
                for i, (number, member) in where.items():
                    value = self._kept[micro_step].get(i, self._at_start[i])
                    buckets[number].write(member, value)
            for bucket in buckets:
                bucket.send(micro_step)
        gather_means(buckets, Fraction(self._plan.slots))
        for i, (number, member) in where.items():
            self._all[i].tensor.copy_(buckets[number].view(member))

    @torch.no_grad()
    def _take_common_values(self, indices: list[int]) -> None:
        """Compare the least and the greatest byte of all slots at each place."""
        parts = []
        for i in indices:
            values = [bytes_of(kept.get(i, self._at_start[i])) for kept in self._kept]
            ends = torch.full((2, len(bytes_of(self._at_start[i]))), 255, dtype=torch.uint8)
            if values:  # else this rank has no slot
                ends = torch.stack([torch.stack(values).amin(0), 255 - torch.stack(values).amax(0)])
            parts.append(ends.to(self.device))
        flat = torch.cat(parts, 1)
        if self._plan.ranks > 1:
            least = dist.ReduceOp.MIN
            work = dist.all_reduce(flat, least, group=self._plan.group, async_op=True)
            self._plan.peers.wait(work, flat)
        low, high = flat[0], 255 - flat[1]
        sizes = [part.shape[1] for part in parts]
        named = list(zip(indices, torch.split(low, sizes), torch.split(high, sizes), strict=True))
        wrong = [self._all[i].label for i, *ends in named if not torch.equal(*ends)]
        if wrong:
            raise RuntimeError(
                f"fastseed.{FUNCTION}.step: slots leave different values in the buffers "
                f"{wrong[:3]}, which have no mean: buffers that are not of floating point numbers "
                "must have one value after every slot, as a counter of steps has"
            )
        for i, found, _ in named:
            tensor = self._all[i].tensor
            tensor.copy_(found.clone().view(tensor.dtype).view(tensor.shape))

    def _differ(self, ones: list[torch.Tensor], others: list[torch.Tensor]) -> list[bool]:
        """Return for each pair of tensors whether a bit differs."""
        pairs = [(_integers(a), _integers(b)) for a, b in zip(ones, others, strict=True)]
        if self.device.type == "cpu":
            return [not torch.equal(a, b) for a, b in pairs]
        flags = [(a != b).any().to(self.device) for a, b in pairs]
        return torch.stack(flags).tolist() if flags else []


def _value(buffer: _Buffer) -> torch.Tensor:
    now = private_torch.buffers_of(buffer.owner).get(buffer.name)
    before = buffer.tensor
    kinds = [None if t is None else (t.shape, t.dtype, t.device) for t in (now, before)]
    if now is None or kinds[0] != kinds[1]:
        raise RuntimeError(
            f"fastseed.{FUNCTION}.step: the buffer {buffer.label!r} must keep its shape, dtype "
            f"and device in a step: it was of shape {tuple(before.shape)}, and a slot left "
            f"{'None' if now is None else tuple(now.shape)}"
        )
    return now.detach()


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


def _integers(tensor: torch.Tensor) -> torch.Tensor:
    """Return the bits of each element as an integer, which are faster to compare than bytes."""
    return bytes_of(tensor).view(INTEGER_OF_SIZE.get(tensor.itemsize, torch.uint8))
