"""Initialization of sharded models, the ranks of a job one after the other in this process."""

import threading

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard

import fastseed


@pytest.fixture(autouse=True)
def job():
    fastseed.init(42, rank=0, world_size=1)


def gpt2() -> nn.Module:
    transformers = pytest.importorskip("transformers", minversion="5.0")
    config = transformers.GPT2Config(
        vocab_size=61, n_embd=16, n_layer=2, n_head=2, n_positions=20, bos_token_id=1,
        eos_token_id=1)  # fmt: skip
    return transformers.GPT2LMHeadModel(config)


class ByType(nn.Module):
    """Initialized as the example of ``torch.nn.Module.apply`` does it, by the types of modules."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(6, 6) for _ in range(2))

    def init_weights(self) -> None:
        def fill(module: nn.Module) -> None:
            if type(module) is nn.Linear:
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)
            elif type(module) is ByType:
                for block in self.blocks:
                    block.weight.data.mul_(2)

        self.apply(fill)

    def tie_weights(self) -> None:
        """Nothing is tied."""


def blocks_of(model: nn.Module) -> list[nn.Module]:
    lists = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
    return [block for blocks in lists for block in blocks]


def on_meta(build, sharded: bool = False) -> nn.Module:
    with torch.device("meta"):
        model = build()
    if sharded:
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for module in (*blocks_of(model), model):
            fully_shard(module, mesh=mesh)
    return model


def allocated(model: nn.Module, tie: bool = True) -> nn.Module:
    model.to_empty(device="cpu")
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            local = getattr(tensor, "_local_tensor", tensor)
            local.fill_(0.34375)
    if tie:
        model.tie_weights()
    return model


def initialized(model: nn.Module) -> dict[str, torch.Tensor]:
    with fastseed.nn.initialize(model):
        model.init_weights()
    return {n: getattr(p, "_local_tensor", p).detach() for n, p in model.named_parameters()}


@pytest.mark.parametrize(("rank", "world"), [(0, 2), (2, 3)])
@pytest.mark.integrations
@pytest.mark.parametrize("build", [gpt2, ByType])
def test_a_model_whose_blocks_and_root_are_sharded_has_the_weights_of_one_process(
    build, rank, world, as_rank
):
    whole = initialized(allocated(on_meta(build)))
    assert not any((weight == 0.34375).any() for weight in whole.values())
    as_rank(rank, world)
    model = allocated(on_meta(build, sharded=True))
    for name, part in initialized(model).items():
        assert torch.equal(part, whole[name].chunk(world)[rank]), name
    assert all(isinstance(module, FSDPModule) for module in (model, *blocks_of(model)))


def test_sharded_models_may_be_allocated_in_the_block(as_rank):
    as_rank(0)
    before = initialized(allocated(on_meta(ByType, sharded=True)))
    model = on_meta(ByType, sharded=True)
    with fastseed.nn.initialize(model):
        assert type(model) is ByType
        model.to_empty(device="cpu")
        assert type(model) is ByType
        model.init_weights()
    assert isinstance(model, FSDPModule) and "_apply" not in vars(model)
    for name, weight in model.named_parameters():
        assert torch.equal(weight.to_local(), before[name]), name
    state = fully_shard.state(model.blocks[0])
    groups = getattr(state, "_fsdp_param_groups", None)  # one, in older versions of torch
    group = groups[0] if groups else state._fsdp_param_group
    held = {p._module_info.param_name: p.sharded_param for p in group.fsdp_params}
    assert held["weight"] is model.blocks[0].weight  # what FSDP2 gathers


def test_gathered_parameters_are_initialized_where_they_are_kept(as_rank):
    whole = initialized(allocated(on_meta(ByType)))
    as_rank(0)
    model = allocated(on_meta(ByType, sharded=True))
    model.blocks[0].unshard()
    assert not hasattr(model.blocks[0].weight, "placements")
    for name, part in initialized(model).items():
        assert torch.equal(part, whole[name].chunk(2)[0]), name


def gates(layer: nn.Linear) -> None:
    layer.bias[2:-1:3].fill_(1.0)
    nn.init.constant_(layer.bias[4], 2.0)
    layer.weight.t()[:, -3:].zero_()
    layer.weight.narrow(0, 1, 2).fill_(3)
    layer.weight[:, 2:4].mul_(0.5)  # no copy


@pytest.mark.parametrize(("rank", "world"), [(0, 2), (2, 3), (4, 5), (6, 7)])
def test_a_slice_of_a_sharded_parameter_is_filled(rank, world, as_rank):
    def initialized(model: nn.Module) -> dict[str, torch.Tensor]:
        with torch.no_grad(), fastseed.nn.initialize(model):
            model.reset_parameters()
            gates(model)
        return dict(model.named_parameters())

    whole = initialized(nn.Linear(4, 9))
    as_rank(rank, world)
    for name, part in initialized(fully_shard(nn.Linear(4, 9))).items():
        chunks = whole[name].chunk(world)
        assert torch.equal(part.to_local(), chunks[rank] if rank < len(chunks) else chunks[0][:0])


@pytest.mark.parametrize(
    ("write", "says"),
    [
        (lambda w: w[1:5].mul_(0.1), r"must be written by zero_ or fill_, got aten\.mul_"),
        (lambda w: w[0].add_(1), r"got aten\.add_.* on a part of weight"),
        (lambda w: w.chunk(3)[1].fill_(1), r"got aten\.fill_"),
        (lambda w: w[2:5][0].zero_(), r"got aten\.zero_"),
        (lambda w: w[2:5].detach().zero_(), r"got aten\.zero_"),
        (lambda w: w[2:5].normal_(), "must go into a parameter or buffer"),
        (lambda w: nn.init.normal_(w.to_local()), r"must get the DTensor weight, got its local"),
        (lambda w: nn.init.orthogonal_(w._local_tensor), r"must get the DTensor weight"),
    ],
)
def test_what_would_not_reach_a_shard_is_refused(write, says, as_rank):
    as_rank(0)
    model = fully_shard(nn.Linear(4, 9))
    with torch.no_grad(), fastseed.nn.initialize(model), pytest.raises(RuntimeError, match=says):
        write(model.weight)


def test_copies_into_a_parameter_reach_its_part(as_rank):
    as_rank(0)
    model, whole = fully_shard(nn.Linear(4, 9)), torch.arange(72.0).view(2, 9, 4)[1]
    with torch.no_grad(), fastseed.nn.initialize(model):
        model.weight.copy_(whole)
        model.bias.copy_(whole[3, :1])
        again = torch.empty_like(model.weight).copy_(model.weight)
        model.weight.copy_(again + again)
    assert torch.equal(model.weight.to_local(), 2 * whole[:5])
    assert model.bias.to_local().tolist() == [48.0] * 5


class Drawn(nn.Module):
    def __init__(self, rows: int = 8, columns: int = 6) -> None:
        super().__init__()
        self.linear = nn.Linear(columns, rows)
        self.register_buffer("kept", torch.zeros(rows, columns))
        self.register_buffer("waves", torch.zeros(rows, columns, dtype=torch.complex64))


WRITES = {
    "normal": lambda m: m.linear.weight.data.normal_(0, 0.02),
    "linear": lambda m: m.linear.reset_parameters(),  # Kaiming, by the size of the whole
    "xavier": lambda m: nn.init.xavier_normal_(m.linear.weight),
    "fan out": lambda m: nn.init.kaiming_normal_(m.linear.weight, mode="fan_out"),
    "truncated": lambda m: nn.init.trunc_normal_(m.linear.weight, std=0.02),
    "orthogonal": lambda m: nn.init.orthogonal_(m.linear.weight),
    "sparse": lambda m: nn.init.sparse_(m.linear.weight, 0.3),
    "exponential": lambda m: m.kept.exponential_(2.0),
    "cauchy": lambda m: m.kept.cauchy_(),
    "integers": lambda m: m.kept.random_(0, 9),
    "constant": lambda m: m.kept.uniform_(3.0, 3.0),
    "complex": lambda m: m.waves.normal_(),
    "scratch": lambda m: m.kept.copy_(torch.empty_like(m.kept).normal_()),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_plain_parts_are_those_of_the_whole(write):
    names = ("linear.weight", "kept", "waves")
    whole = Drawn()
    with fastseed.nn.initialize(whole, prefix="tp"):
        write(whole)
    for dim, rank in ((0, 0), (0, 1), (1, 0), (1, 1)):
        sizes, offsets = [8, 6], [0, 0]
        sizes[dim] //= 2
        offsets[dim] = rank * sizes[dim]
        part, shard = Drawn(*sizes), fastseed.random.Shard((8, 6), offsets)
        shards = {f"tp.{name}": shard for name in names}
        if dim == 0:
            shards["tp.linear.bias"] = fastseed.random.Shard((8,), offsets[:1])
        with fastseed.nn.initialize(part, prefix="tp", shards=shards):
            write(part)
        drawn = 0
        for name, tensor in part.state_dict().items():
            expected = whole.state_dict()[name]
            if name in names or dim == 0:
                expected = expected.chunk(2, dim)[rank]
            drawn += torch.equal(tensor, expected) and bool(tensor.any())
        assert drawn == 1 + (write is WRITES["linear"])


@pytest.mark.parametrize(
    ("name", "sizes", "says"),
    [
        ("bias", ((8,), (0,)), "shards must be by names of parameters or buffers of model, .*bias"),
        ("0.bias", ((8,), (5,)), r"shard must hold a tensor of shape \(4,\).*\(0.bias\)"),
        ("0.weight", ((4,), (0,)), r"shard must hold a tensor of shape \(4, 6\).*\(0.weight\)"),
        ("1.weight", ((6, 4), (0, 0)), r"shard must be None for a DTensor.*\(1.weight\)"),
        ("0.weight", (8, 0), "shard.global_shape must be a sequence of integers"),
    ],
)
def test_shards_that_do_not_fit_are_refused_before_anything_is_written(name, sizes, says, as_rank):
    as_rank(0)
    model = nn.Sequential(nn.Linear(6, 4), fully_shard(nn.Linear(4, 6)))
    before = [p.clone() for p in model[0].parameters()]
    shards = {name: fastseed.random.Shard(*sizes)}
    with pytest.raises((TypeError, ValueError), match=says):  # noqa: SIM117
        with fastseed.nn.initialize(model, shards=shards):
            model[0].reset_parameters()
    assert all(map(torch.equal, model[0].parameters(), before))


@pytest.mark.parametrize("view", [lambda w: w[1:], lambda w: w.T])
def test_a_view_of_a_plain_part_is_refused(view):
    layer = nn.Linear(4, 4)
    shards = {"weight": fastseed.random.Shard((8, 4), (4, 0))}
    wrong = pytest.raises(RuntimeError, match="must get all of weight, a part by shards, got a vi")
    with torch.no_grad(), fastseed.nn.initialize(layer, shards=shards), wrong:
        view(layer.weight).normal_()


def test_sharded_models_have_their_classes_again_after_an_error(as_rank):
    as_rank(0)
    model = allocated(on_meta(ByType, sharded=True))
    with pytest.raises(ZeroDivisionError), fastseed.nn.initialize(model):
        1 / 0  # noqa: B018
    assert all(isinstance(module, FSDPModule) for module in (model, *model.blocks))
    assert not any("_apply" in vars(module) for module in model.modules())


def test_a_sharded_model_is_initialized_by_one_thread_at_a_time(as_rank):
    as_rank(0)
    model, found = allocated(on_meta(ByType, sharded=True)), []

    def elsewhere() -> None:
        try:
            initialized(model)
        except RuntimeError as error:
            found.append(str(error))

    with fastseed.nn.initialize(model):
        model.init_weights()
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        with fastseed.nn.initialize(model):  # in the same thread
            model.init_weights()
        assert type(model) is ByType
    assert "initialized by one thread at a time, got a ByType" in found[0], found
    assert isinstance(model, FSDPModule)


def check_untied_weights_are_refused(model):
    refused = r"\(call tie_weights.*got two for lm_head.weight and transformer.wte.weight"
    with pytest.raises(RuntimeError, match=refused):
        initialized(model)
    assert all((weight == 0.34375).all() for weight in model.parameters())


@pytest.mark.integrations
def test_revert_leaves_the_class_of_fully_shard(as_rank):
    class Own(ByType):
        def forward(self, x):
            return x

    as_rank(0)
    model = fully_shard(fastseed.nn.convert(Own()))
    sharded = type(model)
    assert fastseed.nn.revert(model) is model
    assert type(model).__name__ == sharded.__name__ and isinstance(model, FSDPModule)
    assert not hasattr(model, "fastseed_original") and isinstance(model, Own)
    model.reshard()


def test_tied_weights_that_to_empty_has_untied_are_refused():
    check_untied_weights_are_refused(allocated(on_meta(gpt2), tie=False))


@pytest.mark.integrations
def test_weights_that_fsdp_has_kept_tied_are_those_of_one_process(as_rank):
    whole = initialized(allocated(on_meta(gpt2)))["transformer.wte.weight"]
    as_rank(0)
    model = allocated(on_meta(gpt2, sharded=True), tie=False)
    if model.lm_head.weight is not model.transformer.wte.weight:
        check_untied_weights_are_refused(model)
        pytest.skip("FSDP2 of this torch does not keep weights tied")
    assert torch.equal(initialized(model)["transformer.wte.weight"], whole[:31])


@pytest.mark.integrations
def test_a_model_that_transformers_has_marked_as_initialized_is_a_warning():
    model = gpt2()
    with pytest.warns(UserWarning, match="nothing was initialized in the block, because transf"):
        initialized(model)
