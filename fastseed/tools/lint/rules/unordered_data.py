"""Rules about the order of data: of directory listings and of sets (FS401, FS402).

A listing or a set is followed from where it is made through what keeps its order, to where that
order becomes the order of data, or to where it ceases to matter (`sorted`, `len`, `in`, …). What is
handed to a function that is not known is left alone, and so is what does not look like data.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TypeGuard

from ..module import Module, Violation
from ..syntax import called, last_name, names_in, targets_of, words_of

_LISTINGS = {"os.listdir", "os.scandir", "os.walk", "os.fwalk", "glob.glob", "glob.iglob"}
_LISTS = {
    "list", "tuple", "enumerate", "map", "filter", "zip", "reversed", "tqdm", "array", "asarray",
    "islice", "track", "trange",
}  # fmt: skip
_KEEPS = _LISTS | {"iter", "chain", "from_iterable"}
"""Calls whose result has the order of an argument."""
_DRAWS = {"shuffle", "sample", "choice", "choices", "permutation", "train_test_split"}
"""Draws of equal numbers from another order give another result."""
_JOINS = {"cat", "concat", "concatenate", "stack", "vstack", "hstack"}
_SETS = {"union", "intersection", "difference", "symmetric_difference", "copy"}
_COLLECTS = {"append", "extend", "insert", "appendleft"}
_NUMERIC = re.compile(
    r"^(int|len|range|float|ord|hash|id|arange|unique|tolist|round|abs)$|(^|_)(ids?|idxs?|index|"
    r"indices|inds?|range|pos|positions?|counts?|lengths?|sizes?|epochs?|ranks?|targets?|ys?)(_|$)|(^|_)(labels?|class|classes)$"
)
_PASSES = (ast.keyword, ast.Starred, ast.BoolOp, ast.IfExp, ast.BinOp)
_DEEPEST = 4  # variables on the way

_DATA = re.compile(
    r"data|image|img|pic|photo|frame|video|audio|wav|clip|speech|sample|example|train|valid|"
    r"test|split|label|class|categor|annot|mask|target|caption|text|corpus|corpora|doc|sentence|"
    r"word|vocab|token|char|shard|tar|scene|subject|patient|speaker|user|item|entit|relation",
    re.IGNORECASE,
)
_OTHER = re.compile(
    r"check_?point|ckpt|weight|\blog|logger|cache|te?mp_|plugin|module|import|state_dict|missing|"
    r"unexpected|keys|error|warn|remove|unlink|delete|clean|install|package|config|setting|param|"
    r"layer|device|require|hook|metric|callback|version|signature|model_|test_case|artifact|"
    r"attr|kwargs|argument|field|column|tests?/|script|readme",
    re.IGNORECASE,
)


def listing_order(module: Module) -> Iterator[Violation]:
    """FS401."""
    for call in module.calls:
        name = _listing(module, call)
        if name and _is_data(module, call) and _Climb(module).ordered(call, True):
            yield Violation("FS401", call, f"data in the file system's order, from `{name}`")


def set_order(module: Module) -> Iterator[Violation]:
    """FS402."""
    reported: set[ast.AST | None] = set()
    for node in module.nodes:
        if not _is_set(node, module) or _of_numbers(module, node) or not _is_data(module, node):
            continue
        statement = module.statement_of(node)
        if statement not in reported and _Climb(module).ordered(node, False):
            reported.add(statement)  # `set(a) | set(b)`: one finding
            yield Violation("FS402", node, "data in the order of a set")


# ---------------------------------------------------------------- what has no order


def _listing(module: Module, call: ast.Call) -> str | None:
    """The name of what lists a folder; None for other calls."""
    origin = module.origin(call)
    if origin in _LISTINGS:
        return origin
    if not isinstance(call.func, ast.Attribute):
        return None
    attr, path = call.func.attr, module.names.origin(call.func.value) or ""
    of_pathlib = path.startswith("pathlib.")
    if attr in ("iterdir", "rglob"):
        return None if path.startswith("fsspec") else f"Path.{attr}"
    pattern = attr == "glob" and any("*" in words_of(one) for one in call.args)
    return f"Path.{attr}" if pattern or (of_pathlib and attr in ("walk", "glob")) else None


def _is_set(node: ast.AST, module: Module) -> TypeGuard[ast.expr]:
    """Return whether an expression makes a set."""
    if isinstance(node, ast.Call):
        return any(module.names.is_builtin(node.func, name) for name in ("set", "frozenset"))
    return isinstance(node, (ast.Set, ast.SetComp))


def _of_numbers(module: Module, node: ast.AST) -> bool:
    """Return whether a set holds numbers, whose order is the same in every process."""
    if isinstance(node, ast.Set):
        values = [one.value if isinstance(one, ast.Constant) else "" for one in node.elts]
        return not any(isinstance(value, (str, bytes)) for value in values)
    element: ast.AST | None = node.elt if isinstance(node, ast.SetComp) else None
    if isinstance(node, ast.Call) and node.args:
        element = node.args[0]
        if isinstance(element, (ast.GeneratorExp, ast.ListComp)):
            element = element.elt
        elif called(element) == "map" and isinstance(element, ast.Call) and element.args:
            element = element.args[0]
    if _says_int(module, element) or any(
        _says_int(module, target) for target in targets_of(module.parents.get(node))
    ):
        return True
    return bool(_NUMERIC.search(called(element) or last_name(element)))


def _says_int(module: Module, node: ast.AST | None) -> bool:
    """Return whether the annotation of a variable says that it is of integers."""
    notes = [one.node for one in module.names.bindings(node) if one.kind == "parameter"]
    holder = module.parents.get(node) if node is not None else None
    if isinstance(holder, ast.AnnAssign) and node is holder.target:
        notes.append(holder.annotation)
    words = " ".join(words_of(note) for note in notes if note is not None)
    return bool(re.search(r"\bint\b", words)) and "str" not in words


def _is_data(module: Module, node: ast.AST) -> bool:
    """Return whether the names around an expression are those of data, and of nothing else."""
    words: list[str] = []
    for holder in module.ancestors(node):
        if isinstance(holder, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            words += holder.name, *map(last_name, getattr(holder, "bases", ()))
        elif isinstance(holder, (ast.For, ast.AsyncFor)):
            words += words_of(holder.target), words_of(holder.iter)
        elif isinstance(holder, (ast.stmt)) and not hasattr(holder, "body"):
            words.append(words_of(holder))
    text = " ".join(words)
    return bool(_DATA.search(text)) and not _OTHER.search(text)


# ---------------------------------------------------------------- where the order goes


class _Climb:
    """Follows one expression to what becomes of its order."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.seen: set[ast.AST] = set()

    def ordered(self, node: ast.AST, listed: bool, depth: int = 0) -> bool:
        """Return whether the order of an expression becomes the order of data.

        Args:
            node: the expression.
            listed: whether it has an order that indices and returns show; a set has not.
            depth: variables passed so far.
        """
        while node not in self.seen:
            self.seen.add(node)
            holder = self.module.parents.get(node)
            taken_away = isinstance(holder, ast.BinOp) and isinstance(holder.op, ast.Sub)
            if node is getattr(holder, "right" if taken_away else "test", None):
                return False
            if isinstance(holder, _PASSES):
                node = holder
            elif isinstance(holder, ast.Tuple):
                return listed and isinstance(self.module.parents.get(holder), ast.Return)
            elif isinstance(holder, ast.List) and isinstance(node, ast.Starred):
                node, listed = holder, True
            elif isinstance(holder, ast.Subscript) and isinstance(holder.slice, ast.Slice):
                node = holder
            elif isinstance(holder, ast.comprehension) and node is holder.iter:
                counted = called(node) == "enumerate"
                node, listed = self.module.parents[holder], True
                if isinstance(node, (ast.SetComp, ast.DictComp)):
                    return counted and isinstance(node, ast.DictComp)
            elif isinstance(holder, ast.Attribute):
                node = self.module.parents[holder]
                if called(node) == "index":
                    return listed
                if called(node) not in _SETS:
                    return False
            elif isinstance(holder, ast.Call):
                name = called(holder)
                if name in _DRAWS or (listed and (name in _JOINS or name.endswith("Dataset"))):
                    return True
                if name not in _KEEPS or (name in ("map", "filter") and node is holder.args[0]):
                    collection = _grown(holder) if listed and name == "extend" else None
                    return collection is not None and self._matters(collection)
                node, listed = holder, listed or name in _LISTS
            else:
                return self._ends(holder, node, listed, depth)
        return False

    def _ends(self, holder: ast.AST | None, node: ast.AST, listed: bool, depth: int) -> bool:
        """The statement that takes it."""
        if isinstance(holder, (ast.For, ast.AsyncFor)):
            return node is holder.iter and (self._collects(holder) or _numbers(holder))
        if isinstance(holder, ast.Subscript):
            # A constant index mostly takes the only one there is.
            return listed and node is holder.value and not isinstance(holder.slice, ast.Constant)
        if isinstance(holder, (ast.Return, ast.YieldFrom)):
            return listed and not self._callers_sort(holder)
        return any(self._kept(target, listed, depth) for target in targets_of(holder))

    def _kept(self, target: ast.expr, listed: bool, depth: int) -> bool:
        """A variable holds it: does anything use its order, and nothing sort it?"""
        if depth >= _DEEPEST or self._sorted_itself(target):
            return False
        owner = self.module.names.key(target)
        of_object = listed and isinstance(target, ast.Attribute)
        if of_object and owner is not None and "__getitem__" in owner[0].names:
            return True  # the attribute of a dataset
        return any(
            self.ordered(use, listed, depth + 1)
            for use in self.module.uses_of(target)
            if isinstance(use.ctx, ast.Load)  # type: ignore[attr-defined]
        )

    def _collects(self, loop: ast.For | ast.AsyncFor) -> bool:
        """Return whether the body of a loop puts things into a list, or yields them."""
        for node in ast.walk(loop):
            if isinstance(node, (ast.Yield, ast.YieldFrom)):
                return not self._callers_sort(node)
            collection = _grown(node)
            if collection is None or _by_member(collection, loop):
                continue
            if self._matters(collection):
                return not self._sorts_folders(loop)
        return False

    def _sorts_folders(self, loop: ast.For | ast.AsyncFor) -> bool:
        """`for root, folders, files in os.walk(…): folders.sort()`."""
        if not isinstance(loop.target, ast.Tuple) or len(loop.target.elts) < 3:
            return False
        return any(self._sorted(part) for part in loop.target.elts[1:])

    def _matters(self, collection: ast.expr) -> bool:
        """Return whether a list's order is kept: nothing sorts it, here or in a caller."""
        returns = [self.module.parents.get(use) for use in self.module.uses_of(collection)]
        if self._sorted(collection) or any(
            isinstance(one, ast.Return) and self._callers_sort(one) for one in returns
        ):
            return False
        function = self.module.function_of(collection)
        return bool(_DATA.search(f"{words_of(collection)} {function.name if function else ''}"))

    def _sorted(self, target: ast.AST) -> bool:
        """Return whether a variable is sorted, or used sorted, anywhere."""
        uses = self.module.uses_of(target)
        return self._sorted_itself(target) or any(self._inside_sort(use) for use in uses)

    def _sorted_itself(self, target: ast.AST) -> bool:
        """`x.sort()`, `x = sorted(x)`: from there on it has an order."""
        for use in self.module.uses_of(target):
            holder = self.module.parents.get(use)
            if isinstance(holder, ast.Attribute) and "sort" in holder.attr:
                return True
            if isinstance(holder, ast.Assign) and any(map(_sorts, ast.walk(holder.value))):
                return True
        return False

    def _inside_sort(self, node: ast.AST) -> bool:
        """Return whether a call in the same statement sorts an expression."""
        for one in self.module.ancestors(node):
            if _sorts(one) or isinstance(one, ast.stmt):
                return _sorts(one)
        return False

    def _callers_sort(self, node: ast.AST) -> bool:
        """Return whether every call of the function around a node is inside one that sorts."""
        function = self.module.function_of(node)
        name = function.name if function else ""
        calls = [call for call in self.module.calls if called(call) == name]
        return bool(calls) and all(
            self._inside_sort(call)
            or any(map(self._sorted, targets_of(self.module.statement_of(call))))
            for call in calls
        )


def _sorts(node: ast.AST) -> bool:
    return "sort" in called(node).lower()


def _grown(node: ast.AST) -> ast.expr | None:
    """The list that a node adds to."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.value if node.func.attr in _COLLECTS else None
    adds = isinstance(node, ast.AugAssign) and isinstance(node.value, (ast.List, ast.ListComp))
    return node.target if adds else None  # type: ignore[attr-defined]


def _numbers(loop: ast.For | ast.AsyncFor) -> bool:
    """`for i, name in enumerate(names): index[name] = i`, and `index[name] = len(index)`."""
    counter = ""
    if isinstance(loop.target, ast.Tuple) and called(loop.iter) == "enumerate":
        counter = last_name(loop.target.elts[0])
    for node in ast.walk(loop):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            value, into = node.value, words_of(node.targets[0].value)
            if isinstance(value, ast.Call) and called(value) == "len" and value.args:
                return words_of(value.args[0]) == into
            if counter and last_name(value) == counter:
                return True
    return False


def _by_member(collection: ast.expr, loop: ast.For | ast.AsyncFor) -> bool:
    """`lists[name].append(…)` in a loop over names: each has a list of its own."""
    if not isinstance(collection, ast.Subscript):
        return False
    return not set(names_in(loop.target)).isdisjoint(names_in(collection.slice))


CHECKS = (listing_order, set_order)
