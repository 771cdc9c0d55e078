"""A party's side of secure sums in a job: announce, agree, confirm, and only then make a message and mask it.

The roster, the party's key and what it relies on are its own settings. What is to be agreed on the party computes
itself from what it is sent. Keys of masks are in memory alone: after a restart the party says that the attempt is gone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from mixveil.core import strict_json
from mixveil.core.errors import ArgumentError, ManifestError, SecureSumError
from mixveil.core.wording.notes import note
from mixveil.federated import roster
from mixveil.federated.jobs.job_folder import JobFolder
from mixveil.federated.jobs.messages import NAME, Message, Refusal
from mixveil.federated.jobs.sums_party import Answer, Order, SumsOfJob
from mixveil.federated.jobs.sums_plan import name_of
from mixveil.federated.secure_sums import Agreement, Announcement, Context, Rules, Signed, SumAttempt

S = TypeVar("S", bound=Signed)


class SecureSumsOfJob(SumsOfJob):
    """One job's messages, each hidden by masks. One attempt at a time; a new one ends the one before."""

    def __init__(self, kept: JobFolder) -> None:
        super().__init__(kept)
        config = kept.config
        if config.roster is None or config.roster_key is None or config.honest is None:
            raise Refusal("no-roster")
        known, key = roster.read(Path(config.roster)), roster.read_key(Path(config.roster_key))
        self._own = config.party, known, key, Rules(config.honest, config.smallest)
        self._smallest = config.smallest or len(known.keys)
        self._attempt: tuple[SumAttempt, Order] | None = None

    def about(self) -> dict[str, Any]:
        return {**super().about(), "smallest": self._smallest}

    def answer(self, ask: str, message: Message) -> Answer:
        steps = {"announce": self._announce, "agree": self._agree, "sums": self._masked}
        return steps[ask](message)

    def _announce(self, message: Message) -> Answer:
        """Begin an attempt. What the rows need is done now: once others have masked, an error here costs them."""
        order = self.order(message)
        if self.is_made(order):
            return {"made": self._context_of(order.number)}, None
        with self._told():
            self._attempt = None
            attempt = SumAttempt(self._context(message.about, order), *self._own)
        self.load(order)
        self._attempt = attempt, order
        return {"announcement": attempt.announcement.plain()}, None

    def _context(self, about: Mapping[str, Any], order: Order) -> Context:
        """What is to be agreed on, from what the party knows itself; the server names attempt and set."""
        plan, classes = order.plan, self.making.images.classes
        return Context(
            job=self.kept.job.id,
            round=order.number,
            attempt=strict_json.of("attempt", about.get("attempt"), int),
            kind="class-sums" if order.head is None else "residual-sums",
            parties=tuple(
                strict_json.text("party", n, NAME) for n in strict_json.items("parties", about.get("parties"))
            ),
            honest=plan.honest,
            terms=plan.terms(order.number, order.clip, order.head_digest, order.projection, classes),
        )

    def _agree(self, message: Message) -> Answer:
        if (found := self._of(message)) is None:
            return {"gone": True}, None
        with self._told():
            return {"agreement": found[0].agree(_signed(Announcement, message)).plain()}, None

    def _masked(self, message: Message) -> Answer:
        """Confirm, enter, add noise, mask: or send again what was masked."""
        number = strict_json.of("number", message.about.get("number"), int)
        if (found := self._of(message)) is not None:
            attempt, order = found
            self._attempt = None
            with self._told():
                attempt.confirm(_signed(Agreement, message))
            if self.is_made(order):  # it was begun in the meantime
                raise Refusal("message-used-up")
            context = attempt.context
            self.make(order, _masking(attempt), [context.digest().hex(), *context.parties])
        if not self.folder.release(number).exists():
            return {"gone": True}, None
        return {"context": self._context_of(number)}, name_of(number)

    def _context_of(self, number: int) -> list[str]:
        """Of a message that was masked: the digest of its context, and the parties in whose sum its masks cancel."""
        found: list[str] = (self.folder.stated(number) or {})["context"]
        return found

    def _of(self, message: Message) -> tuple[SumAttempt, Order] | None:
        """The attempt that a message goes on with; None: its keys are gone, or were never here."""
        if self._attempt is None:
            return None
        context, about = self._attempt[0].context, message.about
        same = (context.round, context.attempt) == (about.get("number"), about.get("attempt"))
        return self._attempt if same else None

    @contextmanager
    def _told(self) -> Iterator[None]:
        """What is wrong with an attempt ends it. It depends on no record, and the owner reads it."""
        try:
            yield
        except (SecureSumError, ArgumentError, ManifestError) as error:
            self._attempt = None
            if isinstance(error, Refusal):
                raise
            self.kept.log(note("owner-warning", text=str(error)))
            raise Refusal("attempt-refused") from error


def _signed(kind: type[S], message: Message) -> list[S]:
    return [kind.read(item) for item in strict_json.items("signed", message.about.get("signed"))]


def _masking(attempt: SumAttempt) -> Any:
    def mask(indices: Tensor) -> Tensor:
        hidden = attempt.masked(indices.numpy().reshape(-1))
        return torch.from_numpy(np.frombuffer(hidden, "<i8").astype(np.int64)).view(indices.shape)

    return mask
