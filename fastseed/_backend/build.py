"""``build_info``: which native code is in use."""

from __future__ import annotations

import torch

from .._utils.version import __version__
from . import derive, native
from .reference import scalar


def build_info() -> dict[str, object]:
    """Return what is in use: versions, backend, SIMD path, CUDA.

    Returns:
        A dict with ``version``, ``derivation``, ``backend`` (``"native"`` or ``"reference"``),
        ``native`` (the operators), ``generators`` (what sets generators faster) and ``cuda`` (the
        operators for CUDA devices): ``"loaded"``, or why it is not used; ``simd``, ``simd_paths``
        and ``torch``.

    Examples:
        >>> import fastseed
        >>> fastseed.build_info()["derivation"]
        1
    """
    return {
        "version": __version__,
        "derivation": scalar.DERIVATION_VERSION,
        "backend": derive.backend,
        "native": _loaded(native.missing),
        "generators": _loaded(native.generators_missing),
        "simd": derive.simd(),
        "simd_paths": list(derive.simd_paths()),
        "cuda": _loaded(native.cuda_missing),
        "torch": torch.__version__,
    }


def _loaded(missing: str | None) -> str:
    return "loaded" if missing is None else f"not used: {missing}"
