"""Read a pickle as data: classes and functions stay names, and nothing is imported or called.

The unpickler of the standard library builds lists, tuples, dicts and plain values. ``Thing`` takes
the place of whatever else it would create. It is the one in Python, ``pickle._Unpickler``: the one
in C allocates by numbers that a pickle claims, and hashes any key of a dict.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from collections.abc import Callable
from typing import Any, ClassVar

MOST_BYTES = 64 << 20
MOST_OPERATIONS = 5_000_000  # at most about 500 MB of objects


class Thing:
    """An object that was not created: the name of its class or function, and what it is given."""

    __slots__ = ("args", "items", "name", "state")

    def __init__(self, name: tuple[str, str], args: Any = ()) -> None:
        self.name, self.args = name, args  # module and name: joined, many would take long
        self.state: Any = None
        self.items: list[object] = []

    def __call__(self, *args: object) -> Thing:
        return Thing(self.name, args)

    def __setstate__(self, state: object) -> None:
        self.state = state

    def __setitem__(self, key: object, value: object) -> None:
        self.items.append((key, value))

    def append(self, value: object) -> None:
        """Take an element of a list or a set."""
        self.items.append(value)

    add = append


class Unreadable(ValueError):
    """The reason that a file is not read; completes the sentence "… is not read: …"."""


def loads(data: bytes) -> Any:
    """Return the content of the first pickle in ``data``, with ``Thing`` for other objects.

    Raises:
        Unreadable: it is no pickle, a damaged one, or too large.
    """
    if len(data) > MOST_BYTES:
        raise Unreadable(f"its pickle has {len(data)} bytes, more than {MOST_BYTES}")
    try:
        for count, _ in enumerate(pickletools.genops(data)):  # it reads no more than there is
            if count == MOST_OPERATIONS:
                raise Unreadable(f"its pickle has more than {MOST_OPERATIONS} operations")
        return _Unpickler(io.BytesIO(data)).load()
    except Unreadable:
        raise
    except Exception as error:  # of many types
        why = f"{type(error).__name__}: {str(error)[:80]}"
        raise Unreadable(f"its pickle is damaged ({why})") from None


class _Dict(dict[object, object]):
    """A dict that wraps keys whose hash may take long: nested tuples, numbers of many digits."""

    __slots__ = ()

    def __setitem__(self, key: object, value: object) -> None:
        is_short = isinstance(key, (str, bytes, float, type(None), Thing))
        if isinstance(key, int):
            is_short = key.bit_length() <= 60
        super().__setitem__(key if is_short else Thing(("", "key"), key), value)


_InPython: Any = pickle._Unpickler


class _Unpickler(_InPython):  # type: ignore[misc]
    dispatch: ClassVar[dict[int, Callable[[_Unpickler], None]]] = dict(_InPython.dispatch)

    def find_class(self, module: str, name: str) -> Thing:
        return Thing((module, name))

    def persistent_load(self, pid: object) -> Thing:
        return Thing(("", "persistent id"), pid)

    def get_extension(self, code: int) -> None:  # whose objects may have been imported before
        raise Unreadable("its pickle has a code of copyreg")

    def load_newobj(self) -> None:
        args = self.stack.pop()
        self.append(self.stack.pop()(*args))

    def load_newobj_ex(self) -> None:
        self.stack.pop()
        self.load_newobj()

    def load_empty_dictionary(self) -> None:
        self.append(_Dict())

    def load_dict(self) -> None:
        items, made = self.pop_mark(), _Dict()
        for i in range(0, len(items), 2):
            made[items[i]] = items[i + 1]
        self.append(made)

    def load_empty_set(self) -> None:
        self.append(Thing(("builtins", "set")))

    def load_frozenset(self) -> None:
        items = self.pop_mark()  # which also exchanges self.append
        self.append(items)

    dispatch[pickle.NEWOBJ[0]] = load_newobj
    dispatch[pickle.NEWOBJ_EX[0]] = load_newobj_ex
    dispatch[pickle.EMPTY_DICT[0]] = load_empty_dictionary
    dispatch[pickle.DICT[0]] = load_dict
    dispatch[pickle.EMPTY_SET[0]] = load_empty_set
    dispatch[pickle.FROZENSET[0]] = load_frozenset
