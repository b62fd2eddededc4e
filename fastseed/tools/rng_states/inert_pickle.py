"""Read a pickle as data: classes and functions stay names, and nothing is imported or called.

The opcodes come from ``pickletools.genops`` of the standard library. ``Thing`` takes the place of
every object that a pickle would create by code.
"""

from __future__ import annotations

import pickletools
from typing import Any

MOST_BYTES = 64 << 20
MOST_OPERATIONS = 5_000_000  # at most about 500 MB of objects
_MOST_NAME = 1000  # characters
_MOST_NAMES = 16 << 20  # characters of all names

_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
_COUNTS = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3, "REDUCE": 2, "NEWOBJ": 2, "NEWOBJ_EX": 3}
_MARKED = ("TUPLE", "LIST", "DICT", "FROZENSET", "SETITEMS", "APPENDS", "ADDITEMS", "INST", "OBJ")


class Thing:
    """An object that was not created: the name of its class or function, and what it is given."""

    __slots__ = ("args", "items", "name", "state")

    def __init__(self, name: str, args: Any = ()) -> None:
        self.name, self.args = name, args
        self.state: Any = None
        self.items: list[Any] = []


class Unreadable(ValueError):
    """The reason that a file is not read; completes the sentence "… is not read: …"."""


def loads(data: bytes) -> Any:
    """Return the content of the first pickle in ``data``, with ``Thing`` for other objects.

    Raises:
        Unreadable: it is no pickle, a damaged one, or too large.
    """
    if len(data) > MOST_BYTES:
        raise Unreadable(f"its pickle has {len(data)} bytes, more than {MOST_BYTES}")
    machine = _Machine()
    try:
        for count, (operation, argument, _) in enumerate(pickletools.genops(data)):
            if count == MOST_OPERATIONS:
                raise Unreadable(f"its pickle has more than {MOST_OPERATIONS} operations")
            machine.step(operation, argument)
        return machine.stack[-1]
    except Unreadable:
        raise
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
        why = f"{type(error).__name__}: {str(error)[:80]}"
        raise Unreadable(f"its pickle is damaged ({why})") from None


class _Machine:
    """The stack of a pickle. Only lists, tuples, dicts and plain values are created."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}
        self._named = 0  # characters of names that were joined

    def step(self, operation: pickletools.OpcodeInfo, argument: Any) -> None:
        """Apply one operation."""
        name, stack = operation.name, self.stack
        made = operation.stack_after
        if name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in _COUNTS:
            self._combine(name, self._take(_COUNTS[name]))
        elif name in _MARKED:
            self._combine(name, self._since_mark(), argument)
        elif name.endswith("PUT") or name == "MEMOIZE":
            self._memo[len(self._memo) if argument is None else argument] = stack[-1]
        elif name.endswith("GET"):
            stack.append(self._memo[argument])
        elif name == "MARK":
            self._marks.append(len(stack))
        elif name in ("EMPTY_LIST", "EMPTY_SET", "EMPTY_DICT"):
            stack.append({} if name == "EMPTY_DICT" else [])
        elif name in ("APPEND", "SETITEM"):
            self._combine(f"{name}S", self._take(1 if name == "APPEND" else 2))
        elif operation.arg is not None and made and made[0].name != "any":
            stack.append(argument)  # a number, text or bytes
        else:
            self._others(name, argument)

    def _others(self, name: str, argument: Any) -> None:
        if name == "GLOBAL":
            self.stack.append(Thing(argument))
        elif name == "STACK_GLOBAL":
            self.stack.append(Thing(self._joined(*self._take(2))))
        elif name == "BUILD":
            (state,) = self._take(1)
            if isinstance(self.stack[-1], Thing):
                self.stack[-1].state = state
        elif name in ("PERSID", "BINPERSID"):
            held = self._take(1)[0] if argument is None else argument
            self.stack.append(Thing("persistent id", held))
        elif name == "POP_MARK" or (name == "POP" and self._marks[-1:] == [len(self.stack)]):
            self._since_mark()
        elif name == "POP":
            self._take(1)
        elif name == "DUP":
            self.stack.append(self.stack[-1])
        elif name not in ("PROTO", "FRAME", "STOP"):
            raise Unreadable(f"its pickle has the operation {name}")

    def _joined(self, module: Any, name: Any) -> str:
        """Return the name of a class; its parts may be memoised, so that many take few bytes."""
        if not (isinstance(module, str) and isinstance(name, str)):
            raise Unreadable("its pickle has a name that is not text")
        self._named += len(module) + len(name)
        if max(len(module), len(name)) > _MOST_NAME or self._named > _MOST_NAMES:
            raise Unreadable("its pickle has a name that is too long")
        return f"{module} {name}"

    def _take(self, count: int) -> list[Any]:
        if len(self.stack) < count:
            raise Unreadable("its pickle takes from an empty stack")
        values = self.stack[len(self.stack) - count :]
        del self.stack[len(self.stack) - count :]
        return values

    def _since_mark(self) -> list[Any]:
        return self._take(len(self.stack) - self._marks.pop())

    def _combine(self, name: str, values: list[Any], argument: Any = None) -> None:
        """Make a value of others, or put them into the last one."""
        if name.startswith("TUPLE"):
            self.stack.append(tuple(values))
        elif name in ("LIST", "FROZENSET"):
            self.stack.append(values)
        elif name == "DICT":
            self.stack.append(dict(_pairs(values)))
        elif name in ("APPENDS", "ADDITEMS"):
            target = self.stack[-1]
            (target.items if isinstance(target, Thing) else target).extend(values)
        elif name == "SETITEMS":
            target = self.stack[-1]
            if isinstance(target, Thing):
                target.items.extend(_pairs(values))
            else:
                target.update(_pairs(values))
        else:  # REDUCE, NEWOBJ, NEWOBJ_EX, INST, OBJ: a call
            called, *arguments = values if argument is None else [Thing(argument), values]
            given = arguments[0] if len(arguments) == 1 else arguments
            self.stack.append(Thing(called.name if isinstance(called, Thing) else "?", given))


def _pairs(values: list[Any]) -> list[tuple[Any, Any]]:
    """Return keys and values; a key whose hash may take long is wrapped."""
    keys = [key if _is_short(key) else Thing("key", key) for key in values[::2]]
    return list(zip(keys, values[1::2], strict=True))


def _is_short(key: Any) -> bool:
    if isinstance(key, int):
        return key.bit_length() <= 60  # the hash of an int takes as long as the int is
    return isinstance(key, (str, bytes, float, type(None), Thing))
