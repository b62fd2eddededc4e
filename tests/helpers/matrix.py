"""Run the fast tests beside the oldest and the newest of what pyproject.toml declares.

    python tests/helpers/matrix.py oldest newest cuda
    python tests/helpers/matrix.py middle --python 3.12 --torch 2.12.0 --numpy 2.0
    python tests/helpers/matrix.py borrowed --numpy 2.0

``oldest`` has the oldest Python and the lower bound of every requirement, ``newest`` what pip
chooses, ``cuda`` that with the CUDA part built, which needs a toolkit and no GPU; options replace
any. Each is an environment of its own with a copy of the sources, in which the native parts are
built. ``borrowed`` is this environment with another NumPy, the oldest unless said: it uses the
torch and the native parts that are here. Each run ends with a row of docs/evidence/guarantees.md.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "matrix"
VERSIONS = """
import importlib.metadata as m, json, platform
import numpy, torch, fastseed
print(json.dumps({"python": platform.python_version(), "numpy": numpy.__version__,
                  "torch": torch.__version__, **fastseed.build_info(),
                  "pytest": m.version("pytest")}))
"""


def requirements() -> list[Requirement]:
    """Return every requirement of pyproject.toml but those on fastseed's own extras."""
    content = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = content["project"]
    texts = [*content["build-system"]["requires"], *project["dependencies"]]
    texts += [text for extra in project["optional-dependencies"].values() for text in extra]
    return [found for found in map(Requirement, texts) if found.name != "fastseed"]


def lowest(package: str) -> str:
    """Return the version of the oldest constraint of a package, as 1.26.*."""
    (found,) = (bound for bound in oldest() if bound.startswith(f"{package}=="))
    return found.removeprefix(f"{package}==")


def oldest() -> list[str]:
    """Return constraints for pip: of each requirement the lowest version, with its bug fixes."""
    lowest: dict[str, list[int]] = {}
    for requirement in requirements():
        for bound in requirement.specifier:
            if bound.operator == ">=":
                version = [int(part) for part in bound.version.split(".")]
                version += [0] * (2 - len(version))
                lowest[requirement.name] = max(version, lowest.get(requirement.name, [0]))
    return [f"{name}=={'.'.join(map(str, version))}.*" for name, version in sorted(lowest.items())]


def oldest_python() -> str:
    """Return the lowest Python of pyproject.toml."""
    content = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return str(content["project"]["requires-python"]).removeprefix(">=")


def newest_python() -> str:
    """Return the newest Python of the classifiers."""
    content = tomllib.loads((ROOT / "pyproject.toml").read_text())
    found = re.findall(r"Python :: (3\.\d+)", "\n".join(content["project"]["classifiers"]))
    return max(found, key=lambda version: int(version.removeprefix("3.")))


def find_python(version: str) -> str:
    """Return an interpreter of this version: on the path, or one that pyenv has installed."""
    candidates = [shutil.which(f"python{version}"), shutil.which("python3")]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates += map(str, pyenv.glob(f"{version}.*/bin/python"))
    ask = "import sys; print('%d.%d' % sys.version_info[:2])"
    for candidate in filter(None, candidates):
        answer = subprocess.run([candidate, "-c", ask], capture_output=True, text=True)
        if answer.stdout.strip() == version:
            return str(candidate)
    raise SystemExit(f"no Python {version} on this machine")


def run(*command: Any, **where: Any) -> None:
    """Run a command, which must succeed."""
    subprocess.run([str(part) for part in command], check=True, **where)


def copy_sources(to: Path) -> None:
    """Copy what git lists, with changes that are not committed."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, check=True).stdout.decode()
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name)


def make(name: str, arguments: argparse.Namespace) -> tuple[Path, Path]:
    """Make an environment of its own; return its Python and the folder of its sources."""
    bounds = oldest() if name == "oldest" else []
    chosen = {"torch": arguments.torch, "numpy": arguments.numpy}
    for package, version in chosen.items():
        if version:
            bounds = [bound for bound in bounds if not bound.startswith(f"{package}==")]
            bounds.append(f"{package}=={version}{'.*' * (version.count('.') < 2)}")
    python = arguments.python or (oldest_python() if name == "oldest" else newest_python())
    home = FOLDER / name
    if not arguments.keep:
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        run(find_python(python), "-m", "venv", home / "env")
    constraints = home / "constraints.txt"
    constraints.write_text("\n".join(bounds) + "\n")
    inside = home / "env" / "bin" / "python"
    install = (inside, "-m", "pip", "install", "--quiet", "--no-compile", "-c", constraints)
    run(*install, "torch", "numpy", "setuptools>=77", "packaging>=24.2", "wheel", "ninja")
    shutil.rmtree(home / "src", ignore_errors=True)  # with --keep: files that are gone
    copy_sources(home / "src")
    environment = {**os.environ, **({"FORCE_CUDA": "1"} if name == "cuda" else {})}
    sources = f"{home / 'src'}[{arguments.extras}]"
    run(*install, "--no-build-isolation", "-e", sources, env=environment)
    return inside, home / "src"


def borrow(numpy: str) -> tuple[Path, Path]:
    """Make an environment with a NumPy of its own and everything else of this one."""
    home = FOLDER / f"numpy-{numpy.removesuffix('.*')}"
    shutil.rmtree(home, ignore_errors=True)
    run(sys.executable, "-m", "venv", "--without-pip", home)
    inside = home / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", inside, "install")
    run(*pip, "--quiet", "--no-compile", "--no-deps", f"numpy=={numpy}")
    (packages,) = home.glob("lib/python*/site-packages")
    here = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "borrowed.pth").write_text("\n".join(here) + "\n")  # after its own packages
    return inside, ROOT


def test(name: str, python: Path, sources: Path, arguments: argparse.Namespace) -> int:
    """Run the core of the tests; print what was run, and return the exit status of pytest."""
    environment = {**os.environ, "PYTHONPATH": str(sources)}
    asked = subprocess.run(
        [python, "-c", VERSIONS], env=environment, cwd=sources, capture_output=True, text=True
    )
    if asked.returncode:
        print(asked.stderr, file=sys.stderr)
        return asked.returncode
    have = json.loads(asked.stdout)
    built = have["native"] == have["generators"] == "loaded"
    if not built or (name == "cuda" and have["cuda"] != "loaded"):
        print(f"{name}: the native parts are not used: {have}", file=sys.stderr)
        return 1
    command = [str(python), "-m", "pytest", "-q", "-n", str(arguments.jobs), "--dist", "loadfile"]
    command += ["-p", "no:cacheprovider", "--tier", arguments.tier]
    command += [f"tests/{folder}" for folder in arguments.tests]
    start = time.monotonic()
    with subprocess.Popen(
        command, cwd=sources, env=environment, stdout=subprocess.PIPE, text=True
    ) as tests:
        assert tests.stdout is not None
        last = ""
        for line in tests.stdout:
            print(line, end="", flush=True)
            last = line if re.search(r"\d+ (passed|failed|error)", line) else last
    counts = [found[0] for found in re.findall(r"(\d+ (passed|failed|skipped|errors?))", last)]
    seconds = time.monotonic() - start
    others = [f"pytest {have['pytest']}", f"CUDA part {have['cuda']}"]
    row = (name, have["python"], have["numpy"], have["torch"], ", ".join(others))
    print("|", " | ".join((*row, ", ".join(counts), f"{seconds:.0f} s")), "|", flush=True)
    return tests.returncode


def main() -> int:
    """Run the environments that the command line names; 1 if a test failed in one."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "names", nargs="+", help="oldest, newest, cuda, borrowed, or a name of yours"
    )
    parser.add_argument("--python", help="a version as 3.12")
    parser.add_argument("--torch", help="a version of torch")
    parser.add_argument("--numpy", help="a version of NumPy")
    parser.add_argument("--extras", default="test", help="extras of pyproject.toml to install")
    parser.add_argument("--tests", nargs="+", default=[""], help="folders or files in tests/")
    parser.add_argument("--tier", default="fast", help="tiers of tests, as pytest's --tier")
    parser.add_argument("--jobs", default=2, type=int, help="processes that test at once")
    parser.add_argument("--keep", action="store_true", help="use the environment that is there")
    parser.add_argument("--delete", action="store_true", help="delete the environment afterwards")
    arguments = parser.parse_args()
    status = 0
    for name in arguments.names:
        if name == "borrowed":
            python, sources = borrow(arguments.numpy or lowest("numpy"))
        else:
            python, sources = make(name, arguments)
        status |= test(name, python, sources, arguments)
        if arguments.delete and name != "borrowed":
            shutil.rmtree(FOLDER / name)
    return 1 if status else 0


if __name__ == "__main__":
    sys.exit(main())
