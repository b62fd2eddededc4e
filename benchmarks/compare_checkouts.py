"""``python -m benchmarks.compare_checkouts OLD NEW``: which cases are slower than before?

A round runs all cases, quickly, in a process of each checkout; the two take turns in going first.
Both have this runner. Cases whose median ratio is over the limit run again, one by one, in full.
``--rename old=new`` says that the names that began with ``old`` begin with ``new`` now.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

Ratios = dict[str, list[float]]
Names = dict[str, tuple[str | None, str | None]]


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare_checkouts")
    parser.add_argument("old", type=Path, help="a checkout, built")
    parser.add_argument("new", type=Path, help="another one")
    parser.add_argument("--only", default="", metavar="SUBSTRING", help="of the case's name")
    parser.add_argument("--rounds", type=int, default=5, help="processes of each checkout")
    parser.add_argument("--limit", type=float, default=1.05, help="new / old that is too slow")
    parser.add_argument("--rename", action="append", default=[], metavar="OLD=NEW")
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="write the ratios here")
    return parser.parse_args(arguments)


def python_of(checkout: Path) -> str:
    """Return the interpreter of a checkout's own environment, else this one."""
    own = checkout / ".venv" / "bin" / "python"
    return os.fspath(own) if own.exists() else sys.executable


def seconds_of(checkout: Path, only: str, *options: str) -> dict[str, float]:
    """Return the median time of each case that a new process could run, by its name."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "rows.jsonl"
        command = [python_of(checkout), "-m", "benchmarks", "--all", "--out", os.fspath(out)]
        subprocess.run(
            [*command, "--only", only, *options],
            cwd=checkout,
            env={**os.environ, "PYTHONPATH": os.fspath(checkout)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        )
        lines = out.read_text("utf-8").splitlines() if out.exists() else []
    rows = map(json.loads, lines)
    return {row["case"]: 1e-6 * row["us"] for row in rows if "us" in row}


def new_name(name: str, renamed: list[str]) -> str:
    """Return what a case of the old checkout is called now."""
    for text in renamed:
        old, _, new = text.partition("=")
        if name.startswith(old):
            return new + name.removeprefix(old)
    return name


def compare(options: argparse.Namespace, old: str, new: str, *how: str) -> tuple[Ratios, Names]:
    """Return new / old of each round by case, and by the new name that of each checkout.

    ``old`` and ``new`` choose the cases of the checkouts, as ``--only`` does.
    """
    ratios: Ratios = {}
    names: Names = {}
    for number in range(options.rounds):
        if number % 2 == 0:
            before = seconds_of(options.old, old, *how)
            after = seconds_of(options.new, new, *how)
        else:
            after = seconds_of(options.new, new, *how)
            before = seconds_of(options.old, old, *how)
        names.update({name: (None, name) for name in after if name not in names})
        for name, seconds in before.items():
            now = new_name(name, options.rename)
            names[now] = (name, now if now in after else None)
            if now in after:
                ratios.setdefault(now, []).append(after[now] / seconds)
    return ratios, names


def main(arguments: list[str] | None = None) -> int:
    """0, or 1 if a case is slower than the limit."""
    options = parse(arguments)
    ratios, names = compare(options, options.only, options.only, "--quick")
    slower = []
    for name in sorted(ratios):
        if statistics.median(ratios[name]) > options.limit:
            ratios |= compare(options, *names[name])[0]
        middle = statistics.median(ratios[name])
        is_slower = middle > options.limit
        slower += [name] * is_slower
        mark = "SLOWER" if is_slower else "      "
        low, high = min(ratios[name]), max(ratios[name])
        print(f"{middle:5.2f} x {mark} {name}  [{low:.2f}, {high:.2f}]", flush=True)
    for name, (before, after) in sorted(names.items()):
        if before is None or after is None:
            print(f"only {'new' if before is None else 'old'}  {name}")
    if options.out is not None:
        options.out.write_text(json.dumps(ratios, indent=1) + "\n")
    print(f"{len(slower)} of {len(ratios)} cases are more than {options.limit:g} x as slow")
    return int(bool(slower))


if __name__ == "__main__":
    sys.exit(main())
