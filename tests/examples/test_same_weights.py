"""The example that trains on any number of ranks, killed and not: one digest; another with DDP."""

import re
import subprocess
import sys

from helpers.paths import ROOT
from helpers.support import clean_environment

SCRIPT = ROOT / "examples" / "compare_same_weights.py"


def compare(tmp_path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, SCRIPT, "--out", tmp_path, *arguments],
        capture_output=True,
        text=True,
        timeout=280,
        env=clean_environment(),
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert done.stdout.endswith("VERDICT: the same weights, to the bit\n")
    return done.stdout


def test_layouts_have_one_digest_and_ddp_another(tmp_path):
    layouts = ("replicated:1", "replicated:3", "fsdp2:2", "hsdp:4", "ddp:2")
    found = compare(tmp_path, "--steps", "4", "--autocast", "--layout", *layouts)
    rows = re.findall(r"^ *(\w+ on \d): (\w+)  (\w+)  (\w+)$", found, re.MULTILINE)
    assert [name for name, *_ in rows] == [layout.replace(":", " on ") for layout in layouts]
    (_, *first), *others, (_, *ddp) = rows
    assert all(other == first for _, *other in others)
    assert ddp[0] != first[0] and ddp[1] != first[1]


def test_a_job_that_is_killed_ends_as_one_that_is_not(tmp_path):
    found = compare(tmp_path, "--steps", "16", "--kills", "3")
    assert found.count("killed\n") == 3
