"""Digests of the inputs, outputs and gradients of every call of a module, taken by hooks."""

from __future__ import annotations

import functools
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from .._backend import private_torch
from ..digest import shards
from ..digest.tensors import PLAIN, Part, has_digest
from ..digest.trees import Leaf, leaf_of
from ..nn.module_names import strip_wrappers
from ..random import layout

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

ROOT = "(root)"
"""The name of the model itself."""
_NAME = re.compile(r"(.*) #(\d+) ((?:input|output).*)", re.DOTALL)


class CallTensor(NamedTuple):
    """A tensor of a module's call; its text is the name in a recording."""

    module: str
    call: int
    """Calls of a module are counted from 0 in each step."""
    path: str
    """``input`` or ``output``, followed by its position: ``input.1``, ``output.logits``."""

    def __str__(self) -> str:
        return f"{self.module} #{self.call} {self.path}"

    @classmethod
    def parse(cls, name: str) -> CallTensor:
        found = _NAME.fullmatch(name)
        if found is None:
            raise ValueError(f"fastseed.debug.bisect: {name!r} must be the name of a call")
        return cls(found[1], int(found[2]), found[3])


class ModuleCalls:
    """Hooks on the modules of a model, and what they have recorded since the last ``take``."""

    # No collective runs between a model's own: parts are added up over ranks when a step ends.
    # Hooks of gradients are on tensors: those of modules turn outputs into views.

    def __init__(
        self,
        model: torch.nn.Module,
        names: Collection[str] | None,
        inputs_only: bool,
        batch_mesh: DeviceMesh | None,
        is_wanted: Callable[[], bool],
    ) -> None:
        self._batch_mesh = batch_mesh
        self._is_wanted = is_wanted
        self._inputs_only = inputs_only
        self._clear()
        if inputs_only:  # of the model as it is called, wrapped and compiled
            self.names = {model: ROOT}
            batch: Any = self._batch
            self._handles = [model.register_forward_pre_hook(batch, with_kwargs=True)]
            return
        # Inside a wrapper is the module of the same name, which comes later and is the one to hook.
        found = {strip_wrappers(name): module for name, module in model.named_modules()}
        self.names = {m: n or ROOT for n, m in found.items() if names is None or n in names}
        # Dynamo may not trace hooks: it cuts the graph at them, which is at each module's boundary.
        outside: Any = torch.compiler.disable
        before, after = outside(self._before), outside(self._after)
        self._on_gradient = outside(self._gradient)
        self._handles = []
        for module in self.names:
            # Outside the hooks of tensor parallelism, whose DTensors have the digest of the whole.
            self._handles += [
                module.register_forward_pre_hook(before, with_kwargs=True),
                module.register_forward_hook(after, prepend=True),
            ]

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()

    def take(self) -> dict[str, Leaf]:
        """Return and forget the digests by group and name: a collective."""
        parts = self._parts
        self._clear()  # before the collective: where it fails the next step begins empty
        # Sorted, because the order of a backward pass may differ between ranks.
        shards.join(dict(sorted(parts.items())))
        return {key: leaf_of(part) for key, part in parts.items()}

    def _clear(self) -> None:
        self._parts: dict[str, Part] = {}
        self._calls: Counter[tuple[str, bool]] = Counter()
        self._hooked: set[str] = set()
        self._open: defaultdict[tuple[str, bool], list[int]] = defaultdict(list)

    def _batch(
        self, module: torch.nn.Module, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> object:
        """Record what a step is given; nothing in evaluation, nor where values cannot be read."""
        if torch.compiler.is_compiling() or not torch.is_grad_enabled():
            return None
        is_captured = torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()  # type: ignore[no-untyped-call]
        return None if is_captured else self._before(module, args, kwargs)

    def _before(
        self, module: torch.nn.Module, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> object:
        if module not in self.names or not self._is_wanted():  # not: a copy of the model
            return None
        counted = self.names[module], private_torch.in_backward()  # there it is recomputed
        self._open[counted].append(self._calls[counted])
        self._calls[counted] += 1
        if len(args) == 1 and not kwargs:
            return (self._forward(counted, "input", args[0], separate=True),), kwargs
        named: dict[int | str, object] = dict(enumerate(args)) | kwargs
        found = self._forward(counted, "input", named, separate=True)
        return tuple(found[i] for i in range(len(args))), {name: found[name] for name in kwargs}

    def _after(self, module: torch.nn.Module, args: tuple[object, ...], output: object) -> None:
        counted = self.names.get(module, ""), private_torch.in_backward()
        if self._open[counted]:  # else the call began while nothing was recorded
            self._forward(counted, "output", output, separate=False)
            self._open[counted].pop()

    def _forward(self, counted: tuple[str, bool], path: str, values: Any, *, separate: bool) -> Any:
        """Record the tensors of a call, and their gradients later; return the values to pass on."""
        # Inputs become aliases, whose gradients are those of this call, not of a residual too.
        # Recomputed tensors have hooks: reentrant checkpointing computes their gradients alone.
        (name, recomputed), call = counted, self._open[counted][-1]
        tensors: dict[str, torch.Tensor] = {}
        aliases: dict[int, torch.Tensor] = {}  # modules may compare their arguments with `is`

        def visit(path: str, tensor: torch.Tensor, replaceable: bool) -> torch.Tensor:
            key = str(CallTensor(name, call, path))
            tensors[key] = tensor
            has_gradient = tensor.requires_grad and torch.is_grad_enabled()
            if self._inputs_only or not has_gradient or key in self._hooked:
                return tensor
            self._hooked.add(key)
            plain = type(tensor) in PLAIN or layout.is_dtensor(tensor)
            if separate and replaceable and plain and tensor.layout is torch.strided:
                if id(tensor) not in aliases:
                    aliases[id(tensor)] = torch.ops.aten.alias(tensor)
                tensor = aliases[id(tensor)]
            hook = functools.partial(self._on_gradient, key)
            tensor.register_hook(hook)  # type: ignore[no-untyped-call]
            return tensor

        values = _map_tensors(path, values, visit)
        if not recomputed:
            self._record("forward", tensors)
        return values

    def _gradient(self, name: str, gradient: torch.Tensor | None) -> None:
        if gradient is not None and self._is_wanted():
            self._record("backward", {name: gradient})

    @torch.no_grad()
    def _record(self, group: str, tensors: Mapping[str, torch.Tensor]) -> None:
        leaves = {
            f"{group} {name}": self._whole(tensor.detach())
            for name, tensor in tensors.items()
            if not self._inputs_only or layout.is_dtensor(tensor) or has_digest(tensor)
        }
        for first, part in shards.parts_of(leaves).items():
            key, again = first, 1
            while key in self._parts:  # backward ran twice
                key, again = f"{first} again {again}", again + 1
            self._parts[key] = part

    def _whole(self, tensor: torch.Tensor) -> torch.Tensor:
        if self._batch_mesh is None or tensor.dim() == 0 or layout.is_dtensor(tensor):
            return tensor
        from torch.distributed.tensor import DTensor, Shard

        dims = [Shard(0)] * self._batch_mesh.ndim
        return DTensor.from_local(tensor, self._batch_mesh, dims, run_check=False)


def _map_tensors(
    path: str, value: Any, visit: Callable[[str, torch.Tensor, bool], Any], replaceable: bool = True
) -> Any:
    """Return a tree with tensors replaced by ``visit``; in other containers they stay."""
    if isinstance(value, torch.Tensor):
        return visit(path, value, replaceable)
    if not isinstance(value, (Mapping, list, tuple)):
        return value
    replaceable = replaceable and type(value) in (dict, list, tuple)
    items = value.items() if isinstance(value, Mapping) else enumerate(value)
    found = {k: _map_tensors(f"{path}.{k}", v, visit, replaceable) for k, v in items}
    if not replaceable:
        return value
    kind: Any = type(value)
    return found if kind is dict else kind(found.values())
