"""A capture's folder: written whole or not at all, for its owner alone, and read with suspicion."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import tempfile
from pathlib import Path

from ..._utils.strict_json import Invalid
from ..._utils.validation import describe
from .schema import Capture, dump, parse, patch_digest

NAME = "environment.json"
PATCHES = "patches"
LIMIT = 64 << 20  # bytes of a file that is read
_PATCH_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}\.diff")


def check(function: str, directory: object) -> Path:
    """``directory`` as a path; TypeError for anything else."""
    if not isinstance(directory, (str, os.PathLike)) or not isinstance(os.fspath(directory), str):
        raise TypeError(
            f"{function}: directory must be a path, got {describe(directory)} "
            f"of type {type(directory).__name__}"
        )
    path = os.fspath(directory)
    if not path or "\0" in path:
        raise ValueError(f"{function}: directory must be a path, got {describe(path)}")
    return Path(path)


def check_free(function: str, path: Path, overwrite: bool) -> None:
    """ValueError if a capture must not be written to ``path``."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if stat.S_ISLNK(mode):
        raise ValueError(f"{function}: directory must be no symbolic link, got {str(path)!r}")
    if not stat.S_ISDIR(mode):
        raise ValueError(f"{function}: directory must be a folder or free, got {str(path)!r}")
    held = set(os.listdir(path))
    if held and not overwrite:
        raise ValueError(
            f"{function}: directory must be new or empty, got {str(path)!r} "
            f"(overwrite=True, on the command line --overwrite, replaces a capture)"
        )
    if held and (NAME not in held or held - {NAME, PATCHES}):
        raise ValueError(
            f"{function}: directory must hold a capture and nothing else to be replaced, "
            f"got {str(path)!r}"
        )


def write(function: str, path: Path, capture: Capture, overwrite: bool) -> None:
    """Write a capture to ``path``: a folder of mode 0700 with files of mode 0600.

    It is written beside its place and moved there when whole; a symbolic link that appears there
    meanwhile makes the move fail, and is not followed.
    """
    check_free(function, path, overwrite)
    parent = Path(os.path.abspath(path)).parent
    parent.mkdir(parents=True, exist_ok=True)
    new = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=parent))
    old = None
    try:
        os.chmod(new, 0o700)  # whatever the umask
        _write_file(new / NAME, dump(capture).encode())
        if capture.patches:
            os.mkdir(new / PATCHES, 0o700)
            os.chmod(new / PATCHES, 0o700)
            for name, text in capture.patches.items():
                _write_file(new / PATCHES / name, text.encode("utf-8", "surrogateescape"))
        check_free(function, path, overwrite)
        if overwrite and path.is_dir() and os.listdir(path):
            old = Path(tempfile.mkdtemp(prefix=f".{path.name}.old.", dir=parent))
            os.rename(path, old / "capture")
        os.rename(new, path)  # onto nothing or an empty folder; anything else is an OSError
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        if old is not None and not path.exists():
            with contextlib.suppress(OSError):
                os.rename(old / "capture", path)
        raise
    finally:
        if old is not None:
            shutil.rmtree(old, ignore_errors=True)


def _write_file(path: Path, data: bytes) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with open(handle, "wb") as file:
        os.fchmod(handle, 0o600)  # whatever the umask
        file.write(data)
        file.flush()
        os.fsync(handle)


def read(function: str, path: Path) -> Capture:
    """The capture in ``path``; ValueError with the file's name and what is wrong with it."""
    if not path.is_dir():
        raise ValueError(f"{function}: directory must be a capture's folder, got {str(path)!r}")
    file = path / NAME
    try:
        header, sections, digests = parse(_read_file(file).decode())
        patches = {name: _patch(path, name, wanted) for name, wanted in digests.items()}
    except UnicodeDecodeError:
        raise ValueError(f"{function}: {str(file)!r} must be UTF-8") from None
    except Invalid as error:
        raise ValueError(f"{function}: {str(file)!r} must be {error}") from None
    return Capture(header, sections, patches)


def _patch(path: Path, name: str, wanted: object) -> str:
    if not _PATCH_NAME.fullmatch(name):  # it comes from the file: it must not leave the folder
        raise Invalid(f"without a patch named {describe(name)}")
    text = _read_file(path / PATCHES / name).decode("utf-8", "surrogateescape")
    if patch_digest(text) != wanted:
        raise Invalid(
            f"beside the {PATCHES}/{name} that it was written with (its checksum differs)"
        )
    return text


def _read_file(path: Path) -> bytes:
    """A regular file's bytes; not through a link, and never waiting for a pipe."""
    shown = f"{path.parent.name}/{path.name}"
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise Invalid(f"a capture with a readable {shown} ({error.strerror})") from None
    with open(handle, "rb") as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or status.st_size > LIMIT:
            raise Invalid(f"a capture whose {shown} is a file of at most {LIMIT >> 20} MiB")
        return file.read(LIMIT + 1)
