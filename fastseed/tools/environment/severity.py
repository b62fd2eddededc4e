"""How much a difference matters: from what decides numbers to what only names a place."""

from __future__ import annotations

import functools
import re
from typing import NamedTuple

LEVELS = ("critical", "high", "medium", "low")


class Rank(NamedTuple):
    """A place in the table (0 matters most), its level, and why such a difference matters."""

    place: int
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
    r"(?!FASTSEED_RUN_DIR$)((CUDA|CUBLAS|CUBLASLT|CUDNN|NVIDIA|NCCL|OMP|GOMP|KMP|MKL|DNNL|ONEDNN|OPENBLAS|BLIS|VECLIB"
    r"|NUMEXPR|TORCH|TORCHINDUCTOR|PYTORCH|TRITON|XLA|JAX|TF|HIP|ROCBLAS|MIOPEN|RCCL|NVTE|NPY"
    r"|FASTSEED)_.*|PYTHONHASHSEED)"
)
_PYTHON = r"(version|full_version|implementation|compiler|flags/.*|startup.*|gil|hash_.*)"
_SYSTEM = r"(libc6|libstdc|libgomp|libnccl|libcud|libblas|libopenblas|nvidia|cuda|glibc)"

# (level, regular expression of the path, why); the first that fits counts.
_TABLE: tuple[tuple[str, str, str], ...] = (
    ("critical", "preload/(LD_PRELOAD|LD_AUDIT|ld_so_preload).*", "code put before every library"),
    ("critical", "gpu/(amd_)?driver", "the GPU driver compiles and schedules kernels"),
    ("critical", "torch/(cudnn|version|git_version|cuda|hip|nccl|debug)", "another torch or CUDA"),
    ("critical", "gpu/devices(/\\d+)?(/name)?", "kernels are chosen by GPU model and count"),
    ("critical", "torch/devices.*", "kernels are chosen by GPU model and count"),
    ("critical", "torch/(switches|state|inductor)/.*", "a switch or thread count of torch"),
    ("critical", f"packages/{_PACKAGES}(/.*)?", "a package that computes"),
    ("critical", "(editable|git)/(.*/)?(commit|diff)(/.*)?", "other code ran"),
    ("critical", f"libraries/{_LIBRARIES}.*/identity", "a library that computes is another"),
    ("critical", f"variables/{_VARIABLES}", "a variable that libraries compute by"),
    ("critical", "machine/(cpu|architecture|cpu_features)", "kernels are chosen by CPU"),
    ("high", "torch/numpy.*", "NumPy's build or instruction sets"),
    ("high", "(editable|git)(/.*)?/(untracked|submodules)(/.*)?", "other code may have run"),
    ("high", "editable.*", "a package of a working folder"),
    ("high", "packages/.*", "another package"),
    ("high", "conda.*", "another conda package"),
    ("high", f"python/{_PYTHON}", "the interpreter"),
    ("high", "preload/.*", "where libraries are found"),
    ("high", "libraries/[^/]*(/identity)?", "another library is mapped"),
    ("high", "container/(cgroup_limits|affinity).*", "how many processors threads have"),
    ("high", "machine/(processors|c_library|numa_nodes|sockets)", "thread counts, the C library"),
    ("high", "modules.*", "another module is loaded"),
    ("high", "compilers.*", "what extensions and Inductor are compiled with"),
    ("high", "gpu/devices/\\d+/(ecc|mig|compute|memory).*", "how the GPU is set up"),
    ("medium", "torch/.*", "how torch was built"),
    ("medium", "machine/(kernel.*|distribution|system|microcode|smt)", "the operating system"),
    ("medium", f"system_packages/{_SYSTEM}.*", "a system library that computes"),
    ("medium", "gpu.*/(vbios|power|persistence).*", "how the GPU is set up"),
    ("medium", "(variables/(LD_|PYTHON|LC_|LANG).*|python/.*config.*)", "how programs start"),
    ("medium", "container.*", "limits of this process"),
    ("medium", "machine.*", "the machine"),
    ("medium", "scheduler/[^/]*", "another launcher or scheduler"),
    ("medium", "system_packages.*", "another system package"),
    ("low", "libraries/.*/paths", "the same library in another place"),
    ("low", "gpu.*", "which card, and its clocks"),
    ("low", "(git|editable).*", "where code came from"),
    ("low", "python/.*", "where the interpreter lies"),
    ("low", "scheduler.*", "which job it was"),
    ("low", "variables/FASTSEED_RUN_DIR", "the run's own folder, another one in every run"),
    ("low", "variables.*", "another variable"),
    ("low", "process.*", "how it was called"),
    ("low", "host.*", "which machine it was"),
)  # fmt: skip
_COMPILED = tuple(re.compile(pattern) for _, pattern, _ in _TABLE)
_REST = Rank(len(_TABLE), "medium", "nothing is known of it")


@functools.lru_cache(maxsize=4096)
def rank(path: str) -> Rank:
    """The rank of a difference at ``path`` (``section/field/…``)."""
    for place, pattern in enumerate(_COMPILED):
        if pattern.fullmatch(path):
            return Rank(place, _TABLE[place][0], _TABLE[place][2])
    return _REST
