"""``python -m benchmarks.gpu.prepare``: build here what the machine with the GPU then only runs.

Makes an environment with that machine's Python, torch and NumPy, compiles the libraries and the
test programs for its architecture into ``build/gpu``, and prints what has to travel with the
repository: some 40 MB, beside the tracked files. Needs nvcc of torch's CUDA version and no GPU.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from .programs import FOLDER, ROOT

TOOLS = ("setuptools>=77", "packaging>=24.2", "wheel", "ninja", "pytest")


def run(*command: object, **environment: str) -> None:
    """Run a command; its failure is this one's."""
    subprocess.run([*map(str, command)], check=True, cwd=ROOT, env={**os.environ, **environment})


def main() -> int:
    """0, once everything is built."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default="python3.12", help="of the version there")
    parser.add_argument("--torch", default="torch==2.11.0", help="a CUDA build: gigabytes")
    parser.add_argument("--numpy", default="numpy==2.5.2")
    parser.add_argument("--architecture", default="9.0", help="of the GPU: 9.0 is Hopper")
    parser.add_argument("--venv", type=Path, default=FOLDER / "venv")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    python = options.venv.resolve() / "bin" / "python"
    if not python.exists():
        run(options.python, "-m", "venv", options.venv)
        install = (python, "-m", "pip", "install", "--quiet", "--no-compile")
        run(*install, options.torch, options.numpy, *TOOLS)
    run(
        python, "setup.py", "-q", "build_ext", f"--build-lib={FOLDER / 'lib'}",
        f"--build-temp={FOLDER / 'temp'}", FORCE_CUDA="1", MAX_JOBS=str(options.jobs),
        TORCH_CUDA_ARCH_LIST=options.architecture,
    )  # fmt: skip
    run(python, "-m", "benchmarks.gpu.programs", FOLDER, options.architecture, options.jobs)
    carried = [
        *sorted((FOLDER / "lib" / "fastseed").glob("*.so")),
        *sorted(path for path in FOLDER.iterdir() if path.is_file() and os.access(path, os.X_OK)),
    ]
    for path in carried:
        print(f"{path.stat().st_size / 2**20:6.1f} MB  {path.relative_to(ROOT)}")
    print("with these files and the repository, on that machine: PY=python3 make gpu")
    return 0


if __name__ == "__main__":
    sys.exit(main())
