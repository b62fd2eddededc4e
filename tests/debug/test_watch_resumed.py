"""Hyperparameters that a schedule sets before a run is resumed are not a difference."""

import copy

import pytest
import torch
from torch import nn

from fastseed.debug import Watch, bisect


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
