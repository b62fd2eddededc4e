"""What the model is given, which ``Watch`` records without ``modules=``; and when it ends."""

import copy
import gc
import weakref

import pytest
import torch
from torch import nn

from fastseed.debug import Watch, bisect, digest
from fastseed.debug.watch_file import Recording


def model() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))


def train(folder, batches, record=None, **options):
    made = model()
    optimizer = torch.optim.SGD(made.parameters(), 0.1)
    with Watch(made, optimizer, path=folder, **options) as watch:
        for batch in batches:
            optimizer.zero_grad()
            made(batch).sum().backward()
            optimizer.step()
            watch.record()


def names(folder) -> list[list[str]]:
    """The names of calls in each step, the state before the first one too."""
    found = Recording(folder / "rank-0.watch")
    steps = [found.values(step).entries for step in sorted(found.steps)]
    return [[e.name for e in entries if e.group in ("forward", "backward")] for entries in steps]


def test_a_batch_that_differs_is_the_first_difference(tmp_path):
    batches = [torch.full((3, 4), float(i)) for i in range(4)]
    train(tmp_path / "a", batches)
    train(tmp_path / "b", [*batches[:2], batches[3], batches[2]])
    train(tmp_path / "off", batches, modules=False)
    found = bisect(tmp_path / "a", tmp_path / "b")
    assert (found.step, found.first.name) == (2, "forward (root) #0 input")
    assert found.first.a == digest(batches[2]).table[""]
    assert names(tmp_path / "a") == [[], *[["(root) #0 input"]] * 4]
    assert names(tmp_path / "off") == [[]] * 5


def test_notes_tell_whether_batches_are_equal(tmp_path):
    for calls, note in ((1, "the batches are equal"), (0, "no batch was recorded")):
        folders = [tmp_path / f"{calls}-{side}" for side in range(2)]
        for side, folder in enumerate(folders):
            made = model()
            with Watch(made, path=folder) as watch:
                for _ in range(calls):
                    made(torch.ones(2, 4))
                made[0].weight.data *= 1 + side
                watch.record()
        assert bisect(*folders).notes == (f"{note} at step 0",)


def compiled(made):
    return torch.compile(made, backend="eager", fullgraph=True)


@pytest.mark.parametrize(
    ("watched", "called", "call", "expected"),
    [
        (None, None, lambda f, x: f(x), ["(root) #0 input"]),
        (None, None, lambda f, x: (f(x), f(input=x)), ["(root) #0 input", "(root) #1 input.input"]),
        (None, None, lambda f, x: torch.no_grad()(f)(x), []),
        (None, None, lambda f, x: torch.func.grad(lambda y: f(y).sum())(x), []),
        (None, None, lambda f, x: f.to("meta")(x.to("meta")), []),
        (None, None, lambda f, x: f(x.requires_grad_()), ["(root) #0 input"]),
        (None, None, lambda f, x: torch.export.export(f.eval(), (x,)), []),
        (compiled, None, lambda f, x: f(x), ["(root) #0 input"]),
        (None, compiled, lambda f, x: f(x), []),  # whose graph stays whole
    ],
)
def test_where_a_batch_is_recorded(tmp_path, watched, called, call, expected):
    made = model()
    made = watched(made) if watched else made
    with Watch(made, path=tmp_path, groups=()) as watch:
        call(called(made) if called else made, torch.ones(2, 4))
        watch.record()
    assert names(tmp_path) == [[], expected]


def test_a_watch_that_is_dropped_leaves_no_hook(tmp_path):
    made = model()
    optimizer = torch.optim.SGD(made.parameters(), 0.1)
    for i, modules in enumerate((None, True, False)):
        watch = weakref.ref(Watch(made, path=tmp_path / str(i), modules=modules))
        gc.collect()
        assert watch() is None
        assert not any(m._forward_pre_hooks or m._forward_hooks for m in made.modules())
    Watch(made, optimizer, path=tmp_path / "kept").attach()  # by the optimizer
    gc.collect()
    made(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    assert names(tmp_path / "kept") == [[], ["(root) #0 input"]]


@pytest.mark.parametrize("optimizers", [1, 2])
@pytest.mark.parametrize("restored", [True, False])
def test_a_schedule_between_the_last_step_and_resuming(tmp_path, restored, optimizers):
    """It has its turn after step 1 was recorded and before the resumed run begins."""
    saved = {}

    def run(path, start, stop):
        torch.manual_seed(1)
        model = nn.Linear(5, 3)
        all_of = [torch.optim.SGD(model.parameters(), lr=0.5) for _ in range(optimizers)]
        schedules = [torch.optim.lr_scheduler.StepLR(one, 1, 0.5) for one in all_of]
        if start:
            model.load_state_dict(saved["model"])
            for one, state in zip((all_of + schedules) * restored, saved["rest"], strict=False):
                one.load_state_dict(state)
        with Watch(model, all_of, path=path, step=start) as watch:
            for step in range(start, stop):
                model(torch.ones(2, 5)).square().mean().backward()
                for one in all_of:
                    one.step()
                watch.record(step)
                for one in schedules:
                    one.step()
                if step == 1:
                    rest = [one.state_dict() for one in all_of + schedules]
                    saved.update(copy.deepcopy({"model": model.state_dict(), "rest": rest}))
                model.zero_grad()

    run(tmp_path / "whole", 0, 4)
    run(tmp_path / "rest", 2, 4)
    found = bisect(tmp_path / "whole", tmp_path / "rest")
    if restored:
        assert found.equal and found.compared == 3
    else:
        assert (found.step, found.start) == (2, False)
        assert found.first.name.endswith("group 0.lr")
