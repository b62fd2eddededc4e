"""Kill the trainer and the producers of ``train_rollouts.py``, and prove that nothing shows.

    python examples/chaos_rollouts.py --kills 20

It trains once without interruption, and once while processes are killed (SIGKILL) at random times
and the trainer also at named points of a step, one of them between the two writes of a checkpoint;
producers join and leave. A seed decides what happens. Then it compares the logs of both runs. The
exit status is 0 only if every rollout was trained on once in the chain of attempts that led to the
result, and batches, texts and weights are equal.
"""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import random
import signal
import sys
import time
from collections import Counter
from pathlib import Path

import train_rollouts
from demolib import kills

HERE = Path(__file__).resolve().parent
POINTS = ("before the batch is marked", "after a batch", "between the two writes")
SECONDS = 600  # without a new rollout: the job hangs

starting = multiprocessing.get_context("forkserver")  # torch is imported once


class Trainer:
    """Trains, and kills itself at the n-th time that it is at a point."""

    def __init__(self, point: str | None = None, count: int = 0) -> None:
        self.point, self.count = point, count

    def __call__(self, point: str) -> None:
        self.count -= point == self.point
        if point == self.point and self.count < 0:
            os.kill(os.getpid(), signal.SIGKILL)


class Chaos:
    """The processes of a run, of which ``kills`` are killed."""

    def __init__(self, out: Path, seed: int, epochs: int, kills: int, chaos_seed: int) -> None:
        self.out, self.seed, self.epochs, self.kills = out, seed, epochs, kills
        self.random = random.Random(chaos_seed)
        self.killed: Counter[str] = Counter()
        self.pause = 500  # bytes of the logs: some batches
        self.producers = [self.start_producer() for _ in range(3)]
        self.trainer = self.start_trainer()

    def start_producer(self) -> multiprocessing.process.BaseProcess:
        process = starting.Process(target=train_rollouts.produce, args=(self.out, self.seed))
        process.start()
        return process

    def start_trainer(self) -> multiprocessing.process.BaseProcess:
        at = Trainer()
        if self.left() > 0 and self.random.random() < 0.5:
            at = Trainer(self.random.choice(POINTS), self.random.randrange(4))
        self.point = at.point
        arguments = (self.out, self.seed, self.epochs, at)
        process = starting.Process(target=train_rollouts.train, args=arguments)
        process.start()
        return process

    def left(self) -> int:
        return self.kills - sum(self.killed.values())

    def run(self) -> None:
        """Run to the end, and disturb it after a few rollouts, whatever the machine's speed."""
        size = 0
        end = time.monotonic() + SECONDS
        while not (self.out / "result.json").exists():
            time.sleep(self.random.uniform(0.01, 0.05))
            if self.trainer.exitcode is not None:
                self.restart()
            grown = sum(log.stat().st_size for log in self.out.glob("attempt-*.jsonl"))
            if grown > size:
                end = time.monotonic() + SECONDS
            elif time.monotonic() > end:
                raise RuntimeError(f"no rollout for {SECONDS} s; see {self.out}")
            if self.left() > 0 and grown >= size + self.pause:
                self.disturb()
                self.pause = self.random.randrange(300)
                size = grown
        for process in (self.trainer, *self.producers):
            process.join()

    def restart(self) -> None:
        """Count a kill of the trainer and start it again."""
        if self.trainer.exitcode == 0:
            return
        if self.trainer.exitcode != -signal.SIGKILL:
            raise RuntimeError(f"the trainer failed: {self.trainer.exitcode}")
        self.killed[self.point or "anywhere"] += 1
        self.trainer = self.start_trainer()

    def disturb(self) -> None:
        """Kill a producer or the trainer, or let a producer join."""
        kind = self.random.random()
        if kind < 0.4 and self.trainer.is_alive() and self.point is None:
            self.trainer.kill()
            self.trainer.join()
        elif kind < 0.8 and len(self.producers) > 1:
            victim = self.producers.pop(self.random.randrange(len(self.producers)))
            victim.kill()
            victim.join()
            self.killed["producer"] += 1
        if len(self.producers) < 3 or (kind > 0.9 and len(self.producers) < 5):
            self.producers.append(self.start_producer())


def read_chain(out: Path) -> list[dict]:
    """Return the batches that led to the result: an attempt replaces those after its start."""
    chain: list[dict] = []
    for file in sorted(out.glob("attempt-*.jsonl")):
        lines = [line for line in file.read_text().splitlines(keepends=True) if line[-1] == "\n"]
        start, *batches = map(json.loads, lines or ['{"start": 1000000}'])
        del chain[start["start"] :]
        chain.extend(batches)
    return chain


def judge(whole: Path, broken: Path, epochs: int) -> dict:
    """Compare two runs; all but the first are 0 or True if nothing was lost or repeated."""
    chains = [read_chain(whole), read_chain(broken)]
    results = [json.loads((out / "result.json").read_text()) for out in (whole, broken)]
    units = train_rollouts.PROMPTS * train_rollouts.SAMPLES * epochs
    trained = Counter(itertools.chain.from_iterable(batch["units"] for batch in chains[1]))
    return {
        "attempts": len(list(broken.glob("attempt-*"))),
        "lost": units - len(trained),
        "repeated": sum(trained.values()) - len(trained),
        "different_batches": sum(a["units"] != b["units"] for a, b in zip(*chains, strict=True)),
        "different_texts": sum(a["results"] != b["results"] for a, b in zip(*chains, strict=True)),
        "equal_weights": results[0]["weights"] == results[1]["weights"],
    }


def main() -> int:
    parser = kills.parser("Kill a job of rollouts; prove that it is whole.", "chaos-output")
    parser.add_argument("--epochs", type=int, help="default: as many as the kills need")
    args = parser.parse_args()
    starting.set_forkserver_preload(["train_rollouts"])
    paths = [str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)  # where the fork server finds it
    epochs = args.epochs or 1 + args.kills // 50
    folders = [kills.empty_folder(args.out / name) for name in ("whole", "broken")]
    for folder, count in zip(folders, (0, args.kills), strict=True):
        begin = time.monotonic()
        chaos = Chaos(folder, args.seed, epochs, count, args.chaos_seed)
        chaos.run()
        seconds = time.monotonic() - begin
        print(f"{seconds:.0f} s, killed: {dict(chaos.killed)}", flush=True)
    found = {"kills": sum(chaos.killed.values()), **judge(*folders, epochs)}
    wrong = ("lost", "repeated", "different_batches", "different_texts")
    holds = found["equal_weights"] and not any(found[name] for name in wrong)
    return kills.conclude(args.out, found, holds)


if __name__ == "__main__":
    sys.exit(main())
