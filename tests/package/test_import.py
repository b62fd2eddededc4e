"""Importing does nothing but import; the environment chooses the backend, and it is visible."""

import functools
import json
import logging
import pickle
import shutil
import subprocess
import traceback
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from helpers.processes import Script
from helpers.support import SCRIPTS, needs_native, run_python, run_script

import fastseed
from fastseed._backend import derive, native, parts
from fastseed.integrations import _common


@functools.cache
def imported(**environment):
    return run_script("import_effects.py", **environment)


def failing(**environment):
    """The last line of an import that fails."""
    return failure(SCRIPTS / "import_effects.py", **environment)


def failure(script, **environment):
    """The last line that a script prints before it fails."""
    done = Script(script, **environment).wait()
    assert done.returncode != 0
    return done.stderr.splitlines()[-1]


# ---------------------------------------------------------------- what it does


def test_import_compiles_nothing_touches_no_gpu_changes_no_generator():
    found = imported(fresh=True)
    assert found["did"] == []  # no process started, no file written, no connection made
    assert found["same states"] and found["same settings"]
    assert found["cuda"] is False


def test_import_is_light():
    found = imported(fresh=True)
    assert found["dynamo"] is False
    assert set(found["roots"]) <= {"fastseed", "numpy", "cython_runtime"} | {
        root for root in found["roots"] if root.startswith("_cython_")
    }
    assert found["torch modules"] == []


def test_version_is_that_of_the_package():
    assert fastseed.__version__ == version("fastseed") == fastseed.build_info()["version"]


# ---------------------------------------------------------------- which backend


def test_build_info_names_what_is_in_use():
    info = fastseed.build_info()
    assert info["backend"] == derive.backend in ("native", "reference")
    assert info["torch"] == torch.__version__
    assert info["derivation"] == 1
    assert info["simd"] == derive.simd()
    assert info["simd_paths"] == list(derive.simd_paths())
    if info["backend"] == "native":
        assert info["simd"] in info["simd_paths"] and info["simd_paths"][0] == "portable"
        assert info["native"] == "loaded" == info["generators"]
    else:
        assert info["simd"] is None and info["simd_paths"] == []
        assert info["native"].startswith("not used: ")
    assert all(isinstance(value, (str, int, list, type(None))) for value in info.values())


def test_backend_reference():
    info = imported(FASTSEED_BACKEND="reference")["build_info"]
    assert (info["backend"], info["simd"]) == ("reference", None)
    assert "FASTSEED_BACKEND=reference" in info["native"]


@needs_native
@pytest.mark.parametrize("backend", ["native", "auto", ""])
def test_backend_native(backend):
    info = imported(FASTSEED_BACKEND=backend)["build_info"]
    assert (info["backend"], info["native"]) == ("native", "loaded")


@pytest.mark.parametrize("backend", ["fast", "Native"])
def test_backend_unknown_is_refused(backend):
    said = failing(FASTSEED_BACKEND=backend)
    assert said.startswith("ValueError: fastseed: FASTSEED_BACKEND must be one of ")
    assert said.endswith(f"got {backend!r}")


@needs_native
def test_simd_path_from_the_environment():
    for path in ("portable", derive.simd_paths()[-1]):
        assert imported(FASTSEED_SIMD=path)["build_info"]["simd"] == path
    said = failing(FASTSEED_SIMD="sse9")
    assert "FASTSEED_SIMD must be one of portable" in said and said.endswith("got sse9")


class Twin:
    """A package of links to this one without its native code, and the script to import it."""

    def __init__(self, folder):
        self.package, self.script = folder / "fastseed", folder / "import_effects.py"
        source = Path(fastseed.__file__).parent
        for made in (self.package, self.package / "_backend"):
            made.mkdir()
        for entry in (*source.iterdir(), *source.glob("_backend/*")):
            link = self.package / entry.relative_to(source)
            if entry.suffix != ".so" and entry.name != "_backend":
                link.symlink_to(entry)
        shutil.copy(SCRIPTS / "import_effects.py", self.script)  # its folder is searched first

    def add_native_code(self, damaged):
        """Copy the binaries, one of them with its first bytes changed: it cannot be loaded."""
        for binary in Path(fastseed.__file__).parent.glob("*.so"):
            content = binary.read_bytes()
            junk = b"junk" + content[4:] if binary.name.startswith(damaged) else content
            (self.package / binary.name).write_bytes(junk)

    def pretend(self, name, value):
        """Let the script see another value in torch."""
        line = f"import torch\ntorch.{name} = {value!r}\n"
        self.script.write_text(line + self.script.read_text())

    def imported(self, backend="auto"):
        return json.loads(run_python(self.script, FASTSEED_BACKEND=backend).splitlines()[-1])

    def failing(self):
        return failure(self.script, FASTSEED_BACKEND="native")


@pytest.fixture
def twin(tmp_path):
    return Twin(tmp_path)


def test_without_native_code_the_reference_is_used_and_says_why(twin):
    info = twin.imported("auto")["build_info"]
    assert info["backend"] == "reference"
    assert info["native"] == "not used: the package was built without native code"
    said = twin.failing()
    assert said.startswith("ImportError: fastseed: FASTSEED_BACKEND=native, but the native code")
    assert "built without native code" in said
    (twin.package / "_backend" / "not_built.txt").write_text("there is no C++ compiler")
    found = twin.imported("auto")
    reason = "the package was built without native code: there is no C++ compiler"
    assert found["build_info"]["native"] == f"not used: {reason}"
    assert found["build_info"]["cuda"] == f"not used: {reason}"
    assert found["warnings"] == [f"fastseed: its native code is not used: {reason}"]


@needs_native
def test_damaged_operators_are_not_used(twin):
    twin.add_native_code("_kernels")
    found = twin.imported("auto")
    info, (warning,) = found["build_info"], found["warnings"]
    assert info["backend"] == "reference" and "_kernels" in info["native"]
    assert info["generators"] == info["native"]
    assert warning.startswith("fastseed: its native code is not used: ")
    assert "_kernels" in twin.failing()


@needs_native
def test_operators_of_another_version_are_not_loaded(twin):
    (twin.package / "_kernels_1.abi3.so").write_bytes(b"")
    assert "is not of this version of fastseed; build it again" in twin.failing()


@needs_native
def test_operators_are_used_without_the_module_of_generators(twin):
    """As in a wheel, or where the module was built for another torch or Python."""
    twin.add_native_code("_generators")
    for backend in ("auto", "native"):
        found = twin.imported(backend)
        info, (warning,) = found["build_info"], found["warnings"]
        assert (info["backend"], info["native"]) == ("native", "loaded")
        assert info["generators"].startswith("not used: ") and "_generators" in info["generators"]
        assert warning.startswith("fastseed: part of its native code is not used: ")


RELEASE = ".".join(torch.__version__.split(".")[:2])
needs_release = pytest.mark.skipif(
    parts.generators(torch.__version__) != parts.generators(f"{RELEASE}.0"),
    reason="the module is of this very torch",
)


@needs_native
@needs_release
@pytest.mark.parametrize(
    ("version", "is_used"),
    [(f"{RELEASE}.7", True), (f"{RELEASE}.0+cu130", True), (f"{RELEASE}.0a0+git5", False),
     (f"{RELEASE}.0.dev20261101", False), (f"{RELEASE}.0.post3", False), ("2.99.0", False)],
)  # fmt: skip
def test_generators_are_used_beside_final_releases_of_their_minor_version(twin, version, is_used):
    twin.add_native_code("none")
    twin.pretend("__version__", version)
    found = twin.imported()
    if is_used:
        assert (found["build_info"]["generators"], found["warnings"]) == ("loaded", [])
    else:
        said = f"the package has no _generators for torch {version} and Python "
        assert found["build_info"]["generators"].startswith(f"not used: {said}")
        (warning,) = found["warnings"]
        assert warning.startswith(f"fastseed: part of its native code is not used: {said}")


@needs_native
def test_generators_that_do_not_reach_torchs_states_are_refused(monkeypatch):
    def without_effect(generators):
        return SimpleNamespace(manual_seed=lambda seeds: None)

    module = SimpleNamespace(connect=lambda table: None, Pool=without_effect, __name__="other")
    monkeypatch.setattr(native.importlib, "import_module", lambda name: module)
    with pytest.raises(ImportError, match="other does not set the states of torch"):
        native._load_generators()


@needs_native
@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
@pytest.mark.parametrize(("driver", "is_used"), [(0, True), (13000, True), (12080, False)])
def test_cuda_kernels_are_not_used_under_a_driver_older_than_their_runtime(twin, driver, is_used):
    """A library in the place of `_cuda` gives the versions, beside what says to be a CUDA build."""
    twin.add_native_code("none")
    stub = twin.package / f"{parts.CUDA}.abi3.so"
    stub.unlink(missing_ok=True)
    code = f"int fastseed_cuda_driver() {{ return {driver}; }}"
    code += "int fastseed_cuda_runtime() { return 13000; }"
    command = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", stub]
    subprocess.run(command, input=code, text=True, check=True)
    twin.pretend("version.cuda", "13.0")
    found = twin.imported()
    if is_used:
        assert (found["build_info"]["cuda"], found["warnings"]) == ("loaded", [])
    else:
        said = "the NVIDIA driver is of CUDA 12.8, the CUDA kernels need one of 13.0; "
        assert found["build_info"]["cuda"].startswith(f"not used: {said}")
        (warning,) = found["warnings"]
        assert said in warning and found["build_info"]["generators"] == "loaded"


def test_log_line_names_the_backend(caplog):
    with caplog.at_level(logging.INFO, logger="fastseed"):
        fastseed.init(42)
    (record,) = caplog.records
    assert f"backend {derive.backend}" in record.getMessage()
    if derive.backend == "native":
        assert str(derive.simd()) in record.getMessage()


def test_import_loads_neither_torch_nor_numpy():
    code = (
        "import sys, fastseed; dir(fastseed); print([m in sys.modules for m in ('torch', 'numpy')])"
    )
    assert run_python("-c", code).strip() == "[False, False]"


def test_init_and_reseed_load_nothing_that_they_do_not_need(tmp_path):
    (tmp_path / "program.py").write_text(
        "import sys, fastseed; fastseed.init(42); fastseed.reseed(1)\n"
        "print([n for n in ('random', 'determinism') if f'fastseed.{n}' in sys.modules])\n"
    )
    assert run_python(tmp_path / "program.py").splitlines()[-1] == "[]"


def test_every_public_name_is_listed_and_found():
    assert len(fastseed.__all__) <= 23
    for name in fastseed.__all__:
        assert name in dir(fastseed) and getattr(fastseed, name) is not None
        if name not in ("SHARED", "__version__"):
            assert getattr(fastseed, name).__doc__


@pytest.mark.parametrize("name", ["seed", "manual_seed", "set_seed", "seed_everything"])
def test_names_of_other_libraries_name_init(name):
    with pytest.raises(
        AttributeError, match=rf"fastseed\.{name}: call fastseed\.init\(master_seed"
    ):
        getattr(fastseed, name)(42)
    with pytest.raises(TypeError, match=rf"name must be master_seed or one .*, got '{name}'"):
        fastseed.init(**{name: 42})


@pytest.mark.parametrize(
    ("name", "instead"),
    [("rand", "torch.rand"), ("randn", "fastseed.random.normal"), ("DataLoader", "data.steps")],
)
def test_names_of_torch_say_where_they_are(name, instead):
    with pytest.raises(AttributeError, match=rf"fastseed\.{name}: .*{instead}"):
        getattr(fastseed, name)


def test_reseed_error_is_shown_where_users_find_it():
    error = fastseed.ReseedError({"a": ValueError("x")})
    assert traceback.format_exception_only(error)[0].startswith("fastseed.ReseedError: ")
    assert type(pickle.loads(pickle.dumps(error))) is fastseed.ReseedError


def test_shared_has_a_name_in_messages():
    assert repr(fastseed.SHARED) == "fastseed.SHARED" and fastseed.SHARED == 2**24 - 1
    fastseed.init(42)
    with pytest.raises(ValueError, match=r"rank must be in \[0, fastseed.SHARED\]"):
        fastseed.derive_key("x", task=1, rank=2**24)


def test_the_script_for_type_checkers_has_every_name():
    script = (SCRIPTS / "every_name.py").read_text()
    assert [name for name in fastseed.__all__ if f"fastseed.{name}" not in script] == []


def test_a_framework_that_lacks_a_module_is_not_said_to_be_missing(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "framework.py").write_text("import framework_part")
    with pytest.raises(ModuleNotFoundError, match="No module named 'framework_part'"):
        _common.import_framework("framework", "trl")
    with pytest.raises(ImportError, match=r"fastseed\.integrations\.trl needs a\.b: pip install a"):
        _common.import_framework("a.b", "trl")
