"""The same weights under ``fully_shard`` on any mesh as in one process."""

import pytest
import torch
import torch.distributed as dist
from helpers.ranks import ranks
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.utils.checkpoint import checkpoint

from fastseed.debug import digest
from fastseed.elastic import SlotGradients

pytestmark = pytest.mark.skipif(
    not hasattr(FSDPModule, "set_reduce_scatter_unused_params"),
    reason="fully_shard in slots needs torch 2.13",
)

SLOTS, WIDTH, TOKENS = 7, 10, 13  # no mesh but that of one rank divides them
HALF = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)


class Block(nn.Module):
    """A layer of a transformer, with a parameter that one slot uses."""

    def __init__(self) -> None:
        super().__init__()
        self.attend = nn.MultiheadAttention(WIDTH, 2, batch_first=True)
        self.norm = nn.LayerNorm(WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 33), nn.Linear(33, WIDTH)
        self.rare = nn.Parameter(torch.zeros(WIDTH))

    def forward(self, x: torch.Tensor, slot: int | None) -> torch.Tensor:
        x = x + self.attend(x, x, x, need_weights=False)[0]
        if slot == 2:
            x = x + self.rare
        return x + self.narrow(torch.relu(self.wide(self.norm(x))))


class Model(nn.Module):
    """Two layers between tied embeddings; a frozen parameter, an unused one, and buffers."""

    def __init__(self, case: str) -> None:
        super().__init__()
        self.embed = nn.Embedding(TOKENS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(WIDTH, TOKENS)
        self.head.weight = self.embed.weight
        self.frozen = nn.Parameter(torch.full((WIDTH,), 0.5), requires_grad=False)
        self.unused = nn.Parameter(torch.ones(3))
        # torch has no BatchNorm on the CPU for half inputs and float32 statistics
        self.scale = nn.Identity() if case == "half" else nn.BatchNorm1d(WIDTH)
        self.recompute = case == "recomputed"

    def forward(self, tokens: torch.Tensor, slot: int | None) -> torch.Tensor:
        x = self.embed(tokens) + self.frozen
        x = self.scale(x.transpose(1, 2)).transpose(1, 2)
        for block in self.blocks:
            if self.recompute:
                x = checkpoint(block, x, slot, use_reentrant=False)
            else:
                x = block(x, slot)
        return self.head(x)


def build(case: str, sizes: list[int]) -> tuple[nn.Module, object]:
    """Return the model of a case, and the group that its slots are dealt over."""
    torch.manual_seed(1)
    model = Model(case)
    if case == "alone":
        return model, None
    if case == "tensor parallel":
        shape = (dist.get_world_size() // 2, 2)
        mesh = init_device_mesh("cpu", shape, mesh_dim_names=("data", "tensor"))
        for block in model.blocks:
            plan = {"wide": ColwiseParallel(), "narrow": RowwiseParallel()}
            block.wide, block.narrow = nn.Linear(WIDTH, 32), nn.Linear(32, WIDTH)
            parallelize_module(block, mesh["tensor"], plan)
            fully_shard(block, mesh=mesh["data"])
        return fully_shard(model, mesh=mesh["data"]), mesh["data"]
    names = ("replicate", "shard")[-len(sizes) :]
    mesh = init_device_mesh("cpu", tuple(sizes), mesh_dim_names=names)
    policy = HALF if case == "half" else MixedPrecisionPolicy()
    for block in [*model.blocks, model]:
        fully_shard(block, mesh=mesh, mp_policy=policy, reshard_after_forward=case != "kept")
    return model, None


def loss(model: nn.Module, tokens: torch.Tensor, slot: int | None) -> torch.Tensor:
    out = model(tokens, slot)
    return nn.functional.cross_entropy(out[:, :-1].flatten(0, 1).float(), tokens[:, 1:].flatten())


def train(case: str, sizes: list[int]) -> str:
    """Train three steps; return a digest of parameters, optimizer state and buffers."""
    model, group = build(case, sizes)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    rank, world = 0, 1
    if case != "alone":
        of_data = getattr(group, "get_group", lambda: group)()
        rank, world = dist.get_rank(of_data), dist.get_world_size(of_data)
    gradients = SlotGradients(model, SLOTS, group=group)
    for step in range(3):
        optimizer.zero_grad()
        generator = torch.Generator().manual_seed(step)
        batch = torch.randint(TOKENS, (SLOTS, 2, 6), generator=generator)
        for slot, tokens in gradients.step(batch[slot] for slot in range(rank, SLOTS, world)):
            loss(model, tokens, slot.number).backward()
        optimizer.step()
    found = {
        name: {"value": whole(p), **{k: whole(v) for k, v in optimizer.state.get(p, {}).items()}}
        for name, p in model.named_parameters()
    }
    return str(digest([found, dict(model.named_buffers())]))


def whole(tensor: torch.Tensor) -> torch.Tensor:
    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).detach()


@pytest.fixture
def expected():
    """The digest of the whole model in one process, of one thread as ranks have."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield train("alone", [])
    torch.set_num_threads(threads)


SLOW = [
    *((case, sizes) for sizes in ([2], [3]) for case in ("kept", "recomputed")),
    *(("float32", sizes) for sizes in ([3], [4], [2, 2], [2, 1])),
]


@pytest.mark.parametrize(
    ("case", "sizes"),
    [("float32", [2]), *(pytest.param(*row, marks=pytest.mark.slow) for row in SLOW)],
)
def test_any_mesh_trains_as_one_process(case, sizes, expected):
    world = torch.Size(sizes).numel()
    assert ranks(world, train, case, sizes) == [expected] * world


@pytest.mark.slow
def test_half_precision_does_not_depend_on_the_mesh(expected):
    found = [digest for n, sizes in ((2, [2]), (3, [3]), (4, [2, 2]))
             for digest in ranks(n, train, "half", sizes)]  # fmt: skip
    assert len(set(found)) == 1 and expected not in found


@pytest.mark.slow
def test_data_ranks_do_not_matter_beside_tensor_parallelism():
    found = {*ranks(2, train, "tensor parallel", []), *ranks(4, train, "tensor parallel", [])}
    assert len(found) == 1


class Experts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2))
        self.out = nn.Linear(WIDTH, 1)

    def forward(self, x: torch.Tensor, slot: int) -> torch.Tensor:
        return self.out(self.experts[slot % 2](x))


def use_other_modules(frozen: bool) -> str:
    """Return the error where each rank runs another module with a group of its own."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = Experts()
    for expert in model.experts:
        fully_shard(expert.requires_grad_(not frozen), mesh=mesh)
    fully_shard(model, mesh=mesh)
    gradients = SlotGradients(model, dist.get_world_size())
    try:
        for slot, x in gradients.step([torch.ones(1, WIDTH)]):
            model(x, slot.number).sum().backward()
    except RuntimeError as error:
        assert all(p.grad is None for p in model.parameters())
        return str(error)
    return "no error"


def train_different_replicas() -> str:
    """Return the error where the shards of replicas differ."""
    names = ("replicate", "shard")
    mesh = init_device_mesh("cpu", (dist.get_world_size(), 1), mesh_dim_names=names)
    torch.manual_seed(dist.get_rank())
    model = fully_shard(nn.Linear(WIDTH, 1), mesh=mesh)
    with pytest.raises(ValueError, match="slots must be at least the number of ranks, 2, under "):
        SlotGradients(model, 1)
    try:
        for _, x in SlotGradients(model, 2).step([torch.ones(1, WIDTH)]):
            model(x).sum().backward()
    except RuntimeError as error:
        return str(error)
    return "no error"


@pytest.mark.parametrize("frozen", [False, True])
def test_ranks_that_run_other_modules_are_named(frozen):
    for rank, error in enumerate(ranks(2, use_other_modules, frozen)):
        assert "must run the same modules under fully_shard in each micro-step" in error
        assert f"but rank {1 - rank} did not as rank {rank} of the group" in error


def test_replicas_that_differ_are_an_error():
    for error in ranks(2, train_different_replicas):
        assert "must agree, but parameter 'weight' is" in error
