"""Rules about operations that give other bits in another run (FS501, FS502).

The tables are the list at ``torch.use_deterministic_algorithms`` of torch 2.10 to 2.13, which a
test compares with the installed torch. Not in them are operations whose condition no call shows
(quantized and sparse tensors, a list of indices, the type of ``src``), and ``NLLLoss``, whose CUDA
code raises for images only.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from ..module import Arguments, Module, Violation, constant
from ..syntax import called, last_name, words_of


class Operation(NamedTuple):
    """An operation on torch's list."""

    name: str
    """As torch documents it, without ``torch.``."""
    backward: bool = False
    """True if only its gradient is not deterministic."""
    argument: str = ""
    """An argument that has to be passed."""
    position: int = -1
    """Its position in the function; in a method, and in a module's constructor, it is one less."""
    values: tuple[str, ...] = ()
    """The values that count; empty: all."""


_INTERPOLATE = Operation(
    "nn.functional.interpolate", True, "mode", 3, ("linear", "bilinear", "bicubic", "trilinear")
)
_RAISE = (
    *(Operation(f"nn.MaxUnpool{n}d") for n in (1, 2, 3)),
    *(Operation(f"nn.ReflectionPad{n}d", True) for n in (1, 2, 3)),
    *(Operation(f"nn.FractionalMaxPool{n}d", True) for n in (2, 3)),
    *(Operation(f"nn.AdaptiveAvgPool{n}d", True) for n in (2, 3)),
    Operation("nn.AdaptiveMaxPool2d", True),
    Operation("nn.AvgPool3d", True),
    Operation("nn.CTCLoss", True),
    Operation("nn.EmbeddingBag", True, "mode", -1, ("max",)),
    Operation("nn.functional.grid_sample", True),
    _INTERPOLATE,
    Operation("Tensor.put_"),
    Operation("Tensor.scatter_reduce", False, "reduce", 4, ("prod",)),
    Operation("histc"),
    Operation("bincount", False, "weights", 1),
    Operation("median", False, "dim", 1),
    Operation("cumsum"),
)
"""Operations without a deterministic implementation on CUDA devices."""

_ACT = (
    *(Operation(f"nn.Conv{n}d") for n in (1, 2, 3)),
    *(Operation(f"nn.ConvTranspose{n}d") for n in (1, 2, 3)),
    *(Operation(f"nn.ReplicationPad{n}d", True) for n in (1, 2, 3)),
    Operation("nn.MaxPool3d", True),
    Operation("Tensor.index_copy"),
    Operation("Tensor.index_put"),
    Operation("Tensor.scatter_add_"),
    Operation("Tensor.scatter_reduce", False, "reduce", 4, ("sum", "mean")),
    Operation("gather", True),
    Operation("index_add"),
    Operation("index_select", True),
    Operation("repeat_interleave", True),
)
"""Operations that are deterministic once the switch is on."""

_INTEGERS = re.compile(r"\b(long|short|bool|byte|u?int\d*)\b")
_COUNTS = re.compile(
    r"mask|len|count|num|size|shape|grid|ind(ex|ices)|offset|position|ids|ones_like|arange|"
    r"repeats|split|label|valid"
)
"""In the names of tensors of integers, mostly."""
_NO_GRAD = {"torch.no_grad", "torch.no_grad()", "torch.inference_mode", "torch.inference_mode()"}
_AROUND = re.compile(
    r"post_?process|pre_?process|Processor|visuali[sz]e|plot|metric", re.IGNORECASE
)
"""Functions and classes in which nothing is differentiated."""
_SWITCHES = re.compile(
    r"(torch|fastseed|transformers|monai)\.(.*\.)?(use_deterministic_algorithms|deterministic|"
    r"set_deterministic(_debug_mode)?|enforce_reproducibility|enable_full_determinism|"
    r"set_determinism)"
)


def nondeterministic_operation(module: Module) -> Iterator[Violation]:
    """FS501."""
    for call, operation in _listed(module, RAISES):
        how = "in its backward pass " if operation.backward else ""
        message = f"`{operation.name}` has no deterministic implementation {how}on CUDA devices"
        yield Violation("FS501", call, message)


def deterministic_mode_off(module: Module) -> Iterator[Violation]:
    """FS502: once a file, at the first such operation."""
    if not any(called(call) == "backward" for call in module.calls):
        return
    cudnn = _cudnn_deterministic(module)
    found = [
        (call, operation.name)
        for call, operation in _listed(module, ACTS)
        if not (cudnn and ".Conv" in operation.name)
    ]
    if found:
        call, name = min(found, key=lambda one: (one[0].lineno, one[0].col_offset))
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        message = f"`{name}`{more} is deterministic only under `use_deterministic_algorithms`"
        yield Violation("FS502", call, message)


def switches_on(module: Module) -> bool:
    """Return whether a file turns on deterministic algorithms."""
    for call in module.calls:
        origin = module.origin(call) or ""
        first = call.args[0] if call.args else None
        if _SWITCHES.fullmatch(origin) and constant(module, first) not in (False, 0, "default"):
            return True
        if origin.endswith(".Trainer"):
            value = Arguments(module, call).get("deterministic")
            if value is not None and constant(module, value) is not False:
                return True
    return False


def _cudnn_deterministic(module: Module) -> bool:
    """Return whether cudnn's switch is set, to a constant or to what an option says."""
    return any(
        module.origin(target) == "torch.backends.cudnn.deterministic"
        for node in module.nodes
        if isinstance(node, ast.Assign) and constant(module, node.value) is not False
        for target in node.targets
    )


# ---------------------------------------------------------------- calls of listed operations


def _key(name: str) -> str:
    """Return the same text for a class and its function, for a method and its function."""
    holder, _, last = name.rpartition(".")
    if holder in ("torch.nn", "torch.nn.functional"):
        kind = "nn."
    elif holder in ("torch", "torch.Tensor"):
        kind = ""
    else:
        return ""
    return kind + last.lower().replace("_", "")  # CTCLoss is ctc_loss


RAISES = {_key(f"torch.{one.name}"): one for one in _RAISE} | {"nn.upsample": _INTERPOLATE}
ACTS = {_key(f"torch.{one.name}"): one for one in _ACT}


def _listed(module: Module, table: dict[str, Operation]) -> Iterator[tuple[ast.Call, Operation]]:
    """Calls of listed operations whose conditions hold, as far as the call shows."""
    if not module.has("torch"):
        return
    for call in module.calls:
        name = _name_of(module, call)
        operation = table.get(_key(name))
        if operation is not None and _holds(module, call, name, operation):
            yield call, operation


def _name_of(module: Module, call: ast.Call) -> str:
    """The dotted name of what is called; ``torch.Tensor.f`` for a method of a tensor."""
    origin = module.origin(call) or ""
    if _key(origin) or not isinstance(call.func, ast.Attribute):
        return origin
    attr, base = call.func.attr, module.names.origin(call.func.value) or ""
    # `x.put_()` can only be a tensor's; `x.cumsum()` may be of NumPy or pandas.
    method = _is_tensor(base) or (attr.endswith("_") and not base)
    return f"torch.Tensor.{attr}" if method else origin


def _is_tensor(origin: str) -> bool:
    """Return whether an origin is that of a tensor: what a function of torch returned."""
    if origin in ("torch.Tensor()", "torch.nn.Parameter()", "torch.nn.parameter.Parameter()"):
        return True
    return re.match(r"torch\.(nn\.functional\.)?[a-z]\w*\(\)(.*\(\))?$", origin) is not None


def _holds(module: Module, call: ast.Call, name: str, operation: Operation) -> bool:
    """Return whether a call passes what the operation's condition asks for."""
    arguments = Arguments(module, call)
    holder, _, last = name.rpartition(".")
    is_function = holder != "torch.Tensor" and last.islower()
    if operation.argument:
        position = operation.position - (not is_function)
        value = arguments.get(operation.argument, position if position >= 0 else None)
        if value is None or (operation.values and constant(module, value) not in operation.values):
            return False
    if operation.backward and _without_gradient(module, call):
        return False
    if operation.name == "cumsum":
        tensor = arguments.get("input", 0)
        if isinstance(call.func, ast.Attribute) and not is_function:
            tensor = call.func.value
        return _may_be_float(module, arguments.get("dtype"), tensor)
    if operation.name.startswith("nn.AdaptiveAvgPool"):
        return not _is_one(module, arguments.get("output_size", int(is_function)))
    return True


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


def _is_one(module: Module, size: ast.expr | None) -> bool:
    """Return whether adaptive pooling is to one value: torch computes a mean, and that is fine."""
    size = module.names.value(size)
    parts = size.elts if isinstance(size, (ast.Tuple, ast.List)) else [size]
    return all(constant(module, part) == 1 for part in parts)


def _may_be_float(module: Module, dtype: ast.expr | None, tensor: ast.expr | None) -> bool:
    """Return whether what is summed up is not evidently of integers: masks, counts, lengths."""
    if dtype is not None:
        return not _INTEGERS.search(last_name(dtype))
    value = module.names.value(tensor)
    if value is None:
        return True
    if any(isinstance(part, ast.Compare) for part in ast.walk(value)):
        return False
    words = words_of(value)
    return not (_INTEGERS.search(words) or _COUNTS.search(words))


CHECKS = (nondeterministic_operation, deterministic_mode_off)
