"""Generators without a seed. A line that ends in `fault: ID` has that fault and no other."""

import random
from random import Random

import numpy as np
import numpy.random as npr
import torch
from numpy.random import default_rng
from torch import Generator
from torch.utils.data import DataLoader

import fastseed as seeder

np.random.default_rng()  # fault: FS102
default_rng(None)  # fault: FS102
default_rng(seed=None)  # fault: FS102
npr.RandomState()  # fault: FS102
Random()  # fault: FS102
random.Random().random()  # fault: FS102
system = random.SystemRandom()  # fault: FS102
port = random.SystemRandom().randrange(1024, 65536)
np.random.Generator(np.random.PCG64())  # fault: FS102
draws = np.random.default_rng  # an alias
draws().normal()  # fault: FS102
everything = {"rng": default_rng()}  # fault: FS102

default_rng(3)
default_rng(seeder.derive_seed("numpy", task=0))
Random(0)
npr.RandomState(seed=1)
np.random.Generator(np.random.Philox(key=4))

registered = default_rng()
seeder.register_generator(registered, name="mine")
seeder.register_generator(Random())
seeder.register_generator([Generator(), Generator()])
late = Random()
late.seed(4)
restored = default_rng()
restored.bit_generator.state = {}


def augment(image, rng=None):
    if rng is None:
        rng = default_rng()
    return rng, (image or default_rng())


def choose(options, seed=None):
    rng = default_rng() if seed is None else default_rng(seed)
    nothing = {}
    print(default_rng(**nothing))  # fault: FS102
    return rng, default_rng(**options), default_rng(*[seed])


class Noise:
    replaced = default_rng()
    kept = default_rng()  # fault: FS102

    def __init__(self, source):
        self.rng = npr.RandomState()  # fault: FS102
        self.other = npr.RandomState()
        self.own = Generator()
        self.own.manual_seed(0)
        self.bad = torch.Generator(device="cpu")  # fault: FS103
        self.source = source
        self.replaced = default_rng(source)

    def reset(self, seed):
        self.other.seed(seed)

    def draw(self):
        return self.rng.normal(), torch.rand(3, generator=self.bad)


def loaders(dataset, make):
    never = torch.Generator()  # fault: FS103
    DataLoader(dataset, generator=never)
    DataLoader(dataset, generator=Generator())  # fault: FS103
    seeded = Generator().manual_seed(1)
    DataLoader(dataset, generator=seeded)
    pooled = [Generator() for _ in range(4)]
    seeder.GeneratorPool(pooled)
    handed = torch.Generator()
    make(handed)
    returned = torch.Generator()
    return returned


class random_like:
    @staticmethod
    def default_rng():
        return 3


def shadowed():
    np = random_like
    return np.default_rng()
