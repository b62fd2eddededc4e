"""A planted bit is found at its step and tensor; equal runs are reported as equal."""

import copy
import json
import random

import numpy as np
import pytest
import torch
from helpers.support import snapshot
from torch import nn

from fastseed import cli
from fastseed.debug import Watch, bisect
from fastseed.debug.watch_file import Recording

STEPS = 6


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.one = nn.Linear(5, 7)
        self.norm = nn.BatchNorm1d(7)
        self.two = nn.Linear(7, 3)

    def forward(self, x):
        return self.two(torch.relu(self.norm(self.one(x))))


def flip(tensor, element=0, bit=0):
    """Invert one bit of a tensor."""
    tensor.detach().view(-1).view(torch.int32)[element] ^= 1 << bit


def seed_all(seed):
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(seed)


def nothing(step, model, optimizer):
    return None


def fit(model, optimizer, steps, before=nothing, after=nothing):
    """Train; ``before`` is called before the optimizer's step, ``after`` behind it."""
    for step in steps:
        optimizer.zero_grad()
        x = torch.randn(8, 5, generator=torch.Generator().manual_seed(step))
        model(x).square().mean().backward()
        before(step, model, optimizer)
        optimizer.step()
        after(step, model, optimizer)


def train(path, *, before=nothing, after=nothing, steps=STEPS, seed=1, **options):
    """A recorded run."""
    seed_all(seed)
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    with Watch(model, optimizer, path=path, **options) as watch:

        def recorded(*now):
            after(*now)
            watch.record()

        fit(model, optimizer, range(steps), before, recorded)
    return path


@pytest.fixture(scope="module")
def a(tmp_path_factory):
    return train(tmp_path_factory.mktemp("a"))


def at(step, act):
    return lambda now, model, optimizer: act(model, optimizer) if now == step else None


def names(found):
    return [tuple(p.name.split(" ", 1)) for p in found.differences]


# ---------------------------------------------------------------- planted faults


@pytest.mark.parametrize(("step", "name"), [(0, "norm.bias"), (STEPS - 1, "two.bias")])
def test_a_bit_of_a_parameter_is_found(a, tmp_path, step, name):
    def act(model, optimizer):
        flip(model.get_parameter(name), -1, bit=15 + step)  # too much to be rounded away

    found = bisect(a, train(tmp_path, after=at(step, act)))
    assert (found.step, found.rank, found.start) == (step, 0, False)
    assert names(found) == [("parameter", name)]
    assert found.first.a.value != found.first.b.value and found.first.a.dtype == "float32"
    assert found.differing == STEPS - step and found.compared == STEPS + 1
    assert not found.equal


@pytest.mark.cuda
def test_a_bit_of_a_parameter_on_the_device_is_found(tmp_path, device):
    def run(path, planted):
        torch.manual_seed(1)
        model = nn.Linear(33, 9).to(device)
        optimizer = torch.optim.AdamW(model.parameters(), fused=True)
        with Watch(model, optimizer, path=path) as watch:
            for step in range(4):
                optimizer.zero_grad()
                x = torch.randn(8, 33, generator=torch.Generator().manual_seed(step))
                model(x.to(device)).sum().backward()
                optimizer.step()
                if planted and step == 2:
                    model.weight.detach().view(torch.int32)[4, 4] ^= 1
                watch.record()

    run(tmp_path / "a", False)
    run(tmp_path / "b", True)
    found = bisect(tmp_path / "a", tmp_path / "b")
    assert (found.step, found.first.name) == (2, "parameter weight")


def test_a_bit_of_a_gradient_is_found_before_what_it_changes(a, tmp_path):
    def act(model, optimizer):
        flip(model.one.weight.grad, 4, bit=20)

    found = bisect(a, train(tmp_path, before=at(2, act)))
    assert found.step == 2
    assert names(found) == [
        ("gradient", "one.weight"),
        ("optimizer", "one.weight.exp_avg"),
        ("optimizer", "one.weight.exp_avg_sq"),
        ("parameter", "one.weight"),
    ]


@pytest.mark.parametrize(
    ("name", "act"),
    [
        (
            ("optimizer", "two.weight.exp_avg_sq"),
            lambda m, o: flip(o.state[m.two.weight]["exp_avg_sq"], 3),
        ),
        (("buffer", "norm.running_mean"), lambda m, o: flip(m.norm.running_mean, 2)),
    ],
)
def test_a_bit_of_other_state_is_found(a, tmp_path, name, act):
    found = bisect(a, train(tmp_path, after=at(4, act)))
    assert found.step == 4 and names(found) == [name]


def test_another_setting_is_found_first(a, tmp_path):
    def act(model, optimizer):
        optimizer.param_groups[0]["lr"] = 0.02

    found = bisect(a, train(tmp_path, before=at(3, act)))
    assert found.step == 3 and names(found)[0] == ("optimizer", "group 0.lr")
    assert ("gradient", "one.weight") not in names(found)


def test_gradients_are_named_from_the_loss_on(a, tmp_path):
    """The layer in which a backward pass went wrong, not the first one of the model."""

    def act(model, optimizer):
        for parameter in (model.one.weight, model.norm.weight):
            flip(parameter.grad, bit=20)

    found = bisect(a, train(tmp_path, before=at(0, act)))
    assert names(found)[:2] == [("gradient", "norm.weight"), ("gradient", "one.weight")]
    assert str(found).endswith(f"; and {len(found.differences) - 1} more at this step")


def test_other_weights_are_found_before_the_first_step(a, tmp_path):
    found = bisect(a, train(tmp_path, seed=2))
    assert (found.step, found.start) == (-1, True)
    assert names(found)[0] == ("parameter", "one.weight")
    assert "before the first recorded one" in str(found)


# ---------------------------------------------------------------- equal runs


def test_equal_runs_are_equal(a, tmp_path):
    found = bisect(a, train(tmp_path))
    assert found.equal and found.first is None and found.notes == ()
    assert str(found) == f"all {STEPS + 1} common steps are equal"


def test_watching_changes_nothing_and_draws_nothing(tmp_path):
    model = Net()
    before = snapshot(), [p.clone() for p in model.parameters()]
    watch = Watch(model, path=tmp_path)
    watch.record()
    watch.close()
    assert str(snapshot()) == str(before[0])
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), before[1], strict=True))
    assert all(p.grad is None for p in model.parameters())


def test_runs_of_other_lengths_and_intervals(a, tmp_path):
    short = bisect(a, train(tmp_path / "short", steps=3))
    assert short.equal and short.compared == 4 and short.notes == ("only a has steps 3 to 5",)
    rare = bisect(train(tmp_path / "rare", every=3), a)
    assert rare.equal and rare.compared == 3
    assert rare.notes == ("only b has steps 4 of 1 to 5", "every is 3 in a and 1 in b")


def test_what_only_one_run_has(a, tmp_path):
    seed_all(1)
    model = Net()
    with Watch(model, path=tmp_path / "none"):
        pass
    assert bisect(a, tmp_path / "none").notes == (
        f"only a has steps 0 to {STEPS - 1}",
        "only a recorded the optimizer",
    )
    model.extra = nn.Parameter(torch.zeros(2))
    with Watch(model, path=tmp_path / "more"):
        pass
    found = bisect(a, tmp_path / "more")
    assert names(found) == [("parameter", "extra")] and found.first.a is None
    assert str(found.first).startswith("parameter extra: absent | float32[2] ")


def test_a_missing_gradient_is_a_difference(a, tmp_path):
    def act(model, optimizer):
        model.two.bias.grad = None

    found = bisect(a, train(tmp_path, before=at(2, act)))
    assert found.step == 2 and names(found)[0] == ("gradient", "two.bias")
    assert found.first.b is None


def test_a_run_that_was_resumed(a, tmp_path):
    """In a new file, whose start is the step before; and in the file that was there."""
    states = {}

    def keep(model, optimizer):
        states.update(copy.deepcopy({"m": model.state_dict(), "o": optimizer.state_dict()}))
        states["rng"] = torch.get_rng_state()

    train(tmp_path / "part", steps=4, after=at(3, keep))

    def resumed(path, **options):
        model = Net()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.5)
        model.load_state_dict(states["m"])
        optimizer.load_state_dict(copy.deepcopy(states["o"]))  # it keeps some of these tensors
        torch.set_rng_state(states["rng"])
        with Watch(model, optimizer, path=path, step=4, **options) as watch:
            fit(model, optimizer, range(4, STEPS), after=lambda *_: watch.record())

    resumed(tmp_path / "rest")
    found = bisect(a, tmp_path / "rest")
    assert found.equal and found.compared == 3  # the start and two steps
    resumed(tmp_path / "part", append=True)
    assert bisect(a, tmp_path / "part").compared == STEPS + 1
    assert bisect(a, tmp_path / "part").equal


def test_steps_recorded_twice_count_once(tmp_path):
    model = Net()
    with Watch(model, path=tmp_path / "a") as watch:
        watch.record(5)
        flip(model.two.bias)
        watch.record(5)
        watch.record()
    with Watch(model, path=tmp_path / "b", step=5) as watch:
        assert [watch.record(), watch.record()] == [True, True]
        assert watch.step == 7  # with which a resumed run begins
    found = bisect(tmp_path / "a", tmp_path / "b")
    assert found.equal


def test_following_an_optimizer(a, tmp_path):
    seed_all(1)
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    watch = Watch(model, [optimizer], path=tmp_path).attach().attach()
    fit(model, optimizer, range(3))
    watch.close()
    optimizer.step()
    watch.close()
    found = bisect(a, tmp_path)
    assert found.equal and found.compared == 4


@pytest.mark.costly("compiles")
def test_names_are_those_inside_wrappers(tmp_path):
    model = Net()
    Watch(model, path=tmp_path / "a").close()
    Watch(nn.DataParallel(model), path=tmp_path / "b").close()
    Watch(torch.compile(model), path=tmp_path / "c").close()
    assert bisect(tmp_path / "a", tmp_path / "b").equal
    assert bisect(tmp_path / "a", tmp_path / "c").equal


def test_several_optimizers(tmp_path):
    def run(path, value):
        seed_all(1)
        model = nn.Sequential(nn.Embedding(9, 3), nn.Linear(3, 2))
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.fill_(0.5)
        optimizers = [
            torch.optim.Adam(model[0].parameters()),
            torch.optim.SGD(model[1].parameters(), lr=0.1, momentum=0.9),
        ]
        with Watch(model, optimizers, path=path) as watch:
            model(torch.tensor([1, 4, value])).sum().backward()
            for optimizer in optimizers:
                optimizer.step()
            watch.record()

    run(tmp_path / "a", 2)
    run(tmp_path / "b", 3)
    found = bisect(tmp_path / "a", tmp_path / "b")
    assert found.step == 0 and ("gradient", "0.weight") in names(found)
    table = {(e.group, e.name) for e in Recording(tmp_path / "a" / "rank-0.watch").tables[-1]}
    assert {("optimizer", "1.group 0.lr"), ("optimizer", "1.1.bias.momentum_buffer")} <= table


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"optimizer": 3}, "optimizer must be an optimizer, a list of them or None"),
        ({"optimizer": range(2**70)}, "optimizer must be an optimizer, a list of them or None"),
        ({"optimizer": torch.nn.Linear(1, 1)}, "optimizer must be an optimizer, a list of"),
        ({"batch_mesh": "dp"}, "batch_mesh must be a DeviceMesh of this rank, got 'dp'"),
        ({"groups": torch.ones(2)}, "groups must be a collection of names"),
        ({"groups": ["weights"]}, "groups must be among generator, buffer, .*, got"),
        ({"modules": ["layers.7"]}, "modules must be names of modules, got"),
    ],
)
def test_wrong_arguments(tmp_path, arguments, says):
    with pytest.raises((TypeError, ValueError), match=f"^fastseed.debug.Watch: {says}"):
        Watch(nn.Linear(2, 2), path=tmp_path / "run", **arguments)
    assert not list(tmp_path.iterdir())


def test_a_recording_is_not_overwritten(tmp_path):
    Watch(nn.Linear(2, 2), path=tmp_path).close()
    before = (tmp_path / "rank-0.watch").read_bytes()
    message = r"^fastseed.debug.Watch: path must be a folder without rank-0.watch, .*append=True"
    with pytest.raises(FileExistsError, match=message):
        Watch(nn.Linear(2, 2), path=tmp_path)
    with pytest.raises(ValueError, match=r"Watch: path must be a folder, new or existing, got"):
        Watch(nn.Linear(2, 2), path=tmp_path / "rank-0.watch")
    assert (tmp_path / "rank-0.watch").read_bytes() == before


def test_errors_of_a_closed_watch(tmp_path):
    watch = Watch(nn.Linear(2, 2), path=tmp_path)
    with pytest.raises(RuntimeError, match=r"Watch.attach: optimizer must be a torch.optim"):
        watch.attach()
    with pytest.raises(ValueError, match=r"Watch.record: step must be in"):
        watch.record(-1)
    watch.close()
    with pytest.raises(RuntimeError, match=r"Watch.record: this Watch is closed"):
        watch.record()


def test_the_command(a, tmp_path, capsys):
    b = train(tmp_path, after=at(3, lambda m, o: flip(m.two.weight, 5)))
    assert cli.main(["diff", str(a), str(b)]) == 1
    printed = capsys.readouterr().out
    assert "the first difference is at step 3, rank 0: parameter two.weight" in printed
    assert "3 of the 7 common steps differ" in printed
    assert cli.main(["diff", str(a), str(b), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert not found["equal"]
    found = found["recordings"]
    assert (found["equal"], found["step"], found["differing"]) == (False, 3, 3)
    (first,) = found["differences"]
    assert first["name"] == "parameter two.weight"
    assert first["a"]["shape"] == [3, 7] and first["a"]["value"] != first["b"]["value"]
    assert cli.main(["diff", str(a), str(a)]) == 0
    assert capsys.readouterr().out == "all 7 common steps are equal\n"
