"""The audit of an owner's own update: what a party of federated averaging would send."""

from __future__ import annotations

import torch

from mixveil.audit import updates
from mixveil.audit.own_data import AuditedKind, OwnReleases, public_whole
from mixveil.core.errors import WrongTruthError
from mixveil.core.randomness import SeededStream
from mixveil.core.types import Release
from mixveil.data.images import Images
from mixveil.releases.updates import settings_of


def trained_on(releases: tuple[Release, ...], images: Images) -> Images:
    """The first rows of the data: as many as the update says that the party had."""
    training = settings_of(releases[0]).training
    if training is None or training.rows == len(images):
        return images
    if training.rows > len(images):
        raise WrongTruthError(
            f"release {releases[0].id} was made of {training.rows:,} rows, and the truth has {len(images):,}"
        )
    return images.part(torch.arange(training.rows))


def audited(own: OwnReleases) -> AuditedKind:
    """Attack an update."""
    known = public_whole(own.public, own.images)  # membership is not measured: no image is kept as a stranger
    perceptual, more = own.perceptual(own.images.shape)
    found = updates.audit(
        own.releases,
        own.images,
        public=known,
        names=own.attacks,
        profile=own.profile,
        stream=SeededStream(own.seed),
        watch=own.watch,
        tell=own.tell,
        perceptual=perceptual,
        cache=own.training,
    )
    return AuditedKind(found, None, more)
