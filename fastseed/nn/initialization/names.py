"""The names of parameters and buffers, the owner of a view, and the keys that belong to a name."""

from __future__ import annotations

import bisect
import weakref
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from ..._backend import private_torch
from ..._utils import validation
from ..._utils.log import logger
from ...derivation import scopes
from ...derivation.shared_use import job
from ...random.layout import Shard, is_dtensor, local_part
from ...seeder.seeder import current_seeder
from ..module_names import check_shards, part_of, strip_wrappers, unwrap

_FUNCTION = "nn.initialize"
_modules: weakref.WeakValueDictionary[Hashable, torch.nn.Module] = weakref.WeakValueDictionary()
"""By job, scope and name, the module whose parameter was filled from them first."""


def named_tensors(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor, torch.nn.Module]]:
    """Yield (qualified name, parameter or buffer, its module); tied ones by their first name."""
    model = unwrap(model)
    for named in (model.named_parameters(), model.named_buffers()):
        for name, tensor in named:
            try:
                module = model.get_submodule(name.rpartition(".")[0])
            except AttributeError:  # a model that gives its parameters other names
                module = model
            yield strip_wrappers(name), tensor, module


def untied_weights(model: torch.nn.Module) -> list[tuple[str, str]]:
    """Return (name, name of its source) of weights that transformers ties and that are not tied."""
    found: list[tuple[str, str]] = []
    for path, module in model.named_modules():
        tied = getattr(module, "all_tied_weights_keys", None)
        above = f"{path}." if path else ""
        for target, source in tied.items() if isinstance(tied, dict) else ():
            try:
                storages = {storage_of(module.get_parameter(name)) for name in (target, source)}
            except AttributeError:  # a layer that an adapter has replaced
                continue
            if len(storages) > 1:
                found.append((above + target, above + source))
    return found


class Owner(NamedTuple):
    """The qualified name of a parameter or buffer, and the module that has it."""

    name: str
    module: torch.nn.Module
    is_cut: bool  # over ranks, as a ``DTensor``
    shard: Shard | None
    shape: torch.Size
    strides: tuple[int, ...]

    def is_all(self, tensor: torch.Tensor) -> bool:
        """Return whether a view of it has all of its elements, in their order."""
        return tensor.shape == self.shape and tensor.stride() == self.strides


class Bytes:
    """Who has which bytes of a storage: the first one that took them."""

    def __init__(self) -> None:
        self._begins, self._owners = [-1], [None]  # each owner has what follows, up to the next

    def owner_of(self, byte: int) -> Any:
        return self._owners[bisect.bisect(self._begins, byte) - 1]

    def give(self, begin: int, end: int, owner: Any) -> bool:
        """Give the bytes that nobody has to an owner; return whether they were all."""
        first, last = self._cut(begin), self._cut(end)
        before = self._owners[first:last]
        self._owners[first:last] = [owner if one is None else one for one in before]
        return not any(before)

    def _cut(self, byte: int) -> int:
        i = bisect.bisect_left(self._begins, byte)
        if self._begins[i : i + 1] != [byte]:
            self._begins.insert(i, byte)
            self._owners.insert(i, self._owners[i - 1])
        return i


class OwnerTable:
    """Which parameter or buffer of a model a tensor shares its memory with."""

    def __init__(
        self, model: torch.nn.Module, prefix: str, shards: Mapping[str, Shard] | None
    ) -> None:
        self.model, self._prefix = model, prefix
        self._shards = check_shards(_FUNCTION, shards)
        named = {prefix + name: tensor for name, tensor, _ in named_tensors(model)}
        for name, shard in self._shards.items():
            if name not in named:
                rule = "by names of parameters or buffers of model"
                raise validation.value_error(_FUNCTION, "shards", rule, name)
            part_of(_FUNCTION, name, named[name], shard)
        # storages: a tensor with weak references cannot be swapped, as by to_empty
        self._owners: dict[int, tuple[StorageWeakRef, Bytes]] = {}

    def add(self, tensor: torch.Tensor, owner: Owner) -> None:
        """Let tensors in the memory of ``tensor`` belong to ``owner``."""
        begin, end = extent_of(tensor)
        # while it lives, no other memory has its number
        weak = StorageWeakRef(local_part(tensor).untyped_storage())  # type: ignore[no-untyped-call]
        new = weak, Bytes()
        self._owners.setdefault(storage_of(tensor), new)[1].give(begin, max(end, begin + 1), owner)

    def owner_of(self, tensor: torch.Tensor) -> Owner | None:
        """Return the owner; parameters may have been added or replaced meanwhile."""
        found = self._find(tensor)
        if found is None:
            for name, owned, module in named_tensors(self.model):
                if not torch.nn.parameter.is_lazy(owned) and self._find(owned) is None:
                    name = self._prefix + name
                    form = self._shards.get(name), owned.shape, owned.stride()
                    is_cut = is_dtensor(owned) and not all(
                        p.is_replicate() for p in owned.placements
                    )
                    self.add(owned, Owner(name, module, is_cut, *form))
            found = self._find(tensor)
        return found

    def _find(self, tensor: torch.Tensor) -> Owner | None:
        entry = self._owners.get(storage_of(tensor))
        return entry[1].owner_of(extent_of(tensor)[0]) if entry else None


def storage_of(tensor: torch.Tensor) -> int:
    """Return what identifies the memory of a tensor while it is alive."""
    return private_torch.storage_of(local_part(tensor))


def extent_of(tensor: torch.Tensor) -> tuple[int, int]:
    """Return where in its storage a tensor begins and ends, in bytes; parameters may share one."""
    local = local_part(tensor)
    reach = sum((size - 1) * step for size, step in zip(local.shape, local.stride(), strict=True))
    begin = int(local.storage_offset())
    end = begin + int(reach) + 1 if local.numel() else begin
    return begin * local.element_size(), end * local.element_size()


class Keys:
    """The keys of one block, by name and count of fills, and the names that other models had."""

    def __init__(self, task: int, epoch: int, step: int) -> None:
        self._seeder = current_seeder(_FUNCTION)
        self._scope = scopes.check_scope(_FUNCTION, task, epoch, step)
        self.fills: Counter[str] = Counter()  # that each name has had
        self._of_others: dict[str, None] = {}

    def key_of(self, name: str) -> int:
        at = {**self._scope._asdict(), "rank": scopes.SHARED, "index": self.fills[name]}
        return self._seeder.derive_key(f"init/{name}", **at)

    def note(self, owner: Owner) -> None:
        self.fills[owner.name] += 1
        first = _modules.setdefault((job(), self._scope, owner.name), owner.module)
        if first is not owner.module:
            self._of_others[owner.name] = None

    def warn(self) -> None:
        """Warn of names from which a model was filled that still exists: wrong in an ensemble."""
        if names := list(self._of_others):
            logger.warning(
                "fastseed.nn.initialize: %d tensors (%s) have the random numbers of another model "
                "of the same names, at task %d, epoch %d, step %d: pass prefix= or another task=",
                len(names),
                ", ".join(names[:3]) + (", ..." if len(names) > 3 else ""),
                *self._scope,
            )
