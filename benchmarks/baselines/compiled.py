"""Baselines in C++, compiled on the fly."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from ..case import Unavailable

FLAGS = ("-O3", "-march=native", "-std=c++17", "-shared", "-fPIC")


def compile_library(source: Path, folder: Path) -> Path:
    """Compile a source into ``folder``; Unavailable where that is not possible."""
    library = folder / f"{source.stem}.so"
    compiler = os.environ.get("CXX", "g++").split()
    command = [*compiler, *FLAGS, str(source), "-o", str(library)]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except OSError as error:
        raise Unavailable(f"there is no C++ compiler to compile {source.name} with") from error
    except subprocess.CalledProcessError as error:
        raise Unavailable(f"{source.name} does not compile: {error.stderr[:200]}") from error
    return library
