"""What the scripts of this folder share: the paper's preprocessing, its releases, and files of results."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mixveil.core.randomness import Stream
from mixveil.core.types import Release, Trace
from mixveil.data.images import Images
from mixveil.encoders.singular import CalibratedSingular
from mixveil.releases.envelope import Envelope
from mixveil.releases.kinds.records import Records, RecordSettings
from mixveil.report import results
from mixveil.theory.snr import amplification

ALPHA = 0.7
MEAN = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
STD = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)
WIDE = 1e4
Row = dict[str, Any]


def enlarge() -> Tensor:
    """(224, 32): bilinear enlargement of one axis."""
    rows = torch.nn.functional.interpolate(torch.eye(32)[None], size=224, mode="linear")[0]
    return rows.T.double()


def projected(x: Tensor) -> Tensor:
    """Coordinates of the enlarged images in an orthonormal basis of where they can lie."""
    r = torch.linalg.qr(enlarge()).R
    coordinates: Tensor = r @ x.double() @ r.T
    return coordinates


def unprojected(coordinates: Tensor) -> Tensor:
    """Pixels at 32 × 32, from coordinates."""
    r = torch.linalg.qr(enlarge()).R
    inverse = torch.linalg.inv(r)
    pixels: Tensor = inverse @ coordinates.double() @ inverse.T
    return pixels


def possible(pixels: Tensor) -> Tensor:
    """Clamped to the range that a pixel can have: what every attacker knows."""
    return torch.minimum(torch.maximum(pixels, -MEAN / STD), (1 - MEAN) / STD)


def as_images(x: Tensor, labels: Tensor) -> Images:
    names = tuple(str(i) for i in range(int(labels.max()) + 1))
    return Images("projected", lambda index: x[index].float(), labels, names, tuple(x.shape[1:]), -WIDE, WIDE)


def released(
    data: Images, tau: float, variance: float, stream: Stream, *, noise: str = "gaussian", fixed: bool = True
) -> tuple[Release, Trace]:
    """A release as the paper makes it: `energy` noise, and every own weight 0.7 unless they are drawn."""
    sigma = (variance * (amplification(ALPHA) / tau - 1)) ** 0.5
    settings: dict[str, Any] = {"centre": 0.0, "clip": WIDE * 1e3, "amplitude": WIDE, "sigma": sigma, "noise": noise}
    encoder = CalibratedSingular(alpha=ALPHA, **settings)
    trace = encoder.plan(len(data), stream=stream.fork("plan"))
    if fixed:
        trace = Trace(trace.partner, torch.tensor([[ALPHA, 1 - ALPHA]]).expand(len(data), 2).contiguous())
    batch = encoder.encode(data, torch.arange(len(data)), trace, stream=stream.fork("noise"))
    envelope = Envelope(RecordSettings(encoder, data.shape), "paper", data.classes, reproducible=True)
    return Release(envelope, Records((batch,), encoder.step)), trace


def given(guess: Tensor | None) -> Tensor:
    """What an attack guessed; it must have guessed it."""
    if guess is None:
        raise SystemExit("an attack did not say what it was asked for")
    return guess


def known(path: Path, settings: Row) -> bool:
    """Whether a file of results has a row with these settings."""
    return path.exists() and any(row["settings"] == settings for row in results.read_results(path).rows)


def keep(path: Path, title: str, *rows: Row, about: Row) -> None:
    """Add rows to a file of results, in place of older ones with the same settings."""
    for row in rows:
        sys.stderr.write(f"{row}\n")
    earlier = results.read_results(path).rows if path.exists() else ()
    new = [row["settings"] for row in rows]
    left = [row for row in earlier if row["settings"] not in new]
    results.write_results(path, results.Results(title, about, (*left, *rows)))
