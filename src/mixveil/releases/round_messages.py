"""A party's side of rounds of sums by files, as whole jobs: it makes one message after another, and can leave.

All that a coordinator asks is checked before data are read: plan, projection, head, and the number of the message. The
whole μ is reserved in the ledger before the first message, and each message is paid from it; so all messages together
cost a unit at most μ, whatever the coordinator sends. A number is used once: a message that failed after its entry is
not made again."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from mixveil.core import checks, files, randomness
from mixveil.core.errors import ArgumentError, RefusedError
from mixveil.core.types import Progress
from mixveil.core.watching import Warn, Watch, unheard, unwatched
from mixveil.core.wording.notes import Note
from mixveil.data.opening import DataOptions, DataSpec
from mixveil.encoders.calibration import meaningless
from mixveil.features import projection_file
from mixveil.features.opening import FeatureOptions
from mixveil.features.projection import Projected
from mixveil.features.shipped import located
from mixveil.releases import accounting
from mixveil.releases.envelope import Envelope
from mixveil.releases.ledger import Ledger
from mixveil.releases.round_notes import Notes, Part, digest_of
from mixveil.releases.round_plan import HeadFile, JointPlan, read_head, read_plan
from mixveil.releases.spending import Owners, Standing
from mixveil.releases.sums import write_residuals, write_statistics
from mixveil.releases.writing import LedgerTerms, check_output


@dataclass(frozen=True)
class SentRound:
    """A message that was made, for its owner's eyes.

    Attributes:
        message: Its number: 0 for class sums, then the rounds.
        rounds: How many rounds the plan has.
        standing: What the ledger says of these records now.
    """

    folder: Path
    message: int
    rounds: int
    sums: Envelope
    warnings: tuple[Note, ...]
    standing: Standing


def send_round(
    data: DataSpec,
    out: Path | str,
    *,
    plan: Path | str,
    projection: Path | str,
    mu: float,
    party: str = "party",
    head: Path | str | None = None,
    recipient: str | None = None,
    budget: float | None = None,
    options: DataOptions | None = None,
    cache: Path | str | None = None,
    ledger: Ledger | None = None,
    watch: Watch = unwatched,
    warn: Warn = unheard,
) -> SentRound:
    """Release a party's next message of a plan: class sums first, then residual sums of each head.

    Args:
        plan: The file of the plan, from the coordinator.
        mu: What all messages of the plan cost a record (a unit) together, its label with it. It is reserved before the
            first message, and stays the same.
        head: The file of the coordinator's head; None for the class sums.

    The other arguments are those of `mixveil.statistics`.
    """
    out, options, ledger = Path(out), options or DataOptions(), ledger or Ledger()
    check_output(out, party)
    files.check_writable(out)
    mu, agreed = checks.finite_positive("mu", mu), read_plan(Path(plan))
    narrow = agreed.narrowed(*projection_file.read(located(projection)))
    notes = Notes(ledger.folder, agreed, party)
    with notes.alone():
        part = notes.read()
        asked = _asked(agreed, part, mu, None if head is None else Path(head))
        images = options.open(data)
        owners = accounting.owners_of(ledger, images, watch)
        if part is not None:
            part.check_data(owners, images.classes)
        features = FeatureOptions(options, cache, watch)
        rows, digest, told = features.open_projected(images, projection, certified=True)
        agreed.narrowed(rows.projection, digest)  # the file may have changed
        earlier = accounting.earlier_statistics(ledger, narrow, party)
        warnings = [*rows.warnings(), *told, *earlier, *accounting.copies(owners), *meaningless(mu)]
        for item in warnings:
            warn(item)
        part = part or Part(agreed, party, mu, digest_of(owners), images.classes, {})
        making = _Making(Projected(rows.rows, narrow), owners, part, asked, notes, ledger)
        with watch("sums", len(rows)) as step:
            made = making.make(out, recipient, budget, step)
    return SentRound(out, making.message, agreed.settings.rounds, made, tuple(warnings), ledger.standing(owners))


def leave_rounds(plan: Path | str, *, party: str = "party", ledger: Ledger | None = None) -> float:
    """Leave a plan: hold nothing more for it in the ledger, and make no more messages. The μ that was held."""
    agreed, ledger = read_plan(Path(plan)), ledger or Ledger()
    notes = Notes(ledger.folder, agreed, party)
    with notes.alone():
        if (part := notes.read()) is not None:
            notes.write(replace(part, left=True))
        held = ledger.free(notes.reserved_as)
    if part is None and not held:
        raise ArgumentError(f"party = {party!r}: it sent nothing for the plan {agreed.id[:8]} from here")
    return held


def _asked(plan: JointPlan, part: Part | None, mu: float, path: Path | None) -> HeadFile | None:
    """The head that is asked about; None for the class sums. Whatever may not be made is refused here, without data."""
    if part is None:
        if path is not None:
            raise ArgumentError(f"head = {path}: the class sums come first. Send them without a head")
        return None
    part.check(plan, mu)
    if path is None:
        raise RefusedError(
            f"{part.party} made its class sums for the plan {plan.id[:8]} already: a second message would cost again. "
            f"Give the coordinator's head"
        )
    asked = read_head(path, plan, len(part.classes))
    part.check_next(asked.message)
    return asked


@dataclass(frozen=True)
class _Making:
    """What a message is made with. asked: the head that it answers; None for class sums."""

    rows: Projected
    owners: Owners
    part: Part
    asked: HeadFile | None
    notes: Notes
    ledger: Ledger

    @property
    def message(self) -> int:
        return self.asked.message if self.asked else 0

    def make(self, out: Path, recipient: str | None, budget: float | None, step: Progress) -> Envelope:
        """Reserve, note the number as used, and make the message. The number is free again only where nothing was
        entered."""
        name = self.notes.reserved_as
        if self.asked is None:
            self.ledger.reserve(name, self.part.mu, self.owners, budget)
        held, before = self.ledger.reservations().get(name), self.notes.read()
        self.notes.write(self.part.with_message(self.message, self.asked.sha256 if self.asked else ""))
        try:
            terms = LedgerTerms(recipient=recipient, budget=budget, owners=self.owners, ledger=self.ledger, plan=name)
            made = self._written(out, terms, step)
        except BaseException:
            if self.ledger.reservations().get(name) == held:
                self.notes.restore(before)
                if before is None:
                    self.ledger.free(name)
            raise
        if self.message == self.part.plan.settings.rounds:
            self.ledger.free(name)  # no message can follow: what missed rounds would have cost is not spent
        return made

    def _written(self, out: Path, terms: LedgerTerms, step: Progress) -> Envelope:
        plan, stream = self.part.plan, randomness.SecureStream()
        mu, party = plan.settings.mu(self.message, self.part.mu), self.part.party
        if self.asked is None:
            return write_statistics(
                out, self.rows, plan.projection, mu, party=party, stream=stream, progress=step, **terms
            )
        head, clip = (self.asked.head, self.asked.sha256), plan.settings.clip * self.rows.projection.clip
        return write_residuals(
            out, self.rows, plan.projection, *head, clip, mu, party=party, stream=stream, progress=step, **terms
        )
