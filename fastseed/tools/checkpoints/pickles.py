"""Read pickles and files of torch.save as data: no code that they name is run."""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from typing import IO, Any, NamedTuple

import numpy as np

MAX_BYTES = 64 << 20  # of a pickle; the weights of torch.save lie beside it
_MAX_TENSOR = 1 << 16  # bytes; the states of all generators are smaller
_MAX_ARRAY = 8 * 624  # bytes, of the words of an MT19937
_LEGACY = 0x1950A86A20F9469CFC6C  # with which files of torch before 1.6 begin
_SHA256 = 32  # bytes, at the end of what fastseed writes
# What zipfile raises for damaged, encrypted and otherwise unusual files.
_BROKEN = (zipfile.BadZipFile, ValueError, LookupError, OSError, RuntimeError, EOFError)


class Unreadable(ValueError):
    """The reason that a file is not read; completes the sentence "… is not read: …"."""


class Opaque:
    """An object that was not created: what its class or function was given."""

    name = ("", "")  # the module and the name of the class or function
    args: tuple[Any, ...]
    state: Any
    items: list[object]

    def __new__(cls, *args: object, **_: object) -> Opaque:
        made = object.__new__(cls)
        made.args, made.state, made.items = args, None, []
        return made

    def __setstate__(self, state: object) -> None:
        self.state = state

    def __setitem__(self, key: object, value: object) -> None:
        self.items.append((key, value))

    def append(self, value: object) -> None:
        self.items.append(value)

    def extend(self, values: list[object]) -> None:
        self.items += values

    add = append


class Tensor(NamedTuple):
    """A small 1-D uint8 tensor of a file of torch.save."""

    archive: zipfile.ZipFile
    entry: str
    start: int
    size: int

    def read(self) -> bytes:
        """Return the bytes; ``Unreadable`` if they are damaged."""
        try:
            found = self.archive.read(self.entry)  # checks the CRC-32
        except _BROKEN as error:
            raise Unreadable(f"its bytes are damaged ({error})") from None
        return found[self.start : self.start + self.size]


class _Array(list[int]):
    """The numbers of a small array of integers; empty for other arrays."""

    # NumPy's own unpickling trusts what a file says about an array's type.

    def __setstate__(self, state: Any) -> None:
        _, _, dtype, _, raw = state
        self[:] = _numbers(raw, dtype)


def _numbers(raw: Any, dtype: Any) -> list[int]:
    code, order = dtype.args[0], dtype.state[1]
    if code not in ("u4", "u8", "i4", "i8") or order not in ("<", ">") or len(raw) > _MAX_ARRAY:
        return []
    return list(np.frombuffer(raw, order + code).tolist())


_PLAIN: dict[tuple[str, str], Callable[..., Any]] = {
    ("collections", "OrderedDict"): OrderedDict,
    ("torch", "Size"): tuple,
    ("_codecs", "encode"): lambda text, _: text.encode("latin1"),  # of bytes, in protocol 2
    # NumPy has moved these from module to module.
    ("numpy", "_reconstruct"): lambda *_: _Array(),
    ("numpy", "_frombuffer"): lambda raw, dtype, *_: _Array(_numbers(raw, dtype)),
}


def field(thing: object, name: str) -> Any:
    """Return an attribute of an object that was not created; None if it has none of this name."""
    state = thing.state if isinstance(thing, Opaque) else None
    return state.get(name) if isinstance(state, dict) else None


class InertUnpickler(pickle.Unpickler):
    """Makes plain values, and ``Opaque`` in place of other objects; of any size."""

    def __init__(
        self, file: IO[bytes], archive: zipfile.ZipFile | None = None, folder: str = ""
    ) -> None:
        super().__init__(file)
        self._archive, self._folder = archive, folder

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return self._tensor
        package = "numpy" if module.startswith("numpy.") else module
        return _PLAIN.get((package, name)) or type(name, (Opaque,), {"name": (module, name)})

    def persistent_load(self, pid: Any) -> Any:
        return pid

    def _tensor(
        self, storage: Any, start: int, shape: tuple[int, ...], strides: tuple[int, ...], *_: object
    ) -> Tensor | None:
        """Return a small 1-D uint8 tensor; None for others, which hold no state."""
        _, kind, key, *_ = storage
        is_small = len(shape) == 1 and 0 < shape[0] <= _MAX_TENSOR and strides == (1,)
        if self._archive is None or kind.name != ("torch", "ByteStorage") or not is_small:
            return None
        return Tensor(self._archive, f"{self._folder}data/{key}", start, shape[0])


def _loads(data: bytes, archive: zipfile.ZipFile | None = None, folder: str = "") -> Any:
    try:
        return InertUnpickler(io.BytesIO(data), archive, folder).load()
    except Exception as error:  # of many types
        why = f"{type(error).__name__}: {str(error)[:80]}"
        raise Unreadable(f"its pickle is damaged ({why})") from None


def read_tree(file: IO[bytes]) -> Any:
    """Return the content of a file of torch.save or a plain pickle; tensors need it open."""
    start = file.read(2)
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    if start == b"PK":
        return _read_zip(file)
    if size > MAX_BYTES:
        raise Unreadable(f"it has {size} bytes, more than {MAX_BYTES}")
    root = _loads(file.read())
    if root == _LEGACY:
        raise Unreadable("it has the format of torch before 1.6; save it again")
    return root


def _read_zip(file: IO[bytes]) -> Any:
    try:
        archive = zipfile.ZipFile(file)
        names = [name for name in archive.namelist() if name.endswith("/data.pkl")]
        size = archive.getinfo(names[0]).file_size if len(names) == 1 else 0
        data = archive.read(names[0]) if 0 < size <= MAX_BYTES else b""
    except _BROKEN as error:
        raise Unreadable(f"its zip file is damaged ({error})") from None
    if size > MAX_BYTES:
        raise Unreadable(f"its pickle has {size} bytes, more than {MAX_BYTES}")
    if not data:
        raise Unreadable("it is a zip file, but not one of torch.save")
    return _loads(data, archive, names[0].removesuffix("data.pkl"))


def check_sha256(data: bytes) -> None:
    if hashlib.sha256(data[:-_SHA256]).digest() != data[-_SHA256:]:
        raise Unreadable("its SHA-256 is wrong: it is damaged, and fastseed does not load it")
