"""Make (or check) ``shuffle.txt``, the known answers of the shuffle, version 1.

    python make_shuffle_vectors.py           write shuffle.txt, refusing to change a frozen row
    python make_shuffle_vectors.py --check   exit 1 if the file on disk is not what this makes

Written from ``docs/spec/derivation.md`` alone, in plain Python integers: for proof and not for use.
It takes Philox and the keys from ``make_vectors.py`` beside it and imports nothing of fastseed.
Each order that it walks through to the end must be a bijection before anything is written.
"""

import hashlib
import sys
from pathlib import Path

import frozen
from make_vectors import SHUFFLE, U24, U32, U64, Order, key_at, scope_of

HERE = Path(__file__).resolve().parent
VECTORS = HERE / "shuffle.txt"

HEADER = """\
# Known answers of the fastseed shuffle, version 1. Made by make_shuffle_vectors.py; never edited.
# Decimal integers. The numbers at positions start + k * stride, 0 <= k < count, of the order of n:
# order   master task epoch name n start stride count  count numbers
# digest  master task epoch name n start stride count  sha256 (numbers as little-endian 64 bits)
# inverse master task epoch name n start stride count  positions of the numbers start + k * stride
"""

Where = tuple[int, int, int, str]


# --- the shuffle ------------------------------------------------------------------------------


def order_of(where: Where, n: int) -> Order:
    """The order of n numbers at one point of a job."""
    master, task, epoch, name = where
    return Order(key_at(scope_of(master, task, epoch, 0), name, 0, 0, n, SHUFFLE), n)


def numbers(where: Where, n: int, start: int, stride: int, count: int) -> list[int]:
    order = order_of(where, n)
    found = [order.at(start + k * stride) for k in range(count)]
    if count == n and sorted(found) != list(range(n)):
        raise SystemExit(f"make_shuffle_vectors: not a bijection: {where} {n}")
    return found


def order_row(where: Where, *part: int) -> str:
    values = " ".join(map(str, numbers(where, *part)))
    return f"order {' '.join(map(str, (*where, *part)))} {values}"


def digest_row(where: Where, *part: int) -> str:
    data = b"".join(j.to_bytes(8, "little") for j in numbers(where, *part))
    return f"digest {' '.join(map(str, (*where, *part)))} {hashlib.sha256(data).hexdigest()}"


def inverse_row(where: Where, n: int, start: int, stride: int, count: int) -> str:
    order = order_of(where, n)
    found = " ".join(str(order.where(start + k * stride)) for k in range(count))
    return f"inverse {' '.join(map(str, (*where, n, start, stride, count)))} {found}"


# --- which rows -------------------------------------------------------------------------------

SIZES = (1, 2, 3, 5, 16, 17, 100, 1000, 65536, 65537, 10**6 + 3, 10**9, 2**48)
PLACES: tuple[Where, ...] = (
    (42, 1, 7, "shuffle"),
    (0, 0, 0, "shuffle"),
    (U64, U24, U32, "shuffle"),
    (42, 1, 7, "validation"),
    (0x0123456789ABCDEF, 3, 1000, "зерно"),
)


def all_rows() -> list[str]:
    """Every row, in the order of the file. Append below; never insert, never change."""
    rows = []
    for where in PLACES:
        for n in SIZES:
            if n <= 17:
                rows.append(order_row(where, n, 0, 1, n))
                continue
            rows.append(order_row(where, n, 0, 1, 19))
            rows.append(order_row(where, n, n - 11, 1, 11))
            rows.append(order_row(where, n, 3, n // 13, 13))
    place = PLACES[0]
    # whole orders, sizes that fill their rectangle and sizes that do not, walks of many rounds
    for n in (4, 6, 7, 18, 100, 101, 144, 145, 1000, 1009):
        rows.append(digest_row(place, n, 0, 1, n))
    for n in (65535, 65536, 65537, 65538, 256 * 257 + 1, 10**6 + 3, 10**9, 2**32 + 1, 2**48 - 1,
              2**48):  # fmt: skip
        rows.append(digest_row(place, n, n // 2, 1, 411))
        rows.append(digest_row(place, n, 1, 37, 411))
    for where in PLACES:
        for n in SIZES:
            if n <= 17:
                rows.append(inverse_row(where, n, 0, 1, n))
                continue
            rows.append(inverse_row(where, n, 0, 1, 9))
            rows.append(inverse_row(where, n, n - 9, 1, 9))
            rows.append(inverse_row(where, n, 3, n // 13, 13))
    # sides that are no powers of two: here the low word of a block carries into the number
    for n in (3 * 2**46 + 12345, 2**48 - 2**30 - 77):
        rows.append(order_row(place, n, 0, 1, 19))
        rows.append(digest_row(place, n, 1, 37, 411))
        rows.append(inverse_row(place, n, 3, n // 13, 13))
    return rows


# --- writing and checking ---------------------------------------------------------------------


def main(arguments: list[str]) -> int:
    return frozen.write(VECTORS, HEADER, all_rows(), arguments, __doc__)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
