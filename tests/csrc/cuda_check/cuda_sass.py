"""Reads what ``cuobjdump`` prints of a compiled kernel, and the PTX that it came from."""

import re
import subprocess
from collections import Counter
from typing import NamedTuple

_FUNCTION = re.compile(r"^\s*Function\s*:?\s+(\S+?):?\s*$", re.MULTILINE)
_INSTRUCTION = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(?:(@!?U?P\w+)\s+)?([A-Z][\w.]*)\s*([^;]*);")
_ENTRY = re.compile(r"\.entry (\w+)\(")
_USAGE = re.compile(r"Function (\S+?):\s+REG:(\d+) STACK:(\d+) .*?LOCAL:(\d+)", re.DOTALL)


class Instruction(NamedTuple):
    """One line of SASS."""

    address: int
    opcode: str
    operands: str

    def is_a(self, *names: str) -> bool:
        """Return whether the opcode is one of these, with whatever behind the name."""
        return any(self.opcode == n or self.opcode.startswith(n + ".") for n in names)


class Kernel(NamedTuple):
    """One kernel of one architecture."""

    name: str
    registers: int
    stack: int
    instructions: tuple[Instruction, ...]

    def count(self, *names: str) -> int:
        """How many instructions are one of these."""
        return sum(i.is_a(*names) for i in self.instructions)

    def loops(self) -> list[tuple[Instruction, ...]]:
        """The bodies of its loops: from the target of a jump backwards to the jump."""
        bodies = []
        for jump in self.instructions:
            target = re.search(r"0x([0-9a-f]+)", jump.operands) if jump.is_a("BRA") else None
            if target is not None and int(target[1], 16) < jump.address:
                first = int(target[1], 16)
                bodies.append(
                    tuple(i for i in self.instructions if first <= i.address <= jump.address)
                )
        return bodies

    def main_loop(self) -> tuple[Instruction, ...]:
        """The one with the most 16-byte stores, and of those with the most products."""
        return max(self.loops(), key=lambda body: (stores16(body), len(products(body))), default=())

    def reading_loop(self) -> tuple[Instruction, ...]:
        """The one without a loop in it that has the most 16-byte loads: of a kernel that reads."""
        spans = [(body[0].address, body[-1].address) for body in self.loops()]
        inner = [
            body
            for body, (first, last) in zip(self.loops(), spans, strict=True)
            if not any(first <= f and e <= last and (f, e) != (first, last) for f, e in spans)
        ]
        return max(inner, key=loads16, default=())


def loads16(body: tuple[Instruction, ...]) -> int:
    """Loads of 16 bytes past the caches."""
    return sum(i.is_a("LDG") and ".128" in i.opcode and ".EF" in i.opcode for i in body)


def stores16(body: tuple[Instruction, ...]) -> int:
    """Stores of 16 bytes past the caches."""
    return sum(i.is_a("STG") and ".128" in i.opcode and ".EF" in i.opcode for i in body)


def products(body: tuple[Instruction, ...]) -> list[Instruction]:
    """Multiplies whose result has more than 32 bits, or is the upper half of one that has."""
    return [i for i in body if i.opcode.startswith(("IMAD.WIDE", "IMAD.HI", "UIMAD.WIDE"))]


def demangled(names: list[str]) -> dict[str, str]:
    """``OneLine<Normal<float>>`` for each mangled name of a ``body_kernel`` of it."""
    done = subprocess.run(
        ["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True
    )
    return dict(zip(names, map(short_name, done.stdout.splitlines()), strict=True))


def short_name(text: str) -> str:
    """Return a demangled name without namespaces and the common launcher."""
    text = re.sub(r"fastseed::|\(anonymous namespace\)::", "", text)
    found = re.match(r"(?:void )?body_kernel<(?:OverLines<(.*)> ?|(.*))>\(", text)
    return (found[1] or found[2] if found else text).replace(" >", ">").strip()


def read_kernels(sass: str, usage: str) -> dict[str, Kernel]:
    """Kernels by mangled name, of ``cuobjdump -sass`` and ``cuobjdump -res-usage``."""
    used = {name: (int(r), int(s) + int(local)) for name, r, s, local in _USAGE.findall(usage)}
    kernels = {}
    parts = _FUNCTION.split(sass)
    for name, text in zip(parts[1::2], parts[2::2], strict=True):
        found = tuple(
            Instruction(int(address, 16), opcode, operands.strip())
            for address, _, opcode, operands in _INSTRUCTION.findall(text)
        )
        registers, stack = used[name]
        kernels[name] = Kernel(name, registers, stack, found)
    if set(kernels) != set(used):
        raise ValueError(f"cuda-check: kernels without code: {sorted(set(used) - set(kernels))}")
    return kernels


class Ptx(NamedTuple):
    """The floating-point operations in the PTX of a kernel."""

    fused: tuple[str, ...]  # every fma: its operands, constants as such
    operations: Counter[str]  # how often each other opcode


def read_ptx(text: str) -> dict[str, Ptx]:
    """By mangled name."""
    kernels = {}
    parts = _ENTRY.split(text)
    for name, body in zip(parts[1::2], parts[2::2], strict=True):
        constants = dict(re.findall(r"\bmov\.f(?:32|64)\s+(%\w+), (0[fd][0-9A-F]+);", body))
        fused = tuple(
            ", ".join(constants.get(o.strip(), o.strip()) for o in operands.split(","))
            for operands in re.findall(r"\bfma\.rn\.f(?:32|64)\s+([^;]*);", body)
        )
        # instructions end in ; and those of inline assembly stand in braces of their own
        words = re.findall(r"(?:^|[;{}\n])\s*(?:@!?%?\w+\s+)?([a-z]\w*(?:\.\w+)+)\s", body)
        kernels[name] = Ptx(fused, Counter(words))
    return kernels
