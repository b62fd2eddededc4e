"""One training step's draws have one SHA-256, whatever draws them and wherever the parts lie.

The step has all functions with an exact form, in all their dtypes, strided and channels-last. The
fast tests take sizes to 4,097; the proof takes all, to 2**24 elements.
"""

import pytest
import torch
import torch.distributed as dist
from helpers import keyed_step
from helpers.keyed_step import SIZES, SMALL
from helpers.ranks import ranks
from helpers.simd import set_simd
from helpers.support import run_script
from torch.distributed import tensor as dtensors
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

import fastseed
from fastseed._backend import derive

FEW = (0, 255)
DIGESTS = {
    FEW: "e27ae460785a210e5edc5e6ac2d386deff9855d5c2c300343413596f81287d09",
    SMALL: "0a6e24a0d5496782db0bc9f146eb09b91d6ca0d8ecf15fda649a6f428c0da790",
    SIZES: "75b564ce506a4682a06bd4ec6876b2a112ea40bf2eafefa297eb09844b207d8c",
}
NATIVE = ("portable", "avx2", "avx512")


def start():
    fastseed.init(42)
    fastseed.reseed(1, 7, 3)


class Sharded:
    """Makes tensors that all ranks share out, by rows."""

    def __init__(self):
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        self._where = {"device_mesh": mesh, "placements": [Shard(0)]}

    def rand(self, n, dtype):
        return dtensors.rand(n, dtype=dtype, **self._where)

    def randn(self, n, dtype):
        return dtensors.randn(n, dtype=dtype, **self._where)

    def ones(self, *shape, dtype=torch.float32):
        return dtensors.ones(shape, dtype=dtype, **self._where)

    @staticmethod
    def whole(tensor):
        return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def digest_on_ranks(sizes):
    start()
    made = set()

    class Counting(Sharded):
        @staticmethod
        def whole(tensor):
            made.add(type(tensor))
            return Sharded.whole(tensor)

    found = keyed_step.digest(sizes, make=Counting())
    assert DTensor in made
    return found


@pytest.mark.cuda
def test_paths_and_the_digest_of_small_sizes(device):
    torch.zeros(1, device=device)  # reseed writes the scope to devices that are in use
    for path in (*derive.simd_paths(), device):
        set_simd(path if path in NATIVE else None)
        start()
        with torch.device("cpu" if path in NATIVE else device):
            found, tensors, values = keyed_step.digest()
        assert found == DIGESTS[SMALL], path
        assert (tensors, values) == (164, 174375)


def test_shards_of_few_sizes():
    assert {found for found, *_ in ranks(2, digest_on_ranks, FEW)} == {DIGESTS[FEW]}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_recomputed_draws_at_small_sizes():
    found = run_script("keyed_step.py", "recomputed", str(len(SMALL)), timeout=600)
    assert found["digest"] == DIGESTS[SMALL]


def test_the_reference_at_small_sizes():
    found = run_script("keyed_step.py", "eager", str(len(SMALL)), FASTSEED_BACKEND="reference")
    assert found["by"][0] == "reference" and found["digest"] == DIGESTS[SMALL]


@pytest.mark.proof
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("way", ["reference", *NATIVE, "recomputed", "aot_eager", "inductor"])
def test_the_whole_step(way):
    if way in NATIVE and way not in derive.simd_paths():
        pytest.skip(f"this processor has no {way}")
    backend = "reference" if way == "reference" else "native"
    arguments = (way, str(len(SIZES)))
    found = run_script("keyed_step.py", *arguments, timeout=3500, FASTSEED_BACKEND=backend)
    assert found["digest"] == DIGESTS[SIZES] and found["by"][0] == backend
    assert way not in NATIVE or found["by"][1] == way


@pytest.mark.proof
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("size", [1, 2, 4])
def test_shards_of_the_whole_step(size):
    found = ranks(size, digest_on_ranks, SIZES, timeout=3500)
    assert {each for each, *_ in found} == {DIGESTS[SIZES]}
