"""Compiles every CUDA source for several architectures and checks the machine code.

    python tests/csrc/cuda_check [--out build/cuda-check] [--jobs 2]

Needs nvcc, c++filt, and cuobjdump with nvdisasm (the extra ``cuda`` brings them). No GPU.
"""

import argparse
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cuda_rules import check_all, row
from cuda_sass import Kernel, demangled, read_kernels, read_ptx

ROOT = Path(__file__).resolve().parents[3]
SOURCES = sorted((ROOT / "csrc" / "cuda").glob("*.cu"))
ARCHITECTURES = ("sm_80", "sm_90", "sm_100")
NVCC = (
    "nvcc", "-O3", "-std=c++17", "-fmad=false", "--expt-relaxed-constexpr",
    "-Werror", "all-warnings", "-Xcompiler", "-Wall,-Wextra,-Werror,-Wno-unknown-pragmas",
)  # fmt: skip


def tools() -> dict[str, str]:
    """The environment with cuobjdump and nvdisasm of the packages of this Python on the path."""
    folders = [f"{p}/nvidia/{v}/bin" for p in sys.path for v in ("cu13", "cuda_cuobjdump")]
    path = os.pathsep.join([*folders, os.environ.get("PATH", os.defpath)])
    for tool in ("nvcc", "c++filt", "cuobjdump", "nvdisasm"):
        if shutil.which(tool, path=path) is None:
            raise SystemExit(f"cuda-check: {tool} must be on the path, found none")
    return {**os.environ, "PATH": path}


def run(environment: dict[str, str], *command: object) -> str:
    """Its output; ends the program where it fails."""
    words = list(map(str, command))
    done = subprocess.run(words, capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        raise SystemExit(f"cuda-check: {' '.join(words)}\n{done.stdout}{done.stderr}")
    return done.stdout


def compile_source(environment: dict[str, str], source: Path, arch: str, out: Path) -> Path:
    """The machine code; its PTX is kept beside it."""
    folder = out / arch / source.stem
    folder.mkdir(parents=True, exist_ok=True)
    code = folder / f"{source.stem}.cubin"
    run(environment, *NVCC, f"-arch={arch}", "--keep", "--keep-dir", folder, "-cubin", source,
        "-o", code)  # fmt: skip
    return code


def check_code(
    environment: dict[str, str], code: Path, source: Path
) -> list[tuple[Kernel, list[str]]]:
    """Each kernel with what is wrong with it."""
    kernels = read_kernels(
        run(environment, "cuobjdump", "-sass", code),
        run(environment, "cuobjdump", "-res-usage", code),
    )
    texts = read_ptx((code.parent / f"{source.stem}.ptx").read_text())
    names = demangled(list(kernels))
    found = []
    for mangled, kernel in kernels.items():
        named = kernel._replace(name=names[mangled])
        found.append((named, check_all(named, texts[mangled])))
    return found


def compile_tests(environment: dict[str, str], out: Path) -> None:
    """The torch-free tests for a GPU; the largest is linked: everything it needs is there."""
    folder = ROOT / "tests" / "csrc"
    for test in sorted(folder.glob("*/test_*.cu")):
        run(environment, *NVCC, "-arch=sm_90", "-c", test, "-o", out / f"{test.stem}.o")
    largest = folder / "test_cuda.cu"
    run(environment, *NVCC, "-arch=sm_90", largest, *SOURCES, "-o", out / largest.stem)


def main() -> int:
    """0 where every rule holds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "cuda-check")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    environment = tools()
    options.out.mkdir(parents=True, exist_ok=True)

    def one(job: tuple[str, Path]) -> list[tuple[str, Kernel, list[str]]]:
        arch, source = job
        code = compile_source(environment, source, arch, options.out)
        return [(arch, k, wrong) for k, wrong in check_code(environment, code, source)]

    jobs = [(arch, source) for arch in ARCHITECTURES for source in SOURCES]
    with ThreadPoolExecutor(options.jobs) as pool:
        linked = pool.submit(compile_tests, environment, options.out)
        results = [entry for found in pool.map(one, jobs) for entry in found]
        linked.result()

    print(f"{'kernel':<48}{'arch':<8}{'registers':>9}{'per 16 B':>10}{'products':>10}")
    for arch, kernel, _ in sorted(results, key=lambda e: (e[1].name, e[0])):
        name, registers, instructions, each = row(kernel)
        print(f"{name:<48}{arch:<8}{registers:>9}{instructions:>10}{each:>10}")
    failures = [f"{k.name} on {arch}: {w}" for arch, k, wrong in results for w in wrong]
    for failure in failures:
        print(f"cuda-check: {failure}", file=sys.stderr)
    print(f"{len(results)} kernels, {len(failures)} failures")
    return 1 if failures or not results else 0


if __name__ == "__main__":
    sys.exit(main())
