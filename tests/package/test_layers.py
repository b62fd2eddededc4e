"""Who may import or include whom: upwards only, and nothing heavy at the top of a module."""

from __future__ import annotations

import ast
import fnmatch
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE, NATIVE = ROOT / "fastseed", ROOT / "csrc"

# From the bottom to the top. A module imports from lower lines alone; a new one gets a place here.
LEVELS = (
    ("_reference", "_native", "_eager", "errors", "legacy", "seen", "strict_json", "whole_files"),
    ("hash_seed", "determinism_report", "determinism_settings"),
    ("_reference_draws", "_reference_digest", "_reference_shuffle", "watch_file", "audit_globals"),
    ("_ops", "_draw_ops", "watch_compare"),
    ("streams",),
    ("config_files", "determinism"),
    ("config",),
    ("launching",),
    ("distributions", "environment", "lint"),
    ("sinks", "distributed", "draws", "mesh", "followers"),
    ("numpy_sinks", "pool", "accelerators", "shards", "bank_checks"),
    ("checkpoint_files", "checkpoint_ranks"),
    ("fills", "bank", "digest_parts"),
    ("process", "registry", "digest_ranks", "switching"),
    ("lookups", "states", "process_fork", "named", "digest", "watch_generators"),
    ("named_states", "watch"),
    ("seeder", "checkpoint_format"),
    ("api",),
    ("agreement", "libraries"),
    ("pyt", "checkpoint", "data", "reproducible"),
    ("integrations", "audit"),
    ("doctor",),
    ("verify",),
    ("__init__",),
    ("cli",),
    ("__main__",),
)
LEVEL = {name: level for level, names in enumerate(LEVELS) for name in names}
# The same within a folder, or a folder's folder; to its outside it is one module.
INSIDE = {
    "data": (
        ("order", "shared"),
        ("job",),
        ("discovery",),
        ("samples",),
        ("sampler", "workers"),
        ("iterable", "drawing"),
        ("iteration",),
        ("counting", "loading"),
        ("resume",),
        ("__init__",),
    ),
    "integrations": (
        ("job",),
        ("__init__",),
        ("lightning", "accelerate", "transformers"),
    ),
    "environment": (
        ("names", "commands", "elf", "document"),
        ("blanking", "looks"),
        ("secrets",),
        ("folder", "git", "ranks"),
        ("software", "machine", "variables", "torch_state"),
        ("gpu", "libraries", "shell"),
        ("compare",),
        ("capturing",),
        ("__init__",),
    ),
    "lint": (
        ("rules", "dotted", "files", "torch_ops"),
        ("names",),
        ("suppression", "module"),
        ("seeding", "loaders", "epochs", "order", "operations"),
        ("generators", "project"),
        ("checking",),
        ("sarif",),
        ("__init__",),
    ),
    "verify": (
        ("result", "template", "processes"),
        ("readers_rows", "statistics", "recordings", "experiments"),
        ("readers_text", "readers_tensorboard", "directory", "verdict", "diagnosis"),
        ("readers", "probing"),
        ("reports", "running"),
        ("__init__",),
    ),
    "verify.reports": (
        ("document", "wording"),
        ("junit", "plots", "terminal"),
        ("page",),
        ("__init__",),
    ),
    "cli": (
        ("exits",),
        ("output",),
        ("run", "env", "bisect", "completion", "doctor", "lint", "verify"),
        ("__init__",),
    ),
}
INSIDE_LEVEL = {
    (folder, name): level
    for folder, levels in INSIDE.items()
    for level, names in enumerate(levels)
    for name in names
}
LIBRARIES = {"torch", "numpy"}  # of others: all that a module may import at its top
LONGEST = 420  # lines of a source file: "about 400"

MODULES = sorted(PACKAGE.rglob("*.py"))
SOURCES = sorted(p for p in NATIVE.rglob("*") if p.suffix in (".h", ".cpp", ".cu", ".cuh"))
FOLDERS = sorted(p.name for p in NATIVE.iterdir() if p.is_dir())


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


# ---------------------------------------------------------------- Python


def dotted(path: Path) -> str:
    """A module's name inside the package: ``pool``, ``data.sampler``, ``data.__init__``."""
    return str(path.relative_to(PACKAGE).with_suffix("")).replace("/", ".")


def imports(tree: ast.AST, folder: str = ""):
    """(module of the package, or None; the name of a library, or None) for each import.

    Modules of ``folder``, a folder of the package that the file lies in, are ``folder.module``.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                root, _, rest = alias.name.partition(".")
                yield (rest or "__init__", None) if root == "fastseed" else (None, root)
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if node.level == 0 and module.split(".")[0] != "fastseed":
                yield None, module.split(".")[0]
                continue
            parts = folder.split(".") if folder else []
            base = ".".join(parts[: len(parts) + 1 - node.level]) if node.level else ""
            inner = module if node.level else module.partition(".")[2]
            inner = ".".join(part for part in (base, inner) if part)
            if module and inner and inner != folder:
                yield inner, None
            else:  # from . import a, b: modules, or names of the package itself
                here = f"{inner}." if inner else ""
                for alias in node.names:
                    path = PACKAGE / here.replace(".", "/") / alias.name
                    found = path.with_suffix(".py").exists() or path.is_dir()
                    yield here + (alias.name if found else "__init__"), None


def levels_of(mine: str, other: str) -> tuple[int, int]:
    """The levels of two modules, or of the folders that hold them, where their paths part."""
    a, b = [*mine.split("."), "__init__"], [*other.split("."), "__init__"]
    common = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), None)
    if common is None:
        return 0, 0
    if common == 0:
        return LEVEL[a[0]], LEVEL[b[0]]
    folder = ".".join(a[:common])
    return INSIDE_LEVEL[folder, a[common]], INSIDE_LEVEL[folder, b[common]]


def top_level(tree: ast.Module):
    """The statements that importing the module runs, without the bodies of functions."""
    todo: list[ast.AST] = list(tree.body)
    while todo:
        node = todo.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            continue
        yield node
        todo.extend(ast.iter_child_nodes(node))


def test_every_module_has_a_level():
    for path in MODULES:
        folder, _, name = dotted(path).rpartition(".")
        assert dotted(path).partition(".")[0] in LEVEL, path
        assert not folder or (folder, name) in INSIDE_LEVEL, path
        outer, _, inner = folder.rpartition(".")
        assert not outer or (outer, inner) in INSIDE_LEVEL, path


def test_contributing_names_every_module():
    table = (ROOT / "CONTRIBUTING.md").read_text().partition("## Layout")[2].partition("\n## ")[0]
    named = re.findall(r"`(?:fastseed/)?([\w*]+)(?:\.py|/)`", table)
    for name in sorted({dotted(path).partition(".")[0] for path in MODULES}):
        assert any(fnmatch.fnmatchcase(name, pattern) for pattern in named), name


@pytest.mark.parametrize("path", MODULES, ids=dotted)
def test_python_imports_go_down(path):
    folder = dotted(path).rpartition(".")[0]
    for module, _ in imports(ast.parse(path.read_text()), folder):
        if module is not None:
            level, lower = levels_of(dotted(path), module)
            assert lower < level, f"{path.name} imports {module}"


@pytest.mark.parametrize("path", MODULES, ids=dotted)
def test_heavy_libraries_are_imported_where_they_are_needed(path):
    allowed = LIBRARIES | set(sys.stdlib_module_names)
    for node in top_level(ast.parse(path.read_text())):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            for _, library in imports(node):
                assert library is None or library in allowed, f"{path.name} imports {library}"


def test_the_check_of_imports_finds_what_it_should():
    tree = ast.parse("from . import _ops, __version__\nimport pandas\nfrom .pool import x\n")
    assert list(imports(tree)) == [
        ("_ops", None), ("__init__", None), (None, "pandas"), ("pool", None),
    ]  # fmt: skip
    tree = ast.parse("from .. import api\nfrom .order import x\n")
    assert list(imports(tree, "data")) == [("api", None), ("data.order", None)]
    tree = ast.parse(
        "from ... import api\nfrom .. import result\nfrom ..result import x\n"
        "from . import plots, y\nfrom .plots import z\nfrom ...pool import w\n"
    )
    assert [module for module, _ in imports(tree, "verify.reports")] == [
        *("api", "verify.result", "verify.result", "verify.reports.plots"),
        *("verify.reports.__init__", "verify.reports.plots", "pool"),
    ]
    up, down = levels_of("verify.result", "verify.reports.plots")
    assert up < down
    up, down = levels_of("verify.reports.plots", "verify.reports.page")
    assert up < down
    up, down = levels_of("data.order", "cli.run")
    assert up < down
    inside = ast.parse("def f():\n    import pandas\n")
    assert not any(isinstance(node, ast.Import) for node in top_level(inside))


# ---------------------------------------------------------------- C++


def includes(path: Path) -> list[tuple[str, str]]:
    """('"' or '<', the name) of each #include."""
    return re.findall(r'^\s*#\s*include\s*(["<])([^">]+)[">]', path.read_text(), re.MULTILINE)


def permissions() -> dict[str, tuple[set[str], bool]]:
    """The table of csrc/README.md: folder -> (folders it may include, whether torch's too)."""
    rows = re.findall(r"^\| `(\w+)/` \| ([^|]*) \|", (NATIVE / "README.md").read_text(), re.M)
    return {
        folder: ({folder, *re.findall(r"`(\w+)/`", may)}, bool(re.search(r"(?<!`)\btorch\b", may)))
        for folder, may in rows
    }


def test_csrc_readmes():
    assert sorted(permissions()) == FOLDERS
    for folder in FOLDERS:
        text = (NATIVE / folder / "README.md").read_text()
        assert len(text.splitlines()) >= 3 and "include" in text.lower(), folder
    assert permissions()["core"] == ({"core"}, False)
    assert permissions()["kernels"] == ({"kernels", "core"}, False)
    assert permissions()["torch"] == ({"torch", "kernels", "core"}, True)


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_cpp_includes_go_down(path):
    folder = path.relative_to(NATIVE).parts[0]
    folders, torch_too = permissions()[folder]
    for kind, name in includes(path):
        if kind == '"':
            target = (path.parent / name).resolve()
            assert target.is_file(), f"{name} is not a file of ours"
            assert target.relative_to(NATIVE).parts[0] in folders, name
        elif "/" in name or name.endswith(".h"):  # not of the C++ standard library
            intrinsics = folder == "kernels" and name == "immintrin.h"
            cuda = path.name == "device.cuh" and name == "cuda_runtime.h"
            assert torch_too or intrinsics or cuda, name
        assert name != "torch/extension.h", "takes minutes to compile"


def closure(path: Path) -> set[str]:
    """Every header that a file includes, through headers of ours."""
    found, todo = set(), [path]
    while todo:
        current = todo.pop()
        for kind, name in includes(current):
            found.add(name)
            if kind == '"':
                todo.append((current.parent / name).resolve())
    return found


@pytest.mark.parametrize("path", sorted((NATIVE / "torch").glob("ops*.cpp")), ids=relative)
def test_operators_use_the_stable_abi_alone(path):
    """So one binary of them serves every Python and every torch from 2.10."""
    for name in closure(path):
        if name.startswith(("torch/", "ATen/", "c10/", "pybind11/", "Python")):
            assert name.startswith(("torch/csrc/stable/", "torch/headeronly/")), name


@pytest.mark.parametrize("path", [p for p in SOURCES if p.suffix in (".h", ".cuh")], ids=relative)
def test_headers_are_included_once(path):
    assert "#pragma once" in path.read_text()


# ---------------------------------------------------------------- both


@pytest.mark.parametrize("path", MODULES + SOURCES, ids=relative)
def test_files_are_short(path):
    assert len(path.read_text().splitlines()) <= LONGEST
