"""Builds the two native parts of fastseed; everything else is in pyproject.toml.

``fastseed._kernels_N``     the operators, behind LibTorch's stable ABI (no CPython symbol in it)
``fastseed._generators_N``  the generators of the process, against ATen and pybind11; calls the
                            loops of ``_kernels_N``

N is INTERFACE of fastseed/_backend/native.py.

Environment:
  FASTSEED_NO_EXT=1     build neither: the NumPy reference does everything
  FASTSEED_NO_CUDA=1    build without the CUDA part
  FASTSEED_PORTABLE=1   build `_kernels` alone, for the CPU: one wheel for every torch from 2.10 and
                        every Python from 3.10
  FORCE_CUDA=1          fail where the CUDA part cannot be built (it is never required otherwise)
  TORCH_CUDA_ARCH_LIST  the architectures to compile CUDA sources for (those of the GPUs that are
                        here; without a GPU, those that this torch was built for)
  DEBUG=1               -O0 -g
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent
NATIVE = "fastseed/_backend/native.py"
DEBUG = os.environ.get("DEBUG") == "1"
FORCE_CUDA = os.environ.get("FORCE_CUDA") == "1"
PORTABLE = os.environ.get("FASTSEED_PORTABLE") == "1"
NO_CUDA = os.environ.get("FASTSEED_NO_CUDA") == "1"
# Reals are computed by single operations: no fused multiply-add, on host or device. The others
# change no value: nothing here uses errno or floating-point traps, and loops become vector code.
EXACT = ["-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"]
TARGET_TORCH = "0x020a000000000000"  # the oldest torch that `_kernels` runs on: 2.10
INTERFACE = re.findall(r"^INTERFACE = (\d+)$", Path(ROOT, NATIVE).read_text(), re.MULTILINE)[0]
not_built: list[str] = []  # why a part is missing, if one is


class BuildPy(build_py):
    """Copy the Python files and, because pip hides what a build prints, why a part is missing."""

    def run(self) -> None:
        """Write the reason where build_info() reads it."""
        super().run()
        if not self.editable_mode:
            file = Path(self.build_lib, "fastseed", "_backend", "not_built.txt")
            file.write_text("".join(not_built))


def leave_out(part: str, reason: str) -> None:
    """Print that a part is not built, and remember why."""
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


def asked(*command: str | Path) -> str:
    """Return the output of a program, or nothing if it cannot run."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=60).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def unusable_nvcc(home: str | None, version: str) -> str | None:
    """Why the toolkit in ``home`` cannot build for a torch of this CUDA version, if it cannot."""
    if home is None or not (nvcc := Path(home, "bin", "nvcc")).exists():
        return "there is no nvcc"
    release = re.search(r"release (\d+)", asked(nvcc, "--version"))
    if release is not None and release[1] != version.split(".")[0]:  # torch refuses to build then
        return f"nvcc is of CUDA {release[1]}, this torch of CUDA {version}"
    return None


def toolkit() -> str | None:
    """The CUDA toolkit that torch builds with: that of ``nvcc`` itself, not of a link to it."""
    from torch.utils import cpp_extension

    home = cpp_extension.CUDA_HOME
    if home is not None and not any(os.environ.get(name) for name in ("CUDA_HOME", "CUDA_PATH")):
        nvcc = Path(home, "bin", "nvcc").resolve()
        if nvcc.exists():
            home = cpp_extension.CUDA_HOME = str(nvcc.parents[1])
    return home


def can_link(*folders: str) -> bool:
    """Return whether a library can be linked with the CUDA runtime in these folders."""
    with tempfile.TemporaryDirectory() as folder:
        source, out = Path(folder, "empty.cpp"), Path(folder, "empty.so")
        source.write_text("")
        command = [compiler() or "c++", "-shared", "-fPIC", str(source), "-o", str(out)]
        asked(*command, *(f"-L{f}" for f in folders), "-lcudart")
        return out.exists()


def runtime_folders(home: str | None) -> list[str] | None:
    """Where the linker finds the CUDA runtime beside torch's own folders; None if nowhere.

    Python's packages bring it under a name with a version, to which the build makes a link.
    """
    from torch.utils.cpp_extension import library_paths

    usual = library_paths("cuda")
    if can_link(*usual):
        return []
    for found in (f for p in sys.path for f in Path(p).glob("nvidia/*/lib/libcudart.so.*")):
        link = ROOT / "build" / "cudart" / "libcudart.so"
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(found)
        if can_link(str(link.parent), *usual):
            return [str(link.parent.absolute())]
    return None


def architectures(built: str, supported: str) -> str:
    """A TORCH_CUDA_ARCH_LIST of what torch was ``built`` for ("sm_80 sm_90") and nvcc supports."""
    named = re.findall(r"\bsm_(\d+)(?!\w)", built)
    known = [n for n in named if f"compute_{n}" in supported.split()] or named
    return ";".join(f"{n[:-1]}.{n[-1]}" for n in known) + "+PTX" if known else ""


def name_architectures(nvcc: Path) -> None:
    """Set TORCH_CUDA_ARCH_LIST where it is missing: without a GPU torch would fail."""
    import torch

    if not os.environ.get("TORCH_CUDA_ARCH_LIST") and torch.cuda.device_count() == 0:
        found = architectures(torch._C._cuda_getArchFlags() or "", asked(nvcc, "--list-gpu-arch"))
        os.environ["TORCH_CUDA_ARCH_LIST"] = found or "9.0+PTX"


def cuda_sources() -> tuple[list[str], list[str]]:
    """The CUDA part and the library folders that it needs, whether or not there is a GPU."""
    import torch

    found = sources("csrc/cuda/*.cu", "csrc/ops/cuda.cpp")
    home, folders = toolkit(), None
    missing = (
        "this wheel is for every torch" if PORTABLE
        else "FASTSEED_NO_CUDA=1" if NO_CUDA
        else "there are no CUDA sources in this version" if not found
        else "this torch is built without CUDA" if torch.version.cuda is None
        else unusable_nvcc(home, torch.version.cuda)
    )  # fmt: skip
    if missing is None and (folders := runtime_folders(home)) is None:
        missing = (
            f"the CUDA runtime (libcudart) of {home} cannot be linked; set CUDA_HOME to the "
            "toolkit's folder"
        )
    if missing and FORCE_CUDA:
        raise SystemExit(
            f"setup.py: FORCE_CUDA must be unset where CUDA cannot be built: {missing}"
        )
    if missing:
        leave_out("the CUDA part", missing)
        return [], []
    name_architectures(Path(home or "", "bin", "nvcc"))
    return found, folders or []


def extensions() -> tuple[list[Any], dict[str, Any]]:
    """The extension modules and the command that builds them."""
    if os.environ.get("FASTSEED_NO_EXT") == "1":
        return [], {}
    if compiler() is None:
        if FORCE_CUDA:
            raise SystemExit("setup.py: FORCE_CUDA needs a C++ compiler, found none")
        leave_out("native code", "there is no C++ compiler")
        return [], {}
    from torch.utils.cpp_extension import BuildExtension, CppExtension, CUDAExtension

    flags = ["-fvisibility=hidden", *EXACT, *(["-O0", "-g"] if DEBUG else ["-O3", "-g0"])]
    nvcc = ["-O3", "-fmad=false", "--expt-relaxed-constexpr", "-Xcompiler", "-fvisibility=hidden"]
    ops = [path for path in sources("csrc/ops/*.cpp") if not path.endswith("/cuda.cpp")]
    headers = sources("csrc/**/*.h", "csrc/**/*.cuh")
    cuda, folders = cuda_sources()
    kernels = (CUDAExtension if cuda else CppExtension)(
        f"fastseed._kernels_{INTERFACE}",
        [*ops, *sources("csrc/cpu/*.cpp"), *cuda],
        library_dirs=folders,
        define_macros=[("TORCH_TARGET_VERSION", TARGET_TORCH)],
        extra_compile_args={"cxx": flags, "nvcc": nvcc},
        depends=headers,
        py_limited_api=True,
    )
    generators = CppExtension(
        f"fastseed._generators_{INTERFACE}",
        sources("csrc/python/*.cpp"),
        extra_compile_args={"cxx": flags},
        depends=headers,
    )
    parts = [kernels] if PORTABLE else [kernels, generators]
    return parts, {"build_ext": BuildExtension}


ext_modules, cmdclass = extensions()
# The tag of a wheel that has no CPython symbol in it: its `_kernels` is a plain shared library.
options = {"bdist_wheel": {"py_limited_api": "cp310"}} if PORTABLE and ext_modules else {}
setup(ext_modules=ext_modules, cmdclass={"build_py": BuildPy, **cmdclass}, options=options)
