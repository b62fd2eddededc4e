"""Train on rollouts that other processes generate, and count each once, whatever is killed.

    python examples/train_rollouts.py --out FOLDER             # a trainer and three producers
    python examples/train_rollouts.py --out FOLDER --producer  # one more, while it runs

A tiny GPT-2 learns to repeat the digit that it is given (GRPO, one batch off-policy). The trainer
has the ledger and serves it with ``multiprocessing.managers``. Producers lease rollouts, generate
them with the policy version and the seed that each is planned for, and send the tokens back; some
take twenty times as long as others. Kill any of them, and start it again: the weights at the end
are those of a run without interruption, bit for bit.

FOLDER has the checkpoints, the last policies, the results, the address of the trainer, and a log
of what each attempt trained on. ``chaos_rollouts.py`` kills the processes and compares the logs.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import secrets
import threading
import time
from collections.abc import Callable
from multiprocessing.managers import BaseManager
from pathlib import Path
from typing import Any

import torch
from train_elastic import Momentum
from transformers import GPT2Config, GPT2LMHeadModel

import fastseed
from fastseed.integrations.transformers import SeededTokens
from fastseed.rollouts import Batch, LeaseError, Ledger, Unit

SAMPLES, BATCH, LAG = 4, 2, 1  # rollouts of a prompt, prompts of a batch, batches ahead
PROMPTS, LONGEST, END = 40, 8, 10  # prompts in the dataset, tokens of a rollout, the last token
SAVE_EVERY = 3  # batches
GONE = (EOFError, ConnectionError, FileNotFoundError)  # what a killed trainer looks like


class Manager(BaseManager):
    """Serves the trainer's ledger."""


# ---------------------------------------------------------------- the trainer


def train(
    out: Path, seed: int, epochs: int, at: Callable[[str], None] = lambda point: None
) -> None:
    """Train from the newest checkpoint to the end. ``at`` is called at points of each step."""
    torch.set_num_threads(1)
    fastseed.init(seed, rank=0, world_size=1)  # task 0: initialization
    model = build_model()
    optimizer = Momentum(model)
    ledger = Ledger(
        PROMPTS, batch_size=BATCH, samples=SAMPLES, epochs=epochs, lag=LAG, lease_seconds=3.0,
        results=out / "rollouts.sqlite",
    )  # fmt: skip
    newest = out / "newest"
    if newest.exists():
        state = torch.load(out / newest.read_text(), weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        ledger.load_state_dict(state["ledger"])
    attempt = len(list(out.glob("attempt-*"))) + 1
    with (out / f"attempt-{attempt:05d}.jsonl").open("w") as log:
        print(json.dumps({"start": ledger.version}), file=log, flush=True)
        publish(out, model, ledger.version)
        serve(out, ledger)
        while not ledger.done:
            batch = ledger.next_batch()
            if batch is None:
                time.sleep(0.002)
                continue
            step(model, optimizer, batch)
            at("before the batch is marked")
            publish(out, model, batch.number + 1)
            ledger.mark_trained(batch)
            numbers = [unit.number for unit in batch.units]
            line = {"batch": batch.number, "units": numbers, "results": batch.results}
            print(json.dumps(line), file=log, flush=True)
            at("after a batch")
            if ledger.version % SAVE_EVERY == 0:
                save(out, model, optimizer, ledger, at)
        counts = {**ledger.counts(), "weights": fastseed.debug.digest(model).hex}
    replace(out / "result.json", json.dumps(counts).encode())


def build_model() -> torch.nn.Module:
    config = GPT2Config(
        n_layer=1, n_embd=32, n_head=2, vocab_size=END + 1, n_positions=LONGEST + 1,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=None, eos_token_id=END,
    )  # fmt: skip
    return GPT2LMHeadModel(config).eval()


def step(model: torch.nn.Module, optimizer: Momentum, batch: Batch) -> None:
    """Reward each token that is the prompt's; advantages are within a prompt's group."""
    loss = torch.zeros(())
    for first in range(0, len(batch.units), SAMPLES):
        group = batch.results[first : first + SAMPLES]
        rewards = torch.tensor([text.count(text[0]) / LONGEST for text in group])
        advantages = (rewards - rewards.mean()) / (rewards.std() + 1e-3)
        for text, advantage in zip(group, advantages, strict=True):
            tokens = torch.tensor([text])
            chances = model(tokens[:, :-1]).logits.log_softmax(-1)
            chosen = chances.gather(2, tokens[:, 1:, None]).mean()
            loss = loss - advantage * chosen
    loss.backward()
    optimizer.step()


def publish(out: Path, model: torch.nn.Module, version: int) -> None:
    """Write the policy, and keep those that a restart from the last checkpoint needs."""
    replace(out / f"policy-{version:06d}.pt", model.state_dict())
    (out / f"policy-{version - SAVE_EVERY - LAG - 1:06d}.pt").unlink(missing_ok=True)


def save(
    out: Path,
    model: torch.nn.Module,
    optimizer: Momentum,
    ledger: Ledger,
    at: Callable[[str], None],
) -> None:
    """Write the checkpoint, ledger included, then the name of the newest one."""
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    name = f"step-{ledger.version:06d}.pt"
    replace(out / name, {**state, "ledger": ledger.state_dict()})
    at("between the two writes")
    replace(out / "newest", name.encode())
    for file in sorted(out.glob("step-*.pt"))[:-2]:
        file.unlink()


def replace(path: Path, content: object) -> None:
    """Write beside, then rename: a process that is killed meanwhile leaves no damaged file."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    if isinstance(content, bytes):
        partial.write_bytes(content)
    else:
        torch.save(content, partial)
    partial.replace(path)


def serve(out: Path, ledger: Ledger) -> None:
    """Let producers call the ledger, each by a thread of this process."""
    Manager.register("ledger", callable=lambda: ledger, exposed=("lease", "complete"))
    key = secrets.token_hex(16)
    server = Manager(("127.0.0.1", 0), key.encode()).get_server()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    replace(out / "address", json.dumps([*server.address, key]).encode())


# ---------------------------------------------------------------- producers


def produce(out: Path, seed: int) -> None:
    """Generate until the training has ended; wait for the trainer where it was killed."""
    torch.set_num_threads(1)
    fastseed.init(seed, rank=0, world_size=1)
    order = fastseed.data.ShuffleSampler(PROMPTS)
    model, version, ledger = build_model(), -1, None
    while not (out / "result.json").exists():
        try:
            ledger = ledger or connect(out)
            units = ledger.lease(2)
            for unit in units:
                if unit.version != version:
                    model.load_state_dict(load_policy(out, unit.version))
                    version = unit.version
                ledger.complete(unit, generate(model, order, unit, seed))
            if not units:
                time.sleep(0.01)
        except LeaseError:  # another producer has the unit, as this one was too slow
            continue
        except GONE:
            ledger = None
            time.sleep(0.05)


def connect(out: Path) -> Any:
    """Return a proxy of the ledger that the trainer serves now."""
    host, port, key = json.loads((out / "address").read_text())
    Manager.register("ledger")
    manager = Manager((host, port), key.encode())
    manager.connect()
    return manager.ledger()


def load_policy(out: Path, version: int) -> dict[str, torch.Tensor]:
    return torch.load(out / f"policy-{version:06d}.pt", weights_only=True)


def generate(
    model: torch.nn.Module, order: fastseed.data.ShuffleSampler, unit: Unit, seed: int
) -> list[int]:
    """Return prompt and tokens: a function of the policy, the dataset's index and the sample."""
    index = order.index(unit.position, epoch=unit.epoch)
    its_seed = fastseed.rollouts.seed(0, index, unit.sample, epoch=unit.epoch, master_seed=seed)
    found = model.generate(
        torch.tensor([[index % END]]), logits_processor=[SeededTokens([its_seed])],
        do_sample=False, max_new_tokens=LONGEST, pad_token_id=END,
        attention_mask=torch.ones(1, 1, dtype=torch.int64),
    )[0].tolist()  # fmt: skip
    time.sleep(min(0.2, 0.01 * random.Random(its_seed).paretovariate(1.1)))
    return found


# ---------------------------------------------------------------- one machine


def main() -> None:
    parser = argparse.ArgumentParser(description="Train on rollouts of other processes.")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=1234)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--producer", action="store_true")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    if args.producer:
        produce(args.out, args.seed)
        return
    (args.out / "result.json").unlink(missing_ok=True)
    spawning = multiprocessing.get_context("spawn")
    producers = [spawning.Process(target=produce, args=(args.out, args.seed)) for _ in range(3)]
    for producer in producers:
        producer.start()
    train(args.out, args.seed, args.epochs)
    for producer in producers:
        producer.join()
    print((args.out / "result.json").read_text())


if __name__ == "__main__":
    main()
