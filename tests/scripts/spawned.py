"""Send a Seeder to a spawned process; prints what it finds there."""

import json
import logging
import multiprocessing
import random

import numpy as np
import torch

import fastseed


def draws(seeder):
    """The first draws at (1, 7)."""
    seeder.reseed(1, 7)
    return [random.random(), np.random.random(), torch.rand(()).item()]


class Warnings(logging.Handler):
    """Collects the text of warnings."""

    def __init__(self, said):
        super().__init__(logging.WARNING)
        self.said = said

    def emit(self, record):
        self.said.append(record.getMessage())


def work(connection):
    seeder = connection.recv()
    connection.send([repr(seeder), draws(seeder)])


if __name__ == "__main__":
    said = []
    logging.getLogger("fastseed").addHandler(Warnings(said))
    seeder = fastseed.Seeder(42, rank=3, world_size=8)
    seeder.register_generator(lambda seed: None)  # no pickle takes this
    seeder.register_generator(torch.Generator(), name="mine")
    seeder.reseed(2, 5, 9)
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=work, args=(there,))
    process.start()
    here.send(seeder)
    shown, theirs = here.recv()
    process.join()
    found = {"warnings": said, "repr": shown, "there": theirs}
    print(json.dumps({**found, "here": draws(seeder), "exit": process.exitcode}))
