"""The differences of two captures, most severe first."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from . import keyed_hash
from .collect import Capture

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

# (level, regular expression of the path, why); the first match counts.
SEVERITIES = (
    ("critical", "preload/(LD_PRELOAD|LD_AUDIT|ld_so_preload).*", "code put before every library"),
    ("critical", "gpu/(amd_)?driver", "the GPU driver compiles and schedules kernels"),
    ("critical", "torch/(cudnn|version|git_version|cuda|hip|nccl|debug)", "another torch or CUDA"),
    ("critical", "gpu/devices(/\\d+)?(/name)?", "kernels are chosen by GPU model and count"),
    ("critical", "torch/(switches|inductor)/.*", "a switch or thread count of torch"),
    ("critical", f"packages/{_PACKAGES}(/.*)?", "a package that computes"),
    ("critical", "(editable|git)/(.*/)?(commit|diff_hash|files)(/.*)?", "other code ran"),
    ("critical", f"libraries/{_LIBRARIES}.*/identity", "a library that computes is another"),
    ("critical", f"variables/{_VARIABLES}", "a variable that libraries compute by"),
    ("critical", "machine/(cpu|architecture|cpu_features)", "kernels are chosen by CPU"),
    ("high", "torch/numpy.*", "NumPy's build or instruction sets"),
    ("high", "(editable|git)(/.*)?/untracked.*", "other code may have run"),
    ("high", "(editable|packages|conda).*", "another package"),
    ("high", f"python/{_PYTHON}", "the interpreter"),
    ("high", "preload/.*", "where libraries are found"),
    ("high", "libraries/[^/]*(/identity)?", "another library is mapped"),
    (
        "high",
        "machine/(processors|affinity|c_library|numa_nodes|sockets)",
        "thread counts, the C library",
    ),
    ("high", "modules.*", "another module is loaded"),
    ("high", "compilers.*", "what extensions and Inductor are compiled with"),
    ("high", "gpu/devices/\\d+/(ecc|mig|compute|memory).*", "how the GPU is set up"),
    ("medium", "torch/.*", "how torch was built"),
    ("medium", "gpu.*/(vbios|power|persistence).*", "how the GPU is set up"),
    ("medium", "variables/(LD_|PYTHON|LC_|LANG).*", "how programs start"),
    ("medium", "machine.*", "the machine and its operating system"),
    ("low", "libraries/.*/folders", "the same library in another folder"),
    ("low", "gpu.*", "the card"),
    ("low", "(git|python).*", "the folder of the code or the interpreter"),
    ("low", "variables/FASTSEED_(RUN_DIR|CAPTURE_KEY)", "the run's folder, different in every run"),
    ("low", "variables.*", "another variable"),
    ("low", "process.*", "the command line"),
    ("low", "host.*", "the name of the machine"),
    ("medium", ".*", "not in the table of severities"),
)


_LISTS = ("libraries", "preload")  # sections whose values are lists of libraries
_NO_BYTE = re.compile("[\ud800-\udc7f\udd00-\udfff]")  # surrogates that are no byte of a file
_DEEPEST = 32  # levels of objects and lists in a capture


class Difference(NamedTuple):
    """One difference.

    Attributes:
        level: ``"critical"`` (changes numbers), ``"high"``, ``"medium"`` or ``"low"``.
        path: the value's path, ``section/field/…``.
        kind: ``"changed"``, ``"added"`` (only in the second) or ``"removed"``.
        before, after: the values; None where there is no value.
        why: why it matters.
    """

    level: str
    path: str
    kind: str
    before: Any
    after: Any
    why: str


@functools.cache
def severity(path: str) -> int:
    """Return the index in ``SEVERITIES`` of a difference at ``path`` (``section/field/…``)."""
    return next(i for i, row in enumerate(SEVERITIES) if re.fullmatch(row[1], path))


def compare(a: Capture, b: Capture) -> list[Difference]:
    """Return the differences of two captures, by severity and path; headers are not compared."""
    left, right = _comparable(a), _comparable(b)
    if a.header.get("key") != b.header.get("key"):
        left, right = keyed_hash.hide(left), keyed_hash.hide(right)
    found = []
    for path, before, after in _walk("", left, right):
        level, _, why = SEVERITIES[severity(path)]
        kind = "added" if before is None else "removed" if after is None else "changed"
        found.append(Difference(level, path, kind, before, after, why))
    return sorted(found, key=lambda one: (severity(one.path), one.path))


def is_comparable(capture: Capture) -> bool:
    """Return whether a capture, as it was read from a file, has the form that is compared."""
    header, sections, patches = capture
    level: list[Any] = [header, sections, patches]
    if not all(isinstance(one, dict) for one in level) or not all(
        isinstance(section, dict) for section in sections.values()
    ):
        return False
    lists = [many for name in _LISTS for many in sections.get(name, {}).values()]
    if not all(map(_has_dicts, lists)) or not all(map(_is_text, patches.values())):
        return False
    for _ in range(_DEEPEST):
        inner = [one.values() if isinstance(one, dict) else one for one in level]
        level = [one for many in inner for one in many if isinstance(one, (dict, list))]
    return not level


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and _NO_BYTE.search(value) is None


def _walk(path: str, a: Any, b: Any) -> Iterator[tuple[str, Any, Any]]:
    if _has_dicts(a) and _has_dicts(b):
        a, b = ({str(i): one for i, one in enumerate(many)} for many in (a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        for key in sorted({*a, *b}):
            yield from _walk(f"{path}/{key}" if path else key, a.get(key), b.get(key))
    elif type(a) is not type(b) or a != b:
        yield path, a, b


def _has_dicts(many: Any) -> bool:
    return isinstance(many, list) and all(isinstance(one, dict) for one in many)


def _comparable(capture: Capture) -> dict[str, Any]:
    """Return the sections, arranged so that the same library has the same path."""
    sections: dict[str, Any] = dict(capture.sections)
    sections["libraries"] = {
        name: {
            "identity": sorted(_identity(one) for one in copies),
            "folders": sorted(str(one.get("folder")) for one in copies),
        }
        for name, copies in sections.get("libraries", {}).items()
    }
    sections["preload"] = {
        name: [f"{one.get('name')} ({_identity(one)})" for one in many]
        for name, many in sections.get("preload", {}).items()
    }
    return sections


def _identity(library: dict[str, Any]) -> str:
    if library.get("missing"):
        return "missing"
    return str(library.get("build_id") or f"{library.get('size')} bytes")
