"""A party's side of a job in rounds of sums: each message is made once, kept, and sent as it was kept.

All that a server may ask is checked before data are looked at: the plan, which the party pins for the whole job; the
number of the message; the head. The μ of the whole plan is reserved in the ledger before the first message is made.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from mixveil.core import randomness, strict_json
from mixveil.core.errors import ArgumentError, ManifestError
from mixveil.features import projection_file
from mixveil.features.projection import HeldRows, Projected, Projection, held
from mixveil.federated.jobs.job_folder import JobFolder
from mixveil.federated.jobs.making import Making
from mixveil.federated.jobs.messages import Message, Refusal
from mixveil.federated.jobs.sums_plan import SumsPlan, name_of
from mixveil.releases.contributions import Head, unit_count
from mixveil.releases.ledger import Ledger
from mixveil.releases.records import check_labels_hidden
from mixveil.releases.spending import Owners
from mixveil.releases.sums import Sharing, write_residuals, write_statistics

Mask = Callable[[Tensor], Tensor]
Answer = tuple[dict[str, Any], str | None]


@dataclass(frozen=True)
class Order:
    """A message that a server asks for, as far as it was checked without looking at data.

    Attributes:
        projection: The digest of the job's.
        clip: The norm of what is summed.
        head: Of which residuals are summed; None: class sums. head_digest: of its file.
    """

    number: int
    plan: SumsPlan
    projection: str
    clip: float
    head: Head | None
    head_digest: str | None


class SumsOfJob:
    """One job's messages. Rows are projected once, and held in memory between messages."""

    def __init__(self, kept: JobFolder) -> None:
        self.kept, self.making, self.folder = kept, Making(kept), kept.sums
        self._rows: tuple[Owners, HeldRows] | None = None
        self._fitted: tuple[Projection, str] | None = None

    def answer(self, ask: str, message: Message) -> Answer:
        """What the server gets for a question: figures, and the folder of the release that goes with them."""
        if ask != "sums":
            raise Refusal("unknown-question")
        order = self.order(message)
        if not self.is_made(order):
            self.make(order)
        return {}, name_of(order.number)

    def about(self) -> dict[str, Any]:
        """What the server needs for a plan: public figures, and the party's own settings."""
        config, images = self.kept.config, self.making.images
        check_labels_hidden(images)  # the list of classes leaves here
        said = {"units": unit_count(images), "classes": list(images.classes), "mu": config.mu}
        return {**said, "honest": config.honest, "smallest": config.smallest}

    def order(self, message: Message) -> Order:
        """What a message asks for. The first one pins the plan; another plan is refused from then on."""
        about = message.about
        digest = strict_json.text("projection", about.get("projection"), "[0-9a-f]{64}")
        fitted = self._projection(digest)
        plan = self._plan(about.get("plan"), fitted)
        number = strict_json.of("number", about.get("number"), int)
        if not 0 <= number <= plan.plan.rounds:
            raise Refusal("beyond-plan")
        head, head_digest = self._head(message, number, plan)
        clip = plan.clip(fitted.first(plan.plan.directions).clip, residuals=head is not None)
        return Order(number, plan, digest, clip, head, head_digest)

    def _projection(self, digest: str) -> Projection:
        """The one that came for this job; read once."""
        if self._fitted is None:
            path = self.kept.projection_path(digest)
            if not path.exists():
                raise Refusal("projection-missing")
            self._fitted = projection_file.read(path)
        if self._fitted[1] != digest:
            raise Refusal("projection-other")
        return self._fitted[0]

    def _plan(self, item: Any, fitted: Projection) -> SumsPlan:
        config, secure = self.kept.config, self.kept.job.rules.secure
        try:
            asked = SumsPlan.read(item, None if secure else config.mu)
        except (ArgumentError, ManifestError) as error:
            raise Refusal("plan-not-taken") from error
        if config.mu is None:
            raise Refusal("needs-mu")
        honest = (2, config.honest or 0) if secure else (1, 1)
        if asked.plan.directions > fitted.dimension or not honest[0] <= asked.honest <= honest[1]:
            raise Refusal("plan-not-taken")
        if asked.mu > config.mu or (not secure and asked.mu != config.mu):
            raise Refusal("plan-not-taken")
        if (pinned := self.folder.plan()) is None:
            self.folder.pin(asked)
        elif pinned != asked:
            raise Refusal("other-plan")
        return asked

    def _head(self, message: Message, number: int, plan: SumsPlan) -> tuple[Head | None, str | None]:
        """The head of a message, if it has one. Only a secure sum of classes may be tried again, as a later message."""
        data, secure = message.files.get("head"), self.kept.job.rules.secure
        if data is None:
            if number and not secure:
                raise Refusal("head-missing")
            return None, None
        if not number:
            raise Refusal("head-too-early")
        try:
            head = Head.read(data, plan.plan.directions, len(self.making.images.classes))
        except ManifestError as error:
            raise Refusal("head-not-taken") from error
        return head, hashlib.sha256(data).hexdigest()

    def is_made(self, order: Order) -> bool:
        """Whether a message is there, and may be sent again; a second one of the same number is never made."""
        stated = self.folder.stated(order.number)
        if stated is not None and stated["head"] != order.head_digest:
            raise Refusal("other-head")
        if self.folder.release(order.number).exists():
            self.folder.finish(order.number, order.plan)  # the process may have been killed before it did
            return True
        if stated is not None:  # the process was killed while it made it
            if stated["left"] != self._left():
                raise Refusal("message-used-up")
            self.folder.undo(order.number)
        if any(number > order.number for number in self.folder.begun()):
            raise Refusal("out-of-order")
        return False

    def make(self, order: Order, mask: Mask | None = None, context: list[str] | None = None) -> None:
        """Make a message that was not made: enter it in the ledger, and write it. context: of a secure sum."""
        if (mask is None) != (order.plan.honest == 1):
            raise ArgumentError("noise is shared where masks hide the values, and only there")
        owners, rows = self.load(order)
        left = self._reserved(order.plan, owners)
        self.folder.begin(order.number, head=order.head_digest, context=context, left=left)
        try:
            with self.making.entering():
                self._write(order, owners, rows, mask)
        except BaseException:
            if self._left() == left:  # nothing was entered
                self.folder.undo(order.number)
            raise
        self.folder.finish(order.number, order.plan)

    def _write(self, order: Order, owners: Owners, rows: HeldRows, mask: Mask | None) -> None:
        plan = order.plan
        sharing = Sharing(plan.honest, mask)
        out, mu, stream = self.folder.release(order.number), plan.share(order.number), randomness.SecureStream()
        terms = {**self.making.terms(), "plan": self.kept.reserved_as, "owners": owners, "sharing": sharing}
        if order.head is None or order.head_digest is None:
            write_statistics(out, rows, order.projection, mu, stream=stream, **terms)
        else:
            head = order.head, order.head_digest
            write_residuals(out, rows, order.projection, *head, order.clip, mu, stream=stream, **terms)

    def _reserved(self, plan: SumsPlan, owners: Owners) -> float | None:
        """Hold the μ of all that is still to be made, if it is not held; what is held."""
        book, name = Ledger(), self.kept.reserved_as
        if not self.kept.reserved:
            left = plan.left(self.folder.begun())
            config, shared_by = self.kept.config, self.kept.config.party if plan.honest > 1 else None
            book.reserve(name, left, owners, config.budget, against="everything", shared_by=shared_by)
        return self._left()

    def _left(self) -> float | None:
        return Ledger().reservations().get(self.kept.reserved_as)

    def load(self, order: Order) -> tuple[Owners, HeldRows]:
        """The rows and whose they are, held in memory; before they are projected the whole plan is reserved."""
        if self._rows is None:
            owners = Ledger().owners(self.making.images)
            self._reserved(order.plan, owners)  # before anything is computed
            whole = self.making.projected(order.projection)
            wide = whole.projection.first(order.plan.plan.directions)
            self._rows = owners, held(Projected(whole.rows, wide))
        return self._rows
