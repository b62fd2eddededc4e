"""The job of ``train_elastic.py`` on Ray Train, which replaces workers that die.

    python train_elastic_ray.py --out SHARED_FOLDER

Ray starts the workers, on one machine or on those of a cluster, and gives them a process group. Its
ranks are all that fastseed needs; the training function is that of the job under torchrun.
"""

from __future__ import annotations

from pathlib import Path

import ray
from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer


def train_on_worker(arguments: dict) -> None:
    from train_elastic import train

    train(Path(arguments.pop("out")), **arguments)


def main() -> None:
    from train_elastic import parse

    arguments = parse("Train on digits, on Ray.")
    out = arguments["out"].resolve()
    out.mkdir(parents=True, exist_ok=True)

    ray.init(num_cpus=2, include_dashboard=False)
    TorchTrainer(
        train_on_worker,
        train_loop_config={**arguments, "out": str(out)},
        torch_config=TorchConfig(backend="gloo", timeout_s=60),
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(
            name="digits",
            storage_path=str(out / "ray"),
            failure_config=FailureConfig(max_failures=-1),  # restart as often as it takes
        ),
    ).fit()


if __name__ == "__main__":
    main()
