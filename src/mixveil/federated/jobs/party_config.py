"""What a party decides for itself: which data, how they are protected, what it takes part in. A server cannot change
any of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from mixveil.core import checks
from mixveil.core.errors import ArgumentError
from mixveil.core.types import Mu, Target, Tau
from mixveil.core.wording.notes import Note, note
from mixveil.data.opening import DataOptions
from mixveil.federated.jobs.job_config import Settings
from mixveil.federated.jobs.messages import Refusal, check_name
from mixveil.federated.methods.base import Method
from mixveil.federated.methods.catalogue import between_machines, method_named
from mixveil.releases.spending import Total, within

if TYPE_CHECKING:
    from mixveil.data.images import Images
    from mixveil.features.cache import Features, Loaded
    from mixveil.features.extractor import Extractor

_MEMORY = 4 << 30  # bytes of features that a server may ask for
_WIDEST = 1 << 14  # features of an image, where a refusal must not tell how many images there are


@dataclass(frozen=True)
class PartyConfig(Settings):
    """What a party decides for itself; the help of `mixveil join` says what each setting is.

    Attributes:
        folder: Where it keeps jobs; an absolute path.
        mu: What every job may cost a record (a unit), in all its steps.
        tau: Instead of mu: nothing is certified.
        budget: What everything in its ledger may cost together.
        allow: The methods that it takes part in, with commas between; empty: those that keep its μ or τ.
        approve: Whether its owner is asked before anything is made for a job.
        label_epsilon: What every job may cost a label, in all its steps.
        server: The server that it talks to: what was made for one is never sent to another.
        recipient: Who runs the server, for the ledger.
        roster: The file of the roster for secure sums; roster_key: the party's private key in it.
        honest: How many honest parties it relies on in a secure sum, itself included.
        smallest: The fewest parties of a secure sum that it accepts; None: the whole roster.
    """

    old_names: ClassVar[Mapping[str, str]] = {"to": "recipient"}  # of job folders that an earlier version wrote
    party: str
    data: str
    folder: str
    mu: float | None = None
    tau: float | None = None
    budget: float | None = None
    allow: str = ""
    approve: bool = False
    unit: str | None = None
    classes: str | None = None
    label_epsilon: float | None = None
    size: int | None = None
    grey: bool = False
    depth: int | None = None
    data_dir: str | None = None
    server: str | None = None
    recipient: str | None = None
    label_budget: float | None = None
    roster: str | None = None
    roster_key: str | None = None
    honest: int | None = None
    smallest: int | None = None

    def __post_init__(self) -> None:
        check_name("party", self.party)
        if not Path(self.folder).is_absolute():
            raise ArgumentError(f"folder must be an absolute path, got {self.folder!r:.100}")
        if unknown := set(self.methods) - {*between_machines()}:
            known = ", ".join(between_machines())
            raise ArgumentError(f"allow must name some of {known}, got {', '.join(sorted(unknown))!r:.80}")
        promising = [rules for rules in self.rules if rules.targets]
        if (self.mu is None) == (self.tau is None) and promising:
            raise ArgumentError("mu (--mu, certified) or tau (--tau, Theorem 2): give one of the two")
        for name in ("mu", "tau", "budget", "label_epsilon", "label_budget"):
            if (value := getattr(self, name)) is not None:
                checks.finite_positive(name, value)
        self._check_secure()
        cheapest = 0.0 if any(rules.covers_labels for rules in self.rules) else math.inf
        if self.label_budget is not None and not (self.label_epsilon or cheapest) <= self.label_budget:
            cost = "shows labels" if self.label_epsilon is None else f"costs a label ε = {self.label_epsilon:g}"
            raise ArgumentError(f"label_budget is {self.label_budget:g}, and one job {cost}: no job could be done")
        if self.mu is not None and self.budget is not None and self.mu > self.budget:
            raise ArgumentError(f"budget is {self.budget:g}, and one job costs μ = {self.mu:g}: no job could be done")
        if self.tau is not None and (certified := [r.name for r in promising if "tau" not in r.targets]):
            raise ArgumentError(f"tau is not for {', '.join(certified)}, which need mu: allow other methods")

    def _check_secure(self) -> None:
        given = [value is not None for value in (self.roster, self.roster_key, self.honest)]
        if any(given) != all(given):
            raise ArgumentError("roster (--roster) and honest (--honest): secure sums need both")
        if self.roster is None:
            if named := [rules.name for rules in self.rules if rules.secure]:
                raise ArgumentError(
                    f"roster (--roster) is missing: {', '.join(named)} needs one, and honest (--honest)"
                )
            if self.smallest is not None:
                raise ArgumentError("smallest is for secure sums: give roster (--roster) and honest (--honest)")
        for name, least in (("honest", 2), ("smallest", 3)):
            if (value := getattr(self, name)) is not None:
                checks.at_least(name, value, least)

    @property
    def methods(self) -> tuple[str, ...]:
        names = self.allow or default_methods(certified=self.certified, secure=self.roster is not None)
        return tuple(name.strip() for name in names.split(",") if name.strip())

    @property
    def rules(self) -> list[Method]:
        return [method_named(name) for name in self.methods]

    @property
    def unpromising(self) -> list[str]:
        """The methods among them that promise nothing of a record."""
        return sorted(rules.name for rules in self.rules if not rules.targets)

    @property
    def certified(self) -> bool:
        return self.mu is not None

    @property
    def target(self) -> Target:
        if self.mu is not None:
            return Mu(self.mu)
        if self.tau is not None:
            return Tau(self.tau, "spectral")
        raise ArgumentError("mu (certified) or tau (Theorem 2) must be given")

    def check_bounded(self) -> None:
        """Refuse to join where a server that starts one job after another could get ever more, and no owner looks."""
        names, limit = self.unpromising, self.limit
        if limit is not None and (names or not self.certified):
            what = " and ".join(names) or "tau"
            raise ArgumentError(f"no budget holds with {what}, which promises nothing; the budget is {limit:g}")
        if self.approve:
            return
        if names:
            raise ArgumentError(
                f"nothing bounds what {' and '.join(names)} would give away: approve every job before anything leaves "
                f"(--approve)"
            )
        if not self.certified:
            raise ArgumentError("nothing bounds what releases for tau give away: approve each (--approve)")
        if limit is None:
            raise ArgumentError(
                "a server may start one job after another, and each costs μ: say what they may cost a record in all "
                "(--budget), or approve each (--approve)"
            )
        if self.label_epsilon is not None and self.label_limit is None:
            raise ArgumentError(
                "a server may start one job after another, and each costs every label ε: say what they may cost a "
                "label in all (--label-budget), or approve each (--approve)"
            )

    @property
    def limit(self) -> float | None:
        """What everything may cost a record: the smaller of its own budget and the ledger's."""
        from mixveil.releases.ledger import Ledger

        return _least(self.budget, Ledger().budget)

    @property
    def label_limit(self) -> float | None:
        from mixveil.releases.ledger import Ledger

        return _least(self.label_budget, Ledger().label_budget)

    @property
    def total(self) -> Total:
        """What everything in the ledger cost a record; a unit, where its data have units."""
        from mixveil.releases.ledger import Ledger

        return Ledger().total(units=self.unit is not None)

    def outlook(self) -> Note | None:
        """What to tell an owner who joins with too little left for one job; None where there is enough."""
        total, limit, labels = self.total, self.limit, self.label_limit
        if limit is not None and total.unbounded:
            return note("outlook-unbounded", releases=len(total.unbounded), whom=self.unit or "record")
        if limit is not None and self.mu is not None and not within(math.hypot(total.mu, self.mu), limit):
            return note("outlook-spent", spent=total.mu, budget=limit, mu=self.mu)
        if any(rules.covers_labels for rules in self.rules):
            return None
        if labels is not None and not within(total.label_epsilon + (self.label_epsilon or math.inf), labels):
            return note("labels-spent", spent=total.label_epsilon, budget=labels)
        return None

    def check_labels(self, images: Images) -> None:
        """Refuse labels that could not be protected as it is set, before a job finds out."""
        from mixveil.releases.records import check_declared

        if self.label_epsilon is not None:
            check_declared(images, self.label_epsilon)

    def unlisted(self, images: Images) -> Note | None:
        """What to tell an owner whose list of classes was read off the data, which no sums may show."""
        names = [rules.name for rules in self.rules if {"statistics", "sums"} & {*rules.sends}]
        if images.declared or not self.certified or not names:
            return None
        return note("classes-not-named", methods=names)

    @property
    def options(self) -> DataOptions:
        classes = None if self.classes is None else [name.strip() for name in self.classes.split(",") if name.strip()]
        return DataOptions(self.size, self.grey, self.depth, self.unit, classes, self.data_dir)

    def images(self) -> Images:
        return self.options.open(self.data)

    def networks(
        self, images: Images, extractor: Extractor, wanted: str | None = None, inputs: int | None = None
    ) -> Loaded:
        """The networks that a server names features of, if the party computes those. wanted, inputs: the digest and the
        number of features that there should be: of others nothing is computed but one image's."""
        import torch

        from mixveil.features.cache import load

        loaded = load(extractor, self.options.folder)
        if wanted is not None and loaded.digest != wanted:
            raise Refusal("other-weights", extractor=str(extractor)[:80])
        width = loaded(images.take(torch.tensor([0])).x).shape[1]
        if inputs is not None and width != inputs:
            raise Refusal("other-width", extractor=str(extractor)[:80], features=width, inputs=inputs)
        hidden = wanted is not None and images.units is not None  # sums show the number of units, not that of rows
        if width > (_WIDEST if hidden else _MEMORY // (2 * len(images))):
            raise Refusal("features-too-large", features=width)
        return loaded


def computed(images: Images, loaded: Loaded) -> Features:
    """Features, in memory, computed again every time: kept ones would be there sooner, and tell that the images have
    not changed."""
    from mixveil.features.cache import extract

    return extract(images, loaded, None)


def default_methods(*, certified: bool, secure: bool = False) -> str:
    """The methods that a party takes part in unless it says otherwise: those that keep what it is promised. secure:
    whether it has a roster."""
    target, known = "mu" if certified else "tau", {name: method_named(name) for name in between_machines()}
    return ",".join(name for name, rules in known.items() if target in rules.targets and (secure or not rules.secure))


def _least(*limits: float | None) -> float | None:
    return min((limit for limit in limits if limit is not None), default=None)
