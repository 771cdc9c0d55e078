"""Features of images by frozen public networks, computed in batches and kept in a cache."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from mixveil.core import checks, files
from mixveil.core.errors import ArgumentError, MismatchError
from mixveil.core.types import Batch, Progress
from mixveil.core.wording.notes import Note
from mixveil.data.images import Images
from mixveil.data.row_views import RowsView
from mixveil.features.backbones import loading
from mixveil.features.extractor import Extractor

CHUNK = 2048
"""Images whose features are kept in one file."""

_BATCH = {"cpu": 16, "cuda": 512}  # images at a time: more do not fit the caches of a CPU (measured)


@dataclass(frozen=True)
class Loaded:
    """An extractor with its networks, in the order of its names, on a device."""

    extractor: Extractor
    nets: tuple[loading.Backbone, ...]
    device: torch.device

    @cached_property
    def digest(self) -> str:
        """The digest of settings and weights. Equal digests give equal features."""
        whole = {**asdict(self.extractor), "weights": [net.digest for net in self.nets]}
        return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()

    def __call__(self, images: Tensor) -> Tensor:
        """(m, d) float32 features, on the device, of (m, 1 or 3, h, w) images in [0, 1]."""
        if not self.nets:
            return images.flatten(1).float()
        return torch.cat([self.by(net, images) for net in self.nets], dim=1)

    def by(self, net: loading.Backbone, images: Tensor) -> Tensor:
        """The part of the features that one of the networks gives."""
        if images.dim() != 4 or images.shape[1] not in (1, 3):
            raise ArgumentError(f"a backbone needs images of 1 or 3 channels, got {tuple(images.shape[1:])}")
        with torch.inference_mode():
            x = images.to(self.device, torch.float32).expand(-1, 3, -1, -1)
            found = self._features(net, x)
            if self.extractor.mirror:
                found = (found + self._features(net, x.flip(3))) / 2
        return found

    def _features(self, net: loading.Backbone, x: Tensor) -> Tensor:
        stage = self.extractor.stage
        found = net.map(x, self.extractor.size, stage)
        return found.mean((2, 3)) if stage is None else found.flatten(1)


def load(extractor: Extractor, folder: Path | None, device: str | None = None) -> Loaded:
    """Load the networks of an extractor from `folder`/weights, on the GPU if there is one."""
    where = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    nets = tuple(loading.load(name, folder) for name in extractor.names)
    for net in nets:
        net.net.to(where)
    return Loaded(extractor, nets, where)


@dataclass(frozen=True)
class Features(RowsView):
    """A data set whose rows are features of images.

    Attributes:
        rows: the images themselves; labels, classes and units are theirs.
        read: from (m,) row numbers to (m, dimension) float32 features.
        extractor: which networks compute the features.
        dimension: how many features an image has.
        low, high: the range of a feature; unbounded where the networks give none.
        image_hashes: (n,) hashes of the images that the features were computed from; None where they are not known.
    """

    rows: Images = field(repr=False)
    read: Callable[[Tensor], Tensor] = field(repr=False)
    extractor: Extractor
    dimension: int
    low: float = -float("inf")
    high: float = float("inf")
    image_hashes: tuple[bytes, ...] | None = field(default=None, repr=False)

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.dimension,)

    @property
    def labels(self) -> Tensor:
        return self.rows.labels

    def take(self, index: Tensor) -> Batch:
        labels = self.labels[checks.rows_within(index, len(self))]
        return Batch(self.read(index), torch.nn.functional.one_hot(labels, len(self.classes)).float())

    def originals(self, index: Tensor) -> Sequence[Tensor]:
        """The images behind some rows. Images that changed since their features were computed are refused."""
        if self.image_hashes is not None:
            now = _hashes(self.rows.take(index).x)
            changed = [row for row, hashed in zip(index.tolist(), now, strict=True) if hashed != self.image_hashes[row]]
            if changed:
                raise MismatchError(
                    f"{len(changed)} of the images, the first of them row {changed[0]}, changed since their features "
                    f"were computed: do not change the data during an encoding, and try again"
                )
        return self.rows.originals(index)

    def part(self, index: Tensor) -> Features:
        """The rows of `index`."""
        read, known = self.read, self.image_hashes
        hashes = None if known is None else tuple(known[row] for row in index.tolist())
        return replace(self, rows=self.rows.part(index), read=lambda rows: read(index[rows]), image_hashes=hashes)

    def warnings(self) -> list[Note]:
        return self.rows.warnings()


def extract(images: Images, loaded: Loaded, cache: Path | None, progress: Progress = lambda _: None) -> Features:
    """The features of all images, by chunks. Chunks that are in the cache are not computed again. progress: called once
    for every image and network.

    They are kept as float16: three digits are more than any head can use.
    """
    index = torch.split(torch.arange(len(images)), CHUNK)
    chunks: list[Tensor] = []
    image_hashes: list[bytes] = []
    with ThreadPoolExecutor(1) as ahead:  # reads the next images while the networks compute
        coming = ahead.submit(images.take, index[0])
        for number in range(len(index)):
            x = coming.result().x
            if number + 1 < len(index):
                coming = ahead.submit(images.take, index[number + 1])
            image_hashes += _hashes(x)
            chunks.append(_chunk(x, loaded, cache, progress))
    first, size = chunks[0], len(index[0])

    def read(index: Tensor) -> Tensor:
        found = torch.empty(len(index), first.shape[1])
        place = index.div(size, rounding_mode="floor")
        for number in sorted(set(place.tolist())):
            inside = place == number
            found[inside] = chunks[number][index[inside] - number * size].float()
        return found

    return Features(images, read, loaded.extractor, first.shape[1], image_hashes=tuple(image_hashes))


def _hashes(x: Tensor) -> list[bytes]:
    """A hash of each image, by which a later change is noticed."""
    return [hashlib.blake2b(image.data, digest_size=16).digest() for image in np.ascontiguousarray(x.numpy())]


def cache_folder() -> Path:
    """MIXVEIL_CACHE, else mixveil/ in XDG_CACHE_HOME, else ~/.cache/mixveil. It is as private as the images."""
    return files.own_folder("MIXVEIL_CACHE", "XDG_CACHE_HOME", ".cache")


def _chunk(x: Tensor, loaded: Loaded, cache: Path | None, progress: Progress) -> Tensor:
    """(m, d) float16 features of one chunk, network by network from the cache, or computed and then kept there."""
    if not loaded.nets:
        progress(len(x))
        return loaded(x)
    pixels = hashlib.sha256(repr(tuple(x.shape)).encode() + x.numpy().tobytes()).digest() if cache is not None else b""
    return torch.cat([_of_network(x, pixels, net, loaded, cache, progress) for net in loaded.nets], dim=1)


def _of_network(
    x: Tensor, pixels: bytes, net: loading.Backbone, loaded: Loaded, cache: Path | None, progress: Progress
) -> Tensor:
    """The part of a chunk that one network gives. pixels: a hash of the images."""
    path = None
    if cache is not None:
        settings = {**asdict(loaded.extractor), "names": [net.name], "weights": [net.digest]}
        key = hashlib.sha256(json.dumps(settings, sort_keys=True).encode() + pixels).hexdigest()
        path = cache / "features" / f"{key}.safetensors"
        if (kept := _kept(path, len(x))) is not None:
            progress(len(x))
            return kept
    parts = []
    for batch in torch.split(x, _BATCH.get(loaded.device.type, 16)):
        parts.append(loaded.by(net, batch).half())
        progress(len(batch))
    found = torch.cat(parts).cpu()
    if path is not None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        files.write_whole(path, save({"x": found}), 0o600)
    return found


def _kept(path: Path, rows: int) -> Tensor | None:
    """The features in the cache; None where there are none, or the file is damaged."""
    try:
        with safe_open(path, framework="pt") as file:
            found: Tensor = file.get_tensor("x")
    except (OSError, SafetensorError):
        return None
    return found if found.dim() == 2 and len(found) == rows else None
