"""Make (or check) ``perturb.txt``, the known answers of perturbations, version 1.

    python make_perturb_vectors.py           write perturb.txt, refusing to change a frozen row
    python make_perturb_vectors.py --check   exit 1 if the file on disk is not what this makes

Written from ``docs/spec/perturb.md`` alone, on the exact fractions of ``perturbed_numbers.py``. It
imports nothing of fastseed.
"""

import itertools
import sys
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import frozen  # noqa: E402
from exact_draws import FORMATS, Real, computing, number  # noqa: E402
from make_dropout_vectors import exact  # noqa: E402
from make_vectors import U64, Filler, golden_rows  # noqa: E402
from perturbed_numbers import Key, moved, noise_at  # noqa: E402

VECTORS = HERE / "perturb.txt"
LISTED = -128

HEADER = """\
# Known answers of fastseed's perturbations, version 1. Made by make_perturb_vectors.py.
# Numbers are the bits of the dtype, scales those of float64, as hex digits of their width.
# add   dtype noise first entries before after
#   entries: lo:hi:scale of each, joined by commas; before, after: elements first, first + 1, ...
# undo  dtype noise first lo hi scale before after byte
#   byte: how far `before` is from where taking the noise back leads, or -128: listed with its bits
"""


def bits_of(value: Fraction, dtype: str, negative_zero: bool) -> int:
    """Return the pattern of a value that the dtype has."""
    form = FORMATS[dtype]
    negative = value < 0 or (value == 0 and negative_zero)
    return form.bits(abs(value)) | (1 << (form.width - 1) if negative else 0)


def in_order(bits: int, dtype: str) -> int:
    """Return the integer that counts through all numbers in their order."""
    width = FORMATS[dtype].width
    return bits ^ (1 << width - 1) - 1 if bits >> (width - 1) else bits


def after_of(
    bits: int, j: int, entries: Sequence[tuple[Key, float]], noise: str, dtype: str
) -> int:
    """Return the pattern of element j after all entries."""
    before = exact(bits, dtype)
    assert before is not None
    kind = computing(dtype)
    total = number(before, kind)
    for key, scale in entries:
        term = number(scale, kind) * Real(noise_at(key, noise, j, kind), FORMATS[kind])
        assert term.exact != 0, "so no sum is -0"
        total = total + term
    # A negative sum that is stored as zero is stored as -0.
    return bits_of(moved(before, j, entries, noise, dtype), dtype, total.exact < 0)


def written(values: Sequence[int], dtype: str) -> str:
    """Return patterns joined by commas."""
    digits = FORMATS[dtype].width // 4
    return ",".join(f"{value:0{digits}x}" for value in values)


def scale_bits(scale: float) -> str:
    """Return the bits of a scale."""
    return f"{bits_of(Fraction(scale), 'float64', False):016x}"


def add_row(
    dtype: str, noise: str, first: int, entries: Sequence[tuple[Key, float]], before: Sequence[int]
) -> str:
    """Return a row of numbers after all entries."""
    after = [after_of(bits, first + i, entries, noise, dtype) for i, bits in enumerate(before)]
    given = ",".join(f"{lo:016x}:{hi:016x}:{scale_bits(scale)}" for (lo, hi), scale in entries)
    numbers = f"{written(before, dtype)} {written(after, dtype)}"
    return f"add {dtype} {noise} {first} {given} {numbers}"


def undo_row(
    dtype: str, noise: str, first: int, key: Key, scale: float, before: Sequence[int]
) -> str:
    """Return a row of numbers after one entry, and the bytes that undo it."""
    after, steps = [], []
    modulus = 1 << FORMATS[dtype].width
    for i, bits in enumerate(before):
        r = after_of(bits, first + i, [(key, scale)], noise, dtype)
        u = after_of(r, first + i, [(key, -scale)], noise, dtype)
        step = (in_order(bits, dtype) - in_order(u, dtype)) % modulus
        step = step - modulus if step >= modulus // 2 else step
        after.append(r)
        steps.append(step if -126 <= step <= 127 else LISTED)
    where = f"{key[0]:016x} {key[1]:016x} {scale_bits(scale)}"
    numbers = f"{written(before, dtype)} {written(after, dtype)} {','.join(map(str, steps))}"
    return f"undo {dtype} {noise} {first} {where} {numbers}"


# --- which rows -------------------------------------------------------------------------------

FIRSTS = (0, 1, 3, 30, 2**32 - 2, 2**40 + 5, 2**53 + 7)
SCALES = (0.02, 1e-3, 30.0, 2.0**-20)


def some_numbers(dtype: str, fill: Filler, count: int, magnitude: Fraction) -> list[int]:
    """Return patterns of numbers around a magnitude, of both signs."""
    form = FORMATS[dtype]
    found = []
    for _ in range(count):
        value = form.round(magnitude * Fraction(fill.below(1 << 20) + 1, 1 << 19))
        found.append(bits_of(value, dtype, False) | fill.below(2) << (form.width - 1))
    return found


def all_rows() -> Iterator[str]:
    """Every row, in the order of the file. Append below; never insert, never change."""
    for dtype, noise in itertools.product(FORMATS, ("normal", "rademacher")):
        fill = Filler(f"perturb {dtype} {noise}")
        form = FORMATS[dtype]
        ends = [0, 1, 2, (1 << (form.precision - 1)) - 1, 1 << (form.precision - 1)]
        ends += [bits | 1 << (form.width - 1) for bits in ends[1:]]
        keys = [(fill.below(1 << 64), fill.below(1 << 64)) for _ in range(5)] + [(0, 0), (U64, U64)]
        for i, (first, scale) in enumerate(itertools.product(FIRSTS, SCALES)):
            before = some_numbers(dtype, fill, (9, 5, 33)[i % 3], Fraction(1, (50, 1)[i % 2]))
            before += ends if i % 4 == 0 else []
            key = keys[i % len(keys)]
            many = [(keys[(i + k) % len(keys)], scale * (k + 1)) for k in range(i % 4)]
            yield add_row(dtype, noise, first, many or [(key, scale)], before)
            yield undo_row(dtype, noise, first, key, scale, before)


if __name__ == "__main__":
    golden_rows()  # raises unless the generator gives its published answers
    sys.exit(frozen.write(VECTORS, HEADER, list(all_rows()), sys.argv[1:], __doc__))
