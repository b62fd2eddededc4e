"""``python -m benchmarks.gpu``: every contender in a process of its own, then the table."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from . import card, contenders, report, targets
from .run_contender import append

ROOT = Path(__file__).resolve().parents[2]
RESERVE = 5.0  # seconds kept for the table
LEAST = 10.0  # seconds with which a process is still worth starting


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("--out", type=Path, metavar="FILE.jsonl", help="the lines")
    parser.add_argument("--log", type=Path, metavar="FILE", help="what the processes print")
    parser.add_argument("--only", default="", metavar="SUBSTRING", help="of a contender's name")
    parser.add_argument("--seconds", type=float, default=300, help="for everything (300)")
    parser.add_argument("--each", type=float, default=75, help="for one process at most (75)")
    parser.add_argument("--rehearse", action="store_true",
                        help="small, on the CPU: all the logic, and no figure")  # fmt: skip
    parser.add_argument("--list", action="store_true", help="name contenders and targets, and stop")
    return parser.parse_args(arguments)


def environment() -> dict[str, str]:
    """Limit the memory that JAX takes; run from the repository."""
    return {
        **os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false", "TF_CPP_MIN_LOG_LEVEL": "2",
        "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))),
    }  # fmt: skip


def command(name: str, out: Path, rehearse: bool) -> list[str]:
    """The process of a contender."""
    base = [sys.executable, "-m", "benchmarks.gpu.run_contender", name, "--out", str(out)]
    return [*base, "--rehearse"] if rehearse else base


def run_one(name: str, options: argparse.Namespace, seconds: float) -> dict[str, Any]:
    """Run a contender for so many seconds at most; how it ended."""
    begun = time.monotonic()
    log = options.log.open("a") if options.log is not None else None
    try:
        done = subprocess.run(
            command(name, options.out.resolve(), options.rehearse), cwd=ROOT, env=environment(),
            stdout=log, stderr=log, timeout=seconds,
        )  # fmt: skip
        status = "ok" if done.returncode == 0 else "failed"
        if done.returncode < 0:
            status = f"ended by signal {-done.returncode}"
    except subprocess.TimeoutExpired:
        status = "timed out"
    finally:
        if log is not None:
            log.close()
    return {
        "kind": "process", "process": name, "status": status,
        "seconds": round(time.monotonic() - begun, 1),
    }  # fmt: skip


def run(options: argparse.Namespace) -> None:
    """All contenders, as far as the time goes; each ended one leaves a line."""
    end = time.monotonic() + options.seconds - RESERVE
    append(options.out, card.describe(options.rehearse))
    for name in contenders.NAMES:
        if options.only not in name:
            continue
        left = min(options.each, end - time.monotonic())
        ended = {"kind": "process", "process": name, "status": "no time left", "seconds": 0}
        if left >= LEAST:
            ended = run_one(name, options, left)
        append(options.out, ended)
        print(f"{name}: {ended['status']}, {ended['seconds']} s", file=sys.stderr, flush=True)


def main(arguments: list[str] | None = None) -> int:
    """0, or 1 when an answer was wrong or fastseed failed; missed targets are only reported."""
    options = parse(arguments)
    if options.list:
        print("contenders:", *contenders.NAMES)
        for target in targets.TARGETS:
            print(f"{target.case}  vs {target.against}  {target.text}")
        return 0
    if options.out is None:
        print("benchmarks.gpu: --out is needed", file=sys.stderr)
        return 2
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text("")
    run(options)
    result = report.read(options.out)
    print(report.text(result))
    return int(report.failed(result))


if __name__ == "__main__":
    sys.exit(main())
