"""Show that a seeded job repeats to the last bit, however it is run, and an unseeded one does not.

``train_digits.py`` trains five times on two ranks:

    (a)       with a seed, under torchrun
    (b)       with the same seed, stopped half-way and resumed by new processes
    (c)       with the same seed, its ranks started by hand
    (d1) (d2) without a seed, once started in either way

A table, a chart and a JSON file say what came out. The exit status is 0 only if (a), (b) and (c)
end with bit-identical parameters on every rank, and (d1) and (d2) with others.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from demolib.launch import Command, JobFailed, by_hand, run_job, with_torchrun
from demolib.report import draw, table, write_json
from demolib.results import Run, rank_files, read_run, verdict
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

HERE = Path(__file__).resolve().parent
RANKS = 2


@dataclass(frozen=True)
class Launch:
    """One start of the training script, up to so many epochs."""

    folder: Path
    launcher: Callable[[Path, list[str], int], list[Command]]
    epochs: int
    arguments: list[str]

    def commands(self) -> list[Command]:
        ours = ["--epochs", str(self.epochs), "--metrics", str(self.folder)]
        return self.launcher(HERE / "train_digits.py", [*self.arguments, *ours], RANKS)

    def epochs_done(self) -> int:
        """Read off the first rank's metrics while it trains."""
        return sum(file.read_text().count('"epoch",') for file in rank_files(self.folder)[:1])


def plan(out: Path, args: argparse.Namespace) -> dict[str, tuple[str, list[Launch]]]:
    """By name: how the run is described, and its launches one after the other."""
    epochs = args.epochs
    usual = by_hand if args.quick else with_torchrun  # torchrun takes two seconds to start
    seeded = ["--seed", str(args.seed)]
    checkpoint = str(out / "b.pt")
    save, resume = ["--checkpoint", checkpoint], ["--resume", checkpoint]
    return {
        "a": ("torchrun", [Launch(out / "a", with_torchrun, epochs, seeded)]),
        "b": (
            "resumed",
            [
                Launch(out / "b1", usual, epochs // 2, [*seeded, *save]),
                Launch(out / "b2", usual, epochs, resume),
            ],
        ),
        "c": ("by hand", [Launch(out / "c", by_hand, epochs, seeded)]),
        "d1": ("no seed", [Launch(out / "d1", usual, epochs, [])]),
        "d2": ("no seed", [Launch(out / "d2", by_hand, epochs, [])]),
    }


def train(name: str, how: str, launches: list[Launch], progress: Progress) -> Run:
    """Run the launches of one run, with a bar that follows its epochs."""
    bar = progress.add_task(f"({name}) {how}", total=launches[-1].epochs)
    seconds = 0.0
    done = 0
    for launch in launches:
        launch.folder.mkdir(parents=True)

        def tick(launch: Launch = launch, done: int = done) -> None:
            progress.update(bar, completed=done + launch.epochs_done())

        output = launch.folder / "output.txt"
        timeout = 120 + 2 * launch.epochs
        seconds += run_job(launch.commands(), output, timeout, tick)
        done += launch.epochs_done()
    return read_run(name, how, [launch.folder for launch in launches], seconds)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train five times; three must agree to the bit.")
    parser.add_argument("--epochs", type=int, default=40, help="of each run (default: 40)")
    parser.add_argument("--seed", type=int, default=20260, help="master seed of (a), (b) and (c)")
    parser.add_argument("--out", type=Path, default=HERE.parent / "demo-output")
    parser.add_argument(
        "--quick", action="store_true", help="4 epochs, and torchrun for (a) only: for tests"
    )
    args = parser.parse_args()
    if args.quick:
        args.epochs = 4
    if args.epochs < 2:
        parser.error(f"--epochs must be at least 2, to be stopped half-way, got {args.epochs}")
    return args


def main() -> int:
    args = parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that run_job can clean up
    begin = time.monotonic()
    console = Console()
    folder = args.out.resolve() / "runs"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)

    runs: dict[str, Run] = {}
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    progress = Progress(*columns, TimeElapsedColumn(), console=console, transient=True)
    progress.disable = not console.is_terminal
    console.print(f"Training a digits classifier five times, {args.epochs} epochs, {RANKS} ranks")
    try:
        with progress:
            for name, (how, launches) in plan(folder, args).items():
                runs[name] = train(name, how, launches, progress)
                if not console.is_terminal:
                    console.print(f"({name}) {how}: {runs[name].seconds:.0f} s")
    except JobFailed as failure:
        console.print(f"VERDICT: a training job failed.\n{failure}", markup=False, style="red")
        return 2
    except KeyboardInterrupt:
        return 130

    checks = verdict(
        runs,
        seed=args.seed,
        epochs=args.epochs,
        ranks=RANKS,
        least_accuracy=0.9 if args.epochs >= 30 else 0.5,  # guessing would be right about 10%
    )
    everything = list(runs.values())
    repeatable = all(check.holds for check in checks)
    chart, facts = args.out / "loss-curves.png", args.out / "results.json"
    draw(everything, repeatable, chart)
    write_json(everything, checks, facts)

    console.print(table(everything))
    for check in checks:
        console.print("[green]yes[/]" if check.holds else "[bold red]NO [/]", check.claim)
    console.print(f"\n{chart}\n{facts}\n{time.monotonic() - begin:.0f} s", highlight=False)
    if not repeatable:
        console.print("VERDICT: not repeatable", style="bold red")
        return 1
    console.print("VERDICT: repeatable, to the last bit", style="bold green")
    return 0


if __name__ == "__main__":
    sys.exit(main())
