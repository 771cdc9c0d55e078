"""A server learns from releases: directions from class sums, and a model from records. One party whose figures make
that impossible is set aside, and the others are learnt from."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch

from mixveil.core import checkpoint
from mixveil.core.errors import ArgumentError, MismatchError, ProjectionError, TrainingError
from mixveil.core.wording.notes import note
from mixveil.features import projection_file
from mixveil.features.projection import Projection
from mixveil.federated.jobs.asking import Parties, agreeing
from mixveil.federated.jobs.inbox import Inbox
from mixveil.federated.jobs.job import Job
from mixveil.federated.jobs.messages import Refusal
from mixveil.federated.jobs.serving import collected, gather
from mixveil.federated.methods.base import Kind
from mixveil.learn import training
from mixveil.learn.class_means import directions
from mixveil.learn.training import ProjectionWithDigest, Trained
from mixveil.releases.reading import read_release

T = TypeVar("T")
Learn = Callable[[list[str], bool], T]
"""From the releases of some parties; whether it is only tried."""

_LinAlgError: type[Exception] = torch.linalg.LinAlgError  # type: ignore[attr-defined]
_FIGURES = (MismatchError, ProjectionError, TrainingError, ArithmeticError, _LinAlgError)
"""Errors that follow from a party's figures, and from nothing else."""

_STATE = ".training-"


def find_directions(job: Job, parties: Parties) -> ProjectionWithDigest | None:
    """Collect class sums, and find the directions in which the classes differ. Then every party that sent some is asked
    once more: an owner may have refused meanwhile."""
    inbox = _inbox(job)
    if not job.directions_path.exists():
        if job.projection is None:
            raise Refusal("projection-missing")
        public = job.projection
        folders = collected(job, parties, inbox, "statistics", public)
        sums = {name: read_release(folder) for name, folder in folders.items()}
        agreed = _agreed(job, inbox, "statistics", {name: (part.classes,) for name, part in sums.items()})

        def find(names: list[str], trying: bool) -> Projection:
            narrow = directions([sums[name] for name in names], *public)
            _check_readable(narrow)
            return narrow

        narrow, agreed = with_most(job, inbox, "statistics", agreed, find)
        projection_file.write(job.directions_path, narrow)
        job.log("directions-found", directions=narrow.dimension, parties=len(agreed))
    gather(job, parties, among=inbox.arrived("statistics"))
    return projection_file.read(job.directions_path)


def from_records(job: Job, parties: Parties, through: ProjectionWithDigest | None) -> Trained:
    """Collect records that went through a projection, or none, and train the job's head on them."""
    inbox = _inbox(job)
    folders = collected(job, parties, inbox, "records", through)
    releases = {name: read_release(folder) for name, folder in folders.items()}
    stated = {name: (r.classes, r.shape, tuple(sorted(r.assets.items()))) for name, r in releases.items()}
    agreed = _agreed(job, inbox, "records", stated)
    job.log("training-begun", rows=sum(len(releases[name].payload) for name in agreed), parties=len(agreed))

    def learn(names: list[str], trying: bool) -> Trained:
        opened = training.opened([folders[name] for name in names], through)
        if job.config.chosen_head != "mlp":
            return training.train(opened)
        state = None if trying else _state(job, opened)
        continues = lambda _: job.log("training-continues")  # noqa: E731
        return training.train_mlp(opened, recipe=job.config.recipe, state=state, note=continues)

    trained, _ = with_most(job, inbox, "records", agreed, learn)
    for path in job.folder.glob(f"{_STATE}*"):
        checkpoint.discard(path)
    return trained


def _inbox(job: Job) -> Inbox:
    return Inbox(job.folder, job.config.limit << 20)


def _state(job: Job, opened: training.Job) -> Path:
    """Where the state of a training is kept: one for each set of releases, as parties come and go."""
    ids = ",".join(sorted(release.id for release in opened.releases))
    return job.folder / f"{_STATE}{hashlib.sha256(ids.encode()).hexdigest()[:16]}"


def _check_readable(narrow: Projection) -> None:
    try:
        projection_file.check(narrow)
    except ArgumentError as error:
        raise ProjectionError(f"the directions cannot be used: {error}") from None


def _agreed(job: Job, inbox: Inbox, kind: Kind, stated: Mapping[str, Hashable]) -> list[str]:
    """The parties that say the same of their rows; what the others sent is set aside."""
    agreed = agreeing(job, stated, kind)
    for name in stated.keys() - agreed:
        inbox.set_aside(name, kind)
    return sorted(agreed)


def with_most(job: Job, inbox: Inbox, kind: str, names: list[str], learn: Learn[T]) -> tuple[T, list[str]]:
    """Learn from all parties, or from all but those whose figures make it impossible; the result, and from whom. What
    those sent is set aside, so that the job does without, also when it is run again. Errors that follow from no figure
    (a full disk, too little memory) are no party's fault, and end the job as they are."""
    while True:
        try:
            return learn(names, False), names
        except _FIGURES as error:
            wrong = type(error).__name__
        job.log("learning-failed", error=wrong)
        culprits = _culprits(names, learn)
        if not culprits or len(names) - len(culprits) < job.config.min_parties:
            raise Refusal("nothing-learnt", error=wrong)
        for name in culprits:
            inbox.set_aside(name, kind)
            job.exclude(name, "rejected", note("blocks-learning", kind=kind, error=wrong))
        names = [name for name in names if name not in culprits]


def _culprits(names: list[str], learn: Learn[Any]) -> list[str]:
    """The one party without which the others can be learnt from; else all whose figures, alone, make it impossible.
    Where two fail only together, it cannot be told which of them it is."""
    needless = [n for n in names if len(names) > 1 and _works(learn, [other for other in names if other != n])]
    if len(needless) == 1:
        return needless
    return [name for name in names if not _works(learn, [name])]


def _works(learn: Learn[Any], names: list[str]) -> bool:
    """Whether figures can be computed with. Too few classes, or the like, are not a fault of the figures."""
    try:
        learn(names, True)
    except _FIGURES:
        return False
    except ArgumentError:
        return True
    return True
