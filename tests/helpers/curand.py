"""The folder of cuRAND's device headers."""

import os
import sys
from pathlib import Path


def curand_include() -> Path | None:
    """The folder of ``curand_kernel.h``: of a CUDA toolkit, or of one of the PyPI packages."""
    toolkits = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    folders = [Path(toolkit) / "include" for toolkit in toolkits if toolkit]
    for entry in sys.path:
        folders += sorted(Path(entry).glob("nvidia/*/include"))
    return next((folder for folder in folders if (folder / "curand_kernel.h").is_file()), None)
