"""One digest of all parameters, whatever the number of ranks and the layout."""

from __future__ import annotations

import functools

import pytest
from helpers.processes import run_ranks

THREE = "transformers GPT2LMHeadModel LlamaForCausalLM BertForMaskedLM"
# In the layouts of 8 ranks too, few models: the others differ in nothing that concerns them.
WORLDS = {"torch": (2, 4, 8), "transformers": (4,), THREE: (2,)}
CASES = [
    pytest.param(
        models,
        world,
        marks=pytest.mark.slow if models == "torch" else pytest.mark.integrations,
    )
    for models, worlds in WORLDS.items()
    for world in worlds
]
# transformers itself leaves it uninitialized after to_empty
UNTOUCHED = {"CLIPModel": ["logit_scale"]}


@functools.cache
def found(models: str, world: int):
    """Return what each rank found; see ``scripts/init_ranks.py``."""
    return run_ranks("init_ranks.py", world, *models.split(), timeout=280)


@pytest.mark.parametrize(("models", "world"), CASES)
def test_parameters_do_not_depend_on_the_layout(models, world):
    (whole,) = found(models, 1)
    assert len(whole["digests"]) >= {"transformers": 12, THREE: 3}.get(models, 2)
    wrong = []
    for rank, made in enumerate(found(models, world)):
        for model, digests in made["digests"].items():
            one = whole["digests"][model]
            assert isinstance(one, dict), one
            assert one["whole"][1] == UNTOUCHED.get(model, []), model
            assert len(digests) == (4 if world > 2 else 2), digests
            wrong += [
                (rank, model, layout, digest, one["whole"])
                for layout, digest in digests.items()
                if digest != one["whole"]
            ]
    assert not wrong, wrong[:5]


@pytest.mark.parametrize(("models", "world"), CASES)
def test_parameters_by_torch_itself_depend_on_the_layout(models, world):
    alone, sharded = (found(models, n)[0]["torch"] for n in (1, world))
    assert isinstance(alone, list) and isinstance(sharded, list), sharded
    assert alone[0] != sharded[0]
