"""``kill_writers.py FOLDER N``: N writers of one file, each killed at some point while it writes.

Prints how many files were one of the two states and neither, how many writers left something
behind, and what is there after one more save.
"""

import json
import os
import random
import signal
import sys
import time

import fastseed
from fastseed.checkpoint import api, file_io, format

folder, writers = sys.argv[1], int(sys.argv[2])
path = os.path.join(folder, "state")
chosen = random.Random(7)
file_io._CHUNK = 97  # some 80 calls of write a file, to be killed between any two
file_io.os.fsync = lambda fd: time.sleep(2e-4)  # what a disk takes is not the point here

fastseed.init(42, rank=0, world_size=1)
known = []
for epoch in (1, 2):
    fastseed.reseed(1, epoch)
    random.random(), random.gauss(0, 1)
    known.append(format.encode(fastseed.state_dict(rng=True), "test"))
fastseed.reseed(1, 1)
api.save(path)


def write_for_ever():
    ready = True
    while True:
        for data in known:
            file_io.replace("test", path, data)
            if ready:
                os.write(told, b"x")
                ready = False


found, left = [0, 0, 0], 0
for _ in range(writers):
    heard, told = os.pipe()
    child = os.fork()
    if child == 0:
        write_for_ever()
    os.read(heard, 1)
    time.sleep(chosen.random() * 4e-3)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(heard), os.close(told)
    with open(path, "rb") as file:
        held = file.read()
    found[known.index(held) if held in known else 2] += 1
    api.load(path)
    left += len(os.listdir(folder)) - 1  # the next writer removes it
api.save(path)
print(json.dumps({"found": found, "left": left, "after": os.listdir(folder)}))
