"""Make (or check) ``mixture.txt``, the known answers of mixtures, version 1.

    python make_mixture_vectors.py           write mixture.txt, refusing to change a frozen row
    python make_mixture_vectors.py --check   exit 1 if the file on disk is not what this makes

Written from ``docs/spec/derivation.md`` ("Mixtures") alone, in plain Python integers, position by
position from the first on: it counts, and has no closed form. It takes shuffle and keys from
``make_vectors.py`` beside it and imports nothing of fastseed.
"""

import functools
import sys
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import frozen  # noqa: E402
from make_vectors import SHUFFLE, U24, U32, U64, Order, key_at, scope_of  # noqa: E402

VECTORS = HERE / "mixture.txt"
STREAM, SHARED = 2, U24

HEADER = """\
# Known answers of fastseed's mixtures, version 1. Made by make_mixture_vectors.py; never edited.
# Decimal integers. MIXTURE is: master task epoch name shuffle, the number of sources, and for each
# its name, size, share of 2^32, and how many of its samples are skipped.
# at     MIXTURE first count  source/sample/occurrence of positions first ... first + count - 1
# turns  MIXTURE source first count  the positions of its turns first ... first + count - 1
"""


class Mixture(NamedTuple):
    master: int
    task: int
    epoch: int
    name: str
    shuffle: int
    sources: tuple[tuple[str, int, int, int], ...]

    def columns(self) -> str:
        fields = [field for source in self.sources for field in source]
        return " ".join(map(str, (*self[:5], len(self.sources), *fields)))


@functools.cache
def walk(mixture: Mixture, count: int) -> tuple[list[tuple[int, int, int]], list[list[int]]]:
    """Return (source, sample, occurrence) of each position, and the positions of each source."""
    scope = scope_of(mixture.master, mixture.task, mixture.epoch, 0)
    start = key_at(scope, mixture.name, SHARED, 0, 0, STREAM)[0] % 2**32
    found: list[tuple[int, int, int]] = []
    turns: list[list[int]] = [[] for _ in mixture.sources]
    for position in range(count):
        block, i = divmod(position, 1024)
        key = key_at(scope, mixture.name, SHARED, 0, block, SHUFFLE)
        point = (start + (1024 * block + Order(key, 1024).at(i)) * 2654435769) % 2**32
        s, end = 0, mixture.sources[0][2]
        while point >= end:
            s += 1
            end += mixture.sources[s][2]
        name, size, _, skip = mixture.sources[s]
        times, i = divmod(len(turns[s]) + skip, size)
        own = key_at(scope, name, 0, times, size, SHUFFLE)
        found.append((s, Order(own, size).at(i) if mixture.shuffle else i, times))
        turns[s].append(position)
    return found, turns


MIXTURES = (
    Mixture(42, 1, 7, "mixture", 1, (("a", 6, 2863311531, 0), ("b", 4, 1431655765, 0))),
    Mixture(42, 1, 7, "mixture", 1,
            (("web", 700, 2**31, 5), ("code", 90, 858993459, 1000),
             ("math", 10**9, 1288490189, 0))),
    Mixture(U64, U24, U32, "mixture", 1, (("зерно", 2**48, 2**32, 2**47),)),
    Mixture(0, 0, 0, "blend", 0,
            (("a", 3, 2**32 - 2**20 - 4, 2), ("b", 50, 2**20, 0), ("c", 1, 4, 7))),
    Mixture(0x0123456789ABCDEF, 3, 1000, "mixture", 1,
            tuple((f"s{k}", k * k + 1, 2**32 // 32, k) for k in range(32))),
)  # fmt: skip
COUNT = 2100


def all_rows() -> list[str]:
    """Every row, in the order of the file. Append below; never insert, never change."""
    rows = []
    for mixture in MIXTURES:
        found, turns = walk(mixture, COUNT)
        for first, count in ((0, 24), (1015, 20), (2047, 2), (2080, 20)):
            values = " ".join("/".join(map(str, one)) for one in found[first : first + count])
            rows.append(f"at {mixture.columns()} {first} {count} {values}")
        for s, positions in enumerate(turns[:4]):
            for first in (0, len(positions) // 2, max(0, len(positions) - 9)):
                some = positions[first : first + 9]
                if some:
                    values = " ".join(map(str, some))
                    rows.append(f"turns {mixture.columns()} {s} {first} {len(some)} {values}")
    return rows


def main(arguments: list[str]) -> int:
    return frozen.write(VECTORS, HEADER, all_rows(), arguments, __doc__)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
