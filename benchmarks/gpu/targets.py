"""The targets on a GPU: case, baseline, and how many times as fast."""

from __future__ import annotations

from dataclasses import dataclass

FASTSEED = "fastseed"
MEMSET, STORES = "memset", "constant stores"
TORCH, CURAND = "torch", "cuRAND host API"
JAX, SPLIT, SPLIT_OTHERS = "JAX vmap", "jax.random.split", "jax.random.split, other generators"
LOOP = "loop of torch's, generator=g"
MANUAL_SEED = "loop of manual_seed"
SUM = "torch.sum of the same bytes"


@dataclass(frozen=True)
class Target:
    """One row: the baseline's time divided by fastseed's should be ``at_least`` this.

    Against memset of the same bytes a ratio is the share of the memory's bandwidth that is used.
    None: shown without a target. ``aim`` is a later goal.
    """

    case: str
    against: str
    at_least: float | None = None
    aim: float | None = None

    @property
    def text(self) -> str:
        """The target as a table shows it."""
        if self.at_least is None:
            return "-"
        aim = "" if self.aim is None else f", aim {self.aim:g}"
        return f"{round(self.at_least, 3):g}x{aim}"


def _draws(case: str, memset: float, aim: float | None, **others: float) -> list[Target]:
    """Targets of one random function: the memory's limits, and its baselines."""
    baselines = {"jax": JAX, "loop": LOOP, "torch": TORCH, "curand": CURAND}
    ceilings = [Target(case, MEMSET, memset, aim), Target(case, STORES)]
    return ceilings + [Target(case, baselines[name], least) for name, least in others.items()]


TARGETS: tuple[Target, ...] = (
    Target("derive_keys/cuda/1e8", MEMSET, 0.90),
    Target("derive_keys/cuda/1e8", STORES),
    Target("derive_keys/cuda/1e8", SPLIT, 3),
    Target("derive_keys/cuda/1e8", SPLIT_OTHERS),
    Target("derive_seeds/cuda/1e8", MEMSET, 0.75),
    Target("derive_seeds/cuda/1e8", STORES),
    *_draws("bank.uniform/cuda/65536x1024", 0.90, None, jax=1.5, loop=1000),
    *_draws("bank.normal/cuda/65536x1024", 0.55, 0.80, jax=1.5, loop=1000),
    *_draws("uniform_/cuda/1e8", 0.90, None, torch=1.2, curand=1.0),
    *_draws("normal_/cuda/1e8", 0.55, 0.80, torch=1.2, curand=1.0),
    Target("bank.reseed_in_graph/cuda/1e6", MEMSET, 1 / 1.3),
    Target("pool.reseed/cuda/1e4", MANUAL_SEED, 5),
    Target("digest/cuda/1e8", SUM, 0.85),
    Target("digest/cuda/1000x1e5", SUM),
    # without a target: other laws, other dtypes, short rows
    Target("bank.uniform_in_graph/cuda/65536x1024", MEMSET),
    Target("bank.normal_in_graph/cuda/65536x1024", MEMSET),
    Target("bank.uniform/cuda/1e6x4", MEMSET),
    Target("bank.uniform/cuda/1e6x4", JAX),
    Target("bank.normal/cuda/1e6x4", MEMSET),
    Target("bank.normal/cuda/1e6x4", JAX),
    Target("bank.randint/cuda/65536x1024", MEMSET),
    Target("bank.randint/cuda/65536x1024", JAX),
    Target("exponential_/cuda/1e8", MEMSET),
    Target("normal_.bfloat16/cuda/1e8", MEMSET),
    Target("normal_.float64/cuda/1e8", MEMSET),
)


def cases() -> list[str]:
    """The names of the cases, in the order of the table."""
    return list(dict.fromkeys(target.case for target in TARGETS))
