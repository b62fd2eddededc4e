"""The targets on a GPU: case, baseline, and how many times as fast."""

from __future__ import annotations

from dataclasses import dataclass

OURS = "fastseed"
MEMSET, STORES = "memset", "constant stores"
TORCH, CURAND = "torch", "cuRAND host API"
JAX, SPLIT, SPLIT_OTHERS = "JAX vmap", "jax.random.split", "jax.random.split, other generators"
LOOP = "loop of torch's, generator=g"
MANUAL_SEED = "loop of manual_seed"
SUM = "torch.sum of the same bytes"


@dataclass(frozen=True)
class Bar:
    """A row: the opponent's time over ours is ``at_least`` this.

    Against memset of the same bytes a ratio is the share of the memory's bandwidth that is used.
    None: shown without a promise. ``aim`` is what we should like.
    """

    case: str
    against: str
    at_least: float | None = None
    aim: float | None = None

    @property
    def text(self) -> str:
        """The promise as it reads in a table."""
        if self.at_least is None:
            return "-"
        aim = "" if self.aim is None else f", aim {self.aim:g}"
        return f"{round(self.at_least, 3):g}x{aim}"


def _draws(case: str, memset: float, aim: float | None, **others: float) -> list[Bar]:
    """A draw beside the ceilings of the memory and beside its peers."""
    peers = {"jax": JAX, "loop": LOOP, "torch": TORCH, "curand": CURAND}
    ceilings = [Bar(case, MEMSET, memset, aim), Bar(case, STORES)]
    return ceilings + [Bar(case, peers[name], bar) for name, bar in others.items()]


BARS: tuple[Bar, ...] = (
    Bar("derive_keys/cuda/1e8", MEMSET, 0.90),
    Bar("derive_keys/cuda/1e8", STORES),
    Bar("derive_keys/cuda/1e8", SPLIT, 3),
    Bar("derive_keys/cuda/1e8", SPLIT_OTHERS),
    Bar("derive_seeds/cuda/1e8", MEMSET, 0.75),
    Bar("derive_seeds/cuda/1e8", STORES),
    *_draws("bank.rand/cuda/65536x1024", 0.90, None, jax=1.5, loop=1000),
    *_draws("bank.randn/cuda/65536x1024", 0.55, 0.80, jax=1.5, loop=1000),
    *_draws("uniform_/cuda/1e8", 0.90, None, torch=1.2, curand=1.0),
    *_draws("normal_/cuda/1e8", 0.55, 0.80, torch=1.2, curand=1.0),
    Bar("bank.reseed_in_graph/cuda/1e6", MEMSET, 1 / 1.3),
    Bar("pool.reseed/cuda/1e4", MANUAL_SEED, 5),
    Bar("digest/cuda/1e8", SUM, 0.85),
    Bar("digest/cuda/1000x1e5", SUM),
    # without a promise: other laws, other dtypes, short rows
    Bar("bank.rand_in_graph/cuda/65536x1024", MEMSET),
    Bar("bank.randn_in_graph/cuda/65536x1024", MEMSET),
    Bar("bank.rand/cuda/1e6x4", MEMSET),
    Bar("bank.rand/cuda/1e6x4", JAX),
    Bar("bank.randn/cuda/1e6x4", MEMSET),
    Bar("bank.randn/cuda/1e6x4", JAX),
    Bar("bank.randint/cuda/65536x1024", MEMSET),
    Bar("bank.randint/cuda/65536x1024", JAX),
    Bar("exponential_/cuda/1e8", MEMSET),
    Bar("normal_.bfloat16/cuda/1e8", MEMSET),
    Bar("normal_.float64/cuda/1e8", MEMSET),
)


def cases() -> list[str]:
    """The names of the cases, in the order of the table."""
    return list(dict.fromkeys(bar.case for bar in BARS))
