"""How a party trains between two messages of federated averaging. It is public: server and attackers know it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal, Self, get_args

from mixveil.core import checks, strict_json
from mixveil.core.errors import ArgumentError, ManifestError

Optimiser = Literal["sgd", "adamw"]
_MOST_STEPS = 1 << 20


@dataclass(frozen=True)
class AugMix:
    """Augmented views of images and their weight in a party's loss: Fed-AugMix.

    Attributes:
        severity: s of the paper, in (0, 10]: the level of an operation is uniform in [0.1, s], of 10.
        views: Augmented views of each image beside itself.
        chains: Of operations, mixed with weights by Dirichlet(alpha); longest: operations of a chain, one at least.
        alpha: Of the Dirichlet and the Beta law.
        weight: λ of the consistency between views; 0: views are not compared.
        scale, large: λ is `large` while the classification's loss is more than `scale` times the divergence. scale 0
            with large = weight: it always has the same size.
    """

    severity: float
    views: int = 2
    chains: int = 3
    longest: int = 3
    alpha: float = 1.0
    weight: float = 50.0
    scale: float = 5e4
    large: float = 5e3

    def __post_init__(self) -> None:
        for name in ("severity", "alpha"):
            checks.finite_positive(name, getattr(self, name))
        if self.severity > 10:
            raise ArgumentError(f"severity must be at most 10, got {self.severity:g}")
        for name, most in (("views", 8), ("chains", 16), ("longest", 16)):
            checks.at_least(name, getattr(self, name), 1)
            if getattr(self, name) > most:
                raise ArgumentError(f"{name} must be at most {most}, got {getattr(self, name)}")
        for name in ("weight", "scale", "large"):
            if not 0 <= getattr(self, name) <= 1e12:
                raise ArgumentError(f"{name} must lie between 0 and 1e12, got {getattr(self, name):g}")

    @classmethod
    def read(cls, item: Any) -> Self:
        """From JSON that others wrote."""
        stated = strict_json.mapping("augmix", item)
        strict_json.only("augmix", stated, {*asdict(cls(1.0))})
        found: dict[str, Any] = {name: strict_json.number(name, value) for name, value in stated.items()}
        found |= {name: strict_json.count(name, stated[name]) for name in ("views", "chains", "longest")}
        try:
            return cls(**found)
        except ArgumentError as error:
            raise ManifestError(f"augmix: {error}") from None


@dataclass(frozen=True)
class LocalTraining:
    """A party's part of one round: steps of an optimiser over batches of its rows.

    Attributes:
        rows: That the party has.
        batch: Rows of a step; an epoch goes once through all of them, in batches.
        rates: The learning rate of every step.
        momentum: Of SGD. weight_decay: of AdamW.
        proximal: μ of FedProx's term; None: there is none.
        augmix: Of Fed-AugMix; None: the loss is the cross-entropy alone.
        shuffled: Whether rows come in another order in every epoch, and a small rest is left out; else in their own.
    """

    FIELDS: ClassVar[tuple[str, ...]] = (
        "rows",
        "batch",
        "rates",
        "optimiser",
        "momentum",
        "weight_decay",
        "proximal",
        "augmix",
        "shuffled",
    )
    rows: int
    batch: int
    rates: tuple[float, ...]
    optimiser: Optimiser = "sgd"
    momentum: float = 0.0
    weight_decay: float = 0.0
    proximal: float | None = None
    augmix: AugMix | None = None
    shuffled: bool = False

    def __post_init__(self) -> None:
        checks.at_least("rows", self.rows, 1)
        checks.at_least("batch", self.batch, 1)
        if not 0 < len(self.rates) <= _MOST_STEPS:
            raise ArgumentError(f"there must be 1 to {_MOST_STEPS:,} steps, got {len(self.rates):,}")
        if self.optimiser not in get_args(Optimiser):
            raise ArgumentError(f"optimiser must be sgd or adamw, got {self.optimiser!r:.40}")
        for rate in self.rates:
            if not 0 <= rate < float("inf"):
                raise ArgumentError(f"a learning rate must not be negative, got {rate:g}")
        if not 0 <= self.momentum < 1:
            raise ArgumentError(f"momentum must lie in [0, 1), got {self.momentum:g}")
        for name in ("weight_decay", "proximal"):
            if not 0 <= (getattr(self, name) or 0.0) < float("inf"):
                raise ArgumentError(f"{name} must not be negative, got {getattr(self, name):g}")

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "rates": list(self.rates)}

    @classmethod
    def read(cls, item: Any) -> Self:
        """From JSON that others wrote."""
        stated: Mapping[str, Any] = strict_json.mapping("training", item)
        strict_json.only("training", stated, {*cls.FIELDS})
        rates = strict_json.items("rates", stated["rates"])
        if len(rates) > _MOST_STEPS:
            raise ManifestError(f"training: {len(rates):,} steps are too many")
        proximal, augmix = stated["proximal"], stated["augmix"]
        try:
            return cls(
                strict_json.count("rows", stated["rows"]),
                strict_json.count("batch", stated["batch"]),
                tuple(strict_json.number("rates", rate) for rate in rates),
                strict_json.text("optimiser", stated["optimiser"], "sgd|adamw"),  # type: ignore[arg-type]
                strict_json.number("momentum", stated["momentum"]),
                strict_json.number("weight_decay", stated["weight_decay"]),
                None if proximal is None else strict_json.number("proximal", proximal),
                None if augmix is None else AugMix.read(augmix),
                strict_json.flag("shuffled", stated["shuffled"]),
            )
        except ArgumentError as error:
            raise ManifestError(f"training: {error}") from None
