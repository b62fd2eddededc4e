"""Severity of differences: from settings that change numbers to names of machines."""

from __future__ import annotations

import functools
import re
from typing import NamedTuple

LEVELS = ("critical", "high", "medium", "low")


class Severity(NamedTuple):
    """The position in the table (0 is the most severe), the level, and why it matters."""

    order: int
    level: str
    why: str


_LIBRARIES = (
    r"lib(torch|c10|cu|nv|nccl|mkl|openblas|blas|lapack|gomp|omp|iomp|dnnl|hip|roc|mio|rccl"
    r"|gfortran|m\.)"
)
_PACKAGES = (
    r"(torch.*|numpy|scipy|triton|pytorch-triton|nvidia-.*|cuda-.*|mkl.*|intel-openmp|jax|jaxlib"
    r"|cupy.*|flash-attn|xformers|transformer-engine|apex|bitsandbytes|deepspeed|fastseed)"
)
_VARIABLES = (
    r"(?!FASTSEED_(RUN_DIR|CAPTURE_KEY)$)(("
    r"CUDA|CUBLAS|CUBLASLT|CUDNN|NVIDIA|NCCL|OMP|GOMP|KMP|MKL|DNNL|ONEDNN|OPENBLAS|BLIS|VECLIB"
    r"|NUMEXPR|TORCH|TORCHINDUCTOR|PYTORCH|TRITON|XLA|JAX|TF|HIP|ROCBLAS|MIOPEN|RCCL|NVTE|NPY"
    r"|FASTSEED)_.*|PYTHONHASHSEED)"
)
_PYTHON = r"(version|full_version|implementation|flags/.*|startup.*|gil)"
_SYSTEM = r"(libc6|libstdc|libgomp|libnccl|libcud|libblas|libopenblas|nvidia|cuda|glibc)"

# (level, regular expression of the path, why); the first match counts.
_TABLE: tuple[tuple[str, str, str], ...] = (
    ("critical", "preload/(LD_PRELOAD|LD_AUDIT|ld_so_preload).*", "code put before every library"),
    ("critical", "gpu/(amd_)?driver", "the GPU driver compiles and schedules kernels"),
    ("critical", "torch/(cudnn|version|git_version|cuda|hip|nccl|debug)", "another torch or CUDA"),
    ("critical", "gpu/devices(/\\d+)?(/name)?", "kernels are chosen by GPU model and count"),
    ("critical", "torch/devices.*", "kernels are chosen by GPU model and count"),
    ("critical", "torch/(switches|state|inductor)/.*", "a switch or thread count of torch"),
    ("critical", f"packages/{_PACKAGES}(/.*)?", "a package that computes"),
    ("critical", "(editable|git)/(.*/)?(commit|diff_hash|files)(/.*)?", "other code ran"),
    ("critical", f"libraries/{_LIBRARIES}.*/identity", "a library that computes is another"),
    ("critical", f"variables/{_VARIABLES}", "a variable that libraries compute by"),
    ("critical", "machine/(cpu|architecture|cpu_features)", "kernels are chosen by CPU"),
    ("high", "torch/numpy.*", "NumPy's build or instruction sets"),
    ("high", "(editable|git)(/.*)?/(untracked.*|submodules)(/.*)?", "other code may have run"),
    ("high", "editable.*", "a package of a source folder"),
    ("high", "packages/.*", "another package"),
    ("high", "conda.*", "another conda package"),
    ("high", f"python/{_PYTHON}", "the interpreter"),
    ("high", "preload/.*", "where libraries are found"),
    ("high", "libraries/[^/]*(/identity)?", "another library is mapped"),
    ("high", "container/(cgroup_limits|affinity).*", "the processors that threads may use"),
    ("high", "machine/(processors|c_library|numa_nodes|sockets)", "thread counts, the C library"),
    ("high", "modules.*", "another module is loaded"),
    ("high", "compilers.*", "what extensions and Inductor are compiled with"),
    ("high", "gpu/devices/\\d+/(ecc|mig|compute|memory).*", "how the GPU is set up"),
    ("medium", "torch/.*", "how torch was built"),
    ("medium", "machine/(kernel.*|distribution|system|microcode|smt)", "the operating system"),
    ("medium", f"system_packages/{_SYSTEM}.*", "a system library that computes"),
    ("medium", "gpu.*/(vbios|power|persistence).*", "how the GPU is set up"),
    ("medium", "(variables/(LD_|PYTHON|LC_|LANG).*)", "how programs start"),
    ("medium", "container.*", "limits of this process"),
    ("medium", "machine.*", "the machine"),
    ("medium", "system_packages.*", "another system package"),
    ("low", "libraries/.*/folders", "the same library in another folder"),
    ("low", "gpu.*", "the card and its clocks"),
    ("low", "(git|editable).*", "the folder of the code"),
    ("low", "python/.*", "the folder of the interpreter"),
    ("low", "variables/FASTSEED_(RUN_DIR|CAPTURE_KEY)", "the run's folder, different in every run"),
    ("low", "variables.*", "another variable"),
    ("low", "process.*", "the command line"),
    ("low", "host.*", "the name of the machine"),
)  # fmt: skip
_COMPILED = tuple(re.compile(pattern) for _, pattern, _ in _TABLE)
_OTHER = Severity(len(_TABLE), "medium", "not in the table of severities")


@functools.lru_cache(maxsize=4096)
def severity(path: str) -> Severity:
    """Return the severity of a difference at ``path`` (``section/field/…``)."""
    for order, pattern in enumerate(_COMPILED):
        if pattern.fullmatch(path):
            return Severity(order, _TABLE[order][0], _TABLE[order][2])
    return _OTHER
