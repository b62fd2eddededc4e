"""Builds the native parts of fastseed; everything else is in pyproject.toml.

``_kernels``     the operators on the CPU, behind LibTorch's stable ABI (no CPython symbol in it)
``_cuda``        the operators on CUDA devices, likewise; the CUDA runtime is linked into it
``_generators``  the generators of the process, against ATen and pybind11, for one minor version of
                 torch and one Python; calls the loops of ``_kernels``

Of torch only the headers are used. The names of the files are in fastseed/_backend/parts.py.

Environment:
  FASTSEED_NO_EXT=1     build none: the NumPy reference does everything
  FASTSEED_NO_CUDA=1    build without `_cuda`
  FORCE_CUDA=1          build `_cuda` beside a CPU build of torch too, and fail where it cannot be
  TORCH_CUDA_ARCH_LIST  the architectures of `_cuda`, as "9.0;12.0+PTX", in place of ARCHITECTURES
  FASTSEED_VARIANTS     a file that tests/helpers/variants.py wrote: `_generators` for each line, in
                        place of one for the torch and the Python that are here
  MAX_JOBS              how many files to compile at a time
  DEBUG=1               -O0 -g
"""

from __future__ import annotations

import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
PARTS: Any = runpy.run_path(str(ROOT / "fastseed" / "_backend" / "parts.py"))
DEBUG = os.environ.get("DEBUG") == "1"
FORCE_CUDA = os.environ.get("FORCE_CUDA") == "1"
JOBS = int(os.environ.get("MAX_JOBS") or os.cpu_count() or 1)
ARCHITECTURES = "8.0;8.6;8.9;9.0;10.0;12.0+PTX"
# Reals are computed by single operations: no fused multiply-add, on host or device. The others
# change no value: nothing here uses errno or floating-point traps, and loops become vector code.
EXACT = ["-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"]
FLAGS = ["-fvisibility=hidden", *EXACT, *(["-O0", "-g"] if DEBUG else ["-O3", "-g0", "-DNDEBUG"])]
TARGET_TORCH = "0x020a000000000000"  # the oldest torch whose stable ABI is enough: 2.10
TEMPORARY = Path("build", "native")
NAMES = TEMPORARY / "names"  # of torch's libraries: the linker needs no more of them
NINJA = [sys.executable, "-m", "ninja"] if find_spec("ninja") else ["ninja"]
not_built: list[str] = []  # why a part is missing, if one is


class Library(Extension):
    """A shared library: sources with their commands, how they are linked, libraries of torch."""

    def __init__(
        self, file: str, commands: dict[str, list[str]], link: list[str], torch: tuple[str, ...]
    ) -> None:
        # a dot in a name would begin a package
        super().__init__("fastseed." + file.replace(".", ":"), list(commands))
        self.file, self.commands, self.link = file, commands, [*link]
        self.torch = [f"{NAMES}/lib{name}.so" for name in torch]
        # by -l, as nvcc puts files before the linker's options
        self.link += [f"-L{NAMES}", *(f"-l{name}" for name in torch)]

    def rules(self, to: Path) -> str:
        """Return what ninja does for it."""
        folder = TEMPORARY / self.file.partition(".so")[0]
        objects = {f"{folder}/{source.replace('/', '-')}.o": source for source in self.commands}
        lines = [
            f"build {out}: compile {source}\n  with = {escaped(self.commands[source])}\n"
            for out, source in objects.items()
        ]
        inputs = f"{' '.join(objects)} | {' '.join(self.torch)}"
        lines.append(f"build {to}: link {inputs}\n  with = {escaped(self.link[:1])}\n")
        lines.append(f"  also = {escaped(self.link[1:])}\n")
        return "".join(lines)


RULES = (
    f"builddir = {TEMPORARY}"
    + """
rule compile
  command = $with -MD -MF $out.d -c $in -o $out
  depfile = $out.d
  deps = gcc
rule link
  command = rm -f $out && $with -shared $in $also -o $out
rule name
  command = $with -shared -Wl,-soname,$soname -x c++ /dev/null -o $out
"""
)


def escaped(command: list[str]) -> str:
    """Return a command as ninja reads it."""
    return shlex.join(command).replace("$", "$$")


def call(command: list[str]) -> None:
    """Run a command; what it printed is shown where it fails."""
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        raise SystemExit(f"setup.py: {shlex.join(command)}\n{done.stdout.decode()}")


def compiled(libraries: list[Library]) -> dict[Path, Library]:
    """Return the libraries by their files, which ninja has made where they were not current."""
    made = {TEMPORARY / library.file: library for library in libraries}
    file = TEMPORARY / "build.ninja"
    file.parent.mkdir(parents=True, exist_ok=True)
    names = dict.fromkeys(name for library in libraries for name in library.torch)
    rules = [library.rules(to) for to, library in made.items()]
    rules += [
        f"build {name}: name\n  with = {compiler() or 'c++'}\n  soname = {Path(name).name}\n"
        for name in names
    ]
    file.write_text(RULES + "".join(rules))
    if shutil.which(NINJA[0]) is None:
        raise SystemExit("setup.py: ninja compiles the native code: pip install ninja")
    call([*NINJA, "-f", str(file), "-j", str(JOBS), *map(str, made)])
    return made


class BuildExt(build_ext):
    """Compile and link all libraries by ninja, what has changed and several at a time."""

    def get_ext_filename(self, fullname: str) -> str:
        """Return the name that a library has, whichever Python builds it."""
        return os.path.join(*fullname.split(".")).replace(":", ".")

    def build_extensions(self) -> None:
        """Build every library, then put each in its place."""
        os.chdir(ROOT)
        for out, ext in compiled(self.extensions).items():
            to = Path(self.get_ext_fullpath(ext.name))
            to.parent.mkdir(parents=True, exist_ok=True)
            partial = to.with_suffix(".partial")
            shutil.copy(out, partial)
            partial.replace(to)  # a process may have the old one open


class BuildPy(build_py):
    """Copy the Python files and, because pip hides what a build prints, why a part is missing."""

    def run(self) -> None:
        """Write the reason where build_info() reads it."""
        super().run()
        if not self.editable_mode:
            file = Path(self.build_lib, "fastseed", "_backend", "not_built.txt")
            file.write_text("".join(not_built))


def leave_out(part: str, reason: str) -> None:
    """Print that a part is not built, and remember why; fail where it was asked for."""
    if FORCE_CUDA:
        raise SystemExit(f"setup.py: FORCE_CUDA=1, but {part} cannot be built: {reason}")
    print(f"setup.py: building without {part}: {reason}", file=sys.stderr)
    not_built.append(reason)


def sources(*patterns: str) -> list[str]:
    """Paths relative to the repository, sorted so that builds repeat."""
    return sorted(str(p.relative_to(ROOT)) for pat in patterns for p in ROOT.glob(pat))


def compiler() -> str | None:
    """The C++ compiler that will be called, if there is one."""
    command = os.environ.get("CXX") or sysconfig.get_config_var("CXX") or "c++"
    names = (str(command).split()[0], "c++", "g++", "clang++")
    return next((found for name in names if (found := shutil.which(name))), None)


def find_nvcc() -> Path | None:
    """Return nvcc itself, no link to it: of CUDA_HOME, on the path, or of the usual folder."""
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    found = f"{home}/bin/nvcc" if home else shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    return Path(found).resolve() if os.path.exists(found) else None


def architectures(wanted: str, nvcc: Path) -> list[str]:
    """Return nvcc's options for a list as "9.0;12.0+PTX", without what it does not know."""
    command = [nvcc, "--list-gpu-arch"]
    known = subprocess.run(command, capture_output=True, text=True).stdout.split()
    options = []
    for name in filter(None, re.split(r"[;,\s]+", wanted)):
        parsed = re.fullmatch(r"(\d+)\.(\d+[a-z]?)(\+PTX)?", name)
        if parsed is None:
            raise SystemExit(f"setup.py: an architecture must be as 9.0 or 9.0+PTX, got {name}")
        number = parsed[1] + parsed[2]
        if f"compute_{number}" in known or not known:
            codes = f"sm_{number}" + (f",compute_{number}" if parsed[3] else "")
            options.append(f"-gencode=arch=compute_{number},code=[{codes}]")
    return options


def cuda_library(cxx: list[str], headers: list[str]) -> list[Library]:
    """The library for CUDA devices, whether or not there is a GPU."""
    import torch

    nvcc = find_nvcc()
    missing = (
        "FASTSEED_NO_CUDA=1" if os.environ.get("FASTSEED_NO_CUDA") == "1"
        else "torch was built without CUDA" if torch.version.cuda is None and not FORCE_CUDA
        else "there is no nvcc" if nvcc is None
        else None
    )  # fmt: skip
    if nvcc is None or missing:
        leave_out("the CUDA part", missing or "")
        return []
    wanted = os.environ.get("TORCH_CUDA_ARCH_LIST") or ARCHITECTURES
    host = ",".join(["-fPIC", "-fvisibility=hidden", *EXACT])
    device = [str(nvcc), "-ccbin", cxx[0], "-std=c++17", "-O3", "-fmad=false", "-Xcompiler", host,
              "--expt-relaxed-constexpr", *architectures(wanted, nvcc)]  # fmt: skip
    commands = {source: device for source in sources("csrc/cuda/*.cu")}
    commands["csrc/ops/cuda.cpp"] = [*cxx, f"-DTORCH_TARGET_VERSION={TARGET_TORCH}", *headers]
    # nvcc links the static runtime, whose symbols are hidden: torch may have another one of them.
    hide = ["-Xlinker", "--no-as-needed", "-Xlinker", "--exclude-libs", "-Xlinker", "ALL"]
    link = [str(nvcc), "-ccbin", cxx[0], *hide]
    return [Library(f"{PARTS['CUDA']}.abi3.so", commands, link, ("c10", "torch_cpu", "torch_cuda"))]


def generators_library(cxx: list[str], version: str, headers: list[str], suffix: str) -> Library:
    """The module of the generators, for a torch and a Python."""
    name = PARTS["generators"](version)
    command = [*cxx, f"-DTORCH_EXTENSION_NAME={name}", *headers]
    commands = dict.fromkeys(sources("csrc/python/*.cpp"), command)
    link = [cxx[0], "-Wl,--no-as-needed"]
    return Library(name + suffix, commands, link, ("c10", "torch_cpu", "torch_python"))


def extensions() -> list[Library]:
    """The libraries to build."""
    if os.environ.get("FASTSEED_NO_EXT") == "1":
        return []
    if (found := compiler()) is None:
        leave_out("native code", "there is no C++ compiler")
        return []
    import torch
    from torch.utils.cpp_extension import include_paths

    cxx = [found, "-std=c++20", "-fPIC", *FLAGS, *shlex.split(os.environ.get("CXXFLAGS", ""))]
    headers = [f"-isystem{path}" for path in include_paths()]
    ops = [path for path in sources("csrc/ops/*.cpp") if not path.endswith("/cuda.cpp")]
    command = [*cxx, f"-DTORCH_TARGET_VERSION={TARGET_TORCH}", *headers]
    kernels = dict.fromkeys([*ops, *sources("csrc/cpu/*.cpp")], command)
    link = [found, "-Wl,--no-as-needed"]
    here = (torch.__version__, include_paths()[0], sysconfig.get_path("include"),
            sysconfig.get_config_var("EXT_SUFFIX"))  # fmt: skip
    pairs = [here]
    if variants := os.environ.get("FASTSEED_VARIANTS"):
        pairs = [line.split("\t") for line in Path(variants).read_text().splitlines()]
    return [
        Library(f"{PARTS['KERNELS']}.abi3.so", kernels, link, ("c10", "torch_cpu")),
        *cuda_library(cxx, headers),
        *(
            generators_library(cxx, version, [
                f"-isystem{of_torch}", f"-isystem{of_torch}/torch/csrc/api/include",
                f"-isystem{of_python}",
            ], suffix)
            for version, of_torch, of_python, suffix in pairs
        ),
    ]  # fmt: skip


found = extensions()
setup(
    ext_modules=found,
    cmdclass={"build_py": BuildPy, "build_ext": BuildExt},
    # One wheel for every Python: what of it is for one Python alone has that in its file's name.
    options={"bdist_wheel": {"py_limited_api": "cp310"}} if found else {},
)
