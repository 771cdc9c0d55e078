"""The breaks of InstaHide by Carlini et al. and by Luo et al., on a challenge of CIFAR-10 images.

    MIXVEIL_DATA=DIR PYTHONPATH=src python -m reproduce.instahide.breaks [--what challenge augmented table]
    PYTHONPATH=src python -m reproduce.instahide.breaks --data FOLDER …   # a folder of `break_data`

100 private images, each encoded 50 times, 2 private and 4 public images a row, rows in one random order.

- `challenge`: how well every stage does, and what comes out where stages are given the truth.
- `augmented`: with and without mirroring and moving images before they are mixed, and with 10 encodings.
- `table`: the same attacks on other encoders.

Results are added to `breaks.json`, those of the table to `breaks-table.json`; the grids of pictures show CIFAR-10's
images.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from mixveil.attacks.records.carlini import Carlini
from mixveil.attacks.records.luo import Luo
from mixveil.attacks.shared.breaks.breaking import Break, Linked, Work
from mixveil.attacks.shared.stages import Oracle, Stage
from mixveil.attacks.shared.training import Schedule, TrainingCache
from mixveil.audit import oracle
from mixveil.audit.challenge_making import PreparedChallenge, encoded
from mixveil.audit.challenge_scoring import ImageScore, score_images
from mixveil.audit.challenge_truth import ChallengeTruth
from mixveil.audit.metrics import detection, sources
from mixveil.core.randomness import SeededStream
from mixveil.core.types import Encoder, Fact, Facts, Mu, Release, Tau, View
from mixveil.data.covers import Patches
from mixveil.encoders import calibration
from mixveil.encoders.instahide import InstaHide
from mixveil.encoders.mixup import Mixup
from mixveil.encoders.singular import Singular
from mixveil.releases.envelope import Envelope
from mixveil.releases.kinds.records import Records, RecordSettings
from reproduce.instahide.attacks import picture, provenance
from reproduce.instahide.break_data import PRIVATE, BreakSets, opened
from reproduce.singular.shared import Row, keep

HERE = Path(__file__).parent
TITLE = "InstaHide broken: Carlini et al. and Luo et al. on CIFAR-10"
K, TIMES, FEW, ONCE, CENTRE = 6, 50, 10, 1, 0.5
BREAKS: dict[str, type[Break]] = {"carlini": Carlini, "luo": Luo}
GIVEN: tuple[tuple[Stage, ...], ...] = ((), ("alike",), ("clusters",), ("sources",), ("sources", "weights"))
ALL: tuple[Stage, ...] = ("sources", "weights", "signs")


@dataclass(frozen=True)
class InMemory:
    """A challenge in memory: the view of an attacker, and what it hides."""

    view: View
    truth: ChallengeTruth

    def told(self, stages: Sequence[Stage]) -> Oracle:
        """What is true of the rows, for these stages."""
        return oracle.of_truth(self.view.releases[0], self.truth, stages)


def made_challenge(encoder: Encoder, sets: BreakSets, times: int, seed: int = 1) -> InMemory:
    """All private images, encoded so many times, in one random order: by the generator of `mixveil challenge make`."""
    data, n, whole = sets.private, len(sets.private), sets.covers.shape[1]
    table = torch.tensor([[number, 0, 0, whole] for number in range(len(sets.covers))], dtype=torch.int32)
    covers = Patches(sets.covers, table, data) if encoder.covers else None
    drawn = (torch.arange(n), times, encoder, covers, None, None, SeededStream(seed), ())
    rows, truth = encoded(PreparedChallenge("0" * 32, data, *drawn))
    envelope = Envelope(RecordSettings(encoder, data.shape), "challenge", data.classes, reproducible=True)
    release = Release(envelope, Records((rows,), encoder.step))
    return InMemory(View((release,), public=sets.public, covers=sets.cuts if covers else None, records=n), truth)


def instahide(sets: BreakSets, *, augmented: bool = False) -> Encoder:
    height, width = sets.private.shape[1:]
    known = {"dimension": math.prod(sets.private.shape), "centre": CENTRE, "covers": len(sets.covers)}
    known |= {"height": height, "width": width}
    facts = Facts({name: Fact(float(value), "public") for name, value in known.items()})
    return InstaHide(K, augmented=augmented).calibrate(None, facts)[0]


def encoders(sets: BreakSets) -> dict[str, Encoder]:
    """Of the table. Certified: once so that every encoding keeps μ = 1, and so that all together do."""
    made: dict[str, Encoder] = {"mixup, k = 6": Mixup(K, len(sets.covers)), "instahide, k = 6": instahide(sets)}
    together = 1 / math.sqrt(TIMES)
    targets: dict[str, Tau | Mu] = {
        "singular, τ = 1 (energy)": Tau(1.0, "energy"),
        "singular, τ = 1 (spectral)": Tau(1.0, "spectral"),
        "singular, τ = 0.01 (energy)": Tau(0.01, "energy"),
        "singular, τ = 0.01 (spectral)": Tau(0.01, "spectral"),
        "singular, certified μ = 1 each": Mu(1.0),
        "singular, certified μ = 1 together": Mu(together),
    }
    for name, target in targets.items():
        like = sets.public if isinstance(target, Mu) else None
        stream = SeededStream(0)
        made[name], _, _ = calibration.calibrate(Singular(), target, sets.private, public=like, stream=stream)
    return made


@dataclass(frozen=True)
class Study:
    sets: BreakSets
    chosen: argparse.Namespace

    def attack(self, name: str, challenge: InMemory, given: Sequence[Stage] = ()) -> Break:
        chosen = self.chosen
        cache = TrainingCache(chosen.cache, chosen.steps, watch=said)
        schedule = Schedule(chosen.epochs, chosen.batch, falling=True)
        told = challenge.told(given) if given else None
        return BREAKS[name](chosen.base, chosen.encodings, schedule, cache, told)

    def run(self, name: str, challenge: InMemory, about: Row, given: Sequence[Stage] = ()) -> Tensor:
        """Run a break, keep its figures, and return its images, each where the private image is."""
        attack, began = self.attack(name, challenge, given), time.monotonic()
        work = Work(attack, challenge.view)
        linked = work.linked()
        paired = time.monotonic() - began
        images, held = attack.recovered(work, linked)
        whole = time.monotonic() - began
        encoder = challenge.view.releases[0].encoder
        score = score_images(images, challenge.truth.images, 0.0, 1.0, mirrors=encoder.moved > 0)
        figures = image_figures(score) | stages(linked, held, challenge, work)
        settings = {**about, "attack": name, "given": ", ".join(given) or "nothing"}
        settings |= {"steps": self.chosen.steps} if self.chosen.steps else {}  # of each network, at most
        keep(
            self.chosen.out / ("breaks-table.json" if about["part"] == "table" else "breaks.json"),
            TITLE,
            {"settings": settings, "figures": figures | {"seconds to link rows": paired, "seconds": whole}},
            about=provenance(self.chosen, CENTRE),
        )
        found = images[score.assigned].clamp(0, 1)
        if score.mirrored is not None:
            found = torch.where(score.mirrored.view(-1, 1, 1, 1), found.flip(3), found)
        return found


def image_figures(score: ImageScore) -> Row:
    found, near = score.found, {"mean image": score.mean_image, "another image": score.other_image}
    figures: Row = {}
    if found.ssim is not None:
        figures |= {"SSIM": found.ssim.mean, "median SSIM": found.ssim.median, "best SSIM": found.ssim.best}
    figures |= {"recovered": found.recovered, "SNR dB": found.snr_db.mean}
    for name, of in near.items():
        if of.ssim is not None:
            figures |= {f"SSIM of {name}": of.ssim.mean, f"best SSIM of {name}": of.ssim.best}
    return figures


def stages(linked: Linked, held: Tensor, challenge: InMemory, work: Work) -> Row:
    """How well every stage did."""
    truth, n = challenge.told(()), len(challenge.truth.images)
    there = torch.zeros(len(truth.sources), n).scatter_(1, truth.sources.clamp(min=0), 1.0)
    shared, other = there @ there.T > 0, ~torch.eye(len(there), dtype=torch.bool)
    nearest = linked.alike.clone().fill_diagonal_(-torch.inf).argmax(1)
    some = torch.arange(0, len(there), max(1, len(there) // 400))
    yes, no = shared[some] & other[some], ~shared[some] & other[some]
    counts = there[linked.clusters].sum(1)
    shown = (work.pool.y[some] > 0).double() @ (work.pool.y > 0).double().T
    figures: Row = {
        "labels alone: AUC": detection.auc(shown[yes], shown[no]),
        "alike: the nearest row shares a record": float(shared.gather(1, nearest[:, None]).double().mean()),
        "alike: AUC": detection.auc(linked.alike[some][yes].double(), linked.alike[some][no].double()),
        "clusters: records found": len(set(counts.argmax(1).tolist())) / n,
        "clusters: purity": float((counts.amax(1) / linked.clusters.shape[1]).mean()),
    }
    for name, guess in (("sources", linked.sources), ("sources, once recovered", held)):
        links, _ = sources.linked(guess, truth.sources, n, renamed=True)
        figures |= {f"{name}: all right": links.whole, f"{name}: one right": links.some}
    if truth.signs is not None and (logits := work.logits(work.pool.x)) is not None:
        figures["signs found"] = float(((logits > 0) == (truth.signs > 0)).double().mean())
    return figures


def challenge(study: Study) -> None:
    made = made_challenge(instahide(study.sets), study.sets, TIMES)
    about: Row = {"part": "challenge", "release": "instahide, k = 6", "encodings": TIMES}
    strips = {"original": made.truth.images}
    rows = made.view.releases[0].payload.take(made.truth.heaviest_rows()).x.abs()
    strips["encoding, absolute values"] = rows / rows.flatten(1).amax(1).view(-1, 1, 1, 1)
    for given in (*GIVEN, ALL):
        strips[f"carlini, given {given}"] = study.run("carlini", made, about, given)
    for given in ((), ("sources",)):
        strips[f"luo, given {given}"] = study.run("luo", made, about, given)
    picture(study.chosen.out / "breaks-challenge.png", strips)


def augmented(study: Study) -> None:
    strips = {}
    for times in (TIMES, FEW):
        for moved in (True, False):
            if times == TIMES and not moved:
                continue  # that is the challenge
            made = made_challenge(instahide(study.sets, augmented=moved), study.sets, times)
            strips["original"] = made.truth.images
            about: Row = {"part": "augmented", "release": "instahide, k = 6", "augmented": moved, "encodings": times}
            for name in study.chosen.attacks:
                strips[f"{name}, T = {times}{', augmented' if moved else ''}"] = study.run(name, made, about)
    picture(study.chosen.out / "breaks-augmented.png", strips)


def table(study: Study) -> None:
    strips = {}
    for release, encoder in encoders(study.sets).items():
        if study.chosen.only and study.chosen.only not in release:
            continue
        for times in (TIMES, ONCE):
            made = made_challenge(encoder, study.sets, times)
            strips["original"] = made.truth.images
            for name in study.chosen.attacks:
                about: Row = {"part": "table", "release": release, "encodings": times}
                strips[f"{release}, T = {times}, {name}"] = study.run(name, made, about)
    picture(study.chosen.out / "breaks-table.png", strips)


def said(text: str) -> None:
    sys.stderr.write(f"\r{text:70}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = {"challenge": challenge, "augmented": augmented, "table": table}
    parser.add_argument("--what", nargs="+", choices=parts, default=list(parts))
    parser.add_argument("--attacks", nargs="+", choices=BREAKS, default=list(BREAKS), help="but of `challenge`")
    parser.add_argument("--data", type=Path, help="a folder that break_data made; else MIXVEIL_DATA is read")
    parser.add_argument("--out", type=Path, default=HERE)
    parser.add_argument("--cache", type=Path, help="where networks and stages are kept")
    parser.add_argument("--commit", default="unknown", help="of the sources, where git does not say")
    parser.add_argument("--base", type=int, default=32)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--encodings", type=int, default=50_000)
    parser.add_argument("--steps", type=int, help="at most, of a training: to try the script")
    parser.add_argument("--rows", type=int, default=PRIVATE, help="private images, at most")
    parser.add_argument("--releases", type=int, default=TIMES, help=argparse.SUPPRESS)
    parser.add_argument("--only", help="encoders of the table whose names hold this text")
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    sets = opened(chosen.data)
    sets = replace(sets, private=sets.private.part(torch.arange(chosen.rows)))
    for what in chosen.what:
        parts[what](Study(sets, chosen))


if __name__ == "__main__":
    main()
