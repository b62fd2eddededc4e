"""Make (or check) ``dropout.txt``, the known answers of dropout, version 1.

    python make_dropout_vectors.py           write dropout.txt, refusing to change a frozen row
    python make_dropout_vectors.py --check   exit 1 if the file on disk is not what this makes

Written from ``docs/spec/dropout.md`` alone, in plain Python integers and the exact fractions of
``exact_draws.py``. It takes Philox and the keys from ``make_vectors.py`` beside it and imports
nothing of fastseed.
"""

import hashlib
import itertools
import sys
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import frozen  # noqa: E402
from exact_draws import FORMATS, power  # noqa: E402
from make_vectors import U24, U32, U64, Filler, block, golden_rows, key_at, scope_of  # noqa: E402

VECTORS = HERE / "dropout.txt"
STREAM = 2  # the domain of streams

HEADER = """\
# Known answers of fastseed's dropout, version 1. Made by make_dropout_vectors.py; never edited.
# Keys of 16 hex digits; elements are the bits of the dtype, as hex digits of its width.
# mask   lo hi first threshold count  0 or 1 for elements first .. first + count - 1: 1 stays
# value  dtype threshold element  the element if it stays
# layer  master task epoch step name label first_row row_elements  lo hi first
#   label: - for none; first: the index of the first element, modulo 2^64
# p      probability (float64 bits)  threshold
# block  master task epoch step name index index_step rank count  lo hi
#   the key of a block's draw `count`: that of index + count * index_step, modulo 2^64
"""


def number_of(lo: int, hi: int, j: int) -> int:
    """The 16-bit number of element j under a key."""
    at = j // 8
    words = block(lo, at & U32, at >> 32, hi & U32, hi >> 32)
    return words[j % 8 // 2] >> 16 * (j % 2) & 0xFFFF


def mask_row(lo: int, hi: int, first: int, threshold: int, count: int) -> str:
    stays = (number_of(lo, hi, first + i) >= threshold for i in range(count))
    bits = "".join(str(int(bit)) for bit in stays)
    return f"mask {lo:016x} {hi:016x} {first} {threshold} {count} {bits}"


def exact(bits: int, dtype: str) -> Fraction | None:
    """The number of a pattern; None if it is infinite or no number."""
    form = FORMATS[dtype]
    fraction_bits = form.precision - 1
    field = bits >> fraction_bits & (1 << (form.width - form.precision)) - 1
    fraction = bits & (1 << fraction_bits) - 1
    if field == (1 << (form.width - form.precision)) - 1:
        return None
    sign = -1 if bits >> (form.width - 1) else 1
    if field == 0:
        return sign * fraction * power(form.least - fraction_bits)
    whole = (1 << fraction_bits) | fraction
    return sign * whole * power(field - 1 + form.least - fraction_bits)


def value_of(bits: int, dtype: str, threshold: int) -> int:
    """The pattern of an element that stays."""
    form = FORMATS[dtype]
    computing = FORMATS["float64" if dtype == "float64" else "float32"]
    x = exact(bits, dtype)
    if x is None:  # an infinity times a number above 0, or no number
        return bits
    scale = FORMATS["float64"].round(Fraction(1 << 16, (1 << 16) - threshold))
    product = x * computing.round(scale)
    top = 1 << (form.width - 1)
    if product == 0:
        return bits & top
    sign = top if product < 0 else 0
    once = computing.bits(abs(product))
    inner = exact(once, "float64" if dtype == "float64" else "float32")
    if inner is None:
        return sign | (top - (1 << (form.precision - 1)))
    return sign | form.bits(inner)


def value_row(dtype: str, threshold: int, bits: int) -> str:
    digits = FORMATS[dtype].width // 4
    made = value_of(bits, dtype, threshold)
    return f"value {dtype} {threshold} {bits:0{digits}x} {made:0{digits}x}"


def layer_row(at: tuple[int, ...], name: str, label: str, row: int, elements: int) -> str:
    index = 0
    if label != "-":
        index = int.from_bytes(hashlib.sha256(label.encode()).digest()[:8], "little") >> 1
    lo, hi = key_at(scope_of(*at), f"dropout/{name}", U24, 0, index, STREAM)
    first = row * elements & U64
    where = " ".join(map(str, (*at, name, label, row, elements)))
    return f"layer {where} {lo:016x} {hi:016x} {first:016x}"


def block_row(at: tuple[int, ...], name: str, index: int, step: int, rank: int, count: int) -> str:
    lo, hi = key_at(scope_of(*at), f"keyed/{name}", rank, 0, index + count * step & U64, STREAM)
    where = " ".join(map(str, (*at, name, index, step, rank, count)))
    return f"block {where} {lo:016x} {hi:016x}"


def p_row(bits: int) -> str:
    p = exact(bits, "float64")
    assert p is not None
    threshold = round(p * (1 << 16))
    if 0 < p < 1:
        threshold = min(max(threshold, 1), (1 << 16) - 1)
    return f"p {bits:016x} {threshold}"


# --- which rows -------------------------------------------------------------------------------

THRESHOLDS = (0, 1, 6554, 13107, 32768, 65535, 65536)
FIRSTS = (0, 1, 7, 8, 13, 4095, 2**32 * 8 - 3, 2**53 - 5, 2**56 - 64)


def mask_rows() -> Iterator[str]:
    keys = [(0, 0), (U64, U64), (1 << 32, 1), (0x0123456789ABCDEF, 0xFEDCBA9876543210)]
    fill = Filler("mask")
    for i, (first, threshold) in enumerate(itertools.product(FIRSTS, THRESHOLDS)):
        lo, hi = keys[i % 4] if i % 3 else (fill.below(1 << 64), fill.below(1 << 64))
        yield mask_row(lo, hi, first, threshold, (1, 5, 8, 17, 40)[i % 5])
    yield mask_row(3, 4, 5, 6554, 700)


def value_rows() -> Iterator[str]:
    for dtype, form in FORMATS.items():
        fill = Filler(f"value {dtype}")
        one = ((1 - form.least) << (form.precision - 1)) & (1 << (form.width - 1)) - 1
        infinity = (1 << (form.width - 1)) - (1 << (form.precision - 1))
        ends = [0, 1, 2, 3, (1 << (form.precision - 1)) - 1, 1 << (form.precision - 1), one]
        ends += [one + 1, infinity - 1, infinity, infinity + 1, (1 << (form.width - 1)) - 1]
        ends += [bits | 1 << (form.width - 1) for bits in ends]
        for i, bits in enumerate([*ends, *(fill.below(1 << form.width) for _ in range(24))]):
            yield value_row(dtype, THRESHOLDS[i % 6], bits)
            yield value_row(dtype, fill.below(1 << 16), bits)


POINTS = [(0, 0, 0, 0), (U64, U24, U32, U64), (42, 1, 7, 0), (42, 1, 7, 2**40 + 5)]


def block_rows() -> Iterator[str]:
    for at, (i, rank) in itertools.product(POINTS, enumerate((0, 1, 3, U24 - 1, U24))):
        for index, step, count in (
            (0, 1, 0), (0, 1, 7 << 24 | 1), (5 << 24, 1, 2**24 - 1), ((2**39 - 1) << 24 | 9, 0, 3),
            (U64 - 2, 1, 4), (11, 2**40 + 3, 2**30 + i),
        ):  # fmt: skip
            yield block_row(at, ("flow", "\u03b1/\u03b2")[i % 2], index, step, rank, count)


def layer_rows() -> Iterator[str]:
    for at, name, label in itertools.product(
        POINTS, ("h.0.drop", "\u03b1/\u03b2", "h.11.attn/attention"), ("-", "teacher", "\u03b2")
    ):
        for row, elements in ((0, 0), (3, 768), (2**53, 2**20)):
            yield layer_row(at, name, label, row, elements)


def all_rows() -> list[str]:
    """Every row, in the order of the file. Append below; never insert, never change."""
    rows = [*mask_rows(), *value_rows(), *layer_rows()]
    patterns = (
        0,
        1,
        0x3FB999999999999A,
        0x3FC999999999999A,
        0x3FE0000000000000,
        0x3FF0000000000000,
    )
    near = (0x3EF0000000000000, 0x3EE0000000000000, 0x3FEFFFFFFFFFFFFF, 0x3EF8000000000000)
    rows += [p_row(bits) for bits in (*patterns, *near, 0x3F04000000000000, 0x3FD3333333333333)]
    rows += block_rows()
    return list(dict.fromkeys(rows))


if __name__ == "__main__":
    golden_rows()  # raises unless the generator gives its published answers
    sys.exit(frozen.write(VECTORS, HEADER, all_rows(), sys.argv[1:], __doc__))
