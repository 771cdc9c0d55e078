"""What the paper's recipe learns: frozen features, its noise at a nominal τ, its classifier (§5, App. E, Table 4).

    MIXVEIL_DATA=DIR python -m reproduce.singular.accuracy [--data cifar10] [--backbone efficientnet_lite0]

Four ways to train on the same features with the same noise: in the clear; re-mixed in every batch, as the paper's code
does (which needs the raw data at every step, so it is no release); on one release, as its protocol says; on four
releases of each record, each of which counts. Accuracies are the last epoch's; the best epoch's on the test set is what
the paper's code reports, and stands beside them for that comparison alone. The noise of releases is secure, as it is
when they leave, so runs repeat up to that. Runs that are in the file already are kept.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import get_args

import torch
from torch import Tensor

from mixveil.core.randomness import SecureStream, SeededStream
from mixveil.core.types import Fact, Release, Tau
from mixveil.core.watching import unwatched
from mixveil.data.opening import data_folder, open_data
from mixveil.encoders.batch_transform import BatchTransform
from mixveil.encoders.calibration import facts_for, watched_moments
from mixveil.encoders.singular import PAPER_ALPHA, CalibratedSingular, Singular
from mixveil.features import cache, displacement
from mixveil.features.cache import Features
from mixveil.features.displacement import Displacement, Normalisation
from mixveil.features.extractor import Extractor
from mixveil.learn.batches import BatchSource, Released, RemixedEveryBatch
from mixveil.learn.distributed import Group
from mixveil.learn.fit import TrainingRecipe, fit
from mixveil.learn.mlp import Classifier
from mixveil.releases.records import in_memory
from mixveil.report import results
from mixveil.theory.snr import directional_snr
from reproduce.singular.shared import Row, keep, known

PAPER = {"mnist": 99.32, "cifar10": 90.51, "cifar100": 75.99, "tiny-imagenet": 72.5}
"""Table 4, singularized mixup at τ = 1e-6, in percent."""

PAPER_TAU = 1e-6

TEST = {"tiny-imagenet": "tiny-imagenet:val"}
MODES = {
    "clear": "in the clear",
    "remixed": "re-mixed every batch: no release",
    "one": "one release",
    "four": "four releases",
}
_ROWS = 1024


@dataclass
class Work:
    """One data set, its features in memory and on the device, and the encoder that the nominal τ gives."""

    data: str
    extractor: Extractor
    train: Features
    test: Features
    x: Tensor
    test_x: Tensor
    encoder: CalibratedSingular
    measured: list[Displacement]
    lambda_max: float
    releases: dict[int, Release] = field(default_factory=dict)
    """Of one seed: `four` holds that of `one`."""

    def source(self, mode: str, seed: int) -> BatchSource:
        classes = len(self.train.classes)
        if mode in ("clear", "remixed"):
            transform = BatchTransform(self.encoder, classes=classes, stream=SeededStream(seed))
            chosen = None if mode == "clear" else transform
            return RemixedEveryBatch(self.x, self.train.labels, classes, chosen)
        return Released([self.release(number) for number in range(4 if mode == "four" else 1)], self.x.device)

    def release(self, number: int) -> Release:
        if number not in self.releases:
            self.releases[number] = in_memory(self.train, self.encoder, (), party="party", stream=SecureStream())
        return self.releases[number]

    @torch.no_grad()
    def accuracy(self, model: Classifier) -> float:
        found = [model(part.float()).argmax(1).cpu() for part in torch.split(self.test_x, _ROWS)]
        return 100 * float(torch.cat(found).eq(self.test.labels).double().mean())


def on(device: torch.device, found: Features) -> Tensor:
    """(n, d) float16 features on a device."""
    x = torch.empty(len(found), *found.shape, dtype=torch.float16, device=device)
    for index in torch.split(torch.arange(len(found)), _ROWS):
        x[index[0] : index[-1] + 1] = found.read(index).to(device, torch.float16)
    return x


def prepared(data: str, extractor: Extractor, tau: float, normalisation: Normalisation, rows: int | None) -> Work:
    loaded = cache.load(extractor, data_folder(None))
    sets = []
    for name in (data, TEST.get(data, f"{data}:test")):
        images = open_data(name)
        images = images if rows is None else images.part(torch.arange(0, len(images), max(1, len(images) // rows)))
        sys.stderr.write(f"features of {len(images):,} images of {name}\n")
        sets.append(cache.extract(images, loaded, None))
    train, test = sets
    stream = SeededStream(0)
    measured = displacement.measure(
        train.rows, loaded, [1.0, tau], alpha=PAPER_ALPHA, normalisation=normalisation, stream=stream.fork("noise")
    )
    x, test_x = (on(loaded.device, found) for found in sets)
    target = Tau(tau, "displacement")
    facts = facts_for(
        target,
        replace(train, read=lambda index: x[index.to(x.device)].float()),  # read on the device
        public=None,
        clip=None,
        moments_of=watched_moments(stream.fork("facts"), unwatched),
        displacement=Fact(measured[-1].radius, "private"),
    )
    encoder, _ = Singular().calibrate(target, facts)
    return Work(data, extractor, train, test, x, test_x, encoder, measured, facts["lambda_max"])


def radii(work: Work, tau: float, common: Row) -> Iterator[Row]:
    """The radius at τ = 1 and at the nominal τ, and what features realise with it."""
    dimension = torch.Size(work.train.shape).numel()
    for nominal, found in zip((1.0, tau), work.measured, strict=True):
        realised = directional_snr(work.lambda_max, found.radius / dimension**0.5, PAPER_ALPHA)
        figures = {
            "image radius": found.image_radius,
            "pixels clamped %": 100 * found.clamped,
            "feature radius": found.radius,
            "feature norm": found.feature_norm,
            "dimension": dimension,
            "realised SNR": realised,
        }
        yield {"settings": {**common, "nominal tau": nominal}, "figures": figures}


def trained(work: Work, mode: str, recipe: TrainingRecipe, *, compare: bool) -> dict[str, float]:
    """The figures of one training. compare: with the paper's."""
    heard: list[float] = []
    source = work.source(mode, recipe.seed)
    started = time.perf_counter()
    group = Group(device=work.x.device)
    fit(source, recipe, group=group, on_epoch=lambda epoch, model: heard.append(work.accuracy(model)))
    figures = {
        "accuracy %": heard[-1],
        "best epoch on the test set %": max(heard),
        "seconds": time.perf_counter() - started,
    }
    if compare:
        figures |= {"paper %": PAPER[work.data], "ours - paper": heard[-1] - PAPER[work.data]}
    return figures


def main() -> None:
    here = Path(__file__).parent
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="cifar10")
    parser.add_argument("--backbone", default="efficientnet_lite0")
    parser.add_argument("--stage", default="head", help="the last map, not pooled; none: pooled")
    parser.add_argument("--tau", type=float, default=PAPER_TAU)
    parser.add_argument("--normalisation", choices=get_args(Normalisation), default="imagenet")
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))
    parser.add_argument("--optimiser", choices=("adamw", "sgd"), default="adamw")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--rows", type=int, help="about so many images only, for a trial")
    parser.add_argument("--out", type=Path, default=here / "accuracy.json")
    parser.add_argument("--radii", type=Path, default=here / "radius.json")
    chosen = parser.parse_args()
    if chosen.rows is not None and (chosen.out.parent == here or chosen.radii.parent == here):
        parser.error("--rows is for a trial: name other files with --out and --radii")
    stage = None if chosen.stage == "none" else chosen.stage
    extractor = Extractor.parse(chosen.backbone, stage=stage)
    work = prepared(chosen.data, extractor, chosen.tau, chosen.normalisation, chosen.rows)
    device = torch.cuda.get_device_name() if work.x.device.type == "cuda" else "cpu"
    about = results.provenance({"alpha": PAPER_ALPHA}, device=device)
    common = {
        "data": chosen.data,
        "rows": len(work.train),
        "backbone": str(extractor),
        "normalisation": chosen.normalisation,
    }
    for row in radii(work, chosen.tau, common):
        keep(chosen.radii, "Image noise and the radius that features get from it", row, about=about)
    for seed in range(chosen.seeds):
        work.releases.clear()  # several GB each
        for mode in chosen.modes:
            recipe = TrainingRecipe(chosen.epochs, optimiser=chosen.optimiser, seed=seed)
            settings = {
                **common,
                "mode": MODES[mode],
                "nominal tau": chosen.tau,
                "optimiser": recipe.optimiser,
                "epochs": recipe.epochs,
                "seed": seed,
            }
            if known(chosen.out, settings):
                sys.stderr.write(f"kept: {settings}\n")
            else:
                compare = mode != "clear" and chosen.data in PAPER and chosen.tau == PAPER_TAU and chosen.rows is None
                figures = trained(work, mode, recipe, compare=compare)
                row = {"settings": settings, "figures": {**figures, "commit": about["commit"]}}
                keep(chosen.out, "The paper's recipe: accuracy at a nominal τ", row, about=about)


if __name__ == "__main__":
    main()
