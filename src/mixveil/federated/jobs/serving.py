"""A server's side of a job: ask every party, collect what they send, let the method learn from it, and send the model
back."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mixveil.core.errors import MixveilError
from mixveil.core.wording.jobs import ENDED
from mixveil.core.wording.notes import Note, note
from mixveil.federated.jobs.asking import Check, Parties, answered, check_enough, offered, only_file, ready, together
from mixveil.federated.jobs.inbox import PAYLOADS, Inbox
from mixveil.federated.jobs.job import OUT, Job, PartyStatus
from mixveil.federated.jobs.messages import MANIFEST, SMALL, Ask, Message, Refusal, Slots, reason
from mixveil.federated.jobs.sums_plan import name_of
from mixveil.federated.methods.base import Kind
from mixveil.learn.model import CARD, TENSORS, write_model
from mixveil.learn.training import ProjectionWithDigest
from mixveil.releases.envelope import Envelope

_SENDING = Slots(3, 60.0)  # parties that send large files at a time
_LAST_WORD = 10.0  # seconds for parties to hear that a job ended


def run(job: Job, parties: Parties, about: Mapping[str, Any]) -> dict[str, Any]:
    """Do a job; how it ended. about: for the model's card."""
    try:
        gather(job, parties)
        trained = job.identity.rules.learn(job, parties)
        out = job.new_model()
        write_model(out, trained, None, about)
        job.log("model-made", path=str(out))
        _return(job, parties, out)
        if out_of_it := [name for name, status in job.statuses.items() if status.state in OUT]:
            notify_ended(job, parties, note("left-out"), out_of_it)
        return job.conclude(model=out)
    except MixveilError as error:
        why = reason(error, "check-failed")
        job.log("job-ended", why=why)
        notify_ended(job, parties, why if why.code in ENDED else note("server-error", error=type(error).__name__))
        return job.conclude(model=None, why=why)


def gather(job: Job, parties: Parties, among: Iterable[str] | None = None) -> None:
    """Wait until enough parties agree to take part, before any of them makes anything: that would cost it something.
    Each is told by which name its key is known here, checks its budget and asks its owner. Owners are waited for; where
    enough agree, those that do not come are not. among: before a second step, those that made the first."""
    inbox = Inbox(job.folder)
    agreed = set(inbox.arrived("records"))
    for name in agreed:
        job.status(name).state = "arrived"
    asked: set[str] = set()

    def hello(name: str, ask: Ask, status: PartyStatus, check: Check) -> None:
        asked.add(name)
        try:
            message = Message({**job.identity.plain(), "ask": "hello", "you": name})
            ready(name, answered(job, name, ask, message, SMALL, check))
            agreed.add(name)
            if status.state != "arrived":
                status.state, status.why = "willing", None
        finally:
            asked.discard(name)

    def enough() -> bool:
        waiting = any(job.status(name).state == "waiting" for name in list(asked))
        return len(agreed) >= job.config.min_parties and not waiting

    together(job, parties, hello, among=among, enough=enough)
    begun = any(inbox.arrived(kind) for kind in (*PAYLOADS, name_of(0)))
    check_enough(job, len(agreed), "too-few-still-agree" if begun else "too-few-agreed")


def notify_ended(job: Job, parties: Parties, why: Note, among: Iterable[str] | None = None) -> None:
    """Tell the parties that are there that the job ended, if they can hear it soon: what they hold for it is free."""
    message = Message({**job.identity.plain(), "ask": "ended", "why": why.plain()})

    def tell(name: str, ask: Ask, status: PartyStatus, check: Check) -> None:
        with contextlib.suppress(MixveilError):
            ask(message, SMALL)

    there = list(parties.present())
    names = there if among is None else [name for name in among if name in there]
    seconds = min(job.config.wait, _LAST_WORD)
    together(job, parties, tell, among=names, seconds=seconds, quiet=True, all_of_them=True)


def _return(job: Job, parties: Parties, out: Path) -> None:
    """Send the model to every party that is there and not out."""
    files = {name: (out / name).read_bytes() for name in (TENSORS, CARD)}
    message = Message({**job.identity.plain(), "ask": "model"}, files)

    def give(name: str, ask: Ask, status: PartyStatus, check: Check) -> None:
        try:
            ready(name, ask(message, SMALL))
            status.returned = True
        except MixveilError as error:
            job.log("party-kept-no-model", name, why=reason(error, "check-failed"))

    names = [name for name in parties.present() if job.status(name).state not in OUT]
    together(job, parties, give, among=names)
    if returned := sorted(name for name in names if job.status(name).returned):
        job.log("model-returned", names=returned)
    else:
        job.log("model-returned-to-none")


@dataclass(frozen=True)
class Delivery:
    """How a release is taken from a party: its manifest first, and then the files that the manifest names.

    Attributes:
        kind: The name of its folder.
        projection: The one that its rows went through.
        fits: Refuses a manifest that is right in itself, and not what was asked for.
    """

    job: Job
    inbox: Inbox
    kind: str
    projection: ProjectionWithDigest | None
    fits: Callable[[Envelope], None] = lambda stated: None

    @property
    def about(self) -> dict[str, Any]:
        return {**self.job.identity.plain(), "kind": self.kind}

    def take(self, answer: Message, name: str, ask: Ask, status: PartyStatus, check: Check) -> None:
        """All of a release. answer: of the party, with its manifest."""

        def keep(file: str, data: bytes) -> None:
            status.bytes += len(data)
            self.inbox.take(name, self.kind, file, data)

        status.state, status.why = "sending", None
        with self._dropping(name):
            if MANIFEST not in answer.files:
                raise Refusal("files-missing", files=MANIFEST)
            needed = self.inbox.offer(name, self.kind, answer.files[MANIFEST], self.projection, self.fits)
            for file, data in answer.files.items():  # small ones come with it
                if file != MANIFEST:
                    keep(file, data)
        for file in [file for file in needed if file not in answer.files]:
            with _SENDING.held():
                check()
                sent = ready(name, ask(Message({**self.about, "ask": "file", "file": file}), needed[file] + SMALL))
            check()
            with self._dropping(name):
                keep(file, only_file(sent, file))
        check()
        with self._dropping(name):
            self.inbox.finish(name, self.kind)
        status.state = "arrived"

    @contextlib.contextmanager
    def _dropping(self, name: str) -> Iterator[None]:
        """Keep nothing of a release in which something is wrong. What has not come yet is not wrong."""
        try:
            yield
        except MixveilError:
            self.inbox.drop(name, self.kind)
            raise


def collected(
    job: Job, parties: Parties, inbox: Inbox, kind: Kind, projection: ProjectionWithDigest | None
) -> dict[str, Path]:
    """Collect one release from every party, its manifest first and then the files that the manifest names. Returns the
    folders of those that came in time."""
    delivery = Delivery(job, inbox, kind, projection)
    offer = {**delivery.about, "ask": "offer", "projection": None if projection is None else projection[1]}

    def deliver(name: str, ask: Ask, status: PartyStatus, check: Check) -> None:
        if name in inbox.arrived(kind):
            status.state = "arrived"
            return
        answer = offered(job, name, ask, offer, projection, check)
        delivery.take(answer, name, ask, status, check)
        job.log("party-sent", name, kind=kind, kilobytes=round(status.bytes / 1e3))

    if before := inbox.arrived(kind):
        job.log("party-sent-before", kind=kind, names=list(before))
    together(job, parties, deliver)
    arrived = inbox.arrived(kind)
    check_enough(job, len(arrived), "too-few-sent", kind=kind)
    return arrived
