"""How far our attacks get on CIFAR-10 at 224 × 224, where the paper's linear attack and U-Net are known.

    MIXVEIL_DATA=DIR python -m reproduce.singular.attacks [--seeds 3]

Noise is that of the paper's experiments (calibration `energy`, α = 0.7, every own weight 0.7). Images of 32 × 32 that
were enlarged to 224 × 224 lie in 3,072 of its 150,528 dimensions; the attacker projects there first, which an
orthonormal basis does without loss, and drops the noise outside. The attacks are those of the package.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mixveil.attacks.records.linkage import Linkage, Membership
from mixveil.attacks.records.lmmse import Lmmse, LmmseRow
from mixveil.attacks.records.lowpass import Lowpass, LowpassRow
from mixveil.attacks.records.radius import Radius, RadiusLabels
from mixveil.audit.metrics.detection import tpr_at_fpr
from mixveil.core.randomness import SeededStream, Stream
from mixveil.core.types import Batch, Release, Trace, View
from mixveil.data.images import Images
from mixveil.data.opening import open_data
from mixveil.data.similarity import snr_db
from mixveil.releases.kinds.records import Records
from mixveil.report import results
from reproduce.singular.shared import (
    ALPHA,
    MEAN,
    STD,
    Row,
    as_images,
    given,
    possible,
    projected,
    released,
    unprojected,
)

TAUS = (1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5)


def normalised(name: str, start: int, stop: int) -> tuple[Tensor, Tensor]:
    """Pixels after the paper's preprocessing, at 32 × 32, and labels."""
    data = open_data(name)
    index = torch.arange(start, stop)
    return (data.take(index).x - MEAN) / STD, data.labels[index]


def enlarged(x: Tensor) -> Tensor:
    return torch.nn.functional.interpolate(x, size=224, mode="bilinear")


def linear(seed: int, rows: int, public: dict[str, Images]) -> list[Row]:
    """LMMSE, linkage and membership in the projected space; as many images again that are not in the release."""
    x, labels = normalised("cifar10:test", 2 * seed * rows % 9000, 2 * seed * rows % 9000 + rows)
    other, _ = normalised("cifar10", 20_000 + seed * rows, 20_000 + (seed + 1) * rows)
    data = as_images(projected(x), labels)
    variance = float(enlarged(x[:500]).var())
    truth = data.take(torch.arange(rows)).x
    candidates = torch.cat([truth, projected(other).float()])
    found = []
    for tau in TAUS:
        for fixed in (True, False):
            stream = SeededStream(seed).fork(f"{tau} {fixed}")
            release, trace = released(data, tau, variance, stream, fixed=fixed)
            for source, known in public.items():
                if source != "cifar10" and not fixed:
                    continue
                view = View((release,), (trace,), known, candidates)
                row: Row = {"seed": seed, "tau": tau, "weights": "0.7" if fixed else "drawn", "public": source}
                for attack in (Lmmse(), LmmseRow()):
                    guess = projected(possible(unprojected(given(attack(view, stream=stream).images))))
                    row[f"{attack.name} dB"] = float(snr_db(truth, guess).mean())
                if source == "cifar10":
                    links = given(Linkage()(view, stream=stream).links)
                    scores = given(Membership()(view, stream=stream).scores)
                    row["row identified"] = float(links[:rows].argmax(1).eq(torch.arange(rows)).double().mean())
                    row["members found at 1 % false alarms"] = tpr_at_fpr(scores[:rows], scores[rows:], 0.01)
                found.append(said(row))
    return found


def lowpass(seed: int) -> list[Row]:
    """At 224 × 224 itself, with as many public images as fit."""
    found = []
    x, labels = normalised("cifar10:test", 200 * seed, 200 * seed + 200)
    shown, marks = normalised("cifar10", 0, 300)
    data, public = as_images(enlarged(x), labels), as_images(enlarged(shown), marks)
    truth = data.take(torch.arange(200)).x
    for tau in (1.0, 1e-1, 1e-2):
        stream = SeededStream(seed).fork(f"lowpass {tau}")
        release, trace = released(data, tau, float(truth.var()), stream)
        view = View((release,), (trace,), public)
        row: Row = {"seed": seed, "tau": tau, "weights": "0.7"}
        for attack in (Lowpass(), LowpassRow()):
            guess = possible(given(attack(view, stream=stream).images))
            row[f"{attack.name} dB"] = float(snr_db(truth, guess).mean())
        found.append(said(row))
    return found


def radius(seed: int) -> list[Row]:
    """Which two of 200 candidates, of 40,000 ordered pairs, are a row's sources? At 224 × 224."""
    found = []
    x, labels = normalised("cifar10:test", 5000 + 200 * seed, 5200 + 200 * seed)
    data = as_images(enlarged(x), labels)
    truth = data.take(torch.arange(200)).x
    for tau in (1e-2, 1e-4, 1e-6):
        for noise in ("sphere", "sphere in float32", "gaussian"):
            stream = SeededStream(seed).fork(f"radius {tau} {noise}")
            release, trace = released(data, tau, float(truth.var()), stream, noise=noise.split()[0])
            if noise == "sphere in float32":
                release = with_float32_sphere(release, truth, trace, stream)
            view = View((release,), candidates=truth, candidate_labels=labels)
            asked = labels != labels[trace.partner[:, 0]]  # where labels show the weights
            right = torch.stack([torch.arange(200), trace.partner[:, 0]], dim=1)
            row: Row = {"seed": seed, "tau": tau, "noise": noise}
            for attack in (Radius(), RadiusLabels()):
                pairs = given(attack(view, stream=stream).pairs)
                row[f"{attack.name}: pairs found"] = float(pairs.eq(right).all(1)[asked].double().mean())
            found.append(said(row))
    return found


def with_float32_sphere(release: Release, truth: Tensor, trace: Trace, stream: Stream) -> Release:
    """The same release with noise that is drawn, normalised and mixed in float32, as quick scripts do."""
    x = truth.flatten(1).float()
    noise = stream.fork("float32").normal(*x.shape).float()
    noise *= release.encoder.sigma * x.shape[1] ** 0.5 / noise.norm(dim=1, keepdim=True)
    own, other = trace.weight.float().T[:, :, None]
    rows = own * x + other * (x[trace.partner[:, 0]] + noise)
    labels = release.payload.take(torch.arange(len(x))).y
    return release.with_(payload=Records((Batch(rows.view(truth.shape), labels),), None))


def said(row: Row) -> Row:
    sys.stderr.write(json.dumps(row) + "\n")
    return row


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
    rows: list[Row] = []
    for seed in range(chosen.seeds):
        rows += lowpass(seed) + radius(seed) + linear(seed, chosen.rows, public)
    about = results.provenance({"rows": chosen.rows, "public_rows": 10_000, "alpha": ALPHA})
    out = Path(__file__).parent / "attacks.json"
    results.write_results(out, results.Results("Attacks on CIFAR-10 at 224 × 224", about, as_rows(rows)))


def as_rows(rows: list[Row]) -> tuple[dict[str, Any], ...]:
    """What was set, and what came out."""
    known = {"seed", "tau", "weights", "public", "noise"}
    return tuple(
        {
            "settings": {name: value for name, value in row.items() if name in known},
            "figures": {name: value for name, value in row.items() if name not in known},
        }
        for row in rows
    )


if __name__ == "__main__":
    main()
