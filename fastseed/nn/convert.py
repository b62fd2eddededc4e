"""Give models of others the layers of ``fastseed.nn.dropout`` in place of torch's dropout.

Three kinds of dropout are replaced: the modules ``nn.Dropout``, ``Dropout1d``, ``2d`` and ``3d``;
calls of ``torch.nn.functional.dropout`` and its channel-wise forms; and
``scaled_dot_product_attention`` with ``dropout_p`` above 0. Calls are replaced while the forward of
a module runs that is not torch's own: such a module gets a subclass of its class, whose forward
runs inside of a ``TorchFunctionMode``. Every other kind of dropout is an error.
"""

from __future__ import annotations

import copy
import functools
import threading
from typing import Any

import torch
from torch import nn
from torch.nn import functional as torch_functional
from torch.overrides import TorchFunctionMode

from .._utils import validation
from . import functional
from .dropout import (
    Cut,
    Dropout,
    Dropout1d,
    Dropout2d,
    Dropout3d,
    drop_channels,
    drop_layer,
    set_up,
)
from .layer_scope import LayerName

_FUNCTION = "nn.convert"
_REPLACED: dict[type, type[Dropout]] = {
    nn.Dropout: Dropout,
    nn.Dropout1d: Dropout1d,
    nn.Dropout2d: Dropout2d,
    nn.Dropout3d: Dropout3d,
}
_TORCH: dict[Any, type] = {ours: theirs for theirs, ours in _REPLACED.items()}
_WRAPPERS = ("_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module")

_ELEMENTS = (torch_functional.dropout, torch.dropout)
_CHANNELS = (torch_functional.dropout1d, torch_functional.dropout2d, torch_functional.dropout3d)
_ATTENTION = torch_functional.scaled_dot_product_attention
_WITHOUT_KEYS = (
    *(torch_functional.alpha_dropout, torch_functional.feature_alpha_dropout),
    *(torch.alpha_dropout, torch.alpha_dropout_, torch.feature_alpha_dropout),
    *(torch.feature_alpha_dropout_, torch.feature_dropout, torch.feature_dropout_),
    *(torch.dropout_, torch.native_dropout),
)
_MULTI_HEAD = torch_functional.multi_head_attention_forward


class _Calls:
    """The names of the functional calls of one module, and how their inputs lie."""

    def __init__(self, name: str, batch_dim: int | None) -> None:
        self.name = name
        self.dropout = LayerName(f"{name}/dropout")
        self.attention = LayerName(f"{name}/attention")
        self.batch_dim = batch_dim
        self.cut: Cut | None = None

    def drop(self, input: torch.Tensor, p: float = 0.5, train: bool = True) -> torch.Tensor:
        """Do what ``torch.dropout`` does."""
        if not train or p == 0:
            return input
        return drop_layer(self.dropout, input, p, self.batch_dim, self.cut)

    def drop_channels(
        self, input: torch.Tensor, p: float = 0.5, train: bool = True, dimensions: int | None = None
    ) -> Any:
        """Do what ``dropout1d``, ``dropout2d`` and ``dropout3d`` do with a batch."""
        if not train or p == 0:
            return input
        return drop_channels(self.dropout, input, p, self.batch_dim, self.cut, dimensions)

    def attend(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> torch.Tensor:
        """Do what ``scaled_dot_product_attention`` does."""
        weights = functional.attention_weights(query, key, attn_mask, is_causal, scale, enable_gqa)
        weights = drop_layer(self.attention, weights, dropout_p, self.batch_dim, self.cut)
        return weights @ functional.repeated_heads(value, query, enable_gqa)


class _Active(threading.local):
    """The calls of the innermost converted forward: of a thread, as torch's stack of modes is."""

    calls: _Calls | None = None


_active = _Active()


class _ReplaceCalls(TorchFunctionMode):
    """Replaces the dropout that the forward of a converted module calls."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        calls = _active.calls
        if calls is None:
            return func(*args, **kwargs)
        if func in _ELEMENTS or func in _CHANNELS:
            return _dropout_call(calls, func, *args, **kwargs)
        if func is _ATTENTION:
            if (kwargs.get("dropout_p", 0.0) if len(args) < 5 else args[4]) > 0:
                return calls.attend(*args, **kwargs)
        elif func in _WITHOUT_KEYS:
            _refuse_if(_drops(*args, **kwargs), calls, func)
        elif func is _MULTI_HEAD:
            _refuse_if(_drops_heads(*args, **kwargs), calls, func)
        elif func is torch.Tensor.unflatten:  # written in Python, where torch.compile stops
            return args[0].unflatten(*args[1:], **kwargs)
        return func(*args, **kwargs)


def _dropout_call(
    calls: _Calls,
    func: Any,
    input: torch.Tensor,
    p: float = 0.5,
    training: bool = True,
    inplace: bool = False,
    train: bool = True,
) -> torch.Tensor:
    found: torch.Tensor
    if func in _ELEMENTS:
        found = calls.drop(input, p, training and train)
    else:  # torch's dropout2d takes (N, C, L) too; of 4 dimensions its dropout3d has no batch
        dimensions = {torch_functional.dropout1d: 1, torch_functional.dropout3d: 3}.get(func)
        found = calls.drop_channels(input, p, training and train, dimensions)
    return input.copy_(found) if inplace and found is not input else found


def _drops(
    input: Any, p: float = 0.5, training: bool = False, inplace: bool = False, train: bool = False
) -> bool:
    return p > 0 and (training or train)


def _drops_heads(*args: Any, dropout_p: float = 0.0, training: bool = True, **_: Any) -> bool:
    """Read the arguments of ``multi_head_attention_forward``, which has them in places 10, 13."""
    return (args[10] if len(args) > 10 else dropout_p) > 0 and (
        args[13] if len(args) > 13 else training
    )


def _refuse_if(drops: bool, calls: _Calls, func: Any) -> None:
    if drops:
        where = f"the forward of {calls.name!r}" if calls.name else "the forward of the model"
        raise RuntimeError(
            f"fastseed.{_FUNCTION}: {func.__name__} in {where} would draw from torch's generator: "
            "it has no keyed form; set its p to 0, or use torch.nn.functional.dropout or "
            "scaled_dot_product_attention there"
        )


_mode = _ReplaceCalls()


@functools.cache
def _calling_class(cls: Any) -> type:
    """Return a subclass of a module's class whose forward runs in the mode."""

    @functools.wraps(cls.forward)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        outer = _active.calls
        _active.calls = self.fastseed_calls
        try:
            if outer is not None:
                return cls.forward(self, *args, **kwargs)
            with _mode:
                return cls.forward(self, *args, **kwargs)
        finally:
            _active.calls = outer

    def reduce(self: Any, protocol: Any) -> Any:
        get_state: Any = getattr(cls, "__getstate__", None)  # of object from Python 3.11 on
        own = get_state is not None and get_state is not getattr(object, "__getstate__", None)
        return _rebuilt, (cls,), get_state(self) if own else self.__dict__

    body = {"forward": forward, "__reduce_ex__": reduce, "fastseed_original": cls}
    names = {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}
    return type(cls.__name__, (cls,), {**body, **names})


def _rebuilt(cls: Any) -> Any:
    """Return an empty module of a converted class, for pickle and copy."""
    converted: Any = _calling_class(cls)
    return converted.__new__(converted)


# ---------------------------------------------------------------- models


def convert(model: nn.Module, *, prefix: str = "", batch_dim: int | None = 0) -> nn.Module:
    """Replace the dropout of a model by that of ``fastseed.nn.Dropout``, in place.

    Layers are named by their qualified names; call it before the model is wrapped or compiled,
    where it has them. Functional calls have the name of the module whose forward makes them, with
    ``/dropout`` or ``/attention`` behind it. Attention with dropout computes its weights in full.

    Args:
        model: any module.
        prefix: what comes before the names: of a pipeline stage its place in the whole model, of a
            second model that is trained beside another one a word of its own.
        batch_dim: the dimension of inputs that holds the rows of the batch; None: none does.

    Returns:
        ``model``.

    Raises:
        TypeError: ``model`` is no module.
        ValueError: a module has a kind of dropout that cannot be replaced; nothing has changed.

    Examples:
        >>> import torch
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.1))
        >>> fastseed.nn.convert(model)[1].layer
        LayerName('1')
    """
    validation.check_instance(_FUNCTION, "model", model, nn.Module, "a torch.nn.Module")
    validation.check_instance(_FUNCTION, "prefix", prefix, str, "a string")
    wrapped = isinstance(model, (nn.DataParallel, nn.parallel.DistributedDataParallel))
    root: Any = model.module if wrapped else model
    if batch_dim is not None:
        batch_dim = validation.check_int(_FUNCTION, "batch_dim", batch_dim, 0, 63)
    refused = [f"{name} ({type(m).__name__})" for name, m in root.named_modules() if _cannot(m)]
    if refused:
        rule = "without dropout that has no keyed form (set its p to 0)"
        raise validation.value_error(_FUNCTION, "model", rule, ", ".join(refused))
    seen: set[int] = set()
    slots: set[tuple[int, str]] = set()
    for path, module in list(root.named_modules(remove_duplicate=False)):
        above, _, leaf = path.rpartition(".")
        parent = root.get_submodule(above) if path else root
        if path and (id(parent), leaf) in slots:  # in a module that has two names
            continue
        slots.add((id(parent), leaf))
        if type(module) in _TORCH and id(module) in seen:  # the same layer elsewhere in the model
            module = copy.copy(module)
            module.layer = None
            setattr(parent, leaf, module)
        seen.add(id(module))
        _convert_one(module, _qualified(path, prefix), batch_dim)
    return model


def revert(model: nn.Module) -> nn.Module:
    """Undo ``convert``: every layer is torch's own again, in place.

    Layers of ``fastseed.nn`` that the model had before are replaced too.

    Args:
        model: a module.

    Returns:
        ``model``.

    Raises:
        TypeError: ``model`` is no module.

    Examples:
        >>> import torch
        >>> fastseed.nn.revert(fastseed.nn.convert(torch.nn.Dropout(0.1)))
        Dropout(p=0.1, inplace=False)
    """
    validation.check_instance("nn.revert", "model", model, nn.Module, "a torch.nn.Module")
    for module in model.modules():
        if type(module) in _TORCH:
            module.__class__ = _TORCH[type(module)]
            for name in ("layer", "batch_dim", "cut"):
                delattr(module, name)
        elif (cls := getattr(type(module), "fastseed_original", None)) is not None:
            module.__class__ = cls
            del module.fastseed_calls
    return model


def shard_inputs(module: nn.Module, mesh: Any, placements: Any) -> nn.Module:
    """Say how plain tensors that reach the dropout of a module are cut over a mesh.

    For tensor parallelism whose activations are local tensors: the weights of attention, say, are
    ``Shard(1)`` where each rank has some of the heads. They are cut evenly. A ``DTensor`` needs
    nothing of this.

    Args:
        module: a converted module; it and all modules below it are meant.
        mesh: a ``DeviceMesh``.
        placements: one ``Shard`` or ``Replicate`` for each dimension of ``mesh``.

    Returns:
        ``module``.

    Raises:
        TypeError: ``module`` is no module.
        ValueError: it has no dropout of ``fastseed.nn``.

    Examples:
        >>> fastseed.nn.shard_inputs(attention, mesh["tp"], [Shard(1)])  # doctest: +SKIP
    """
    function = "nn.shard_inputs"
    validation.check_instance(function, "module", module, nn.Module, "a torch.nn.Module")
    cut = Cut(mesh, tuple(placements))
    found: list[Any] = [m for m in module.modules() if isinstance(m, Dropout)]
    found += [m.fastseed_calls for m in module.modules() if hasattr(m, "fastseed_calls")]
    if not found:
        raise validation.value_error(function, "module", "one with dropout of fastseed.nn", module)
    for layer in found:
        layer.cut = cut
    return module


def _convert_one(module: Any, name: str, batch_dim: int | None) -> None:
    if type(module) in _REPLACED:
        module.__class__ = _REPLACED[type(module)]
        set_up(module, name or "dropout", batch_dim)
    elif isinstance(module, Dropout):
        if module.layer is None:
            set_up(module, name or "dropout", batch_dim)
    elif _may_call(module) and not hasattr(type(module), "fastseed_original"):
        module.fastseed_calls = _Calls(name, batch_dim)
        cls: Any = type(module)
        module.__class__ = _calling_class(cls)


def _may_call(module: Any) -> bool:
    """Return whether the forward may call dropout: it is not torch's, or of a kind of dropout."""
    home = getattr(type(module).forward, "__module__", None) or ""  # None: generated, as by fx
    return isinstance(module, tuple(_REPLACED)) or not home.startswith("torch.")


def _qualified(path: str, prefix: str) -> str:
    """Return the name of a module without what wraps it."""
    parts = [part for part in path.split(".") if part not in _WRAPPERS]
    return ".".join(filter(None, [prefix, *parts]))


def _cannot(module: nn.Module) -> bool:
    """Return whether a module drops in a way that has no keyed form, or cannot be looked into."""
    if isinstance(module, torch.jit.ScriptModule) or (
        "forward" in vars(module) and not type(module).__module__.startswith("torch.")
    ):
        return True
    if isinstance(module, (nn.AlphaDropout, nn.FeatureAlphaDropout)):
        return module.p > 0
    if isinstance(module, (nn.RNNBase, nn.MultiheadAttention)):
        return bool(module.dropout > 0)
    return isinstance(module, nn.RReLU)
