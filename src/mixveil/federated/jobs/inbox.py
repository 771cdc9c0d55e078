"""What a server keeps of a job: every release that arrived, checked as a file is, under the name of whose key sent it.

A file is checked before it gets its name, and a folder is moved to its place when all of it is there: a server that was
killed finds what had arrived, and asks for the rest.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from mixveil.core import files, randomness
from mixveil.core.errors import HashError, ManifestError, ShardSizeError
from mixveil.core.strict_json import decoded
from mixveil.federated.jobs.messages import MANIFEST, MANIFEST_LIMIT, Refusal, check_name, printable
from mixveil.federated.jobs.sums_plan import name_of
from mixveil.learn.training import ProjectionWithDigest
from mixveil.releases.envelope import Envelope, parse
from mixveil.releases.kinds.settings import Bounds
from mixveil.releases.reading import read_file
from mixveil.releases.records import SHARD_BYTES

PAYLOADS: dict[str, str] = {"statistics": "sums", "records": "records", "sums": "sums"}
"""The kind of payload of what is taken, by the name of its folder; sums have one folder a message, with its number."""

LIMIT = 8 << 30
"""Bytes of a release that a server takes, unless it is told otherwise."""

_LARGEST = 2 * SHARD_BYTES
_CLASSES = 10_000  # a discriminant takes memory by their square
_WIDE = 1e6  # by what an honest figure may differ from the clip norm


class Inbox:
    """Of one job, in its folder; the folders beside it are those of other jobs."""

    def __init__(self, folder: Path, limit: int = LIMIT) -> None:
        self.folder, self.limit = folder, limit

    def arrived(self, kind: str) -> dict[str, Path]:
        """The parties whose releases are all here."""
        place = self.folder / kind
        return {path.name: path for path in sorted(place.iterdir())} if place.is_dir() else {}

    def offer(
        self,
        party: str,
        kind: str,
        text: bytes,
        known: ProjectionWithDigest | None,
        check: Callable[[Envelope], None] = lambda stated: None,
    ) -> dict[str, int]:
        """Look at a manifest, and keep it; the files that are still to come, and their bytes. known: the projection of
        this job's records; check: refuses what else does not fit."""
        stated = _stated(kind, text)
        if stated.party != check_name("party", party):
            raise Refusal("signed-as-another", named=stated.party[:80], party=party)
        if stated.reproducible:
            raise Refusal("seeded-noise")
        if len(stated.classes) > _CLASSES:
            raise Refusal("too-many-classes", classes=len(stated.classes), most=_CLASSES)
        _check_projection(stated, known)
        _check_scale(stated)
        check(stated)
        if stated.bytes > self.limit:
            raise Refusal("too-many-bytes", bytes=stated.bytes, most=self.limit)
        for file in stated.files:
            if file.bytes > _LARGEST:
                raise Refusal("file-too-large", file=file.name[:80], bytes=file.bytes, most=_LARGEST)
        if (path := self._taken(stated, party, kind)) is not None:
            raise Refusal("taken-before", release=stated.id[:8], job=path.parents[1].name, party=path.name)
        place = self._incoming(party, kind)
        if place.is_dir() and _bytes(place / MANIFEST) != text:  # of something else
            shutil.rmtree(place)
        files.check_space(self.folder, stated.bytes)
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not (place / MANIFEST).exists():
            files.write_whole(place / MANIFEST, text, 0o600)
        return {file.name: file.bytes for file in stated.files if not (place / file.name).exists()}

    def take(self, party: str, kind: str, name: str, data: bytes) -> None:
        """Check a file that came as one on disk is checked, and keep it."""
        place = self._incoming(party, kind)
        stated = _stated(kind, (place / MANIFEST).read_bytes())
        file = next((file for file in stated.files if file.name == name), None)
        if file is None:
            raise Refusal("unknown-file", file=printable(name[:60]))
        if len(data) != file.bytes:
            raise ShardSizeError(f"{name} came with {len(data):,} bytes, its manifest says {file.bytes:,}")
        if hashlib.sha256(data).hexdigest() != file.sha256:
            raise HashError(f"{name} is not the file that its manifest names")
        looked_at = self.folder / "incoming" / f".{kind}-{party}"
        shutil.rmtree(looked_at, ignore_errors=True)
        looked_at.mkdir(mode=0o700)
        try:
            with _elsewhere(looked_at):
                files.write_file(looked_at / name, data, 0o600)
                read_file(looked_at, stated, file)
            (looked_at / name).rename(place / name)
        finally:
            shutil.rmtree(looked_at, ignore_errors=True)

    def finish(self, party: str, kind: str) -> Path:
        """All of it is here: move it to its place."""
        place = self._incoming(party, kind)
        stated = _stated(kind, (place / MANIFEST).read_bytes())
        if missing := [file.name for file in stated.files if not (place / file.name).exists()]:
            raise Refusal("files-missing", files=", ".join(missing)[:80])
        out = self.folder / kind / party
        out.parent.mkdir(mode=0o700, exist_ok=True)
        files.sync_folder(place)
        place.rename(out)
        files.sync_folder(out.parent)
        return out

    def drop(self, party: str, kind: str) -> None:
        """Forget what came of something that is not taken."""
        shutil.rmtree(self._incoming(party, kind), ignore_errors=True)

    def set_aside(self, party: str, kind: str) -> None:
        """Move away a release that does not belong here: its party may send another."""
        place = self.folder / "set-aside"
        place.mkdir(mode=0o700, exist_ok=True)
        (self.folder / kind / party).rename(place / f"{kind}-{party}-{randomness.release_id()[:8]}")

    def _incoming(self, party: str, kind: str) -> Path:
        return self.folder / "incoming" / f"{kind}-{party}"

    def _taken(self, stated: Envelope, party: str, kind: str) -> Path | None:
        """Where a release, or one of its files, lies that was taken before; None if there is none. Residual sums are
        of this round's head, and so of no other job's."""
        if "head" in stated.assets:
            return None
        for known in ("statistics", "records", name_of(0)):
            for path in self.folder.parent.glob(f"*/{known}/*/{MANIFEST}"):
                if path.parent == self.folder / kind / party:
                    continue
                text = _bytes(path).decode("utf-8", "replace")  # of any version: jobs of years lie beside one another
                if stated.id in text or any(file.sha256 in text for file in stated.files):
                    return path.parent
        return None


@contextlib.contextmanager
def _elsewhere(folder: Path) -> Iterator[None]:
    """What is wrong with a file is said without where it lay on this machine."""
    try:
        yield
    except Exception as error:
        if str(folder) in str(error):
            raise type(error)(str(error).replace(f"{folder}/", "")) from None
        raise


def _stated(kind: str, text: bytes) -> Envelope:
    if len(text) > MANIFEST_LIMIT:
        raise ManifestError(f"{len(text):,} bytes are too many for a manifest")
    stated = parse(decoded(text))
    wanted = PAYLOADS[kind.partition("-")[0]]
    if stated.kind != wanted:
        raise ManifestError(f"it holds {stated.kind}, and {wanted} were asked for")
    return stated


def _check_projection(stated: Envelope, known: ProjectionWithDigest | None) -> None:
    """Refuse what did not come through this job's projection: one party's mistake must not end the others' job."""
    digest, through = None if known is None else known[1], stated.assets.get("projection")
    if through != digest:
        raise Refusal("other-projection", sent=(through or "none")[:8], needed=(digest or "none")[:8])
    if known is None:
        return
    found, bounds = known[0], _bounds(stated)
    if bounds.shape != (found.dimension,) or not math.isclose(bounds.clip or 0.0, found.clip, rel_tol=1e-6):
        raise Refusal(
            "not-of-projection",
            shape=str(bounds.shape)[:80],
            clip=bounds.clip or 0.0,
            dimension=found.dimension,
            projection_clip=found.clip,
        )
    if found.classes and stated.classes != found.classes:
        raise Refusal("other-classes")
    if found.spent and stated.party not in {used.party for used in found.spent}:
        raise Refusal("directions-without-it")


def _bounds(stated: Envelope) -> Bounds:
    if stated.settings.bounds is None:
        raise Refusal("no-bound-or-noise")
    return stated.settings.bounds


def _check_scale(stated: Envelope) -> None:
    """Refuse figures that no party's data have: they are numbers, but what is trained on would be none."""
    shape, clip, sigma, centre, amplitude = _bounds(stated)
    if clip is None or sigma is None or amplitude is None:
        raise Refusal("no-bound-or-noise")
    if "projection" not in stated.assets and not 1 / _WIDE <= clip / math.sqrt(math.prod(shape)) <= _WIDE:
        raise Refusal("clip-out-of-range", clip=clip, values=math.prod(shape))
    for name, value, least, most in (
        ("noise", sigma, clip / _WIDE, clip * _WIDE),
        ("amplitude", amplitude, clip / _WIDE, clip * (1 + 1e-6)),
        ("centre", abs(centre), 0.0, clip * _WIDE),
    ):
        if not least <= value <= most:
            raise Refusal("figure-out-of-range", figure=name, value=value, clip=clip)


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
