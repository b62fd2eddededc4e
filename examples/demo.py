"""Show that a seeded job repeats to the last bit, however it is run, and an unseeded one does not.

``train_digits.py`` trains on two ranks, with workers that load and vary the images:

    (a)       with a seed, under torchrun, 2 workers a rank
    (b)       with the same seed, stopped mid-epoch; new processes resume, 3 workers a rank
    (c)       with the same seed, its ranks started by hand, without workers
    (d1) (d2) without a seed, once started in either way
    (e)       (b), resumed on one rank with three workers

A table, a chart and a JSON file say what came out. The exit status is 0 only if (a), (b) and (c)
end with bit-identical parameters on every rank, (e) trained on the very samples of (a), each once,
in the same order and with the same augmentation, and (d1) and (d2) came out otherwise.

Before that ``train_transformer_any_layout.py`` trains a small transformer in one process and with
tensor parallelism on two: fastseed's weights and dropout masks are the same, torch's masks not.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from demolib import kills
from demolib.launch import Command, JobFailed, by_hand, run_job, with_torchrun
from demolib.report import draw, table, write_json
from demolib.results import Run, rank_files, read_run, verdict
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

HERE = Path(__file__).resolve().parent
RANKS = 2
BATCH = 32  # a rank's; one rank alone takes twice as many at a step
STEPS_PER_EPOCH = 22  # of 1,437 images, without the last few


@dataclass(frozen=True)
class Launch:
    """One start of the training script, up to so many epochs."""

    folder: Path
    launcher: Callable[[Path, list[str], int], list[Command]]
    epochs: int
    workers: int
    arguments: list[str]
    ranks: int = RANKS

    def commands(self) -> list[Command]:
        ours = ["--epochs", str(self.epochs), "--workers", str(self.workers)]
        ours += ["--batch-size", str(BATCH * RANKS // self.ranks)]
        ours += ["--metrics", str(self.folder), "--samples", str(self.folder)]
        return self.launcher(HERE / "train_digits.py", [*self.arguments, *ours], self.ranks)

    def epochs_done(self) -> int:
        """Read off the first rank's metrics while it trains."""
        return sum(file.read_text().count('"epoch",') for file in rank_files(self.folder)[:1])


@dataclass(frozen=True)
class Plan:
    """A run: its description, the folder that it resumes from, and its launches."""

    how: str
    launches: list[Launch]
    after: Path | None = None


def stop_of(epochs: int) -> tuple[int, int]:
    """Epoch and step at which (b) is stopped: the middle of the middle one."""
    return epochs // 2, STEPS_PER_EPOCH // 2


def plan(out: Path, args: argparse.Namespace) -> dict[str, Plan]:
    """The runs by name, in the order in which they take place."""
    epochs = args.epochs
    usual = by_hand if args.quick else with_torchrun  # torchrun takes two seconds to start
    seeded = ["--seed", str(args.seed)]
    checkpoint = str(out / "b.pt")
    epoch, step = stop_of(epochs)
    steps = epoch * STEPS_PER_EPOCH + step
    stop, resume = (
        ["--checkpoint", checkpoint, "--stop-after", str(steps)],
        ["--resume", checkpoint],
    )
    return {
        "a": Plan("torchrun", [Launch(out / "a", with_torchrun, epochs, 2, seeded)]),
        "b": Plan(
            "resumed",
            [
                Launch(out / "b1", usual, epochs, 2, [*seeded, *stop]),
                Launch(out / "b2", usual, epochs, 3, resume),
            ],
        ),
        "c": Plan("by hand", [Launch(out / "c", by_hand, epochs, 0, seeded)]),
        "d1": Plan("no seed", [Launch(out / "d1", usual, epochs, 0, [])]),
        "d2": Plan("no seed", [Launch(out / "d2", by_hand, epochs, 0, [])]),
        "e": Plan("1 rank", [Launch(out / "e", by_hand, epochs, 3, resume, 1)], after=out / "b1"),
    }


def train(name: str, run: Plan, progress: Progress) -> Run:
    """Run the launches of one run, with a bar that follows its epochs."""
    bar = progress.add_task(f"({name}) {run.how}", total=run.launches[-1].epochs)
    seconds = 0.0
    done = stop_of(run.launches[-1].epochs)[0] if run.after else 0
    for launch in run.launches:
        launch.folder.mkdir(parents=True)

        def tick(launch: Launch = launch, done: int = done) -> None:
            progress.update(bar, completed=done + launch.epochs_done())

        output = launch.folder / "output.log"
        timeout = 120 + 4 * launch.epochs
        seconds += run_job(launch.commands(), output, timeout, tick)
        done += launch.epochs_done()
    folders = [launch.folder for launch in run.launches]
    return read_run(name, run.how, [*([run.after] if run.after else []), *folders], seconds)


def compare_layouts(out: Path, seed: int, console: Console) -> None:
    """Train a transformer on two layouts; JobFailed if they do not compare as they should."""
    console.print("Training a transformer in one process, and with tensor parallelism on two")
    arguments = ["--layout", "one", "tp", "--random", "fastseed", "torch-dropout"]
    arguments += ["--steps", "20", "--seed", str(seed), "--out", str(out)]
    command = [sys.executable, str(HERE / "train_transformer_any_layout.py"), *arguments]
    output = out.with_suffix(".log")
    run_job([Command(command)], output, timeout=300)
    tables = output.read_text().split("\n\n", 1)[1]  # after a line for each run
    console.print(tables, markup=False, highlight=False)


def parse_args() -> argparse.Namespace:
    parser = kills.parser("Train six times; four must agree.", "demo-output", kills=None)
    parser.add_argument("--epochs", type=int, default=30, help="of each run (default: 30)")
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
    begin = time.monotonic()
    console = Console()
    folder = kills.empty_folder(args.out / "runs")

    runs: dict[str, Run] = {}
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    progress = Progress(*columns, TimeElapsedColumn(), console=console, transient=True)
    progress.disable = not console.is_terminal
    try:
        compare_layouts(folder / "layouts", args.seed, console)
        console.print(
            f"Training a digits classifier six times, {args.epochs} epochs, {RANKS} ranks"
        )
        with progress:
            for name, run in plan(folder, args).items():
                runs[name] = train(name, run, progress)
                if not console.is_terminal:
                    console.print(f"({name}) {run.how}: {runs[name].seconds:.0f} s")
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
        stop=stop_of(args.epochs),
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
