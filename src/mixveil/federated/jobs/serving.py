"""A server's side of a job: ask every party, let the method learn from what comes, and send the model back."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from mixveil.core.errors import MixveilError
from mixveil.core.wording.jobs import ENDED
from mixveil.core.wording.notes import Note, note
from mixveil.federated.jobs.asking import Check, Parties, answered, ready, together
from mixveil.federated.jobs.inbox import PAYLOADS, Inbox
from mixveil.federated.jobs.job import OUT, Job, PartyStatus
from mixveil.federated.jobs.messages import SMALL, Ask, Message
from mixveil.federated.jobs.notes import Refusal, reason
from mixveil.learn.model import CARD, TENSORS, write_model

_GOODBYE = 10.0  # seconds for parties to hear that a job ended


def run(job: Job, parties: Parties, about: Mapping[str, Any]) -> dict[str, Any]:
    """Do a job; how it ended. about: for the model's card."""
    try:
        gather(job, parties)
        trained = job.identity.rules.learn(job, parties)
        out = job.new_model()
        write_model(out, trained, None, about)
        job.log("model-made", path=str(out))
        _return(job, parties, out)
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
    if len(agreed) < job.config.min_parties:
        begun = any(inbox.arrived(kind) for kind in PAYLOADS)
        code = "too-few-still-agree" if begun else "too-few-agreed"
        raise Refusal(code, count=len(agreed), needed=job.config.min_parties)


def notify_ended(job: Job, parties: Parties, why: Note) -> None:
    """Tell the parties that are there that the job ended, if they can hear it soon."""
    message = Message({**job.identity.plain(), "ask": "ended", "why": why.plain()})

    def tell(name: str, ask: Ask, status: PartyStatus, check: Check) -> None:
        with contextlib.suppress(MixveilError):
            ask(message, SMALL)

    together(job, parties, tell, among=list(parties.present()), seconds=min(job.config.wait, _GOODBYE), quiet=True)


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
