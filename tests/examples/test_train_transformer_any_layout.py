"""The transformer example: the same weights and masks on every layout, but not with torch's own."""

import copy
import json
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.support import clean_environment

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
sys.path.insert(0, str(EXAMPLES))
from demolib.layouts import Comparison  # noqa: E402

SCRIPT = EXAMPLES / "train_transformer_any_layout.py"
LAYOUTS = [
    *("one", "micro", "checkpoint", "compiled", "ddp", "fsdp2", "tp", "fsdp2-tp", "fsdp2-tp-all")
]
STEPS = 3
LOG = {"weights": "aa", "masks": ["b0", "b1"], "losses": [4.0, 3.0]}


def run(out: Path, *arguments: str, launcher: tuple[str, ...] = ()) -> str:
    command = [sys.executable, *launcher, SCRIPT, "--steps", str(STEPS), "--out", out]
    done = subprocess.run(
        [*command, "--backend", "aot_eager", *arguments],
        capture_output=True,
        text=True,
        timeout=240,
        env=clean_environment(OMP_NUM_THREADS="1"),
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def out(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("layouts")
    assert "fastseed: weights and dropout from fastseed" in run(folder)
    return folder


def differing(out: Path, source: str, key: str) -> set[str]:
    """Return the layouts whose log differs from that of one process at every step."""
    logs = Comparison.read(out, source, LAYOUTS).logs
    lists = {name: log[key] if key == "masks" else [log[key]] for name, log in logs.items()}
    assert all(len(log["masks"]) == len(set(log["masks"])) == STEPS for log in logs.values())
    different = {n for n in lists if all(map(str.__ne__, lists[n], lists["one"]))}
    assert all(lists[n] == lists["one"] for n in {*lists} - different)
    return different


def test_fastseed_has_the_same_weights_and_masks_on_every_layout(out):
    assert differing(out, "fastseed", "weights") == set()
    assert differing(out, "fastseed", "masks") == set()
    assert Comparison.read(out, "fastseed", LAYOUTS).largest < 1e-4


def test_torch_initializes_other_weights_on_meshes(out):
    sharded = {"fsdp2", "tp", "fsdp2-tp", "fsdp2-tp-all"}
    assert differing(out, "torch-init", "weights") == sharded
    assert differing(out, "torch-init", "masks") == set()
    assert Comparison.read(out, "torch-init", LAYOUTS).largest > 0.01


def test_torch_drops_others_on_meshes_and_in_micro_batches(out):
    same = {"one", "checkpoint", "compiled"}  # aot_eager draws as eager torch does
    assert differing(out, "torch-dropout", "weights") == set()
    assert differing(out, "torch-dropout", "masks") == {*LAYOUTS} - same
    assert Comparison.read(out, "torch-dropout", LAYOUTS).largest > 0.001


def test_a_layout_that_torchrun_starts_is_one_of_them(out, tmp_path):
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    run(tmp_path, "--layout", "fsdp2", "--random", "fastseed", launcher=launcher)
    name = "fastseed.fsdp2.json"
    assert json.loads((tmp_path / name).read_text()) == json.loads((out / name).read_text())


@pytest.mark.smoke
@pytest.mark.parametrize(
    ("source", "change", "holds"),
    [
        ("fastseed", {}, True),
        ("fastseed", {"losses": [4.0, 3.00001]}, True),
        ("fastseed", {"losses": [4.0, 3.01]}, False),
        ("fastseed", {"losses": [4.0, float("nan")]}, False),
        ("fastseed", {"weights": "ab"}, False),
        ("fastseed", {"masks": ["b0", "b2"]}, False),
        ("torch-init", {}, False),
        ("torch-init", {"weights": "ab"}, True),
        ("torch-dropout", {"masks": ["b0", "b2"]}, True),
    ],
)
def test_comparison_detects_a_difference(source, change, holds):
    logs = {"one": LOG, "tp": copy.deepcopy(LOG) | change}
    assert Comparison(source, logs).holds() is holds
