"""A server collects one release from every party: its manifest first, then the files that the manifest names."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from mixveil.core.errors import MixveilError
from mixveil.federated.jobs import asking
from mixveil.federated.jobs.asking import Check, Parties, check_enough, offered, ready, together
from mixveil.federated.jobs.inbox import Inbox, Kind
from mixveil.federated.jobs.job import Job, PartyStatus
from mixveil.federated.jobs.messages import MANIFEST, SMALL, Ask, Message
from mixveil.federated.jobs.notes import Refusal
from mixveil.federated.jobs.slots import Slots
from mixveil.learn.training import ProjectionWithDigest

_SENDING = Slots(3, 60.0)  # parties that send large files at a time


def collected(
    job: Job, parties: Parties, inbox: Inbox, kind: Kind, projection: ProjectionWithDigest | None
) -> dict[str, Path]:
    """The folders of what the parties sent in time."""

    def deliver(name: str, ask: Ask, status: PartyStatus, check: Check) -> None:
        if name in inbox.arrived(kind):
            status.state = "arrived"
        else:
            _Delivery(job, inbox, kind, projection, name, ask, check).take()

    if before := inbox.arrived(kind):
        job.log("party-sent-before", kind=kind, names=list(before))
    together(job, parties, deliver)
    arrived = inbox.arrived(kind)
    check_enough(job, len(arrived), "too-few-sent", kind=kind)
    return arrived


class _Delivery:
    """One release of one party."""

    def __init__(
        self,
        job: Job,
        inbox: Inbox,
        kind: Kind,
        projection: ProjectionWithDigest | None,
        name: str,
        ask: Ask,
        check: Check,
    ) -> None:
        self.job, self.inbox, self.kind, self.projection = job, inbox, kind, projection
        self.name, self.ask, self.check = name, ask, check
        self.about = {**job.identity.plain(), "kind": kind}

    def take(self) -> None:
        digest = None if self.projection is None else self.projection[1]
        about = {**self.about, "ask": "offer", "projection": digest}
        answer = offered(self.job, self.name, self.ask, about, self.projection, self.check)
        status = self.job.status(self.name)
        status.state, status.why = "sending", None
        with self._dropping():
            if MANIFEST not in answer.files:
                raise Refusal("files-missing", files=MANIFEST)
            needed = self.inbox.offer(self.name, self.kind, answer.files[MANIFEST], self.projection)
            for file, data in answer.files.items():  # small ones come with it
                if file != MANIFEST:
                    self._keep(file, data)
        for file, size in needed.items():
            if file not in answer.files:
                self._fetch(file, size)
        self.check()
        with self._dropping():
            self.inbox.finish(self.name, self.kind)
        status.state = "arrived"
        self.job.log("party-sent", self.name, kind=self.kind, kilobytes=round(status.bytes / 1e3))

    def _fetch(self, file: str, size: int) -> None:
        message = Message({**self.about, "ask": "file", "file": file})
        with _SENDING.held():
            self.check()
            answer = ready(self.name, self.ask(message, size + SMALL))
        self.check()
        with self._dropping():
            self._keep(file, asking.file(answer, file))

    def _keep(self, file: str, data: bytes) -> None:
        self.job.status(self.name).bytes += len(data)
        self.inbox.take(self.name, self.kind, file, data)

    @contextlib.contextmanager
    def _dropping(self) -> Iterator[None]:
        """Keep nothing of a release in which something is wrong. What has not come yet is not wrong."""
        try:
            yield
        except MixveilError:
            self.inbox.drop(self.name, self.kind)
            raise
