"""The job of ``train_rollouts.py`` on Ray: the trainer has the ledger, producers are actors.

    python train_rollouts_ray.py --out FOLDER

The trainer leases units, sends each to a free actor, and completes it when the result comes. An
actor that dies is noticed by Ray at once: its unit is released and goes to another one, with the
same seed. ``--kill-actors N`` kills N of them on the way. The weights at the end are those of
``train_rollouts.py``.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import ray
import torch
import train_rollouts
from ray.actor import ActorHandle
from train_elastic import Momentum

import fastseed
from fastseed.rollouts import Ledger, Unit


@ray.remote(num_cpus=0.5)
class Producer:
    """Generates; it gets the policy with each unit."""

    def __init__(self, seed: int) -> None:
        torch.set_num_threads(1)
        fastseed.init(seed, rank=0, world_size=1)
        self.seed, self.model = seed, train_rollouts.build_model()
        self.order = fastseed.data.ShuffleSampler(train_rollouts.PROMPTS)

    def generate(self, unit: Unit, policy: dict) -> list[int]:
        self.model.load_state_dict(policy)
        return train_rollouts.generate(self.model, self.order, unit, self.seed)


def train(seed: int, epochs: int, kills: int) -> str:
    """Return the digest of the weights at the end."""
    torch.set_num_threads(1)
    fastseed.init(seed, rank=0, world_size=1)
    model = train_rollouts.build_model()
    optimizer = Momentum(model)
    ledger = Ledger(
        train_rollouts.PROMPTS, batch_size=train_rollouts.BATCH, samples=train_rollouts.SAMPLES,
        epochs=epochs, lag=train_rollouts.LAG,
    )  # fmt: skip
    policies = {0: ray.put(model.state_dict())}
    idle = [Producer.remote(seed) for _ in range(3)]
    busy: dict[ray.ObjectRef, tuple[ActorHandle, Unit]] = {}
    killed = 0
    while not ledger.done:
        while idle and (units := ledger.lease()):
            actor, unit = idle.pop(), units[0]
            busy[actor.generate.remote(unit, policies[unit.version])] = actor, unit
        if killed < min(kills, ledger.version):  # one after each of the first batches
            ray.kill(next(iter(busy.values()))[0])
            killed += 1
        for answer in ray.wait(list(busy))[0]:
            actor, unit = busy.pop(answer)
            try:
                ledger.complete(unit, ray.get(answer))
                idle.append(actor)
            except ray.exceptions.ActorDiedError:
                ledger.release(unit)
                idle.append(Producer.remote(seed))
        while batch := ledger.next_batch():
            train_rollouts.step(model, optimizer, batch)
            policies[batch.number + 1] = ray.put(model.state_dict())
            policies.pop(batch.number - train_rollouts.LAG, None)
            ledger.mark_trained(batch)
    return fastseed.debug.digest(model).hex


def main() -> None:
    parser = argparse.ArgumentParser(description="Train on rollouts of Ray actors.")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=1234)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--kill-actors", type=int, default=0)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    ray.init(num_cpus=2, include_dashboard=False)
    found = {"weights": train(args.seed, args.epochs, args.kill_actors)}
    (args.out / "result.json").write_text(json.dumps(found))
    print(found)


if __name__ == "__main__":
    main()
