"""A parsed file, and the questions that several rules ask of it."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from .resolver import Function, Names, Scope
from .sources import Source, Unreadable

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class Violation(NamedTuple):
    """A violation of a rule: the node and a message."""

    rule: str
    node: ast.AST
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
        self._attributes: dict[frozenset[str], frozenset[str]] = {}

    def origin(self, node: ast.AST | None) -> str | None:
        """See :meth:`Names.origin`; of a call, of what is called."""
        return self.names.origin(node.func if isinstance(node, ast.Call) else node)

    @cached_property
    def imports(self) -> tuple[str, ...]:
        return tuple(self.names.imports())

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

    def attributes_of(self, names: frozenset[str]) -> frozenset[str]:
        """Every `attribute` of `one.attribute.name` with one of these names."""
        if names not in self._attributes:
            self._attributes[names] = frozenset(
                node.value.attr
                for node in self.nodes
                if isinstance(node, ast.Attribute)
                and node.attr in names
                and isinstance(node.value, ast.Attribute)
            )
        return self._attributes[names]

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
        """Return whether all entries of a dictionary that ``**`` passes are known."""
        value = module.names.value(node)
        if value is not node:  # through a variable, which nothing may change
            for use in module.uses_of(node):
                holder = module.parents.get(use)
                if isinstance(holder, (ast.Attribute, ast.Subscript, ast.AugAssign, ast.Call)):
                    return False
        if isinstance(value, ast.Call) and module.names.is_builtin(value.func, "dict"):
            if value.args or any(k.arg is None for k in value.keywords):
                return False
            pairs = [(k.arg, k.value) for k in value.keywords]
        elif isinstance(value, ast.Dict):
            pairs = [
                (str(k.value) if isinstance(k, ast.Constant) else None, v)
                for k, v in zip(value.keys, value.values, strict=True)
            ]
        else:
            return False
        if any(name is None for name, _ in pairs):
            return False
        self.keywords.update({str(name): v for name, v in pairs})
        return True


def is_none(node: ast.AST | None) -> bool:
    """Return whether it is missing, or the constant None."""
    return node is None or (isinstance(node, ast.Constant) and node.value is None)


def constant(module: Module, node: ast.expr | None) -> object:
    """The value of a literal, also behind a name that is assigned once; ``...``: not known."""
    value = module.names.value(node)
    return value.value if isinstance(value, ast.Constant) else ...
