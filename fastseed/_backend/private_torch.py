"""What fastseed uses of torch's private names, one small function for each.

Those of ``torch.distributed`` are in ``private_distributed``.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import inspect
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import overrides
from torch._guards import TracingContext
from torch._ops import OpOverload as OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import get_proxy_mode
from torch.utils import _python_dispatch

INDUCTOR = "_inductor.config"
"""The compiler's settings, in torch."""
APPLY = "_apply"
"""The method of a module that ``to`` and ``to_empty`` call."""
FANS = "_calculate_fan_in_and_fan_out"
"""The function of ``torch.nn.init`` that reads the size of a weight."""

if TYPE_CHECKING:
    from torch.utils.data import DataLoader


def is_wrapped(tensor: torch.Tensor) -> bool:
    """Return whether a transform of ``torch.func`` wraps a tensor, whose memory cannot be read."""
    return bool(torch._C._functorch.is_functorch_wrapped_tensor(tensor))


def is_zero(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is one of zeros without memory, of forward-mode differentiation."""
    return tensor._is_zerotensor()


def storage_of(tensor: torch.Tensor) -> int:
    """Return what identifies the memory of a tensor while it is alive."""
    return int(tensor.untyped_storage()._cdata)


def is_batched(tensor: torch.Tensor) -> bool:
    """Return whether ``torch.vmap`` maps over a tensor, whose strides are those of one example."""
    return bool(torch._C._functorch.is_batchedtensor(tensor))


# ---------------------------------------------------------------- fake tensors, autograd


def is_fake(tensor: torch.Tensor) -> bool:
    """Return whether a tensor has no values: torch has no public type for it."""
    return type(tensor) is FakeTensor


def is_traced() -> bool:
    """Return whether operators are recorded into a graph, where fake tensors stand for real."""
    return get_proxy_mode() is not None


def in_backward() -> bool:
    """Return whether this thread runs a backward pass."""
    return bool(torch._C._current_graph_task_id() != -1)


Checkpoint: TypeAlias = tuple[Any, str]
"""An object that torch holds for a backward pass, and the attribute that is called again there."""


def running_checkpoints(*until: object) -> list[Checkpoint]:
    """Return the checkpoints whose forward pass runs, the innermost first.

    torch has no public question: a checkpoint that is not reentrant sets hooks of its own; one that
    is, or one of another library, is a ``torch.autograd.Function`` that keeps a function which it
    was given. Only those that began after the innermost call of a code of ``until``.
    """
    hooks = torch._C._autograd._top_saved_tensors_default_hooks(True)
    if hooks is None and (torch._C._is_fwd_grad_enabled() or torch.is_inference_mode_enabled()):
        return []  # no Function runs, where forward mode is off
    found: list[Checkpoint] = []
    codes = _checkpoint_codes()
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None and (code := frame.f_code) not in until:
        if code.co_name == "forward" and code.co_varnames[:1] != ("self",):
            found += _of_function(code, frame)
        elif code in codes:
            generator = frame.f_locals.get("gen")  # suspended while the function runs
            if generator is not None and generator.gi_frame is not None:
                found.append((generator.gi_frame.f_locals["new_frame"], "recompute_fn"))
        frame = frame.f_back
    pack: Any = hooks[0] if hooks else None
    if len(until) < 2 and getattr(pack, "__qualname__", "").startswith("_checkpoint_hook."):
        last = pack.__closure__[0].cell_contents, "recompute_fn"  # begun by a hook of a module
        found += [last] if last not in found else []
    return found


def _of_function(code: types.CodeType, frame: types.FrameType) -> list[Checkpoint]:
    """Return the checkpoint whose forward a frame runs, if it does."""
    names, given = code.co_varnames, frame.f_locals
    context = given.get(names[0]) if names else None
    if not isinstance(context, torch.autograd.function.FunctionCtx):
        return []
    functions = [given[name] for name in names[1 : code.co_argcount] if callable(given.get(name))]
    return [
        (context, name)
        for name, value in vars(context).items()
        if any(getattr(value, "fastseed_original", value) is f for f in functions)
    ]


@functools.cache
def _checkpoint_codes() -> frozenset[object]:
    """Return the code that runs a checkpoint that is not reentrant."""
    from torch.utils import checkpoint as module

    functions = map(inspect.unwrap, filter(callable, vars(module).values()))
    codes = {f.__code__ for f in functions if inspect.isfunction(f)}
    return frozenset(code for code in codes if "gen" in code.co_varnames)


def context_of_backward() -> contextvars.Context | None:
    """Return the context of the thread that called ``backward()``, in a thread of autograd."""
    if not torch._C._is_key_in_tls("context"):
        return None
    found: contextvars.Context = torch._C._get_obj_in_tls("context")
    return found


def graph_being_traced() -> object:
    """Return what stands for the graph that ``torch.compile`` traces now, or None."""
    return TracingContext.try_get()


def answer_at_trace(function: Any) -> Any:
    """Let ``torch.compile`` call a function while it traces: its own decorator imports Dynamo."""
    function._dynamo_marked_constant = True
    return function


@answer_at_trace
def is_checkpointed() -> bool:
    """Return whether a checkpointed function runs, also one that ``torch.compile`` traces."""
    dynamo: Any = sys.modules.get("torch._dynamo.symbolic_convert")
    translator = getattr(getattr(dynamo, "tls", None), "current_tx", None)
    tracer = None if translator is None else translator.output.current_tracer
    while tracer is not None:
        if getattr(tracer.source_target, "__name__", "") == "tag_activation_checkpoint":
            return True
        tracer = tracer.parent
    return bool(running_checkpoints())


@answer_at_trace
def is_drawn_again() -> bool:
    """Return whether the compiler may compute again, in a backward pass, what a graph computes."""
    from torch._functorch import config

    saves_memory = config.activation_memory_budget < 1 or config.aggressive_recomputation
    return torch.is_grad_enabled() and saves_memory


def is_transformed() -> bool:
    """Return whether a transform of ``torch.func`` runs, which wraps new tensors."""
    return torch._C._functorch.get_interpreter_stack() is not None


@answer_at_trace
def is_vmapped() -> bool:
    """Return whether ``torch.vmap`` runs the caller, with randomness that is not "same"."""
    functorch = torch._C._functorch
    levels = functorch.get_interpreter_stack()
    return levels is not None and any(
        level.key() == functorch.TransformType.Vmap
        and functorch.CVmapInterpreterPtr(level).randomness() != functorch.RandomnessType.Same
        for level in levels
    )


def is_seen() -> bool:
    """Return whether Dynamo or ``torch.export`` sees the functions that this thread calls."""
    if torch.compiler.is_dynamo_compiling():  # Dynamo knows this, and cannot trace the next line
        return True
    is_compiling = torch._C._dynamo.eval_frame.get_eval_frame_callback() is not None
    return is_compiling or torch.compiler._is_exporting_flag


def mark_eager(function: Any, reason: str) -> None:
    """Mark a function that ``torch.compile`` must not trace, as ``torch.compiler.disable`` does."""
    function._torchdynamo_disable = True
    function._torchdynamo_disable_msg = reason


def has_tangents() -> bool:
    """Return whether forward-mode derivatives are computed."""
    level: Any = vars(forward_ad)["_current_level"]
    return bool(level >= 0)


# ---------------------------------------------------------------- modes


def dispatch_modes() -> list[object]:
    """Return the dispatch modes of this thread, the innermost one last."""
    return list(_python_dispatch._get_current_dispatch_mode_stack())


@functools.cache
def show_to_modes(functions: frozenset[Any]) -> None:
    """Let compiled code ask function modes about these functions, as eager code does.

    torch's list of them (2.10 to 2.15) lacks ``randn_like`` and others.
    """
    overrides.get_overridable_functions().setdefault(torch, []).extend(functions)
    module = sys.modules.get("torch._dynamo.variables.torch")
    if module is not None:
        module.get_overridable_functions().update(functions)


def writes(operator: OpOverload) -> bool:
    """Return whether an operator writes to a tensor that it is given."""
    return bool(operator._schema.is_mutable)


GAMMA_FUNCTIONS = (torch._sample_dirichlet, torch._standard_gamma)
"""What the gamma distributions of ``torch.distributions`` call."""


def replace_dtensor_draws(draw: Callable[[Any, Callable[[], torch.Tensor]], object]) -> None:
    """Let ``draw`` make what ``torch.distributed.tensor.rand`` and ``randn`` return.

    It gets ``torch.rand`` or ``torch.randn``, and what makes a ``DTensor`` without values; it may
    return None. The two functions would call torch with the shape of the shard.
    """
    api: Any = sys.modules.get("torch.distributed.tensor._api")
    original = getattr(api, "_dtensor_init_helper", None)
    if original is None or hasattr(original, "fastseed_original"):
        return

    def make(op: Any, *args: Any, **options: Any) -> object:
        if op is torch.rand or op is torch.randn:
            found = draw(op, lambda: original(torch.empty, *args, **options))
            if found is not None:
                return found
        return original(op, *args, **options)

    vars(make)["fastseed_original"] = original
    api._dtensor_init_helper = make


def function_modes() -> list[Any]:
    """Return the function modes of this thread, the innermost one last."""
    stack: Any = overrides
    return list(stack._get_current_function_mode_stack())


def leave_function_mode(mode: object) -> bool:
    """Leave a function mode, and none above it; return whether it was the innermost one."""
    modes = function_modes()
    if mode in modes:
        _replace_modes(modes, [other for other in modes if other is not mode])
    return modes[-1:] == [mode]


WITHOUT_FUNCTION_MODES: Any = torch._C.DisableTorchFunction
"""A block that spares the function modes of eager code its calls, as ``torch.device`` is one."""


@contextlib.contextmanager
def without_modes(kind: type) -> Iterator[None]:
    """Leave the function modes of a class for a while, in eager code."""
    modes = [] if torch.compiler.is_compiling() else function_modes()
    others = [mode for mode in modes if not isinstance(mode, kind)]
    if len(others) == len(modes):
        yield
        return
    _replace_modes(modes, others)
    try:
        yield
    finally:
        _replace_modes(others, modes)


def _replace_modes(old: list[Any], new: list[Any]) -> None:
    stack: Any = overrides
    for _ in old:
        stack._pop_mode()
    for mode in new:
        stack._push_mode(mode)


def with_names(function: Any, **names: object) -> Any:
    """Return a copy of a function of torch with other globals of these names."""
    known = {**function.__globals__, **names}
    del known["__name__"]  # or torch.compile would look into the module of this name
    name = f"{function.__name__}_with_names"
    code = function.__code__.replace(co_name=name)  # torch.compile keeps its results by code
    return types.FunctionType(code, known, argdefs=function.__defaults__)


def is_plain_eager() -> bool:
    """Return whether new tensors are ordinary ones: neither traced nor made by a dispatch mode."""
    return not torch.compiler.is_compiling() and torch._C._len_torch_dispatch_stack() == 0


# ---------------------------------------------------------------- accelerators


def queue_seeding(module: Any, seed_all: Callable[[], None], why: str) -> bool:
    """Queue a call that seeds every device for when torch initializes an accelerator.

    It replaces the seeding queued before. False if ``module`` (``torch.cuda``, ...) has no queue.
    """
    tracker = getattr(module, "_lazy_seed_tracker", None)
    if tracker is not None:
        tracker.queue_seed_all(seed_all, [f"{why}\n"])
    elif hasattr(module, "_lazy_call"):
        module._lazy_call(seed_all, seed_all=True)
    else:
        return False
    return True


def mps_generator() -> torch.Generator:
    """Return the default generator of MPS, which ``torch.mps`` has under no public name."""
    return torch.mps._get_default_mps_generator()


def set_deterministic(mode: bool, warn_only: bool) -> None:
    """Set the mode alone: ``torch.use_deterministic_algorithms`` imports Inductor, too."""
    torch._C._set_deterministic_algorithms(mode, warn_only=warn_only)


# ---------------------------------------------------------------- gradients, modules


def gradient_hooks(tensor: torch.Tensor) -> set[int]:
    """Return the ids of hooks on a parameter's gradient: torch has no public list of them."""
    tables = (tensor._backward_hooks, getattr(tensor, "_post_accumulate_grad_hooks", None))
    return {key for table in tables for key in table or ()}


def version_of(tensor: torch.Tensor) -> int:
    """Return how often a tensor was written in place: autograd's own count."""
    return int(tensor._version)


def buffers_of(module: torch.nn.Module) -> dict[str, torch.Tensor | None]:
    """Return the buffers of a module to read and replace, those that are None too."""
    return module._buffers


def multiply_(tensors: Sequence[torch.Tensor], factor: float) -> None:
    """Multiply tensors of one dtype in place, with one kernel for many of them."""
    by: float | torch.Tensor = factor
    if all(t.is_cpu for t in tensors):  # the CPU would convert a number anew for each tensor
        by = torch.tensor(factor, dtype=tensors[0].dtype)
    torch._foreach_mul_(list(tensors), by)


# ---------------------------------------------------------------- DataLoader

ITERATING = "__iter__", "_get_iterator", "__len__", "_index_sampler", "_auto_collation"


def current_iterator(loader: DataLoader[Any]) -> Any:
    """Return the iterator that a loader keeps while its workers persist; None otherwise."""
    return loader._iterator


def workers_of(iterator: Any) -> list[Any]:
    """Return the processes of a loader's iterator, whose exit codes torch does not show."""
    return list(getattr(iterator, "_workers", ()))


def has_random_by_key() -> bool:
    """Return whether this torch has ``torch.func._random``."""
    return hasattr(torch.ops.aten, "_philox_normal_")


def received_batches(iterator: Any) -> int | None:
    """Return how many batches, and errors in their place, came from workers; None without them."""
    return getattr(iterator, "_rcvd_idx", None)


def has_ended(iterator: Any) -> bool:
    """Return True if an iterable dataset that the main process reads was found at its end."""
    return getattr(getattr(iterator, "_dataset_fetcher", None), "ended", False) is True
