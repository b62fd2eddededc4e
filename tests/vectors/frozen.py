"""Writing a file of known answers whose rows, once written, never change."""

import hashlib
from pathlib import Path


def digest_of(rows: list[str]) -> str:
    return hashlib.sha256("".join(row + "\n" for row in rows).encode("utf-8")).hexdigest()


def write(path: Path, header: str, rows: list[str], arguments: list[str], usage: str | None) -> int:
    """Write ``path``, or with the argument --check compare it; the exit code.

    Beside it lies a list of (number of rows, SHA-256 of so many): rows may only be appended.
    """
    text = header + "".join(row + "\n" for row in rows)
    digests = path.with_suffix(".sha256")
    frozen = digests.read_text("utf-8").split() if digests.exists() else []
    for count, digest in zip(frozen[::2], frozen[1::2], strict=True):
        if digest_of(rows[: int(count)]) != digest:
            print(f"{path.name}: a row among the first {count}, which are frozen, would change")
            return 1
    if arguments == ["--check"]:
        if not path.exists() or path.read_bytes() != text.encode("utf-8"):
            print(f"{path.name} is not what its program makes")
            return 1
        print(f"{len(rows)} rows as made")
        return 0
    if arguments:
        print(usage)
        return 2
    path.write_bytes(text.encode("utf-8"))
    line = f"{len(rows)} {digest_of(rows)}\n"
    if line.split() != frozen[-2:]:
        with digests.open("a", encoding="utf-8") as out:
            out.write(line)
    print(f"{len(rows)} rows written")
    return 0
