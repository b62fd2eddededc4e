"""Rules about operations that give other bits in another run (FS501, FS502)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from .. import torch_docs
from ..module import Arguments, Module, Violation, constant
from ..torch_docs import Operation

# Ways to write a listed operation that its own documentation shows, not the list.
_SAME = {
    "torch.nn.Upsample": ("torch.nn.functional.interpolate", ("size", "scale_factor", "mode")),
    "torch.nn.functional.upsample": ("torch.nn.functional.interpolate", ()),
}
_POSITIONS = {
    "torch.nn.functional.interpolate": ("input", "size", "scale_factor", "mode"),
    "torch.nn.functional.upsample": ("input", "size", "scale_factor", "mode"),
    "torch.bincount": ("input", "weights"),
    "torch.median": ("input", "dim"),
    "torch.scatter_reduce": ("input", "dim", "index", "src", "reduce"),
    "torch.Tensor.bincount": ("weights",),
    "torch.Tensor.median": ("dim",),
    "torch.Tensor.put_": ("index", "source", "accumulate"),
    "torch.Tensor.index_put_": ("indices", "values", "accumulate"),
    "torch.Tensor.scatter_reduce": ("dim", "index", "src", "reduce"),
    "torch.Tensor.scatter_reduce_": ("dim", "index", "src", "reduce"),
}
"""The order of arguments, where a condition is about one that can be passed by position."""

_CUMULATIVE = {"torch.cumsum", "torch.Tensor.cumsum", "torch.Tensor.cumsum_"}
_INTEGERS = {"long", "int", "short", "bool", "byte", "int64", "int32", "int16", "int8", "uint8"}
_COUNTS = (
    "mask", "len", "count", "num", "size", "shape", "grid", "index", "indices", "offset",
    "position", "ids", "ones_like", "arange", "repeats", "split", "label", "valid",
)  # fmt: skip
"""In the names of tensors of integers, mostly."""
_NO_GRAD = {"torch.no_grad", "torch.no_grad()", "torch.inference_mode", "torch.inference_mode()"}
_AROUND = re.compile(
    r"post_?process|pre_?process|Processor|visuali[sz]e|plot|metric", re.IGNORECASE
)
"""Functions and classes in which nothing is differentiated."""
_SWITCHES = {
    "torch.use_deterministic_algorithms", "torch.set_deterministic_debug_mode",
    "torch.set_deterministic", "fastseed.deterministic", "fastseed.enforce_reproducibility",
    "transformers.enable_full_determinism", "transformers.trainer_utils.enable_full_determinism",
    "monai.utils.set_determinism",
}  # fmt: skip


def nondeterministic_operation(module: Module) -> Iterator[Violation]:
    """FS501."""
    for call, operation in _listed(module, torch_docs.RAISES):
        on = f" ({operation.condition})" if operation.condition else ""
        short = operation.name.removeprefix("torch.")
        yield Violation("FS501", call, f"`{short}` has no deterministic implementation{on}")


def deterministic_mode_off(module: Module) -> Iterator[Violation]:
    """FS502: once a file, at the first such operation."""
    if not any(
        isinstance(c.func, ast.Attribute) and c.func.attr == "backward" for c in module.calls
    ):
        return
    cudnn = _cudnn_deterministic(module)
    found: list[tuple[int, int, ast.Call, str]] = []
    for call, operation in _listed(module, torch_docs.ACTS):
        if not (cudnn and ".Conv" in operation.name):
            short = operation.name.removeprefix("torch.")
            found.append((call.lineno, call.col_offset, call, short))
    if found:
        _, _, call, short = min(found, key=lambda one: one[:2])
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        message = f"`{short}`{more} is deterministic only under `use_deterministic_algorithms`"
        yield Violation("FS502", call, message)


def switches_on(module: Module) -> bool:
    """Return whether a file turns on deterministic algorithms."""
    for call in module.calls:
        origin = module.origin(call) or ""
        first = call.args[0] if call.args else None
        if origin in _SWITCHES and constant(module, first) not in (False, 0, "default"):
            return True
        if origin.endswith(".Trainer"):
            value = Arguments(module, call).get("deterministic")
            if value is not None and constant(module, value) is not False:
                return True
    return False


def _cudnn_deterministic(module: Module) -> bool:
    """Return whether cudnn's switch is set, to a constant or to what an option says."""
    for node in module.nodes:
        if isinstance(node, ast.Assign) and constant(module, node.value) is not False:
            targets = [module.names.origin(target) for target in node.targets]
            if "torch.backends.cudnn.deterministic" in targets:
                return True
    return False


def _listed(module: Module, kind: str) -> Iterator[tuple[ast.Call, Operation]]:
    """Calls of listed operations whose conditions hold, as far as the call shows."""
    if not module.has("torch"):
        return
    names = torch_docs.listed().operations
    for call in module.calls:
        name, operations = _operation(module, call, names)
        # Several rows of one operation, with conditions of their own: one finding.
        for operation in operations:
            if operation.kind == kind and operation.seen and _holds(module, call, name, operation):
                yield call, operation
                break


def _operation(
    module: Module, call: ast.Call, names: dict[str, tuple[Operation, ...]]
) -> tuple[str, tuple[Operation, ...]]:
    """The name that a call has on the list, and its rows."""
    origin = module.origin(call) or ""
    if origin in _SAME:
        return origin, names.get(_SAME[origin][0], ())
    if origin in names:
        return origin, names[origin]
    if isinstance(call.func, ast.Attribute):
        attr, base = call.func.attr, module.names.origin(call.func.value) or ""
        name = f"torch.Tensor.{attr}"
        # `x.put_()` can only be a tensor's; `x.cumsum()` may be of NumPy or pandas.
        if name in names and (_is_tensor(base) or (attr.endswith("_") and not base)):
            return name, names[name]
    return "", ()


def _is_tensor(origin: str) -> bool:
    """Return whether an origin is that of a tensor: what a function of torch returned."""
    if origin in ("torch.Tensor()", "torch.nn.Parameter()", "torch.nn.parameter.Parameter()"):
        return True
    if not origin.startswith("torch.") or not origin.endswith("()"):
        return False
    first = origin.split("()")[0].split(".")
    made = len(first) == 2 or first[:3] == ["torch", "nn", "functional"]
    return made and first[-1][:1].islower()


def _holds(module: Module, call: ast.Call, name: str, operation: Operation) -> bool:
    """Return whether a call passes what the operation's condition asks for."""
    arguments = Arguments(module, call)
    order = _SAME[name][1] if name in _SAME else ()
    order = order or _POSITIONS.get(name, ())
    for argument, values in operation.needs:
        place = order.index(argument) if argument in order else None
        value = arguments.get(argument, place)
        if values:
            default = False if False in values and not arguments.hidden else ...
            given = default if value is None else constant(module, value)
            if given not in values or (given == 0 and given is not False):
                return False
        elif value is None:
            return False
    if name in _CUMULATIVE:
        return _may_be_float(module, call, name)
    if "differentiate" in operation.condition and _without_gradient(module, call):
        return False
    return not _is_mean(module, call, operation)


def _without_gradient(module: Module, call: ast.Call) -> bool:
    """Return whether it is inside `no_grad`, or in a function before or after the model."""
    for holder in module.ancestors(call):
        guards: list[ast.expr] = []
        if _AROUND.search(getattr(holder, "name", None) or ""):
            return True
        if isinstance(holder, (ast.FunctionDef, ast.AsyncFunctionDef)):
            guards = holder.decorator_list
        elif isinstance(holder, (ast.With, ast.AsyncWith)):
            guards = [item.context_expr for item in holder.items]
        if any(module.names.origin(guard) in _NO_GRAD for guard in guards):
            return True
    return False


def _is_mean(module: Module, call: ast.Call, operation: Operation) -> bool:
    """Adaptive average pooling to one value, which torch computes as a mean, and that is fine."""
    if not operation.name.startswith("torch.nn.AdaptiveAvgPool"):
        return False
    functional = (module.origin(call) or "").startswith("torch.nn.functional.")
    size = Arguments(module, call).get("output_size", 1 if functional else 0)
    size = module.names.value(size)
    parts = size.elts if isinstance(size, (ast.Tuple, ast.List)) else [size]
    return all(constant(module, part) == 1 for part in parts)


def _may_be_float(module: Module, call: ast.Call, name: str) -> bool:
    """Return whether what is summed up is not evidently of integers: masks, counts, lengths."""
    arguments = Arguments(module, call)
    dtype = arguments.get("dtype")
    if dtype is not None:
        last = dtype.attr if isinstance(dtype, ast.Attribute) else ""
        return last not in _INTEGERS
    value: ast.expr | None = arguments.get("input", 0)
    if isinstance(call.func, ast.Attribute) and name != "torch.cumsum":
        value = call.func.value
    value = module.names.value(value)
    for part in ast.walk(value) if value is not None else ():
        if isinstance(part, ast.Compare):
            return False
        word = part.attr if isinstance(part, ast.Attribute) else getattr(part, "id", "")
        if word in _INTEGERS or any(w in word for w in _COUNTS):
            return False
    return True


CHECKS = (nondeterministic_operation, deterministic_mode_off)
