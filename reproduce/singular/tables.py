"""The paper's Tables 1 to 3: its two attacks as it made them, ours beside them, and what LPIPS would screen out.

    MIXVEIL_DATA=DIR python -m reproduce.singular.tables 1|2|3 [--data cifar10 …] [--tau 1 …] [--seeds 1]

Images at 224 × 224 under ImageNet's normalisation, noise by `energy`, every own weight 0.7 (§5.1, App. F; the number of
images, α and the constants of SSIM are from the authors' code). A cell that is in its file is not made again, so a run
that was stopped goes on. Made for a GPU; a few images (`--rows`) do on a CPU, into other files.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from mixveil.attacks.records.linear import recovered
from mixveil.attacks.records.lmmse import Lmmse, LmmseRow
from mixveil.attacks.records.unet import Unet
from mixveil.attacks.records.unet_strong import UnetStrong
from mixveil.attacks.shared.model import MixingMatrix
from mixveil.attacks.shared.pixels import Pixels
from mixveil.attacks.shared.training import Schedule, TrainingCache, fastest
from mixveil.core.device_random import DeviceStream
from mixveil.core.randomness import SeededStream
from mixveil.core.types import Attack, Batch, Release, Trace, View
from mixveil.data import similarity
from mixveil.data.opening import data_folder, open_data
from mixveil.encoders.singular import CalibratedSingular
from mixveil.features import lpips
from mixveil.features.cache import cache_folder
from mixveil.releases.envelope import Envelope
from mixveil.releases.kinds.records import Records, RecordSettings
from mixveil.report import results
from mixveil.theory.snr import amplification
from reproduce.singular.shared import (
    ALPHA,
    MEAN,
    STD,
    WIDE,
    Row,
    as_images,
    given,
    keep,
    known,
    possible,
    projected,
    released,
    unprojected,
)

TAUS = (1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
TEST = {"mnist": "MNIST", "cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "tiny-imagenet": "Tiny-ImageNet"}
FURTHER = {"cifar5m": "CIFAR-5M"}
"""Not in the stored results: its 18 GB cannot be had everywhere."""

THRESHOLDS = (0.7, 0.9)
SPREAD_ROWS = 2048
HERE = Path(__file__).parent


def opened(name: str, split: str, rows: int) -> tuple[Tensor, Tensor]:
    """Pixels in [0, 1] in three channels, at their own size, and labels: the first rows; of Tiny-ImageNet's training
    images, which are sorted by class, as many spread over all."""
    data = open_data({"tiny-imagenet:test": "tiny-imagenet:val"}.get(f"{name}:{split}", f"{name}:{split}"))
    sorted_ = (name, split) == ("tiny-imagenet", "train")
    rows = min(rows, len(data))
    index = torch.linspace(0, len(data) - 1, rows).round().long() if sorted_ else torch.arange(rows)
    return data.take(index).x.expand(-1, 3, -1, -1), data.labels[index]


def large(x: Tensor) -> Tensor:
    return interpolate(x, size=(224, 224), mode="bilinear")


def normalised(x: Tensor) -> Tensor:
    return (x - MEAN.to(x)) / STD.to(x)


def pixels(x: Tensor) -> Tensor:
    return (x * STD.to(x) + MEAN.to(x)).clamp(0, 1)


def variance(x: Tensor) -> float:
    """Of all normalised pixels around one mean, over up to 2,048 of the images, spread over them: V/d of the paper's
    code. The first images of MNIST's test set vary less than the others."""
    some = torch.linspace(0, len(x) - 1, min(SPREAD_ROWS, len(x))).round().long()
    return float(large(normalised(x[some])).double().var())


def mixed(x: Tensor, tau: float, spread: float, draws: DeviceStream) -> tuple[Tensor, Trace]:
    """Rows of normalised images as the paper makes them, on a device, and their trace: sphere noise, weights 0.7."""
    noise = draws.normal(x)
    radius = (x[0].numel() * spread * (amplification(ALPHA) / tau - 1)) ** 0.5
    noise *= radius / noise.flatten(1).norm(dim=1).view(-1, 1, 1, 1)
    partner = draws.cycle(len(x))
    rows = ALPHA * x + (1 - ALPHA) * (x[partner.to(x.device)] + noise)
    return rows, Trace(partner[:, None], torch.tensor([[ALPHA, 1 - ALPHA]]).expand(len(x), 2).contiguous())


@dataclass(frozen=True)
class Compared:
    """Figures of guesses, beside the paper's."""

    distance: lpips.Lpips
    constants: tuple[float, float]

    def __call__(self, truth: Tensor, guess: Tensor, paper: Row) -> Row:
        """Both normalised at 224 × 224, on the CPU."""
        parts = zip(torch.split(truth, 64), torch.split(guess, 64), strict=True)
        found = [self._part(a.to(self.distance.device), b.to(self.distance.device)) for a, b in parts]
        figures: Row = {}
        for name, key in (("SNR dB", "snr-db"), ("SSIM", "ssim"), ("LPIPS", "lpips")):
            values = torch.cat([part[name] for part in found])
            figures |= {name: float(values.mean()), f"{name} std": float(values.std())}
            if name == "SNR dB":
                figures["best SNR dB"] = float(values.max())
            if paper:
                figures |= {f"paper's {name}": float(paper[key]), f"{name} - paper": figures[name] - float(paper[key])}
        return figures

    def _part(self, truth: Tensor, guess: Tensor) -> dict[str, Tensor]:
        shown, found = pixels(truth).float(), pixels(guess).float()
        similar = similarity.ssim(shown, found, self.constants).cpu()
        return {"SNR dB": similarity.snr_db(truth, guess).cpu(), "SSIM": similar, "LPIPS": self.distance(shown, found)}


def published(table: int, tau: float, data: str | None = None) -> Row:
    """The paper's row of a τ, and of a data set where the table has several."""
    with (HERE / "claims" / f"table{table}.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if float(row["tau"]) == tau and (data is None or row["dataset"] == {**TEST, **FURTHER}[data]):
                return row
    return {}


def screened(work: Work) -> Iterator[Row]:
    """Table 1: the share of rows that are nearer to their own record than a threshold, LPIPS by VGG."""
    distance = lpips.load("vgg", data_folder(None))
    for data in work.data:
        x, _ = opened(data, "test", work.rows or 10_000)
        spread = variance(x)
        for tau in work.taus:
            settings = {"data": data, "tau": tau, "rows": len(x), "V over": "2,048 spread images"}
            if work.has(settings):
                continue
            draws, near = DeviceStream(SeededStream(0).fork(f"{data} {tau}")), []
            for part in torch.split(x, 500):
                truth = large(normalised(part).to(distance.device))
                rows, _ = mixed(truth, tau, spread, draws)
                near.append(distance(pixels(truth), pixels(rows)))
            apart = torch.cat(near)
            figures = {f"LPIPS < {limit} %": 100 * float((apart < limit).double().mean()) for limit in THRESHOLDS}
            figures |= {"LPIPS": float(apart.mean()), "least LPIPS": float(apart.min())}
            yield {
                "settings": settings,
                "figures": {**figures, "paper's %": float(published(1, tau, data)["excluded_percent"])},
            }


def linear(work: Work) -> Iterator[Row]:
    """Table 2: the linear attack on 512 images, SSIM with the published constants, LPIPS by VGG."""
    compared = Compared(lpips.load("vgg", data_folder(None)), similarity.PUBLISHED_SSIM)
    device = compared.distance.device
    for data in work.data:
        x, _ = opened(data, "test", 10_000)
        spread = variance(x)
        truth = large(normalised(x[: work.rows or 512]).to(device))
        for tau in work.taus:
            settings = {"data": data, "tau": tau, "rows": len(truth), "V over": "2,048 spread images"}
            if work.has(settings):
                continue
            draws, started = DeviceStream(SeededStream(0).fork(f"{data} {tau}")), time.perf_counter()
            rows, trace = mixed(truth, tau, spread, draws)
            found = recovered(MixingMatrix.of((trace,)), [rows], Pixels(3, 0.0, 1.0, normalised=True))
            figures = compared(truth.cpu(), found.cpu(), published(2, tau, data))
            yield {"settings": settings, "figures": {**figures, "seconds": time.perf_counter() - started}}


def networks(work: Work) -> Iterator[Row]:
    """Table 3: 2,000 CIFAR-10 images, SSIM with the usual constants, LPIPS by AlexNet."""
    compared = Compared(lpips.load("alex", data_folder(None)), similarity.SSIM)
    x, labels = opened("cifar10", "test", work.rows or 2000)
    truth, spread = large(normalised(x)), variance(x)
    for seed in range(work.seeds):
        for tau in work.taus:
            for name, public in work.attacks:
                settings = {"attack": name, "public": public, "tau": tau, "rows": len(x), "seed": seed}
                if name == "unet-strong" and work.smaller is not None:
                    settings |= {"base": work.smaller.base, "epochs": work.smaller.schedule.epochs}
                if work.has(settings):
                    continue
                started = time.perf_counter()
                if name == "unet":
                    guess = by_unet(truth, labels, tau, spread, public, seed, work)
                else:
                    guess = by_whole(normalised(x), labels, tau, spread, name, public, seed, work)
                paper = published(3, tau) if name == "unet" else {}
                figures = compared(truth, guess, paper)
                yield {"settings": settings, "figures": {**figures, "seconds": time.perf_counter() - started}}


def by_unet(truth: Tensor, labels: Tensor, tau: float, spread: float, public: str, seed: int, work: Work) -> Tensor:
    """The paper's network at 224 × 224, trained on 4,000 public images."""
    rows, trace = mixed(truth.to(fastest()), tau, spread, DeviceStream(SeededStream(seed).fork(f"rows {tau}")))
    sigma = (spread * (amplification(ALPHA) / tau - 1)) ** 0.5
    encoder = CalibratedSingular(alpha=ALPHA, centre=0.0, clip=WIDE * 1e3, amplitude=WIDE, sigma=sigma)
    y = torch.nn.functional.one_hot(labels, 10).float()
    payload = Records((Batch(rows.cpu(), ALPHA * y + (1 - ALPHA) * y[trace.partner[:, 0]]),), None)
    classes = tuple(str(i) for i in range(10))
    release = Release(Envelope(RecordSettings(encoder, (3, 224, 224)), "paper", classes, reproducible=True), payload)
    shown, marks = opened(public, "train", 4000)
    known = as_images(large(normalised(shown)), marks)
    attack = Unet(normalised=True, cache=work.cache)
    return given(attack(View((release,), (trace,), known), stream=SeededStream(seed).fork("unet")).images).float()


def by_whole(
    x: Tensor, labels: Tensor, tau: float, spread: float, name: str, public: str, seed: int, work: Work
) -> Tensor:
    """Ours, where images of 32 × 32 lie: in 3,072 of 150,528 dimensions, without the noise outside."""
    release, trace = released(as_images(projected(x), labels), tau, spread, SeededStream(seed).fork(f"rows {tau}"))
    shown, marks = opened(public, "train", 10_000)
    small = interpolate(shown, size=(32, 32), mode="bilinear", antialias=True)
    view = View((release,), (trace,), as_images(projected(normalised(small)), marks))
    strong = replace(work.smaller or UnetStrong(), cache=work.cache)
    attacks: dict[str, Attack] = {"unet-strong": strong, "lmmse": Lmmse()}
    attacks["lmmse-row"] = LmmseRow()
    guess = given(attacks[name](view, stream=SeededStream(seed).fork(name)).images)
    return large(possible(unprojected(guess)).float())


@dataclass(frozen=True)
class Work:
    """What is asked for, and the file that it goes to. smaller: the strong network, where it is not the usual one."""

    out: Path
    data: tuple[str, ...]
    taus: tuple[float, ...]
    rows: int | None
    seeds: int
    attacks: tuple[tuple[str, str], ...]
    cache: TrainingCache
    smaller: UnetStrong | None = None

    def has(self, settings: Row) -> bool:
        return known(self.out, settings)


TABLES = {
    1: ("Rows that LPIPS would screen out (Table 1)", screened),
    2: ("The paper's linear attack (Table 2)", linear),
    3: ("Networks against CIFAR-10 (Table 3)", networks),
}
ATTACKS = ("unet:tiny-imagenet", "lmmse-row:tiny-imagenet", "lmmse:tiny-imagenet", "unet-strong:tiny-imagenet")


def said(text: str) -> None:
    sys.stderr.write(f"\r{text}   ")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=int, choices=TABLES)
    parser.add_argument("--data", nargs="+", choices=[*TEST, *FURTHER], default=list(TEST))
    parser.add_argument("--tau", nargs="+", type=float, default=list(TAUS))
    parser.add_argument("--attacks", nargs="+", default=list(ATTACKS), help="ATTACK:PUBLIC, of Table 3")
    parser.add_argument("--small", action="store_true", help="a small strong network, for a CPU")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--rows", type=int, help="so many images only, for a trial")
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    out = chosen.out or HERE / f"table{chosen.table}.json"
    if chosen.rows is not None and out.parent == HERE:
        parser.error("--rows is for a trial: name another file with --out")
    title, make = TABLES[chosen.table]
    pairs = tuple((name, public) for name, _, public in (text.partition(":") for text in chosen.attacks))
    cache = TrainingCache(cache_folder(), compiled=torch.cuda.is_available(), watch=said)
    smaller = UnetStrong(base=16, schedule=Schedule(2, batch=64, falling=True)) if chosen.small else None
    work = Work(out, tuple(chosen.data), tuple(chosen.tau), chosen.rows, chosen.seeds, pairs, cache, smaller)
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    about = results.provenance({"alpha": ALPHA}, device=device)
    for row in make(work):
        keep(out, title, {**row, "figures": {**row["figures"], "commit": about["commit"]}}, about=about)


if __name__ == "__main__":
    main()
