"""A party's side of a job: it makes what it is asked for once, keeps it, and sends what it kept.

What leaves is decided by the party's own settings, its owner's word and the total of its ledger, never by the server's
wish and never by what the data are. Errors that could tell of the data are for the owner's eyes; the server hears only
that there was one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mixveil.core import files, strict_json
from mixveil.core.errors import BudgetError
from mixveil.core.wording.jobs import ENDED
from mixveil.core.wording.notes import Note, note
from mixveil.features.extractor import Extractor
from mixveil.federated.jobs import approval
from mixveil.federated.jobs.approval import Question
from mixveil.federated.jobs.job_folder import JobFolder
from mixveil.federated.jobs.last_update import keep_update
from mixveil.federated.jobs.making import Making
from mixveil.federated.jobs.messages import MANIFEST, JobId, Message, Refusal, printable, told
from mixveil.federated.jobs.party_config import PartyConfig
from mixveil.federated.jobs.rounds import RowsInClear, entered_rows
from mixveil.federated.jobs.secure_party import SecureSumsOfJob
from mixveil.federated.jobs.sums_party import SumsOfJob
from mixveil.federated.methods.base import Kind

MOST_WAITING = 10
"""Jobs that may ask their owner something at a time."""


class Party:
    """Answers what a server asks. log: tells the owner what happens."""

    def __init__(self, config: PartyConfig, log: Callable[[Note], None] = lambda event: None) -> None:
        self.config, self.log = config, log
        self.folder = Path(config.folder) / config.party
        self._rows: RowsInClear | None = None
        self._sums: SumsOfJob | None = None
        self._greeted: list[str] = []  # ids of the last jobs that it heard of and that have not ended

    def answer(self, message: Message) -> Message:
        """Whatever happens, there is an answer, and it tells nothing that must not be told. One at a time: what is made
        is made once."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with files.locked(self.folder / ".lock"):
                return self._answer(message)
        except Refusal as refused:
            self.log(note("refused-job", job=_job(message), why=refused.note))
            return self._reply("refused", refused.note)
        except BudgetError:  # by the ledger's total, which no record enters: another job was faster
            self.log(note("refused-job", job=_job(message), why=note("over-budget")))
            return self._reply("refused", note("over-budget"))
        except Exception as error:
            self.log(note("failed-job", job=_job(message), detail=printable(str(error)), error=type(error).__name__))
            return self._reply("failed", note("not-made"))

    def _answer(self, message: Message) -> Message:
        about = message.about
        job = JobId.read(about)
        known_as = about.get("you", self.config.party)
        if known_as != self.config.party:
            raise Refusal("other-name", known_as=strict_json.text("you", known_as)[:80], party=self.config.party)
        kept = JobFolder(self.folder, self.config, job, self.log)
        kept.check_same()
        if about.get("ask") == "ended":
            return self._ended(kept, message)
        if job.method not in self.config.methods:
            raise Refusal("method-not-allowed", party=self.config.party, method=job.method)
        kept.resume()
        answers = {
            "hello": self._hello,
            "offer": self._offer,
            "file": self._file,
            "round": self._round,
            "sums": self._message,
            "announce": self._message,
            "agree": self._message,
            "model": self._model,
        }
        ask = about.get("ask")
        if not isinstance(ask, str) or ask not in answers:
            raise Refusal("unknown-question")
        return answers[ask](kept, message)

    def _reply(self, state: str, why: Note | None = None, **more: Any) -> Message:
        plain = None if why is None else why.plain()
        return Message({"state": state, "party": self.config.party, "why": plain, **more})

    def _ended(self, kept: JobFolder, message: Message) -> Message:
        job = kept.job
        if kept.end() or job.id in self._greeted:
            self._greeted = [known for known in self._greeted if known != job.id]
            self.log(note("job-ended-there", job=job.name, why=told(message.about.get("why"), ENDED)))
        return self._reply("ready")

    def _hello(self, kept: JobFolder, message: Message) -> Message:
        self._greeted = [*self._greeted, kept.job.id][-MOST_WAITING:]
        return self._admitted(kept) or self._reply("ready")

    def _model(self, kept: JobFolder, message: Message) -> Message:
        kept.keep_model(message)
        return self._reply("ready")

    def _admitted(self, kept: JobFolder) -> Message | None:
        """None if the job may go on; else the answer that it waits for its owner. Asked before anything is made for it,
        and again before anything leaves."""
        kept.check_affordable()
        if kept.folder.exists():
            kept.begin()  # what an owner agreed to with other settings does not count
        if kept.agreed("job"):
            return None
        self._check_room(kept)
        kept.begin()
        return self._wait(kept, "job")

    def _check_room(self, kept: JobFolder) -> None:
        """Refuse a further question where many wait for the owner already."""
        if not kept.folder.exists():
            count = sum(approval.is_waiting(path, "job") for path in self.folder.iterdir() if path.is_dir())
            if count >= MOST_WAITING:
                raise Refusal("too-many-waiting", count=count)

    def _wait(self, kept: JobFolder, question: Question) -> Message:
        if approval.mark_waiting(kept.folder, question):
            self.log(note("asks-to-take-part" if question == "job" else "asks-to-release", job=kept.job.name))
        return self._reply("waiting")

    def _offer(self, kept: JobFolder, message: Message) -> Message:
        """What the server will get, in its manifest; made now, if it was not before."""
        kind, digest = _kind(kept.job, message), message.about.get("projection")
        if digest is not None:
            strict_json.text("projection", digest, "[0-9a-f]{64}")
        if (waits := self._admitted(kept)) is not None:
            return waits
        if kept.lacks(digest, message):
            return self._reply("send projection")
        kept.begin()
        making = Making(kept)
        try:
            if digest is not None:
                kept.keep_projection(digest, message)
            if kind == "updates":
                return self._ready_for_rounds(making, message)
            if kind == "sums":
                return self._reply("ready", **self._sums_of(kept).about())
            if not kept.made(kind):
                kept.job.rules.make(making, kind, digest)
                self.log(note("step-made", kind=kind, job=kept.job.name, path=str(kept.folder / kind)))
        except BaseException:
            self._forget(kept)
            raise
        manifest = making.manifest(kind)
        if kind == "records" and not kept.agreed("records"):
            return self._wait(kept, "records")
        small = making.small_files(kind)
        self.log(note("step-sending", job=kept.job.name, kind=kind))
        return Message(self._reply("ready").about, {MANIFEST: manifest, **small})

    def _message(self, kept: JobFolder, message: Message) -> Message:
        """One message of rounds of sums, or a step towards it: made now, if it was not before."""
        if _kind(kept.job, message) != "sums":
            raise Refusal("not-offered")
        if (waits := self._admitted(kept)) is not None:
            return waits
        kept.begin()
        try:
            more, folder = self._sums_of(kept).answer(str(message.about["ask"]), message)
        except BaseException:
            self._forget(kept)
            raise
        reply = self._reply("ready", **more).about
        if folder is None:
            return Message(reply)
        making = Making(kept)
        small = making.small_files(folder)
        self.log(note("step-sending", job=kept.job.name, kind=folder))
        return Message(reply, {MANIFEST: making.manifest(folder), **small})

    def _forget(self, kept: JobFolder) -> None:
        """Something failed: of a job of which nothing was entered nothing is kept, no attempt by a plan either."""
        kept.forget()
        if not kept.begun and self._sums is not None and self._sums.kept.job == kept.job:
            self._sums = None

    def _sums_of(self, kept: JobFolder) -> SumsOfJob:
        """The job's messages, with rows and attempts that are kept in memory between them."""
        if self._sums is None or self._sums.kept.job != kept.job:
            self._sums = SecureSumsOfJob(kept) if kept.job.rules.secure else SumsOfJob(kept)
        return self._sums

    def _file(self, kept: JobFolder, message: Message) -> Message:
        """One file of what was offered, as it lies on disk."""
        kind, name = _folder(kept.job, message), strict_json.text("file", message.about.get("file"))
        if kind == "updates" or not (kept.folder / kind).is_dir():
            raise Refusal("not-offered")
        making = Making(kept)
        making.manifest(kind)  # it must be as it was written
        for question in approval.QUESTIONS[: 2 if kind == "records" else 1]:
            if not kept.agreed(question):
                return self._wait(kept, question)
        return Message(self._reply("ready").about, {name: making.file(kind, name)})

    def _ready_for_rounds(self, making: Making, message: Message) -> Message:
        """Whether it takes part in rounds, with how many rows."""
        rows = self._loaded_rows(making, message)
        return self._reply(
            "ready",
            rows=rows.source.rows,
            inputs=rows.source.inputs,
            shape=list(rows.shape),
            classes=list(rows.classes),
            weights=rows.weights,
        )

    def _round(self, kept: JobFolder, message: Message) -> Message:
        """One round, as the method has it."""
        if _kind(kept.job, message) != "updates" or not kept.agreed("job") or not kept.made("updates"):
            raise Refusal("not-offered")
        rows = self._loaded_rows(Making(kept), message)
        epoch, epochs, answer = kept.job.rules.answer_round(rows, message)
        if (update := kept.job.rules.sent_update(rows, message, answer)) is not None:
            keep_update(kept, update)
        self.log(note("sending-weights", job=kept.job.name, epoch=epoch, epochs=epochs))
        return Message(self._reply("ready", rows=rows.source.rows).about, answer)

    def _loaded_rows(self, making: Making, message: Message) -> RowsInClear:
        """Its rows as the job wants them, kept in memory between rounds."""
        extractor = Extractor.read(message.about.get("extractor"))
        if self._rows is None or (self._rows.job, self._rows.extractor) != (making.kept.job.id, extractor):
            self._rows = entered_rows(making, extractor)
        return self._rows


def _job(message: Message) -> str:
    return printable(str(message.about.get("name"))[:64])


def _kind(job: JobId, message: Message) -> Kind:
    for kind in job.rules.sends:
        if kind == message.about.get("kind"):
            return kind
    raise Refusal("wrong-step", method=job.method, kinds=", ".join(job.rules.sends))


def _folder(job: JobId, message: Message) -> str:
    """The folder of a release that a file is asked of: its step's, or that of one of many sums."""
    named = message.about.get("kind")
    if job.rules.sends == ("sums",) and isinstance(named, str) and re.fullmatch(r"sums-[0-9]{2,3}", named):
        return named
    return _kind(job, message)
