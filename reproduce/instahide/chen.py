"""The attack of Chen et al. 2020 on images of independent normal values: how many it solves, and behind which encoders.

    PYTHONPATH=src python -m reproduce.instahide.chen [--what sizes limits encoders]

Results are added to `chen.json`. `sizes`: InstaHide with two images a row, six releases, 20 to 40 images; `limits`:
fewer releases and fewer values, ten sets of 20 images each; `encoders`: 30 images behind other encoders, and what keeps
the attack from running where it does not. No data are needed, but for scikit-learn's digits. Two minutes on one core.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from mixveil.attacks.records.chen import Chen
from mixveil.attacks.shared.base import CannotAttackError
from mixveil.core.randomness import SeededStream
from mixveil.core.types import Batch, Encoder, Fact, Facts, Mu, Release, Rows, Target, Tau, View
from mixveil.data.covers import Covered
from mixveil.data.images import Images
from mixveil.data.opening import open_data
from mixveil.data.row_views import InMemoryRows
from mixveil.encoders import calibration
from mixveil.encoders.instahide import InstaHide
from mixveil.encoders.mixup import Mixup
from mixveil.encoders.singular import Singular
from mixveil.releases.envelope import Envelope
from mixveil.releases.kinds.records import Records, RecordSettings
from mixveil.report import results
from reproduce.singular.shared import Row, given, keep

HERE = Path(__file__).parent
TITLE = "Chen et al.'s attack on images of independent normal values"
VALUES, RELEASES, COVERS, CLASSES, WIDE = 20_000, 6, 40, 4, 10.0
EXACT = 1e-5
PARTS = ("sizes", "limits", "encoders")


def normal(n: int, values: int, seed: int) -> Images:
    x = SeededStream(seed).normal(n, values).float()
    names = tuple(map(str, range(CLASSES)))
    return Images("normal", lambda index: x[index], torch.arange(n) % CLASSES, names, (values,), -WIDE, WIDE)


def instahide(values: int, k: int = 2, covers: int = 0) -> Encoder:
    known = {"dimension": values, "centre": 0, **({"covers": covers} if covers else {})}
    return InstaHide(k).calibrate(None, Facts({name: Fact(float(value), "public") for name, value in known.items()}))[0]


@dataclass(frozen=True)
class Trial:
    """Several releases of images; covers: the public images that are mixed in, where some are."""

    data: Images
    encoder: Encoder
    releases: int
    covers: Rows | None = None

    def view(self, seed: int) -> tuple[View, Tensor]:
        """What the attacker sees, and (m, 2) the two images of each row."""
        index, made, sources = torch.arange(len(self.data)), [], []
        rows: Rows = self.data if self.covers is None else Covered(self.data, self.covers)
        for number in range(self.releases):
            stream = SeededStream(1000 * seed + number)
            trace = self.encoder.plan(len(self.data), stream=stream.fork("plan"))
            batch = self.encoder.encode(rows, index, trace, stream=stream.fork("noise"))
            envelope = Envelope(
                RecordSettings(self.encoder, self.data.shape), "p", self.data.classes, reproducible=True
            )
            made.append(Release(envelope, Records((batch,), self.encoder.step)))
            sources.append(torch.stack([index, trace.partner[:, 0]], dim=1))
        return View(tuple(made), covers=self.covers), torch.cat(sources)

    def attacked(self, seed: int, *, ordered: bool = True) -> dict[str, float | str]:
        """The share of rows whose images are right, the largest error of an image beside its length, and what is left
        of the error of knowing nothing; or the code of what keeps the attack from running."""
        view, truth = self.view(seed)
        if not ordered:
            view, truth = shuffled(view, truth, len(self.data), seed)
        started = time.perf_counter()
        try:
            guess = Chen()(view, stream=SeededStream(0))
        except CannotAttackError as error:
            return {"refused": error.why.code, "seconds": round(time.perf_counter() - started, 2)}
        seconds, sources = round(time.perf_counter() - started, 2), given(guess.sources)
        number = torch.arange(len(self.data)) if ordered else numbered(sources, truth, len(self.data))
        named = torch.where(sources < 0, sources, number[sources.clamp(min=0)])
        right = float((named.sort(1).values == truth.sort(1).values).all(1).double().mean())
        images, true = given(guess.images).flatten(1), self.data.take(number).x.flatten(1).double()
        if self.encoder.masked and not self.encoder.covers:
            images = images * (images * true).sum(0).sign()
        apart = (images - true).square().sum(1)
        worst = float((apart / true.square().sum(1)).max().sqrt())
        left = float(apart.sum() / (true - true.mean()).square().sum())
        return {"pairs right": right, "largest error": worst, "error left": left, "seconds": seconds}


def shuffled(view: View, truth: Tensor, records: int, seed: int) -> tuple[View, Tensor]:
    """All rows as one release in no known order."""
    batches = [release.payload.take(torch.arange(len(release.payload))) for release in view.releases]
    order = SeededStream(seed).permutation(len(truth))
    x, y = (torch.cat(parts)[order] for parts in zip(*batches, strict=True))
    release = view.releases[0].with_(payload=InMemoryRows(Batch(x, y)))
    return replace(view, releases=(release,), records=records), truth[order]


def numbered(sources: Tensor, truth: Tensor, records: int) -> Tensor:
    """(n,) the record of each image: that which is in most of its rows."""
    together = torch.zeros(records, records)
    for named, true in zip(sources.tolist(), truth.tolist(), strict=True):
        for image in set(named) - {-1}:
            together[image, true] += 1
    return together.argmax(1)


def sizes() -> list[Row]:
    """InstaHide of two images a row."""
    rows = []
    for n in (20, 25, 30, 35, 40):
        for ordered in (True, False):
            for seed in (1, 2, 3):
                trial = Trial(normal(n, VALUES, seed), instahide(VALUES), RELEASES)
                settings = {"part": "sizes", "encoder": "instahide", "k": 2, "images": n, "rows": n * RELEASES}
                settings |= {"values": VALUES, "order": "known" if ordered else "unknown", "seed": seed}
                rows.append({"settings": settings, "figures": trial.attacked(seed, ordered=ordered)})
    return rows


def limits() -> list[Row]:
    """How often all 20 images are exact, of ten sets, or most of them (in part); and what keeps it from running."""
    rows = []
    for ordered in (True, False):
        for releases in (3, 4, 5, 6, 8):
            for values in (2500, 5000, 10_000):
                told = Counter[str]()
                for seed in range(10):
                    trial = Trial(normal(20, values, seed), instahide(values), releases)
                    found = trial.attacked(seed, ordered=ordered)
                    exact = "refused" not in found and float(found["largest error"]) < EXACT
                    told["exact" if exact else str(found.get("refused", "in part"))] += 1
                settings = {"part": "limits", "encoder": "instahide", "k": 2, "images": 20, "rows": 20 * releases}
                settings |= {"values": values, "order": "known" if ordered else "unknown"}
                rows.append(
                    {"settings": settings, "figures": {name: count / 10 for name, count in sorted(told.items())}}
                )
    return rows


def encoders() -> list[Row]:
    """What other encoders leave to it."""
    data, covers = normal(30, VALUES, 1), normal(COVERS, VALUES, 99)
    tried: list[tuple[str, Trial]] = [
        ("mixup, k = 2", Trial(data, Mixup(), RELEASES)),
        ("mixup, k = 4, public images", Trial(data, Mixup(4, COVERS), RELEASES, covers)),
        ("instahide, k = 2", Trial(data, instahide(VALUES), RELEASES)),
        ("instahide, k = 4, public images", Trial(data, instahide(VALUES, 4, COVERS), RELEASES, covers)),
        ("instahide, k = 4", Trial(data, instahide(VALUES, 4), RELEASES)),
    ]
    for tau in (1.0, 1e-2):
        for kind in ("energy", "spectral"):
            noisy = calibrated(data, Tau(tau, kind))
            tried.append((f"singular, tau = {tau:g}, {kind}", Trial(data, noisy, RELEASES)))
    tried.append(("singular, mu = 1", Trial(data, calibrated(data, Mu(1.0)), RELEASES)))
    digits = open_data("digits").part(torch.arange(30))
    tried.append(("mixup, k = 2, of digits", Trial(digits, Mixup(), RELEASES)))
    rows = []
    for name, trial in tried:
        values = torch.Size(trial.data.shape).numel()
        settings = {"part": "encoders", "encoder": name, "images": 30, "rows": 30 * RELEASES, "values": values}
        rows.append({"settings": settings, "figures": trial.attacked(1)})
    return rows


def calibrated(data: Images, target: Target) -> Encoder:
    """Singular with its noise. The clip norm of μ is one that hardly clips normal values: a public choice."""
    clip = 1.05 * data.shape[0] ** 0.5 if isinstance(target, Mu) else None
    return calibration.calibrate(Singular(), target, data, clip=clip, stream=SeededStream(0))[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--what", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--out", type=Path, default=HERE / "chen.json")
    chosen = parser.parse_args()
    about = results.provenance({"values": VALUES, "releases": RELEASES, "covers": COVERS, "classes": CLASSES})
    made = {"sizes": sizes, "limits": limits, "encoders": encoders}
    for part in chosen.what:
        keep(chosen.out, TITLE, *made[part](), about=about)


if __name__ == "__main__":
    main()
