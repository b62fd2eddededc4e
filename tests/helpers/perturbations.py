"""Models whose parameters move, and their bits."""

import itertools

import torch
from torch import nn

INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


def bits(tensor):
    return tensor.detach().clone().contiguous().view(INTEGERS[tensor.element_size()])


def state(model):
    return {name: bits(tensor) for name, tensor in model.named_parameters()}


def equal(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def layers(*sizes, dtype=torch.float32):
    model = nn.Sequential(*(nn.Linear(a, b) for a, b in itertools.pairwise(sizes)))
    return model.to(dtype)


def copy_of(model, *sizes, dtype=torch.float32):
    found = layers(*sizes, dtype=dtype)
    found.load_state_dict(model.state_dict())
    return found
