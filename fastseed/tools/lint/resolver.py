"""Resolve names of a file to the things they mean, from its text alone.

A name with one meaning (an import, one assignment, a function) is followed. A name with several
possible meanings is unknown, and rules ignore what is unknown. The order of statements is ignored.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from .syntax import is_none, last_name

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_SCOPES = (
    *_FUNCTIONS, ast.ClassDef, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp,
)  # fmt: skip
_DEEPEST = 24  # steps from a name to its origin

# Where a library keeps what it shows elsewhere: the same thing has one name in the rules.
_ALIASES = (
    ("numpy.random.mtrand.", "numpy.random."),
    ("torch.utils.data.dataloader.", "torch.utils.data."),
    ("torch.utils.data.dataset.", "torch.utils.data."),
    ("torch.utils.data.distributed.", "torch.utils.data."),
    ("torch.utils.data.sampler.", "torch.utils.data."),
    ("torch.cuda.random.", "torch.cuda."),
    ("torch.random.", "torch."),
    ("torch.functional.", "torch."),
    ("fastseed.pyt.", "fastseed."),
    ("fastseed.seeder.api.", "fastseed."),
    ("fastseed.seeder.", "fastseed."),
)


class Binding(NamedTuple):
    """One way in which a name gets its meaning."""

    kind: str
    """``import``, ``value``, ``parameter``, ``definition`` or ``other`` (a loop's target, say)."""
    node: ast.AST | None = None
    """The value, the annotation (None without one) or the definition."""
    dotted: str = ""
    """The imported name; empty for other kinds."""


class Scope:
    """A module, class, function or comprehension, and the names bound in it."""

    def __init__(self, node: ast.AST, parent: Scope | None) -> None:
        self.node, self.parent = node, parent
        self.names: dict[str, list[Binding]] = {}  # in a class also `self.name`
        self.elsewhere: dict[str, Scope] = {}  # names declared global or nonlocal

    def bind(self, name: str, binding: Binding) -> None:
        if name in self.elsewhere:
            self.elsewhere[name].bind(name, binding)
        else:
            self.names.setdefault(name, []).append(binding)


class Names:
    """The names of one module.

    Args:
        tree: the module, as ``ast.parse`` gives it.
    """

    def __init__(self, tree: ast.Module) -> None:
        self.module = Scope(tree, None)
        self.nodes: list[ast.AST] = []  # all but contexts and operators, in the order of the text
        self.parents: dict[ast.AST, ast.AST] = {}
        self.scopes: dict[ast.AST, Scope] = {}  # of every node, the scope that it is read in
        self._assigned: dict[ast.AST, Binding] = {}  # by target
        self._origins: dict[object, str | None] = {}
        self._collect(tree)

    def origin(self, node: ast.AST | None, depth: int = 0) -> str | None:
        """Return the dotted name of an expression: ``numpy.random.default_rng``.

        A call adds ``()``: ``torch.Generator().manual_seed``. An annotation counts
        as a call of it. None if it is unknown.
        """
        if not isinstance(node, (ast.Name, ast.Attribute, ast.Call)) or depth > _DEEPEST:
            return None
        # A name that is bound and read thousands of times is resolved once.
        key = (self.key(node) if isinstance(node, ast.Name) else None) or node
        if key not in self._origins:
            self._origins[key] = None  # what leads back to itself is unknown
            self._origins[key] = self._origin_of(node, depth + 1)
        return self._origins[key]

    def key(self, node: ast.AST | None) -> tuple[Scope, str] | None:
        """Return the scope and the name of a variable, ``name`` or ``self.name``."""
        if isinstance(node, ast.Attribute):
            owner = self.class_of(node.value)
            return (owner, f"self.{node.attr}") if owner else None
        if not isinstance(node, ast.Name):
            return None
        start = self.scopes[node]
        scope: Scope | None = start
        while scope is not None:
            # Functions do not see the names of the class around them.
            if scope is start or not isinstance(scope.node, ast.ClassDef):
                scope = scope.elsewhere.get(node.id, scope)
                if node.id in scope.names:
                    return scope, node.id
            scope = scope.parent
        return None  # a builtin, or nothing

    def bindings(self, node: ast.AST | None) -> list[Binding]:
        """Return the meanings of a variable."""
        scope, name = self.key(node) or (self.module, "")
        return scope.names.get(name, [])

    def is_builtin(self, node: ast.AST, name: str) -> bool:
        """Return whether an expression is the builtin ``name``."""
        return isinstance(node, ast.Name) and node.id == name and self.key(node) is None

    def value(self, node: ast.expr | None) -> ast.expr | None:
        """The expression behind a name that is assigned once, and so on; otherwise ``node``."""
        for _ in range(_DEEPEST):
            bindings = self.bindings(node)
            if len(bindings) != 1 or bindings[0].kind != "value":
                break
            assert isinstance(bindings[0].node, ast.expr)
            node = bindings[0].node
        return node

    def class_of(self, node: ast.AST) -> Scope | None:
        """The class whose ``self`` an expression is."""
        scope, name = (self.key(node) if isinstance(node, ast.Name) else None) or (None, "")
        if scope is None or scope.parent is None or not isinstance(scope.node, _FUNCTIONS):
            return None
        arguments = [*scope.node.args.posonlyargs, *scope.node.args.args]
        is_first = arguments and arguments[0].arg == name and len(scope.names[name]) == 1
        is_method = isinstance(scope.parent.node, ast.ClassDef)
        return scope.parent if is_first and is_method else None

    def function(self, node: ast.AST) -> Function | None:
        """The function of this file that an expression names: ``f``, ``self.f``."""
        scope, name = self.key(node) or (self.module, "")
        bindings = scope.names.get(name.removeprefix("self."), [])
        definition = bindings[0].node if len(bindings) == 1 else None
        if isinstance(definition, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return definition
        return None

    def imports(self) -> Iterator[str]:
        """Yield the imports of the file as dotted names; relative ones start with dots."""
        for node in self.nodes:
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                for alias in node.names:
                    yield _dotted(node, alias)

    # ------------------------------------------------------------ following

    def _origin_of(self, node: ast.Name | ast.Attribute | ast.Call, depth: int) -> str | None:
        if isinstance(node, ast.Call):
            base = self.origin(node.func, depth)
            return None if base is None else f"{base}()"
        if isinstance(node, ast.Attribute):
            base = self.origin(node.value, depth)
            if base is not None:
                return _canonical(f"{base}.{node.attr}")
        known = [b for b in self.bindings(node) if not (b.kind == "value" and is_none(b.node))]
        if known and all(b.kind == "import" for b in known):
            return _canonical(known[0].dotted)  # try: one; except ImportError: its stand-in
        agreed = self._meaning(known[0], depth) if known else None
        if agreed is None or any(self._meaning(b, depth) != agreed for b in known):
            return None
        return agreed

    def _meaning(self, binding: Binding, depth: int) -> str | None:
        if binding.kind == "import":
            return _canonical(binding.dotted)
        if binding.kind == "value":
            return self.origin(binding.node, depth)
        if binding.kind == "parameter" and binding.node is not None:
            annotation = self.origin(_plain_annotation(binding.node), depth)
            return None if annotation is None else f"{annotation}()"
        return None

    # ------------------------------------------------------------ collecting

    def _collect(self, tree: ast.Module) -> None:
        todo: list[tuple[ast.AST, Scope]] = [(tree, self.module)]
        while todo:  # no recursion: a long chain of operators is as deep as it is long
            node, scope = todo.pop()
            self.nodes.append(node)
            self.scopes[node] = scope
            self._bind(node, scope)
            inner = Scope(node, scope) if isinstance(node, _SCOPES) else scope
            parts = [part for part in ast.iter_child_nodes(node) if part._fields]
            self.parents.update(dict.fromkeys(parts, node))
            todo += [(part, inner) for part in reversed(parts)]
        for node in self.nodes:
            if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
                key = self.key(node)
                if key is not None:
                    key[0].bind(key[1], self._assigned.get(node, Binding("other")))

    def _bind(self, node: ast.AST, scope: Scope) -> None:
        """Bind the names that a node itself binds; note the values of targets further down."""
        if isinstance(node, ast.Name):
            if not isinstance(node.ctx, ast.Load):
                scope.bind(node.id, self._assigned.get(node, Binding("other")))
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                name, dotted = alias.asname, _dotted(node, alias)
                if isinstance(node, ast.Import) and name is None:
                    name = dotted = alias.name.partition(".")[0]
                scope.bind(name or alias.name, Binding("import", dotted=dotted))
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            scope.bind(node.name, Binding("definition", node))
        elif isinstance(node, ast.arguments):
            for argument in (*node.posonlyargs, *node.args, *node.kwonlyargs):
                scope.bind(argument.arg, Binding("parameter", argument.annotation))
            for argument in filter(None, (node.vararg, node.kwarg)):
                scope.bind(argument.arg, Binding("other"))
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                self._assign(target, node.value)
        elif isinstance(node, ast.NamedExpr):
            self._assign(node.target, node.value)
        elif isinstance(node, ast.AnnAssign):
            declared = Binding("parameter", node.annotation)
            self._assigned[node.target] = Binding("value", node.value) if node.value else declared
        elif isinstance(node, (ast.Global, ast.Nonlocal)):
            outer = self.module if isinstance(node, ast.Global) else scope.parent
            if outer is not None and outer is not scope:
                scope.elsewhere.update(dict.fromkeys(node.names, outer))
        elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
            scope.bind(node.name, Binding("other"))
        elif isinstance(node, ast.MatchMapping) and node.rest:
            scope.bind(node.rest, Binding("other"))

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if not isinstance(target, (ast.Tuple, ast.List)):
            self._assigned[target] = Binding("value", value)
        elif isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts):
            for one, its in zip(target.elts, value.elts, strict=True):
                self._assign(one, its)


def _dotted(node: ast.Import | ast.ImportFrom, alias: ast.alias) -> str:
    """The whole name of what one part of an import statement imports."""
    if isinstance(node, ast.Import):
        return alias.name
    module = "." * node.level + (node.module or "")
    return f"{module}{alias.name}" if module.endswith(".") else f"{module}.{alias.name}"


def _canonical(dotted: str) -> str:
    """The one name that the rules know a thing by."""
    for start, short in _ALIASES:
        if dotted.startswith(start):
            return short + dotted[len(start) :]
    last = dotted.rpartition(".")[2]
    if dotted.startswith("torch.nn.modules.") and last[:1].isupper():
        return f"torch.nn.{last}"
    return dotted


def _plain_annotation(node: ast.AST) -> ast.AST:
    """``T`` of ``T | None`` and ``Optional[T]``; strings are left alone."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return node.left if is_none(node.right) else node.right if is_none(node.left) else node
    if isinstance(node, ast.Subscript) and last_name(node.value) == "Optional":
        return node.slice
    return node
