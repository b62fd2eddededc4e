"""fastseed.debug.check, and the subcommand: what is seeded, and what was drawn from."""

import json
import random
import subprocess
import sys

import numpy as np
import pytest
import torch
from helpers.support import snapshot, without_scope

import fastseed
from fastseed import cli
from fastseed.debug import checkup

pytestmark = pytest.mark.usefixtures("frozen_objects")


def rows(topic: str = "streams") -> dict[str, tuple[str, str]]:
    """The rows of a topic; without those of accelerators, which this machine may lack."""
    found = [row for row in fastseed.debug.check() if row.topic == topic]
    names = ("torch.cuda", "torch.xpu", "torch.mtia")
    return {r.item: (r.status, r.detail) for r in found if not r.item.startswith(names)}


def start() -> None:
    fastseed.init(42, rank=0, world_size=1)
    fastseed.reseed(1, 3)


def test_check_before_init_and_before_reseed():
    assert rows("job")["init"][0] == checkup.WRONG
    without_scope()
    assert rows("job")["scope"] == (
        checkup.WRONG, "nothing is seeded yet: call fastseed.reseed",
    )  # fmt: skip
    assert rows() == {}


def test_check_says_what_was_drawn_from():
    start()
    assert {detail for _, detail in rows().values()} == {"nothing drawn since reseed"}
    random.random(), torch.rand(())
    found = rows()
    assert found["python"] == (checkup.FINE, "drawn from since reseed, or seeded by a later call")
    assert found["numpy"] == (checkup.FINE, "nothing drawn since reseed")
    assert found["torch.cpu"] == (checkup.FINE, "drawn from since reseed")


def test_check_finds_torch_seeded_again():
    start()
    torch.manual_seed(7)
    status, detail = rows()["torch.cpu"]
    assert (status, detail[:12]) == (checkup.WRONG, "another seed")


def test_check_examines_registered_generators():
    fastseed.init(42, rank=0, world_size=1)
    early, other = torch.Generator(), random.Random()
    fastseed.register_generator(early, name="early")
    fastseed.register_generator(other, name="other", shared=True)
    fastseed.register_generator(lambda seed: None, name="function")
    fastseed.register_generator(
        fastseed.GeneratorPool([torch.Generator()] * 2, "pool"), name="pool"
    )
    fastseed.reseed(1, 0)
    fastseed.register_generator(np.random.RandomState(3), name="late")
    found = rows()
    assert found["early"] == (checkup.FINE, "nothing drawn since reseed")
    assert found["other"] == (checkup.FINE, "nothing drawn since reseed, shared")
    assert found["late"][1].startswith("drawn from since reseed, or seeded")
    assert found["function"] == (checkup.FINE, "a function, whose state is not examined")
    assert found["pool"] == (checkup.FINE, "a GeneratorPool, whose state is not examined")


@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.parametrize("ours", [True, False])
def test_check_names_loaders_whose_workers_reseed_does_not_reach(persistent, ours):
    start()
    loader = torch.utils.data.DataLoader(range(4), 2, num_workers=1, persistent_workers=persistent)
    batches = fastseed.data.steps(loader).in_epoch(0) if ours else iter(loader)
    next(batches)
    found = rows("process").get("DataLoader of range")
    assert (found is not None) == (persistent and not ours)
    assert not found or (found[0] == "note" and "fastseed.data.steps(loader)" in found[1])


def test_check_changes_nothing():
    start()
    torch.rand(3)
    before = snapshot()
    fastseed.debug.check()
    assert snapshot() == before


def test_check_needs_a_process_group_to_compare_ranks():
    start()
    (row,) = [r for r in fastseed.debug.check(ranks=True) if r.topic == "ranks"]
    assert row.status == checkup.NOTE
    with pytest.raises(TypeError, match=r"fastseed.debug.check: ranks must be a bool, got 1"):
        fastseed.debug.check(ranks=1)


SCRIPT = """
import sys
import numpy as np
import fastseed
fastseed.init(int(sys.argv[1]), rank=0, world_size=1)
fastseed.reseed(1, 0)
rng = np.random.default_rng(5)
{draw}
print("done")
"""


@pytest.mark.parametrize(
    ("how", "draw", "code"),
    [
        ("script", "", 0),
        ("script", "sys.exit(0)", 0),
        ("module", "rng.random()", 1),
        ("script", "rng.random(); sys.exit('no data')", 3),
    ],
)
def test_command_runs_a_program(tmp_path, capsys, monkeypatch, draw, code, how):
    script = tmp_path / "trained.py"
    script.write_text(SCRIPT.format(draw=draw))
    monkeypatch.syspath_prepend(tmp_path)
    program = [str(script)] if how == "script" else ["-m", "trained"]
    before = sys.argv, sys.path[:]
    assert cli.main(["check", "--json", *program, "42"]) == code
    assert (sys.argv, sys.path) == before
    report = json.loads(capsys.readouterr().out)
    assert {"streams", "job", "build", "process"} <= {row["topic"] for row in report["rows"]}
    used = [row["detail"] for row in report["rows"] if row["topic"] == "use"]
    assert used == (
        [f"drawn from, not registered: {script}:7; pass it to fastseed.register_generator"]
        if "rng" in draw
        else []
    )
    assert report["program"] == ("no data" if "no data" in draw else None)


def test_command_refuses_a_missing_program_before_it_imports_torch():
    code = (
        "import sys; from fastseed import cli; codes = [cli.main(['check', *a]) for a in"
        " ([], ['absent.py'], ['--', 'absent.py'])]; print(codes, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "[2, 2, 2] False\n" and "PROGRAM must be a file" in done.stderr
