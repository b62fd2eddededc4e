"""fastseed.deterministic: the settings, the report, and restoring them."""

import importlib.machinery
import os
import sys
import types

import pytest
import torch
import torch._inductor.config as inductor
from helpers.support import run_script

import fastseed
from fastseed.determinism import variables
from fastseed.determinism.switches import (
    SET,
    TOO_LATE,
    UNAVAILABLE,
    UNCHANGED,
    deterministic,
    requested,
)

VARIABLES = tuple(one.name for one in variables.VARIABLES)


def everything():
    """Return all that the call may change."""
    cuda, backends = torch.backends.cuda, torch.backends
    return {
        "algorithms": torch.are_deterministic_algorithms_enabled(),
        "warn_only": torch.is_deterministic_algorithms_warn_only_enabled(),
        "fill": torch.utils.deterministic.fill_uninitialized_memory,
        "cudnn": (backends.cudnn.deterministic, backends.cudnn.benchmark),
        "mkldnn": backends.mkldnn.deterministic,
        "inductor": inductor.deterministic,
        "attention": (
            *(cuda.flash_sdp_enabled(), cuda.mem_efficient_sdp_enabled()),
            *(cuda.math_sdp_enabled(), cuda.cudnn_sdp_enabled()),
        ),
        "environment": {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")},
    }


@pytest.fixture(autouse=True)
def unchanged_afterwards(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    before = everything()
    yield
    after = everything()
    # Variables that a test set itself are still there.
    assert {**after, "environment": before["environment"]} == before


@pytest.fixture
def cuda(monkeypatch):
    """Make torch look as if it had CUDA, not initialized."""
    state = types.SimpleNamespace(initialized=False, refusal=None)
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: state.initialized)
    monkeypatch.setattr(variables, "cublas_refusal", lambda: state.refusal)
    return state


@pytest.fixture
def nccl(monkeypatch):
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: True)


def planted(monkeypatch, name, **attributes):
    """Put a module of this name into sys.modules."""
    module = types.ModuleType(name)
    module.__spec__ = importlib.machinery.ModuleSpec(name, None)
    vars(module).update(attributes)
    monkeypatch.setitem(sys.modules, name, module)
    return module


# ---------------------------------------------------------------- switches


def test_switches_are_set_inside_and_restored_outside():
    before, drawn = everything(), torch.get_rng_state()
    with fastseed.deterministic() as report:
        now = everything()
        assert now["algorithms"] and not now["warn_only"] and now["fill"]
        assert now["cudnn"] == (True, False) and now["mkldnn"] and now["inductor"]
        assert now["attention"] == (True, True, True, False)
    assert everything() == before and torch.equal(torch.get_rng_state(), drawn)
    row = report["torch.use_deterministic_algorithms"]
    assert row[1:5] == (True, False, True, SET)
    assert report["torch.backends.cudnn.benchmark"].status == UNCHANGED


def test_warn_only_switches_off_attention_that_does_not_repeat():
    """Flash and memory-efficient attention have a deterministic backward in strict mode only."""
    with deterministic(warn_only=True) as report:
        assert everything()["attention"] == (False, False, True, False)
        assert report["torch.use_deterministic_algorithms"].now == "warn only"
    with deterministic(warn_only=True, attention="keep") as report:
        assert everything()["attention"] == (True, True, True, True)
        with pytest.raises(KeyError):
            report["scaled_dot_product_attention: flash"]


def test_torch_follows_the_switches():
    index, tensor = torch.tensor([0]), torch.zeros(3)
    tensor.put_(index, torch.ones(1))
    with deterministic():
        assert torch.empty(1000).isnan().all()
        with pytest.raises(RuntimeError, match="does not have a deterministic implementation"):
            tensor.put_(index, torch.ones(1))
    with deterministic(warn_only=True), pytest.warns(UserWarning, match="deterministic"):
        tensor.put_(index, torch.ones(1))
    with deterministic(fill_uninitialized_memory=False):
        assert not torch.utils.deterministic.fill_uninitialized_memory


def test_nested_contexts_are_restored_in_turn():
    with deterministic(warn_only=True):
        outer = everything()
        with deterministic():
            assert everything() != outer
            with deterministic(warn_only=True, fill_uninitialized_memory=False, attention="keep"):
                assert torch.is_deterministic_algorithms_warn_only_enabled()
            assert not torch.is_deterministic_algorithms_warn_only_enabled()
        assert everything() == outer


def test_settings_are_restored_after_an_error_and_changes_of_the_body(cuda):
    before = everything()
    with pytest.raises(ZeroDivisionError), deterministic():
        torch.use_deterministic_algorithms(False)
        torch.backends.cudnn.benchmark = True
        torch.backends.cuda.enable_cudnn_sdp(True)
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":16:8"
        1 / 0  # noqa: B018
    assert everything() == before


def test_earlier_settings_are_restored():
    """Inductor's switch is set here alone; torch's switch sets it too."""
    inductor.deterministic = torch.backends.cudnn.benchmark = True
    try:
        before = everything()
        with deterministic() as report:
            assert report["torch._inductor.config.deterministic"].status == UNCHANGED
            assert report["torch.backends.cudnn.benchmark"][1:5] == (False, True, False, SET)
        assert everything() == before
    finally:
        inductor.deterministic = torch.backends.cudnn.benchmark = False


def test_a_call_holds_until_restore():
    report = deterministic()
    try:
        assert torch.are_deterministic_algorithms_enabled()
    finally:
        report.restore()
    assert not torch.are_deterministic_algorithms_enabled()
    torch.utils.deterministic.fill_uninitialized_memory = False
    report.restore()  # a second time does nothing
    assert not torch.utils.deterministic.fill_uninitialized_memory
    torch.utils.deterministic.fill_uninitialized_memory = True
    with pytest.raises(RuntimeError, match=r"fastseed.deterministic: call it again"):
        report.__enter__()


def test_frozen_flags_are_an_error_and_nothing_else_stays_changed(monkeypatch):
    """torch freezes them for good, before the call or inside of the context."""
    module = torch.backends.flags_frozen.__globals__  # what disable_global_flags() changes for good
    flag, before = "__allow_nonbracketed_mutation_flag", everything()
    with monkeypatch.context() as patch:
        patch.setitem(module, flag, False)
        with pytest.raises(RuntimeError, match=r"fastseed.deterministic: torch.backends.cudnn.det"):
            deterministic()
        assert everything() == before
    patched, frozen = monkeypatch.context(), pytest.raises(RuntimeError, match="flags")
    with patched as patch, frozen, deterministic() as report:
        patch.setitem(module, flag, False)
    assert torch.backends.cudnn.deterministic and torch.backends.mkldnn.deterministic
    report.restore()
    assert everything() == before


# ---------------------------------------------------------------- variables


def test_variables_are_set_and_removed_again(cuda, nccl, monkeypatch):
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: True)
    monkeypatch.setattr(variables, "mkl_depends_on_alignment", lambda: False)
    for module in ("horovod", "transformer_engine", "flash_attn"):
        planted(monkeypatch, module)
    with deterministic() as report:
        assert {name: os.environ[name] for name in VARIABLES} == {
            "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
            "MKL_CBWR": "AUTO",
            "NCCL_ALGO": "Ring",
            "HOROVOD_FUSION_THRESHOLD": "0",
            "NVTE_ALLOW_NONDETERMINISTIC_ALGO": "0",
            "FLASH_ATTENTION_DETERMINISTIC": "1",
        }
        assert all(report[name].status == SET for name in VARIABLES)


def test_unavailable_libraries_are_reported_and_their_variables_not_set(monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: False)
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: False)
    for module in ("horovod", "transformer_engine", "flash_attn"):
        monkeypatch.setitem(sys.modules, module, None)
    with deterministic() as report:
        assert not set(VARIABLES) & set(os.environ)
        assert all(report[name].status == UNAVAILABLE for name in VARIABLES)
    assert report["CUBLAS_WORKSPACE_CONFIG"].why == "this torch has no CUDA"
    assert report["HOROVOD_FUSION_THRESHOLD"].why == "horovod is not installed"


@pytest.mark.parametrize(
    ("value", "refusal", "status"),
    [
        (None, "called before", TOO_LATE),
        (":4096:2", "called before", TOO_LATE),
        (":4096:8", "called before", TOO_LATE),
        (":16:8", None, UNCHANGED),
        (None, None, SET),
    ],
)
def test_cublas_is_too_late_if_torch_refuses_a_call(
    cuda, monkeypatch, caplog, value, refusal, status
):
    cuda.initialized, cuda.refusal = True, refusal
    if value is not None:
        monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", value)
    with deterministic() as report:
        now = os.environ.get("CUBLAS_WORKSPACE_CONFIG")
    row = report["CUBLAS_WORKSPACE_CONFIG"]
    assert row.status == status and now == (":4096:8" if status == SET else value)
    if status == TOO_LATE:
        assert not report.ok and "fastseed run --deterministic" in row.why
        assert "CUBLAS_WORKSPACE_CONFIG is too late: called before" in caplog.text


@pytest.mark.parametrize(
    "error, expected",
    [
        (None, None),
        ("… you must set CUBLAS_WORKSPACE_CONFIG=:4096:8", "torch has called cuBLAS before"),
        ("CUDA error: out of memory\nCompile with", "a test product failed: CUDA error: out of me"),
    ],
)
def test_cublas_is_tested_in_strict_mode_and_the_mode_restored(monkeypatch, error, expected):
    modes = []

    def mm(a, b):
        modes.append(torch.are_deterministic_algorithms_enabled())
        assert not torch.is_deterministic_algorithms_warn_only_enabled()
        if error is not None:
            raise RuntimeError(error)

    ones = torch.ones
    torch.use_deterministic_algorithms(True, warn_only=True)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch, "mm", mm)
    monkeypatch.setattr(torch, "ones", lambda *sizes, device: ones(*sizes))
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    found = variables.cublas_refusal()
    assert modes == [True]
    assert found is None if expected is None else expected in found
    assert torch.is_deterministic_algorithms_warn_only_enabled()
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert "captured" in variables.cublas_refusal() and len(modes) == 1
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize(
    "value, status",
    [("^NVLS", UNCHANGED), ("ring,CollnetChain", UNCHANGED), ("Ring,Tree", SET), ("", SET)],
)
def test_an_nccl_algorithm_that_repeats_is_kept(nccl, monkeypatch, value, status):
    monkeypatch.setenv("NCCL_ALGO", value)
    with deterministic() as report:
        assert report["NCCL_ALGO"].status == status
        assert os.environ["NCCL_ALGO"] == (value if status == UNCHANGED else "Ring")
    assert os.environ["NCCL_ALGO"] == value


@pytest.mark.parametrize("backends, status", [("cpu:gloo,cuda:nccl", TOO_LATE), ("cpu:gloo", SET)])
def test_nccl_with_a_process_group_is_too_late(nccl, monkeypatch, backends, status):
    distributed = torch.distributed
    monkeypatch.setattr(distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(distributed, "get_backend_config", lambda: backends)
    with deterministic() as report:
        assert report["NCCL_ALGO"].status == status
        assert ("NCCL_ALGO" in os.environ) is (status == SET)


def test_initialized_horovod_is_too_late(monkeypatch):
    planted(monkeypatch, "horovod")
    planted(monkeypatch, "horovod.torch", is_initialized=lambda: True)
    with deterministic() as report:
        assert report["HOROVOD_FUSION_THRESHOLD"].status == TOO_LATE
        assert "HOROVOD_FUSION_THRESHOLD" not in os.environ


def test_the_report_is_printable():
    with deterministic() as report:
        text = str(report)
    lines = text.splitlines()
    assert lines[0].split() == ["setting", "wanted", "before", "now", "status", "why"]
    assert len(lines) == 1 + len(report.rows)


# ---------------------------------------------------------------- through `fastseed run`


@pytest.mark.parametrize("mode, now", [("1", True), ("warn", "warn only")])
def test_init_takes_the_mode_from_the_environment(monkeypatch, mode, now):
    monkeypatch.setenv("FASTSEED_DETERMINISTIC", mode)
    with deterministic(warn_only=requested("init")) as report:
        assert report["torch.use_deterministic_algorithms"].now == now
    with deterministic(warn_only=mode != "warn", attention="keep"):
        outside = everything()
        held = deterministic(attention="keep")  # restores what init leaves set
        with held:
            fastseed.init(1)
            assert torch.are_deterministic_algorithms_enabled()
            assert torch.is_deterministic_algorithms_warn_only_enabled() is (mode == "warn")
        for i, kernel in ((0, "flash"), (1, "mem_efficient"), (3, "cudnn")):
            getattr(torch.backends.cuda, f"enable_{kernel}_sdp")(outside["attention"][i])


def test_no_mode_is_no_change_and_an_invalid_one_is_refused(monkeypatch):
    before = everything()
    for mode in ("", "0"):
        monkeypatch.setenv("FASTSEED_DETERMINISTIC", mode)
        assert requested("init") is None
    monkeypatch.setenv("FASTSEED_DETERMINISTIC", "yes")
    with pytest.raises(ValueError, match=r"FASTSEED_DETERMINISTIC must be one of .*, got 'yes'"):
        fastseed.init(1)
    assert {**everything(), "environment": before["environment"]} == before
    with pytest.raises(RuntimeError, match="init"):
        fastseed.get_master_seed()


@pytest.mark.needs_cuda
@pytest.mark.parametrize("order", ["early", "late"])
def test_cublas_on_a_device(order):
    seen = run_script("determinism_cublas.py", order)
    assert seen["cublas"] == (SET if order == "early" else TOO_LATE)
    assert seen["product"] == ("done" if order == "early" else "refused")
    assert seen["variable"] == (":4096:8" if order == "early" else None)
