"""The architecture: folders import downwards, files are short, C++ includes by its README."""

import ast
import functools
import importlib
import re
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from helpers.paths import ROOT

PACKAGE, NATIVE = ROOT / "fastseed", ROOT / "csrc"

# From the bottom to the top. A folder imports from lower lines only.
LAYERS = (
    {"_utils"},
    {"_backend"},
    {"derivation"},
    {"distributed"},
    {"random", "generators", "determinism"},
    {"seeder"},
    {"digest", "nn", "sampling", "rollouts", "data", "checkpoint"},
    {"debug", "elastic"},
    {"tools", "integrations"},
    {"cli"},
)
LEVEL = {folder: level for level, folders in enumerate(LAYERS) for folder in folders}
ROOT_MODULES = {"__init__", "__main__", "pyt"}
# What torch documents, though in private modules.
DOCUMENTED = {
    "torch.utils._pytree.tree_leaves",
    "torch.utils._python_dispatch.TorchDispatchMode",
    "torch._utils",  # in files that were saved
}
LIGHT = {"torch", "numpy"}  # what a module may import at its top, besides the standard library
LONGEST = 420  # lines of a file

MODULES = {
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts): path
    for path in sorted(PACKAGE.rglob("*.py"))
}
SOURCES = sorted(p for p in NATIVE.rglob("*") if p.suffix in (".h", ".cpp", ".cu", ".cuh"))


def imported_modules(name: str, tree: ast.AST) -> set[str]:
    """Return the modules of the package that module ``name`` imports, for types alone too."""
    package = name.split(".")[:-1]
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            absolute = [alias.name for alias in node.names]
            targets = [n.removeprefix("fastseed.") for n in absolute if n.startswith("fastseed.")]
        elif isinstance(node, ast.ImportFrom):
            module = node.module.split(".") if node.module else []
            if node.level == 0:
                if module[0] != "fastseed":
                    continue
                base = module[1:]
            else:
                base = [*package[: len(package) + 1 - node.level], *module]
            targets = [".".join([*base, alias.name]) for alias in node.names]
        else:
            continue
        for target in targets:
            parts = target.split(".")
            candidates = (target, f"{target}.__init__", ".".join(parts[:-1]))
            fallback = ".".join([*parts[:-1], "__init__"])
            found.add(next((c for c in candidates if c in MODULES), fallback))
    return found - {name}


@functools.cache
def trees() -> dict[str, ast.Module]:
    return {name: ast.parse(path.read_text()) for name, path in MODULES.items()}


@functools.cache
def imports() -> dict[str, set[str]]:
    return {name: imported_modules(name, tree) for name, tree in trees().items()}


def folder_of(name: str) -> str:
    return name.partition(".")[0]


def test_the_root_of_the_package_holds_no_modules():
    assert {name for name in MODULES if "." not in name} == ROOT_MODULES
    assert {folder_of(name) for name in MODULES} - ROOT_MODULES == set(LEVEL)


def test_folders_import_downwards():
    upward = [
        f"{name} imports {other}"
        for name, others in imports().items()
        for other in sorted(others)
        if folder_of(name) not in ROOT_MODULES and folder_of(name) != folder_of(other)
        if LEVEL.get(folder_of(other), len(LAYERS)) >= LEVEL[folder_of(name)]
    ]
    assert not upward, "\n".join(upward)


def test_modules_import_without_a_circle():
    graph = {name: others for name, others in imports().items() if name not in ROOT_MODULES}
    list(TopologicalSorter(graph).static_order())  # CycleError names the circle


def test_folders_inside_a_package_import_without_a_circle():
    """Those beside each other; modules that lie beside them may import all of them."""
    graph: dict[tuple[str, ...], set[tuple[str, ...]]] = {}
    for name, others in imports().items():
        for other in others:
            paths = name.split(".")[:-1], other.split(".")[:-1]
            pairs = enumerate(zip(*paths, strict=False))
            same = next((i for i, (a, b) in pairs if a != b), min(map(len, paths)))
            if same and all(len(path) > same for path in paths):
                source, target = (tuple(path[: same + 1]) for path in paths)
                graph.setdefault(source, set()).add(target)
    list(TopologicalSorter(graph).static_order())


PRIVATE = re.compile(r"_(?!_)")
# Of tuples, and what Python, NumPy, Lightning and Accelerate have under no other name.
SPARED = {
    *("_asdict", "_field_defaults", "_fields", "_make", "_replace"),
    *("_getframe", "_get_running_loop", "_DummyThread", "_inst", "_rand"),
    *("_sampler", "_dataloaders", "_drop_last"),
}
BACKEND = {"_backend.private_torch", "_backend.private_distributed"}


def private_names(tree: ast.AST, *, used: bool) -> set[str]:
    """Return the private attributes that a module reads of other objects, or those it defines."""
    found = set()
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Attribute):
            is_own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            names = [node.attr] if is_own != used else []
        elif isinstance(node, ast.Call) and used:  # of getattr(value, "_name")
            name = node.args[1] if len(node.args) > 1 else None
            is_get = isinstance(node.func, ast.Name) and node.func.id in ("getattr", "hasattr")
            names = [name.value] if is_get and isinstance(name, ast.Constant) else []
        elif not used and isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names = [node.name]
        elif not used and isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names = [node.id]
        found.update(name for name in names if PRIVATE.match(name))
    return found


def test_no_package_reads_a_private_attribute_of_another():
    """Of a library, none that this package has not; torch's are in two files of the backend."""
    own: dict[str, set[str]] = {}
    for name, tree in trees().items():
        own.setdefault(folder_of(name), set()).update(private_names(tree, used=False))
    found = {
        name: private_names(tree, used=True) - own[folder_of(name)] - SPARED
        for name, tree in trees().items()
    }
    assert {name: names for name, names in found.items() if names and name not in BACKEND} == {}


def test_private_modules_of_torch_are_imported_in_two_files():
    for name, tree in trees().items():
        for node in ast.walk(tree):
            used = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                used = [f"{node.module}.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.Constant) and not re.search(r"\s", str(node.value)):
                used = [str(node.value)]
            private = {one for one in used if re.match(r"torch\b.*\._(?!_)", one)}
            assert name in BACKEND or private <= DOCUMENTED, (name, private)


def test_each_fact_has_the_holder_that_contributing_names():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    part = text[text.index("One holder has each fact") : text.index("## Rules")]
    holders = re.findall(r"^- .*: `([\w./]+)`$", part, re.MULTILINE)
    assert len(holders) == 14 and (ROOT / holders.pop()).is_file()
    for holder in holders:
        module, _, name = holder.rpartition(".")
        assert hasattr(importlib.import_module(f"fastseed.{module}"), name), holder
    assert len(text.split()) <= 900


def test_heavy_libraries_are_imported_inside_functions():
    allowed = LIGHT | set(sys.stdlib_module_names)
    for name, path in MODULES.items():
        todo: list[ast.AST] = [ast.parse(path.read_text())]
        while todo:
            node = todo.pop()
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
                continue
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
                continue
            if isinstance(node, ast.Import):
                roots = {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                roots = {(node.module or "").split(".")[0]}
            else:
                todo.extend(ast.iter_child_nodes(node))
                continue
            assert roots <= allowed, f"{name} imports {roots}"


# ---------------------------------------------------------------- C++


def includes(path: Path) -> list[tuple[str, str]]:
    """Return ('"' or '<', file name) for each #include."""
    return re.findall(r'^\s*#\s*include\s*(["<])([^">]+)[">]', path.read_text(), re.MULTILINE)


def permissions() -> dict[str, tuple[set[str], str]]:
    """Read the table of csrc/README.md: folder -> (folders it may include, other libraries)."""
    rows = re.findall(r"^\| `(\w+)/` \| ([^|]*) \|", (NATIVE / "README.md").read_text(), re.M)
    return {
        folder: ({folder, *re.findall(r"`(\w+)/`", may)}, re.sub(r"`\w+/`", "", may))
        for folder, may in rows
    }


def test_every_folder_of_csrc_has_a_readme_and_a_row():
    folders = {p.name for p in NATIVE.iterdir() if p.is_dir()}
    assert set(permissions()) == folders == {"core", "cpu", "cuda", "ops", "python"}
    for folder in folders:
        assert "include" in (NATIVE / folder / "README.md").read_text().lower()


@pytest.mark.parametrize("folder", ["core", "cpu", "cuda", "ops", "python"])
def test_cpp_includes_go_down(folder):
    folders, others = permissions()[folder]
    for path in sorted((NATIVE / folder).iterdir()):
        if path.suffix == ".md":
            continue
        for kind, name in includes(path):
            if kind == '"':
                target = (path.parent / name).resolve()
                assert target.is_file(), f"{path.name} includes {name}, which does not exist"
                assert target.relative_to(NATIVE).parts[0] in folders, f"{path.name}: {name}"
            elif "/" in name or name.endswith(".h"):  # not the C++ standard library
                intrinsics = folder == "cpu" and name == "immintrin.h"
                cuda = path.name == "device.cuh" and name == "cuda_runtime.h"
                assert "torch" in others or intrinsics or cuda, f"{path.name}: {name}"
            if path.suffix in (".h", ".cuh"):
                assert "#pragma once" in path.read_text(), path.name


def test_operators_use_the_stable_abi_alone():
    """One binary of them serves every Python and every torch from 2.10."""
    todo, seen = list((NATIVE / "ops").glob("*.cpp")), set()
    while todo:
        path = todo.pop()
        for kind, name in includes(path):
            if kind == '"' and (inner := (path.parent / name).resolve()) not in seen:
                seen.add(inner)
                todo.append(inner)
            elif name.startswith(("torch/", "ATen/", "c10/", "pybind11/", "Python")):
                assert name.startswith(("torch/csrc/stable/", "torch/headeronly/")), name


def test_files_are_short():
    for path in [*MODULES.values(), *SOURCES]:
        assert len(path.read_text().splitlines()) <= LONGEST, path


def test_tests_of_data_know_the_inside_through_one_door():
    """``tests/helpers/inside.py`` names what they use besides the public packages."""
    private = re.compile(r"(from|import) fastseed\.\w+\.|fastseed\.(_[a-z]|derivation\b)")
    paths = sorted((ROOT / "tests" / "data").glob("*.py"))
    assert not [path.name for path in paths if private.search(path.read_text())]
    door = (ROOT / "tests" / "helpers" / "inside.py").read_text()
    imports = [node for node in ast.parse(door).body if isinstance(node, ast.ImportFrom)]
    assert sum(len(node.names) for node in imports) <= 40 and door.count("\n") <= 150
