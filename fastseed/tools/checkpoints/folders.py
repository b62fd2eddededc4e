"""Find the files of a checkpoint that may hold states of generators, and whose they are."""

from __future__ import annotations

import contextlib
import io
import os
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from ..._utils import strict_json
from ..._utils.regular_file import open_file
from . import pickles
from .pickles import Unreadable, field, read_tree

_MAX_DEPTH = 3
_MAX_PART = 16 << 20  # bytes of an entry of torch.distributed.checkpoint
_SUFFIXES = (".pkl", ".pth", ".pt", ".ckpt", ".bin", ".fastseed")
OWN_FILE = re.compile(r"\bfastseed-(\d{1,9})\.state$")  # of a rank, in a checkpoint of the Trainer
_RANK_OF_FILE = re.compile(r"(?:random_states|rng_state|rng|rank|rng_rank)[_-]?(\d{1,9})(?=\D|$)")
_RANK_OF_KEY = re.compile(r"(?:^|[._/])(?:rank|rng|rng_state)s?[_.]?(\d{1,9})(?=[._/]|$)")
_WRITER = re.compile(r"^__(\d+)_\d+\.distcp$")


class Part(NamedTuple):
    root: Any
    source: str  # the file, and the entry in it
    owner: str  # "rank 3", or "" for all ranks
    writer: int | None = None  # the rank that wrote it, where the format says so
    key: str = ""  # the name of the entry in torch.distributed.checkpoint


def parts_of(path: str, problems: list[str]) -> Iterator[Part]:
    """Yield the trees of a checkpoint, a file or a folder; what cannot be read is a problem."""
    if not os.path.isdir(path):
        yield from _file(path, os.path.basename(path), problems)
        return
    for name in _files(path, problems):
        if os.path.basename(name) == ".metadata":
            yield from _distributed(path, os.path.dirname(name), problems)
        elif name.endswith(_SUFFIXES) or OWN_FILE.search(name):
            yield from _file(os.path.join(path, name), name, problems)


def _files(path: str, problems: list[str]) -> Iterator[str]:
    """Yield the files below ``path``, sorted; symbolic links to folders are not followed."""

    def unreadable(error: OSError) -> None:
        problems.append(f"{error.filename} is not read: {error.strerror or error}")

    for folder, folders, names in os.walk(path, onerror=unreadable):
        below = os.path.relpath(folder, path)
        depth = 0 if below == "." else below.count(os.sep) + 1
        folders[:] = sorted(folders) if depth < _MAX_DEPTH else []
        yield from (os.path.normpath(os.path.join(below, name)) for name in sorted(names))


def _file(path: str, name: str, problems: list[str]) -> Iterator[Part]:
    found = OWN_FILE.search(name) or _RANK_OF_FILE.search(os.path.basename(name))
    owner = f"rank {int(found[1])}" if found else ""
    with noted(name, problems), open_file(path) as file:
        is_json = file.read(64).lstrip().startswith(b"{")  # which no pickle does
        file.seek(0)
        root = strict_json.parse(file.read(pickles.MAX_BYTES)) if is_json else read_tree(file)
        match root:
            case {"format": "fastseed", "padding": _}:  # of fastseed.checkpoint.save
                with noted(name, problems):  # its states are read nevertheless
                    file.seek(0)
                    pickles.check_sha256(file.read())
        yield Part(root, name, owner)


@contextlib.contextmanager
def noted(name: str, problems: list[str]) -> Iterator[None]:
    """Add the reason to ``problems`` if what the block reads cannot be read."""
    try:
        yield
    except Unreadable as error:
        problems.append(f"{name} is not read: {error}")
    except OSError as error:
        problems.append(f"{name} is not read: {error.strerror or error}")
    except ValueError as error:  # of regular_file and strict_json
        problems.append(f"{name} is not read: it must be {error}")


def _distributed(path: str, below: str, problems: list[str]) -> Iterator[Part]:
    name = os.path.join(below, ".metadata")
    with noted(name, problems), open_file(os.path.join(path, name)) as file:
        root = read_tree(file)
        stored = field(root, "storage_data")
        sizes = field(root, "state_dict_metadata")
        if not (isinstance(stored, dict) and isinstance(sizes, dict)):
            raise Unreadable("it is not the metadata of torch.distributed.checkpoint")
        for index, info in stored.items():
            key = field(index, "fqn")
            if _may_hold_a_state(sizes.get(key)):
                with noted(f"{name}: {key}", problems):
                    yield _entry(os.path.join(path, below), below, str(key), info)


def _entry(folder: str, below: str, key: str, info: object) -> Part:
    name, start, length = (field(info, one) for one in ("relative_path", "offset", "length"))
    if not (isinstance(start, int) and isinstance(length, int) and 0 <= length <= _MAX_PART):
        raise Unreadable(f"it has {length} bytes, more than {_MAX_PART}")
    with open_file(os.path.join(folder, str(name))) as file:
        file.seek(start)
        root = read_tree(io.BytesIO(file.read(length)))
    writer, rank = _WRITER.match(str(name)), _RANK_OF_KEY.search(key)
    owner = f"rank {int(rank[1])}" if rank else ""
    source, number = os.path.join(below, str(name)), int(writer[1]) if writer else None
    return Part(root, source, owner, number, key)


def _may_hold_a_state(held: object) -> bool:
    size, properties = field(held, "size"), field(held, "properties")
    if size is None:
        return True
    dtype = properties.state[0] if isinstance(properties, pickles.Opaque) else None
    return len(size) == 1 and getattr(dtype, "name", None) == ("torch", "uint8")
