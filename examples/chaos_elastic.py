"""Kill workers and machines of ``train_elastic.py`` at random, and prove that no sample is lost.

    python examples/chaos_elastic.py --kills 20
    python examples/chaos_elastic.py --kills 2 --ray

It trains once without interruption, on two ranks, and once while workers are killed and machines
(agents of torchrun) are lost, replaced, leave and join. A seed decides what happens and after how
many steps. Then it compares what the ranks of both runs logged. The exit status is 0 only
if every sample of every epoch was trained on exactly once, in the same order, with the same
augmentation, and all losses and parameters are equal to the bit.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
import signal
import sys
import time
from collections import Counter
from pathlib import Path

from demolib.chaos import KILLS, KINDS, MACHINES, RayJob, TorchrunJob, schedule
from demolib.launch import JobFailed, run_job, with_torchrun
from demolib.lineage import judge, read_attempts
from train_elastic import IMAGES

HERE = Path(__file__).resolve().parent
SCRIPT = HERE / "train_elastic.py"


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Kill an elastic job; prove that it does not care."
    )
    parser.add_argument("--kills", type=int, default=20, help="of workers and machines, by SIGKILL")
    parser.add_argument("--chaos-seed", type=int, default=1, help="decides the interruptions")
    parser.add_argument("--seed", type=int, default=1234, help="master seed of the training")
    parser.add_argument("--epochs", type=int, help="default: as many as the kills need")
    parser.add_argument("--ray", action="store_true", help="on Ray Train; workers are killed only")
    parser.add_argument("--out", type=Path, default=HERE.parent / "chaos-output")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that nothing is left behind
    events = schedule(args.chaos_seed, args.kills, workers_only=args.ray)
    counts = Counter(event.kind for event in events)
    # While a machine starts, the other one trains on, for three epochs or so.
    epochs = args.epochs or 4 + args.kills // 5 + 4 * (counts["join"] + counts["replace"])
    whole, broken = args.out.resolve() / "whole", args.out.resolve() / "broken"
    for folder in (whole, broken):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    arguments = ["--seed", str(args.seed), "--epochs", str(epochs)]

    try:
        commands = with_torchrun(SCRIPT, [*arguments, "--out", str(whole)], MACHINES)
        seconds = run_job(commands, whole / "output.log", timeout=1200)
        print(f"without interruption: {epochs} epochs, {seconds:.0f} s", flush=True)
        shutil.copy(whole / "digits.pt", broken)
        begin = time.monotonic()
        arguments += ["--out", str(broken), "--step-seconds", "0.02"]
        if args.ray:
            job = RayJob(HERE / "train_elastic_ray.py", arguments, broken)
        else:
            job = TorchrunJob(SCRIPT, arguments, broken)
        with job:
            for event in events:
                attempt = job.run(event)
                print(f"step {attempt.step:4d}: {KINDS[event.kind]}", flush=True)
            job.finish()
    except JobFailed as failure:
        print(f"VERDICT: a job failed. {failure}\nIts output is in {args.out}")
        return 2
    interrupted = time.monotonic() - begin

    attempts = read_attempts(broken)
    (reference,) = read_attempts(whole).values()
    verdict = judge(attempts, reference, IMAGES)
    print(", ".join(f"{text}: {counts[kind]}" for kind, text in KINDS.items() if counts[kind]))
    figures = {"kills": sum(counts[kind] for kind in KILLS), "starts": len(attempts)}
    figures |= {"seconds": round(interrupted), "seconds_without": round(seconds)}
    figures |= dataclasses.asdict(verdict)
    print(*(f"{name.replace('_', ' '):>20}: {value}" for name, value in figures.items()), sep="\n")
    (args.out / "results.json").write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    print("VERDICT:", "as without interruption, bit for bit" if verdict.holds() else "DIFFERENT")
    return 0 if verdict.holds() else 1


if __name__ == "__main__":
    sys.exit(main())
