"""fastseed.debug.check, and the subcommand: what is seeded, and how many words were drawn."""

from __future__ import annotations

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
        checkup.WRONG, "fastseed.reseed was not called: nothing is seeded yet",
    )  # fmt: skip
    assert rows() == {}


def test_check_counts_words():
    start()
    assert {detail for _, detail in rows().values()} == {"nothing drawn since reseed"}
    random.getrandbits(32)
    np.random.randint(0, 2**32, 1000, dtype=np.uint32)
    torch.empty(700, dtype=torch.int32).random_()
    found = rows()
    assert found["python"] == (checkup.FINE, "1 words drawn since reseed")
    assert found["numpy"] == (checkup.FINE, "1000 words drawn since reseed")
    assert found["torch.cpu"] == (checkup.FINE, "700 words drawn since reseed")


@pytest.mark.parametrize("n", [1, 623, 624, 625, 1247, 1248, 1249, 6240])
def test_check_counts_across_states(n):
    start()
    for _ in range(n):
        random.getrandbits(32)
    np.random.randint(0, 2**32, n, dtype=np.uint32)
    torch.empty(n, dtype=torch.int32).random_()
    assert {detail for _, detail in rows().values()} == {f"{n} words drawn since reseed"}


@pytest.mark.parametrize(
    ("name", "seed"),
    [
        ("python", lambda: random.seed(7)),
        ("numpy", lambda: np.random.seed(7)),
        ("torch.cpu", lambda: torch.manual_seed(7)),
    ],
)
def test_check_finds_generators_that_were_seeded_again(name, seed):
    start()
    seed()
    found = {item: row for item, row in rows().items() if row[0] != checkup.FINE}
    assert list(found) == [name]
    status, detail = found[name]
    if name == "torch.cpu":  # torch stores its seed
        assert (status, detail[:16]) == (checkup.WRONG, "has another seed")
    else:
        assert status == checkup.NOTE and detail.startswith("not within 2,500,000 words")


def test_check_does_not_accuse_a_stream_that_was_drawn_far(monkeypatch):
    monkeypatch.setattr(checkup, "_MAX_DRAWN", 1000)
    start()
    torch.rand(3000)
    random.getrandbits(32 * 3000)
    found = rows()
    for name in ("torch.cpu", "python"):
        assert found[name][0] == checkup.NOTE and "not within 1,000 words" in found[name][1]


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
    assert found["late"][0] == checkup.NOTE
    assert found["function"] == (checkup.FINE, "a function, whose state is not examined")
    assert found["pool"] == (checkup.FINE, "2 members")


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


# ---------------------------------------------------------------- the command

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
    ("draw", "code"), [("", 0), ("rng.random()", 1), ("sys.exit('no data')", 1)]
)
@pytest.mark.parametrize("how", ["script", "module"])
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
    assert used == ([f"drawn from, not registered: {script}:7"] if "rng" in draw else [])
    assert report["program"] == ("no data" if "exit" in draw else None)


def test_command_without_a_program(capsys):
    assert cli.main(["check"]) == 0
    printed = capsys.readouterr().out
    assert "backend" in printed and "PYTHONHASHSEED" in printed and "master seed" not in printed


def test_command_refuses_a_missing_program_before_it_imports_torch():
    code = (
        "import sys; from fastseed import cli; codes = [cli.main(['check', *a]) for a in"
        " (['no_such_file.py'], ['--', 'no_such_file.py'])]; print(codes, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "[2, 2] False\n" and "PROGRAM must be a file" in done.stderr
