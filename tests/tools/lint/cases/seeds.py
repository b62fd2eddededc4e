"""Seeds by hand and by accident. A line that ends in `fault: IDs` has those faults alone."""

import argparse
import datetime as dt
import os
import random
import secrets
import time
import uuid
from datetime import datetime
from time import time as now

import numpy
import torch
from torch import manual_seed as fix

import fastseed.pyt as seeder

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=int(time.time()))  # fault: FS104
parser.add_argument("--started", type=float, default=time.time())
args = parser.parse_args()

seeder.init(master_seed=os.getpid())  # fault: FS104
seeder.init(None)

random.seed(0)  # fault: FS101
numpy.random.seed(args.seed)  # fault: FS101
torch.manual_seed(0)  # fault: FS101
fix(0)  # fault: FS101
torch.random.manual_seed(1)  # fault: FS101
torch.cuda.manual_seed_all(0)  # fault: FS101
if torch.cuda.is_available():
    torch.cuda.manual_seed(7)  # fault: FS101

random.seed()  # fault: FS101 FS104
numpy.random.seed(None)  # fault: FS101 FS104
torch.seed()  # fault: FS101 FS104
torch.Generator().seed()  # fault: FS104

seed = int(now() * 1000)  # fault: FS104
random_seed = dt.datetime.now().microsecond  # fault: FS104
SEED = args.seed or datetime.now().second  # fault: FS104
base = time.time_ns()  # fault: FS104
generator = numpy.random.default_rng(base % 2**32)
numpy.random.default_rng([os.getpid(), 3])  # fault: FS104
random.Random(hash("train"))  # fault: FS104
random.Random(hash((3, 4)))
random.Random(hash((args.seed, 4)))
random.Random(hash(f"worker-{args.seed}"))  # fault: FS104
torch.Generator().manual_seed(id(args))
model = dict(random_state=uuid.uuid4().int)  # fault: FS104
config = {"seed": secrets.randbits(32)}  # fault: FS104
noise = numpy.random.RandomState(int.from_bytes(os.urandom(4), "big"))  # fault: FS104


def set_seed_everywhere(seed):
    return seed


set_seed_everywhere(int(time.time()))  # fault: FS104


def train(seed=time.time_ns()):  # noqa: B008  # fault: FS104
    begin = time.time()
    seed_of_rank = seed + 1
    with torch.random.fork_rng():
        torch.manual_seed(seed_of_rank)
    return time.time() - begin


def id(thing):  # not the builtin
    return 3


def hash_of(name):
    return random.Random(hash(name))  # fault: FS104
