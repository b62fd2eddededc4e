"""Print what ``import fastseed`` changes in a process that has torch and NumPy already."""

import json
import os
import random
import sys
import warnings

import numpy as np
import torch

EVENTS = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "socket.connect")
done, watching = [], False


def watch(event, arguments):
    if not watching:
        return
    if event in EVENTS:
        done.append(event)
    elif event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+"):
        done.append(f"open {arguments[0]} to write")


def states():
    numpy = np.random.get_state()
    return random.getstate(), numpy[1].tobytes(), numpy[2:], torch.get_rng_state().tolist()


def settings():
    return (
        torch.get_default_dtype(),
        torch.get_num_threads(),
        torch.are_deterministic_algorithms_enabled(),
        list(warnings.filters),
        dict(os.environ),
    )


said = []
warnings.showwarning = lambda message, *where: said.append(str(message))
sys.dont_write_bytecode = True
sys.addaudithook(watch)
before, modules = (states(), settings()), set(sys.modules)
watching = True
import fastseed  # noqa: E402
import fastseed.pyt  # noqa: E402

watching = False
added = set(sys.modules) - modules
print(
    json.dumps(
        {
            "did": done,
            "same states": states() == before[0],
            "same settings": settings() == before[1],
            "dynamo": "torch._dynamo" in sys.modules,
            "cuda": torch.cuda.is_initialized(),
            "roots": sorted({name.split(".")[0] for name in added} - set(sys.stdlib_module_names)),
            "torch modules": sorted(name for name in added if name.split(".")[0] == "torch"),
            "build_info": fastseed.build_info(),
            "warnings": said,
        }
    )
)
