"""Run a training script and flip one bit of a parameter or an activation, as a faulty chip does.

    python flip_bit.py --step 17 --parameter 2 train_digits.py --epochs 1 --watch runs/flipped
    python flip_bit.py --step 17 --module layers.3.mlp train_blocks.py runs/flipped

`fastseed diff` then finds the step and the tensor, given its recording and that of a clean run.
"""

from __future__ import annotations

import argparse
import runpy
import sys
from pathlib import Path

import torch
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)
from torch.optim.optimizer import register_optimizer_step_pre_hook


@torch.no_grad()
def flip(tensor: torch.Tensor, bit: int) -> None:
    """Flip a bit of the first element of a float32 tensor."""
    tensor.view(torch.int32).view(-1)[0] ^= 1 << bit


def main() -> None:
    parser = argparse.ArgumentParser(description="Flip one bit during a training script.")
    parser.add_argument("--step", type=int, default=0, help="step of the optimizer, from 0")
    parser.add_argument("--parameter", type=int, default=0, help="its index in the optimizer")
    parser.add_argument("--module", help="flip a bit of this module's output instead")
    parser.add_argument("--bit", type=int, default=0, help="of its first element; 0 is the lowest")
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    steps = 0
    names: dict[torch.nn.Module, str] = {}

    def before_step(optimizer: torch.optim.Optimizer, *_: object) -> None:
        nonlocal steps
        if steps == args.step and args.module is None:
            flip(optimizer.param_groups[0]["params"][args.parameter], args.bit)
            print(f"flipped bit {args.bit} of parameter {args.parameter} before step {steps}")
        steps += 1

    def before_forward(module: torch.nn.Module, _: object) -> None:
        if not names:  # the first module that is called is the model
            names.update({inner: name for name, inner in module.named_modules()})

    def after_forward(
        module: torch.nn.Module, _: object, output: torch.Tensor
    ) -> torch.Tensor | None:
        if steps != args.step or names.get(module) != args.module:
            return None
        flipped = output.clone()
        flip(flipped, args.bit)
        print(f"flipped bit {args.bit} of the output of {args.module} at step {steps}")
        return flipped

    register_optimizer_step_pre_hook(before_step)
    if args.module is not None:
        register_module_forward_pre_hook(before_forward)
        register_module_forward_hook(after_forward)
    sys.argv = [args.script, *args.arguments]
    sys.path.insert(0, str(Path(args.script).resolve().parent))
    runpy.run_path(args.script, run_name="__main__")


if __name__ == "__main__":
    main()
