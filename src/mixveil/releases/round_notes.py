"""What a party wrote down of its part in a plan: in its state folder, for no one else. What is here decides which
messages may still be made; no record does."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from mixveil.core import files, strict_json
from mixveil.core.errors import (
    ArgumentError,
    ManifestError,
    MismatchError,
    RefusedError,
    StateError,
    UnreadableFileError,
)
from mixveil.releases.round_plan import JointPlan
from mixveil.releases.spending import Owners

_LIMIT = 1 << 24
_LONGEST = 160  # with the plan's id it is a name in the ledger


@dataclass(frozen=True)
class Part:
    """A party's part in a plan, pinned when its first message is made.

    Attributes:
        mu: What all its messages cost together.
        data: A digest of the ledger's fingerprints of its images and units.
        classes: The list of classes, which is public.
        sent: The messages that were begun, by number, with the digest of the head's file; "" for the class sums.
        left: Whether the party left the plan.
    """

    plan: JointPlan
    party: str
    mu: float
    data: str
    classes: tuple[str, ...]
    sent: Mapping[int, str]
    left: bool = False

    def check(self, plan: JointPlan, mu: float) -> None:
        """Refuse what differs from what was agreed to."""
        if plan != self.plan:
            raise MismatchError(f"the plan {plan.id[:8]} was another one when {self.party} sent its first message")
        if mu != self.mu:
            raise MismatchError(f"mu = {mu:g}: {self.party} began this plan with {self.mu:g}, which is reserved")
        if self.left:
            raise RefusedError(f"{self.party} left the plan {plan.id[:8]}: it sends no more messages")

    def check_data(self, owners: Owners, classes: tuple[str, ...]) -> None:
        if digest_of(owners) != self.data:
            raise MismatchError(
                f"{self.party} began this plan with other data, in another order, or with other units: give the same"
            )
        if classes != self.classes:
            raise MismatchError(f"{self.party} began this plan with other classes, or in another order: give the same")

    def check_next(self, message: int) -> None:
        """Refuse a number that was used, or that comes before one that was."""
        if message in self.sent:
            raise RefusedError(
                f"message {message} of the plan {self.plan.id[:8]} was begun already: a second one would cost again. "
                f"Wait for the head of a later message"
            )
        if message < max(self.sent):
            raise RefusedError(
                f"message {message} comes before {max(self.sent)}, which was begun: messages are in order"
            )

    def with_message(self, message: int, head: str) -> Part:
        return replace(self, sent={**self.sent, message: head})

    def plain(self) -> dict[str, Any]:
        whole = {**asdict(self), "plan": self.plan.plain(), "classes": list(self.classes)}
        return {**whole, "sent": {str(number): head for number, head in self.sent.items()}}

    @classmethod
    def read(cls, item: Any) -> Part:
        whole = strict_json.mapping("part", item)
        strict_json.only("part", whole, {"plan", "party", "mu", "data", "classes", "sent", "left"})
        sent = strict_json.mapping("sent", whole["sent"])
        return cls(
            JointPlan.read(whole["plan"]),
            strict_json.text("party", whole["party"]),
            strict_json.figure("mu", whole["mu"]),
            strict_json.text("data", whole["data"], "[0-9a-f]{64}"),
            tuple(strict_json.text("classes", name) for name in strict_json.items("classes", whole["classes"])),
            {int(strict_json.text("sent", number, "[0-9]{1,3}")): str(head) for number, head in sent.items()},
            strict_json.flag("left", whole["left"]),
        )


class Notes:
    """The file of a party's part in a plan. folder: of the ledger."""

    def __init__(self, folder: Path, plan: JointPlan, party: str) -> None:
        if len(party) > _LONGEST:
            raise ArgumentError(f"party must have at most {_LONGEST} characters in rounds, got {len(party)}")
        name = hashlib.sha256(party.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        self.path = folder / "rounds" / f"{plan.id}-{name}.json"
        self.plan, self.party = plan, party

    @property
    def reserved_as(self) -> str:
        """The name of the plan in the ledger, for this party."""
        return f"{self.plan.id} {self.party}"

    @contextmanager
    def alone(self) -> Iterator[None]:
        """One message of a part is made at a time."""
        with ExitStack() as held:
            try:
                self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                held.enter_context(files.locked(self.path.with_suffix(".lock")))
            except OSError as error:
                raise StateError(f"{self.path.parent} cannot be used: {error}") from None
            yield

    def read(self) -> Part | None:
        """None before the first message."""
        if not self.path.exists():
            return None
        try:
            part = Part.read(strict_json.parsed(files.read_small(self.path, _LIMIT)))
        except (ManifestError, UnreadableFileError) as error:
            raise StateError(f"{self.path} cannot be read: {error}") from None
        if (part.plan.id, part.party) != (self.plan.id, self.party) or 0 not in part.sent:
            raise StateError(f"{self.path} is of another plan or party")
        return part

    def write(self, part: Part) -> None:
        files.write_json(self.path, part.plain())
        files.sync_folder(self.path.parent)

    def restore(self, before: Part | None) -> None:
        """Take back a message of which nothing was entered."""
        if before is None:
            self.path.unlink(missing_ok=True)
        else:
            self.write(before)


def digest_of(owners: Owners) -> str:
    """Of fingerprints, which are under a key that never leaves the state folder."""
    units = b"" if owners.units is None else owners.units.tobytes()
    return hashlib.sha256(b"%d " % len(owners.records) + owners.records.tobytes() + units).hexdigest()
