"""Pictures out of features: the paper's feature release at a nominal τ = 1e-6 against a certified one at μ = 1.

    MIXVEIL_DATA=DIR python -m reproduce.singular.decoder [--panel FILE.png] [--backbone efficientnet_lite0]

The last map of the network, CIFAR-10 test images as the private ones, CIFAR-100 as the public ones that the decoder is
trained on. In the clear (the features themselves) shows what a decoder could get at most. The panel shows private
pictures: it is for looking at, not for keeping.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mixveil.attacks.features.decoder import FeatureDecoder
from mixveil.attacks.shared.training import Schedule, TrainingCache
from mixveil.core.randomness import SeededStream
from mixveil.core.types import Encoder, Fact, Mu, Release, Tau, Trace, View
from mixveil.data import similarity
from mixveil.data.opening import data_folder, open_data
from mixveil.encoders import calibration
from mixveil.encoders.identity import Identity
from mixveil.encoders.singular import PAPER_ALPHA, Singular
from mixveil.features import cache, displacement, lpips
from mixveil.features.cache import Features, cache_folder
from mixveil.features.extractor import Extractor
from mixveil.releases.envelope import Envelope
from mixveil.releases.kinds.records import Records, RecordSettings
from mixveil.report import results
from reproduce.singular.shared import given, keep

NOMINAL, MU = 1e-6, 1.0
SHOWN = 8
HERE = Path(__file__).parent


def encoders(private: Features, public: Features, loaded: cache.Loaded) -> dict[str, Encoder]:
    """In the clear, as the paper's experiments do it, and certified with the clip norm of public features."""
    stream = SeededStream(0)
    moved = displacement.measure(
        private.rows, loaded, [NOMINAL], alpha=PAPER_ALPHA, normalisation="imagenet", stream=stream.fork("noise")
    )
    paper, _, _ = calibration.calibrate(
        Singular(),
        Tau(NOMINAL, "displacement"),
        private,
        public=None,
        clip=None,
        displacement=Fact(moved[0].radius, "private"),
        stream=stream.fork("facts"),
    )
    certified, _, _ = calibration.calibrate(
        Singular(), Mu(MU), private, public=public, clip=None, displacement=None, stream=stream.fork("facts")
    )
    return {
        "in the clear": Identity(),
        f"the paper's, nominal τ = {NOMINAL:g}": paper,
        f"certified, μ = {MU:g}": certified,
    }


def released(encoder: Encoder, data: Features) -> tuple[Release, Trace]:
    stream = SeededStream(1)
    trace = encoder.plan(len(data), stream=stream.fork("plan"))
    batch = encoder.encode(data, torch.arange(len(data)), trace, stream=stream.fork("noise"))
    payload = Records((batch,), encoder.step)
    return Release(
        Envelope(RecordSettings(encoder, data.shape), "party", data.classes, reproducible=True), payload
    ), trace


def said(text: str) -> None:
    sys.stderr.write(f"\r{text}   ")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backbone", default="efficientnet_lite0")
    parser.add_argument("--stage", default="head")
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--public", type=int, default=20_000)
    parser.add_argument("--base", type=int, default=48, help="the decoder's width")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--panel", type=Path)
    parser.add_argument("--out", type=Path, default=HERE / "decoder.json")
    chosen = parser.parse_args()
    extractor = Extractor.parse(chosen.backbone, stage=None if chosen.stage == "none" else chosen.stage)
    loaded = cache.load(extractor, data_folder(None))
    images, shown = open_data("cifar10:test"), open_data("cifar100")
    images = images.part(torch.arange(chosen.rows))
    shown = shown.part(torch.arange(chosen.public))
    private, public = (cache.extract(data, loaded, cache_folder()) for data in (images, shown))
    truth, mean = images.take(torch.arange(len(images))).x, shown.take(torch.arange(len(shown))).x.mean(0)
    distance = lpips.load("vgg", data_folder(None))
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    settings = {"rows": chosen.rows, "public": chosen.public, "base": chosen.base, "epochs": chosen.epochs}
    about = results.provenance({"backbone": str(extractor), **settings}, device=device)
    strips = {"original": truth}
    for name, encoder in encoders(private, public, loaded).items():
        started = time.perf_counter()
        release, trace = released(encoder, private)
        schedule = Schedule(chosen.epochs, batch=64, falling=True)
        attack = FeatureDecoder(chosen.base, schedule=schedule, cache=TrainingCache(cache_folder(), watch=said))
        view = View((release,), (trace,), public, pictures=shown)
        found = given(attack(view, stream=SeededStream(2)).pictures).clamp(0, 1).float()
        strips[name] = found
        row = {"settings": {"release": name, **about["settings"]}, "figures": figures(truth, found, distance)}
        row["figures"] |= {"seconds": time.perf_counter() - started, "commit": about["commit"]}
        keep(chosen.out, "Pictures from features", row, about=about)
    nothing = {"settings": {"release": "knowing nothing", **about["settings"]}}
    keep(
        chosen.out,
        "Pictures from features",
        nothing | {"figures": figures(truth, mean.expand_as(truth), distance)},
        about=about,
    )
    if chosen.panel is not None:
        panel(chosen.panel, strips)


def figures(truth: Tensor, found: Tensor, distance: lpips.Lpips) -> dict[str, Any]:
    ssim, centre = similarity.ssim(truth, found), truth.mean(0)
    return {
        "SSIM": float(ssim.mean()),
        "best SSIM": float(ssim.max()),
        "SNR dB": float(similarity.snr_db(truth - centre, found - centre).mean()),
        "PSNR dB": float(similarity.psnr_db(truth, found).mean()),
        "LPIPS (VGG)": float(distance(truth, found).mean()),
    }


def panel(path: Path, strips: dict[str, Tensor]) -> None:
    """One row a strip, the same records in each, three times as large."""
    from PIL import Image

    lines = [torch.cat(list(images[:: max(1, len(images) // SHOWN)][:SHOWN]), dim=2) for images in strips.values()]
    whole = torch.cat(lines, dim=1).repeat_interleave(3, 1).repeat_interleave(3, 2)
    Image.fromarray(whole.mul(255).round().byte().permute(1, 2, 0).numpy()).save(path)


if __name__ == "__main__":
    main()
