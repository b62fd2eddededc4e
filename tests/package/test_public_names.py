"""The public names: light to import, visible to type checkers."""

import pickle
import traceback

import pytest
from helpers.paths import SCRIPTS
from helpers.support import run_python

import fastseed


def test_import_loads_neither_torch_nor_numpy():
    code = (
        "import sys, fastseed; dir(fastseed); print([m in sys.modules for m in ('torch', 'numpy')])"
    )
    assert run_python("-c", code).strip() == "[False, False]"


def test_init_and_reseed_load_nothing_that_they_do_not_need():
    code = (
        "import sys, fastseed; fastseed.init(42); fastseed.reseed(1); "
        "print([n for n in ('random', 'determinism') if f'fastseed.{n}' in sys.modules])"
    )
    assert run_python("-c", code).splitlines()[-1] == "[]"


def test_every_public_name_is_listed_and_found():
    assert len(fastseed.__all__) <= 23
    for name in fastseed.__all__:
        assert name in dir(fastseed) and getattr(fastseed, name) is not None
        if name not in ("SHARED", "__version__"):
            assert getattr(fastseed, name).__doc__


@pytest.mark.parametrize("name", ["seed", "manual_seed", "set_seed", "seed_everything"])
def test_names_of_other_libraries_name_init(name):
    with pytest.raises(
        AttributeError, match=rf"fastseed\.{name}: call fastseed\.init\(master_seed"
    ):
        getattr(fastseed, name)(42)


@pytest.mark.parametrize(
    ("name", "instead"),
    [("rand", "torch.rand"), ("randn", "fastseed.random.normal"), ("DataLoader", "data.steps")],
)
def test_names_of_torch_say_where_they_are(name, instead):
    with pytest.raises(AttributeError, match=rf"fastseed\.{name}: .*{instead}"):
        getattr(fastseed, name)


def test_reseed_error_is_shown_where_users_find_it():
    error = fastseed.ReseedError({"a": ValueError("x")})
    assert traceback.format_exception_only(error)[0].startswith("fastseed.ReseedError: ")
    assert type(pickle.loads(pickle.dumps(error))) is fastseed.ReseedError


def test_shared_has_a_name_in_messages():
    assert repr(fastseed.SHARED) == "fastseed.SHARED" and fastseed.SHARED == 2**24 - 1
    fastseed.init(42)
    with pytest.raises(ValueError, match=r"rank must be in \[0, fastseed.SHARED\]"):
        fastseed.derive_key("x", task=1, rank=2**24)


def test_the_script_for_type_checkers_has_every_name():
    script = (SCRIPTS / "every_name.py").read_text()
    assert [name for name in fastseed.__all__ if f"fastseed.{name}" not in script] == []
