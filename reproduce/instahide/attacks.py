"""The attacks of InstaHide's authors that begin with demasking (§5.3, Figures 6, 7 and 8), on CIFAR-10.

    PYTHONPATH=src MIXVEIL_DATA=DIR python -m reproduce.instahide.attacks [--what signs averages search crops]
    PYTHONPATH=src python -m reproduce.instahide.attacks --data FOLDER --out FOLDER   # a folder of `attack_data`

Private images are of CIFAR-10's test set; attackers learn from CIFAR-100, which has none of them, and hold the 10,000
patches of Tiny-ImageNet that are mixed in (`crops`: only the whole images that these were cut of). Results are added to
`attacks.json`; the grid of pictures shows private images, and is for looking at.
"""

from __future__ import annotations

import argparse
import base64
import math
import os
import platform
import sys
import time
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mixveil.attacks.records.averaging import AverageKnown, AverageSimilar
from mixveil.attacks.records.demask import Demask
from mixveil.attacks.records.demask_search import DemaskSearch
from mixveil.attacks.records.search_learned import SearchLearned
from mixveil.attacks.shared.training import Schedule, TrainingCache
from mixveil.audit.metrics import signs
from mixveil.core.randomness import SeededStream
from mixveil.core.types import Attack, Batch, Encoder, Fact, Facts, Mu, Release, Rows, Tau, Trace, View
from mixveil.data import similarity
from mixveil.data.covers import Covered
from mixveil.data.images import Images
from mixveil.data.row_views import InMemoryRows
from mixveil.encoders import calibration
from mixveil.encoders.instahide import InstaHide
from mixveil.encoders.mixup import Mixup
from mixveil.encoders.singular import Singular
from mixveil.releases.envelope import Envelope
from mixveil.releases.kinds.records import Records, RecordSettings
from mixveil.report.pictures import png
from reproduce.instahide.attack_data import Sets, opened
from reproduce.singular.shared import Row, given, keep

HERE = Path(__file__).parent
TITLE = "InstaHide's authors' attacks on CIFAR-10"
K = 6
CENTRE = 0.473  # the paper takes each channel's mean away, 0.49, 0.48 and 0.45; here it is one number for all
RECORDS, RELEASES = 50, 50  # Figure 7's n and T
ANSWERS = (10, 30, 100)  # Figure 8's m
SHOWN = 10
PARTS = ("signs", "averages", "search", "crops")


@dataclass(frozen=True)
class Study:
    """What every part works on: the images, how networks train, and where results go."""

    sets: Sets
    chosen: argparse.Namespace

    @property
    def training(self) -> dict[str, Any]:
        chosen = self.chosen
        cache = TrainingCache(chosen.cache, chosen.steps, watch=said)
        schedule = Schedule(chosen.epochs, chosen.batch, falling=True)
        return {"base": chosen.base, "encodings": chosen.encodings, "schedule": schedule, "cache": cache}

    def keep(self, *rows: Row) -> None:
        keep(self.chosen.out / "attacks.json", TITLE, *rows, about=provenance(self.chosen))

    def private(self, count: int) -> Images:
        return self.sets.private.part(torch.arange(min(count, self.chosen.rows)))


def hiding(k: int, covers: int, data: Images) -> Encoder:
    known = {"dimension": math.prod(data.shape), "centre": CENTRE, "covers": covers}
    return InstaHide(k=k).calibrate(None, Facts({name: Fact(float(v), "public") for name, v in known.items()}))[0]


def released(encoder: Encoder, data: Images, covers: Rows | None, seed: int) -> tuple[Release, Trace]:
    stream = SeededStream(seed)
    trace = encoder.plan(len(data), stream=stream.fork("plan"))
    mixed = Covered(data, covers) if covers is not None and encoder.covers else data
    batch = encoder.encode(mixed, torch.arange(len(data)), trace, stream=stream.fork("noise"))
    envelope = Envelope(RecordSettings(encoder, data.shape), "party", data.classes, reproducible=True)
    return Release(envelope, Records((batch,), encoder.step)), trace


def rows_of(x: Tensor) -> Rows:
    return InMemoryRows(Batch(x, torch.zeros(len(x), 10)))


def find_signs(study: Study) -> None:
    """(a) Figure 6: signs of private encodings, at k = 6 and 4."""
    data, covers = study.private(500), rows_of(study.sets.patches)
    for k in (6, 4):
        encoder = hiding(k, len(covers), data)
        release, trace = released(encoder, data, covers, seed=1)
        began = time.monotonic()
        guess = Demask(**study.training)(View((release,), public=study.sets.public, covers=covers), stream=stream())
        mixture = encoder.observation(trace).mixture(Covered(data, covers), torch.arange(len(data))).x
        right, size = given(guess.signs) == mixture.sign(), mixture.abs()
        found = signs.found(mixture.sign(), given(guess.signs))
        study.keep(
            {
                "settings": {"part": "signs", "release": "instahide", "k": k, "rows": len(data)},
                "figures": {
                    "signs found": float(found.mean()),
                    "the same sign everywhere": signs.of_one_sign(mixture.sign()),
                    "flipped signs that are found": 2 * float(found.mean()) - 1,
                    "signs found, weighed by size": float((right * size).sum() / size.sum()),
                    "least": float(found.min()),
                    "most": float(found.max()),
                    "seconds": time.monotonic() - began,
                },
            }
        )


def average(study: Study) -> None:
    """(b) Figure 7: averages of fifty encodings of each of fifty images."""
    data, covers, public = study.private(RECORDS), rows_of(study.sets.patches), study.sets.public
    truth = data.take(torch.arange(len(data))).x
    nothing = public.take(torch.arange(len(public))).x.double().mean(0).expand_as(truth)
    strips = {"original": truth}
    study.keep({"settings": {"part": "averages", "attack": "knowing nothing"}, "figures": scores(truth, nothing)})
    for name, encoder in defences(data, public, len(covers)).items():
        pairs = [released(encoder, data, covers, seed) for seed in range(1, study.chosen.releases + 1)]
        view = View(tuple(r for r, _ in pairs), tuple(t for _, t in pairs), public, covers=covers)
        for attack in (AverageKnown(**study.training), AverageSimilar(**study.training)):
            began = time.monotonic()
            guess = given(attack(view, stream=stream()).images).clamp(0, 1)
            settings: Row = {"part": "averages", "release": name, "attack": attack.name}
            settings |= {"records": len(data), "releases": len(pairs)}
            seconds = {"seconds": time.monotonic() - began}
            study.keep({"settings": settings, "figures": scores(truth, guess) | seconds})
            strips[f"{name}, {attack.name}"] = guess
    picture(study.chosen.out / "averages.png", strips)


def defences(data: Images, public: Images, covers: int) -> Mapping[str, Encoder]:
    """The encoders of Figure 7, and certified ones: the clip norm is that of public images."""
    made: dict[str, Encoder] = {"mixup": Mixup(K, covers), "instahide": hiding(K, covers, data)}
    for name, target in (
        ("singular, τ = 1 (spectral)", Tau(1.0)),
        ("singular, τ = 1 (energy)", Tau(1.0, "energy")),
        ("singular, certified μ = 1", Mu(1.0)),
    ):
        like = public if isinstance(target, Mu) else None
        made[name], _, _ = calibration.calibrate(Singular(), target, data, public=like, stream=stream())
    return made


def search(study: Study) -> None:
    """(c) Figure 8, where attackers hold the very patches."""
    look(study, "search", rows_of(study.sets.patches), {"SSIM": DemaskSearch(**study.training)})


def crops(study: Study) -> None:
    """(c) Figure 8, where they hold the whole images and do not know what was cut of them."""
    ways = {"SSIM": DemaskSearch(**study.training), "learned": SearchLearned(**study.training, cut=0.75)}
    look(study, "crops", rows_of(study.sets.wholes), ways)


def look(study: Study, part: str, held: Rows, ways: Mapping[str, Attack]) -> None:
    """Search rows of mixup and instahide for what was mixed in, among what attackers hold."""
    data, patches = study.private(500), rows_of(study.sets.patches)
    count = len(patches)
    for name, encoder in (("mixup", Mixup(K, count)), ("instahide", hiding(K, count, data))):
        release, trace = released(encoder, data, patches, seed=2)
        right = trace.partner[:, 1:] - len(data)
        for way, attack in ways.items():
            began = time.monotonic()
            view = View((release,), public=study.sets.public, covers=held)
            ranked = given(attack(view, stream=stream()).covers).topk(max(ANSWERS), dim=1).indices
            hits = (ranked[:, :, None] == right[:, None, :]).any(2)
            settings = {"part": part, "release": name, "score": way, "rows": len(data), "images": count, "k": K}
            figures = {f"hit among {m}": float(hits[:, :m].any(1).double().mean()) for m in ANSWERS}
            figures |= {f"by chance among {m}": by_chance(count, right.shape[1], m) for m in ANSWERS}
            figures |= {
                f"share of them among {m}": float(hits[:, :m].sum(1).double().mean()) / right.shape[1] for m in ANSWERS
            }
            study.keep({"settings": settings, "figures": figures | {"seconds": time.monotonic() - began}})


def by_chance(images: int, right: int, answers: int) -> float:
    """That so many answers, drawn without looking, hold one of those that are right."""
    return 1 - math.comb(images - right, answers) / math.comb(images, answers)


def scores(truth: Tensor, guess: Tensor) -> Row:
    ssim, centre = similarity.ssim(truth, guess), truth.double().mean(0)
    snr = similarity.snr_db(truth - centre, guess - centre)
    return {
        "SSIM": float(ssim.mean()),
        "best SSIM": float(ssim.max()),
        "SNR dB": float(snr.mean()),
        "best SNR dB": float(snr.max()),
        "MSE": float(similarity.mse(truth, guess).mean()),
    }


def picture(path: Path, strips: Mapping[str, Tensor]) -> None:
    """One row a strip, the same records in each, three times as large."""
    lines = [torch.cat(list(images[:SHOWN]), dim=2) for images in strips.values()]
    whole = torch.cat([line.float() for line in lines], dim=1).repeat_interleave(3, 1).repeat_interleave(3, 2)
    path.write_bytes(base64.b64decode(png(whole).partition(",")[2]))
    sys.stderr.write(f"{path}: {', '.join(strips)}\n")


def said(text: str) -> None:
    sys.stderr.write(f"\r{text}      ")


def stream() -> SeededStream:
    return SeededStream(0)


def provenance(chosen: argparse.Namespace, centre: float = CENTRE) -> dict[str, Any]:
    """As `results.provenance`, also where the package is not installed."""
    project = tomllib.loads((HERE.parents[1] / "pyproject.toml").read_text())["project"]
    versions = {"mixveil": project["version"], "torch": torch.__version__, "python": platform.python_version()}
    names = ("base", "batch", "epochs", "encodings", "steps", "rows", "releases")
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": chosen.commit,
        "versions": versions,
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "cores": os.cpu_count() or 1,
        "settings": {name: getattr(chosen, name) for name in names} | {"k": K, "centre": centre},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--what", nargs="+", choices=PARTS, default=PARTS[:3])
    parser.add_argument("--data", type=Path, help="a folder that attack_data made; else MIXVEIL_DATA is read")
    parser.add_argument("--out", type=Path, default=HERE)
    parser.add_argument("--cache", type=Path, help="where networks are kept, so that parts share them")
    parser.add_argument("--commit", default="unknown", help="of the sources, where git does not say")
    parser.add_argument("--base", type=int, default=64)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--encodings", type=int, default=50_000)
    parser.add_argument("--steps", type=int, help="at most, of a training: to try the script")
    parser.add_argument("--rows", type=int, default=500, help="private images, at most")
    parser.add_argument("--releases", type=int, default=RELEASES)
    parser.add_argument("--covers", type=int, help="patches, at most: to try the script")
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    sets = opened(chosen.data)
    sets = replace(sets, patches=sets.patches[: chosen.covers], wholes=sets.wholes[: chosen.covers])
    study = Study(sets, chosen)
    parts = {"signs": find_signs, "averages": average, "search": search, "crops": crops}
    for what in chosen.what:
        parts[what](study)


if __name__ == "__main__":
    main()
