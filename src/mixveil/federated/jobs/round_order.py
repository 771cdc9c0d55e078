"""What a server asks for in one round, read strictly, and how a party does it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from safetensors.torch import load, save

from mixveil.core import strict_json
from mixveil.core.errors import ManifestError
from mixveil.core.local_training import AugMix, LocalTraining
from mixveil.core.randomness import SecureStream
from mixveil.features.split.shapes import shapes
from mixveil.federated.algorithms import local, new_head
from mixveil.learn.augmix_loss import augmix_loss
from mixveil.learn.fit import TrainingRecipe, rates
from mixveil.learn.sequence_head import ImageSequence

if TYPE_CHECKING:
    from mixveil.federated.jobs.rounds import RowsInClear
    from mixveil.learn.fit import Head

_MOST_STEPS = 10_000  # of a round whose rates are written down
_MOST_VALUES = 1 << 30  # that a layer of the network, or the views, have in one step


@dataclass(frozen=True)
class RoundOrder:
    """One round of FedAvg or FedProx.

    Attributes:
        recipe: Of all rounds; epochs: those of it that belong to this round.
        number: Of the party, for draws of its own.
        proximal: μ of FedProx; augmix: of Fed-AugMix.
    """

    head: str
    recipe: TrainingRecipe
    epochs: range
    number: int
    proximal: float | None
    augmix: AugMix | None

    @classmethod
    def read(cls, about: Mapping[str, Any], *, augmented: bool) -> Self:
        """From a server's message. augmented: whether the method that the owner agreed to is one with Fed-AugMix; a
        round that leaves it out, or has it elsewhere, is refused."""
        recipe = TrainingRecipe(**strict_json.mapping("recipe", about.get("recipe")))
        named = strict_json.items("epochs", about.get("epochs"))
        first, last = (strict_json.of("epoch", epoch, int) for epoch in named)
        if not 0 <= first < last <= recipe.epochs:
            raise ManifestError(f"epochs {first} to {last} are not a round of {recipe.epochs} epochs")
        proximal, augmix = about.get("proximal"), about.get("augmix")
        if (augmix is not None) != augmented:
            raise ManifestError(f"augmix is {'missing' if augmented else 'not of this method'}")
        return cls(
            strict_json.text("head", about.get("head"), "linear|mlp|lenet5|convnet"),
            recipe,
            range(first, last),
            strict_json.of("number", about.get("number"), int),
            None if proximal is None else strict_json.number("proximal", proximal),
            None if augmix is None else AugMix.read(augmix),
        )

    def model(self, rows: RowsInClear) -> Head:
        shape = None if rows.extractor.names else rows.shape
        return new_head(self.head, rows.source.inputs, len(rows.classes), self.recipe, shape=shape)

    def trained(self, rows: RowsInClear, weights: bytes) -> bytes:
        """The server's weights, trained some epochs further on the party's rows."""
        loss = None
        if self.augmix is not None:  # draws of the party's own: the server chose the seed of the recipe, and knows it
            loss = augmix_loss(self.augmix, rows.shape, rows.low, rows.high, stream=SecureStream())
        model, source = self.model(rows), rows.source
        self._check_size(model, rows)
        more: dict[str, Any] = {"party": self.number, "proximal": self.proximal, "loss": loss}
        return save(dict(local(model, load(weights), source, self.recipe, self.epochs, **more)))

    def _check_size(self, model: Head, rows: RowsInClear) -> None:
        """Refuse steps that would fill the memory: the server says how many rows and views they have."""
        views, chains = (0, 0) if self.augmix is None else (self.augmix.views, self.augmix.chains)
        widest = max(map(math.prod, shapes(model.net, rows.shape))) if isinstance(model, ImageSequence) else 0
        each = max((1 + views) * widest, views * chains * rows.source.inputs)
        batch = min(self.recipe.batch, rows.source.rows)
        if batch * each > _MOST_VALUES:
            raise ManifestError(f"a step on {batch:,} rows makes {batch * each:.1e} values, {_MOST_VALUES:.1e} at most")

    def training(self, rows: int) -> LocalTraining | None:
        """How it was trained, for attackers of the update; None where it has too many steps to write down."""
        steps = rates(rows, self.recipe, self.epochs)
        if len(steps) > _MOST_STEPS:
            return None
        sgd = self.recipe.optimiser == "sgd"
        return LocalTraining(
            rows,
            min(self.recipe.batch, rows),
            steps,
            self.recipe.optimiser,
            momentum=0.9 if sgd else 0.0,
            weight_decay=0.0 if sgd else 1e-4,
            proximal=self.proximal,
            augmix=self.augmix,
            shuffled=self.recipe.batch < rows,
        )
