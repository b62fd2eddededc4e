"""Programs of public bug reports that are no line of docs/rules.md: right ones, and mistakes.

Each mistake raises, warns or is named by a tool. ``ELSEWHERE`` has the tests of the other programs.
"""

import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.distributed as dist
from helpers.paths import ROOT
from helpers.ranks import ranks
from torch.utils.data import DataLoader, DistributedSampler, Sampler, random_split

import fastseed
from fastseed import SHARED, debug
from fastseed._utils.log import warn_once
from fastseed.debug.generator_use import WRONG

pytestmark = pytest.mark.usefixtures("frozen_objects")

ELSEWHERE = {
    "accelerate#4195": "integrations/test_accelerate.py::",
    "guided-diffusion#167": "nn/test_recomputation.py::class Kept",
    "pytorch#190758": "random/test_keyed_compile.py::activation_memory_budget",
    "sbsim#191": "docs/test_rules.py::names_seeds_by_hash",
    "starVLA#470": "data/test_plans.py::set_epoch",
    "torchtitan#3106": "nn/test_initialize_sharded.py::trunc_normal_",
    "torchtrade#351": "docs/test_rules.py::OF_SEEDS",
    "verl-omni#561": "rollouts/test_contract.py::",
}


def test_the_other_programs_have_tests():
    for place in ELSEWHERE.values():
        file, _, text = place.partition("::")
        assert text in (ROOT / "tests" / file).read_text()


def start(**options):
    fastseed.init(42, **(options or {"rank": 0, "world_size": 1}))


def wrong_uses(run):
    return [row.item for row in debug.check(run) if (row.topic, row.status) == ("use", WRONG)]


# VeOmni#1189: a part of a model owns a generator, which a resumed run makes anew.


class Condition(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.noise = torch.Generator().manual_seed(42)

    def forward(self, x):
        return torch.rand(len(x), generator=self.noise).tolist()


def conditioned(steps, register=True):
    start()
    model = torch.nn.Sequential(Condition())
    if register:
        fastseed.register_generator(model)
    drawn = {}
    for step in steps:
        fastseed.reseed(1, 0, step)
        drawn[step] = model(torch.zeros(4))
    return model, drawn


def test_noise_of_a_module_is_resumed():
    _, whole = conditioned(range(6))
    assert conditioned(range(3, 6))[1] == {step: whole[step] for step in range(3, 6)}
    held = []
    assert wrong_uses(lambda: held.append(conditioned(range(2)))) == []
    assert wrong_uses(lambda: held.append(conditioned(range(2), register=False)))

    def replace():
        model, _ = conditioned(range(2))
        model[0].noise = torch.Generator()
        held.append((model, model(torch.zeros(4))))

    assert wrong_uses(replace)


# ace#1170: evaluation seeds a generator that training shares.


def lengths(kind):
    def seed(number):
        held.rng = np.random.default_rng(number)

    def run():
        start()
        if kind in ("function", "one task"):
            fastseed.register_generator(seed, name="lengths")
        if kind == "object":
            fastseed.register_generator(held.rng, name="lengths")
        for epoch in range(4):
            fastseed.reseed(1, epoch)
            drawn.append(held.rng.integers(1000, size=4).tolist())
            if kind in ("function", "one task"):
                fastseed.reseed(2 if kind == "function" else 1, epoch)
            else:
                seed(0)  # evaluation, made repeatable
            held.rng.integers(1000, size=4)

    held, drawn = SimpleNamespace(rng=np.random.default_rng(0)), []
    return wrong_uses(run), drawn


def test_an_evaluation_that_seeds_what_training_draws_from_is_named():
    found, drawn = lengths("function")
    assert not found and len({*map(tuple, drawn)}) == 4
    for kind in ("object", "none", "one task"):
        assert lengths(kind)[0], kind


# OpenTau#498, LongLive#71, tuna-2#15: ranks that share what they should not, and the reverse.


def sampled(kind):
    warn_once.cache_clear()
    fastseed.init(42)
    seed = {"by rank": 5 + dist.get_rank(), "registered": 5 + dist.get_rank(), "one": 5}
    sampler = DistributedSampler(range(12), seed=seed.get(kind, 0))
    if kind == "registered":
        fastseed.register_generator(sampler, name="order")
    loader = DataLoader(range(12), 2, sampler=sampler)
    read = []
    try:
        for _, _, batch in fastseed.data.steps(loader, epochs=1, task=len(kind)):
            read += batch.tolist()
    except RuntimeError as error:
        return str(error)
    return read


def test_samplers_whose_seeds_differ_are_refused():
    for kind in ("one", "registered"):
        one, other = ranks(2, sampled, kind)
        assert sorted(one + other) == [*range(12)], kind
    errors = [found for found in ranks(2, sampled, "by rank") if isinstance(found, str)]
    assert len(errors) == 1 and "seed of the sampler is 5 on rank 0 but 6 on rank 1" in errors[0]


def agreed(kind):
    start(**({"rank": 0, "world_size": 1} if kind == "alone" else {"distinct_over": None}))
    fastseed.reseed(1)
    if kind == "by hand":
        torch.manual_seed(42)
    if kind == "split":
        generator = torch.Generator().manual_seed(fastseed.derive_seed("split"))
    else:
        generator = torch.Generator().manual_seed(fastseed.derive_seed("split", rank=SHARED))
    held_out = random_split(range(40), [0.9, 0.1], generator)[1].indices
    rows = debug.check(module=[*held_out], ranks=True)
    return [row.topic for row in rows if row.status == WRONG], torch.rand(3).tolist()


@pytest.mark.parametrize(
    ("kind", "topics"),
    [("right", []), ("alone", ["ranks"]), ("by hand", ["streams"]), ("split", ["ranks"])],
)
def test_what_ranks_share_is_named(kind, topics):
    (one, noise), (other, same) = ranks(2, agreed, kind)
    assert one == other == topics and (noise != same or kind in ("alone", "by hand"))


# reward-bench#272, Genesis-1.3-Version4#280, webdataset#502


def verdicts(run, **options):
    return {r.verdict for r in debug.seed_reach(lambda *at: {"x": run(*at)}, **options).rows}


def by_item(seed, *without):
    start()
    fastseed.init(seed, rank=0, world_size=1)
    keys = {i: fastseed.derive_seed(f"place/{i}", task=0) for i in range(64) if i not in without}
    return {i: np.random.default_rng(key).integers(1000) for i, key in keys.items()}


def slices(first, ranks):
    made = [np.random.default_rng(first + rank) for rank in range(ranks)]
    return np.concatenate([one.normal(size=(8 // ranks, 4)) for one in made])


def test_what_a_seed_must_reach_is_named():
    assert verdicts(lambda seed: [*by_item(seed).values()]) == {"good"}
    assert by_item(1, 3) == {i: place for i, place in by_item(1).items() if i != 3}
    assert verdicts(lambda seed: np.random.default_rng().integers(4, size=64)) == {"unrepeatable"}
    assert verdicts(lambda seed: slices(1000, 4)) == {"constant"}
    assert verdicts(lambda seed: slices(seed, 8)) == {"shifted"}

    def of_slices(seed):
        fastseed.init(seed, rank=0, world_size=1)
        key = fastseed.derive_key("slices", task=0)
        parts = []
        for rank in range(4):
            shard = fastseed.random.Shard((8, 4), (2 * rank, 0))
            parts.append(fastseed.random.normal_(torch.empty(2, 4), key, shard=shard))
        assert torch.equal(torch.cat(parts), fastseed.random.normal(key, (8, 4)))
        return torch.cat(parts)

    assert verdicts(of_slices) == {"good"}


def test_an_order_of_shards_that_repeats_is_named():
    def derived(seed, epoch):
        fastseed.init(seed, rank=0, world_size=1)
        return fastseed.derive_key("shards", task=1, epoch=epoch)

    cases = {
        "constant": lambda seed, epoch: 0,
        "repeated": lambda seed, epoch: 9 * seed,
        "shifted": lambda seed, epoch: seed + epoch,
        "good": derived,
    }
    for expected, seed_of in cases.items():

        def order(seed, epoch, seed_of=seed_of):
            return random.Random(seed_of(seed, epoch)).sample(range(100), 100)

        found = verdicts(order, seeds=(0, 1, 2), epochs=range(3))
        assert found - {"good"} == {expected} - {"good"}, expected


# pytorch-forecasting#2148, unsloth-zoo#674, SkyRL#1842, trl#7294


def test_one_more_draw_changes_neither_an_order_nor_weights():
    def job(look):
        start()
        loader, model = DataLoader(range(12), 3, shuffle=True), torch.nn.Linear(4, 8)
        if look:
            next(iter(loader))
        with fastseed.nn.initialize(model):
            model.reset_parameters()
        order = [batch.tolist() for *_, batch in fastseed.data.steps(loader, epochs=1, task=1)]
        return order, model.weight.tolist()

    assert job(False) == job(True)
    wrong = pytest.raises(RuntimeError, match="Build modules before the block")
    with wrong, fastseed.nn.initialize(torch.nn.Linear(1, 1)):
        torch.nn.Linear(4, 8)  # the adapter is made too late


class Positioned(Sampler):
    def __init__(self):
        self.position = 0

    def __len__(self):
        return 10

    def __iter__(self):
        while self.position < 10:
            self.position += 1
            yield self.position - 1
        self.position = 0


def test_a_sampler_that_keeps_its_position_is_named(caplog):
    start()
    loop = fastseed.data.steps(DataLoader(range(10), 2, sampler=Positioned()), epochs=1, task=1)
    next(iter(loop))
    with pytest.raises(RuntimeError, match="must yield the same indices when it is run again"):
        list(loop)
    right = fastseed.data.steps(DataLoader(range(10), 2), epochs=1, task=1)
    first = next(iter(right))[2].tolist()
    assert first + [i for *_, batch in right for i in batch.tolist()] == [*range(10)]


def test_a_stale_rollout_does_not_stay_before_what_was_trained():
    options = {"batch_size": 1, "window": 3, "lag": 2, "on_stale": "drop", "master_seed": 1}
    book = fastseed.rollouts.Ledger(9, **options)
    seen = []
    slow, *others = book.lease(3)
    while not book.done:
        for unit in (*others, *book.lease(9)):
            book.complete(unit)
        others = []
        if (batch := book.next_batch()) is None:
            book.drop(slow, "stale")
            continue
        seen += [unit.number for unit in batch.units]
        book.mark_trained(batch)
        again = fastseed.rollouts.Ledger(9, **options)
        again.load_state_dict(book.state_dict())
        assert {unit.number for unit in again.lease(99)}.isdisjoint(seen)
    assert seen == [*range(1, 9)] and book.dropped == {"stale": 1}
