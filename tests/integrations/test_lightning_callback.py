"""The Lightning callback against the real package: stopped and resumed runs, validation, tasks."""

import logging
import random

import numpy as np
import pytest
import torch
from helpers.loaders import digest
from helpers.processes import run_ranks
from helpers.support import snapshot
from torch.utils.data import DataLoader, Dataset

import fastseed
from fastseed._utils.log import warn_once
from fastseed.data import Loader, ShuffleSampler

lightning = pytest.importorskip("pytorch_lightning")
from fastseed.integrations.lightning import FastseedCallback  # noqa: E402
from fastseed.tools import checkpoints  # noqa: E402

ModelCheckpoint = lightning.callbacks.ModelCheckpoint

pytestmark = pytest.mark.filterwarnings("ignore")
N, BATCH, EPOCHS = 12, 3, 3
STEPS = N // BATCH


class Points(Dataset):
    """Sample i, augmented in the process that reads it."""

    def __len__(self):
        return N

    def __getitem__(self, i):
        return int(i), torch.rand(3) + np.random.rand() + random.random()


class Model(lightning.LightningModule):
    """Dropout in training; what each step saw and drew is written down."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 1)
        self.seen = []

    def note(self, phase, batch):
        self.seen.append(
            (phase, self.trainer.current_epoch, batch[0].tolist(), float(torch.rand(())))
        )

    def training_step(self, batch, index):
        self.note("train", batch)
        kept = torch.nn.functional.dropout(batch[1].float(), 0.5)
        return (self.layer(kept) ** 2).mean()

    def validation_step(self, batch, index):
        self.note("check" if self.trainer.sanity_checking else "validate", batch)

    def test_step(self, batch, index):
        self.note("test", batch)

    def predict_step(self, batch, index):
        self.note("predict", batch)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


def loaders(ours):
    if ours:
        train = Loader(Points(), batch_size=BATCH, shuffle=True)
        return train, Loader(Points(), batch_size=6)
    return DataLoader(Points(), batch_size=BATCH, shuffle=True), DataLoader(Points(), batch_size=6)


def trainer(*callbacks, ours=None, **options):
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    options = {"max_epochs": EPOCHS, **options}
    return lightning.Trainer(
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=bool(callbacks),
        callbacks=[ours or FastseedCallback(), *callbacks],
        **options,
    )


def fit(ours=True, validate=True, ckpt_path=None, callback=None, checkpoints=(), **options):
    """A run as a script makes it; its model."""
    fastseed.init(42)
    fastseed.reseed(0)
    model = Model()
    train, held_out = loaders(ours)
    made = trainer(*checkpoints, ours=callback, **options)
    made.fit(model, train, held_out if validate else None, ckpt_path=ckpt_path)
    return model


def of(phase, model):
    return [entry for entry in model.seen if entry[0] == phase]


@pytest.mark.parametrize("ours", [True, False], ids=["loader", "DataLoader"])
def test_a_run_repeats_and_validation_leaves_it_alone(ours):
    once = fit(ours)
    assert digest(once) == digest(fit(ours))
    for options in (
        {"validate": False},
        {"num_sanity_val_steps": 0},
        {"val_check_interval": 0.5},
        {"check_val_every_n_epoch": 2},
    ):
        other = fit(ours, **options)
        assert of("train", other) == of("train", once), options
        assert digest(other) == digest(once), options
    fastseed.init(43)
    assert len(of("validate", once)) == 2 * EPOCHS
    draws = [entry[-1] for entry in once.seen if entry[0] != "check"]
    assert len(set(draws)) == len(draws)  # no phase or epoch repeats another's


def test_without_the_callback_validation_changes_training(tmp_path):
    """The use that it is made for."""

    def run(validate):
        torch.manual_seed(42)
        model, (train, held_out) = Model(), loaders(False)
        made = trainer(ours=lightning.Callback())
        made.fit(model, train, held_out if validate else None)
        made.save_checkpoint(tmp_path / "plain.ckpt")
        return digest(model)

    assert run(True) != run(False)
    (finding,) = checkpoints.inspect(tmp_path / "plain.ckpt").findings
    assert "it holds no state of a generator" in finding


KINDS = {
    "batches": (dict(every_n_train_steps=1), {}),
    "epochs": (dict(save_on_train_epoch_end=True), {}),
    "validations": (dict(save_on_train_epoch_end=False), {}),
    "validations in mid-epoch": (dict(save_on_train_epoch_end=False), {"val_check_interval": 0.5}),
}


@pytest.mark.parametrize("ours", [True, False], ids=["loader", "DataLoader"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_goes_on_from_a_checkpoint_is_the_same_run(tmp_path, kind, ours):
    settings, options = KINDS[kind]
    saver = ModelCheckpoint(tmp_path, filename="{step}", save_top_k=-1, **settings)
    whole = fit(ours, checkpoints=(saver,), **options)
    files = {int(path.stem.partition("=")[2]): path for path in tmp_path.iterdir()}
    assert len(files) == {"batches": 12, "validations in mid-epoch": 6}.get(kind, 3)
    for step, path in files.items():
        if not ours and step % STEPS:
            continue  # Lightning begins the data again
        rest = fit(ours, ckpt_path=path, **options)
        assert of("train", rest) == of("train", whole)[step:], step
        assert digest(rest) == digest(whole), step


def test_a_checkpoint_is_plain_data(tmp_path):
    saver = ModelCheckpoint(tmp_path, filename="{step}", every_n_train_steps=6, save_top_k=-1)
    fit(checkpoints=(saver,))
    loaded = torch.load(tmp_path / "step=6.ckpt", weights_only=True)
    held = loaded["callbacks"]["fastseed"]
    assert (held["version"], held["over"]) == (1, 0)
    assert (held["job"]["task"], held["job"]["epoch"]) == (1, 1)
    assert {"rng.0.python", "rng.0.numpy", "rng.0.torch.cpu"} < set(held["job"])


def test_registered_generators_are_part_of_it(tmp_path):
    own = np.random.default_rng()

    class Adding(FastseedCallback):
        def setup(self, *arguments, **keywords):
            super().setup(*arguments, **keywords)
            fastseed.register_generator(own, name="own")

        def on_train_batch_end(self, *arguments):
            super().on_train_batch_end(*arguments)
            drawn.append(own.random())

    drawn = []
    saver = ModelCheckpoint(tmp_path, filename="{step}", every_n_train_steps=6, save_top_k=-1)
    fit(checkpoints=(saver,), callback=Adding(), val_check_interval=0.5)
    whole, drawn = drawn, []
    fit(ckpt_path=tmp_path / "step=6.ckpt", callback=Adding())
    assert len(set(whole)) == STEPS * EPOCHS and drawn == whole[6:]


def test_phases_have_tasks_of_their_own():
    fastseed.init(42)
    fastseed.reseed(0)
    model, (train, held_out) = Model(), loaders(True)
    made = trainer()
    made.fit(model, train, held_out)
    made.test(model, held_out, verbose=False)
    made.predict(model, held_out)
    made.validate(model, held_out, verbose=False)
    for phase, task, epoch in (("test", 3, 0), ("predict", 4, 0), ("validate", 2, 0)):
        fastseed.reseed(task, epoch)
        batches = list(held_out)  # which draws the samples, as the first step finds it done
        assert len(batches) == 2
        fastseed.reseed(task, epoch)
        first = next(iter(held_out))
        drawn = float(torch.rand(()))
        found = [entry for entry in model.seen if entry[0] == phase][-2 if phase != "test" else 0]
        assert found[2:] == (first[0].tolist(), drawn), phase
    fastseed.reseed(1, 2)
    assert of("train", model)[2 * STEPS][2] == next(iter(train))[0].tolist()


def test_after_a_phase_the_generators_are_where_they_were():
    fastseed.init(42)
    made, model, (_, held_out) = trainer(), Model(), loaders(True)
    made.test(model, held_out, verbose=False)
    after = snapshot()
    fastseed.reseed(0)
    assert after == snapshot()  # that of setup
    assert not any("run" in vars(loop) for loop in (made.fit_loop, made.test_loop))


def test_the_callback_initializes_where_the_script_has_not():
    made, model = trainer(ours=FastseedCallback(7)), Model()
    made.fit(model, *loaders(True))
    assert fastseed.get_master_seed() == 7
    fastseed.init(8)
    with pytest.raises(ValueError, match=r"master_seed must be that of .*, 8, or None, got 7"):
        trainer(ours=FastseedCallback(7)).fit(model, *loaders(True))


def test_foreign_states_are_refused():
    fastseed.init(42)
    callback = FastseedCallback()
    good = {"version": 1, "over": 0, "job": fastseed.state_dict(rng=True)}
    callback.load_state_dict(good)
    with pytest.raises(ValueError, match="must be of version 1"):
        callback.load_state_dict({**good, "version": 2})
    with pytest.raises(TypeError, match="state must be a dict"):
        callback.load_state_dict({**good, "job": None})
    fastseed.init(43)
    with pytest.raises(ValueError, match="master_seed must be 42, as in the checkpoint, got 43"):
        callback.load_state_dict(good)


@pytest.mark.integrations
def test_the_package_named_lightning(tmp_path):
    ((found,),) = run_ranks("lightning_ranks.py", 1, "lightning.pytorch", tmp_path, "save")
    fastseed.init(42)
    orders = []
    for epoch in range(2):
        fastseed.reseed(1, epoch)
        orders += list(ShuffleSampler(24))
    assert found["rank"] == [0, 1] and found["seen"] == orders


@pytest.mark.integrations
def test_two_ranks_and_then_one(tmp_path):
    """The checkpoint has the states of both."""
    ends = "", " sampler", " validate", " test", " predict"
    modes = "save", "load", *(f"forgotten{end}" for end in ends)
    ranks = run_ranks("lightning_ranks.py", 2, "pytorch_lightning", tmp_path, *modes)
    whole, rest, *forgotten = zip(*ranks, strict=True)
    for rank in (rank for mode in forgotten for rank in mode):
        assert "use_distributed_sampler of the Trainer must be False" in rank["error"]
    assert [r["rank"] for r in whole] == [[0, 2], [1, 2]]
    for found, expected in zip(rest, whole, strict=True):
        assert found["digest"] == expected["digest"]
        assert found["seen"] == expected["seen"][18:] and len(found["seen"]) == 6
        assert found["draws"] == expected["draws"][6:] and len(found["draws"]) == 2
    seen, draws = ([r[key] for r in whole] for key in ("seen", "draws"))
    assert sorted(seen[0][:12] + seen[1][:12]) == list(range(24))
    assert len({*draws[0], *draws[1]}) == 16
    held = torch.load(tmp_path / "step=6.ckpt", weights_only=True)["callbacks"]["fastseed"]["job"]
    assert {"rng.0.torch.cpu", "rng.1.torch.cpu"} < set(held)
    states = checkpoints.inspect(tmp_path / "step=6.ckpt").states
    assert {("rank 0", "python"), ("rank 1", "torch.cpu")} < {one[:2] for one in states}
    ((alone,),) = run_ranks("lightning_ranks.py", 1, "pytorch_lightning", tmp_path, "load")
    assert sorted(alone["seen"]) == sorted(seen[0][18:] + seen[1][18:])


def test_seed_everything_with_workers_is_warned_of(monkeypatch, caplog):
    """Lightning's seeds of workers replace those of the loader: the augmentation changes."""
    for value, warned in (("0", 0), ("1", 1)):
        warn_once.cache_clear()
        monkeypatch.setenv("PL_SEED_WORKERS", value)
        fit(max_epochs=1)
        assert (
            sum("seed_everything(..., workers=True)" in text for text in caplog.messages) == warned
        )
