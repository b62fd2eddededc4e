"""The C++ tests of the kernels as programs for a GPU, built wherever nvcc is."""

from __future__ import annotations

import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "csrc"))
from native_programs import EXACT, KERNELS, PROGRAMS, Program  # noqa: E402

FOLDER = ROOT / "build" / "gpu"
NVCC = (
    "nvcc", "-std=c++17", "-O3", "-lineinfo", "-fmad=false", "--expt-relaxed-constexpr",
    "-Xcompiler", ",".join(EXACT),
)  # fmt: skip
HOST = ("g++", "-std=c++17", "-O3", *EXACT)
# What compute-sanitizer runs, a hundred times slower: a tool, a program, rows of each kind.
SANITIZED = (
    ("memcheck", "cuda-digest", 0), ("memcheck", "exact_sum", 3), ("memcheck", "sampling", 3),
    ("racecheck", "sampling", 2), ("memcheck", "dropout", 2), ("memcheck", "perturb", 1),
    ("memcheck", "cuda-shuffle", 3), ("initcheck", "exact_sum", 2), ("racecheck", "exact_sum", 2),
    ("initcheck", "perturb", 1),
)  # fmt: skip
ON_GPU = {program.name: program for program in PROGRAMS if program.sources[-1].suffix == ".cu"}


def _sources(program: Program) -> list[Path]:
    return [*program.sources, *(KERNELS if program.kernels else ())]


def _object(source: Path, folder: Path) -> Path:
    return folder / "objects" / f"{source.parent.name}_{source.name}.o"


def build(folder: Path, architecture: str, jobs: int) -> None:
    """Compile each source once, then link; a compiler's errors are raised.

    Args:
        folder: Where the programs go.
        architecture: As TORCH_CUDA_ARCH_LIST has it: ``"9.0"``.
        jobs: How many compilers run at a time.
    """
    target = f"-arch=sm_{architecture.replace('.', '')}"
    (folder / "objects").mkdir(parents=True, exist_ok=True)
    sources = {source for program in ON_GPU.values() for source in _sources(program)}
    compiling = []
    for source in sorted(sources):
        compiler = (*NVCC, target) if source.suffix == ".cu" else HOST
        compiling.append([*compiler, "-c", str(source), "-o", str(_object(source, folder))])
    linking = [
        ["nvcc", target, *(str(_object(source, folder)) for source in _sources(program)), "-o",
         str(folder / program.name)]
        for program in ON_GPU.values()
    ]  # fmt: skip
    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(_run, compiling))
        list(pool.map(_run, linking))


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    if done.returncode != 0:
        raise RuntimeError(f"{shlex.join(command)} failed:\n{done.stderr[-2000:]}")


def some_rows(path: Path, each: int, folder: Path) -> Path:
    """Write a file of the first rows of each kind of another, and return it."""
    kinds: dict[str, list[str]] = {}
    for line in path.read_text("utf-8").splitlines():
        if line and not line.startswith("#"):
            kinds.setdefault(line.split(" ", 1)[0], []).append(line)
    to = folder / f"{each}-{path.name}"
    rows = [row for found in kinds.values() for row in found[:each]]
    to.write_text("".join(row + "\n" for row in rows), "utf-8")
    return to


if __name__ == "__main__":
    build(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
