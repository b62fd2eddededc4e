"""Run a training script and flip one bit of one parameter, as a faulty memory cell does.

    python flip_bit.py --step 17 --parameter 2 train_digits.py --epochs 1 --watch runs/flipped

`fastseed bisect` then finds the step and the tensor, given its recording and that of a clean run.
"""

from __future__ import annotations

import argparse
import runpy
import sys
from pathlib import Path

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook


def main() -> None:
    parser = argparse.ArgumentParser(description="Flip one bit during a training script.")
    parser.add_argument("--step", type=int, default=0, help="step of the optimizer, from 0")
    parser.add_argument("--parameter", type=int, default=0, help="its index in the optimizer")
    parser.add_argument("--bit", type=int, default=0, help="of its first element; 0 is the lowest")
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    steps = 0

    @torch.no_grad()
    def hook(optimizer: torch.optim.Optimizer, *_: object) -> None:
        nonlocal steps
        if steps == args.step:
            parameter = optimizer.param_groups[0]["params"][args.parameter]
            bits = parameter.view(torch.int32)  # of a float32
            bits.view(-1)[0] ^= 1 << args.bit
            print(f"flipped bit {args.bit} of parameter {args.parameter} before step {steps}")
        steps += 1

    register_optimizer_step_pre_hook(hook)
    sys.argv = [args.script, *args.arguments]
    sys.path.insert(0, str(Path(args.script).resolve().parent))
    runpy.run_path(args.script, run_name="__main__")


if __name__ == "__main__":
    main()
