"""Read pickles and files of torch.save as data: names of classes stay names, no code is run.

The unpickler of the standard library builds lists, tuples, dicts and plain values. ``Opaque`` takes
the place of whatever else it would create. It is the one in Python, ``pickle._Unpickler``: the one
in C allocates by numbers that a pickle claims, and hashes any key of a dict. Every read is bounded
by a constant and by the size of the file, never by a number that a file claims.
"""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import pickletools
import zipfile
from collections.abc import Callable
from typing import IO, Any, ClassVar, NamedTuple, cast

from ..._utils import regular_file

MAX_BYTES = 64 << 20
MAX_OPERATIONS = 5_000_000  # at most about 500 MB of objects
_MAX_TENSOR = 1 << 16  # bytes; the states of all generators are smaller
_MAX_DIRECTORY = 16 << 20  # bytes, of a zip file; of about 200,000 entries
_MAX_STORAGE = 16 << 20  # bytes of what such a tensor may be a part of
_LEGACY = 0x1950A86A20F9469CFC6C  # with which files of torch before 1.6 begin
_SHA256 = 32  # bytes, at the end of a file of fastseed
# What zipfile raises for damaged, encrypted and otherwise unusual files.
_BROKEN = (zipfile.BadZipFile, ValueError, LookupError, OSError, RuntimeError, EOFError)


class Opaque:
    """An object that was not created: the name of its class or function, and what it is given."""

    __slots__ = ("args", "items", "name", "state")

    def __init__(self, name: tuple[str, str], args: Any = ()) -> None:
        self.name, self.args = name, args  # module and name: joined, many would take long
        self.state: Any = None
        self.items: list[object] = []

    def __call__(self, *args: object) -> Opaque:
        return Opaque(self.name, args)

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
    """Return the content of the first pickle in ``data``, with ``Opaque`` for other objects.

    Raises:
        Unreadable: it is no pickle, a damaged one, or too large.
    """
    if len(data) > MAX_BYTES:
        raise Unreadable(f"its pickle has {len(data)} bytes, more than {MAX_BYTES}")
    try:
        for count, _ in enumerate(pickletools.genops(data)):  # it reads no more than there is
            if count == MAX_OPERATIONS:
                raise Unreadable(f"its pickle has more than {MAX_OPERATIONS} operations")
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
        is_short = isinstance(key, (str, bytes, float, type(None), Opaque))
        if isinstance(key, int):
            is_short = key.bit_length() <= 60
        super().__setitem__(key if is_short else Opaque(("", "key"), key), value)


_InPython: Any = pickle._Unpickler


class _Unpickler(_InPython):  # type: ignore[misc]
    dispatch: ClassVar[dict[int, Callable[[_Unpickler], None]]] = dict(_InPython.dispatch)

    def find_class(self, module: str, name: str) -> Opaque:
        return Opaque((module, name))

    def persistent_load(self, pid: object) -> Opaque:
        return Opaque(("", "persistent id"), pid)

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
        self.append(Opaque(("builtins", "set")))

    def load_frozenset(self) -> None:
        items = self.pop_mark()  # which also exchanges self.append
        self.append(items)

    dispatch[pickle.NEWOBJ[0]] = load_newobj
    dispatch[pickle.NEWOBJ_EX[0]] = load_newobj_ex
    dispatch[pickle.EMPTY_DICT[0]] = load_empty_dictionary
    dispatch[pickle.DICT[0]] = load_dict
    dispatch[pickle.EMPTY_SET[0]] = load_empty_set
    dispatch[pickle.FROZENSET[0]] = load_frozenset


# ---------------------------------------------------------------- files


class Tree(NamedTuple):
    """The content of a file: plain data, ``Opaque`` for other objects, and where tensors lie."""

    root: Any
    archive: zipfile.ZipFile | None
    prefix: str


def open_file(path: str) -> IO[bytes]:
    """Open a regular file; a symbolic link, a pipe or a device is ``Unreadable``."""
    try:
        if os.path.islink(path):
            raise ValueError
        return regular_file.open_file(path)
    except OSError as error:
        raise Unreadable(error.strerror or "it cannot be opened") from None
    except ValueError:
        raise Unreadable("it is not a regular file, or it cannot be opened") from None


def read_tree(file: IO[bytes]) -> Tree:
    """Return the tree in a file of torch.save or a plain pickle.

    Raises:
        Unreadable: it is another file, damaged, compressed or too large.
    """
    start = file.read(2)
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    if start == b"PK":
        return _read_zip(file)
    if size > MAX_BYTES:
        raise Unreadable(f"it has {size} bytes, more than {MAX_BYTES}")
    root = loads(file.read(size))
    if root == _LEGACY:
        raise Unreadable("it has the format of torch before 1.6; save it again")
    return Tree(root, None, "")


def check_sha256(file: IO[bytes]) -> None:
    """Check the SHA-256 that fastseed appends to what it writes; ``Unreadable`` if it is wrong."""
    size, sha = file.seek(0, os.SEEK_END) - _SHA256, hashlib.sha256()
    file.seek(0)
    while size > 0 and (block := file.read(min(size, 1 << 20))):
        sha.update(block)
        size -= len(block)
    if file.read() != sha.digest():
        raise Unreadable("its SHA-256 is wrong: it is damaged, and fastseed does not load it")


class _Bounded:
    """A file for ``zipfile``, which reads a whole directory of the size that the file claims."""

    def __init__(self, file: IO[bytes]) -> None:
        self.limit = _MAX_DIRECTORY
        self._read = file.read
        self.seek, self.tell, self.seekable = file.seek, file.tell, file.seekable

    def read(self, size: int = -1) -> bytes:
        """Read ``size`` bytes, or the end of the file, in which zipfile looks for the directory."""
        if size > self.limit:
            raise Unreadable("its directory is too large")
        return self._read(self.limit if size < 0 else size)


def _read_zip(file: IO[bytes]) -> Tree:
    try:
        bounded = _Bounded(file)
        archive = zipfile.ZipFile(cast(IO[bytes], bounded))
        bounded.limit = MAX_BYTES
        names = [name for name in archive.namelist() if name.endswith("/data.pkl")]
        if len(names) != 1:
            raise Unreadable("it is a zip file, but not one of torch.save")
        data = _entry(archive, names[0], MAX_BYTES)
    except Unreadable:
        raise
    except _BROKEN as error:
        raise Unreadable(f"its zip file is damaged ({error})") from None
    return Tree(loads(data), archive, names[0].removesuffix("data.pkl"))


def _entry(archive: zipfile.ZipFile, name: str, limit: int) -> bytes:
    """Return an entry; torch stores entries as they are, so that a compressed one is refused."""
    held = archive.getinfo(name)
    if held.compress_type != zipfile.ZIP_STORED or held.compress_size != held.file_size:
        raise Unreadable(f"its entry {name[:60]!r} is compressed, which torch.save does not do")
    if held.file_size > limit:
        raise Unreadable(f"its entry {name[:60]!r} has {held.file_size} bytes, more than {limit}")
    return archive.read(held)  # checks the CRC-32


def tensor_bytes(tree: Tree, thing: object) -> bytes | None:
    """Return the bytes of a small contiguous 1-D uint8 tensor; None for everything else.

    Raises:
        Unreadable: its bytes are damaged.
    """
    match thing:
        case Opaque(name=("torch._utils", "_rebuild_tensor_v2"), args=(
            Opaque(args=("storage", Opaque(name=("torch", "ByteStorage")), str(key), _, _)),
            int(start), (int(size),), (1,), *_,
        )) if start >= 0 and 0 < size <= _MAX_TENSOR and tree.archive is not None:  # fmt: skip
            pass
        case _:
            return None
    try:
        found = _entry(tree.archive, f"{tree.prefix}data/{key}", _MAX_STORAGE)
    except Unreadable:
        raise
    except _BROKEN as error:
        raise Unreadable(f"its bytes are damaged ({error})") from None
    if len(found) < start + size:
        raise Unreadable("it has fewer bytes than it claims")
    return found[start : start + size]
