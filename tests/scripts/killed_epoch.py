"""Two ranks that are killed in mid-epoch: the samples that they saw, in order.

    killed_epoch.py STATE

Rank 0 saves STATE after the fourth batch, with more batches fetched ahead.
"""

import json
import os
import signal
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from helpers.loaders import Indexed, dealt, same
from helpers.support import free_port

import fastseed
from fastseed.data import Loader, per_sample

WORLD, N, STOP = 2, 48, 4


def rank_main(rank: int, port: int, path: str) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=WORLD)
    fastseed.init(42)
    fastseed.reseed(1, 5)
    batches = Loader(
        per_sample(Indexed(N)), 3, True, num_workers=2, prefetch_factor=2, collate_fn=same
    )
    with open(f"{path}.{rank}", "w") as file:
        for step, batch in enumerate(batches, 1):
            print(json.dumps(batch), file=file, flush=True)
            if step == STOP:
                dist.barrier()
                if rank == 0:
                    state = {"job": fastseed.state_dict(), "batches": batches.state_dict()}
                    torch.save(state, path)
                dist.barrier()
                os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    path, port = sys.argv[1], free_port()
    context = mp.get_context("fork")
    ranks = [context.Process(target=rank_main, args=(rank, port, path)) for rank in range(WORLD)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(60)
        assert process.exitcode == -signal.SIGKILL, process.exitcode
    logs = [Path(f"{path}.{rank}").read_text().splitlines() for rank in range(WORLD)]
    shares = [[json.loads(line) for line in log] for log in logs]
    print(json.dumps(dealt(shares)))


if __name__ == "__main__":
    main()
