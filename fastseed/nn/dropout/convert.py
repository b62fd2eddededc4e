"""Give models of others the layers of ``fastseed.nn.dropout.layers`` in place of torch's dropout.

Modules of dropout change their class. Calls are replaced while the forward of a module runs that is
not torch's own: it gets a subclass of its class, whose forward runs in a ``TorchFunctionMode``.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.utils import parametrize

from ..._utils import validation
from ..module_names import check_prefix, strip_wrappers
from .calls import FAST_PATHS, Calls, calling_class, is_of_torch
from .layers import Cut, Dropout, Dropout1d, Dropout2d, Dropout3d, set_up

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor.placement_types import Placement

_FUNCTION = "nn.convert"
_REPLACED: dict[type, type[Dropout]] = {
    nn.Dropout: Dropout,
    nn.Dropout1d: Dropout1d,
    nn.Dropout2d: Dropout2d,
    nn.Dropout3d: Dropout3d,
}
_TORCH: dict[type, type] = {ours: theirs for theirs, ours in _REPLACED.items()}


def convert(model: nn.Module, *, prefix: str = "", batch_dim: int | None = 0) -> nn.Module:
    """Replace the dropout of a model by that of ``fastseed.nn.Dropout``, in place; return it.

    Layers have their qualified names: call it before the model is wrapped or compiled. Functional
    calls have the name of the module whose forward makes them, with ``/dropout`` or ``/attention``
    behind it, and from the second one of a forward on ``.1``, ``.2``, ...;
    ``nn.MultiheadAttention`` makes such a call. Attention with dropout computes its weights in
    full. Other functions that sample, such as ``torch.bernoulli``, still use torch's generators
    and log a warning; so do, without one, calls in threads that a forward starts. A module whose
    calls are replaced has a subclass of its class.

    Args:
        model: any module.
        prefix: what stands before the names, with or without its dot: for a pipeline stage its
            place in the whole model, for a second model a word. What is converted already, as in a
            copy of a converted model, keeps its name.
        batch_dim: the dimension of inputs that holds the rows of the batch; None: none does. An
            ``nn.MultiheadAttention`` knows its rows, by ``batch_first``.

    Raises:
        ValueError: a module, which the error names, has dropout that cannot be replaced, as
            ``nn.LSTM`` with ``dropout`` above 0; nothing has changed.

    Examples:
        >>> import torch
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.1))
        >>> fastseed.nn.convert(model)[1].key_name
        LayerName('1')
    """
    validation.check_instance(_FUNCTION, "model", model, nn.Module, "a torch.nn.Module")
    prefix = check_prefix(_FUNCTION, prefix)
    wrapped = isinstance(model, nn.parallel.DistributedDataParallel)
    root: Any = model.module if wrapped else model
    if batch_dim is not None:
        batch_dim = validation.check_int(_FUNCTION, "batch_dim", batch_dim, 0, 63)
    refused = [(name, m, why) for name, m in model.named_modules() if (why := _refusal(m))]
    if refused:
        named = "; ".join(f"{name!r} ({type(m).__name__}): {why}" for name, m, why in refused)
        rule = "without dropout that has no keyed form"
        raise ValueError(f"fastseed.{_FUNCTION}: model must be {rule}, got {named}")
    seen: set[int] = set()
    slots: set[tuple[int, str]] = set()
    for path, module in list(root.named_modules(remove_duplicate=False)):
        above, _, leaf = path.rpartition(".")
        parent = root.get_submodule(above) if path else root
        if path and (id(parent), leaf) in slots:  # in a module that has two names
            continue
        slots.add((id(parent), leaf))
        if type(module) in _TORCH and id(module) in seen:  # the same layer elsewhere in the model
            module = copy.deepcopy(module)
            module.key_name = None
            setattr(parent, leaf, module)
        seen.add(id(module))
        name = (prefix + strip_wrappers(path)).removesuffix(".")
        _convert_one(module, name, batch_dim)
    return model


def revert(model: nn.Module) -> nn.Module:
    """Undo ``convert``: every layer is torch's own again, in place; return the model.

    Layers of ``fastseed.nn`` that the model had before are replaced too. A class that torch has
    put on a module since, as ``fully_shard`` and parametrizations do, stays.

    Args:
        model: a module.

    Examples:
        >>> import torch
        >>> fastseed.nn.revert(fastseed.nn.convert(torch.nn.Dropout(0.1)))
        Dropout(p=0.1, inplace=False)
    """
    validation.check_instance("nn.revert", "model", model, nn.Module, "a torch.nn.Module")
    for module in model.modules():
        if type(module) in _TORCH:
            module.__class__ = _TORCH[type(module)]
            for name in ("key_name", "batch_dim", "cut"):
                delattr(module, name)
        elif hasattr(type(module), "fastseed_original"):
            module.__class__ = _reverted(type(module))
            del module.fastseed_calls
    return model


def _reverted(cls: Any) -> Any:
    """Return a class without ours in it; what ``fully_shard`` put on top is made again."""
    if "fastseed_original" in vars(cls):
        return cls.fastseed_original
    bases = (_reverted(b) if hasattr(b, "fastseed_original") else b for b in cls.__bases__)
    return _remade(cls, *bases)


def _remade(cls: Any, *bases: Any) -> Any:
    """Return a class that torch has put on top, over others."""
    body = {k: v for k, v in vars(cls).items() if k not in ("__dict__", "__weakref__")}
    return type(cls.__name__, bases, body)


def shard_inputs(module: nn.Module, mesh: DeviceMesh, placements: Sequence[Placement]) -> nn.Module:
    """Declare how plain tensors that reach a module's dropout are cut over a mesh; return it.

    For tensor parallelism whose activations are local tensors: the weights of attention, say, are
    ``Shard(1)`` where each rank has some of the heads.

    Args:
        module: a converted module; it and all modules below it are meant.
        mesh: a ``DeviceMesh``.
        placements: one ``Shard`` or ``Replicate`` for each dimension of ``mesh``.

    Raises:
        TypeError, ValueError: an argument is invalid, or the module has no dropout.

    Examples:
        >>> fastseed.nn.shard_inputs(attention, mesh["tp"], [Shard(1)])  # doctest: +SKIP
    """
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import Replicate, Shard

    function = "nn.shard_inputs"
    validation.check_instance(function, "module", module, nn.Module, "a torch.nn.Module")
    found: list[Any] = [m for m in module.modules() if isinstance(m, Dropout)]
    found += [m.fastseed_calls for m in module.modules() if hasattr(m, "fastseed_calls")]
    if not found:
        raise validation.value_error(function, "module", "one with dropout of fastseed.nn", module)
    validation.check_instance(function, "mesh", mesh, DeviceMesh, "a DeviceMesh")
    fits = isinstance(placements, (list, tuple)) and len(placements) == mesh.ndim
    if not fits or not all(isinstance(p, (Shard, Replicate)) for p in placements):
        rule = f"a list of {mesh.ndim} Shard or Replicate, one for each dimension of mesh"
        raise validation.type_error(function, "placements", rule, placements)
    cut = Cut(mesh, tuple(placements))
    for layer in found:
        layer.cut = cut
    return module


def _convert_one(module: Any, name: str, batch_dim: int | None) -> None:
    if type(module) in _REPLACED:
        module.__class__ = _REPLACED[type(module)]
        set_up(module, name or "dropout", batch_dim)
    elif isinstance(module, Dropout):
        if module.key_name is None:
            set_up(module, name or "dropout", batch_dim)
    elif _may_call(module) and not hasattr(type(module), "fastseed_original"):
        cls: Any = type(module)
        module.fastseed_calls = Calls(name, cls.__name__, batch_dim)
        if parametrize.is_parametrized(module):  # its class stays on top: torch takes it away
            module.__class__ = _remade(cls, calling_class(cls.__bases__[0]))
        else:
            module.__class__ = calling_class(cls)


def _may_call(module: Any) -> bool:
    """Return whether the forward may call dropout, or torch's fast path for attention."""
    kinds = (*_REPLACED, nn.MultiheadAttention, *FAST_PATHS)
    return isinstance(module, kinds) or not is_of_torch(type(module))


def _refusal(module: nn.Module) -> str:
    """Return what to do with a module whose dropout cannot be replaced; empty where it can."""
    if isinstance(module, nn.DataParallel):
        return "its replicas cannot tell which rows they have; use DistributedDataParallel"
    if isinstance(module, torch.jit.ScriptModule):
        return "it cannot be looked into; convert the model before torch.jit"
    if "forward" in vars(module) and not type(module).__module__.startswith("torch."):
        return "its forward was replaced; convert the model before that"
    if isinstance(module, LazyModuleMixin) and module.has_uninitialized_params():
        return "torch will replace its class; run it once before" if _may_call(module) else ""
    if isinstance(module, (nn.AlphaDropout, nn.FeatureAlphaDropout)):
        return "set its p to 0" if module.p > 0 else ""
    if isinstance(module, nn.RNNBase):
        return "set its dropout to 0" if module.dropout > 0 else ""
    return "use nn.LeakyReLU" if isinstance(module, nn.RReLU) else ""
