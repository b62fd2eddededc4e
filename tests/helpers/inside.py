"""The one door to private names: what tests of ``fastseed.data`` know of the inside."""

# ruff: noqa: F401

from fastseed._backend import derive
from fastseed._backend.reference import scalar, shuffle
from fastseed._utils.log import warn_once
from fastseed._utils.strict_json import signed
from fastseed.data.history import Entry, History, Quarantine, Skip
from fastseed.data.journal import to_dict
from fastseed.data.layout import StepLayout
from fastseed.data.loader import loader as plain_loader
from fastseed.data.loader.iteration import Iteration
from fastseed.data.order import permutation
from fastseed.data.order.mixture import BLOCK, Mixture, Source, shares_of
from fastseed.data.order.permutation import Permutation
from fastseed.data.order.spec import KINDS, OrderSpec, ShuffleSpec
from fastseed.data.plan import plan_of
from fastseed.data.worker import samples as sample_rng
from fastseed.data.worker import scope, seeding, streams
from fastseed.data.worker.seeding import ScopedDataset, WorkerInit
from fastseed.derivation import blocks, context, scopes
from fastseed.derivation import streams as derivation_streams
from fastseed.derivation.shared_use import StreamUsers
from fastseed.generators import discovery
from fastseed.seeder.registry import adapter_for
