"""The audit of an owner's own releases of representations."""

from __future__ import annotations

from pathlib import Path

from mixveil.audit import representations
from mixveil.audit.own_data import AuditedKind, OwnReleases, public_whole
from mixveil.core.errors import ArgumentError
from mixveil.core.randomness import SeededStream
from mixveil.features.split.half import Half, read_half
from mixveil.releases.representations import check_takes


def audited(own: OwnReleases, *, client: Half | Path | str | None) -> AuditedKind:
    """Attack releases of representations. client: as for `mixveil.audit`."""
    if client is None:
        raise ArgumentError("client: these releases hold representations; give the client half that made them (client)")
    half = client if isinstance(client, Half) else read_half(client, "client")
    representations.check_client(own.releases, half)  # before public data are compared with these
    check_takes(half, own.images)
    known = public_whole(own.public, own.images)  # membership is not measured: no image is kept as a stranger
    perceptual, more = own.perceptual(own.images.shape)
    found = representations.audit(
        own.releases,
        own.images,
        client=half,
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
