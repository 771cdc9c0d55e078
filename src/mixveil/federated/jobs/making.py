"""What a party makes for a job, enters in its ledger, keeps, and sends as it was kept."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from mixveil.core import files, randomness
from mixveil.core.errors import FalseClaimError, MismatchError
from mixveil.core.types import Fact
from mixveil.core.wording.notes import note
from mixveil.data.images import Images
from mixveil.encoders import calibration
from mixveil.encoders.singular import Singular
from mixveil.features import projection, projection_file
from mixveil.features.extractor import Extractor
from mixveil.features.projection import Projected
from mixveil.federated.jobs.approval import ENTERED
from mixveil.federated.jobs.job_folder import UPDATES, JobFolder
from mixveil.federated.jobs.messages import INLINE, MANIFEST, Refusal
from mixveil.federated.jobs.party_config import computed
from mixveil.releases import traces
from mixveil.releases.envelope import Envelope
from mixveil.releases.kinds.updates import UpdateSettings
from mixveil.releases.ledger import Ledger
from mixveil.releases.reading import read_envelope, read_file, verify_release
from mixveil.releases.records import write_release
from mixveil.releases.spending import Owners
from mixveil.releases.sums import write_statistics
from mixveil.releases.writing import entry_of

_LARGEST_SIZE = 512  # pixels of a side that a server may ask for


class Making:
    """Makes the releases of one job."""

    def __init__(self, kept: JobFolder) -> None:
        self.kept, self.folder, self.config = kept, kept.folder, kept.config
        self._steps = len(kept.job.rules.sends)

    @cached_property
    def images(self) -> Images:
        return self.config.images()

    def projected(self, digest: str) -> Projected:
        """All rows, through a projection that came."""
        fitted, _ = projection_file.read(self.kept.projection_path(digest))
        wanted = fitted.weights, fitted.mean.numel()
        loaded = self.config.networks(self.images, modest(fitted.extractor), *wanted)
        protected = self.config.certified or self.config.label_epsilon is not None
        features = computed(self.images, loaded)
        rows = projection.projected(features, loaded.digest, fitted, certified=protected)
        if fitted.classes and rows.classes != fitted.classes:
            raise MismatchError("your data do not have the classes of the statistics, in the same order")
        if self.config.certified and not fitted.spent and (shared := projection.shared(fitted, self.images)):
            self.kept.log(note("projection-holds-images", images=shared))
        return rows

    @contextmanager
    def entering(self) -> Iterator[None]:
        """Around what enters something in the ledger: from then on the job is kept."""
        mark, before = self.folder / ENTERED, Ledger().total().releases
        first = not mark.exists()
        mark.touch(0o600)
        try:
            yield
        except BaseException:
            if first and Ledger().total().releases == before:
                mark.unlink()
            raise

    def make_statistics(self, digest: str | None) -> None:
        """Noisy class sums, with this step's share of μ²."""
        if digest is None:
            raise Refusal("projection-missing")
        mu, rows = self._mu(), self.projected(digest)
        with self.entering():
            share, stream = mu / math.sqrt(self._steps), randomness.SecureStream()
            write_statistics(self.folder / "statistics", rows, digest, share, stream=stream, **self.terms())

    def make_records(self, digest: str | None) -> None:
        """Encode all rows, as they are or through the projection, with this step's share of μ²."""
        rows: Images | Projected = self.images
        clip, assets, target = None, {}, self.config.target
        if digest is not None:
            rows = self.projected(digest)
            clip = Fact(rows.projection.clip, rows.projection.origin)
            assets = {"projection": digest}
        if self._steps > 1:
            target = type(target)(self._mu() / math.sqrt(self._steps))
        stream = randomness.SecureStream()
        encoder, guarantees, warnings = calibration.calibrate(
            Singular(), target, rows, clip=clip, stream=stream.fork("facts")
        )
        for text in warnings:
            self.kept.log(note("owner-warning", text=text))
        with self.entering():
            write_release(
                self.folder / "records",
                rows,
                encoder,
                guarantees,
                stream=stream.fork("release"),
                assets=assets,
                label_epsilon=self.config.label_epsilon,
                **self.terms(),
            )

    def check_own_statistics(self, digest: str | None) -> None:
        """Directions must have been found from the class sums of this party: what was agreed to then holds now."""
        if not self.kept.made("statistics"):
            raise Refusal("no-statistics-sent")
        own = read_envelope(self.folder / "statistics")
        used = () if digest is None else projection_file.read(self.kept.projection_path(digest))[0].spent
        if (own.id, own.party) not in {(item.id, item.party) for item in used}:
            raise Refusal("directions-not-own")

    def enter_updates(self, images: Images) -> None:
        """Enter the rounds of this job in the ledger, once, before anything leaves. Rounds on other records than those
        that were entered are refused."""
        book, path = Ledger(), self.folder / UPDATES
        owners = book.owners(images)
        if path.exists():
            if json.loads(path.read_text())["owners"] != _digest(owners):
                raise MismatchError("your data are not those that this job was entered with: it cannot go on")
            return
        envelope = Envelope(UpdateSettings(self.kept.job.method, {}), self.config.party, images.classes)
        promised = entry_of(envelope, len(images), self._recipient)
        with self.entering(), book.making(promised, owners, self.config.budget, against="everything"):
            files.write_json(path, {"id": promised.id, "owners": _digest(owners)})

    # What is sent

    def manifest(self, kind: str) -> bytes:
        """The manifest of what was made, if it is as it was written here."""
        folder = self.folder / kind
        written = (folder / MANIFEST).read_bytes()
        if kind == "records":
            identity = read_envelope(folder).id
            if traces.recorded_manifest(identity) != hashlib.sha256(written).hexdigest():
                raise FalseClaimError(f"{folder}: its manifest was changed since it was written here")
        return written

    def small_files(self, kind: str) -> dict[str, bytes]:
        """Check all of it; return its first files, as many as go with its manifest."""
        verify_release(self.folder / kind)
        small, room = {}, INLINE
        for file in read_envelope(self.folder / kind).files:
            room -= file.bytes
            if room < 0:
                break
            small[file.name] = (self.folder / kind / file.name).read_bytes()
        return small

    def file(self, kind: str, name: str) -> bytes:
        """One of its files, checked once more."""
        folder = self.folder / kind
        if folder.exists():
            envelope = read_envelope(folder)
            for file in envelope.files:
                if file.name == name:
                    read_file(folder, envelope, file)
                    return (folder / name).read_bytes()
        raise Refusal("no-such-file")

    def terms(self) -> dict[str, Any]:
        """What each of its releases is written with."""
        config = self.config
        return {
            "party": config.party,
            "recipient": self._recipient,
            "budget": config.budget,
            "label_budget": config.label_budget,
            "against": "everything",
        }

    def _mu(self) -> float:
        if self.config.mu is None:
            raise Refusal("needs-mu")
        return self.config.mu

    @property
    def _recipient(self) -> str:
        return f"{self.config.recipient or self.config.server or 'the server'}, job {self.kept.job.name}"


def _digest(owners: Owners) -> str:
    whole = owners.records.tobytes() + (b"" if owners.units is None else owners.units.tobytes())
    return hashlib.sha256(whole).hexdigest()


def modest(extractor: Extractor) -> Extractor:
    """Features that a server may ask for: larger images would keep the machine busy."""
    if extractor.side > _LARGEST_SIZE:
        raise Refusal("images-too-large", size=extractor.side, most=_LARGEST_SIZE)
    return extractor
