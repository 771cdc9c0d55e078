"""What a party decides for itself: which data, how they are protected, what it takes part in. A server cannot change
any of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from mixveil.core import checks
from mixveil.core.errors import ArgumentError, RefusedError
from mixveil.core.types import Mu, Target, Tau
from mixveil.data.opening import Images, data_folder, open_data
from mixveil.features.cache import Features, Loaded, extract, load
from mixveil.features.extractor import Extractor
from mixveil.federated.jobs import config as config_of
from mixveil.federated.jobs.messages import METHODS, Method, check_name
from mixveil.releases.ledger import Ledger
from mixveil.releases.records import check_declared
from mixveil.releases.spending import Total, within

_MEMORY = 4 << 30  # bytes of features that a server may ask for
PROMISED: tuple[Method, ...] = ("one-shot", "two-step")
"""Methods that send what is promised, where the noise is for μ."""


@dataclass(frozen=True)
class Settings:
    """party: its name; data: as DATA of `encode`; folder: where it keeps jobs; mu: what every job may cost a record
    (a unit), in all its steps; label_epsilon: the same of its label; tau: instead of mu, nothing certified; budget,
    label_budget: what everything in its ledger may cost together; allow: the methods that it takes part in, with commas
    between; approve: whether its owner is asked before anything is made for a job; server: which one it talks to, so
    that what was made for one is never sent to another; to: to whom it goes, for the ledger. The others are those of
    `encode`."""

    party: str
    data: str
    folder: str
    mu: float | None = None
    tau: float | None = None
    budget: float | None = None
    allow: str = ",".join(PROMISED)
    approve: bool = False
    unit: str | None = None
    classes: str | None = None
    label_epsilon: float | None = None
    size: int | None = None
    grey: bool = False
    depth: int | None = None
    data_dir: str | None = None
    server: str | None = None
    to: str | None = None
    label_budget: float | None = None

    def __post_init__(self) -> None:
        check_name("party", self.party)
        if not Path(self.folder).is_absolute():
            raise ArgumentError(f"folder must be an absolute path, got {self.folder!r:.100}")
        if unknown := set(self.methods) - set(METHODS):
            raise ArgumentError(f"allow must name some of {', '.join(METHODS)}, got {', '.join(sorted(unknown))!r:.80}")
        if (self.mu is None) == (self.tau is None) and set(self.methods) & set(PROMISED):
            raise ArgumentError("mu (--mu, certified) or tau (--tau, Theorem 2): one of the two")
        for name in ("mu", "tau", "budget", "label_epsilon", "label_budget"):
            if (value := getattr(self, name)) is not None:
                checks.finite_positive(name, value)
        if self.label_budget is not None and not (self.label_epsilon or math.inf) <= self.label_budget:
            shown = (
                "labels are shown" if self.label_epsilon is None else f"one job costs a label {self.label_epsilon:g}"
            )
            raise ArgumentError(f"{shown}, and all together may cost {self.label_budget:g}: none could be")
        if self.mu is not None and self.budget is not None and self.mu > self.budget:
            raise ArgumentError(
                f"one job costs μ = {self.mu:g}, and all together may cost {self.budget:g}: none could be"
            )
        if self.tau is not None and "two-step" in self.methods:
            raise ArgumentError("two steps are certified: they need mu; with tau, allow one-shot alone")

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Settings:
        """From a node's configuration."""
        return config_of.read(cls, config, "a party")

    def plain(self) -> dict[str, str | int | float | bool]:
        """What was given, as a node's configuration has it."""
        return config_of.plain(self)

    @property
    def methods(self) -> tuple[str, ...]:
        return tuple(name.strip() for name in self.allow.split(",") if name.strip())

    @property
    def certified(self) -> bool:
        return self.mu is not None

    @property
    def target(self) -> Target:
        if self.mu is not None:
            return Mu(self.mu)
        if self.tau is not None:
            return Tau(self.tau, "spectral")
        raise ArgumentError("mu (certified) or tau (Theorem 2): neither is set")

    def check_bounded(self) -> None:
        """Refuse to join where a server that starts one job after another could get ever more, and no owner looks."""
        open_ended = sorted(set(self.methods) - set(PROMISED))
        limit = self.limit
        if limit is not None and (open_ended or not self.certified):
            what = " and ".join(open_ended) or "tau"
            raise ArgumentError(f"no budget holds with {what}, which promise nothing, and there is one: {limit:g}")
        if self.approve:
            return
        if open_ended:
            raise ArgumentError(
                f"nothing bounds what {' and '.join(open_ended)} would give away: see every job before anything leaves "
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
        return _least(self.budget, Ledger().budget)

    @property
    def label_limit(self) -> float | None:
        return _least(self.label_budget, Ledger().label_budget)

    @property
    def total(self) -> Total:
        """What everything in the ledger cost a record; a unit, where its data have units."""
        return Ledger().total(units=self.unit is not None)

    def outlook(self) -> str | None:
        """What to tell an owner who joins with too little left for one job; None where there is enough."""
        total, limit, labels = self.total, self.limit, self.label_limit
        if limit is not None and total.unbounded:
            whom = "" if self.unit is None else f" to a {self.unit}"
            return (
                f"your ledger holds {len(total.unbounded)} release(s) that promise nothing{whom}, so no budget holds: "
                f"every job will be refused. Keep experiments in a state folder of their own (MIXVEIL_STATE)"
            )
        if limit is not None and self.mu is not None and not within(math.hypot(total.mu, self.mu), limit):
            return (
                f"everything in your ledger together cost μ = {total.mu:.4g} of {limit:g}: a job of {self.mu:g} will "
                f"be refused. Between machines every release counts, or a refusal would tell whose records are in it"
            )
        if labels is not None and not within(total.label_epsilon + (self.label_epsilon or math.inf), labels):
            return (
                f"everything in your ledger together cost labels ε = {total.label_epsilon:.4g} of {labels:g}: every "
                f"job will be refused"
            )
        return None

    def check_labels(self, images: Images) -> None:
        """Refuse labels that could not be protected as it is set, before a job finds out."""
        if self.label_epsilon is not None:
            check_declared(images, self.label_epsilon / (2 if "two-step" in self.methods else 1))

    def images(self) -> Images:
        return open_data(
            self.data,
            data_dir=None if self.data_dir is None else Path(self.data_dir),
            size=self.size,
            grey=self.grey,
            depth=self.depth,
            unit=self.unit,
            classes=None if self.classes is None else tuple(n.strip() for n in self.classes.split(",") if n.strip()),
        )

    def networks(
        self, images: Images, extractor: Extractor, wanted: str | None = None, inputs: int | None = None
    ) -> Loaded:
        """The networks that a server names features of, if the party computes those. wanted, inputs: the digest and the
        number of features that there should be: of others nothing is computed but one image's."""
        loaded = load(extractor, data_folder(None if self.data_dir is None else Path(self.data_dir)))
        if wanted is not None and loaded.digest != wanted:
            raise RefusedError(f"its weights of {extractor} are others than the projection's")
        width = loaded(images.take(torch.tensor([0])).x).shape[1]
        if inputs is not None and width != inputs:
            raise RefusedError(f"{extractor} has {width:,} features, and the projection is for {inputs:,}")
        if 2 * width * len(images) > _MEMORY:
            raise RefusedError(f"{width:,} features of every image are more than it computes for a server")
        return loaded


def computed(images: Images, loaded: Loaded) -> Features:
    """Features, in memory, computed anew every time: kept ones would be there sooner, and tell that the images have not
    changed."""
    return extract(images, loaded, None)


def _least(*limits: float | None) -> float | None:
    return min((limit for limit in limits if limit is not None), default=None)
