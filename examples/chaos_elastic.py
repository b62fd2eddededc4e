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

import dataclasses
import shutil
import sys
import time
from collections import Counter
from pathlib import Path

from demolib import kills
from demolib.chaos import KILLS, KINDS, MACHINES, RayJob, TorchrunJob, schedule
from demolib.launch import JobFailed, run_job, with_torchrun
from demolib.lineage import judge, read_attempts
from train_elastic import IMAGES

HERE = Path(__file__).resolve().parent
SCRIPT = HERE / "train_elastic.py"


def main() -> int:
    parser = kills.parser("Kill an elastic job; prove that it does not care.", "chaos-output")
    parser.add_argument("--epochs", type=int, help="default: as many as the kills need")
    parser.add_argument("--ray", action="store_true", help="on Ray Train; workers are killed only")
    args = parser.parse_args()
    events = schedule(args.chaos_seed, args.kills, workers_only=args.ray)
    counts = Counter(event.kind for event in events)
    # While a machine starts, the other one trains on, for three epochs or so.
    epochs = args.epochs or 4 + args.kills // 5 + 4 * (counts["join"] + counts["replace"])
    whole, broken = (kills.empty_folder(args.out / name) for name in ("whole", "broken"))
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
    return kills.conclude(args.out, figures, verdict.holds())


if __name__ == "__main__":
    sys.exit(main())
