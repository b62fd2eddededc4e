"""fastseed.debug.seed_reach: eight bugs of public threads, their corrections, and the rules."""

import operator
import random

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler

import fastseed
from fastseed.debug import seed_reach

HELD: list[object] = []
HELD.append(HELD)
MESH = {rank: divmod(rank, 2) for rank in range(4)}  # (dp, fsdp)


def verdicts(run, seeds=(0, 1, 2), **options) -> dict[str, str]:
    report = seed_reach(run, seeds, **options)
    assert bool(report) == all(row.ok for row in report.rows)
    return {row.leaf: row.verdict for row in report.rows}


def generator(*entropy: int) -> torch.Generator:
    """A generator for which seed and number are two things, not a sum."""
    seed = np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(seed))


# ---------------------------------------------------------------- planted bugs


class Noise(Dataset):
    """A random row for each sample."""

    def __init__(self, draw):
        self.draw = draw

    def __len__(self):
        return 8

    def __getitem__(self, index):
        return torch.as_tensor(self.draw())


def seed_worker(_):
    np.random.seed(torch.initial_seed() % 2**32)


def fixed_generator(seed, right):
    """ultralytics/ultralytics#25815: the workers' seeds come from a constant."""
    torch.manual_seed(seed)
    start = generator(seed) if right else torch.Generator().manual_seed(6148914691236517205)
    data = Noise(lambda: np.random.random(4))
    loader = DataLoader(data, 4, num_workers=2, generator=start, worker_init_fn=seed_worker)
    return {"augmentation": torch.cat(list(loader)), "weights": torch.nn.Linear(4, 4)}


def seed_plus_i(seed, right):
    """DLR-RM/stable-baselines3#2268: environment i has the seed + i."""
    wanted = np.random.SeedSequence(seed).generate_state(4) if right else range(seed, seed + 4)
    return {"observations": [np.random.default_rng(int(one)).random(4) for one in wanted]}


class Server:
    def complete(self, prompt, seed=None):
        rng = random.Random(seed if seed is None else f"{prompt} {seed}")
        return [rng.randrange(50) for _ in range(20)]


def server_without_seed(seed, right):
    """tenstorrent/tt-inference-server#4292: `lm_eval --seed` orders samples, and asks no server."""
    server = Server()
    order = torch.randperm(6, generator=generator(seed)).tolist()
    answers = {str(i): server.complete(i, seed if right else None) for i in range(6)}
    return {"order": order, "answers": answers}


def server_with_one_seed(seed, right):
    """huggingface/lighteval#585: the engine's seed is 1234."""
    return {"answers": [Server().complete(i, seed if right else 1234) for i in range(6)]}


class Jitter(Dataset):
    def __init__(self, seed, right):
        self.seed, self.right = seed, right
        self.rng = np.random.RandomState(seed)

    def __len__(self):
        return 8

    def __getitem__(self, index):
        rng = np.random.default_rng([self.seed, index]) if self.right else self.rng
        return rng.normal(size=4)


def copied_random_state(seed, right):
    """pytorch/pytorch#5059: workers get copies of the dataset's generator."""
    return {"jitter": torch.cat(list(DataLoader(Jitter(seed, right), 2, num_workers=2)))}


def sampler_with_seed_zero(seed, right):
    """mosaicml/composer#3723, meta-pytorch/torchtune#2339: the sampler's default seed is 0."""
    torch.manual_seed(seed)
    orders = {
        f"rank{rank}": list(
            DistributedSampler(range(40), 2, rank, **({"seed": seed} if right else {}))
        )
        for rank in range(2)
    }
    return {"order": orders, "weights": torch.nn.Linear(4, 4)}


class Mask:
    def __init__(self, seed, right):
        self.right, self.rng = right, np.random.default_rng(seed)

    def __call__(self, rows):
        torch_seed = torch.initial_seed() + rows[0]
        rng = np.random.default_rng(torch_seed) if self.right else self.rng
        return torch.from_numpy(rng.random((len(rows), 128)) < 0.15)


def collator(seed, right):
    """ecmwf/WeatherGenerator#277: each worker repeats the masks of the others."""
    start = generator(seed)
    loader = DataLoader(
        range(8), 2, num_workers=2, collate_fn=Mask(seed, right), generator=start
    )  # fmt: skip
    return {"masks": list(loader)}


def one_seed_for_each_parameter(seed, right):
    """VsonicV/es-at-scale#46: layers get the same perturbation."""
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Linear(32, 24))
    shared, noise = generator(seed), {}
    for name, parameter in model.named_parameters():
        own = shared if right else torch.Generator().manual_seed(seed)
        noise[name] = torch.randn(parameter.shape, generator=own)
    return {"noise": noise}


def one_seed_along_fsdp(seed, right):
    """mlcommons/training#844: ranks that shard the parameters share the noise of their samples."""
    ranks = {
        f"rank{rank}": torch.randn(4, 16, generator=generator(seed, dp, fsdp if right else 0))
        for rank, (dp, fsdp) in MESH.items()
    }
    return {"noise": ranks}


@pytest.mark.parametrize(
    ("script", "leaf", "verdict"),
    [
        (fixed_generator, "augmentation", "constant"),
        (seed_plus_i, "observations", "shifted"),
        (server_without_seed, "answers.0", "unrepeatable"),
        (server_with_one_seed, "answers.0", "constant"),
        (copied_random_state, "jitter", "repeated"),
        (sampler_with_seed_zero, "order.rank0", "constant"),
        (collator, "masks", "repeated"),
        (one_seed_for_each_parameter, "noise.0.bias", "repeated"),
        (one_seed_along_fsdp, "noise.rank0", "repeated"),
    ],
)
def test_a_planted_bug_is_named_and_its_correction_is_good(script, leaf, verdict):
    assert verdicts(lambda seed: script(seed, False))[leaf] == verdict
    report = seed_reach(lambda seed: script(seed, True))
    assert report, report


# ---------------------------------------------------------------- rules


def test_the_report_is_a_table():
    def run(seed):
        return {"noise": torch.randn(4, generator=generator(seed)), "evaluation": [1, 2]}

    report = seed_reach(run)
    assert not report and str(report).splitlines() == [
        "noise       good",
        "evaluation  constant      the same for seeds 0, 1, 2, 3",
    ]
    report = seed_reach(run, allow={"eval*": "constant"})
    assert report and report.rows[1].detail == "allowed: the same for seeds 0, 1, 2, 3"
    assert not seed_reach(run, allow={"eval*": "repeated"})


def test_what_is_constant():
    def run(seed):
        model = torch.nn.Sequential(torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 4))
        for parameter in model[1].parameters():
            torch.nn.init.normal_(parameter, generator=generator(seed))
        return {
            "init": model, "state": model.state_dict(), "flips": [False] * 9,
            "loss": torch.tensor(0.5), "empty": [], "absent": {"now": 1} if seed else {},
        }  # fmt: skip

    found = verdicts(run, allow={"state*": "repeated"})
    constant = {name for name, verdict in found.items() if verdict == "constant"}
    count = "state.0.num_batches_tracked"  # an integer, which may be a score
    assert constant == {"flips", "loss", "empty", count}
    assert found["init.0.weight"] == found["absent.now"] == "good"
    assert "init.0.running_mean" not in found


def test_a_second_run_that_differs_or_lacks_a_leaf_is_unrepeatable():
    calls = []

    def run(seed):
        calls.append(seed)
        return {"x": len(calls), "y": 1, **({"z": 1} if len(calls) < 4 else {})}

    found = verdicts(run)
    assert found == {"x": "unrepeatable", "y": "constant", "z": "unrepeatable"}
    assert calls == [0, 1, 2, 0]


@pytest.mark.parametrize("scale", [1, 2, -1])
def test_shifted_rows(scale):
    def run(seed):
        rows = [torch.randn(3, generator=generator(100 + scale * seed + i)) for i in range(5)]
        return {"rows": torch.stack(rows)}

    report = seed_reach(run, (1, 2, 3))
    assert report.rows[0].verdict == "shifted"
    assert report.rows[0].detail.startswith(f"rows[i + {scale}] of seed 1 is rows[i] of ")
    assert seed_reach(run, (1, 11, 21))  # no neighbours


def test_two_seeds_that_give_the_same_are_constant_unless_chance_or_data_explain_it():
    data = torch.randn(6, 8)

    def run(seed):
        half = np.random.default_rng(seed // 2)
        return {
            "halved": half.normal(size=(20, 4)), "order": half.permutation(100).tolist(),
            "coin": [seed % 2 == 0] * 9, "loss": float(seed // 2), "rewards": np.eye(9)[seed // 2],
            "samples": data[[seed % 2, 2 - seed // 2]], "zeros": torch.zeros(9),
        }  # fmt: skip

    report = seed_reach(run)
    assert [(row.leaf, row.detail) for row in report.rows if row.verdict == "constant"] == [
        ("halved", "the same for seeds 0, 1"), ("order", "the same for seeds 0, 1"),
    ]  # fmt: skip


def test_a_leaf_or_an_allowance_that_is_absent_is_reported():
    report = seed_reach(lambda seed: {f"x{seed}": seed}, allow={"x[0-2]": "absent", "y": "absent"})
    assert [tuple(row) for row in report.rows] == [
        *((f"x{s}", "absent", f"allowed: only seed {s} has it", True) for s in range(3)),
        ("x3", "absent", "only seed 3 has it", False),
        ("y", "absent", "it is allowed, and nothing has this name", True),
    ]


@pytest.mark.parametrize("workers", [2, 3, 4, 5])
@pytest.mark.parametrize("together", [operator.add, operator.xor])
def test_workers_and_ranks_whose_seeds_are_those_of_other_seeds_are_shifted(workers, together):
    def run(seed):
        seeds = [together(seed, i) for i in range(workers)]
        draws = [torch.randn(8, generator=generator(one)) for one in seeds]
        return {"rows": draws, **{f"rank{i}": {"noise": draw} for i, draw in enumerate(draws)}}

    report = seed_reach(run, allow={"rows": "repeated", "rank*": "repeated"})
    assert {row.verdict for row in report.rows} == {"shifted"}
    details = {row.detail for row in report.rows}
    assert ("rows[i] is a function of seed ^ i" in details) == (together is operator.xor)


def test_orders_of_one_data_set_are_not_shifted():
    data = torch.randn(4, 8)
    orders = [[0, 1, 2, 3], [1, 0, 3, 2], [2, 3, 0, 1], [3, 2, 0, 1]]  # the last one is no ^
    assert seed_reach(lambda seed: data[orders[seed]])


def test_layers_of_any_number_are_ordered_by_it():
    def run(seed):
        return {f"h{i}": torch.randn(8, generator=generator(seed + i)) for i in range(12)}

    assert set(verdicts(run).values()) == {"shifted"}


def test_small_rows_and_chance_are_no_finding():
    """Orders, labels, sparse rewards, samples that two seeds drew: whatever 300 seeds give."""
    data = torch.randn(6, 3)

    def run(seed):
        rng = np.random.default_rng(seed)
        few = rng.integers(0, 6, 2)
        return {
            "order": rng.permutation(6), "labels": rng.integers(0, 2, 4),
            "rewards": (rng.random(8) > 0.9).astype(float), "samples": data[rng.permutation(6)],
            "twice": data[rng.integers(0, 6, 6)], "onehot": np.eye(70)[rng.integers(0, 70, 6)],
            "padded": np.concatenate([rng.random((3, 4)), np.zeros((3, 4))]),
            "few": [data[i] for i in few], "tokens": np.pad(rng.integers(0, 9, (4, 30)), 2),
        }  # fmt: skip

    for seed in range(0, 300, 3):
        found = verdicts(run, range(seed, seed + 3))
        assert not {"shifted", "repeated"} & set(found.values()), (seed, found)


def test_equal_rows_in_other_places_for_each_seed_are_samples_drawn_again():
    def run(seed):
        buffer = torch.randn(20, 4, generator=generator(seed, 0))
        chosen = torch.randint(20, (20,), generator=generator(seed, 1))
        return {"replay": buffer[chosen]}

    assert verdicts(run) == {"replay": "good"}


def test_copies_are_repeated_unless_one_of_them_is_allowed():
    def run(seed):
        online = torch.nn.Linear(4, 4)
        torch.nn.init.normal_(online.weight, generator=generator(seed))
        torch.nn.init.zeros_(online.bias)
        return {"online": online, "target": {"weight": online.weight.clone()}}

    assert verdicts(run) == {
        "online.weight": "repeated", "online.bias": "good", "target.weight": "repeated",
    }  # fmt: skip
    assert seed_reach(run, allow={"target*": "repeated"})


def test_tied_weights_of_a_module_are_one_leaf():
    def run(seed):
        first, last = torch.nn.Embedding(9, 8), torch.nn.Linear(8, 9, bias=False)
        torch.nn.init.normal_(first.weight, generator=generator(seed))
        last.weight = first.weight
        return torch.nn.ModuleList([first, last])

    assert verdicts(run) == {"0.weight": "good"}


@pytest.mark.parametrize(
    "dtype", ["bfloat16", "float64", "complex64", "bool", "uint64", "uint8", "float8_e4m3fn"]
)
def test_rows_of_every_kind_of_number(dtype):
    def run(seed):
        draw = generator(seed)
        row = torch.randint(-(2**62), 2**62, (2, 32), generator=draw).view(torch.uint8)
        row = row > 127 if dtype == "bool" else row.view(getattr(torch, dtype))
        return {"rows": torch.cat([row, row]), "transposed": row.T}

    assert verdicts(run)["rows"] == "repeated"


def test_tensors_of_any_memory():
    """One element with a stride, none, zero dimensions, lists of those that have no memory."""
    one = {"x": torch.zeros(4)[::2][:1], "y": torch.zeros(0, 3), "z": torch.zeros(1).expand(1)[0]}
    assert set(verdicts(lambda seed: one).values()) == {"constant"}
    freed = torch.zeros(4)
    freed.untyped_storage().resize_(0)
    for tree in (freed, [freed, freed], torch.zeros(2, device="meta")):
        with pytest.raises(TypeError, match=r"^fastseed.debug.digest: "):
            seed_reach(lambda seed, tree=tree: tree)


def test_numbers_and_texts_in_lists_are_one_leaf():
    def run(seed):
        rng = random.Random(seed)
        return {
            "coins": [rng.random() < 0.5 for _ in range(30)], "huge": [rng.getrandbits(90)],
            "mixed": [2**63 + seed, -1, 0.5], "text": [rng.choice("ab") for _ in range(30)],
            "seeds": [2**63 + seed, 1], "one": [2**63 + seed],
            "numpy": [np.uint64(2**64 - 1 - seed), 1],
            "nan": [float("nan"), rng.random()], "arrays": [np.full(3, rng.random())],
        }  # fmt: skip

    found = verdicts(run)
    assert len(found) == 9 and set(found.values()) == {"good"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(run=1), "run must be callable, got 1"),
        (dict(seeds=3), "seeds must be a list, tuple or range, got 3"),
        (dict(seeds=(1,)), r"seeds must be at least two different integers, got \(1,\)"),
        (dict(seeds=(1, 1)), "seeds must be at least two different integers"),
        (dict(seeds=(1, 2.0)), r"seeds\[1\] must be an integer, got 2.0"),
        (dict(seeds=(1, -1)), r"seeds\[1\] must be in \[0, "),
        (dict(allow=["x"]), "allow must be a mapping of names to verdicts"),
        (dict(allow={1: "constant"}), "a name in allow must be a string, got 1"),
        (dict(allow={"x": "fine"}), r"allow\['x'\] must be one of 'unrepeatable', 'constant'"),
        (dict(run=lambda seed: {"x": object()}), "the leaf at 'x' must be a tensor"),
        (dict(run=lambda seed: HELD), "run must be a function that returns a tree, not a contain"),
    ],
)
def test_wrong_arguments(arguments, message):
    given = {"run": lambda seed: seed, **arguments}
    with pytest.raises((TypeError, ValueError), match=message):
        fastseed.debug.seed_reach(**given)


def epochs_of(**leaves):
    """Return a function of a seed and an epoch that returns what functions of both return."""
    return lambda seed, epoch: {name: leaf(seed, epoch) for name, leaf in leaves.items()}


def draws(seed, size=8):
    return torch.randn(size, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    ("leaf", "verdict", "detail"),
    [
        (lambda s, e: draws(1000 * s + e), None, ""),
        (lambda s, e: draws(s), "repeated", "x by epoch[0] is x by epoch[1] with each seed"),
        (lambda s, e: draws(9 * s + e % 2), "repeated", "x by epoch[0] is x by epoch[2]"),
        (lambda s, e: draws(s + e), "shifted", "x by epoch[i + 1] of seed 0 is x by epoch[i]"),
        (lambda s, e: draws(s, 1), None, ""),  # too short to know
        (lambda s, e: torch.zeros(40), None, ""),  # drawn from nothing
        (lambda s, e: draws(5), None, ""),  # a verdict of the leaf itself
        (lambda s, e: torch.randperm(40, generator=torch.Generator().manual_seed(s)),
         "repeated", "x by epoch[0] is x by epoch[1] with each seed"),
    ],
)  # fmt: skip
def test_what_repeats_from_epoch_to_epoch(leaf, verdict, detail):
    rows = seed_reach(epochs_of(x=leaf), epochs=range(3)).rows
    later = [row for row in rows if row.leaf == "x by epoch"]
    assert [row.verdict for row in later] == [verdict] * bool(verdict)
    assert all(row.detail.startswith(detail) and not row.ok for row in later)


def test_an_epoch_that_differs_is_a_verdict_of_the_leaf():
    state = iter(range(1000))
    report = seed_reach(epochs_of(x=lambda s, e: draws(s if e == 0 else 77), y=lambda s, e:
                                  draws(next(state) if e == 2 else 10 * s + e)),
                        epochs=[0, 1, 2], allow={"x by epoch": "repeated"})  # fmt: skip
    assert {row.leaf: row.verdict for row in report.rows} == {"x": "good", "y": "unrepeatable"}


def test_allowed_repetition_of_epochs():
    report = seed_reach(
        epochs_of(x=lambda s, e: draws(s)), epochs=[3, 5], allow={"x by *": "repeated"}
    )
    assert report and [row.verdict for row in report.rows] == ["good"]


@pytest.mark.parametrize("epochs", [[], [1], [2, 2], [0, -1], [0, 1.5], {0, 1}, 3])
def test_epochs_must_be_different_integers(epochs):
    with pytest.raises((TypeError, ValueError), match=r"^fastseed.debug.seed_reach: epochs"):
        seed_reach(lambda seed, epoch: 1 / 0, epochs=epochs)
