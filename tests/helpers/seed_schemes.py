"""How projects make the seeds of rollouts, and the table of docs/evidence/rollouts.md.

    python -m helpers.seed_schemes    # in tests/, prints the table

Each function has the coordinates that docs/spec/seed_contract.py passes. Where the
requests have no seeds, but each engine one, a rollout has a position in the engine's stream.
"""

import hashlib
import runpy
from collections.abc import Callable, Iterator
from typing import NamedTuple

import fastseed

from .paths import ROOT

broken_rules = runpy.run_path(str(ROOT / "docs" / "spec" / "seed_contract.py"))["broken_rules"]

PROMPTS, SAMPLES, STEPS = 48, 16, 100
RUN = PROMPTS * SAMPLES * STEPS


class Scheme(NamedTuple):
    """A way of making seeds, and the files that it was read in."""

    name: str
    source: str
    formula: str
    fn: Callable[..., int]


def by_replica(master_seed: int, worker: int, **others: int) -> int:
    return master_seed + worker


def by_sample(master_seed: int, sample: int, **others: int) -> int:
    return master_seed + sample


def by_task(step: int, place: int, sample: int, turn: int, **others: int) -> int:
    task = step * PROMPTS + place  # counted by the dispatcher
    digest = hashlib.sha256(f"{task}:{sample}:{turn}".encode()).digest()
    return int.from_bytes(digest[:4], "big") & 0x7FFFFFFF


def engine_without_seed(worker: int, request: int, **others: int) -> int:
    return worker << 32 | request


def engine_with_seed(master_seed: int, worker: int, request: int, **others: int) -> int:
    return master_seed + worker << 32 | request


def child_of_request(master_seed: int, prompt: int, sample: int, **others: int) -> int:
    return master_seed + prompt + sample


def rollout(step: int, prompt: int, sample: int, turn: int, master_seed: int, **others: int) -> int:
    return fastseed.rollouts.seed(step, prompt, sample, turn=turn, master_seed=master_seed)


SCHEMES = (
    Scheme(
        "verl 0.9.1, `full_determinism`",
        "`verl/workers/rollout/vllm_rollout/vllm_async_server.py`",
        "`seed + replica_rank`, of every request",
        by_replica,
    ),
    Scheme(
        "torchtitan 0.3.0",
        "`torchtitan/experiments/rl/rollout/rollouter.py`",
        "`seed + sample_idx`",
        by_sample,
    ),
    Scheme(
        "slime, 624b824 of 2026-08-21, deterministic inference",
        "`slime/rollout/sglang_rollout.py`",
        "`rollout_seed + i`, i of the sample",
        by_sample,
    ),
    Scheme(
        "AReaL, cbff54d of 2026-08-22, `deterministic_sampling`",
        "`areal/utils/seeding.py`",
        "31 bits of SHA-256 of `task:sample:request`, task a running number",
        by_task,
    ),
    Scheme(
        "TRL 1.16.0 with vLLM",
        "`trl/generation/vllm_generation.py`",
        "engine seed `process_index // tp`; requests have none",
        engine_without_seed,
    ),
    Scheme(
        "OpenRLHF, 3c3be62 of 2026-08-13",
        "`openrlhf/trainer/ray/vllm_engine.py`",
        "engine seed `seed + i`; requests have none",
        engine_with_seed,
    ),
    Scheme(
        "vLLM, 003d3ee, requests with `n > 1` and seeds `seed + prompt`",
        "`vllm/v1/engine/parallel_sampling.py`",
        "request seed `+ index` of the child",
        child_of_request,
    ),
    Scheme("`fastseed.rollouts.seed`", "", "[the derivation](../spec/derivation.md)", rollout),
)


def different_seeds(fn: Callable[..., int]) -> int:
    """Return the number of different seeds in a run: 4 workers with a chunk each, one turn."""
    found, size = set(), PROMPTS // 4
    for step in range(STEPS):
        for place in range(PROMPTS):
            chunk, position = divmod(place, size)
            for sample in range(SAMPLES):
                found.add(
                    fn(
                        master_seed=42, step=step, turn=0, prompt=place, sample=sample,
                        place=place, chunk=chunk, position=position, worker=chunk,
                        request=(step * size + position) * SAMPLES + sample,
                    )
                )  # fmt: skip
    return len(found)


def row(scheme: Scheme) -> str:
    """Return a scheme's row of the table."""
    broken = broken_rules(scheme.fn)
    apart = ("within a step", "across steps", "across turns", "across master seeds")
    different = ["**no**" if f"different {where}" in broken else "yes" for where in apart]
    found = [rule.partition(" of ") for rule in broken]
    depends = [what for rule, _, what in found if rule == "independent"]
    seeds = f"{different_seeds(scheme.fn):,}"
    cells = (scheme.name, scheme.formula, *different, ", ".join(depends) or "nothing", seeds)
    return f"| {' | '.join(cells)} |"


def table() -> Iterator[str]:
    """Yield the lines of the table."""
    yield (
        "| scheme | seed of a rollout | different within a step | across steps | across turns | "
        f"across master seeds | depends on | different seeds (of {RUN:,}) |"
    )
    yield f"|{'---|' * 8}"
    yield from map(row, SCHEMES)


if __name__ == "__main__":
    print("\n".join(table()))
