"""Loops of the form that public scripts have, with the changes that docs/resume.md shows."""

from __future__ import annotations

import io

import pytest
import torch
from helpers.loaders import Indexed
from torch.nn.functional import dropout
from torch.utils.data import DataLoader

import fastseed

EPOCHS = 3


class Points(Indexed):
    """A point and its noise."""

    def __getitem__(self, i):
        return torch.full((4,), float(i)) + torch.rand(4)


def make(seed=5):
    fastseed.init(seed, rank=0, world_size=1)
    fastseed.reseed(task=0)
    model = torch.nn.Linear(4, 1)
    return model, torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)


def learn(model, optimizer, data):
    optimizer.zero_grad()
    model(dropout(data, 0.3)).square().mean().backward()
    optimizer.step()


def saved(**parts):
    """Return the bytes of a checkpoint."""
    file = io.BytesIO()
    torch.save({name: part.state_dict() for name, part in parts.items()}, file)
    return file.getvalue()


def load(data, **parts):
    for name, state in torch.load(io.BytesIO(data), weights_only=True).items():
        parts[name].load_state_dict(state)


def parameters(model):
    return [p.tolist() for p in model.parameters()]


def loop_over_epochs(workers, stop=None, resume=None):
    """As in PyTorch's mnist and imagenet: a function for an epoch, validation after each."""
    model, optimizer = make()
    data = fastseed.data.per_sample(Points(20))
    batches = DataLoader(data, batch_size=4, shuffle=True, num_workers=workers)
    steps = fastseed.data.steps(batches, epochs=EPOCHS, task=1)
    parts = {"model": model, "optimizer": optimizer, "steps": steps}
    if resume is not None:
        load(resume, **parts)
    for epoch in range(steps.epoch, EPOCHS):
        model.train()
        for _, step, points in steps.in_epoch(epoch):
            learn(model, optimizer, points)
            if (epoch, step) == stop:
                return saved(**parts)
        torch.rand(epoch + 1)  # a validation that draws
        if (epoch, "end") == stop:
            return saved(**parts)
    return parameters(model)


@pytest.mark.parametrize("stop", [(0, 1), (1, 4), (1, "end"), (2, 2)])
def test_a_loop_over_epochs_resumes_within_one(stop):
    whole = loop_over_epochs(0)
    assert loop_over_epochs(stop[0] % 2, resume=loop_over_epochs(0, stop=stop)) == whole


def loop_over_iterations(length, resume=None, save_at=None, accumulate=2):
    """As in nanoGPT: batches drawn from torch's generator, an evaluation now and then."""
    model, optimizer = make(1337)
    data, number, found = torch.linspace(-1, 1, 100), 0, None

    def get_batch():
        starts = torch.randint(len(data) - 4, (8,)).tolist()
        return torch.stack([data[start : start + 4] for start in starts])

    if resume is not None:
        load(resume[0], model=model, optimizer=optimizer)
        number = resume[1]
    while True:
        if number % 4 == 0:
            fastseed.reseed(2, 0, number)
            model(get_batch())
        if number == save_at and resume is None:
            found = saved(model=model, optimizer=optimizer), number
        fastseed.reseed(1, 0, number)
        batch = get_batch()
        for micro_step in range(accumulate):
            loss = model(dropout(batch, 0.2)).square().mean()
            if micro_step + 1 < accumulate:
                batch = get_batch()
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        number += 1
        if number > length:
            return parameters(model), found


def test_a_loop_over_iterations_resumes_from_its_own_count():
    whole, state = loop_over_iterations(10, save_at=4)
    assert loop_over_iterations(10, resume=state)[0] == whole
    other, _ = loop_over_iterations(10, resume=(state[0], state[1] + 1))
    assert other != whole
