"""mixveil: train one model on images that no party may show.

Whole jobs are functions: `calibrate`, `encode`, `statistics`, `verify`, `card`, `audit`, `prepare`, `directions`,
`train`, `predict`, `rounds_plan`, `send_round`, `rounds_step`, `leave_rounds`, `simulate`, `make_challenge`,
`attack_challenge`, `score_challenge`, `split_train`, `split_encode`, `split_answer`, `split_sweep`, `update`. They
refuse what the command line refuses, with the same errors. Names are imported when they are first used, so that `import
mixveil` is quick.

>>> import mixveil
>>> mixveil.Singular().alpha is None  # the target decides
True
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mixveil.core.door import open_door

if TYPE_CHECKING:
    from mixveil.attacks.catalogue import attacks as attacks
    from mixveil.audit.challenge import open_challenge as open_challenge
    from mixveil.audit.challenge_attacking import attack_challenge as attack_challenge
    from mixveil.audit.own_releases import audit as audit
    from mixveil.core.errors import MixveilError as MixveilError
    from mixveil.core.randomness import SecureStream as SecureStream
    from mixveil.core.randomness import SeededStream as SeededStream
    from mixveil.core.types import Fact as Fact
    from mixveil.core.types import Facts as Facts
    from mixveil.core.types import Guarantee as Guarantee
    from mixveil.core.types import Mu as Mu
    from mixveil.core.types import Tau as Tau
    from mixveil.core.types import View as View
    from mixveil.data.checking import check_data as check_data
    from mixveil.data.images import from_tensors as from_tensors
    from mixveil.data.opening import DataOptions as DataOptions
    from mixveil.data.opening import open_data as open_data
    from mixveil.encoders.batch_transform import BatchTransform as BatchTransform
    from mixveil.encoders.catalogue import encoders as encoders
    from mixveil.encoders.gaussian import Gaussian as Gaussian
    from mixveil.encoders.identity import Identity as Identity
    from mixveil.encoders.instahide import InstaHide as InstaHide
    from mixveil.encoders.laplace import Laplace as Laplace
    from mixveil.encoders.mixup import Mixup as Mixup
    from mixveil.encoders.singular import Singular as Singular
    from mixveil.features.split.half import read_half as read_half
    from mixveil.federated.simulation.simulate import simulate as simulate
    from mixveil.learn.directions import directions as directions
    from mixveil.learn.local_update import update as update
    from mixveil.learn.prepare import prepare as prepare
    from mixveil.learn.round_files import rounds_plan as rounds_plan
    from mixveil.learn.round_files import rounds_step as rounds_step
    from mixveil.learn.split import split_answer as split_answer
    from mixveil.learn.split import split_train as split_train
    from mixveil.learn.split_sweep import split_sweep as split_sweep
    from mixveil.learn.split_training import SplitRecipe as SplitRecipe
    from mixveil.learn.train import predict as predict
    from mixveil.learn.train import train as train
    from mixveil.releases.calibrate import calibrate as calibrate
    from mixveil.releases.encode import encode as encode
    from mixveil.releases.ledger import Ledger as Ledger
    from mixveil.releases.reading import read_release as read_release
    from mixveil.releases.reading import verify as verify
    from mixveil.releases.representations import split_encode as split_encode
    from mixveil.releases.round_messages import leave_rounds as leave_rounds
    from mixveil.releases.round_messages import send_round as send_round
    from mixveil.releases.screening import Screen as Screen
    from mixveil.releases.sums import statistics as statistics
    from mixveil.report.audit_page import write_report as write_report
    from mixveil.report.challenges import make_challenge as make_challenge
    from mixveil.report.challenges import score_challenge as score_challenge
    from mixveil.report.release_card import card as card

_HOMES = {
    "attacks.catalogue": "attacks",
    "audit.challenge": "open_challenge",
    "audit.challenge_attacking": "attack_challenge",
    "audit.own_releases": "audit",
    "core.errors": "MixveilError",
    "core.randomness": "SecureStream SeededStream",
    "core.types": "Fact Facts Guarantee Mu Tau View",
    "data.checking": "check_data",
    "data.images": "from_tensors",
    "data.opening": "DataOptions open_data",
    "encoders.batch_transform": "BatchTransform",
    "encoders.catalogue": "encoders",
    "encoders.gaussian": "Gaussian",
    "encoders.identity": "Identity",
    "encoders.instahide": "InstaHide",
    "encoders.laplace": "Laplace",
    "encoders.mixup": "Mixup",
    "encoders.singular": "Singular",
    "features.split.half": "read_half",
    "federated.simulation.simulate": "simulate",
    "learn.directions": "directions",
    "learn.local_update": "update",
    "learn.round_files": "rounds_plan rounds_step",
    "learn.split": "split_answer split_train",
    "learn.split_sweep": "split_sweep",
    "learn.split_training": "SplitRecipe",
    "learn.train": "predict train",
    "releases.calibrate": "calibrate",
    "releases.encode": "encode",
    "releases.ledger": "Ledger",
    "learn.prepare": "prepare",
    "releases.reading": "read_release verify",
    "releases.representations": "split_encode",
    "releases.round_messages": "leave_rounds send_round",
    "releases.screening": "Screen",
    "releases.sums": "statistics",
    "report.audit_page": "write_report",
    "report.challenges": "make_challenge score_challenge",
    "report.release_card": "card",
}
__all__ = open_door(__name__, {name: f"mixveil.{home}" for home, names in _HOMES.items() for name in names.split()})
