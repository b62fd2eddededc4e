"""Make (or check) ``vectors.txt``, the known answers that every backend must reproduce.

    python make_vectors.py           write vectors.txt, refusing to change a frozen row
    python make_vectors.py --check   exit 1 if the file on disk is not what this program makes

This is a second implementation of derivation version 1, for proof and not for use: plain Python
integers, written from the paper (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy
as 1, 2, 3", SC'11) and from the project's written derivation. It imports nothing of fastseed.
Before it writes anything it must reproduce the published and the golden answers below.

Rows are only ever appended: ``vectors.sha256`` holds, for each release of the file, the number
of rows so far and the SHA-256 over them. A new batch of rows goes to the end of ``all_rows``.
"""

import hashlib
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))  # under "python -I" too
import frozen  # noqa: E402

VECTORS = HERE / "vectors.txt"

U24, U32, U64 = ((1 << bits) - 1 for bits in (24, 32, 64))
SHARED = U24
SCOPE, STREAM, SAMPLE, STATE, SHUFFLE, NARROW = 1, 2, 3, 4, 5, 6

HEADER = """\
# Known answers of the fastseed derivation, version 1. Made by make_vectors.py; never edited.
# Decimal integers, words of 8 hex digits, 64-bit values of 16 hex digits.
# block   key  w0 w1 w2 w3  r0 r1 r2 r3
# scope   master task epoch step  key tweak
# name    name  h0 h1 h2 h3 (words of its SHA-256)
# level2  master task epoch step name  key tweak
# stream  master task epoch step name rank worker index  lo hi
# sample  master task epoch step name index occurrence  lo hi
# mt19937 lo hi  624 words
# seeds   master task epoch step name rank worker start n  sha256 (n little-endian 64-bit seeds)
# narrow  master task epoch step name bits rank worker index  seed (decimal)
"""


# --- the derivation ---------------------------------------------------------------------------


def block(key: int, w0: int, w1: int, w2: int, w3: int) -> tuple[int, int, int, int]:
    """Philox4x32-10: ten rounds of two 32x32 multiplications, a swap and a Weyl key schedule."""
    k0, k1 = key & U32, key >> 32
    for _ in range(10):
        p0, p1 = 0xD2511F53 * w0, 0xCD9E8D57 * w2
        w0, w1, w2, w3 = (p1 >> 32) ^ w1 ^ k0, p1 & U32, (p0 >> 32) ^ w3 ^ k1, p0 & U32
        k0, k1 = (k0 + 0x9E3779B9) & U32, (k1 + 0xBB67AE85) & U32
    return w0, w1, w2, w3


def two_words(r: tuple[int, int, int, int]) -> tuple[int, int]:
    return r[0] | r[1] << 32, r[2] | r[3] << 32


def scope_of(master: int, task: int, epoch: int, step: int) -> tuple[int, int]:
    return two_words(block(master, step & U32, step >> 32, epoch, task | SCOPE << 24))


def name_words(name: str) -> tuple[int, ...]:
    digest = hashlib.sha256(name.encode("utf-8")).digest()
    return tuple(int.from_bytes(digest[at : at + 4], "little") for at in range(0, 16, 4))


def name_of(scope: tuple[int, int], name: str) -> tuple[int, int]:
    (key, tweak), (h0, h1, h2, h3) = scope, name_words(name)
    return two_words(block(key, h0 ^ tweak & U32, h1 ^ tweak >> 32, h2, h3))


def key_at(
    scope: tuple[int, int], name: str, rank: int, worker: int, index: int, domain: int
) -> tuple[int, int]:
    key, tweak = name_of(scope, name)
    x = index ^ tweak
    return two_words(block(key, x & U32, x >> 32, rank | domain << 24, worker))


def ceil_sqrt(n: int) -> int:
    """The least s with s * s >= n, by halving an interval."""
    low, high = 0, 1 << 25
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if middle * middle >= n else (middle + 1, high)
    return low


class Order:
    """The keyed order of n numbers."""

    def __init__(self, key: tuple[int, int], n: int) -> None:
        self.n = n
        self.lo, self.hi = key
        side = ceil_sqrt(n)
        self.rows = max(4, side if side % 2 == 0 else side + 1)
        self.columns = max(4, (n + self.rows - 1) // self.rows)
        self.rounds = 24 if n <= 65536 else 12

    def move(self, r: int, v: int, m: int) -> int:
        words = block(self.lo, v, SHUFFLE << 24 | r, self.hi & U32, self.hi >> 32)
        return ((words[0] + (words[1] << 32)) * m) >> 64

    def once(self, cell: int) -> int:
        row, column = cell // self.columns, cell % self.columns
        for r in range(self.rounds):
            if r % 2 == 0:
                row = (row + self.move(r, column, self.rows)) % self.rows
            else:
                column = (column + self.move(r, row, self.columns)) % self.columns
        return row * self.columns + column

    def back(self, cell: int) -> int:
        row, column = cell // self.columns, cell % self.columns
        for r in reversed(range(self.rounds)):
            if r % 2 == 0:
                row = (row - self.move(r, column, self.rows)) % self.rows
            else:
                column = (column - self.move(r, row, self.columns)) % self.columns
        return row * self.columns + column

    def at(self, i: int) -> int:
        if self.n == 1:
            return 0
        j = self.once(i)
        while j >= self.n:
            j = self.once(j)
        return j

    def where(self, j: int) -> int:
        if self.n == 1:
            return 0
        i = self.back(j)
        while i >= self.n:
            i = self.back(i)
        if self.at(i) != j:
            raise SystemExit(f"make_vectors: the inverse of {self.n} at {j} is wrong")
        return i


def narrow_seed(
    scope: tuple[int, int], name: str, bits: int, rank: int, worker: int, index: int
) -> int:
    return Order(key_at(scope, name, 0, worker, index, NARROW), 1 << bits).at(rank)


def mt_state(lo: int, hi: int) -> list[int]:
    words = [w for j in range(156) for w in block(lo, j, STATE << 24, hi & U32, hi >> 32)]
    return [words[0] | 1 << 31, *words[1:]]


# --- one function a kind of row ---------------------------------------------------------------


def block_row(key: int, *w: int) -> str:
    words = " ".join(f"{v:08x}" for v in (*w, *block(key, *w)))
    return f"block {key:016x} {words}"


def scope_row(master: int, task: int, epoch: int, step: int) -> str:
    key, tweak = scope_of(master, task, epoch, step)
    return f"scope {master} {task} {epoch} {step} {key:016x} {tweak:016x}"


def name_row(name: str) -> str:
    return f"name {name} " + " ".join(f"{h:08x}" for h in name_words(name))


def level2_row(master: int, task: int, epoch: int, step: int, name: str) -> str:
    key, tweak = name_of(scope_of(master, task, epoch, step), name)
    return f"level2 {master} {task} {epoch} {step} {name} {key:016x} {tweak:016x}"


def stream_row(
    master: int, task: int, epoch: int, step: int, name: str, rank: int, worker: int, index: int
) -> str:
    scope = scope_of(master, task, epoch, step)
    lo, hi = key_at(scope, name, rank, worker, index, STREAM)
    where = f"{master} {task} {epoch} {step} {name} {rank} {worker} {index}"
    return f"stream {where} {lo:016x} {hi:016x}"


def sample_row(
    master: int, task: int, epoch: int, step: int, name: str, index: int, occurrence: int
) -> str:
    lo, hi = key_at(scope_of(master, task, epoch, step), name, 0, occurrence, index, SAMPLE)
    where = f"{master} {task} {epoch} {step} {name} {index} {occurrence}"
    return f"sample {where} {lo:016x} {hi:016x}"


def narrow_row(
    master: int,
    task: int,
    epoch: int,
    step: int,
    name: str,
    bits: int,
    rank: int,
    worker: int,
    index: int,
) -> str:
    seed = narrow_seed(scope_of(master, task, epoch, step), name, bits, rank, worker, index)
    return f"narrow {master} {task} {epoch} {step} {name} {bits} {rank} {worker} {index} {seed}"


def mt_row(lo: int, hi: int) -> str:
    return f"mt19937 {lo:016x} {hi:016x} " + " ".join(f"{w:08x}" for w in mt_state(lo, hi))


def seeds_row(
    master: int,
    task: int,
    epoch: int,
    step: int,
    name: str,
    rank: int,
    worker: int,
    start: int,
    n: int,
) -> str:
    key, tweak = name_of(scope_of(master, task, epoch, step), name)
    digest = hashlib.sha256()
    for index in range(start, start + n):
        x = index ^ tweak
        words = block(key, x & U32, x >> 32, rank | STREAM << 24, worker)
        digest.update(two_words(words)[0].to_bytes(8, "little"))
    where = f"{master} {task} {epoch} {step} {name} {rank} {worker} {start} {n}"
    return f"seeds {where} {digest.hexdigest()}"


# --- which rows -------------------------------------------------------------------------------

EDGES64, EDGES32, EDGES24 = ((0, 1, top - 1, top) for top in (U64, U32, U24))
RANKS = (0, 1, SHARED - 2, SHARED - 1, SHARED)
BUILT_IN = ("python", "numpy", "torch.cpu", "torch.cuda", "torch.xpu", "torch.mps")
OTHERS = ("pool", "bank", "sample", "data/augment", "зерно", "乱数", "🎲")
# The same word composed and decomposed (names are not normalised), one byte, the longest.
SPELLINGS = ("caf\u00e9", "cafe\u0301", "a", "#not-a-comment", "x" * 257)
# Of "n0" to "n1048575" the names with the smallest and the largest first words; and two of a model
# with equal first words.
EXTREMES = ("n723075", "n326358", "layers.5917.weight", "layers.47510.weight")
NAMES = BUILT_IN + OTHERS

GOLDEN_ROWS = (
    "block 0000000000000000 00000000 00000000 00000000 00000000"
    " 6627e8d5 e169c58d bc57ac4c 9b00dbd8",
    "block ffffffffffffffff ffffffff ffffffff ffffffff ffffffff"
    " 408f276d 41c83b0e a20bc7c6 6d5451fd",
    "block 299f31d0a4093822 243f6a88 85a308d3 13198a2e 03707344"
    " d16cfe09 94fdcceb 5001e420 24126ea1",
    "scope 0 0 0 0 29946dd3910223a1 de653caf621adeee",
    "scope 42 1 7 0 75c4f7b9da5a41a6 bb1b0b05a584a51e",
    "scope 42 1 7 1000 4c3ab3658c14eed0 ea1a96dcad7e1175",
    f"scope {U64} {U24} {U32} {U64} de8cd3bed6646f0e 473ef6fe7685b899",
    "name python 0ba6a411 49f28b51 4681d489 d5e57680",
    "name numpy af0bdd73 da38548e 4a251688 3be43e07",
    "name torch.cpu 6dee4cd7 8680f72c fb7a629b 97037b7b",
    "name torch.cuda 670678fd f2860cc6 d8c6505c d91a4120",
    "level2 42 1 7 0 python 7448312e6d302e39 9b6fdd5c36cd06e6",
    "level2 42 1 7 0 numpy 0915e959005fd9e2 fe2f2856ae4477ee",
    "level2 42 1 7 0 torch.cpu ab7d8a07c9b0ed84 3341dcc247f54a24",
    "level2 42 1 7 0 torch.cuda 5f755d1ef4f3e71e 4134e19609d59469",
    "stream 42 1 7 0 torch.cuda 0 0 0 2c2caa393bc5fd70 0f36145158aa3c04",
    "stream 42 1 7 0 torch.cuda 3 0 0 272f96a925b03f44 9d357de770f33f19",
    f"stream 42 1 7 0 torch.cuda {SHARED} 0 0 4fcc0b77ebd8d1f5 7ccd36f7201a81ae",
    f"stream 42 1 7 0 torch.cuda 3 0 {2**40 + 5} fbc44a72989ca7db fa61474328ca4aa6",
    "stream 42 1 7 0 numpy 3 1 5 f810968ff5bfc049 1349fd8e6623705e",
    f"stream {U64} {U24} {U32} {U64} \u03b1/\u03b2 {SHARED - 1} {U32} {U64}"
    " ece6b62b321f8eaf 0a2484f8091e9d7c",
    "sample 42 1 7 0 sample 123456789012 0 b95f093993e1ad6e 179de6bb77bfd6aa",
    "narrow 42 1 7 0 generator/0 31 0 0 0 1314112241",
    "narrow 42 1 7 0 generator/0 31 1 0 0 1319320594",
    "narrow 42 1 7 0 generator/0 31 2 0 0 277224343",
    f"narrow 42 1 7 0 generator/0 31 {SHARED} 0 0 750116112",
    "narrow 42 1 7 0 generator/0 32 0 0 0 833770116",
    "narrow 42 1 7 0 generator/0 32 1 0 0 1531875414",
    "narrow 42 1 7 0 generator/0 32 2 0 0 380192622",
    f"narrow 42 1 7 0 generator/0 32 {SHARED} 0 0 2252187533",
)
# The end of a golden state: the row between is too long to write out.
GOLDEN_STATE = ("c0ec2edb 47c322e0 40c9c1e1 bce374c4", "96687d1b f56a8663")


def golden_rows() -> list[str]:
    """The golden answers, recomputed; the three ``block`` rows are Random123's own."""
    rows = [block_row(0, 0, 0, 0, 0), block_row(U64, U32, U32, U32, U32)]
    rows += [block_row(0x299F31D0A4093822, 0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344)]
    rows += [scope_row(0, 0, 0, 0), scope_row(42, 1, 7, 0), scope_row(42, 1, 7, 1000)]
    rows += [scope_row(U64, U24, U32, U64)]
    rows += [name_row(name) for name in BUILT_IN[:4]]
    rows += [level2_row(42, 1, 7, 0, name) for name in BUILT_IN[:4]]
    rows += [stream_row(42, 1, 7, 0, "torch.cuda", rank, 0, 0) for rank in (0, 3, SHARED)]
    rows += [stream_row(42, 1, 7, 0, "torch.cuda", 3, 0, 2**40 + 5)]
    rows += [stream_row(42, 1, 7, 0, "numpy", 3, 1, 5)]
    rows += [stream_row(U64, U24, U32, U64, "\u03b1/\u03b2", SHARED - 1, U32, U64)]
    rows += [sample_row(42, 1, 7, 0, "sample", 123456789012, 0)]
    for bits in (31, 32):
        for rank in (0, 1, 2, SHARED):
            rows += [narrow_row(42, 1, 7, 0, "generator/0", bits, rank, 0, 0)]
    if tuple(rows) != GOLDEN_ROWS:
        wrong = [pair for pair in zip(rows, GOLDEN_ROWS, strict=True) if pair[0] != pair[1]]
        raise SystemExit(f"make_vectors: golden answers not reproduced (made, expected): {wrong}")
    state = mt_row(*key_at(scope_of(42, 1, 7, 0), "torch.cpu", 3, 0, 0, STREAM))
    words = state.split(" ", 3)[3]
    if not (words.startswith(GOLDEN_STATE[0]) and words.endswith(GOLDEN_STATE[1])):
        raise SystemExit("make_vectors: the golden MT19937 state is not reproduced")
    return [*rows, state]


class Filler:
    """Arbitrary but fixed numbers, from SHA-256 of a counter: no generator under test is used."""

    def __init__(self, label: str) -> None:
        self.label, self.count = label, 0

    def below(self, limit: int) -> int:
        self.count += 1
        raw = hashlib.sha256(f"{self.label} {self.count}".encode()).digest()
        return int.from_bytes(raw, "little") % limit

    def pick(self, levels: tuple, top: int | None) -> object:
        """One of the levels, or (half of the time, where there is a range) any number up to top."""
        if top is None or self.below(2):
            return levels[self.below(len(levels))]
        return self.below(top + 1)


Axes = tuple[tuple[tuple, int | None], ...]


def pairs(axes: Axes, label: str) -> Iterator[tuple]:
    """A design of strength two: any two coordinates take every pair of their levels."""
    fill = Filler(label)
    for a, b in itertools.combinations(range(len(axes)), 2):
        for va, vb in itertools.product(axes[a][0], axes[b][0]):
            row = [fill.pick(*axis) for axis in axes]
            row[a], row[b] = va, vb
            yield tuple(row)


WHERE: Axes = ((EDGES64, U64), (EDGES24, U24), (EDGES32, U32), (EDGES64, U64))
STREAM_AXES: Axes = (
    *WHERE, (NAMES, None), (RANKS, SHARED - 1), (EDGES32, U32), (EDGES64, U64)
)  # fmt: skip
SAMPLE_AXES: Axes = (*WHERE, (NAMES, None), (EDGES64, U64), (EDGES32, U32))
NARROW_AXES: Axes = (
    *WHERE, (NAMES, None), ((31, 32), None), (RANKS, SHARED - 1), (EDGES32, U32), (EDGES64, U64)
)  # fmt: skip


def all_rows() -> list[str]:
    """Every row, in the order of the file. Append below; never insert, never change."""
    rows = golden_rows()
    words = ((EDGES32, U32),) * 4
    rows += [block_row(*w) for w in pairs(((EDGES64, U64), *words), "block")]
    rows += [scope_row(*w) for w in itertools.product(*(levels for levels, _ in WHERE))]
    rows += [name_row(name) for name in (*BUILT_IN[4:], *OTHERS, *SPELLINGS, *EXTREMES)]
    rows += [level2_row(*w) for w in pairs((*WHERE, (NAMES, None)), "level2")]
    rows += [stream_row(*w) for w in pairs(STREAM_AXES, "stream")]
    rows += [sample_row(*w) for w in pairs(SAMPLE_AXES, "sample")]
    rows += [narrow_row(*w) for w in pairs(NARROW_AXES, "narrow")]
    rows += [stream_row(42, 1, 7, 0, n, 3, 1, 5) for n in (*SPELLINGS, *EXTREMES)]
    rows += [mt_row(0, 0), mt_row(U64, U64), mt_row(0x0123456789ABCDEF, 0xFEDCBA9876543210)]
    where = (42, 1, 7, 0)
    rows += [seeds_row(*where, "torch.cuda", 0, 0, 0, 1_000_000)]
    rows += [seeds_row(*where, "numpy", 3, 1, (1 << 32) - 2051, 4099)]  # over 32 bits of index
    rows += [seeds_row(*where, "pool", SHARED, 3, (1 << 40) - 5, 11)]
    rows += [seeds_row(U64, U24, U32, U64, "зерно", SHARED - 1, U32, U64 - 1026, 1027)]  # the last
    rows += [seeds_row(0, 0, 0, 1000, "bank", 7, 0, 12345, 1)]
    return list(dict.fromkeys(rows))


# --- writing and checking ---------------------------------------------------------------------


def main(arguments: list[str]) -> int:
    return frozen.write(VECTORS, HEADER, all_rows(), arguments, __doc__)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
