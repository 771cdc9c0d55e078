"""What a method of learning together says of itself, and what it does in a simulation, at a party and at a server.

A method is one class. Importing it must stay quick (no torch): what it does is imported where it is done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final, Literal

from mixveil.core.errors import ArgumentError

if TYPE_CHECKING:
    from mixveil.core.types import Progress
    from mixveil.federated.jobs.asking import Parties
    from mixveil.federated.jobs.job import Job
    from mixveil.federated.jobs.last_update import Update
    from mixveil.federated.jobs.making import Making
    from mixveil.federated.jobs.messages import Message
    from mixveil.federated.jobs.rounds import RowsInClear
    from mixveil.federated.simulation.setup import Outcome, Simulation
    from mixveil.learn.training import Trained

Kind = Literal["statistics", "records", "sums", "updates", "originals"]
Target = Literal["mu", "tau"]

COVERED: Final[frozenset[Kind]] = frozenset({"statistics", "sums"})
"""Kinds whose noise covers labels too."""

IMAGE_HEADS: Final = ("lenet5", "convnet")
"""Heads that are networks on images: they take pixels, not features."""


class Method:
    """One way of learning together.

    Attributes:
        name: What people and job files call it.
        title: A few words for tables.
        sends: The kind of payload of each step. Every step of a job costs an equal share of μ².
        targets: What a party can have it run at; a simulation takes the first. Empty: it promises nothing of a record.
        heads: The heads that a job can end in; the first is the default.
        in_rounds: Whether parties send again and again.
        between_machines: Whether `mixveil run` and `mixveil join` know it; else it is for simulations only.
        projection: Whether a job's records go through a public projection.
        compared: Whether a simulation's summary sets it beside the others.
        baseline: Whether it is no way of learning together, but a level that those are compared with.
        needs_images: Whether it works on images alone, not on features or other rows.
        needs_settings: Whether its projection must hold settings for rounds of sums.
        secure: Whether the server sees sums over the parties alone.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    sends: ClassVar[tuple[Kind, ...]] = ()
    targets: ClassVar[tuple[Target, ...]] = ()
    heads: ClassVar[tuple[str, ...]] = ()
    in_rounds: ClassVar[bool] = False
    between_machines: ClassVar[bool] = False
    projection: ClassVar[Literal["none", "optional", "required"]] = "none"
    compared: ClassVar[bool] = False
    baseline: ClassVar[bool] = False
    needs_images: ClassVar[bool] = False
    needs_settings: ClassVar[bool] = False
    secure: ClassVar[bool] = False

    @property
    def covers_labels(self) -> bool:
        """Whether all that it sends are sums, whose noise covers labels too."""
        return bool(self.sends) and bool(self.targets) and COVERED.issuperset(self.sends)

    @property
    def simulated_at(self) -> Target | None:
        """What a simulation runs it at."""
        return self.targets[0] if self.targets else None

    def simulate(self, simulation: Simulation, mu: float, progress: Progress) -> Outcome:
        """Run it in memory. mu: 0 where it is not run at a μ."""
        raise self._missing("simulations")

    def passes(self, simulation: Simulation) -> int:
        """How often a simulation of it goes over all rows, for a progress bar."""
        return 1

    def make(self, making: Making, kind: Kind, projection: str | None) -> None:
        """At a party: make the release of one step. projection: the SHA-256 of the one that the server named."""
        raise self._missing("releases of a party")

    def answer_round(self, rows: RowsInClear, message: Message) -> tuple[int, int, dict[str, bytes]]:
        """At a party: one round. Returns the epoch that it ends with, of how many, and the files to send."""
        raise self._missing("rounds of a party")

    def sent_update(self, rows: RowsInClear, message: Message, files: dict[str, bytes]) -> Update | None:
        """At a party: what a round sent, for its owner to attack; None where it is not kept. files: that are sent."""
        return None

    def learn(self, job: Job, parties: Parties) -> Trained:
        """At the server: collect what the parties send, and train on it."""
        raise self._missing("jobs between machines")

    def _missing(self, what: str) -> ArgumentError:
        return ArgumentError(f"the method {self.name} has no {what}")
