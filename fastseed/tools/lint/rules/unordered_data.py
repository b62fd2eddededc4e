"""Rules about the order of data: of directory listings and of sets (FS401, FS402).

A listing or a set is followed from where it is made through what keeps its order, to where that
order becomes the order of data, or to where it ceases to matter (`sorted`, `len`, `in`, …). What is
handed to a function that is not known is left alone, and so is what does not look like data.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ..module import Module, Violation

_LISTINGS = frozenset(
    {"os.listdir", "os.scandir", "os.walk", "os.fwalk", "glob.glob", "glob.iglob"}
)
_KEEPS = {
    "list", "tuple", "enumerate", "iter", "map", "filter", "zip", "reversed", "tqdm", "array",
    "asarray", "chain", "islice", "from_iterable", "track", "trange",
}  # fmt: skip
"""Calls whose result has the order of an argument."""
_LISTS = _KEEPS - {"iter", "chain", "from_iterable"}
_DRAWS = {"shuffle", "sample", "choice", "choices", "permutation", "train_test_split"}
"""Draws of equal numbers from another order give another result."""
_JOINS = {"cat", "concat", "concatenate", "stack", "vstack", "hstack"}
_SETS = {"union", "intersection", "difference", "symmetric_difference", "copy"}
_COLLECTS = {"append", "extend", "insert", "appendleft"}
_NUMERIC = re.compile(
    r"^(int|len|range|float|ord|hash|id|arange|unique|tolist|round|abs)$|(^|_)(ids?|idxs?|index|"
    r"indices|inds?|range|pos|positions?|counts?|lengths?|sizes?|epochs?|ranks?|targets?|ys?)(_|$)|(^|_)(labels?|class|classes)$"
)
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
    reported: set[ast.AST] = set()
    for node in module.nodes:
        found = _is_set(module, node) and _is_data(module, node) and not _of_numbers(module, node)
        if found and _Climb(module).ordered(node, False):
            statement = next(one for one in module.ancestors(node) if isinstance(one, ast.stmt))
            if statement not in reported:  # `set(a) | set(b)`: one finding
                reported.add(statement)
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
    if attr in ("iterdir", "rglob") and not path.startswith("fsspec"):
        return f"Path.{attr}"
    of_pathlib = path.startswith("pathlib.")
    if attr == "walk" and of_pathlib:
        return "Path.walk"
    if attr == "glob" and call.args:
        pattern = call.args[0]
        text = pattern.value if isinstance(pattern, ast.Constant) else None
        if of_pathlib or (isinstance(text, str) and "*" in text):
            return "Path.glob"
    return None


def _is_set(module: Module, node: ast.AST) -> bool:
    """Return whether an expression makes a set."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return any(module.names.is_builtin(node.func, name) for name in ("set", "frozenset"))
    return isinstance(node, (ast.Set, ast.SetComp))


def _of_numbers(module: Module, node: ast.AST) -> bool:
    """Return whether a set holds numbers, whose order is the same in every process."""
    if isinstance(node, ast.Set):
        return all(
            isinstance(one, ast.Constant) and not isinstance(one.value, (str, bytes))
            for one in node.elts
        )
    element: ast.AST | None = None
    if isinstance(node, ast.SetComp):
        element = node.elt
    elif isinstance(node, ast.Call) and node.args:
        element = node.args[0]
        if isinstance(element, (ast.GeneratorExp, ast.ListComp)):
            element = element.elt
        elif isinstance(element, ast.Call) and _name(element.func) == "map":
            element = element.args[0] if element.args else element
    said = _said_of(module, element) + _said_of(module, *_assigned(module, node))
    if re.search(r"\bint\b", said) and "str" not in said:
        return True
    if isinstance(element, ast.Call):
        element = element.func
    return element is not None and bool(_NUMERIC.search(_name(element)))


def _assigned(module: Module, node: ast.AST) -> list[ast.expr]:
    """The variables that an expression is assigned to at once."""
    holder = module.parents.get(node)
    if isinstance(holder, ast.AnnAssign):
        return [holder.target]
    return list(holder.targets) if isinstance(holder, ast.Assign) else []


def _said_of(module: Module, *nodes: ast.AST | None) -> str:
    """The words of the annotations of variables."""
    words: list[str] = []
    for node in nodes:
        holder = module.parents.get(node) if node is not None else None
        found = module.names.lookup(node) if isinstance(node, ast.Name) else None
        notes = [b.node for b in found[1] if b.kind == "parameter"] if found else []
        if isinstance(holder, ast.AnnAssign) and node is holder.target:
            notes.append(holder.annotation)
        words += [word for note in notes if note is not None for word in _words_of(note)]
    return " ".join(words)


def _is_data(module: Module, node: ast.AST) -> bool:
    """Return whether the names around an expression are those of data, and of nothing else."""
    words: list[str] = []
    for holder in module.ancestors(node):
        if isinstance(holder, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            words.append(holder.name)
            words += map(_name, getattr(holder, "bases", ()))
        elif isinstance(holder, (ast.For, ast.AsyncFor)):
            words += _words(holder.target), *_words_of(holder.iter)
        elif isinstance(holder, (ast.stmt)) and not hasattr(holder, "body"):
            words += _words_of(holder)
    text = " ".join(words)
    return bool(_DATA.search(text)) and not _OTHER.search(text)


def _words(node: ast.AST) -> str:
    return " ".join(_words_of(node))


def _words_of(node: ast.AST) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            yield part.id
        elif isinstance(part, ast.Attribute):
            yield part.attr
        elif isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.value[:80]


# ---------------------------------------------------------------- where the order goes


class _Climb:
    """Follows one expression to what becomes of its order."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.seen: set[ast.AST] = set()

    def ordered(self, node: ast.AST, listed: bool, depth: int = 0, counted: bool = False) -> bool:
        """Return whether the order of an expression becomes the order of data.

        Args:
            node: the expression.
            listed: whether it has an order that indices and returns show; a set has not.
            depth: variables passed so far.
            counted: whether `enumerate` has given its members numbers.
        """
        while node not in self.seen:
            self.seen.add(node)
            holder = self.module.parents.get(node)
            if isinstance(holder, ast.IfExp) and node is holder.test:
                return False
            if isinstance(holder, (ast.keyword, ast.Starred, ast.IfExp, ast.BoolOp, ast.Await)):
                node = holder
            elif isinstance(holder, ast.List) and isinstance(node, ast.Starred):
                node, listed = holder, True
            elif isinstance(holder, ast.Tuple):
                returned = self.module.parents.get(holder)
                return listed and isinstance(returned, ast.Return)
            elif isinstance(holder, ast.BinOp):
                if isinstance(holder.op, ast.Sub) and node is holder.right:
                    return False  # taken away from another set
                node = holder
            elif isinstance(holder, ast.Subscript) and isinstance(holder.slice, ast.Slice):
                node = holder
            elif isinstance(holder, ast.comprehension) and node is holder.iter:
                whole = self.module.parents[holder]
                if isinstance(whole, ast.SetComp):
                    return False
                if isinstance(whole, ast.DictComp):
                    return counted
                node, listed = whole, True
            elif isinstance(holder, ast.Attribute):
                called = self.module.parents.get(holder)
                if not isinstance(called, ast.Call) or called.func is not holder:
                    return False
                if holder.attr == "index":
                    return listed
                if holder.attr not in _SETS:
                    return False
                node = called
            elif isinstance(holder, ast.Call):
                name = _name(holder.func)
                if name in _DRAWS:
                    return True
                if listed and (name in _JOINS or name.endswith("Dataset")):
                    return True
                if name not in _KEEPS or (name in ("map", "filter") and node is holder.args[0]):
                    return self._collected(holder, node) if listed else False
                counted = counted or name == "enumerate"
                node, listed = holder, listed or name in _LISTS
            else:
                return self._ends(holder, node, listed, depth, counted)
        return False

    def _ends(
        self, holder: ast.AST | None, node: ast.AST, listed: bool, depth: int, counted: bool
    ) -> bool:
        """The statement that takes it."""
        if isinstance(holder, (ast.For, ast.AsyncFor)):
            return node is holder.iter and (self._collects(holder) or _numbers(holder, counted))
        if isinstance(holder, ast.Subscript):
            # A constant index mostly takes the only one there is.
            return listed and node is holder.value and not isinstance(holder.slice, ast.Constant)
        if isinstance(holder, (ast.Return, ast.YieldFrom)):
            return listed and not self._callers_sort(holder)
        if isinstance(holder, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr)):
            targets = holder.targets if isinstance(holder, ast.Assign) else [holder.target]
            if isinstance(holder, ast.NamedExpr):
                return False
            return any(self._kept(target, listed, depth, counted) for target in targets)
        return False

    def _kept(self, target: ast.expr, listed: bool, depth: int, counted: bool) -> bool:
        """A variable holds it: does anything use its order, and nothing sort it?"""
        uses = self.module.uses_of(target)
        if depth >= _DEEPEST or not uses or self._sorted_from_here(target):
            return False
        loads = [use for use in uses if isinstance(use.ctx, ast.Load)]  # type: ignore[attr-defined]
        of_dataset = isinstance(target, ast.Attribute) and self._in_dataset(target)
        if listed and of_dataset:
            return True
        return any(self.ordered(use, listed, depth + 1, counted) for use in loads)

    def _in_dataset(self, target: ast.Attribute) -> bool:
        owner = self.module.names.class_of(target.value)
        return owner is not None and "__getitem__" in owner.names

    def _collected(self, call: ast.Call, node: ast.AST) -> bool:
        """`data.extend(listing)`."""
        function = call.func
        if not isinstance(function, ast.Attribute) or function.attr != "extend":
            return False
        return node in call.args and self._matters(function.value)

    def _collects(self, loop: ast.For | ast.AsyncFor) -> bool:
        """Return whether the body of a loop puts things into a list, or yields them."""
        for node in _own_nodes(loop.body):
            if isinstance(node, (ast.Yield, ast.YieldFrom)):
                function = self.module.function_of(node)
                return function is None or not self._sorted_calls(function.name)
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
        if self._sorted(collection):
            return False
        for use in self.module.uses_of(collection):
            holder = self.module.parents.get(use)
            if isinstance(holder, ast.Return) and self._callers_sort(holder):
                return False
        return bool(_DATA.search(_words(collection))) or self._in_data_function(collection)

    def _in_data_function(self, node: ast.AST) -> bool:
        function = self.module.function_of(node)
        return function is not None and bool(_DATA.search(function.name))

    def _sorted(self, target: ast.AST) -> bool:
        """Return whether a variable is sorted anywhere, or assigned sorted."""
        for use in self.module.uses_of(target):
            holder = self.module.parents.get(use)
            if isinstance(holder, ast.Attribute) and "sort" in holder.attr:
                return True
            for one in self.module.ancestors(use):
                if isinstance(one, ast.stmt):
                    break
                if isinstance(one, ast.Call) and "sort" in _name(one.func).lower():
                    return True
        return False

    def _sorted_from_here(self, target: ast.AST) -> bool:
        """Return whether a variable is sorted itself: `x.sort()`, `x = sorted(x)`."""
        for use in self.module.uses_of(target):
            holder = self.module.parents.get(use)
            if isinstance(holder, ast.Attribute) and "sort" in holder.attr:
                return True
            if isinstance(holder, ast.Assign) and use in holder.targets:
                calls = (one for one in ast.walk(holder.value) if isinstance(one, ast.Call))
                if any("sort" in _name(call.func).lower() for call in calls):
                    return True
        return False

    def _callers_sort(self, node: ast.AST) -> bool:
        function = self.module.function_of(node)
        return function is not None and self._sorted_calls(function.name)

    def _sorted_calls(self, name: str) -> bool:
        """Return whether every call of a function of this file is inside one that sorts."""
        calls = [call for call in self.module.calls if _name(call.func) == name]
        return bool(calls) and all(self._inside_sort(call) for call in calls)

    def _inside_sort(self, call: ast.Call) -> bool:
        for one in self.module.ancestors(call):
            if isinstance(one, ast.Call) and "sort" in _name(one.func).lower():
                return True
            if isinstance(one, ast.stmt):
                target = one.targets[0] if isinstance(one, ast.Assign) else None
                return target is not None and self._sorted(target)
        return False


def _grown(node: ast.AST) -> ast.expr | None:
    """The list that a node adds to."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.value if node.func.attr in _COLLECTS else None
    adds = isinstance(node, ast.AugAssign) and isinstance(node.value, (ast.List, ast.ListComp))
    return node.target if adds else None  # type: ignore[attr-defined]


def _numbers(loop: ast.For | ast.AsyncFor, counted: bool) -> bool:
    """`for i, name in enumerate(names): index[name] = i`, and `index[name] = len(index)`."""
    first = loop.target.elts[0] if isinstance(loop.target, ast.Tuple) else None
    counter = first.id if counted and isinstance(first, ast.Name) else None
    for node in _own_nodes(loop.body):
        if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Subscript):
            continue
        value, into = node.value, _words(node.targets[0].value)
        if isinstance(value, ast.Name) and value.id == counter:
            return True
        if isinstance(value, ast.Call) and _name(value.func) == "len":
            return bool(value.args) and _words(value.args[0]) == into
    return False


def _by_member(collection: ast.expr, loop: ast.For | ast.AsyncFor) -> bool:
    """`lists[name].append(…)` in a loop over names: each has a list of its own."""
    if not isinstance(collection, ast.Subscript):
        return False
    members = set(_words_of(loop.target))
    return any(isinstance(n, ast.Name) and n.id in members for n in ast.walk(collection.slice))


def _own_nodes(body: list[ast.stmt]) -> Iterator[ast.AST]:
    """The nodes of statements, without functions defined there."""
    todo: list[ast.AST] = list(body)
    while todo:
        node = todo.pop()
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            yield node
            todo.extend(ast.iter_child_nodes(node))


def _name(function: ast.AST) -> str:
    """The last part of what is called."""
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


CHECKS = (listing_order, set_order)
