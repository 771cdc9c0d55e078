"""How far our attacks get on CIFAR-10 at 224 × 224, where the paper's linear attack and U-Net are known.

    MIXVEIL_DATA=DIR python -m reproduce.singular.attacks [--seeds 3]

Noise is that of the paper's experiments (calibration `energy`, α = 0.7, every own weight 0.7). Images of 32 × 32 that
were enlarged to 224 × 224 lie in 3,072 of its 150,528 dimensions; the attacker projects there first, which an
orthonormal basis does without loss, and drops the noise outside. The attacks are those of the package.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mixveil.attacks.linkage import Linkage
from mixveil.attacks.lmmse import Lmmse, LmmseRow
from mixveil.attacks.lowpass import Lowpass
from mixveil.attacks.radius import Radius
from mixveil.data import Images, open_data
from mixveil.encoders.singular import Singular
from mixveil.keys import SeededStream, Stream
from mixveil.metrics.image import snr_db
from mixveil.release import Records
from mixveil.theory.snr import amplification
from mixveil.types import Attack, Release, Trace, View

ALPHA = 0.7
TAUS = (1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5)
MEAN = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
STD = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)
WIDE = 1e4


def enlarge() -> Tensor:
    """(224, 32): bilinear enlargement of one axis."""
    rows = torch.nn.functional.interpolate(torch.eye(32)[None], size=224, mode="linear")[0]
    return rows.T.double()


def normalised(name: str, start: int, stop: int) -> tuple[Tensor, Tensor]:
    """Pixels after the paper's preprocessing, at 32 × 32, and labels."""
    data = open_data(name)
    index = torch.arange(start, stop)
    return (data.take(index).x - MEAN) / STD, data.labels[index]


def projected(x: Tensor) -> Tensor:
    """Coordinates of the enlarged images in an orthonormal basis of where they can lie."""
    r = torch.linalg.qr(enlarge()).R
    coordinates: Tensor = r @ x.double() @ r.T
    return coordinates


def enlarged(x: Tensor) -> Tensor:
    return torch.nn.functional.interpolate(x, size=224, mode="bilinear")


def as_images(x: Tensor, labels: Tensor) -> Images:
    names = tuple(str(i) for i in range(int(labels.max()) + 1))
    return Images("projected", lambda index: x[index].float(), labels, names, tuple(x.shape[1:]), -WIDE, WIDE)


def released(
    data: Images, tau: float, variance: float, stream: Stream, *, noise: str = "gaussian", fixed: bool = True
) -> tuple[Release, Trace]:
    """A release as the paper makes it: `energy` noise, and every own weight 0.7 unless they are drawn."""
    sigma = (variance * (amplification(ALPHA) / tau - 1)) ** 0.5
    encoder = Singular(ALPHA, noise, False, 0.0, WIDE * 1e3, WIDE, sigma)  # type: ignore[arg-type]
    trace = encoder.plan(len(data), stream=stream.fork("plan"))
    if fixed:
        trace = Trace(trace.partner, torch.tensor([[ALPHA, 1 - ALPHA]]).expand(len(data), 2).contiguous())
    batch = encoder.encode(data, torch.arange(len(data)), trace, stream=stream.fork("noise"))
    payload = Records((batch,), encoder.step)
    return Release("0" * 32, "paper", payload, data.shape, data.classes, encoder, (), False, True), trace


def decibels(attack: Attack, view: View, truth: Tensor, stream: Stream) -> float:
    images = attack(view, stream=stream).images
    if images is None:
        raise SystemExit(f"{attack.name} gave no images")
    return float(snr_db(truth, images).mean())


def linear(seed: int, rows: int, public: dict[str, Images]) -> list[dict[str, Any]]:
    """LMMSE and linkage in the projected space."""
    x, labels = normalised("cifar10:test", seed * rows, (seed + 1) * rows)
    data = as_images(projected(x), labels)
    variance = float(enlarged(x[:500]).var())
    truth = data.take(torch.arange(rows)).x
    found = []
    for tau in TAUS:
        for fixed in (True, False):
            stream = SeededStream(seed).fork(f"{tau} {fixed}")
            release, trace = released(data, tau, variance, stream, fixed=fixed)
            for source, known in public.items():
                if source != "cifar10" and not fixed:
                    continue
                view = View((release,), (trace,), known, truth)
                row: dict[str, Any] = {
                    "seed": seed,
                    "tau": tau,
                    "weights": "0.7" if fixed else "drawn",
                    "public": source,
                }
                row["lmmse_db"] = decibels(Lmmse(), view, truth, stream)
                row["lmmse_row_db"] = decibels(LmmseRow(), view, truth, stream)
                links = Linkage()(view, stream=stream).links if source == "cifar10" else None
                if links is not None:
                    row["row_identified"] = float(links.argmax(1).eq(torch.arange(rows)).double().mean())
                found.append(row)
                sys.stderr.write(json.dumps(row) + "\n")
    return found


def at_full_size(seed: int) -> list[dict[str, Any]]:
    """Low-pass, and the radius check against sphere noise, at 224 × 224 itself."""
    found: list[dict[str, Any]] = []
    x, labels = normalised("cifar10:test", 5000 + 200 * seed, 5200 + 200 * seed)
    shown, marks = normalised("cifar10", 0, 300)
    data, public = as_images(enlarged(x), labels), as_images(enlarged(shown), marks)
    truth = data.take(torch.arange(200)).x
    variance = float(truth.var())
    for tau in (1.0, 1e-1, 1e-2):
        stream = SeededStream(seed).fork(f"lowpass {tau}")
        release, trace = released(data, tau, variance, stream)
        row = {
            "seed": seed,
            "tau": tau,
            "lowpass_db": decibels(Lowpass(), View((release,), (trace,), public), truth, stream),
        }
        found.append(row)
        sys.stderr.write(json.dumps(row) + "\n")
    for tau, noise in ((1e-2, "sphere"), (1e-4, "sphere"), (1e-6, "sphere"), (1e-4, "gaussian")):
        stream = SeededStream(seed).fork(f"radius {tau} {noise}")
        release, trace = released(data, tau, variance, stream, noise=noise)
        pairs = Radius()(View((release,), candidates=truth), stream=stream).pairs
        asked = labels != labels[trace.partner[:, 0]]
        right = torch.stack([torch.arange(200), trace.partner[:, 0]], dim=1)
        share = float(pairs.eq(right).all(1)[asked].double().mean()) if pairs is not None else 0.0
        found.append({"seed": seed, "tau": tau, "noise": noise, "pairs_found": share})
        sys.stderr.write(json.dumps(found[-1]) + "\n")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=2000)
    chosen = parser.parse_args()
    public = {
        name: as_images(projected(x), labels)
        for name in ("cifar10", "cifar100")
        for x, labels in [normalised(name, 10_000, 20_000)]
    }
    rows: list[dict[str, Any]] = []
    for seed in range(chosen.seeds):
        rows += linear(seed, chosen.rows, public)
        rows += at_full_size(seed)
    about: dict[str, Any] = {"time": datetime.now(UTC).isoformat(timespec="seconds"), "torch": torch.__version__}
    about |= {"python": platform.python_version(), "rows": chosen.rows, "public_rows": 10_000, "alpha": ALPHA}
    out = Path(__file__).parent / "attacks.json"
    out.write_text(json.dumps({"provenance": about, "results": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
