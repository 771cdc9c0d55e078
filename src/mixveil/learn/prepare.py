"""The public projection that all parties share, as a whole job."""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from mixveil.core import checks, files
from mixveil.core.errors import ArgumentError
from mixveil.core.watching import Watch, unwatched
from mixveil.core.wording.notes import Note, note
from mixveil.data.opening import NAMED, DataOptions, DataSpec
from mixveil.features import network_choice, projection_file, projection_fit
from mixveil.features.cache import Features
from mixveil.features.extractor import Extractor
from mixveil.features.network_choice import Comparison
from mixveil.features.opening import FeatureOptions
from mixveil.features.projection import Projection
from mixveil.features.projection_fit import Whitening
from mixveil.learn import public_tasks
from mixveil.releases import accounting
from mixveil.releases.ledger import Ledger


@dataclass(frozen=True)
class Prepared:
    """A projection that was written.

    Attributes:
        images: how many images it was fitted on.
        comparison: of the networks at hand, where the best was asked for.
    """

    path: Path
    sha256: str
    projection: Projection
    images: int
    warnings: tuple[Note, ...]
    comparison: Comparison | None = None


def prepare(
    public: DataSpec,
    out: Path | str,
    *,
    backbone: str = "efficientnet_lite0",
    stage: str | None = None,
    mirror: bool = False,
    whitening: Whitening = "within",
    directions: int | None = None,
    mu: float | None = None,
    parties: int | None = None,
    rows: int | None = None,
    num_classes: int | None = None,
    private: bool = False,
    options: DataOptions | None = None,
    cache: Path | str | None = None,
    ledger: Ledger | None = None,
    watch: Watch = unwatched,
) -> Prepared:
    """Fit mean, whitening and directions on public data, find settings for rounds of sums, and write both as a
    projection that every party uses.

    Args:
        public: Public data, with labels.
        out: The file to make. It must not exist.
        backbone: Public networks with + between; `best`: those at hand are compared on these data, and the best are
            taken; or `none`: the pixels. stage, mirror: of their features.
        whitening: The covariance to whiten by.
        directions: How many to keep. Else all, or as many as the rule says for mu (of the whole job), parties, rows and
            num_classes (of all parties).
        private: These data are private. The projection says so and certifies nothing, and the ledger counts it as a
            release that promises nothing.
    """
    path, options, ledger = Path(out), options or DataOptions(), ledger or Ledger()
    files.check_new(path)
    job = mu, parties, rows, num_classes
    if any(item is not None for item in job) and (None in job or directions is not None):
        raise ArgumentError("mu, parties, rows and num_classes must be given together, and without directions")
    if backbone == "best" and stage is not None:
        raise ArgumentError(f"stage = {stage!r} is of one network: name the backbone instead of best")
    extractor = None if backbone == "best" else Extractor.parse(backbone, stage=stage, mirror=mirror)
    images, comparison, opening = options.open(public), None, FeatureOptions(options, cache, watch)
    if extractor is None:
        comparison = network_choice.compare(images, opening, mirror=mirror)
        extractor = Extractor(comparison.best.names, mirror=mirror)
    features, weights = opening.open(images, extractor)
    origin: Literal["public", "private"] = "private" if private else "public"
    fitted = projection_fit.fit(features, weights, whitening=whitening, origin=origin)
    if mu is not None and parties is not None and rows is not None and num_classes is not None:
        for name, value in (("rows", rows), ("num_classes", num_classes)):
            checks.at_least(name, value, 2)
        directions = projection_fit.directions_for_sums(
            fitted, parties=parties, rows=rows, classes=num_classes, mu=mu / math.sqrt(2)
        )
    if directions is not None:
        fitted = fitted.first(directions)
    if not private:
        fitted = _with_settings(fitted, features, public, watch)
    with accounting.private_projection(ledger, features, watch) if private else nullcontext():
        digest = projection_file.write(path, fitted)
    warnings = [note("private-projection")] if private else accounting.public_was_released(ledger, images, watch)
    return Prepared(path, digest, fitted, len(images), tuple(warnings), comparison)


def _with_settings(fitted: Projection, features: Features, public: DataSpec, watch: Watch) -> Projection:
    """With settings for rounds, in the directions that it has, and the name of the public data where all know it: a
    path would tell the parties of this machine."""
    with watch("settings", len(public_tasks.LEVELS)) as step:
        rounds = public_tasks.find(features, step, most=fitted.dimension)
    named = isinstance(public, str) and public.partition(":")[0] in NAMED
    return replace(fitted, rounds=rounds, about={**fitted.about, **({"public": str(public)} if named else {})})
