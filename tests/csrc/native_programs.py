"""The C++ tests as programs, built once for each content of their sources."""

import fcntl
import functools
import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
NATIVE = ROOT / "csrc"
CPU, CUDA = NATIVE / "cpu", NATIVE / "cuda"
VECTORS = HERE.parent / "vectors"
KERNELS = sorted(CPU.glob("*.cpp"))
BUILT = ROOT / "build" / "native-tests"

STRICT = ("-std=c++17", "-Wall", "-Wextra", "-Werror")
EXACT = ("-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math")  # as setup.py has them
OPTIMIZE = ("-O3", *EXACT)  # the kernels as they are shipped: loops turned into vector code
SANITIZE = ("-O1", "-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", *EXACT)
UNOPTIMIZED = (*SANITIZE, "-O0")  # where the compiler takes longer than what it compiles
# Stands in for CUDA's header of that name: a host runs the kernels, thread by thread.
SHIM = ("-Wno-unknown-pragmas", f"-I{HERE / 'cuda_shim'}")


def run(*command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program; leaks are not looked for, since that needs ptrace."""
    env = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0", **environment}
    return subprocess.run(command, capture_output=True, text=True, timeout=500, env=env)


def compiler() -> str:
    """Return the C++ compiler."""
    found = shutil.which(os.environ.get("CXX", "g++").split()[0]) or shutil.which("clang++")
    if found is None:
        pytest.skip("there is no C++ compiler")
    return found


def compile_with(flags: tuple[str, ...], *rest: str | Path) -> None:
    """Call the compiler; its warnings are errors."""
    done = run(compiler(), *STRICT, *flags, *rest)
    assert done.returncode == 0, done.stderr


@functools.cache
def _headers() -> bytes:
    """Return a digest of every header that a source may include, and of the compiler."""
    digest = hashlib.sha256(run(compiler(), "--version").stdout.encode())
    headers = [
        *NATIVE.rglob("*.h"),
        *NATIVE.rglob("*.cuh"),
        *HERE.rglob("*.h"),
        *HERE.rglob("*.cuh"),
    ]
    for path in sorted(headers):
        digest.update(path.read_bytes())
    return digest.digest()


def _object(source: Path, flags: tuple[str, ...]) -> Path:
    """Compile one source, unless this or an earlier run has done so."""
    content = _headers() + source.read_bytes() + repr((source.name, flags)).encode()
    to = BUILT / f"{source.name}-{hashlib.sha256(content).hexdigest()[:16]}.o"
    to.parent.mkdir(parents=True, exist_ok=True)
    with to.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another worker of this run may compile it now
        if not to.exists():
            language = ("-x", "c++") if source.suffix == ".cu" else ()
            partial = to.with_suffix(".partial")
            compile_with(flags, *language, "-c", source, "-o", partial)
            partial.rename(to)
    return to


def build(
    folder: Path, flags: tuple[str, ...], sources: Iterable[Path], kernels: bool = True
) -> Path:
    """Return a program of these sources and, unless said otherwise, of the kernels of the CPU."""
    sources = tuple(sources)
    shim = SHIM if any(source.suffix == ".cu" for source in sources) else ()
    # The checks of a program need less optimization than the kernels.
    mild = ("-O1",) if flags is OPTIMIZE and not shim else ()
    objects = [_object(source, (*shim, *flags, *mild)) for source in sources]
    if kernels:
        objects += [_object(source, flags) for source in KERNELS]
    program = folder / sources[0].stem
    compile_with(flags, *objects, "-pthread", "-o", program)
    return program


class Program(NamedTuple):
    """A test program: its sources, what it reads, and how many checks it passes at least."""

    name: str
    sources: tuple[Path, ...]
    files: tuple[str, ...] = ()
    least: int = 2000
    kinds: tuple[str, ...] = ()  # of rows that it reads; all if empty
    kernels: bool = True  # linked with those of the CPU
    builds: tuple[str, ...] = ("optimized", "sanitized")
    damage: tuple[str, ...] = ()  # kinds of rows of which a wrong one must be noticed

    @property
    def paths(self) -> list[Path]:
        """The files that it reads."""
        return [VECTORS / file for file in self.files]

    def rows(self) -> list[str]:
        """The rows of the files that it reads."""
        lines = [line for path in self.paths for line in path.read_text("utf-8").splitlines()]
        rows = [line for line in lines if line and not line.startswith("#")]
        return [row for row in rows if not self.kinds or row.split(" ")[0] in self.kinds]

    def assert_passes(self, done: subprocess.CompletedProcess[str]) -> None:
        """Assert that every row and enough checks passed, and that nothing was reported."""
        assert done.returncode == 0, done.stdout + done.stderr
        found = re.match(r"(?:(\d+) rows, )?(\d+) checks", done.stdout)
        assert found, done.stdout
        assert int(found[2]) > self.least, done.stdout
        assert found[1] is None or int(found[1]) == len(self.rows()), done.stdout
        assert (found[1] is None) == (not self.files) and done.stderr == ""


PROGRAMS = (
    Program(
        "core",
        (HERE / "test_core.cpp", HERE / "kernel_checks.cpp"),
        ("vectors.txt",),
        1_000_000,
        damage=("scope", "mt19937", "seeds"),
    ),
    Program("draws", (HERE / "test_draws.cpp",), least=1_000_000),
    Program("digest", (HERE / "test_digest.cpp",)),
    Program(
        "shuffle",
        (HERE / "test_shuffle.cpp",),
        ("shuffle.txt",),
        100_000,
        damage=("order", "digest"),
    ),
    Program(
        "cuda",
        (HERE / "test_cuda.cu", *sorted(CUDA.glob("*.cu"))),
        ("vectors.txt", "draws.txt"),
        1_000_000,
        ("stream", "sample", "seeds", "draw", "real"),
        kernels=False,
        builds=("unoptimized",),
        damage=("stream", "draw"),
    ),
    Program(
        "cuda-digest",
        (HERE / "test_cuda_digest.cu", CUDA / "digest.cu"),
        least=1000,
        kernels=False,
        builds=("unoptimized",),
    ),
    Program(
        "cuda-shuffle",
        (HERE / "shuffle" / "test_cuda_shuffle.cu", CUDA / "shuffle.cu"),
        ("shuffle.txt",),
        5000,
        kernels=False,
        builds=("unoptimized",),
        damage=("inverse",),
    ),
    *(
        Program(
            name,
            (HERE / name / f"test_{name}.cu", CUDA / f"{name}.cu"),
            (f"{name}.txt",),
            damage=(kind,),
        )
        for name, kind in (
            ("dropout", "mask"),
            ("exact_sum", "sum"),
            ("perturb", "undo"),
            ("sampling", "race"),
        )
    ),
)
FLAGS = {"optimized": OPTIMIZE, "sanitized": SANITIZE, "unoptimized": UNOPTIMIZED}
