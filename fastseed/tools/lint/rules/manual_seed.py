"""Rules about seeds: set by hand beside fastseed, or taken from a clock (FS101, FS104)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ..module import Arguments, Module, Violation, constant
from ..syntax import is_none, last_name, names_in, targets_of

SEEDERS = re.compile(
    r"(numpy\.)?random\.seed|torch\.((cuda|xpu|mps|mtia)\.)?(manual_seed|seed)(_all)?"
)
"""Functions that seed a global generator that fastseed seeds."""

_HELPERS = re.compile(
    r"(pytorch_lightning|lightning|lightning_fabric)\.(.*\.)?seed_everything|"
    r"transformers\.(trainer_utils\.)?(set_seed|enable_full_determinism)|"
    r"accelerate\.utils\.(random\.)?set_seed|monai\.utils\.set_determinism|"
    r"ignite\.utils\.manual_seed|catalyst\.utils\.set_global_seed"
)
"""Functions of other packages that call all of them."""

MAKERS = re.compile(
    r"numpy\.random\.(default_rng|RandomState|SeedSequence|PCG64|PCG64DXSM|MT19937|Philox|SFC64)|"
    r"random\.Random"
)
"""Functions that make a generator, and take its seed first."""

_CHANGING = (
    (re.compile(r"time\.(time|perf_counter|monotonic|process_time)(_ns)?"), "the clock"),
    (re.compile(r"datetime\.datetime\.(now|utcnow|today)"), "the clock"),
    (re.compile(r"os\.getp?pid|threading\.get_ident"), "the number of a process"),
    (
        re.compile(r"uuid\.uuid[14]|os\.u?(get)?random|secrets\.(randbits|randbelow|token_bytes)"),
        "the operating system's random bytes",
    ),
)

_SEED = re.compile(r"(?:^|_)(?:seeds?|random_state)$", re.IGNORECASE)  # names that hold one
_TEXT = re.compile(
    r"name|path|file|str|text|key|url|word|title|uuid|format|\b(repr|join|encode|node)\b",
    re.IGNORECASE,
)
_SEEDING = re.compile(r"(?:^|_)seed(?:_|$)|^manual_seed", re.IGNORECASE)  # functions that take one


def seeds_globally(module: Module) -> bool:
    """Return whether a file seeds torch's global generator, itself or through a helper."""
    origins = (module.origin(call) or "" for call in module.calls)
    return any(one == "torch.manual_seed" or _HELPERS.fullmatch(one) for one in origins)


# ---------------------------------------------------------------- FS101


def manual_seeding(module: Module) -> Iterator[Violation]:
    """FS101."""
    for call in module.calls:
        origin = module.origin(call) or ""
        seeds = SEEDERS.fullmatch(origin) or _HELPERS.fullmatch(origin)
        if seeds and not (origin.startswith("torch.") and _forked(module, call)):
            yield Violation("FS101", call, f"`{origin}` seeds by hand beside fastseed")


def _forked(module: Module, node: ast.AST) -> bool:
    """Return whether a node is inside `with torch.random.fork_rng()`."""
    return any(
        module.names.origin(item.context_expr) == "torch.fork_rng()"
        for holder in module.ancestors(node)
        if isinstance(holder, (ast.With, ast.AsyncWith))
        for item in holder.items
    )


# ---------------------------------------------------------------- FS104


def accidental_seed(module: Module) -> Iterator[Violation]:
    """FS104."""
    reported: set[ast.AST] = set()
    for expression in _seeds(module):
        for node, what in _changing(module, expression):
            if node not in reported:
                reported.add(node)
                yield Violation("FS104", node, f"a seed from {what} differs in every run")
    for call in module.calls:
        if _from_the_system(module, call):
            yield Violation(
                "FS104", call, "without a seed this takes one from the operating system"
            )  # fmt: skip


def _from_the_system(module: Module, call: ast.Call) -> bool:
    origin = module.origin(call) or ""
    arguments = Arguments(module, call)
    if arguments.hidden:
        return False
    if origin in ("torch.seed", "torch.Generator().seed", "torch.cuda.seed", "torch.cuda.seed_all"):
        return True
    empty = not call.keywords and all(is_none(a) for a in call.args)
    return origin in ("random.seed", "numpy.random.seed", "random.Random().seed") and empty


def _seeds(module: Module) -> Iterator[ast.expr]:
    """Expressions whose value is used as a seed."""
    for node in module.nodes:
        if isinstance(node, ast.Call):
            yield from _passed(module, node)
        elif isinstance(node, (ast.Assign, ast.AnnAssign, ast.NamedExpr)) and node.value:
            if any(_SEED.search(last_name(target)) for target in targets_of(node)):
                yield node.value
        elif isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and _SEED.search(str(key.value)):
                    yield value
        elif isinstance(node, ast.arguments):
            named = [*node.posonlyargs, *node.args]
            pairs = list(zip(reversed(named), reversed(node.defaults), strict=False))
            pairs += zip(node.kwonlyargs, node.kw_defaults, strict=True)  # type: ignore[arg-type]
            yield from (d for a, d in pairs if d is not None and _SEED.search(a.arg))


def _passed(module: Module, call: ast.Call) -> Iterator[ast.expr]:
    """The arguments of a call that are seeds."""
    origin = module.origin(call) or ""
    name = last_name(call.func)
    for keyword in call.keywords:
        if keyword.arg is not None and _SEED.search(keyword.arg):
            yield keyword.value
    if origin == "fastseed.init" or any(
        functions.fullmatch(origin) for functions in (SEEDERS, _HELPERS, MAKERS)
    ):
        yield from call.args[:1]
    elif _SEEDING.search(name) and not name.startswith("get_"):
        yield from call.args
    elif name == "add_argument" and call.args:
        option = constant(module, call.args[-1])
        if isinstance(option, str) and _SEED.search(option.replace("-", "_")):
            yield from (k.value for k in call.keywords if k.arg == "default")


def _changing(
    module: Module, expression: ast.expr, depth: int = 0
) -> Iterator[tuple[ast.expr, str]]:
    """Yield the parts of an expression that differ between runs, through names assigned once."""
    todo: list[ast.AST] = [expression]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Lambda):
            continue
        if isinstance(node, ast.Call):
            origin = module.origin(node) or ""
            what = next(
                (what for functions, what in _CHANGING if functions.fullmatch(origin)), None
            )
            what = what or _address(module, node)
            if what:
                yield node, what
                continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and depth < 3:
            value = module.names.value(node)
            if value is not node and value is not None:
                yield from _changing(module, value, depth + 1)
        todo.extend(ast.iter_child_nodes(node))


def _address(module: Module, call: ast.Call) -> str | None:
    """`id()`, and `hash()` of what may hold strings."""
    if module.names.is_builtin(call.func, "id"):
        return "`id()`, an address,"
    if module.names.is_builtin(call.func, "hash") and any(map(_holds_text, call.args)):
        return "`hash()`, which is salted for strings (PYTHONHASHSEED),"
    return None


def _holds_text(node: ast.AST) -> bool:
    """Return whether an expression contains a string: hashes of numbers are not salted."""
    strings = any(
        isinstance(part, ast.Constant) and isinstance(part.value, (str, bytes))
        for part in ast.walk(node)
    )
    return strings or _TEXT.search(" ".join(names_in(node))) is not None


CHECKS = (manual_seeding, accidental_seed)
