"""The Python blocks of the documentation run, each alone, in one process and on two gloo ranks.

A block of ```python is a program as a reader pastes it. A block of ```py is a fragment: it runs
behind the lines of ``NAMES``, which give it what it takes from the reader's script.
"""

import logging
import multiprocessing
import os
import re
from pathlib import Path

import pytest
from helpers.paths import ROOT
from helpers.ranks import ranks

PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
NAMES = {
    "data": """
import torch, fastseed
fastseed.init(1)
dataset = torch.arange(8)
""",
    "layouts": """
import torch, fastseed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module
fastseed.init(1)
mesh, device = init_device_mesh("cpu", (1, 2), mesh_dim_names=("dp", "tp")), "cpu"
config, plan = 4, {"0": ColwiseParallel()}
class Transformer(torch.nn.Sequential):
    def __init__(self, config):
        super().__init__(torch.nn.Linear(config, config))
    def init_weights(self):
        self[0].reset_parameters()
""",
    "same-weights": """
import torch, fastseed
from fastseed.elastic import SlotGradients
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
fastseed.init(1)
mesh, model = init_device_mesh("cpu", (2,)), torch.nn.Sequential(torch.nn.Linear(2, 2))
model.blocks = model[:]
""",
    "several-ranks": """
import fastseed
fastseed.init(1)
""",
}
ELSEWHERE = {  # by the code of the page
    "quick-start-0": "docs/test_console.py",
    "preemption-0": "examples/test_examples.py",
    "lightning-0": "integrations/test_migration_docs.py",
    "accelerate-0": "integrations/test_migration_docs.py",
    "trainer-0": "integrations/test_migration_docs.py",
}
NOT_RUN = {
    "rollouts-py-0": "vLLM needs a GPU",
    "rollouts-py-1": "SGLang needs a GPU",
    "rl-frameworks-py-0": "integrations/test_trl.py has lines of its own",
    "rl-frameworks-py-1": "integrations/test_lora.py has lines of its own",
    "same-noise-py-0": "random/test_torch_keys.py draws these rows, from torch 2.14 on",
    "perturb-py-0": "integrations/test_lora.py has lines of its own",
    "same-weights-py-0": "integrations/test_slots.py has lines of its own",
    "rollouts-py-2": "integrations/test_seeded_tokens.py has lines of its own",
    "rollouts-py-3": "integrations/test_vector_environments.py has lines of its own",
}
ON_RANKS = ("layouts-py-0", "same-weights-py-1", "several-ranks-py-0")  # a mesh is of several
ALONE = {
    "several-ranks-1": "its mesh has eight ranks",
    "resume-3": "its last line is about all samples",
}


def blocks() -> dict[str, str]:
    """Return each program by its page and the number that it has there."""
    found = {}
    for page in PAGES:
        text, name = page.read_text("utf-8"), page.stem
        programs = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
        for number, program in enumerate(programs):
            found[f"{name}-{number}"] = program
        for number, fragment in enumerate(re.findall(r"```py\n(.*?)```", text, re.DOTALL)):
            found[f"{name}-py-{number}"] = NAMES.get(name, "") + fragment
    return found


BLOCKS = blocks()
RUN = [name for name in BLOCKS if name not in ELSEWHERE and name not in NOT_RUN]


def run(name: str, program: str, folder: Path) -> list[str]:
    """Run a block in a folder, as many write files; return what fastseed logged."""
    multiprocessing.set_start_method("fork", force=True)  # as programs on Linux have it
    said, here = [], os.getcwd()
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())
    ours = logging.getLogger("fastseed")
    ours.addHandler(handler)
    os.chdir(folder)
    try:
        exec(compile(program, name, "exec"), {"__name__": "guide"})
    finally:
        os.chdir(here)
        ours.removeHandler(handler)
    # What only `fastseed run` can set, an earlier test has used, or fwr13y's arguments mean here.
    late = ("PYTHONHASHSEED is too late", "MKL_CBWR is too late", "but torch.distributed says rank")
    return [line for line in said if not any(one in line for one in late)]


@pytest.mark.parametrize("name", [name for name in RUN if name not in ON_RANKS])
def test_block_runs_alone(name, tmp_path):
    said = run(name, BLOCKS[name], tmp_path)
    assert said == [] or "-py-" in name  # a fragment may show what is warned of


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in RUN if name not in ALONE])
def test_block_runs_on_two_ranks(name, tmp_path):
    said = ranks(2, run, name, BLOCKS[name], tmp_path)
    assert said == [[], []] or "-py-" in name


def test_few_blocks_do_not_run_here():
    assert len(NOT_RUN) + len(ALONE) <= 15
    assert {*ELSEWHERE, *NOT_RUN, *ON_RANKS, *ALONE} <= {*BLOCKS}
    for name, test in ELSEWHERE.items():
        page = re.sub(r"(-py)?-\d+$", "", name)
        assert page in (ROOT / "tests" / test).read_text("utf-8")
