"""What the audits of all kinds are given: an owner's releases, the images that they were made of, and public images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from mixveil.attacks.shared.training import TrainingCache
from mixveil.audit.found import Audit
from mixveil.audit.sweep import Swept
from mixveil.core.errors import ArgumentError
from mixveil.core.types import Dataset, Release
from mixveil.core.watching import Moment, Observe, Warn
from mixveil.core.wording.notes import Note, note
from mixveil.data.images import Images
from mixveil.data.opening import DataOptions
from mixveil.data.row_views import Subset
from mixveil.encoders.calibration import check_same_kind
from mixveil.features import lpips
from mixveil.features.cache import cache_folder
from mixveil.features.lpips import Lpips
from mixveil.releases.ledger import Ledger


@dataclass(frozen=True)
class OwnReleases:
    """An owner's releases of one kind, opened, and how they are to be attacked, as `mixveil.audit` takes it.

    Attributes:
        images: That the releases were made of.
        public: Images like them that an attacker may hold.
    """

    releases: tuple[Release, ...]
    images: Images
    public: Images | None
    options: DataOptions
    ledger: Ledger
    attacks: Sequence[str] | None
    profile: str
    seed: int
    steps: int | None
    cache: Path | str | None
    watch: Observe
    tell: Warn

    @property
    def training(self) -> TrainingCache:
        """Where attacks train."""
        folder = cache_folder() if self.cache is None else Path(self.cache)
        return TrainingCache(folder, self.steps, watch=lambda text: self.watch(Moment(text)))

    def perceptual(self, shape: tuple[int, ...]) -> tuple[list[Lpips], list[Note]]:
        """LPIPS by the networks whose files are there, for images; and a note on those that are not."""
        if len(shape) != 3 or shape[0] not in (1, 3):
            return [], []
        found = lpips.found(self.options.folder)
        missing = {net: known.file for net, known in lpips.KNOWN.items() if net not in found}
        told = [note("lpips-not-measured", nets=[*missing], files=[*missing.values()])]
        return [lpips.load(net, self.options.folder) for net in found], told if missing else []


class AuditedKind(NamedTuple):
    """What the audit of one kind of releases gives. swept: the same at other settings; more: to add to its verdict."""

    audit: Audit
    swept: Swept | None
    more: list[Note]


def public_halves(public: Any, data: Dataset) -> tuple[Subset | None, Subset | None]:
    """Public data in two halves: what the attacker knows, and images that are not in the release, as many as there
    are: an audit takes as many as it needs that are really in none."""
    if public is None:
        return None, None
    check_same_kind(data, public)
    if len(public) < 4:
        raise ArgumentError(f"{len(public)} rows are too few for public data")
    return known_half(public), Subset(public, torch.arange(1, len(public), 2))


def public_whole(public: Images | None, data: Dataset) -> Images | None:
    """Public data for attacks that need no strangers: the attacker knows them all."""
    if public is None:
        return None
    check_same_kind(data, public)
    if len(public) < 2:
        raise ArgumentError(f"{len(public)} rows are too few for public data: give 2 at least")
    return public


def known_half(public: Any) -> Subset:
    """Every other row of public data: sets are often sorted by class."""
    return Subset(public, torch.arange(0, len(public), 2))
