"""From images to the rows that a job works on: features of public networks, and projections of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from mixveil.core.errors import ArgumentError, PrivateFactError
from mixveil.core.watching import Watch, unwatched
from mixveil.core.wording.notes import Note, note
from mixveil.data.images import Images
from mixveil.data.opening import DataOptions
from mixveil.features import cache, projection, projection_file
from mixveil.features.cache import Features, Loaded
from mixveil.features.extractor import Extractor
from mixveil.features.projection import Projected
from mixveil.features.shipped import located


@dataclass(frozen=True)
class FeatureOptions:
    """Where features come from.

    Attributes:
        data: How data are read; its folder holds the networks' weights.
        cache: Where features are kept, as private as the images; else MIXVEIL_CACHE, else ~/.cache/mixveil.
        watch: Shows the progress.
    """

    data: DataOptions = field(default_factory=DataOptions)
    cache: Path | str | None = None
    watch: Watch = unwatched

    def load(self, extractor: Extractor) -> Loaded:
        return cache.load(extractor, self.data.folder)

    def of(self, images: Images, loaded: Loaded) -> Features:
        """The features of all images, computed or from the cache."""
        folder = cache.cache_folder() if self.cache is None else Path(self.cache)
        with self.watch("features", len(images) * max(1, len(loaded.nets))) as step:
            return cache.extract(images, loaded, folder, step)

    def open(self, images: Images, extractor: Extractor) -> tuple[Features, str]:
        """The features of images, and the digest of what made them."""
        loaded = self.load(extractor)
        return self.of(images, loaded), loaded.digest

    def open_projected(
        self, images: Images, named: Path | str, *, certified: bool, apart: bool = False, seeded: bool = False
    ) -> tuple[Projected, str, list[Note]]:
        """Images through a projection, its digest, and what the owner should know.

        named: the projection's file, or `photographs` for the one that comes with mixveil. apart: a projection that is
        called public must not be fitted on any of the images, as for all that is certified: the release would call its
        figures public. Only their owner learns of this refusal. seeded: an experiment, which promises nothing and is
        warned instead."""
        path = located(named)
        found, digest = projection_file.read(path)
        told: list[Note] = []
        public = apart and found.origin == "public"  # one that is called private is what it says
        if (certified or public) and (shared := projection.shared(found, images)):
            told = [note("projection-fitted-on-these", path=str(path), shared=shared, rows=len(images))]
            if not seeded:
                raise PrivateFactError(
                    f"{told[0]}: its figures are not public for them. Use a projection fitted on other data. If "
                    f"this one came from another party, do not tell them why it was refused: they would learn that "
                    f"they hold images of yours"
                )
        features, weights = self.open(images, found.extractor)
        return projection.projected(features, weights, found, certified=certified), digest, told


def chosen_extractor(backbone: str | None, stage: str | None = None, mirror: bool = False) -> Extractor | None:
    """The features that were asked for; None for pixels."""
    if backbone == "none":
        raise ArgumentError("backbone = none are the pixels: leave it out for them")
    extractor = Extractor.parse(backbone or "none", stage=stage, mirror=mirror)
    return extractor if extractor.names else None
