"""A server's side of a job: ask every party, keep what comes, train on it, and send the model back."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch

from mixveil.core import checkpoint
from mixveil.core.errors import ArgumentError, MismatchError, MixveilError, ProjectionError, RefusedError, TrainingError
from mixveil.features import projection_file
from mixveil.features.projection import Projection
from mixveil.federated.jobs import asking
from mixveil.federated.jobs.asking import (
    OUT,
    Check,
    Fleet,
    agreeing,
    answered,
    check_enough,
    fate_of,
    offered,
    ready,
    together,
)
from mixveil.federated.jobs.inbox import PAYLOADS, Inbox, Kind
from mixveil.federated.jobs.messages import MANIFEST, SMALL, Ask, Parcel
from mixveil.federated.jobs.orders import Fate, Job
from mixveil.federated.jobs.rounds import by_rounds
from mixveil.federated.jobs.slots import Slots
from mixveil.learn import training
from mixveil.learn.class_means import directions
from mixveil.learn.model import CARD, TENSORS, write_model
from mixveil.learn.training import Trained
from mixveil.releases.reading import read_release

POLL = 5.0
"""Seconds between two questions to a party whose owner has not approved yet."""

T = TypeVar("T")
_LinAlgError: type[Exception] = torch.linalg.LinAlgError  # type: ignore[attr-defined]
_FIGURES = (MismatchError, ProjectionError, TrainingError, ArithmeticError, _LinAlgError)
"""What is raised where figures are wrong, and nothing else is."""

Learn = Callable[[list[str], bool], T]
"""From the releases of some parties; whether it is only tried."""

_STATE = ".training-"
_FAREWELL = 10.0  # seconds to hear goodbye
_SENDING = Slots(3, 60.0)  # parties that send large files at a time


def run(job: Job, fleet: Fleet, about: Mapping[str, Any], *, poll: float = POLL) -> dict[str, Any]:
    """Do a job; how it ended. about: for the model's card."""
    try:
        _gather(job, fleet, poll)
        trained = by_rounds(job, fleet, poll) if job.order.by_rounds else _releases(job, fleet, poll)
        out = job.new_model()
        write_model(out, trained, None, about)
        job.say(f"the model is there: {out}")
        _return(job, fleet, out)
        return job.conclude(model=str(out), ok=True)
    except MixveilError as error:
        job.say(f"it ended without a model: {error}")
        _farewell(job, fleet, str(error))
        return job.conclude(model=None, ok=False, reason=str(error))


def _gather(job: Job, fleet: Fleet, poll: float, among: Iterable[str] | None = None) -> None:
    """Wait until enough parties are there and willing, before any of them makes anything: that would cost it something.
    Each is told by which name its key is known here, and looks at its budget and asks its owner. Owners are waited for;
    those that do not come are not, where there are enough. among: before a second step, those that made the first."""
    agreed = set(Inbox(job.folder).arrived("records"))
    for name in agreed:
        fate_of(job, name).state = "arrived"
    asked: set[str] = set()

    def hello(name: str, ask: Ask, fate: Fate, check: Check) -> None:
        asked.add(name)
        try:
            parcel = Parcel({**job.task.plain(), "ask": "hello", "you": name})
            ready(name, answered(job, name, ask, parcel, SMALL, fate, check, poll))
            agreed.add(name)
            if fate.state != "arrived":
                fate.state, fate.why = "willing", ""
        finally:
            asked.discard(name)

    def waits(name: str) -> bool:
        return fate_of(job, name).state == "waiting"

    enough = lambda: len(agreed) >= job.order.least and not any(map(waits, list(asked)))  # noqa: E731
    together(job, fleet, hello, among=among, enough=enough)
    if len(agreed) < job.order.least:
        more = "more " if any(Inbox(job.folder).arrived(kind) for kind in PAYLOADS) else ""
        raise RefusedError(
            f"{len(agreed)} part(ies) are there and willing, and {job.order.least} are needed: nothing {more}was made"
        )


def _farewell(job: Job, fleet: Fleet, reason: str) -> None:
    """Tell the parties that are there that it ended, if they can hear it soon."""

    def tell(name: str, ask: Ask, fate: Fate, check: Check) -> None:
        with contextlib.suppress(MixveilError):
            ask(Parcel({**job.task.plain(), "ask": "ended", "reason": reason[:500]}), SMALL)

    together(job, fleet, tell, among=list(fleet.parties()), seconds=min(job.order.wait, _FAREWELL), quiet=True)


# Releases


def _releases(job: Job, fleet: Fleet, poll: float) -> Trained:
    inbox = Inbox(job.folder, job.order.limit << 20)
    known = job.known
    if job.task.method == "two-step" and known is not None:
        public = known
        if not job.directions_path.exists():
            found = _collected(job, fleet, inbox, "statistics", known, poll)
            parts = {name: read_release(folder) for name, folder in found.items()}
            agreed = _agreed(job, inbox, "statistics", {name: (part.classes,) for name, part in parts.items()})

            def find(names: list[str], searching: bool) -> Projection:
                found = directions([parts[name] for name in names], *public)
                _check_readable(found)
                return found

            narrow, agreed = _with_most(job, inbox, "statistics", agreed, find)
            projection_file.write(job.directions_path, narrow)
            job.say(f"{narrow.dimension} directions were found from the statistics of {len(agreed)} part(ies)")
        known = projection_file.read(job.directions_path)
        _gather(job, fleet, poll, among=inbox.arrived("statistics"))  # somebody may have said no meanwhile
    found = _collected(job, fleet, inbox, "records", known, poll)
    releases = {name: read_release(folder) for name, folder in found.items()}
    stated = {name: (r.classes, r.shape, tuple(sorted(r.assets.items()))) for name, r in releases.items()}
    agreed = _agreed(job, inbox, "records", stated)
    job.say(f"training on {sum(len(releases[n].payload) for n in agreed):,} records of {len(agreed)} part(ies)")

    def learn(names: list[str], searching: bool) -> Trained:
        opened = training.opened([found[name] for name in names], known)
        if job.order.head != "mlp":
            return training.train(opened)
        state = None if searching else _state(job, opened)
        return training.train_mlp(opened, recipe=job.order.recipe, state=state, note=job.say)

    trained, _ = _with_most(job, inbox, "records", agreed, learn)
    for path in job.folder.glob(f"{_STATE}*"):
        checkpoint.discard(path)
    return trained


def _state(job: Job, opened: training.Job) -> Path:
    """Where the state of a training is kept: one for each set of releases, as parties come and go."""
    ids = ",".join(sorted(release.id for release in opened.releases))
    return job.folder / f"{_STATE}{hashlib.sha256(ids.encode()).hexdigest()[:16]}"


def _check_readable(found: Projection) -> None:
    try:
        projection_file.check(found)
    except ArgumentError as error:
        raise ProjectionError(f"the directions cannot be: {error}") from None


def _agreed(job: Job, inbox: Inbox, kind: Kind, stated: Mapping[str, Hashable]) -> list[str]:
    """The parties that say the same of their rows; what the others sent is set aside."""
    agreed = agreeing(job, stated, kind)
    for name in stated.keys() - agreed:
        inbox.set_aside(name, kind)
    return sorted(agreed)


def _with_most(job: Job, inbox: Inbox, kind: Kind, names: list[str], learn: Learn[T]) -> tuple[T, list[str]]:
    """What is learnt from all parties, or from all but those whose figures make it impossible, and from whom. What
    those sent is set aside, so that the job goes on without, also when it is begun again. Errors that follow from no
    figure (a full disk, too little memory) are nobody's fault, and end the job as they are."""
    while True:
        try:
            return learn(names, False), names
        except _FIGURES as error:
            wrong = error
        job.say(f"nothing could be learnt: {wrong} ({type(wrong).__name__}); looking for the party that is the reason")
        culprits = _culprits(names, learn)
        if not culprits or len(names) - len(culprits) < job.order.least:
            raise TrainingError(f"nothing can be learnt from what arrived: {wrong} ({type(wrong).__name__})")
        for name in culprits:
            inbox.set_aside(name, kind)
            fate = fate_of(job, name)
            fate.state, fate.why = (
                "rejected",
                f"with its {kind} nothing can be learnt: {wrong} ({type(wrong).__name__})",
            )
            job.say(f"{name}: {fate.state}: {fate.why}")
        names = [name for name in names if name not in culprits]


def _culprits(names: list[str], learn: Learn[Any]) -> list[str]:
    """The one party without which the others can be learnt from; else all whose figures, alone, make it impossible.
    Where two fail only together, nobody can tell which of them it is."""
    needless = [n for n in names if len(names) > 1 and _works(learn, [other for other in names if other != n])]
    if len(needless) == 1:
        return needless
    return [name for name in names if not _works(learn, [name])]


def _works(learn: Learn[Any], names: list[str]) -> bool:
    """Whether figures can be computed with. That they hold too few classes, or the like, is no fault of theirs."""
    try:
        learn(names, True)
    except _FIGURES:
        return False
    except ArgumentError:
        return True
    return True


def _collected(
    job: Job, fleet: Fleet, inbox: Inbox, kind: Kind, known: training.ProjectionWithDigest | None, poll: float
) -> dict[str, Path]:
    """What all parties sent, in time: those that said nothing are left out, and that is said."""
    digest = None if known is None else known[1]
    about = {**job.task.plain(), "kind": kind}

    def take(name: str, fate: Fate, file: str, data: bytes) -> None:
        fate.bytes += len(data)
        inbox.take(name, kind, file, data)

    def deliver(name: str, ask: Ask, fate: Fate, check: Check) -> None:
        if name in inbox.arrived(kind):
            fate.state = "arrived"
            return
        answer = offered(job, name, ask, {**about, "ask": "offer", "projection": digest}, known, fate, check, poll)
        fate.state, fate.why = "sending", ""
        with _dropping(inbox, name, kind):
            if MANIFEST not in answer.files:
                raise RefusedError(f"{MANIFEST} was asked for, and did not come")
            needed = inbox.offer(name, kind, answer.files[MANIFEST], known)
            for file, data in answer.files.items():  # small ones came with it
                if file != MANIFEST:
                    take(name, fate, file, data)
        for file, size in needed.items():
            if file not in answer.files:
                parcel = Parcel({**about, "ask": "file", "file": file})
                with _SENDING.held():
                    check()
                    got = ready(name, ask(parcel, size + SMALL))
                check()
                with _dropping(inbox, name, kind):
                    take(name, fate, file, asking.file(got, file))
                del got  # before the next one comes
        check()
        with _dropping(inbox, name, kind):
            inbox.finish(name, kind)
        fate.state = "arrived"
        job.say(f"{name}: its {kind} are here ({fate.bytes / 1e3:,.0f} kB), checked")

    if before := inbox.arrived(kind):
        job.say(f"the {kind} of {', '.join(before)} came before, and are still here")
    together(job, fleet, deliver)
    found = inbox.arrived(kind)
    check_enough(job, len(found), kind)
    return found


@contextlib.contextmanager
def _dropping(inbox: Inbox, name: str, kind: Kind) -> Iterator[None]:
    """Of what is wrong nothing is kept. What did not come yet is not wrong."""
    try:
        yield
    except MixveilError:
        inbox.drop(name, kind)
        raise


def _return(job: Job, fleet: Fleet, out: Path) -> None:
    """Send the model to every party that is there and was not rejected."""
    parcel = Parcel(
        {**job.task.plain(), "ask": "model"},
        {name: (out / name).read_bytes() for name in (TENSORS, CARD)},
    )

    def give(name: str, ask: Ask, fate: Fate, check: Check) -> None:
        try:
            ready(name, ask(parcel, SMALL))
            fate.returned = True
        except MixveilError as error:
            job.say(f"{name} did not take the model: {error}")

    names = [name for name in fleet.parties() if fate_of(job, name).state not in OUT]
    together(job, fleet, give, among=names)
    got = [name for name in names if fate_of(job, name).returned]
    job.say(f"the model went back to {', '.join(sorted(got)) or 'nobody'}")
