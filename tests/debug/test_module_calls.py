"""The calls of modules: the first one that differs is found, whatever wraps the model."""

import copy
import json
from collections import OrderedDict
from typing import NamedTuple

import pytest
import torch
from helpers.exact_model import Net, batch, flip_output
from torch import nn
from torch.utils.checkpoint import checkpoint

from fastseed import cli
from fastseed.debug import Watch, bisect
from fastseed.debug.module_calls import CallTensor
from fastseed.debug.watch_file import Recording

STEPS = 3


def train(path, *, plant=None, wrap=lambda model: model, model=None, **options):
    """A run of three steps; ``plant`` gets the model at step 1."""
    model = Net() if model is None else model
    optimizer = torch.optim.SGD(model.parameters(), lr=2**-10)
    wrapped = wrap(model)
    with Watch(wrapped, optimizer, path=path, **{"modules": True, **options}) as watch:
        for step in range(STEPS):
            optimizer.zero_grad()
            handle = plant(model) if plant and step == 1 else None
            wrapped(batch(step)).sum().backward()
            if handle is not None:
                handle.remove()
            optimizer.step()
            watch.record()
    return path


def entries(path, group):
    table = Recording(path / "rank-0.watch").tables[-1]
    return [entry.name for entry in table if entry.group == group]


@pytest.fixture(scope="module")
def a(tmp_path_factory):
    return train(tmp_path_factory.mktemp("a"))


def test_calls_are_recorded_in_order(a):
    assert entries(a, "forward")[:6] == [
        "(root) #0 input",
        "embed #0 input",
        "embed #0 output",
        "layers.0 #0 input",
        "layers.0.up #0 input",
        "layers.0.up #0 output",
    ]
    assert sorted(entries(a, "backward")[:2]) == ["(root) #0 output", "head #0 output"]
    assert entries(a, "backward")[-1] == "embed #0 output"  # its input needs no gradient
    assert CallTensor.parse("a b #12 output.x #3") == ("a b", 12, "output.x #3")


def test_the_call_is_found(a, tmp_path):
    def plant(model):
        return flip_output(model.layers[1].up, element=20)

    found = bisect(a, train(tmp_path / "b", plant=plant))
    assert (found.step, *found.first.name.split(" ", 1)) == (
        (1, "forward", "layers.1.up #0 output")
    )
    assert str(found.call) == ("step 1, layers.1.up, forward: inputs equal, output differs")
    assert str(found.call) in str(found)


def test_a_gradient_is_found_in_the_call_that_made_it(a, tmp_path):
    def plant(model):
        def hook(module, given, taken):
            return (given[0] * (1 + 2**-23),)

        return model.layers[0].down.register_full_backward_hook(hook)

    found = bisect(a, train(tmp_path, plant=plant))
    assert str(found.call).startswith(
        "step 1, layers.0.down, backward: gradients of outputs equal, gradient of input differs"
    )
    assert {
        d.name.split(" ", 1)[1].split(" #")[0]
        for d in found.differences
        if d.name.startswith("backward ")
    } == {"layers.0.down", "layers.0.up", "layers.0", "embed"}


def test_a_difference_between_modules_is_an_input(a, tmp_path):
    def around(layer, x):
        return layer(x + 1)

    found = bisect(a, train(tmp_path, model=Net(around)))
    assert str(found.call).startswith(
        "step 0, layers.0, forward: nothing before it differs, input differs"
    )


def test_calls_are_counted(tmp_path):
    class Twice(nn.Module):
        def __init__(self, times):
            super().__init__()
            self.inner, self.times = nn.Linear(4, 4, bias=False), times
            nn.init.eye_(self.inner.weight)

        def forward(self, x, *, scale):
            for _ in range(self.times):
                x = self.inner(x)
            return {"y": [x * scale, None, 3]}

    for times in (2, 3):
        model = Twice(times)
        with Watch(model, path=tmp_path / str(times), groups=(), modules=True, every=2) as watch:
            for _ in range(3):
                out = model(batch(), scale=torch.ones(4))["y"][0].sum()
                out.backward(retain_graph=True)
                out.backward()
                watch.record()
    names = entries(tmp_path / "2", "forward")
    assert [n for n in names if n.startswith("(root)")] == [
        "(root) #0 input.0",
        "(root) #0 input.scale",
        "(root) #0 output.y.0",
    ]
    assert "inner #1 output" in names and "inner #2 output" not in names
    assert "inner #1 output again 1" in entries(tmp_path / "2", "backward")
    found = bisect(tmp_path / "2", tmp_path / "3")
    assert "only b has it, " in str(bisect(tmp_path / "2", tmp_path / "3"))
    assert found.call.tensor[:2] == ("inner", 2) and "forward, call 2 (from 0)" in str(found.call)


def test_arguments_of_all_kinds(tmp_path):
    class Pair(NamedTuple):
        left: torch.Tensor
        right: torch.Tensor

    class Inner(nn.Module):
        def forward(self, pair, same, listed, *, table, flag):
            assert type(pair) is Pair and type(table) is OrderedDict and flag is None
            assert same is listed[0]
            return pair.left * same + pair.right * table["w"] + listed[1]["x"]

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Inner()

        def forward(self, x):
            x = [x * i for i in range(1, 6)]
            given = {"table": OrderedDict(w=x[2]), "flag": None}
            return self.inner(Pair(x[0], x[1]), x[3], [x[3], {"x": x[4]}], **given) + x[3]

    model = Outer()
    with Watch(model, path=tmp_path, groups=(), modules=True) as watch:
        copy.deepcopy(model)(batch())  # has the hooks, and is another model
        model(batch().requires_grad_()).sum().backward()
        watch.record()
    paths = ["0.0", "0.1", "1", "2.0", "2.1.x", "table.w"]
    for group in ("forward", "backward"):
        found = {name for name in entries(tmp_path, group) if "inner #0 input" in name}
        assert found == {f"inner #0 input.{path}" for path in paths}


def test_in_place_modules_and_chosen_ones(tmp_path):
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Linear(4, 1))
    with Watch(model, path=tmp_path / "all", modules=True) as watch:
        model(batch()).sum().backward()
        watch.record()
    names = entries(tmp_path / "all", "forward")
    assert "1 #0 input" in names
    with Watch(model, path=tmp_path / "some", modules=["2"]) as watch:
        model(batch()).sum().backward()
        watch.record()
    model(batch())  # no hook is left
    assert entries(tmp_path / "some", "forward") == ["2 #0 input", "2 #0 output"]
    assert entries(tmp_path / "some", "backward") == ["2 #0 output", "2 #0 input"]
    assert all(not m._forward_hooks and not m._forward_pre_hooks for m in model.modules())


@pytest.mark.parametrize("reentrant", [False, True])
def test_recomputed_calls_are_not_counted(a, tmp_path, reentrant):
    def around(layer, x):
        return checkpoint(layer, x, use_reentrant=reentrant)

    b = train(tmp_path, model=Net(around))
    found = bisect(a, b)
    assert found.equal and entries(a, "forward") == entries(b, "forward")
    assert set(entries(a, "backward")) == set(entries(b, "backward"))


@pytest.mark.slow  # importing Dynamo
def test_compiled_models_have_the_same_calls(a, tmp_path):
    def compile_all(model):
        return torch.compile(model, backend="aot_eager")

    def compile_layers(model):
        for i, layer in enumerate(model.layers):
            model.layers[i] = compile_all(layer)
        return model

    assert bisect(a, train(tmp_path / "all", wrap=compile_all)).equal
    assert bisect(a, train(tmp_path / "layers", wrap=compile_layers)).equal
    found = bisect(
        a, train(tmp_path / "b", wrap=compile_all, plant=lambda m: flip_output(m.layers[1].up))
    )
    torch._dynamo.reset()
    assert found.equal or found.call.tensor.module == "layers.1.up"


def test_the_command_prints_the_call(a, tmp_path, capsys):
    b = train(tmp_path, plant=lambda m: flip_output(m.layers[1].up, element=20))
    assert cli.main(["diff", str(a), str(b)]) == 1
    assert (
        "first call that differs: step 1, layers.1.up, forward: inputs equal, output differs\n"
    ) in capsys.readouterr().out
    assert cli.main(["diff", str(a), str(b), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["recordings"]["call"] == {
        "step": 1,
        "direction": "forward",
        "tensor": {"module": "layers.1.up", "call": 0, "path": "output"},
        "cause": "inputs equal",
    }


def test_bisect_says_when_no_call_was_recorded(tmp_path):
    for name, scale in (("a", 1.0), ("b", 2.0)):
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=2**-10)
        with Watch(model, optimizer, path=tmp_path / name, modules=True, every=2) as watch:
            for step in range(4):
                optimizer.zero_grad()
                (model(batch(step)).sum() * (scale if step == 2 else 1.0)).backward()
                optimizer.step()
                if step % 2 == 0:
                    watch.record(step)
    notes = bisect(tmp_path / "a", tmp_path / "b").notes
    assert any("no call of a module was recorded at step 2" in note for note in notes)
