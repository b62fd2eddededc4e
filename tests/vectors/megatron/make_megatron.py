"""Make the folders beside this file with Megatron-core's own writer and reader, on four gloo ranks.

Needs megatron-core (0.16.1 made these), which is no dependency of this project. Run it as four
processes, as torchrun starts them: ``torchrun --nproc-per-node 4 make_megatron.py FOLDER``.

The job has four expert-parallel ranks, whose stream ``expert-parallel-rng`` differs by rank, as
Megatron seeds it. ``shared`` is saved as Megatron-LM did before its pull request 6858: the ranks
are replicas of one object, so that the states of one rank are saved and all ranks load them.
``own`` has an object for each rank. ``before`` and ``after`` hold the CUDA states of each rank when
``shared`` was saved and after it was loaded. There is no GPU here: CUDA states are made of seed and
offset, 8 bytes each, as torch stores them.
"""

import argparse
import random
import struct
import sys
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist


def cuda_state(seed, offset):
    return torch.frombuffer(bytearray(struct.pack("<Qq", seed, offset)), dtype=torch.uint8)


def states_of(rank):
    return {
        "random_rng_state": random.getstate(),
        "np_rng_state": np.random.get_state(),
        "torch_rng_state": torch.get_rng_state(),
        "cuda_rng_state": cuda_state(1, 8),
        "rng_tracker_states": {
            "default-rng": cuda_state(1, 8),
            "model-parallel-rng": cuda_state(1 + 2718, 16),
            "expert-parallel-rng": cuda_state(1 + 1024 + 100 * rank, 64),
        },
    }


def main():
    torch.cuda.synchronize = lambda *_: None  # what Megatron calls around its writing
    torch.cuda.current_device = lambda: "cpu"
    from megatron.core import dist_checkpointing
    from megatron.core.dist_checkpointing.mapping import ShardedObject

    folder = Path(sys.argv[1])
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    states = states_of(rank)
    arguments = argparse.Namespace(world_size=size, expert_model_parallel_size=size)

    def shared(data):
        return ShardedObject("rng_state", data, (1, 1), (0, 0), replica_id=rank)

    def own(data):
        return ShardedObject("rng_state", data, (1, 1, size), (0, 0, rank), replica_id=0)

    for name, wrap in (("shared", shared), ("own", own)):
        (folder / name).mkdir(parents=True, exist_ok=True)
        dist.barrier()
        whole = {"args": arguments, "iteration": 3, "rng_state": wrap([states])}
        dist_checkpointing.save(whole, str(folder / name))
        dist.barrier()
    loaded = dist_checkpointing.load({"rng_state": shared(None)}, str(folder / "shared"))
    for name, held in (("before", states), ("after", loaded["rng_state"][0])):
        (folder / name).mkdir(exist_ok=True)
        kept = {key: held[key] for key in ("cuda_rng_state", "rng_tracker_states")}
        torch.save(kept, folder / name / f"rng_state_{rank}.pth")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
