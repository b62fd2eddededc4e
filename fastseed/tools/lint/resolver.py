"""Resolve names of a file to the things they mean, from its text alone.

Scopes are Python's. A name with one meaning (an import, one assignment, a function) is followed. A
name with several possible meanings is unknown, and rules ignore what is unknown. The order of
statements is ignored.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from .imports import canonical, imported

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_SCOPING = frozenset({*_FUNCTIONS, *_COMPREHENSIONS, ast.ClassDef, ast.comprehension})
_BINDING = frozenset(
    {
        *_FUNCTIONS, *_COMPREHENSIONS, ast.ClassDef, ast.comprehension, ast.Import, ast.ImportFrom,
        ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr, ast.Global, ast.Nonlocal, ast.For,
        ast.AsyncFor, ast.With, ast.AsyncWith, ast.Delete, ast.ExceptHandler, ast.MatchAs,
        ast.MatchStar, ast.MatchMapping,
    }
)  # fmt: skip
_DEEPEST = 24  # steps from a name to its origin


class Binding(NamedTuple):
    """One way in which a name gets its meaning."""

    kind: str
    """``import``, ``value``, ``parameter``, ``definition`` or ``other`` (a loop's target, say)."""
    dotted: str = ""
    """The imported name; empty for other kinds."""
    node: ast.AST | None = None
    """The value, the annotation (None without one) or the definition."""


class Scope:
    """A module, class, function or comprehension, and the names bound in it."""

    def __init__(self, node: ast.AST, parent: Scope | None) -> None:
        self.node, self.parent = node, parent
        self.names: dict[str, list[Binding]] = {}
        self.elsewhere: dict[str, Scope] = {}  # names declared global or nonlocal
        self.attributes: dict[str, list[ast.expr | None]] = {}  # of a class: self.name = value

    def bind(self, name: str, binding: Binding) -> None:
        scope = self.elsewhere.get(name, self)
        scope.names.setdefault(name, []).append(binding)

    def outside(self) -> Scope:
        """The nearest scope that is no comprehension."""
        scope = self
        while isinstance(scope.node, _COMPREHENSIONS) and scope.parent is not None:
            scope = scope.parent
        return scope


class Names:
    """The names of one module.

    Args:
        tree: the module, as :func:`ast.parse` gives it.
    """

    def __init__(self, tree: ast.Module) -> None:
        self.module = Scope(tree, None)
        self.nodes: list[ast.AST] = []  # all but contexts and operators, in the order of the text
        self.parents: dict[ast.AST, ast.AST] = {}
        self.scopes: dict[ast.AST, Scope] = {}  # of every node, the scope that it is read in
        self._inner: dict[ast.AST, Scope] = {}
        self._origins: dict[ast.AST, str | None] = {}
        self._common: dict[int, str | None] = {}  # by the list of bindings
        self._collect(tree)

    # ------------------------------------------------------------ what others ask

    def origin(self, node: ast.AST | None) -> str | None:
        """Return the dotted name of an expression: ``numpy.random.default_rng``.

        A call adds ``()``: ``torch.Generator().manual_seed``. An annotation counts
        as a call of it. None if it is unknown.
        """
        return None if node is None else self._origin(node, 0)

    def lookup(self, name: ast.Name) -> tuple[Scope, list[Binding]] | None:
        """The scope of a name and how it gets its meaning there; None: nowhere, a builtin."""
        return self._find(name.id, self.scopes.get(name, self.module))

    def is_builtin(self, node: ast.AST, name: str) -> bool:
        """Return whether an expression is the builtin ``name``."""
        return isinstance(node, ast.Name) and node.id == name and self.lookup(node) is None

    def value(self, node: ast.expr | None) -> ast.expr | None:
        """The expression behind a name that is assigned once, and so on; otherwise ``node``."""
        for _ in range(_DEEPEST):
            if not isinstance(node, (ast.Name, ast.Attribute)):
                return node
            values = self.values(node)
            if values is None or len(values) != 1:
                return node
            node = values[0]
        return node

    def values(self, node: ast.expr) -> list[ast.expr] | None:
        """All that is assigned to a name or ``self.name``; None if something else binds it too."""
        if isinstance(node, ast.Name):
            found = self.lookup(node)
            if found is None or not all(b.kind == "value" for b in found[1]):
                return None
            return [b.node for b in found[1] if isinstance(b.node, ast.expr)]
        if isinstance(node, ast.Attribute):
            owner = self.class_of(node.value)
            values = None if owner is None else owner.attributes.get(node.attr)
            if values and all(value is not None for value in values):
                return [value for value in values if value is not None]
        return None

    def class_of(self, node: ast.AST) -> Scope | None:
        """The class whose ``self`` an expression is."""
        if not isinstance(node, ast.Name):
            return None
        found = self.lookup(node)
        if found is None or not isinstance(found[0].node, _FUNCTIONS):
            return None
        function, owner = found[0].node, found[0].parent
        arguments = function.args.posonlyargs + function.args.args
        if owner is None or not isinstance(owner.node, ast.ClassDef) or not arguments:
            return None
        return owner if arguments[0].arg == node.id and len(found[1]) == 1 else None

    def function(self, node: ast.AST) -> Function | None:
        """The function of this file that an expression names: ``f``, ``self.f``."""
        bindings: list[Binding] | None = None
        if isinstance(node, ast.Name):
            found = self.lookup(node)
            bindings = found[1] if found else None
        elif isinstance(node, ast.Attribute):
            owner = self.class_of(node.value)
            bindings = owner.names.get(node.attr) if owner else None
        if bindings and len(bindings) == 1:
            definition = bindings[0].node
            if isinstance(definition, (ast.FunctionDef, ast.AsyncFunctionDef)):
                return definition
        return None

    def key(self, node: ast.AST) -> tuple[Scope, str] | None:
        """Equal for expressions that are the same variable, a name or ``self.name``."""
        if isinstance(node, ast.Name):
            found = self.lookup(node)
            return (found[0], node.id) if found else None
        if isinstance(node, ast.Attribute):
            owner = self.class_of(node.value)
            return (owner, f"self.{node.attr}") if owner else None
        return None

    def imports(self) -> Iterator[str]:
        """Yield the imports of the file as dotted names; relative ones start with dots."""
        seen = {self.module, *self.scopes.values()}
        found = {b.dotted for s in seen for bs in s.names.values() for b in bs if b.dotted}
        yield from sorted(found)

    # ------------------------------------------------------------ following

    def _find(self, name: str, scope: Scope | None) -> tuple[Scope, list[Binding]] | None:
        start = scope
        while scope is not None:
            # Functions do not see the names of the class around them.
            hidden = isinstance(scope.node, ast.ClassDef) and scope is not start
            if not hidden and name in scope.elsewhere:
                scope = scope.elsewhere[name]
            if not hidden and name in scope.names:
                return scope, scope.names[name]
            scope = scope.parent
        return None

    def _origin(self, node: ast.AST, depth: int) -> str | None:
        if node in self._origins:
            return self._origins[node]
        if depth > _DEEPEST:
            return None
        self._origins[node] = None  # what leads back to itself is unknown
        found = self._origin_of(node, depth + 1)
        self._origins[node] = found
        return found

    def _origin_of(self, node: ast.AST, depth: int) -> str | None:
        if isinstance(node, ast.Name):
            found = self.lookup(node)
            if found is None or depth > 1:  # further down, what leads back here is unknown
                return None if found is None else self._agreed(found[1], depth)
            # Once for all places of a name: one that is bound thousands of times is read as often.
            key = id(found[1])
            if key not in self._common:
                self._common[key] = self._agreed(found[1], depth)
            return self._common[key]
        if isinstance(node, ast.Call):
            base = self._origin(node.func, depth)
            return None if base is None else f"{base}()"
        if isinstance(node, ast.Attribute):
            base = self._origin(node.value, depth)
            if base is not None:
                return canonical(f"{base}.{node.attr}")
            values = self.values(node)
            known = [v for v in values or () if not _is_none(v)]
            return self._origin(known[0], depth) if len(known) == 1 else None
        return None

    def _agreed(self, bindings: list[Binding], depth: int) -> str | None:
        known = [b for b in bindings if not (b.kind == "value" and _is_none(b.node))]
        if known and all(b.kind == "import" for b in known):
            return canonical(known[0].dotted)  # try: one; except ImportError: its stand-in
        agreed = self._meaning(known[0], depth) if known else None
        if agreed is None or any(self._meaning(b, depth) != agreed for b in known):
            return None
        return agreed

    def _meaning(self, binding: Binding, depth: int) -> str | None:
        if binding.kind == "import":
            return canonical(binding.dotted)
        if binding.kind == "value" and binding.node is not None:
            return self._origin(binding.node, depth)
        if binding.kind == "parameter" and binding.node is not None:
            said = self._origin(_plain_annotation(binding.node), depth)
            return None if said is None else f"{said}()"
        return None

    # ------------------------------------------------------------ collecting

    def _collect(self, tree: ast.Module) -> None:
        todo: list[tuple[ast.AST, Scope]] = [(tree, self.module)]
        while todo:  # no recursion: a long chain of operators is as deep as it is long
            node, scope = todo.pop()
            self.nodes.append(node)
            self.scopes[node] = scope
            kind = node.__class__
            if kind in _BINDING:
                self._bind(node, scope)
            if kind in _SCOPING:
                parts = list(self._parts(node, scope))
            else:
                parts = [(part, scope) for part in _children(node)]
            for part, _ in parts:
                self.parents[part] = node
            parts.reverse()
            todo += parts

    def _parts(self, node: ast.AST, scope: Scope) -> Iterator[tuple[ast.AST, Scope]]:
        """The children of what opens a scope, each with the scope that it is read in."""
        if isinstance(node, ast.comprehension):  # the first one's source is read outside
            for child in _children(node):
                yield child, self._inner.get(node, scope) if child is node.iter else scope
            return
        inner = self._inner[node]
        if isinstance(node, _COMPREHENSIONS):
            self._inner[node.generators[0]] = scope
            yield from ((child, inner) for child in _children(node))
            return
        body = getattr(node, "body", [])
        within = {id(part) for part in (body if isinstance(body, list) else [body])}
        for child in _children(node):
            yield child, inner if id(child) in within else scope

    def _bind(self, node: ast.AST, scope: Scope) -> None:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            for name, dotted in imported(node):
                scope.bind(name, Binding("import", dotted))
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            scope.bind(node.name, Binding("definition", node=node))
            self._open(node, scope)
        elif isinstance(node, (ast.Lambda, *_COMPREHENSIONS)):
            self._open(node, scope)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                self._assign(target, node.value, scope)
        elif isinstance(node, ast.AnnAssign):
            if node.value is not None:
                self._assign(node.target, node.value, scope)
            elif isinstance(node.target, ast.Name):
                scope.bind(node.target.id, Binding("parameter", node=node.annotation))
        elif isinstance(node, ast.NamedExpr):
            self._assign(node.target, node.value, scope.outside())
        elif isinstance(node, (ast.Global, ast.Nonlocal)):
            for name in node.names:
                self._declare(name, node, scope)
        else:
            self._bind_others(node, scope)

    def _bind_others(self, node: ast.AST, scope: Scope) -> None:
        """Bind names whose meaning is unknown."""
        targets: list[ast.AST | None] = []
        if isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension, ast.AugAssign)):
            targets = [node.target]
        elif isinstance(node, (ast.With, ast.AsyncWith)):
            targets = [item.optional_vars for item in node.items]
        elif isinstance(node, ast.Delete):
            targets = list(node.targets)
        for target in targets:
            for part in ast.walk(target) if target is not None else ():
                if isinstance(part, ast.Name) and not isinstance(part.ctx, ast.Load):
                    scope.bind(part.id, Binding("other"))
                elif isinstance(part, ast.Attribute) and not isinstance(part.ctx, ast.Load):
                    self._attribute(part, None, scope)
        name = getattr(node, "name", None)  # except … as name; match patterns
        if isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and name:
            scope.bind(name, Binding("other"))
        elif isinstance(node, ast.MatchMapping) and node.rest:
            scope.bind(node.rest, Binding("other"))

    def _open(self, node: ast.AST, scope: Scope) -> None:
        inner = self._inner[node] = Scope(node, scope)
        if isinstance(node, _FUNCTIONS):
            a = node.args
            for argument in (*a.posonlyargs, *a.args, *a.kwonlyargs):
                inner.bind(argument.arg, Binding("parameter", node=argument.annotation))
            for argument in filter(None, (a.vararg, a.kwarg)):
                inner.bind(argument.arg, Binding("other"))
        elif isinstance(node, _COMPREHENSIONS):
            self._bind_others(node.generators[0], inner)

    def _assign(self, target: ast.expr, value: ast.expr, scope: Scope) -> None:
        if isinstance(target, ast.Name):
            scope.bind(target.id, Binding("value", node=value))
        elif isinstance(target, ast.Attribute):
            self._attribute(target, value, scope)
        elif isinstance(target, (ast.Tuple, ast.List)):
            parts = value.elts if isinstance(value, (ast.Tuple, ast.List)) else []
            plain = not any(isinstance(e, ast.Starred) for e in (*target.elts, *parts))
            if len(parts) == len(target.elts) and plain:
                for one, its in zip(target.elts, parts, strict=True):
                    self._assign(one, its, scope)
            else:
                for part in ast.walk(target):
                    if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                        scope.bind(part.id, Binding("other"))
                    elif isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store):
                        self._attribute(part, None, scope)

    def _attribute(self, target: ast.Attribute, value: ast.expr | None, scope: Scope) -> None:
        """``self.name = value`` in a method; ``value`` None: something unknown."""
        for part in ast.walk(target):
            self.scopes.setdefault(part, scope)
        owner = self.class_of(target.value)
        if owner is not None:
            owner.attributes.setdefault(target.attr, []).append(value)

    def _declare(self, name: str, node: ast.Global | ast.Nonlocal, scope: Scope) -> None:
        if isinstance(node, ast.Global):
            target: Scope | None = self.module
        else:
            found = self._find(name, scope.parent)
            target = found[0] if found else None
        if target is not None and target is not scope:
            scope.elsewhere[name] = target


def _children(node: ast.AST) -> Iterator[ast.AST]:
    """As :func:`ast.iter_child_nodes`, without what has no parts: contexts, operators, `pass`."""
    for field in node._fields:
        value = getattr(node, field, None)
        if isinstance(value, list):
            for one in value:
                if isinstance(one, ast.AST) and one._fields:
                    yield one
        elif isinstance(value, ast.AST) and value._fields:
            yield value


def _plain_annotation(node: ast.AST) -> ast.AST:
    """``T`` of ``T | None`` and ``Optional[T]``; strings are left alone."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return node.left if _is_none(node.right) else node.right if _is_none(node.left) else node
    if isinstance(node, ast.Subscript):
        head = node.value
        name = head.attr if isinstance(head, ast.Attribute) else getattr(head, "id", "")
        if name == "Optional":
            return node.slice
    return node


def _is_none(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
