"""Read files of torch.save, pickles and fastseed's files as trees of plain data, within limits.

Nothing is allocated by a number that a file claims: every read is bounded by a constant and by the
size of the file.
"""

from __future__ import annotations

import io
import os
import stat
import zipfile
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from ...checkpoint import format as file_format
from . import inert_pickle
from .inert_pickle import Thing, Unreadable

MOST_TENSOR = 1 << 16  # bytes; the states of all generators are smaller
_MOST_DIRECTORY = 16 << 20  # bytes, of a zip file; of about 200,000 entries
_MOST_STORAGE = 16 << 20  # bytes of what such a tensor may be a part of
MOST_FASTSEED = 256 << 20
_LEGACY = 0x1950A86A20F9469CFC6C  # with which files of torch before 1.6 begin
# What zipfile raises for damaged, encrypted and otherwise unusual files.
_BROKEN = (zipfile.BadZipFile, ValueError, LookupError, OSError, RuntimeError, EOFError)
_ARRAYS = tuple(f"numpy.{core}.multiarray _reconstruct" for core in ("_core", "core"))
_BUFFERS = tuple(f"numpy.{core}.numeric _frombuffer" for core in ("_core", "core"))


class Tree(NamedTuple):
    """The content of a file: plain data, ``Thing`` for other objects, and where tensors lie."""

    root: Any
    archive: zipfile.ZipFile | None
    prefix: str
    refused: tuple[str, ...]
    """Names of classes and functions that ``torch.load(weights_only=True)`` refuses in it."""


def open_regular(path: str) -> BinaryIO:
    """Open a regular file; a symbolic link, a pipe or a device is ``Unreadable``."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        handle = os.open(path, flags)
    except OSError as error:
        raise Unreadable(error.strerror or "it cannot be opened") from None
    except ValueError:  # a null character
        raise Unreadable("it cannot be opened") from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise Unreadable("it is not a regular file")
    return os.fdopen(handle, "rb")


def read_tree(file: BinaryIO) -> Tree:
    """Return the tree in a file of torch.save, a plain pickle or a file of fastseed.

    Raises:
        Unreadable: it is another file, damaged, compressed or too large.
    """
    start = file.read(len(file_format.MAGIC))
    file.seek(0)
    if start == file_format.MAGIC:
        return Tree(decode_fastseed(_read_at_most(file, MOST_FASTSEED)), None, "", ())
    if start[:2] == b"PK":
        return _read_zip(file)
    root = inert_pickle.loads(_read_at_most(file, inert_pickle.MOST_BYTES))
    if root == _LEGACY:
        raise Unreadable("it has the format of torch before 1.6; save it again")
    return Tree(root, None, "", ())


def decode_fastseed(data: bytes) -> dict[str, Any]:
    """Return a state of fastseed."""
    try:
        return file_format.decode(data)
    except file_format.Damaged as error:
        raise Unreadable(str(error)) from None


def _read_at_most(file: BinaryIO, most: int) -> bytes:
    size = file.seek(0, os.SEEK_END)
    if size > most:
        raise Unreadable(f"it has {size} bytes, more than {most}")
    file.seek(0)
    return file.read(size)


class _Bounded:
    """A file for ``zipfile``, which reads a whole directory of the size that the file claims."""

    def __init__(self, file: BinaryIO, most: int) -> None:
        self.most = most
        self._file = file
        self.seek, self.tell, self.seekable = file.seek, file.tell, file.seekable

    def read(self, size: int = -1) -> bytes:
        """Read ``size`` bytes or up to the end of the file, but not more than ``most``."""
        found = self._file.read(self.most + 1) if size < 0 else b""
        if max(size, len(found)) > self.most:
            raise Unreadable("its directory is too large")
        return found if size < 0 else self._file.read(size)


def _read_zip(file: BinaryIO) -> Tree:
    try:
        bounded = _Bounded(file, _MOST_DIRECTORY)
        archive = zipfile.ZipFile(bounded)
        bounded.most = inert_pickle.MOST_BYTES
        names = [name for name in archive.namelist() if name.endswith("/data.pkl")]
        if len(names) != 1:
            raise Unreadable("it is a zip file, but not one of torch.save")
        data = _entry(archive, names[0], inert_pickle.MOST_BYTES)
    except _BROKEN as error:
        if isinstance(error, Unreadable):
            raise
        raise Unreadable(f"its zip file is damaged ({error})") from None
    root, prefix = inert_pickle.loads(data), names[0].removesuffix("data.pkl")
    return Tree(root, archive, prefix, _refused(data))


def _entry(archive: zipfile.ZipFile, name: str, most: int) -> bytes:
    """Return an entry; torch stores entries as they are, so that a compressed one is refused."""
    held = archive.getinfo(name)
    if held.compress_type != zipfile.ZIP_STORED or held.compress_size != held.file_size:
        raise Unreadable(f"its entry {name[:60]!r} is compressed, which torch.save does not do")
    if held.file_size > most:
        raise Unreadable(f"its entry {name[:60]!r} has {held.file_size} bytes, more than {most}")
    return archive.read(held)


def _refused(data: bytes) -> tuple[str, ...]:
    """Return the names that ``weights_only`` refuses in the ``data.pkl`` of torch.save."""
    import torch

    alone = io.BytesIO()  # torch reads the names from a whole file; without its tensors it is small
    with zipfile.ZipFile(alone, "w") as archive:
        for name, held in (("data.pkl", data), ("version", b"3\n"), ("byteorder", b"little")):
            archive.writestr(f"archive/{name}", held)
    alone.seek(0)
    try:
        return tuple(sorted(torch.serialization.get_unsafe_globals_in_checkpoint(alone)))
    except Exception as error:  # it refuses operations too, such as those of newer protocols
        return (str(error)[:80],)


# ---------------------------------------------------------------- tensors and arrays


def tensor_bytes(tree: Tree, thing: Any) -> bytes | None:
    """Return the bytes of a small contiguous 1-D uint8 tensor; None for everything else."""
    if isinstance(thing, Thing):
        return _saved_tensor(tree, thing)
    if file_format.is_bytes(thing):  # of a file of fastseed
        return bytes(thing.numpy().tobytes())
    return None


def _saved_tensor(tree: Tree, thing: Thing) -> bytes | None:
    if thing.name != "torch._utils _rebuild_tensor_v2" or tree.archive is None:
        return None
    match thing.args:
        case (Thing(args=("storage", Thing(name="torch ByteStorage"), str(key), _, _)), int(start),
              (int(size),), (1,), *_) if start >= 0 and 0 < size <= MOST_TENSOR:  # fmt: skip
            pass
        case _:
            return None
    try:
        found = _entry(tree.archive, f"{tree.prefix}data/{key}", _MOST_STORAGE)
    except _BROKEN:
        return None
    return found[start : start + size] if len(found) >= start + size else None


def array_of(thing: Any) -> Any:
    """Return a pickled NumPy array of integers; None for everything else."""
    match thing:
        case Thing(name=name, state=(_, _, Thing() as dtype, _, raw)) if name in _ARRAYS:
            pass
        case Thing(name=name, args=(raw, Thing() as dtype, _, _)) if name in _BUFFERS:
            pass
        case _:
            return None
    match raw:  # protocol 2 has no bytes
        case Thing(name="_codecs encode", args=(str(text), "latin1")) if len(text) <= MOST_TENSOR:
            raw = text.encode("latin1", "replace")
    match dtype:
        case Thing(args=("u4" | "u8" | "i4" | "i8" as code, *_), state=(_, "<" | ">" as order, *_)):
            whole = isinstance(raw, (bytes, bytearray)) and len(raw) % int(code[1]) == 0
            if whole and len(raw) <= MOST_TENSOR:
                return np.frombuffer(raw, f"{order}{code}")
    return None
