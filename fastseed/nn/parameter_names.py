"""The fully qualified names of parameters and buffers, and the tensor that a view belongs to."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator

import torch

# What wrappers put into names: torch.compile, activation checkpointing, and FSDP1.
_WRAPPERS = {"_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module"}


def qualified_name(name: str) -> str:
    """Return ``name`` without what ``torch.compile`` and wrappers of a module add to it."""
    return ".".join(part for part in name.split(".") if part not in _WRAPPERS)


def named_tensors(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the parameters and buffers by qualified name; tied ones once, by their first name."""
    parallel = sys.modules.get("torch.nn.parallel")
    while parallel is not None and isinstance(
        model, (parallel.DistributedDataParallel, parallel.DataParallel)
    ):
        model = model.module
    for named in (model.named_parameters(), model.named_buffers()):
        for name, tensor in named:
            yield qualified_name(name), tensor


def local_part(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor of this process that holds the elements of a ``DTensor``, or ``tensor``."""
    local = getattr(tensor, "_local_tensor", tensor)
    return local if isinstance(local, torch.Tensor) else tensor


class OwnerTable:
    """Which parameter or buffer of a model a tensor shares its memory with."""

    def __init__(self, model: torch.nn.Module, prefix: str = "") -> None:
        self._model, self._prefix = model, prefix
        self._owners: dict[int, list[tuple[str, weakref.ref[torch.Tensor]]]] = {}

    def add(self, tensor: torch.Tensor, name: str) -> None:
        """Let tensors in the memory of ``tensor`` have the name ``name``."""
        self._owners.setdefault(storage_of(tensor), []).append((name, weakref.ref(tensor)))

    def name_of(self, tensor: torch.Tensor) -> str | None:
        """Return the name of the owner; parameters may have been added or replaced meanwhile."""
        found = self._find(tensor)
        if found is None:
            for name, owned in named_tensors(self._model):
                if self._find(owned) is None:
                    self.add(owned, self._prefix + name)
            found = self._find(tensor)
        return found

    def _find(self, tensor: torch.Tensor) -> str | None:
        storage, (begin, _) = storage_of(tensor), _extent(tensor)
        for name, reference in self._owners.get(storage, ()):
            owner = reference()
            # the owner may be gone or have moved, and its old storage be in use again
            if owner is not None and storage_of(owner) == storage:
                first, end = _extent(owner)
                if first <= begin < end or first == begin:
                    return name
        return None


def storage_of(tensor: torch.Tensor) -> int:
    """Return what identifies the memory of a tensor while it is alive."""
    return int(local_part(tensor).untyped_storage()._cdata)


def _extent(tensor: torch.Tensor) -> tuple[int, int]:
    """Return where in its storage a tensor begins and ends, in bytes; parameters may share one."""
    local = local_part(tensor)
    reach = sum((size - 1) * step for size, step in zip(local.shape, local.stride(), strict=True))
    begin = int(local.storage_offset())
    end = begin + int(reach) + 1 if local.numel() else begin
    return begin * local.element_size(), end * local.element_size()
