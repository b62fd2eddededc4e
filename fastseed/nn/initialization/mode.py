"""Keyed initialization of unmodified models: random operators on parameters become fills.

A dispatch mode sees torch's operators. ``trunc_normal_``, ``orthogonal_`` and ``sparse_`` of
``torch.nn.init`` compute with random numbers in Python, and libraries hold them under other names:
transformers in a table, torchtitan in ``functools.partial``. So the three functions have other code
while a block is open in any thread. In a thread without a mode, they run torch's own code.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
import threading
import types
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ..._backend import private_torch
from ..._utils import validation
from ...derivation import context
from ...random import fills, layout
from ...random.fills import FILLS, INITIALIZERS, Arguments, Fill, Keywords, keep_part, randperm
from ...random.keyed import KeyedBlock, outside_blocks
from ...random.keyed_draws import have_moved, positions
from ..module_names import check_prefix, sharded_modules
from .names import Keys, Owner, OwnerTable, storage_of, untied_weights

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor

    from ..._backend.private_torch import OpOverload

_ATEN = torch.ops.aten
_FUNCTION = "nn.initialize"
_KNOWN = [name for name in (*FILLS, *INITIALIZERS) if name.endswith("_")]
_LIKE = (_ATEN.empty_like.default, _ATEN.new_empty.default)  # scratch memory of initializers


class InitializationMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Fills tensors of a model from keys of their names, for the thread that enters it."""

    def __init__(self, owners: OwnerTable, keys: Keys) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.owners, self._keys = owners, keys
        self._copies: dict[int, _Copy] = {}

    def __torch_dispatch__(
        self, func: OpOverload, types: object, args: Arguments = (), kwargs: Keywords | None = None
    ) -> object:
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return self._run(func, args, kwargs)
        fill, parameters = FILLS.get(func.overloadpacket.__name__), args
        tensors = [a for a in (*args, *kwargs.values()) if isinstance(a, torch.Tensor)]
        if fill is randperm:  # in ``out``, which another number would resize
            parameters = (*tensors,) if tensors and args[0] == tensors[0].numel() else ()
        elif func is _ATEN.random_.to:
            parameters = (args[0], 0, args[1])
        if fill is None or not parameters:
            raise _unmapped(func, self.owners.owner_of(tensors[0]) if tensors else None)
        return self.replace(func, fill, *parameters, generator=kwargs.get("generator"))

    def _run(self, func: OpOverload, args: Arguments, kwargs: Keywords) -> object:
        """Run an operator that draws nothing."""
        if private_torch.writes(func) and (copy := self._copies.get(id(args[0]))) is not None:
            return copy.write(func, *args[1:])
        if func is _ATEN.copy_.default and layout.is_dtensor(args[0]):
            target, whole = args[:2]  # torch refuses to copy a whole one into a parameter's part
            if not layout.is_dtensor(whole) and self.owners.owner_of(target) is not None:
                return keep_part(target, whole.expand(target.shape))
        result = func(*args, **kwargs)
        if func in _LIKE and (owner := self.owners.owner_of(args[0])) is not None:
            self.owners.add(result, owner)
        elif func.is_view and layout.is_dtensor(args[0]):
            self._watch_copies(func, result, *args)
        return result

    def _watch_copies(
        self, view: OpOverload, views: Any, whole: DTensor, dim: Any = 0, *at: Any
    ) -> None:
        copied, owner = self._copies.get(id(whole)), self.owners.owner_of(whole)
        indices: Sequence[int] | None = None
        if owner is not None and view is _ATEN.slice.Tensor:
            indices = range(whole.size(dim))[slice(*at)]
        elif owner is not None and view is _ATEN.select.int:
            indices = (range(whole.size(dim))[at[0]],)
        name = getattr(owner or copied, "name", None)
        for found in views if isinstance(views, (list, tuple)) else [views]:
            if name is not None and (copied or storage_of(found) != storage_of(whole)):
                self._copies[id(found)] = _Copy(found, whole, dim, indices, name)

    def replace(
        self,
        operator: object,
        fill: Fill,
        tensor: torch.Tensor,
        *parameters: object,
        generator: object = None,
        **named: object,
    ) -> torch.Tensor:
        """Fill ``tensor`` with the next random numbers of its name, in place of an operator."""
        if generator is not None:
            raise RuntimeError(
                f"fastseed.{_FUNCTION}: generator must be None, as numbers come from keys of "
                f"names, got {generator!r} for {operator}; nothing was drawn"
            )
        owner = self.owners.owner_of(tensor)
        if owner is None:
            raise _unmapped(operator, None)
        if owner.is_cut and not layout.is_dtensor(tensor):
            raise RuntimeError(
                f"fastseed.{_FUNCTION}: {operator} must get the DTensor {owner.name}, got its "
                "local tensor, which each rank would fill with the first values"
            )
        if owner.shard is not None and not owner.is_all(tensor):
            raise RuntimeError(
                f"fastseed.{_FUNCTION}: {operator} must get all of {owner.name}, a part by shards, "
                f"got a view of shape {tuple(tensor.shape)}; nothing was drawn"
            )
        if layout.local_part(tensor).is_meta:  # which has no elements: nothing is drawn
            return tensor
        if not self._keys.fills:
            _check_ties(self.owners.model)
        key = self._keys.key_of(owner.name)
        try:
            if owner.shard is None:
                fill(tensor, key, *parameters, **named)
            else:
                fills.fill_part(fill, tensor, key, owner.shard, *parameters, **named)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{error} ({operator} on {owner.name})") from error
        self._keys.note(owner)
        return tensor

    def whole(self, tensor: torch.Tensor) -> torch.Tensor:
        owner = self.owners.owner_of(tensor)
        if owner is None or owner.shard is None or not owner.is_all(tensor):
            return tensor
        return torch.empty(tuple(owner.shard.global_shape), device="meta")

    def warn(self, stacklevel: int) -> None:
        self._keys.warn()
        modules = self.owners.model.modules()
        if not self._keys.fills and any("_is_hf_initialized" in vars(m) for m in modules):
            wrong = (
                f"fastseed.{_FUNCTION}: nothing was initialized in the block, because transformers "
                "has marked the model as initialized: build it on the meta device"
            )
            warnings.warn(wrong, stacklevel=stacklevel + 1)


def _check_ties(model: torch.nn.Module) -> None:
    untied = untied_weights(model)
    if untied:
        pairs = ", ".join(f"{target} and {source}" for target, source in untied)
        rule = "one tensor (call tie_weights() after to_empty())"
        raise RuntimeError(
            f"fastseed.{_FUNCTION}: tied weights must be {rule}, got two for {pairs}"
        )


class _Copy(NamedTuple):
    """A view of a ``DTensor`` that is a copy, because the tensor is cut along ``dim``."""

    copy: torch.Tensor
    whole: DTensor
    dim: int
    indices: Sequence[int] | None  # along ``dim``; None for another view than a row or a slice
    name: str

    def write(self, operator: object, value: float = 0) -> torch.Tensor:
        """Fill the part of the whole, which torch would leave as it is, as of a padding index."""
        is_fill = operator in (_ATEN.zero_.default, _ATEN.fill_.Scalar)
        if not is_fill or self.indices is None:
            raise RuntimeError(
                f"fastseed.{_FUNCTION}: a row or slice of a DTensor along a dimension that is cut "
                f"must be written by zero_ or fill_, got {operator} on a part of {self.name}, "
                "where torch writes to a copy"
            )
        local, runs = layout.runs_of_dtensor(_FUNCTION, self.whole)
        at = 0
        for first, count in runs[self.dim] if local.numel() else ():
            here = [at + i - first for i in self.indices if first <= i < first + count]
            index = torch.tensor(here, dtype=torch.int64, device=local.device)
            local.index_fill_(self.dim, index, value)
            at += count
        return self.copy.fill_(value)


def _unmapped(operator: object, owner: Owner | None) -> RuntimeError:
    if owner is None:
        return RuntimeError(
            f"fastseed.{_FUNCTION}: random numbers must go into a parameter or buffer of the "
            f"model, got {operator} on another tensor; nothing was drawn. Build modules before the "
            "block; those that draw while they are built, in a block of fastseed.random.keyed"
        )
    return RuntimeError(
        f"fastseed.{_FUNCTION}: random operators must be {', '.join(_KNOWN)} or randperm(out=), "
        f"got {operator} on {owner.name}; nothing was drawn"
    )


class _Apply:
    """``Module._apply`` of a sharded module, which ``to_empty`` and ``to`` call, in the block."""

    def __init__(self, module: torch.nn.Module) -> None:
        self.module, self.thread = module, threading.get_ident()
        self.sharded: Any = type(module)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run it as the class of FSDP2, which keeps account of the sharded parameters."""
        original = type(self.module)
        self.module.__class__ = self.sharded
        try:
            return getattr(self.sharded, private_torch.APPLY)(self.module, *args, **kwargs)
        finally:
            self.module.__class__ = original


@contextlib.contextmanager
def _original_classes(model: torch.nn.Module) -> Iterator[None]:
    """Give the modules of ``model`` the classes from before ``fully_shard``, for a block.

    FSDP2 gives a module a generated class. Initializers ask for classes, as torch's example of
    ``Module.apply`` for ``type(m) == nn.Linear``, and leave out weights of another one. Modules are
    resharded first: what is written to gathered parameters would be lost.
    """
    fsdp: Any = sys.modules.get("torch.distributed.fsdp")
    for module in model.modules():
        held = vars(module).get(private_torch.APPLY)
        if isinstance(held, _Apply) and held.thread != threading.get_ident():
            raise RuntimeError(
                f"fastseed.{_FUNCTION}: a model must be initialized by one thread at a time, "
                f"got a {type(module).__name__} that another thread is initializing"
            )
    sharded = sharded_modules(model)
    try:
        for module in sharded:
            module.reshard()
            vars(module)[private_torch.APPLY] = _Apply(module)
            before = [c for c in type(module).__mro__ if not issubclass(c, fsdp.FSDPModule)]
            module.__class__ = before[0]
        yield
    finally:
        for module in sharded:
            held = vars(module).get(private_torch.APPLY)
            if isinstance(held, _Apply):
                module.__class__ = held.sharded
                vars(module).pop(private_torch.APPLY, None)


def run_initializer(name: str, args: Arguments, kwargs: Keywords) -> object:
    """Run ``torch.nn.init.<name>``: as a fill under a mode of this thread, else as torch does."""
    original = _originals[name]
    if any(isinstance(mode, KeyedBlock) for mode in private_torch.function_modes()):
        return original(*args, **kwargs)  # a block in that of the mode, which draws
    for mode in reversed(private_torch.dispatch_modes()):
        if isinstance(mode, InitializationMode):
            given = inspect.signature(original).bind(*args, **kwargs)
            given.apply_defaults()
            if name == private_torch.FANS:
                return original(mode.whole(**given.arguments))
            return mode.replace(f"torch.nn.init.{name}", INITIALIZERS[name], **given.arguments)
    return original(*args, **kwargs)


def _replacement(*args, **kwargs):  # type: ignore[no-untyped-def]
    from fastseed.nn.initialization.mode import run_initializer

    return run_initializer("<name>", args, kwargs)


def _code_for(name: str) -> types.CodeType:
    """Return the code of ``_replacement``, which runs with the globals of ``torch.nn.init``."""
    code = _replacement.__code__
    return code.replace(co_consts=tuple(name if c == "<name>" else c for c in code.co_consts))


def _copy(f: Any) -> Any:
    """Return a function that keeps the code that ``f`` has now."""
    copy = types.FunctionType(f.__code__, f.__globals__, f.__name__, f.__defaults__)
    copy.__kwdefaults__ = f.__kwdefaults__
    return copy


_names = (*INITIALIZERS, private_torch.FANS)
_functions: dict[str, Any] = {n: inspect.unwrap(getattr(torch.nn.init, n)) for n in _names}
_originals: dict[str, Any] = {name: _copy(function) for name, function in _functions.items()}
_replaced = {name: _code_for(name) for name in _names}

_lock = threading.Lock()
_open: set[InitializationMode] = set()
"""The modes of all threads whose blocks are open."""


@contextlib.contextmanager
def _active(mode: InitializationMode) -> Iterator[None]:
    try:
        with _lock:
            _open.add(mode)
            _choose_code()
        with outside_blocks(), mode:
            yield
    finally:
        with _lock:
            _open.discard(mode)
            _choose_code()


def _choose_code() -> None:
    for name, function in _functions.items():
        function.__code__ = _replaced[name] if _open else _originals[name].__code__


@contextlib.contextmanager
def initialize(
    model: torch.nn.Module,
    *,
    task: int = 0,
    epoch: int = 0,
    step: int = 0,
    prefix: str = "",
    shards: Mapping[str, layout.Shard] | None = None,
) -> Iterator[None]:
    """Make the initialization of ``model`` in this block independent of its parallel layout.

    Random operators on a parameter or buffer become fills from the key of its qualified name, in
    the thread that enters the block; of it and ``fastseed.random.keyed`` the innermost one draws.
    Torch's generators are neither used nor changed. In the block, modules that ``fully_shard`` has
    sharded have their original classes.

    Args:
        model: the model, or a part of one, of plain tensors or ``DTensor``; modules may be added in
            the block.
        task: [0, 2**24). The key is that of the stream ``init/<name>`` at this task, epoch and
            step, shared by all ranks, with the count of fills that the name has had as its index.
        epoch: [0, 2**32).
        step: [0, 2**64).
        prefix: what stands before the names of ``model`` in the whole model, with or without its
            dot: ``"layers.3"`` for a stage of a pipeline. Give a second model another word.
        shards: by qualified name, the part of a larger parameter or buffer that a plain tensor is.
            Xavier's and Kaiming's functions of torch take the size of the whole.

    Raises:
        TypeError, ValueError: an argument is invalid; nothing is written.
        RuntimeError: before ``init``; in the block, for a random operator that cannot be mapped,
            a view of a part by ``shards``, a generator that is passed, or tied weights that are
            two tensors; at the end, if a default generator of torch has moved, as by a thread that
            initializes too.

    Examples:
        >>> import torch
        >>> fastseed.init(42)
        >>> model = torch.nn.Linear(4, 4, bias=False)
        >>> with fastseed.nn.initialize(model, prefix="layers.0"):
        ...     torch.nn.init.normal_(model.weight).shape
        torch.Size([4, 4])
        >>> key = fastseed.derive_key("init/layers.0.weight", task=0, rank=fastseed.SHARED)
        >>> torch.equal(model.weight, fastseed.random.normal_(torch.empty(4, 4), key))
        True
    """
    validation.check_instance(_FUNCTION, "model", model, torch.nn.Module, "a torch.nn.Module")
    prefix = check_prefix(_FUNCTION, prefix)
    keys = Keys(task, epoch, step)
    mode = InitializationMode(OwnerTable(model, prefix, shards), keys)
    place, before = context.seeder.place, positions()
    with _original_classes(model), _active(mode):
        yield
    if context.seeder.place is place and have_moved(before):  # no reseed set the generators
        raise RuntimeError(
            f"fastseed.{_FUNCTION}: all must be drawn from keys of names, but a generator of torch "
            "has moved: an operator in C++ or another thread drew from it; initialize in the "
            "thread of the block"
        )
    mode.warn(stacklevel=3)
