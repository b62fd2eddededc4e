"""Run ``train_same_weights.py`` on many layouts, or kill it again and again, and compare the bits.

    python examples/compare_same_weights.py                # a table of layouts and digests
    python examples/compare_same_weights.py --kills 20     # ranks killed, other numbers of ranks

The exit status is 0 only if all layouts, or the run that was killed and the one that was not, have
the same weights, optimizer state and losses to the bit, and DistributedDataParallel has others.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import random
import signal
import sys
from pathlib import Path
from typing import Any

from demolib import kills
from demolib.launch import JobFailed, run_job, with_torchrun

SCRIPT = Path(__file__).resolve().with_name("train_same_weights.py")
LAYOUTS = {
    "replicated": (1, 2, 3, 4, 5, 8),
    "fsdp2": (2, 3, 4),
    "hsdp": (4,),
    "ddp": (1, 2, 4),
}
KEYS = ("weights", "optimizer", "losses")


def train(folder: Path, layout: str, ranks: int, options: list[str], **job: Any) -> dict[str, str]:
    """Train on a layout, and return the digests of the result."""
    folder.mkdir(parents=True, exist_ok=True)
    result = folder / "result.json"
    arguments = ["--layout", layout, "--result", str(result), *options]
    run_job(with_torchrun(SCRIPT, arguments, ranks), folder / "output.log", 3600, **job)
    found = json.loads(result.read_text())
    found["losses"] = hashlib.sha256(json.dumps(found["losses"]).encode()).hexdigest()
    return found


def compare_layouts(args: argparse.Namespace, options: list[str]) -> bool:
    """Print a row for each layout, and return whether all agree but those of DDP."""
    rows, controls = [], []
    for name in args.layout:
        layout, _, count = name.partition(":")
        for ranks in [int(count)] if count else LAYOUTS[layout]:
            found = train(args.out / f"{layout}-{ranks}", layout, ranks, options)
            (controls if layout == "ddp" else rows).append(found)
            shown = "  ".join(found[key][:12] for key in KEYS)
            print(f"{layout:>10} on {ranks}: {shown}", flush=True)
    differ = all(row["weights"] != rows[0]["weights"] for row in controls)
    return differ and all(row == rows[0] for row in rows)


class Killer:
    """Kills one rank of a job by SIGKILL once it has trained a number of steps."""

    def __init__(self, out: Path, rank: int, step: int) -> None:
        self.file, self.rank, self.step, self.done = out / f"rank{rank}", rank, step, False

    def __call__(self) -> None:
        with contextlib.suppress(FileNotFoundError, ValueError, ProcessLookupError):
            process, step = map(int, self.file.read_text().split())
            if not self.done and step >= self.step:
                os.kill(process, signal.SIGKILL)
                self.done = True
                print(f"step {step:4}: rank {self.rank} killed", flush=True)


def compare_killed(args: argparse.Namespace, options: list[str]) -> bool:
    """Kill ranks of a job, resume on other numbers of ranks, and compare with a run of one."""
    whole = train(args.out / "whole", "replicated", 1, options)
    out = kills.empty_folder(args.out / "killed")
    chance = random.Random(args.chaos_seed)
    options = [*options, "--out", str(out), "--save-every", "5"]
    step, count = 0, 0
    while count < args.kills:
        for file in out.glob("rank*"):
            file.unlink()
        ranks = chance.randint(1, 5)
        layout = chance.choice(["replicated", "fsdp2"]) if ranks > 1 else "replicated"
        step += chance.randint(1, max(2 * args.steps // (args.kills + 1) - 1, 1))
        killer = Killer(out, chance.randrange(ranks), min(step, args.steps - 1))
        print(f"{layout} on {ranks}: ", end="")
        try:
            train(out / "attempt", layout, ranks, options, tick=killer)
        except JobFailed as failure:
            if not killer.done:
                raise failure
        count += killer.done
    found = train(out / "attempt", "replicated", chance.randint(1, 5), options)
    for name, row in (("whole", whole), ("killed", found)):
        print(f"{name:>7}: {'  '.join(row[key][:12] for key in KEYS)}")
    return found == whole


def main() -> int:
    parser = kills.parser(__doc__.splitlines()[0], "same-weights-output", kills=0)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--autocast", action="store_true", help="compute in bfloat16")
    parser.add_argument(
        "--layout", nargs="+", default=list(LAYOUTS), help="such as hsdp or fsdp2:3"
    )
    args = parser.parse_args()
    args.out = args.out.resolve()
    options = ["--steps", str(args.steps), "--seed", str(args.seed)]
    options += ["--autocast"] if args.autocast else []
    same = (compare_killed if args.kills else compare_layouts)(args, options)
    print("VERDICT:", "the same weights, to the bit" if same else "NOT the same")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
