"""Train one tiny model on many layouts, kill ranks, and print the digests of the results.

python same_weights_grid.py FOLDER ROWS.json

A row of the file is {"features", "slots", "jobs"}, and a job {"layout", "until", "victim"}. Each
job of a row resumes from the last checkpoint on a layout of its own, such as blocks:3, deal:2,
fsdp2:4 or hsdp:2x3, and trains until a step. A victim is a rank that kills itself in the midst of
that step. The ranks are forks of this process, which has imported everything.

Prints one line of JSON. For each row: the SHA-256 of weights, and of weights, buffers and optimizer
state, of all ranks; the steps that the jobs resumed after; and the seconds.
"""

import hashlib
import importlib
import json
import math
import multiprocessing
import os
import signal
import sys
import time
import traceback
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # which every optimizer imports
import torch.distributed as dist
import torch.distributed.nn
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.utils.checkpoint import checkpoint

import fastseed
from fastseed.elastic import SlotGradients, clip_grad_norm_

WIDTH, TOKENS, SAMPLES, BATCH, SAVE_EVERY = 10, 13, 128, 2, 7  # no mesh divides the widths
LIMIT = 300  # seconds of a job


class Block(nn.Module):
    """A layer with dropout; with "unused", a parameter that one slot uses and one for none."""

    def __init__(self, features: set[str]) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(WIDTH) if "buffers" in features else nn.LayerNorm(WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 33), nn.Linear(33, WIDTH)
        self.dropout = nn.Dropout(0.2)
        if "unused" in features:
            self.rare, self.unused = (nn.Parameter(torch.ones(WIDTH)) for _ in range(2))

    def forward(self, x: torch.Tensor, rare: bool) -> torch.Tensor:
        if rare:
            x = x + self.rare
        return x + self.narrow(self.dropout(torch.relu(self.wide(self.norm(x)))))


class Model(nn.Module):
    """Two layers between an embedding and a head, which are one parameter if "tied"."""

    def __init__(self, features: set[str]) -> None:
        super().__init__()
        self.features = features
        self.embed = nn.Embedding(TOKENS, WIDTH)
        self.blocks = nn.ModuleList(Block(features) for _ in range(2))
        self.head = nn.Linear(WIDTH, TOKENS)
        if "tied" in features:
            self.head.weight = self.embed.weight

    def forward(self, tokens: torch.Tensor, rare: bool) -> torch.Tensor:
        x = self.embed(tokens).flatten(0, 1)
        for block in self.blocks:
            if "checkpointing" in self.features:
                x = checkpoint(block, x, rare, use_reentrant=False)
            else:
                x = block(x, rare)
        return self.head(x)


def parse(layout: str) -> tuple[str, list[int]]:
    """Return the kind of a layout and the sizes of its mesh."""
    kind, _, sizes = layout.partition(":")
    return kind, [int(size) for size in sizes.split("x")]


def build(layout: str, features: set[str]) -> nn.Module:
    """Return the model of this rank."""
    kind, sizes = parse(layout)
    torch.manual_seed(1)
    model = fastseed.nn.convert(Model(features))
    if kind in ("fsdp2", "hsdp"):
        names = ("replicate", "shard")[-len(sizes) :]
        mesh = init_device_mesh("cpu", tuple(sizes), mesh_dim_names=names)
        for module in [*model.blocks, model]:
            fully_shard(module, mesh=mesh)
    if "compile" in features:
        for block in model.blocks:
            block.forward = torch.compile(block.forward)
    return model


# ---------------------------------------------------------------- checkpoints of any layout


def whole(tensor: torch.Tensor) -> torch.Tensor:
    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).detach().clone()


def like(tensor: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
    """Return a whole tensor as the parameter lies; the number of steps is whole everywhere."""
    if isinstance(parameter, DTensor) and tensor.ndim:
        return distribute_tensor(tensor, parameter.device_mesh, parameter.placements)
    return tensor.clone()


def save(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Return whole tensors by name, on every rank."""
    state = {
        name: {key: whole(value) for key, value in optimizer.state[parameter].items()}
        for name, parameter in model.named_parameters()
        if parameter in optimizer.state
    }
    weights = {name: whole(parameter) for name, parameter in model.named_parameters()}
    return {"weights": weights, "state": state, "buffers": dict(model.named_buffers())}


def load(found: dict[str, Any], model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(like(found["weights"][name], parameter))
            if name in found["state"]:
                state = found["state"][name].items()
                optimizer.state[parameter] = {key: like(value, parameter) for key, value in state}
        for name, buffer in model.named_buffers():
            buffer.copy_(found["buffers"][name])


def digest(parts: dict[str, Any]) -> str:
    found = hashlib.sha256()
    leaves, _ = torch.utils._pytree.tree_flatten_with_path(parts)
    for path, leaf in sorted((str(path), leaf) for path, leaf in leaves):
        found.update(path.encode() + leaf.numpy().tobytes())
    return found.hexdigest()


# ---------------------------------------------------------------- one job


def train(row: dict[str, Any], job: dict[str, Any], rank: int, path: Path) -> dict[str, Any]:
    """Train until a step, or die there; return the digest and the step that it resumed from."""
    features, layout, until = set(row["features"]), job["layout"], job["until"]
    fastseed.init(42)
    model = build(layout, features)
    gradients = SlotGradients(model, row["slots"], assignment=_assignment(layout), bucket_mb=4e-3)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    tokens = torch.randint(TOKENS, (SAMPLES, 7), generator=torch.Generator().manual_seed(0))
    loader = torch.utils.data.DataLoader(tokens, BATCH, shuffle=True, drop_last=True)
    steps = fastseed.data.steps(loader, epochs=1000, slots=gradients)
    done = 0
    if path.exists():
        found = torch.load(path)
        load(found, model, optimizer)
        steps.load_state_dict(found["steps"])
        done = found["done"]
    started = done
    run = torch.compile(model) if "compile the model" in features else model
    for _, _, batches in steps:
        if done == until:
            break
        for slot, batch in gradients.step(batches):
            rare = "unused" in features and slot.number == row["slots"] // 2
            with torch.autocast("cpu", torch.bfloat16, enabled="autocast" in features):
                output = run(batch[:, :-1], rare)
            loss = nn.functional.cross_entropy(output.float(), batch[:, 1:].flatten())
            if done == until - 1 and job["victim"] == rank:
                os.kill(os.getpid(), signal.SIGKILL)
            loss.backward()
        clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        done += 1
        if len(row["jobs"]) > 1 and (done % SAVE_EVERY == 0 or done == until):
            saved = {**save(model, optimizer), "done": done, "steps": steps.state_dict()}
            if rank == 0:
                torch.save(saved, path.with_suffix(".new"))
                path.with_suffix(".new").rename(path)
    parts = save(model, optimizer)
    return {"digest": digest(parts), "weights": digest(parts["weights"]), "resumed": started}


def _assignment(layout: str) -> str:
    return "blocks" if layout.startswith("blocks") else "deal"


def work(row: dict[str, Any], job: dict[str, Any], rank: int, path: Path, number: int) -> None:
    """Be a rank of a job: write what it returns, or why it failed."""
    torch.set_num_threads(1)
    world = math.prod(parse(job["layout"])[1])
    if job["layout"] != "blocks:1":  # one process without a group
        where = f"file://{path}.store{number}"
        dist.init_process_group("gloo", init_method=where, rank=rank, world_size=world)
    try:
        found = {"ok": train(row, job, rank, path)}
    except BaseException:
        found = {"error": traceback.format_exc()}
    Path(f"{path}.job{number}.rank{rank}").write_text(json.dumps(found))
    if "ok" in found and dist.is_initialized():
        dist.barrier()  # all have what they wait for
    os._exit("error" in found)  # gloo's threads may abort an interpreter that ends in good order


def run(row: dict[str, Any], job: dict[str, Any], path: Path, number: int) -> Any:
    """Return what each rank of a job returned; None if its victim died."""
    world = math.prod(parse(job["layout"])[1])
    context = multiprocessing.get_context("fork")
    ranks = [context.Process(target=work, args=(row, job, r, path, number)) for r in range(world)]
    for process in ranks:
        process.start()
    waiting, failed = {process.sentinel: process for process in ranks}, False
    until = time.monotonic() + LIMIT
    while waiting and not failed:
        ended = wait([*waiting], max(0.0, until - time.monotonic()))
        failed = not ended or any(_exit_code(waiting.pop(end)) for end in ended)
    for process in ranks:
        process.kill()
        process.join()
    if job["victim"] is not None and ranks[job["victim"]].exitcode == -signal.SIGKILL and failed:
        return None
    outputs = [Path(f"{path}.job{number}.rank{rank}") for rank in range(world)]
    texts = [output.read_text() if output.exists() else '{"error": "ended"}' for output in outputs]
    found = [json.loads(text) for text in texts]
    if failed or job["victim"] is not None:
        raise RuntimeError(f"{row}, {job}: {[one.get('error') for one in found]}")
    return [one["ok"] for one in found]


def _exit_code(process: Any) -> int:
    process.join()
    return int(process.exitcode)


def main(folder: str, file: str) -> None:
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = f"{folder}/inductor"
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    rows, results = json.loads(Path(file).read_text()), []
    if "compile" in str(rows):
        importlib.import_module("torch._inductor.compile_fx")  # before ranks are forked
    for index, row in enumerate(rows):
        begin, resumed, last = time.monotonic(), [], []
        for number, job in enumerate(row["jobs"]):
            found = run(row, job, Path(folder) / f"row{index}", number)
            if found is not None:
                last = found
                resumed.append(found[0]["resumed"])
        result = {key: sorted({one[key] for one in last}) for key in ("weights", "digest")}
        seconds = round(time.monotonic() - begin, 2)
        results.append({**result, "resumed": resumed, "seconds": seconds})
        print(json.dumps({**row, **results[-1]}), file=sys.stderr, flush=True)
    print(json.dumps(results))


if __name__ == "__main__":
    main(*sys.argv[1:])
