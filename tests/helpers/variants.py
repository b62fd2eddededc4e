"""Prepare the build of ``_generators`` for each pair of torch and Python that the index has.

    python tests/helpers/variants.py build/variants
    FASTSEED_VARIANTS=build/variants/pairs.txt python setup.py build_ext

Downloads one wheel of each minor version of torch (half a gigabyte, of which the headers are kept),
and finds each Python on this machine: the headers of one wheel serve all of them. ``pairs.txt`` has
a line of four columns for each pair: torch, its headers, Python's headers, the suffix of modules.
"""

import re
import subprocess
import sys
import zipfile
from pathlib import Path

from matrix import find_python

OLDEST = (2, 10)  # torch
PYTHONS = ("3.10", "3.11", "3.12", "3.13")
ASK = "import sysconfig as s; print(s.get_path('include'), s.get_config_var('EXT_SUFFIX'), sep='|')"


def first_releases(python: str) -> dict[tuple[int, int], str]:
    """Return the first release of each minor version of torch that the index has for a Python."""
    command = ["index", "versions", "torch", "--python-version", python, "--only-binary=:all:"]
    found = re.search(r"Available versions: (.*)", pip(*command))
    versions = found[1].split(", ") if found else []
    minors = {tuple(map(int, v.split(".")[:2])): v.split("+")[0] for v in versions}  # newest first
    return {minor: v for minor, v in minors.items() if minor >= OLDEST}


def pip(*arguments: str) -> str:
    """Run pip and return what it prints."""
    command = [sys.executable, "-m", "pip", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def headers(version: str, python: str, folder: Path) -> Path:
    """Return the headers of a torch, of which everything else is deleted."""
    home = folder / version
    include = home / "torch" / "include"
    if not include.exists() or list(home.glob("*.whl")):  # the wheel is deleted last
        pip("download", "--no-deps", "--only-binary=:all:", "--python-version", python,
            "--dest", str(home), f"torch=={version}")  # fmt: skip
        (wheel,) = home.glob("*.whl")
        with zipfile.ZipFile(wheel) as file:
            names = [name for name in file.namelist() if name.startswith("torch/include/")]
            file.extractall(home, names)
        wheel.unlink()
    return include


def main(folder: Path) -> None:
    """Write the file of pairs, and print it."""
    lines = []
    for python in PYTHONS:
        asked = subprocess.run([find_python(python), "-c", ASK], capture_output=True, text=True)
        include, _, suffix = asked.stdout.strip().partition("|")
        for minor, version in sorted(first_releases(python).items()):
            lines.append(
                "\t".join((version, str(headers(version, python, folder)), include, suffix))
            )
            print(f"torch {minor[0]}.{minor[1]}, Python {python}", flush=True)
    (folder / "pairs.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
