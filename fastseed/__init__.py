"""fastseed: the randomness of a PyTorch job as a pure function of where the job is.

    import fastseed as seeder

    seeder.init(master_seed=args.seed, ngpus=world_size, local_rank=args.local_rank)
    seeder.reseed(0, 0)                    # task 0: initialisation
    for epoch in range(start, epochs):
        seeder.reseed(1, epoch)            # task 1: training

Importing compiles nothing, touches no GPU and changes no generator.
"""

from . import (
    audit,
    checkpoint,
    config,
    data,
    digest,
    doctor,
    environment,
    libraries,
    lint,
    mesh,
    verify,
)
from .agreement import verify_agreement
from .api import (
    __version__,
    build_info,
    derive_keys,
    derive_seeds,
    fork,
    get_master_seed,
    init,
    key,
    load_state_dict,
    register_generator,
    reseed,
    scope,
    seed,
    state_dict,
    unregister_generator,
)
from .bank import StreamBank
from .determinism import deterministic
from .digest import assert_ranks_agree
from .draws import bernoulli, bits, exponential, rand, randint, randn
from .errors import ReseedError
from .fills import bernoulli_, bits_, exponential_, normal_, randint_, uniform_
from .named import fork_contexts, recomputed
from .pool import GeneratorPool
from .reproducible import apply_config, enforce_reproducibility
from .seeder import Seeder
from .shards import Shard
from .streams import SHARED
from .watch import Watch
from .watch_compare import bisect

__all__ = [
    "SHARED",
    "GeneratorPool",
    "ReseedError",
    "Seeder",
    "Shard",
    "StreamBank",
    "Watch",
    "__version__",
    "apply_config",
    "assert_ranks_agree",
    "audit",
    "bernoulli",
    "bernoulli_",
    "bisect",
    "bits",
    "bits_",
    "build_info",
    "checkpoint",
    "config",
    "data",
    "derive_keys",
    "derive_seeds",
    "deterministic",
    "digest",
    "doctor",
    "enforce_reproducibility",
    "environment",
    "exponential",
    "exponential_",
    "fork",
    "fork_contexts",
    "get_master_seed",
    "init",
    "key",
    "libraries",
    "lint",
    "load_state_dict",
    "mesh",
    "normal_",
    "rand",
    "randint",
    "randint_",
    "randn",
    "recomputed",
    "register_generator",
    "reseed",
    "scope",
    "seed",
    "state_dict",
    "uniform_",
    "unregister_generator",
    "verify",
    "verify_agreement",
]
