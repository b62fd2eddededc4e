"""Read files of torch.save and plain pickles as trees of plain data, within limits.

Nothing is allocated by a number that a file claims: every read is bounded by a constant and by the
size of the file.
"""

from __future__ import annotations

import io
import os
import stat
import zipfile
from typing import Any, BinaryIO, NamedTuple, cast

import torch

from . import inert_pickle
from .inert_pickle import Thing, Unreadable

_MOST_TENSOR = 1 << 16  # bytes; the states of all generators are smaller
_MOST_DIRECTORY = 16 << 20  # bytes, of a zip file; of about 200,000 entries
_MOST_STORAGE = 16 << 20  # bytes of what such a tensor may be a part of
_LEGACY = 0x1950A86A20F9469CFC6C  # with which files of torch before 1.6 begin
# What zipfile raises for damaged, encrypted and otherwise unusual files.
_BROKEN = (zipfile.BadZipFile, ValueError, LookupError, OSError, RuntimeError, EOFError)


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
    except (OSError, ValueError) as error:  # ValueError: a null character
        raise Unreadable(getattr(error, "strerror", None) or "it cannot be opened") from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise Unreadable("it is not a regular file")
    return os.fdopen(handle, "rb")


def read_tree(file: BinaryIO) -> Tree:
    """Return the tree in a file of torch.save or a plain pickle.

    Raises:
        Unreadable: it is another file, damaged, compressed or too large.
    """
    start = file.read(2)
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    if start == b"PK":
        return _read_zip(file)
    if size > inert_pickle.MOST_BYTES:
        raise Unreadable(f"it has {size} bytes, more than {inert_pickle.MOST_BYTES}")
    root = inert_pickle.loads(file.read(size))
    if root == _LEGACY:
        raise Unreadable("it has the format of torch before 1.6; save it again")
    return Tree(root, None, "", ())


class _Bounded:
    """A file for ``zipfile``, which reads a whole directory of the size that the file claims."""

    def __init__(self, file: BinaryIO) -> None:
        self.most = _MOST_DIRECTORY
        self._read = file.read
        self.seek, self.tell, self.seekable = file.seek, file.tell, file.seekable

    def read(self, size: int = -1) -> bytes:
        """Read ``size`` bytes, or the end of the file, in which zipfile looks for the directory."""
        if size > self.most:
            raise Unreadable("its directory is too large")
        return self._read(self.most if size < 0 else size)


def _read_zip(file: BinaryIO) -> Tree:
    try:
        bounded = _Bounded(file)
        archive = zipfile.ZipFile(cast(BinaryIO, bounded))
        bounded.most = inert_pickle.MOST_BYTES
        names = [name for name in archive.namelist() if name.endswith("/data.pkl")]
        if len(names) != 1:
            raise Unreadable("it is a zip file, but not one of torch.save")
        data = _entry(archive, names[0], inert_pickle.MOST_BYTES)
    except Unreadable:
        raise
    except _BROKEN as error:
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
    alone = io.BytesIO()  # torch reads the names from a whole file; without its tensors it is small
    with zipfile.ZipFile(alone, "w") as archive:
        for name, held in (("data.pkl", data), ("version", b"3\n"), ("byteorder", b"little")):
            archive.writestr(f"archive/{name}", held)
    alone.seek(0)
    try:
        return tuple(sorted(torch.serialization.get_unsafe_globals_in_checkpoint(alone)))
    except Exception as error:  # it refuses operations too, such as those of newer protocols
        return (str(error)[:80],)


def tensor_bytes(tree: Tree, thing: object) -> bytes | None:
    """Return the bytes of a small contiguous 1-D uint8 tensor; None for everything else."""
    match thing:
        case Thing(name=("torch._utils", "_rebuild_tensor_v2"), args=(
            Thing(args=("storage", Thing(name=("torch", "ByteStorage")), str(key), _, _)),
            int(start), (int(size),), (1,), *_,
        )) if start >= 0 and 0 < size <= _MOST_TENSOR and tree.archive is not None:  # fmt: skip
            pass
        case _:
            return None
    try:
        found = _entry(tree.archive, f"{tree.prefix}data/{key}", _MOST_STORAGE)
    except _BROKEN:
        return None
    return found[start : start + size] if len(found) >= start + size else None
