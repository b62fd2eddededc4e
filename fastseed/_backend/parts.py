"""The names of the compiled parts, for what builds them and for what loads them."""

import re

INTERFACE = 27
"""Counted up with each change of an operator, of csrc/ops/interface.h or of ``_generators``.

It is part of the names of all libraries: of another one, none is loaded.
"""

KERNELS, CUDA = f"_kernels_{INTERFACE}", f"_cuda_{INTERFACE}"


def generators(torch_version: str) -> str:
    """Return the name of the ``_generators`` for a version of torch.

    Final releases of one minor version share it, as 2.11.1 and 2.11.0+cu130. Others, as 2.11.0a0,
    have a name of their own: their classes may have another layout.
    """
    final = re.fullmatch(r"(\d+)\.(\d+)\.\d+(\+.*)?", torch_version)
    version = f"{final[1]}_{final[2]}" if final else re.sub(r"\W", "_", torch_version)
    return f"_generators_{INTERFACE}_torch_{version}"
