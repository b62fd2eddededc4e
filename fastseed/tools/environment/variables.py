"""Environment variables: settings as they are, every other value redacted."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ..._utils import JSON

REDACTED = "(redacted)"

COMPUTING = (
    r"((CUDA|CUBLAS|CUBLASLT|CUDNN|NVIDIA|NCCL|OMP|GOMP|KMP|MKL|DNNL|ONEDNN|OPENBLAS|BLIS|VECLIB"
    r"|NUMEXPR|NUMBA|TBB|TORCH|TORCHINDUCTOR|TORCHDYNAMO|PYTORCH|TRITON|XLA|JAX|HIP|ROCBLAS"
    r"|HIPBLASLT|MIOPEN|RCCL|NVTE|NPY|FLASH_ATTENTION|FASTSEED)_.*|ATEN_CPU_CAPABILITY"
    r"|TF_(DETERMINISTIC|CUDNN|ENABLE|NUM|XLA)\w*|PYTHONHASHSEED)"
)
"""Names of the variables that libraries compute by."""

_OTHERS = (
    r"(LD|PYTHON|HF|TRANSFORMERS|TOKENIZERS|TORCHELASTIC|HSA|ROCR)_?.*|LANG|LC_.*|TZ"
    r"|SOURCE_DATE_EPOCH|(\w+_)?(RANK|WORLD_SIZE)|NNODES|NPROC_PER_NODE|MASTER_PORT"
    r"|SLURM_(JOB_ID|PROCID|LOCALID|NODEID|NTASKS|NNODES|CPUS_PER_TASK|GPUS_ON_NODE)"
)
_STORED = re.compile(f"{COMPUTING}|{_OTHERS}")
# The names that Django's error pages hide, and more.
_SECRET = re.compile(
    r"API|AUTH|TOKEN(?!IZERS)|KEY|SECRET|PASS|PWD|CRED|SIGN|JWT|COOKIE|LICEN", re.I
)
# Words, numbers, paths and lists of these: no sentence, and no URL with a user or a query.
_SETTING = re.compile(r"[\w.,:;=+^%{}()*/-]{0,400}", re.ASCII)


def variables(environment: Mapping[str, str]) -> dict[str, JSON]:
    """Return every variable by name, with its value only if name and value are of a setting."""
    return {
        name: value
        if _STORED.fullmatch(name) and not _SECRET.search(name) and _SETTING.fullmatch(value)
        else REDACTED
        for name, value in sorted(environment.items())
    }
