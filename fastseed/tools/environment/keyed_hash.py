"""Hashes of values that may be secret, with a key that a capture does not hold.

A plain hash of a short value can be reversed by trying all words. With a key of 256 random bits,
which stays in the user's configuration folder, a hash reveals only whether two values are equal.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from pathlib import Path
from typing import Any

from ..._utils import environ, small_file

PREFIX = "hmac:"
_LENGTH = 32  # bytes of a key


class Hasher:
    """Hashes with one key.

    Args:
        key: the key, 32 bytes.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key
        self.key_id = hashlib.sha256(b"fastseed capture key id" + key).hexdigest()[:16]

    def __call__(self, kind: str, value: str | bytes) -> str:
        """Return 64 bits of HMAC-SHA256, in hexadecimal; equal values of two kinds differ."""
        if isinstance(value, str):
            value = value.encode("utf-8", "surrogateescape")
        found = hmac.new(self._key, kind.encode() + b"\0" + value, hashlib.sha256)
        return PREFIX + found.hexdigest()[:16]

    def path(self, value: str | os.PathLike[str]) -> str:
        """Return the hash of a path; "" for none."""
        return self("path", os.fspath(value)) if value else ""


def hide(value: Any) -> Any:
    """Return ``value`` with all hashes replaced by one word, for captures with different keys."""
    if isinstance(value, dict):
        return {hide(key): hide(one) for key, one in value.items()}
    if isinstance(value, list):
        return [hide(one) for one in value]
    return PREFIX if isinstance(value, str) and value.startswith(PREFIX) else value


def load() -> tuple[Hasher, str]:
    """Return the hasher of the key file, created if it does not exist, and a problem or "".

    The file is that of ``FASTSEED_CAPTURE_KEY``, or one in the configuration folder; if that cannot
    be written, the key is random and lost.

    Raises:
        ValueError: the file does not hold a key.
        OSError: the file that was named cannot be read or created.
    """
    named = environ.get(environ.CAPTURE_KEY)
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    try:
        return Hasher(_read_or_create(Path(named or f"{base}/fastseed/capture.key"))), ""
    except OSError as error:
        if named:
            raise
        problem = f"key: cannot be stored ({error.strerror}), so that no capture can be compared"
        return Hasher(secrets.token_bytes(_LENGTH)), f"{problem} in full with this one"


def _read_or_create(path: Path) -> bytes:
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        new = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w") as file:
            file.write(secrets.token_hex(_LENGTH) + "\n")
        try:
            os.link(new, path)  # fails if another process was first: then use its key
        except FileExistsError:
            pass
        finally:
            os.unlink(new)
    try:
        key = bytes.fromhex(small_file.read(path, most=1 << 12).decode("ascii"))
    except ValueError:
        key = b""
    if len(key) != _LENGTH:
        raise ValueError(
            f"fastseed.tools.environment.capture: key must be a file with {2 * _LENGTH} "
            f"hexadecimal digits, got {str(path)!r}"
        )
    return key
