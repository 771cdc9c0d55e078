"""The attacks of InstaHide's authors that need no network (§2, §9, Appendix E.3), and what whitening makes of them.

    PYTHONPATH=src MIXVEIL_DATA=DIR python -m reproduce.instahide.searches [--what grouping averages covers rows table4]

500 images of CIFAR-10's test set; 10,000 patches of Tiny-ImageNet with more than 40 keypoints, which attackers hold.
Results are added to `searches.json`. `rows` is the paper's table of Kolmogorov–Smirnov tests, 10 images with 400
encodings each, beside one test of all rows of an image, and `table4` the same in the paper's form beside its figures
(another file: --out reproduce/instahide/table4.json). A few minutes on two cores.
"""

from __future__ import annotations

import argparse
import csv
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from mixveil.attacks.records.braverman import Braverman, BravermanWhitened
from mixveil.attacks.records.inner_product import InnerProduct, InnerProductSquares
from mixveil.attacks.records.inner_product_average import InnerProductAverage
from mixveil.attacks.records.kolmogorov_smirnov import PLACES, p_values, paper_tables, statistics
from mixveil.attacks.records.public_search import PublicSearch
from mixveil.attacks.shared.whitening import centred, first_rows
from mixveil.audit.metrics import sources
from mixveil.core.randomness import SeededStream
from mixveil.core.types import Encoder, Fact, Facts, Mu, Release, View
from mixveil.data import similarity
from mixveil.data.covers import KEYPOINTS, Covered, Patches, patches
from mixveil.data.images import Images
from mixveil.data.opening import open_data
from mixveil.encoders import calibration
from mixveil.encoders.identity import Identity
from mixveil.encoders.instahide import InstaHide
from mixveil.encoders.mixup import Mixup
from mixveil.encoders.singular import Singular
from mixveil.releases.envelope import Envelope
from mixveil.releases.kinds.records import Records, RecordSettings
from mixveil.report import results
from reproduce.singular.shared import Row, given, keep

HERE = Path(__file__).parent
TITLE = "InstaHide's authors' attacks without a network, on CIFAR-10"
CENTRE = 0.473  # the paper takes each channel's mean away, 0.49, 0.48 and 0.45; here it is one number for all
IMAGES, ENCODINGS = 10, 400  # of the paper's tests
STATISTICS = ["mean", "std", "total_variation", "location1", "location2", "location3", "location4"]
PARTS = ("grouping", "averages", "covers", "rows", "table4")


@dataclass(frozen=True)
class Sets:
    """The private images, and the patches that are mixed in."""

    private: Images
    patches: Patches

    @property
    def x(self) -> Tensor:
        return self.private.take(torch.arange(len(self.private))).x.double()

    def view(self, encoder: Encoder, releases: int = 1) -> View:
        rows = Covered(self.private, self.patches) if encoder.covers else self.private
        made, traces = [], []
        for number in range(releases):
            stream = SeededStream(number)
            trace = encoder.plan(len(self.private), stream=stream.fork("plan"))
            batch = encoder.encode(rows, torch.arange(len(self.private)), trace, stream=stream.fork("noise"))
            envelope = Envelope(
                RecordSettings(encoder, self.private.shape), "p", self.private.classes, reproducible=True
            )
            made.append(Release(envelope, Records((batch,), encoder.step)))
            traces.append(trace)
        return View(tuple(made), tuple(traces), covers=self.patches if encoder.covers else None)


def encoder_of(name: str, k: int, sets: Sets, covers: bool = False) -> Encoder:
    count = len(sets.patches) if covers else 0
    if name == "mixup":
        return Mixup(k, count)
    if name == "identity":
        return Identity()
    if name == "certified":
        return calibration.calibrate(Singular(), Mu(1.0), sets.private, stream=SeededStream(0))[0]
    known = {"dimension": 3072.0, "centre": CENTRE, "height": 32.0, "width": 32.0}
    facts = Facts({name: Fact(value, "public") for name, value in known.items()})
    facts = facts.with_(covers=Fact(float(count), "public")) if count else facts
    return InstaHide(k, augmented=name == "instahide, moved").calibrate(None, facts)[0]


def grouping(sets: Sets) -> list[Row]:
    """Which rows share an image."""
    rows = []
    tried = [("mixup", k, 1, False) for k in (2, 4, 6)]
    tried += [("instahide", k, releases, False) for k in (4, 6) for releases in (1, 4)]
    tried += [("instahide", k, 4, True) for k in (4, 6)]
    tried += [("instahide, moved", k, 4, False) for k in (4, 6)] + [("certified", 2, 4, False)]
    for name, k, releases, covers in tried:
        view = sets.view(encoder_of(name, k, sets, covers), releases)
        flat = centred(first_rows(view)).float()
        flat /= torch.linalg.vector_norm(flat, dim=1, keepdim=True)
        told = {"plain inner product": flat @ flat.T}
        for attack in (InnerProduct(), InnerProductSquares()):
            told[attack.name] = given(attack(view, stream=SeededStream(0)).alike)
        for attacked, alike in told.items():
            found = sources.shared(alike, view.traces or ())
            if found is not None:
                figures = {"nearest": found.nearest / found.rows, "chance": found.chance, "auc": found.auc}
                rows.append(_row("grouping", name, k, covers, attacked, figures, releases=releases))
    return rows


def averages(sets: Sets) -> list[Row]:
    """What is left of the mean's error."""
    rows = []
    for k in (2, 4, 6):
        for releases in (1, 2, 4, 10):
            view = sets.view(encoder_of("mixup", k, sets), releases)
            images = given(InnerProductAverage()(view, stream=SeededStream(0)).images)
            figures = _compared(sets.x, images)
            rows.append(_row("averages", "mixup", k, False, InnerProductAverage.name, figures, releases=releases))
    return rows


def covers(sets: Sets) -> list[Row]:
    """Which public images are in a row, and what is left without them."""
    rows = []
    for k in (4, 6):
        for name in ("mixup", "instahide", "instahide, moved"):
            view = sets.view(encoder_of(name, k, sets, covers=True))
            held = (view.traces or ())[0].partner[:, 1:] - len(sets.private)
            for attack in (PublicSearch(), Braverman(), BravermanWhitened()):
                started = time.perf_counter()
                guess = attack(view, stream=SeededStream(0))
                found = sources.covers(given(guess.covers), held)
                figures = {"found": found.hits / len(held), "chance": found.chance, "rank": found.rank}
                figures |= {} if guess.images is None else _compared(sets.x, guess.images)
                figures["seconds"] = round(time.perf_counter() - started, 1)
                rows.append(_row("covers", name, k, True, attack.name, figures))
    return rows


def tested(sets: Sets) -> list[Row]:
    """The paper's tests, one encoding at a time, and one test of all encodings of an image."""
    rows = []
    tried = [("identity", 1, False), ("mixup", 4, True), ("instahide", 4, False), ("instahide", 4, True)]
    for name, k, mixed in [*tried, ("instahide", 6, True), ("certified", 2, False)]:
        figured = _statistics(sets, encoder_of(name, k, sets, mixed))
        tables = paper_tables(figured, stream=SeededStream(2))
        figures = {
            "p alone, mean": float(tables.p_other.mean()),
            "p alone, least": float(tables.p_other.min()),
            "p alone, most": float(tables.p_other.max()),
            "told apart": sources.told_apart(p_values(figured)) / IMAGES,
        }
        rows.append(_row("rows", name, k, mixed, "kolmogorov-smirnov", figures, releases=ENCODINGS))
    return rows


def table4(sets: Sets) -> list[Row]:
    """The paper's Table 4 in its own form, its figures beside ours; and p of one test of all encodings of an image."""
    figured = _statistics(sets, encoder_of("instahide", 4, sets, covers=True))
    ours, whole = paper_tables(figured, stream=SeededStream(2)), p_values(figured)
    rows = []
    with (HERE / "claims" / "table4.csv").open() as file:
        for line in csv.DictReader(file):
            place = int(line["image"]) - 1, STATISTICS.index(line["statistic"])
            figures = {
                "p all": float(ours.p_all[place]),
                "paper p all": float(line["p_all"]),
                "p other": float(ours.p_other[place]),
                "paper p other": float(line["p_other"]),
                "p of all encodings": float(whole[place]),
            }
            settings = {"part": "table4", "image": int(line["image"]), "statistic": line["statistic"]}
            rows.append({"settings": settings, "figures": figures})
    return rows


def _statistics(sets: Sets, encoder: Encoder) -> Tensor:
    """(images, encodings, statistics) of the first images."""
    data = Covered(sets.private, sets.patches) if encoder.covers else sets.private
    places, told = SeededStream(1).permutation(3072)[:PLACES], []
    for number in range(ENCODINGS):
        stream = SeededStream(number)
        trace = encoder.plan(len(sets.private), stream=stream.fork("plan"))
        x = encoder.encode(data, torch.arange(IMAGES), trace, stream=stream.fork("noise")).x.double()
        told.append(statistics(x if encoder.step is None else x * encoder.step, places))
    return torch.stack(told, dim=1)


def _row(part: str, name: str, k: int, covers: bool, attack: str, figures: dict[str, float], releases: int = 1) -> Row:
    settings = {"part": part, "encoder": name, "k": k, "public patches": covers, "releases": releases, "attack": attack}
    return {"settings": settings, "figures": figures}


def _compared(truth: Tensor, images: Tensor) -> dict[str, float]:
    guess, mean = images.clamp(0, 1), truth.mean(0)
    left = similarity.mse(truth, guess).mean() / similarity.mse(truth, mean.expand_as(truth)).mean()
    snr = similarity.snr_db(truth - mean, guess - mean)
    return {"error left": float(left), "SSIM": float(similarity.ssim(truth, guess).mean()), "SNR dB": float(snr.mean())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--what", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--patches", type=int, default=10_000)
    parser.add_argument("--out", type=Path, default=HERE / "searches.json")
    chosen = parser.parse_args()
    private = open_data("cifar10:test").part(torch.arange(chosen.rows))
    cut = patches(
        open_data("tiny-imagenet"), private, count=chosen.patches, keypoints=KEYPOINTS, stream=SeededStream(3)
    )
    about = results.provenance({"rows": chosen.rows, "patches": chosen.patches, "keypoints": KEYPOINTS})
    sets = Sets(private, cut)
    made = {"grouping": grouping, "averages": averages, "covers": covers, "rows": tested, "table4": table4}
    for part in chosen.what:
        keep(chosen.out, TITLE, *made[part](sets), about=about)


if __name__ == "__main__":
    main()
