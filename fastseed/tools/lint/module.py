"""A parsed file, and the questions that several rules ask of it."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from .resolver import Function, Names, Scope
from .sources import Source, Unreadable
from .syntax import is_none, targets_of

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class Violation(NamedTuple):
    """A violation of a rule: the node and a message."""

    rule: str
    node: ast.expr
    message: str


class Module:
    """One file: its tree, its names, and who holds whom.

    Raises:
        Unreadable: the text is no Python that this interpreter can parse.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self.tree = _parsed(source)
        self.names = Names(self.tree)
        self.nodes, self.parents = self.names.nodes, self.names.parents
        self.calls = [node for node in self.nodes if isinstance(node, ast.Call)]

    def origin(self, node: ast.AST | None) -> str | None:
        """See ``Names.origin``; of a call, of what is called."""
        return self.names.origin(node.func if isinstance(node, ast.Call) else node)

    @cached_property
    def imports(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self.names.imports()))

    def has(self, library: str) -> bool:
        """Return whether the file imports a library."""
        return any(name == library or name.startswith(f"{library}.") for name in self.imports)

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield the nodes that contain a node, from the inside out."""
        while node in self.parents:
            node = self.parents[node]
            yield node

    def function_of(self, node: ast.AST) -> Function | None:
        """The function that a node stands in."""
        for one in self.ancestors(node):
            if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef)):
                return one
        return None

    def statement_of(self, node: ast.AST) -> ast.stmt | None:
        """Return the statement that contains an expression."""
        return next((one for one in self.ancestors(node) if isinstance(one, ast.stmt)), None)

    @cached_property
    def uses(self) -> dict[tuple[Scope, str], list[ast.expr]]:
        """Every place where a variable (a name, or ``self.name``) is read or written."""
        found: dict[tuple[Scope, str], list[ast.expr]] = {}
        for node in self.nodes:
            if isinstance(node, (ast.Name, ast.Attribute)):
                key = self.names.key(node)
                if key is not None:
                    found.setdefault(key, []).append(node)
        return found

    def uses_of(self, target: ast.AST) -> list[ast.expr]:
        """Every place of the same variable."""
        key = self.names.key(target)
        return [] if key is None else self.uses.get(key, [])

    @cached_property
    def methods(self) -> frozenset[tuple[str, str]]:
        """Every (attribute, name) of an expression `one.attribute.name`."""
        return frozenset(
            (node.value.attr, node.attr)
            for node in self.nodes
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute)
        )

    def takers(self, node: ast.expr) -> Iterator[ast.Call]:
        """Yield the calls that take an expression as an argument, also through a variable."""
        targets = targets_of(self.parents.get(node))
        for use in [use for target in targets for use in self.uses_of(target)] or [node]:
            holder = self.parents.get(use)
            if isinstance(holder, ast.keyword):
                holder = self.parents.get(holder)
            if isinstance(holder, ast.Call) and use is not holder.func:
                yield holder

    def reached(self, nodes: list[ast.AST]) -> Iterator[ast.AST]:
        """All nodes below these, and in the functions of this file that are called there."""
        todo: list[ast.AST] = list(nodes)
        seen: set[ast.AST] = set(nodes)
        while todo:
            node = todo.pop()
            yield node
            if isinstance(node, ast.Call):
                called = self.names.function(node.func)
                if called is not None and called not in seen:
                    seen.add(called)
                    todo.extend(called.body)
            if isinstance(node, _DEFINITIONS) and node not in seen:
                continue  # defined here, but called elsewhere or never
            todo.extend(ast.iter_child_nodes(node))


def _parsed(source: Source) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes: not the subject
            return ast.parse(source.text)
    except SyntaxError as error:
        cell, line = source.place(error.lineno or 1)
        raise Unreadable(f"{error.msg}", line, max(error.offset or 1, 1), cell) from error
    except ValueError as error:  # null bytes
        raise Unreadable(str(error)) from error
    except (RecursionError, MemoryError) as error:
        raise Unreadable("it is nested too deeply to be parsed") from error


# ---------------------------------------------------------------- arguments


class Arguments:
    """The arguments of a call, by name or position.

    ``hidden`` is True where ``*`` or ``**`` of something unknown may pass more.
    """

    def __init__(self, module: Module, call: ast.Call) -> None:
        self.hidden = any(isinstance(a, ast.Starred) for a in call.args)
        self.positional = call.args
        self.keywords: dict[str, ast.expr] = {}
        for keyword in call.keywords:
            if keyword.arg is not None:
                self.keywords[keyword.arg] = keyword.value
            elif not self._unpack(module, keyword.value):
                self.hidden = True

    def get(self, name: str, position: int | None = None) -> ast.expr | None:
        """An argument; None where it is not passed, or as the constant None."""
        value = self.keywords.get(name)
        if value is None and position is not None and position < len(self.positional):
            value = self.positional[position]
        return None if is_none(value) else value

    def _unpack(self, module: Module, node: ast.expr) -> bool:
        """Return whether all entries of a dictionary that ``**`` passes are known; add them."""
        value = module.names.value(node)
        pairs: list[tuple[object, ast.expr]] = []
        if isinstance(value, ast.Dict):
            names = [key.value if isinstance(key, ast.Constant) else None for key in value.keys]
            pairs = list(zip(names, value.values, strict=True))
        elif isinstance(value, ast.Call) and module.names.is_builtin(value.func, "dict"):
            pairs = [(None, argument) for argument in value.args]
            pairs += [(keyword.arg, keyword.value) for keyword in value.keywords]
        else:
            return False
        self.keywords.update({name: its for name, its in pairs if isinstance(name, str)})
        changes = (ast.Attribute, ast.Subscript, ast.AugAssign, ast.Call)
        changed = any(isinstance(module.parents.get(use), changes) for use in module.uses_of(node))
        return not changed and all(isinstance(name, str) for name, _ in pairs)


def constant(module: Module, node: ast.expr | None) -> object:
    """The value of a literal, also behind a name that is assigned once; ``...``: not known."""
    value = module.names.value(node)
    return value.value if isinstance(value, ast.Constant) else ...
