"""Train a policy on groups of rollouts: it learns with rollout seeds and stalls with local ones.

    python examples/train_grpo_rollouts.py --out demo-output/grpo

The task is a sum of two digits. Two processes (gloo) share the prompts, each works in chunks, and
every prompt gets 16 rollouts: single tokens, sampled from seeds as an inference engine does it. The
advantage of a rollout is its reward less the mean of its group, over the standard deviation (GRPO).

- ``rollouts.seeds``: a seed for each (step, prompt, sample), by global identity.
- ``chunk-local``: ``seed + step + position of the prompt in its chunk``. Then all rollouts of a
  group are the same token, every advantage is zero, and the parameters never move.

Writes ``rewards.json``, and ``rewards.png`` where matplotlib is installed.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.nn  # imported later, its defaults keep the group after its destruction
from torch import nn

import fastseed

DIGITS, ANSWERS, SAMPLES, CHUNKS, RANKS = 6, 11, 16, 2, 2
PROMPTS = [f"{a} + {b} =" for a in range(DIGITS) for b in range(DIGITS)]
TASK = 1


def seeds_of(mode: str, master: int, step: int, prompts: list[str]) -> list[list[int]]:
    """Return one seed for each rollout of a chunk of prompts."""
    if mode == "rollouts.seeds":
        seeds = fastseed.rollouts.seeds(step, prompts, SAMPLES, task=TASK, master_seed=master)
        return seeds.tolist()
    return [[master + step + position] * SAMPLES for position in range(len(prompts))]


def sample(logits: torch.Tensor, seeds: list[list[int]]) -> torch.Tensor:
    """Sample a token for each seed, (prompts, samples): what the inference engine does."""
    bank = fastseed.random.StreamBank(len(seeds) * SAMPLES, "token")
    bank.reseed_from_seeds([seed for row in seeds for seed in row])
    noise = fastseed.random.exponential(bank, ANSWERS).view(len(seeds), SAMPLES, ANSWERS)
    return (noise / logits.softmax(-1)[:, None]).argmin(-1)


def features(prompts: list[str]) -> torch.Tensor:
    """Return the two digits of each prompt, one-hot."""
    digits = torch.tensor([[int(p[0]), int(p[4])] for p in prompts])
    return nn.functional.one_hot(digits, DIGITS).flatten(1).float()


def train(mode: str, master: int, steps: int) -> tuple[list[float], str, str]:
    """Return the mean reward of each step, and digests of the parameters before and after."""
    rank = dist.get_rank()
    torch.manual_seed(master)
    model = nn.Sequential(nn.Linear(2 * DIGITS, 64), nn.ReLU(), nn.Linear(64, ANSWERS))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    first, rewards = digest(model), []
    for step in range(steps):
        optimizer.zero_grad()
        total = torch.zeros(())
        size = len(PROMPTS) // (RANKS * CHUNKS)
        for chunk in range(rank, RANKS * CHUNKS, RANKS):
            prompts = PROMPTS[chunk * size : (chunk + 1) * size]
            logits = model(features(prompts))
            tokens = sample(logits.detach(), seeds_of(mode, master, step, prompts))
            answers = torch.tensor([[int(p[0]) + int(p[4])] for p in prompts])
            reward = (tokens == answers).float()
            spread = reward.std(1, keepdim=True) + 1e-4
            advantage = (reward - reward.mean(1, keepdim=True)) / spread
            chosen = logits.log_softmax(-1).gather(1, tokens)
            (-(advantage * chosen).mean() / CHUNKS).backward()
            total += reward.mean() / CHUNKS
        for p in model.parameters():
            dist.all_reduce(p.grad)
            p.grad /= RANKS
        dist.all_reduce(total)
        rewards.append(total.item() / RANKS)
        optimizer.step()
    return rewards, first, digest(model)


def digest(model: nn.Module) -> str:
    whole = hashlib.sha256()
    for p in model.parameters():
        whole.update(p.detach().numpy().tobytes())
    return whole.hexdigest()[:16]


def work(rank: int, store: str, master: int, steps: int, out: str) -> None:
    """Run both modes in one of the processes."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS)
    results = {mode: train(mode, master, steps) for mode in ("rollouts.seeds", "chunk-local")}
    dist.destroy_process_group()
    if rank == 0:
        (Path(out) / "rewards.json").write_text(json.dumps(results))


def plot(results: dict[str, tuple[list[float], str, str]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 3.2), layout="constrained")
    for (mode, (rewards, *_)), style in zip(results.items(), ("-", "--"), strict=True):
        axes.plot(rewards, style, label=mode)
    axes.set(xlabel="step", ylabel="mean reward", ylim=(0, 1.02))
    axes.legend(loc="center right")
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=42, help="master seed")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--out", type=Path, default=Path("demo-output/grpo"))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        given = (f"{folder}/store", args.seed, args.steps, str(args.out))
        torch.multiprocessing.spawn(work, given, nprocs=RANKS)
    results = json.loads((args.out / "rewards.json").read_text())
    for mode, (rewards, first, last) in results.items():
        moved = "the parameters never moved" if first == last else "the parameters moved"
        print(f"{mode}: mean reward {rewards[0]:.3f}, then {rewards[-1]:.3f}; {moved}")
    if importlib.util.find_spec("matplotlib") is not None:
        plot(results, args.out / "rewards.png")
        print(f"wrote {args.out / 'rewards.png'}")


if __name__ == "__main__":
    main()
