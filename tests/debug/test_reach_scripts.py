"""Scripts from a grammar of seedings, data, loaders, models and augmentations: all are correct, so
``seed_reach`` finds nothing; and with one bug planted it names the part."""

import copy
import random
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils import data as loading

import fastseed
from fastseed.debug import seed_reach

SAMPLES, WIDTH, BATCH = 24, 12, 6
BUGS = {"fixed": "constant", "seed + i": "shifted", "copies": "repeated"}


def entropy(*parts: int) -> int:
    return int(np.random.SeedSequence(parts).generate_state(1, np.uint64)[0] >> 1)


def generator(*parts: int) -> torch.Generator:
    return torch.Generator().manual_seed(entropy(*parts))


# ---------------------------------------------------------------- the grammar


def seed_by_hand(seed: int, rank: int) -> None:
    own = entropy(seed, rank) if rank else seed
    torch.manual_seed(own), np.random.seed(own % 2**32), random.seed(own)


def seed_by_fastseed(seed: int, rank: int) -> None:
    fastseed.init(seed, rank=rank, world_size=4)
    fastseed.reseed(task=0)


def seed_from_a_sequence(seed: int, rank: int) -> None:
    words = np.random.SeedSequence(seed, spawn_key=(rank,)).generate_state(3)
    torch.manual_seed(int(words[0])), np.random.seed(words[1]), random.seed(int(words[2]))


SEEDINGS = (seed_by_hand, seed_by_fastseed, seed_from_a_sequence)

FIXED = np.random.default_rng(5)
SAMPLES_OF = {
    "gaussian": FIXED.normal(size=(SAMPLES, WIDTH)),
    "pixels": FIXED.integers(-400, 256, (SAMPLES, WIDTH)).clip(0) / 255,
    "onehot": np.eye(WIDTH)[FIXED.integers(0, WIDTH, SAMPLES)],
    "duplicates": FIXED.normal(size=(5, WIDTH))[FIXED.integers(0, 5, SAMPLES)],
    "windows": np.lib.stride_tricks.sliding_window_view(
        FIXED.normal(size=SAMPLES + WIDTH - 1), WIDTH
    ).copy(),
    "zeros": np.zeros((SAMPLES, WIDTH)),
}  # fmt: skip


class Samples(loading.Dataset):
    def __init__(self, name: str, jitter: bool):
        self.rows = torch.from_numpy(SAMPLES_OF[name]).float()
        self.tokens = torch.from_numpy(np.random.default_rng(6).integers(0, 30, (SAMPLES, 9)))
        self.tokens[:, 6:] = 0  # padding
        self.jitter = jitter

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        row = self.rows[index] + (torch.randn(WIDTH) if self.jitter else 0)
        return index, row, self.tokens[index], index % 3


def shuffled(seed: int) -> fastseed.data.ShuffleSampler:
    seed_by_fastseed(seed, 0)
    return fastseed.data.ShuffleSampler(SAMPLES, rank=0, world_size=1)


def samplers(case: random.Random, seed: int, rank: int, ranks: int) -> dict[str, Any]:
    """Arguments of a DataLoader."""
    own = generator(seed, rank, 1)
    if ranks > 1:
        return {"sampler": loading.DistributedSampler(range(SAMPLES), ranks, rank, seed=seed)}
    weights = torch.linspace(0.1, 1, SAMPLES)
    choices: list[Callable[[], dict[str, Any]]] = [
        lambda: {"shuffle": True},
        lambda: {"shuffle": True, "generator": own},
        lambda: {"shuffle": True, "generator": own, "num_workers": 2},
        lambda: {"sampler": loading.RandomSampler(range(SAMPLES), True, SAMPLES, own)},
        lambda: {"sampler": loading.WeightedRandomSampler(weights, SAMPLES, generator=own)},
        lambda: {"sampler": loading.SubsetRandomSampler(range(SAMPLES // 2), own)},
        lambda: {"sampler": shuffled(seed)},
    ]
    return case.choices(choices, (3, 3, 1, 3, 3, 3, 3))[0]()


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(30, WIDTH), nn.Linear(WIDTH, 30, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.head(rows)


class Zero(nn.Linear):
    def reset_parameters(self) -> None:
        for parameter in self.parameters():
            nn.init.zeros_(parameter)


def pretrained() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(99)
        return nn.Linear(WIDTH, WIDTH)


MODELS: dict[str, Callable[[], nn.Module]] = {
    "mlp": lambda: nn.Sequential(
        nn.Linear(WIDTH, 16), nn.BatchNorm1d(16), nn.Dropout(), nn.Linear(16, 3)
    ),
    "deep": lambda: nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(4))),
    "transformer": lambda: nn.Sequential(
        nn.Unflatten(1, (3, WIDTH // 3)), nn.TransformerEncoderLayer(WIDTH // 3, 2, 8), nn.Flatten()
    ),
    "convolution": lambda: nn.Sequential(
        nn.Unflatten(1, (1, WIDTH)), nn.Conv1d(1, 4, 3), nn.GroupNorm(2, 4), nn.Flatten()
    ),
    "tied": Tied,
    "zero": lambda: nn.Sequential(nn.Linear(WIDTH, 8), nn.LayerNorm(8), Zero(8, 3)),
    "head": lambda: nn.Sequential(pretrained(), nn.Linear(WIDTH, 3)),
}  # fmt: skip
RIGHT = {  # what of a model is the same on purpose
    "head": {"*weights.0.*": "constant"},
    "mlp": {"*num_batches_tracked": "constant"},
    "tied": {"*head.weight": "repeated"},
}


def sparse(rows: int) -> torch.Tensor:
    return (torch.rand(rows, 70) < 0.02).float()


def episodes(rows: int) -> dict[str, Any]:
    """Observations, rewards that are mostly zero, and a replay buffer that is drawn from."""
    seen = torch.randn(rows, 4).cumsum(0)
    rewards = [float(random.random() < 0.05) for _ in range(rows)]
    return {"seen": seen, "rewards": rewards, "replay": seen[torch.randint(rows, (rows,))]}


DRAWS: dict[str, Callable[[int], Any]] = {
    "flips": lambda rows: [random.random() < 0.5 for _ in range(2 * rows)],
    "crops": lambda rows: np.random.randint(0, 9, (rows, 2)),
    "noise": lambda rows: torch.randn(rows, 5),
    "half": lambda rows: torch.randn(rows, 16, dtype=torch.float16),
    "mixup": lambda rows: np.random.beta(0.4, 0.4, rows),
    "masks": lambda rows: torch.rand(rows, 80) < 0.15,
    "sparse": sparse,
    "patches": lambda rows: np.stack([np.random.permutation(49) for _ in range(rows)]),
    "dropout": lambda rows: nn.functional.dropout(torch.ones(rows, 64)),
    "timesteps": lambda rows: torch.randint(0, 1000, (rows,)),
    "words": lambda rows: [random.choice("abcdefgh") for _ in range(2 * rows)],
    "seeds": lambda rows: [random.getrandbits(63) for _ in range(rows)],
    "padded": lambda rows: torch.cat([torch.randn(rows, 4), torch.zeros(rows, 4)]),
    "lists": lambda rows: [torch.randn(4) for _ in range(rows)],
    "episodes": episodes,
}


def train(model: nn.Module, rows: torch.Tensor) -> Iterator[float]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for batch in rows.split(BATCH):
        optimizer.zero_grad()
        loss = (model(batch) - 1).square().mean()
        loss.backward()
        optimizer.step()
        yield loss.item()


class Script:
    """A correct script; with a bug, one part of it is wrong."""

    def __init__(self, number: int, bug: str = "") -> None:
        case = random.Random(f"script {number}")
        self.number, self.bug = number, bug
        self.ranks = case.choice((1, 1, 2, 3))
        self.seeding = case.choice(SEEDINGS)
        self.samples, self.jitter = case.choice(sorted(SAMPLES_OF)), case.random() < 0.3
        self.model = case.choice(sorted(MODELS))
        self.as_state = case.random() < 0.5
        self.draws = case.sample(sorted(DRAWS), 3)
        self.rows = case.choice((8, 12, 16))
        self.allow = dict(RIGHT.get(self.model, {}))
        if self.ranks > 1:
            self.allow["*weights*"] = "repeated"
            if self.samples == "zeros":  # the same batch on every rank
                self.allow["*losses"] = "repeated"

    def __call__(self, seed: int) -> Any:
        parts = [self.part(seed, rank) for rank in range(self.ranks)]
        return {f"rank{r}": part for r, part in enumerate(parts)} if self.ranks > 1 else parts[0]

    def part(self, seed: int, rank: int) -> dict[str, Any]:
        self.seeding(seed, 0)  # the same weights on every rank
        model = MODELS[self.model]()
        weights = model.state_dict() if self.as_state else model
        weights = (
            {name: value.clone() for name, value in weights.items()} if self.as_state else model
        )
        observed: dict[str, Any] = {"weights": weights if self.model != "deep" else list(model)}
        self.seeding(seed, rank)
        if self.bug:
            observed["planted"] = self.planted(seed, rank)
        observed |= {name: DRAWS[name](self.rows) for name in self.draws}
        observed |= self.batches(seed, rank)
        return {**observed, "losses": list(train(copy.deepcopy(model), observed["batches"]))}

    def planted(self, seed: int, rank: int) -> torch.Tensor:
        if self.bug == "fixed":
            return torch.randn(8, 4, generator=generator(rank))
        if self.bug == "copies":
            return torch.randn(4, 4, generator=generator(seed, rank)).repeat(2, 1)
        draws = (torch.Generator().manual_seed(100 * rank + seed + i) for i in range(8))
        return torch.stack([torch.randn(4, generator=draw) for draw in draws])

    def batches(self, seed: int, rank: int) -> dict[str, Any]:
        case = random.Random(f"loader {self.number}")
        arguments = samplers(case, seed, rank, self.ranks)
        loader = loading.DataLoader(Samples(self.samples, self.jitter), BATCH, **arguments)
        order, rows, tokens, labels = map(torch.cat, zip(*loader, strict=True))
        return {"order": order, "batches": rows, "tokens": tokens, "labels": labels}


pytestmark = pytest.mark.usefixtures("one_thread")


def check(number: int) -> None:
    script = Script(number)
    report = seed_reach(script, allow=script.allow)
    wanted = [row for row in report.rows if not row.ok]
    assert report, (number, vars(script), wanted)


@pytest.mark.parametrize("number", range(6))
def test_a_correct_script_has_no_finding(number):
    check(number)


@pytest.mark.slow
def test_two_hundred_correct_scripts_have_no_finding():
    for number in range(200):
        check(number)


@pytest.mark.parametrize("bug", BUGS)
def test_one_bug_in_a_correct_script_is_all_that_is_found(bug):
    for number in (11, 12):
        script = Script(number, bug)
        report = seed_reach(script, allow=script.allow)
        found = {row.leaf: row.verdict for row in report.rows if not row.ok}
        assert set(found.values()) == {BUGS[bug]} and all(re.search("planted", x) for x in found)
        assert len(found) == script.ranks
