"""What a server keeps of a job: every release that arrived, checked as a file is, under the name of whose key sent it.

A file is checked before it gets its name, and a folder is moved to its place when all of it is there: a server that was
killed finds what had arrived, and asks for the rest.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from mixveil.core import files, randomness
from mixveil.core.errors import HashError, ManifestError, ShardSizeError
from mixveil.federated.jobs.messages import MANIFEST, MANIFEST_LIMIT, check_name, printable
from mixveil.federated.jobs.notes import Refusal
from mixveil.learn.training import Known
from mixveil.releases import manifest, sums
from mixveil.releases.records import SHARD_BYTES, read_manifest, read_shard
from mixveil.releases.sums import read_statistics

Kind = Literal["statistics", "records"]
KINDS: tuple[Kind, ...] = ("statistics", "records")
LIMIT = 8 << 30
"""Bytes of a release that a server takes, unless it is told otherwise."""

_LARGEST = 2 * SHARD_BYTES
_CLASSES = 10_000  # a discriminant takes memory by their square
_WIDE = 1e6  # by what an honest figure may differ from the clip norm


@dataclass(frozen=True)
class Stated:
    """What a manifest says, before any of its files came. clip, sigma, centre, amplitude: None where its encoder has
    none; files: of each its bytes and SHA-256."""

    id: str
    party: str
    reproducible: bool
    projection: str | None
    shape: tuple[int, ...]
    clip: float | None
    sigma: float | None
    centre: float
    amplitude: float | None
    classes: tuple[str, ...]
    files: Mapping[str, tuple[int, str]]

    @property
    def bytes(self) -> int:
        return sum(size for size, _ in self.files.values())


class Inbox:
    """Of one job, in its folder; the folders beside it are those of other jobs."""

    def __init__(self, folder: Path, limit: int = LIMIT) -> None:
        self.folder, self.limit = folder, limit

    def arrived(self, kind: Kind) -> dict[str, Path]:
        """The parties whose releases are all here."""
        place = self.folder / kind
        return {path.name: path for path in sorted(place.iterdir())} if place.is_dir() else {}

    def offer(self, party: str, kind: Kind, text: bytes, known: Known) -> dict[str, int]:
        """Look at a manifest, and keep it; the files that are still to come, and their bytes. known: the projection of
        this job's records."""
        stated = _stated(kind, text)
        if stated.party != check_name("party", party):
            raise Refusal("signed-as-another", named=stated.party[:80], party=party)
        if stated.reproducible:
            raise Refusal("seeded-noise")
        if len(stated.classes) > _CLASSES:
            raise Refusal("too-many-classes", classes=len(stated.classes), most=_CLASSES)
        _check_projection(stated, known)
        _check_scale(stated)
        if stated.bytes > self.limit:
            raise Refusal("too-many-bytes", bytes=stated.bytes, most=self.limit)
        for name, (size, _) in stated.files.items():
            if size > _LARGEST:
                raise Refusal("file-too-large", file=name[:80], bytes=size, most=_LARGEST)
        if (path := self._taken(stated, party, kind)) is not None:
            raise Refusal("taken-before", release=stated.id[:8], job=path.parents[1].name, party=path.name)
        place = self._incoming(party, kind)
        if place.is_dir() and _bytes(place / MANIFEST) != text:  # of something else
            shutil.rmtree(place)
        files.check_space(self.folder, stated.bytes)
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not (place / MANIFEST).exists():
            files.write_whole(place / MANIFEST, text, 0o600)
        return {name: size for name, (size, _) in stated.files.items() if not (place / name).exists()}

    def take(self, party: str, kind: Kind, name: str, data: bytes) -> None:
        """Check a file that came as one on disk is checked, and keep it."""
        place = self._incoming(party, kind)
        stated = _stated(kind, (place / MANIFEST).read_bytes())
        if name not in stated.files:
            raise Refusal("unknown-file", file=printable(name[:60]))
        size, digest = stated.files[name]
        if len(data) != size:
            raise ShardSizeError(f"{name} came with {len(data):,} bytes, its manifest says {size:,}")
        if hashlib.sha256(data).hexdigest() != digest:
            raise HashError(f"{name} is not the file that its manifest names")
        looked_at = self.folder / "incoming" / f".{kind}-{party}"
        shutil.rmtree(looked_at, ignore_errors=True)
        looked_at.mkdir(mode=0o700)
        try:
            with _elsewhere(looked_at):
                (looked_at / MANIFEST).write_bytes((place / MANIFEST).read_bytes())
                files.write_file(looked_at / name, data, 0o600)
                if kind == "statistics":
                    read_statistics(looked_at)
                else:
                    said = read_manifest(looked_at)
                    read_shard(looked_at, said, next(shard for shard in said.shards if shard.file == name))
            (looked_at / name).rename(place / name)
        finally:
            shutil.rmtree(looked_at, ignore_errors=True)

    def finish(self, party: str, kind: Kind) -> Path:
        """All of it is here: move it to its place."""
        place = self._incoming(party, kind)
        stated = _stated(kind, (place / MANIFEST).read_bytes())
        if missing := [name for name in stated.files if not (place / name).exists()]:
            raise Refusal("files-missing", files=", ".join(missing)[:80])
        out = self.folder / kind / party
        out.parent.mkdir(mode=0o700, exist_ok=True)
        files.sync_folder(place)
        place.rename(out)
        files.sync_folder(out.parent)
        return out

    def drop(self, party: str, kind: Kind) -> None:
        """Forget what came of something that is not taken."""
        shutil.rmtree(self._incoming(party, kind), ignore_errors=True)

    def set_aside(self, party: str, kind: Kind) -> None:
        """Move away a release that does not belong here: its party may send another."""
        place = self.folder / "set-aside"
        place.mkdir(mode=0o700, exist_ok=True)
        (self.folder / kind / party).rename(place / f"{kind}-{party}-{randomness.release_id()[:8]}")

    def _incoming(self, party: str, kind: Kind) -> Path:
        return self.folder / "incoming" / f"{kind}-{party}"

    def _taken(self, stated: Stated, party: str, kind: Kind) -> Path | None:
        """Where a release, or one of its files, lies that was taken before; None if there is none."""
        digests = {digest for _, digest in stated.files.values()}
        for known in KINDS:
            for path in self.folder.parent.glob(f"*/{known}/*/{MANIFEST}"):
                if path.parent == self.folder / kind / party:
                    continue
                with contextlib.suppress(OSError, ManifestError):
                    other = _stated(known, path.read_bytes())
                    if other.id == stated.id or digests & {digest for _, digest in other.files.values()}:
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


def _stated(kind: Kind, text: bytes) -> Stated:
    if len(text) > MANIFEST_LIMIT:
        raise ManifestError(f"{len(text):,} bytes are too many for a manifest")
    try:
        plain = text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ManifestError(f"not UTF-8: {error}") from None
    if kind == "statistics":
        stated, file = sums.parsed(plain)
        size, digest = file["bytes"], file["sha256"]
        if type(size) is not int or not isinstance(digest, str):
            raise ManifestError("its file has no size, or no SHA-256")
        return Stated(
            stated["id"],
            stated["party"],
            stated["reproducible"],
            stated["projection"],
            (stated["dimension"],),
            stated["clip"],
            stated["sigma"],
            0.0,
            stated["clip"],
            stated["classes"],
            {sums.FILE: (size, digest)},
        )
    said = manifest.parse(plain)
    shards = {shard.file: (shard.bytes, shard.sha256) for shard in said.shards}
    return Stated(
        said.id,
        said.party,
        said.reproducible,
        said.assets.get("projection"),
        said.shape,
        getattr(said.encoder, "clip", None),
        getattr(said.encoder, "sigma", None),
        getattr(said.encoder, "centre", 0.0),
        getattr(said.encoder, "amplitude", None),
        said.classes,
        shards,
    )


def _check_projection(stated: Stated, known: Known) -> None:
    """Refuse what did not come through this job's projection: one party's mistake must not end the others' job."""
    digest = None if known is None else known[1]
    if stated.projection != digest:
        raise Refusal("other-projection", sent=_named(stated.projection), needed=_named(digest))
    if known is None:
        return
    found = known[0]
    if stated.shape != (found.dimension,) or not math.isclose(stated.clip or 0.0, found.clip, rel_tol=1e-6):
        raise Refusal(
            "not-of-projection",
            shape=str(stated.shape)[:80],
            clip=stated.clip or 0.0,
            dimension=found.dimension,
            projection_clip=found.clip,
        )
    if found.classes and stated.classes != found.classes:
        raise Refusal("other-classes")
    if found.spent and stated.party not in {used.party for used in found.spent}:
        raise Refusal("directions-without-it")


def _check_scale(stated: Stated) -> None:
    """Refuse figures that no party's data have: they are numbers, but what is trained on would be none."""
    clip, sigma, amplitude = stated.clip, stated.sigma, stated.amplitude
    if clip is None or sigma is None or amplitude is None:
        raise Refusal("no-bound-or-noise")
    if stated.projection is None and not 1 / _WIDE <= clip / math.sqrt(math.prod(stated.shape)) <= _WIDE:
        raise Refusal("clip-out-of-range", clip=clip, values=math.prod(stated.shape))
    for name, value, least, most in (
        ("noise", sigma, clip / _WIDE, clip * _WIDE),
        ("amplitude", amplitude, clip / _WIDE, clip * (1 + 1e-6)),
        ("centre", abs(stated.centre), 0.0, clip * _WIDE),
    ):
        if not least <= value <= most:
            raise Refusal("figure-out-of-range", figure=name, value=value, clip=clip)


def _named(digest: str | None) -> str:
    return "none" if digest is None else digest[:8]


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
