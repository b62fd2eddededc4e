"""The differences of two captures, most severe first."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import NamedTuple

from .collect import Capture
from .variables import COMPUTING

_PACKAGES = (
    r"(torch.*|numpy|scipy|triton|pytorch-triton|nvidia-.*|cuda-.*|mkl.*|intel-openmp|jax|jaxlib"
    r"|cupy.*|flash-attn|xformers|transformer-engine|apex|bitsandbytes|deepspeed|fastseed)"
)

# (level, regular expression of the path, why); the first match counts.
SEVERITIES = (
    ("low", "variables/FASTSEED_RUN_DIR", "the run's folder, different in every run"),
    ("critical", f"variables/({COMPUTING}|LD_PRELOAD|LD_AUDIT)", "libraries compute by it"),
    ("critical", "hardware/(driver|gpus|cpu/(Model name|Flags))", "kernels are chosen by it"),
    ("critical", "torch/(version|git_version|cuda|hip|cudnn|nccl|debug)", "another torch or CUDA"),
    ("critical", "torch/(switches|inductor)/.*", "a switch or thread count of torch"),
    ("critical", f"packages/{_PACKAGES}", "a package that computes"),
    ("critical", "(editable|git)/(.*/)?(commit|diff|files)(/.*)?", "other code ran"),
    ("high", "(editable|git).*", "other code may have run"),
    ("high", "(packages|conda|apt|modules).*", "another package or module"),
    ("high", "(python|torch/numpy).*", "the interpreter, or NumPy's instruction sets"),
    (
        "high",
        "hardware/(processors|affinity|libc|compilers).*",
        "threads, the C library, compilers",
    ),
    ("medium", "(torch|hardware).*", "how torch was built, the machine, its operating system"),
    ("medium", "variables/(LD_|PYTHON|LC_|LANG).*", "how programs start"),
    ("low", "variables.*", "another variable"),
    ("medium", ".*", "not in the table of severities"),
)

_NO_BYTE = re.compile("[\ud800-\udc7f\udd00-\udfff]")  # surrogates that are no byte of a file


class Difference(NamedTuple):
    """One difference.

    Attributes:
        level: ``"critical"`` (changes numbers), ``"high"``, ``"medium"`` or ``"low"``.
        path: the value's path, ``section/field/…``.
        before, after: the values; None where a capture has no value.
        why: why it matters.
    """

    level: str
    path: str
    before: object
    after: object
    why: str


@functools.cache
def severity(path: str) -> tuple[str, str]:
    """Return level and reason of a difference at ``path`` (``section/field/…``)."""
    return next((row[0], row[2]) for row in SEVERITIES if re.fullmatch(row[1], path))


def compare(a: Capture, b: Capture) -> list[Difference]:
    """Return the differences of two captures, by level and path; headers are not compared."""
    found = []
    for path, before, after in _walk("", a.sections, b.sections):
        level, why = severity(path)
        found.append(Difference(level, path, before, after, why))
    levels = ("critical", "high", "medium", "low")
    return sorted(found, key=lambda one: (levels.index(one.level), one.path))


def is_comparable(capture: Capture) -> bool:
    """Return whether a capture, as it was read from a file, has the form that is compared."""
    if not all(isinstance(one, dict) for one in capture):
        return False
    texts = [isinstance(one, str) and not _NO_BYTE.search(one) for one in capture.patches.values()]
    sections = [isinstance(one, dict) for one in capture.sections.values()]
    return all(texts + sections) and all(_is_flat(part) for part in capture)


def _is_flat(value: object, levels: int = 32) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels > 0 and all(_is_flat(one, levels - 1) for one in inner)


def _walk(path: str, a: object, b: object) -> Iterator[tuple[str, object, object]]:
    if isinstance(a, dict) and isinstance(b, dict):
        for key in sorted({*a, *b}):
            yield from _walk(f"{path}/{key}" if path else key, a.get(key), b.get(key))
    elif type(a) is not type(b) or a != b:
        yield path, a, b
