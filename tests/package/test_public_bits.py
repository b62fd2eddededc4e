"""The bits that public names give: a digest of each, which no change of the inside may alter."""

import hashlib
import json
import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from helpers.paths import ROOT
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

import fastseed
import fastseed.pyt
from fastseed import SHARED, data, debug, elastic, rollouts, sampling
from fastseed import random as draws
from fastseed.random import Shard, StreamBank, keyed

EXPECTED = ROOT / "tests" / "vectors" / "public_names.json"
KEY = 0x0123456789ABCDEF_FEDCBA9876543210
X = torch.arange(-12, 12).view(4, 6) / 8  # sums of these are exact
MESH = {"dp": (1, 2), "tp": (1, 3)}


def globals_() -> tuple[object, ...]:
    """Numbers of the three global generators."""
    return random.random(), np.random.random(3), torch.rand(3)


def registered() -> Iterator[object]:
    """Numbers of one generator of each kind, a pool, a list and a bank."""
    seeds: list[int] = []
    rng, old, own = np.random.default_rng(), np.random.RandomState(), random.Random()
    one, some = torch.Generator(), [torch.Generator(), torch.Generator()]
    pool, bank = fastseed.GeneratorPool([torch.Generator()], "pool"), StreamBank(2, "bank")
    for name, generator in {"rng": rng, "old": old, "own": own, "one": one, "some": some}.items():
        fastseed.register_generator(generator, name=name)
    for bits in (31, 32, 63, 64, 128):
        fastseed.register_generator(seeds.append, bits == 63, name=f"f{bits}", bits=bits)
    fastseed.register_generator(pool)
    fastseed.register_generator(bank, distinct_over=("dp",))
    sampler = torch.utils.data.DistributedSampler(range(9), 2, 0)
    fastseed.register_generator(sampler, name="sampler")
    fastseed.reseed(3, 2, 1)
    yield from (seeds, rng.random(), old.random(), own.random(), torch.rand(2, generator=one))
    yield from (torch.rand(2, generator=g) for g in (*some, pool[0]))
    yield from (draws.normal(bank, 2), list(sampler), fastseed.derive_key("f63"))
    yield fastseed.derive_key("bank")


def in_block(block: Any, draw: Callable[[], object]) -> object:
    with block:
        return draw(), draw()


def nearly(values: torch.Tensor) -> torch.Tensor:
    """Values that another CPU rounds in another way."""
    return (values * 2**12).round()


def drawn() -> list[torch.Tensor]:
    """What torch's functions give in a block."""
    normal = torch.distributions.Normal(0.0, 1.0).sample((2,))
    filled = [torch.empty(3).uniform_(1, 2), torch.empty(3).normal_(), torch.empty(3).cauchy_()]
    dropped = [nn.functional.dropout(X), nn.functional.dropout1d(X), nn.functional.alpha_dropout(X)]
    return [
        *(torch.rand(5), torch.randn(5), torch.randn_like(X), torch.randint(9, (5,)), normal),
        *(torch.randperm(7), torch.bernoulli(X.abs() / 2), torch.normal(X, 1.0)),
        *(torch.multinomial(X.abs(), 2), *filled, *dropped),
        nearly(nn.functional.scaled_dot_product_attention(X, X, X, dropout_p=0.3)),
    ]


def initialized() -> object:
    model = nn.Sequential(nn.Linear(6, 4), nn.Embedding(5, 3))
    with fastseed.nn.initialize(model):
        for layer in model:
            layer.reset_parameters()
    return model.state_dict()


def dropped(**rows: object) -> Iterator[object]:
    """Converted layers, and fastseed's own, in two steps."""
    layers = (fastseed.nn.Dropout(0.5), fastseed.nn.Dropout1d(0.5), fastseed.nn.Dropout2d(0.5))
    heads = nn.TransformerEncoderLayer(6, 2, 8, dropout=0.3, batch_first=True)
    model = fastseed.nn.convert(nn.ModuleDict({"a": nn.Sequential(*layers), "b": heads}))
    for p in model.parameters():
        nn.init.constant_(p, 0.1)
    for step in range(2):
        fastseed.reseed(1, 0, step)
        with fastseed.nn.rows(**rows), fastseed.nn.label("part"):
            yield (
                model["a"][0](X),
                model["a"][1](X.view(2, 2, 6)),
                nearly(model["b"](X.view(4, 1, 6))),
            )


def perturbed() -> Iterator[object]:
    model = nn.Linear(6, 4)
    nn.init.ones_(model.weight), nn.init.zeros_(model.bias)
    with fastseed.nn.perturbed(model, 7, 0.5):
        yield [p.clone() for p in model.parameters()]
    fastseed.nn.perturb_(model, 8, 0.25)
    fastseed.nn.apply_log(model, [(9, 0.5)])
    yield model.state_dict()


class Noisy:
    """A dataset that draws from everything and from a generator of its own."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng()

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> object:
        with keyed("sample", index=1):
            block = torch.rand(())
        return torch.tensor([index, self.rng.random(), random.random(), np.random.random()]), block


class Stream(Noisy, IterableDataset):  # type: ignore[type-arg]
    def __iter__(self) -> Iterator[object]:
        return (self[i] for i in range(4))


def loaded(workers: int, dataset: Any = Noisy, **options: Any) -> object:
    options = {"batch_size": 2, "shuffle": True, **options}
    if dataset is Stream:
        del options["shuffle"]
    return list(data.Loader(dataset(), num_workers=workers, **options))


def stepped() -> list[object]:
    loader = data.Loader(Noisy(), 2, sampler=data.ShuffleSampler(6), num_workers=1)
    loop = data.steps(loader, epochs=2)
    return [(batch, torch.rand(2)) for batch in loop]


def by_worker_init() -> object:
    options: Any = {"worker_init_fn": data.worker_init_fn, "batch_size": 3}
    return list(DataLoader(Noisy(), num_workers=2, **options))


def slots() -> object:
    model = nn.Linear(6, 1)
    nn.init.ones_(model.weight), nn.init.zeros_(model.bias)
    gradients = elastic.SlotGradients(model, 3)
    for i in range(3):
        with gradients.slot():
            model(X[i]).square().sum().backward()
    gradients.finish()
    norm = elastic.clip_grad_norm_(model.parameters(), 1.0)
    return norm, [p.grad for p in model.parameters()]


def sampled(keys: object) -> object:
    return sampling.sample(X, keys, torch.arange(4), temperature=0.7, top_k=5, top_p=0.9)


def keys_of(n: int = 4) -> torch.Tensor:
    return fastseed.derive_keys("keys", n, task=5)


def of_bank(draw: Callable[..., torch.Tensor]) -> Iterator[object]:
    bank = StreamBank(3, "bank")
    for reseed in (lambda: bank.reseed(1, 2), bank.reseed_from_scope,
                   lambda: bank.reseed_from_seeds([7, -1, 2**64 - 1])):  # fmt: skip
        reseed()
        yield draw(bank, 3), draw(bank[torch.tensor([2, 0])], 3), bank.positions.clone()


def exact() -> object:
    state = {k: v for k, v in fastseed.state_dict(rng=True).items() if ".torch.cuda" not in k}
    numbers = globals_()
    fastseed.load_state_dict(state)
    return state, numbers, globals_()


def compiled() -> object:
    @torch.compile(backend="eager")
    def draw(x: torch.Tensor) -> torch.Tensor:
        with keyed("graph", index=2):
            return nn.functional.dropout(torch.randn_like(x) + torch.rand(6), 0.5)

    return draw(X), fastseed.reseed(1, 0, 8), draw(X)


def of_fwr13y() -> object:
    fastseed.pyt.init(42, 8, 3, scheme="fwr13y")
    fastseed.pyt.reseed(1, 3)
    return globals_(), fastseed.pyt.SeedGen(42, 8, 3)(0, 1)


def of_seeder() -> object:
    seeder = fastseed.Seeder(7, rank=4, world_size=6, mesh=MESH, distinct_over={"a": ("tp",)})
    names = ("a", "keyed/a", "a/torch.cpu", "b")
    return [seeder.derive_key(n, task=1) for n in names], seeder.derive_seeds("a", 2, task=1)


WHERE = {"task": 3, "epoch": 2, "step": 2**40, "worker": 5}
IN_PLACE = {
    **{"uniform": (-1.0, 2.0), "normal": (1.0, 0.5), "exponential": (3.0,), "bernoulli": (0.3,)},
    **{"trunc_normal": (), "randint": (-5, 9), "bits": ()},
}
DTYPES = {"randint": torch.int64, "bits": torch.uint32}
CALLS: dict[str, Callable[[], object]] = {
    "init": globals_,
    "reseed": lambda: (fastseed.reseed(2, 1, 9), globals_()),
    "get_master_seed": fastseed.get_master_seed,
    "register_generator": registered,
    "fork_rng": lambda: in_block(fastseed.fork_rng("a"), lambda: torch.rand(3)),
    "fork_rng(index=, distinct_over=)": lambda: in_block(
        fastseed.fork_rng("a", index=3, distinct_over=()), lambda: torch.rand(3)
    ),
    "derive_key": lambda: [fastseed.derive_key("a", **w) for w in ({}, WHERE, {"rank": SHARED})],
    "derive_key of blocks": lambda: [
        fastseed.derive_key(n) for n in ("keyed/a", "a/torch.cpu", "numpy", "keyed/b")
    ],
    "derive_seed": lambda: [
        fastseed.derive_seed("a", bits=bits, index=7, **WHERE) for bits in (31, 32, 63, 64)
    ],
    "derive_keys": lambda: fastseed.derive_keys("a", 3, start=2**40, **WHERE),
    "derive_seeds": lambda: (fastseed.derive_seeds("a", 5), fastseed.derive_seeds("b", 5)),
    "state_dict, load_state_dict": exact,
    "enforce_reproducibility": lambda: (fastseed.enforce_reproducibility(5), globals_()),
    "GeneratorPool": lambda: [
        (p.reseed(1, 2), p[1].get_state(), p.reseed_from_seeds([3, -1]), p[1].get_state())
        for p in [fastseed.GeneratorPool([torch.Generator() for _ in range(2)], "p")]
    ],
    "Seeder": of_seeder,
    **{
        f"random.{name}": lambda name=name, given=given: [
            getattr(draws, name)(key, (3, 5), *given) for key in (KEY, keys_of())
        ]
        for name, given in IN_PLACE.items()
    },
    **{
        f"random.{name}_": lambda name=name, given=given: getattr(draws, f"{name}_")(
            torch.empty(2, 5, dtype=DTYPES.get(name, torch.float32)),
            KEY,
            *given,
            shard=Shard((4, 9), (1, 3)),
        )
        for name, given in IN_PLACE.items()
    },
    "random.StreamBank": lambda: of_bank(draws.normal),
    "random.keyed": lambda: in_block(keyed("a"), drawn),
    "random.keyed(index=)": lambda: in_block(keyed("a", 2**39 - 1), drawn),
    "random.keyed(distinct_over=)": lambda: [
        in_block(keyed("a", 1, distinct_over=over), drawn) for over in ((), ("dp",), ("tp",))
    ],
    "random.keyed compiled": compiled,
    "data.steps": stepped,
    "data.Loader": lambda: [loaded(n) for n in (1, 2)],
    "data.Loader of a stream": lambda: [loaded(n, Stream) for n in (1, 2)],
    "data.ShuffleSampler": lambda: list(data.ShuffleSampler(100)),
    "data.MixtureSampler": lambda: list(data.MixtureSampler({"a": 9, "b": 20}, {"a": 1, "b": 3})),
    "data.per_sample": lambda: [
        loaded(n, lambda name=name: data.per_sample(Noisy(), name=name))
        for n in (0, 2)
        for name in (None, "b")
    ],
    "data.per_sample(generator=)": lambda: [
        loaded(
            0,
            lambda kind=kind: data.per_sample(
                range(6),
                generator=kind,
                transform=lambda x, g: torch.tensor(
                    float(torch.rand((), generator=g) if kind == "torch" else g.random())
                ),
            ),
        )
        for kind in ("numpy", "torch")
    ],
    "data.per_batch": lambda: [
        loaded(n, collate_fn=data.per_batch(lambda rows: (rows[0][0][0], torch.rand(2))))
        for n in (0, 2)
    ],
    "data.worker_init_fn": by_worker_init,
    "nn.initialize": initialized,
    "nn.convert": lambda: dropped(start=4, total=16),
    "nn.functional": lambda: fastseed.nn.functional.dropout(X, 0.3, KEY, offset=5),
    "nn.perturbed": perturbed,
    "elastic.SlotGradients": slots,
    "rollouts.seed": lambda: [rollouts.seed(3, p, 1) for p in (5, "text", [1, 2])],
    "rollouts.seeds": lambda: rollouts.seeds(3, [5, 6], [0, 1]),
    "sampling.sample": lambda: sampled(keys_of()),
    "debug.digest": lambda: debug.digest(X),
    "checkpoint.to_tensors": lambda: fastseed.checkpoint.to_tensors(fastseed.state_dict()),
    "pyt": of_fwr13y,
}


def flat(value: object) -> Iterator[bytes]:
    """The bits of what a call returned."""
    if isinstance(value, torch.Tensor):
        value = value.detach().contiguous()
        yield f"{value.dtype} {tuple(value.shape)}".encode()
        yield value.reshape(-1).view(torch.uint8).numpy().tobytes()
    elif isinstance(value, np.ndarray):
        yield value.tobytes()
    elif isinstance(value, dict):
        for name, held in value.items():
            yield str(name).encode()
            yield from flat(held)
    elif isinstance(value, Iterable) and not isinstance(value, (str, bytes)):
        for held in value:
            yield from flat(held)
    else:
        yield repr(value).encode()


def digest_of(name: str) -> str:
    fastseed.init(42, mesh=MESH, rank=4, world_size=6, distinct_over={"b": ("tp",)})
    fastseed.reseed(1, 2, 3)
    return hashlib.sha256(b"\0".join(flat(CALLS[name]()))).hexdigest()[:32]


@pytest.mark.parametrize("name", CALLS)
def test_the_bits_of_a_public_name_stay(name):
    assert digest_of(name) == json.loads(EXPECTED.read_text())[name]
