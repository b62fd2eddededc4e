"""Rules for compiled kernels. Each returns the problems it finds, as text."""

import re

from cuda_sass import Instruction, Kernel, Ptx, loads16, products, stores16

M0, M1 = "-0x2daee0ad", "-0x326172a9"  # Philox's multipliers, as SASS writes them
PER_BLOCK = 20  # products of a Philox block
ADDRESSES = 4  # wide multiplies of a loop that are addresses

# The most registers of kernels whose name begins so: 65536 over the threads that a multiprocessor
# has to hold. The first that fits.
REGISTERS = (
    (r"Derive|ReseedFrom", 32),
    (r"DigestTiles", 80),
    (r"ExactTiles<(double, .*1|.*2)>", 80),
    (r"ExactTiles<", 64),
    (r"CarryExact", 48),
    (r"ShuffleBody<", 40),
    (r"RaceParts<", 128),
    (r"SearchDigit<", 64),
    (r"LayerKey", 32),
    (r"Drop<", 40),
    (r"PerturbLines<(Half|BFloat16)>", 96),
    (r"PerturbLines<", 64),
    (r"(OneLine|ManyLines)<Uniform<", 32),
    (r"(OneLine|ManyLines)<Bernoulli<unsigned char>", 48),
    (r"(OneLine|ManyLines)<Bernoulli<", 32),
    (r"\w+<(Normal|Exponential)<double>", 48),
    (r"\w+<TruncNormal<", 72),
    (r"\w+<RandInt<(unsigned char|long), unsigned int>", 80),
    (r"\w+<RandInt<", 64),
    (r"(OneLine|ManyLines|AnyLayout)<", 40),
)
# Philox blocks that an iteration of the main loop makes, and 16-byte stores. The first that fits;
# others have no fast path.
WORK = (
    (r"DeriveSeeds", 2, 1),
    (r"DeriveKeys<.*, true>", 2, 3),
    (r"DeriveKeys<.*, false>", 2, 2),
    (r"ReseedFrom", 3, 1),  # scope, name and stream of a seed
    (r"ShuffleBody<", 4, 1),  # two positions, two rounds: the loop of rounds is inside
    (r"(OneLine|ManyLines)<RandInt<long, unsigned int>", 2, 4),
    (r"(OneLine|ManyLines)<Bernoulli<double>", 2, 4),
    (r"(OneLine|ManyLines)<\w+<(Half|BFloat16)", 2, 1),
    (r"(OneLine|ManyLines)<\w+<unsigned char", 4, 1),
    (r"(OneLine|ManyLines)<", 2, 2),
)
# Kernels without a loop whose work is fixed: what a token costs depends on the others, and limbs of
# exact sums are added to where the values say.
NO_FAST_PATH = r"AnyLayout<|RaceParts<|SearchDigit<|Drop<|PerturbLines<|LayerKey|CarryExact"
# Kernels that add what they read in registers: the most instructions of the loop with the 16-byte
# loads, rare branches included. Terms 0 are values, 1 squares, 2 products.
ADDING = ((r"ExactTiles<double, .*[12]>", 1760), (r"ExactTiles<.*2>", 1250), (r"ExactTiles<", 860))
# Kernels that only read: 16-byte loads of an iteration of the main loop, and products for each.
READING = {"DigestTiles": (4, 14)}  # seven rounds
# Wide multiplies that are neither Philox's nor addresses. The shuffle: two for each block, which
# bring it into its range, and for each of two positions those of a division and of the result.
OTHERS = ((r"ShuffleBody<", 2 * 4 + 2 * 6),)
# Multiply-adds that ptxas makes of a division and a square root in float32, each rounded as a
# whole: in place, and once a kernel in the routine for unusual arguments.
QUOTIENT_STEPS, QUOTIENT_ROUTINE = 7, 15
ROOT_STEPS, ROOT_ROUTINE = 2, 3


def _first(table: tuple[tuple, ...], name: str) -> tuple | None:
    return next((row for row in table if re.match(row[0], name)), None)


def check_memory(kernel: Kernel) -> list[str]:
    """Everything is in registers, and in few enough of them."""
    wrong = []
    if kernel.stack or kernel.count("LDL", "STL"):
        wrong.append(f"local memory: a frame of {kernel.stack} bytes")
    row = _first(REGISTERS, kernel.name)
    if row is None:
        wrong.append("no limit of registers is known for it")
    elif kernel.registers > row[1]:
        wrong.append(f"{kernel.registers} registers, more than {row[1]}")
    return wrong


def philox_products(kernel: Kernel) -> float | None:
    """Products with Philox's multipliers a block, in the main loop; None without a fast path."""
    if kernel.name in READING:
        return _philox(kernel.reading_loop()) / READING[kernel.name][0]
    row = _first(WORK, kernel.name)
    return None if row is None else _philox(kernel.main_loop()) / row[1]


def _philox(body: tuple[Instruction, ...]) -> int:
    return sum(M0 in i.operands or M1 in i.operands for i in products(body))


def check_reading_loop(kernel: Kernel) -> list[str]:
    """16 bytes a load, no other access to memory, and no more products than the rounds have."""
    loads, each = READING[kernel.name]
    body = kernel.reading_loop()
    wrong = []
    if loads16(body) != loads:
        wrong.append(f"{loads16(body)} loads of 16 bytes in the main loop, not {loads}")
    if sum(i.is_a("LDG", "STG", "ATOMG", "RED", "LD", "ST") for i in body) != loads16(body):
        wrong.append("another access to memory in the main loop")
    found = len(products(body))
    if philox_products(kernel) != each or found > loads * each + ADDRESSES:
        wrong.append(f"{philox_products(kernel):g} products a group, not {each}, of {found} in all")
    return wrong


def check_adding_loop(kernel: Kernel, most: int) -> list[str]:
    """16 bytes a load, no addition to global memory, and not longer than it was."""
    loops = [body for body in kernel.loops() if loads16(body)]
    body = min(loops, key=len, default=())
    wrong = [] if body else ["no loads of 16 bytes in a loop"]
    if any(i.is_a("ATOMG", "RED", "REDG", "STG") for i in body):
        wrong.append("the main loop writes to memory")
    if len(body) > most:
        wrong.append(f"{len(body)} instructions in the main loop, more than {most}")
    return wrong


def check_main_loop(kernel: Kernel) -> list[str]:
    """16 bytes a store, and no more products than Philox has."""
    if kernel.name in READING:
        return check_reading_loop(kernel)
    if (adding := _first(ADDING, kernel.name)) is not None:
        return check_adding_loop(kernel, adding[1])
    row = _first(WORK, kernel.name)
    if row is None:
        return [] if re.match(NO_FAST_PATH, kernel.name) else ["its work is not known"]
    _, blocks, stores = row
    body = kernel.main_loop()
    wrong = []
    if stores16(body) != stores:
        wrong.append(f"{stores16(body)} stores of 16 bytes in the main loop, not {stores}")
    if kernel.name != "ReseedFrom" and any(i.is_a("STG") and ".128" not in i.opcode for i in body):
        wrong.append("a narrow store in the main loop")
    each, all_of_them = philox_products(kernel), len(products(body))
    if each < 15:  # the count, or the loop, is not what it is taken for
        wrong.append(f"{each:g} products a Philox block, fewer than 15")
    if "RandInt" in kernel.name:  # its retries, which are rare, are in the loop too
        most = 960 if "unsigned char" in kernel.name else 560
        if len(body) > most:
            wrong.append(f"{len(body)} instructions in the main loop, more than {most}")
        return wrong
    if each > PER_BLOCK:
        wrong.append(f"{each:g} products a Philox block, more than {PER_BLOCK}")
    others = _first(OTHERS, kernel.name)
    if all_of_them > PER_BLOCK * blocks + ADDRESSES + (0 if others is None else others[1]):
        wrong.append(f"{all_of_them} wide multiplies in the main loop, for {blocks} blocks")
    return wrong


def check_arithmetic(kernel: Kernel, ptx: Ptx) -> list[str]:
    """No operation is fused with another.

    ptxas fuses operations that name no rounding, and never those with ``.rn``. So when all have it,
    multiply-adds in SASS are those inside its own sequences for divisions and square roots, which
    are rounded as a whole.
    """
    wrong = [
        f"{n} {op}: reals without a rounding mode, or an approximation"
        for op, n in sorted(ptx.operations.items())
        if re.match(r"(add|sub|mul|mad|fma|div|sqrt|rsqrt|rcp|ex2|lg2|sin|cos)\..*f(16|32|64)", op)
        and (".rn" not in op or ".ftz" in op)
    ]
    if ptx.fused:
        wrong.append(f"{len(ptx.fused)} fused multiply-adds: {ptx.fused[:3]}")
    divisions = ptx.operations["div.rn.f64"]  # with one FFMA each, of upper halves
    quotients = ptx.operations["div.rn.f32"]
    roots = ptx.operations["sqrt.rn.f32"]
    inside = QUOTIENT_STEPS * quotients + (QUOTIENT_ROUTINE if quotients else 0)
    inside += ROOT_STEPS * roots + (ROOT_ROUTINE if roots else 0)
    if kernel.count("FFMA") > divisions + inside:
        wrong.append(f"{kernel.count('FFMA')} FFMA, where divisions and roots have {inside}")
    whole = divisions + ptx.operations["sqrt.rn.f64"]
    if kernel.count("DFMA") and not whole:
        wrong.append(f"{kernel.count('DFMA')} DFMA without a division or a square root")
    if kernel.count("HFMA2", "HADD2", "HMUL2") > kernel.count("HFMA2.MMA"):
        moves = [i for i in kernel.instructions if i.is_a("HFMA2") and "-RZ, RZ" in i.operands]
        if len(moves) != kernel.count("HFMA2", "HADD2", "HMUL2"):
            wrong.append("arithmetic in half precision")
    return wrong


def check_all(kernel: Kernel, ptx: Ptx) -> list[str]:
    """Every rule."""
    return check_memory(kernel) + check_main_loop(kernel) + check_arithmetic(kernel, ptx)


def row(kernel: Kernel) -> tuple[str, int, str, str]:
    """(name, registers, instructions for 16 bytes, products a block) for the table."""
    each = philox_products(kernel)
    if each is None or "RandInt" in kernel.name:
        return kernel.name, kernel.registers, "-", "-"
    reads = kernel.name in READING
    body = kernel.reading_loop() if reads else kernel.main_loop()
    return (
        kernel.name,
        kernel.registers,
        f"{len(body) / max(loads16(body) if reads else stores16(body), 1):.0f}",
        f"{each:g}",
    )
