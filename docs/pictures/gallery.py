"""Pictures of docs/understand/gallery.md: what reconstruction attacks make of scikit-learn's digits.

    python docs/pictures/gallery.py [ATTACK …] [--out FOLDER]

One PNG an attack. Everything is drawn from one seed, so all of it is an experiment: nothing is entered in a ledger, and
no release that is made here promises anything. Above a column stand the mean SSIM over all records that
the attacker does not have, in brackets that of the mean public image, and the squared error as a share of this image's.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor, nn

import mixveil
from mixveil.attacks.shared.training import TrainingCache, with_cache
from mixveil.audit.metrics.order import in_order
from mixveil.core.device_random import DeviceStream
from mixveil.core.first_weights import started
from mixveil.core.local_training import AugMix, LocalTraining
from mixveil.core.randomness import SeededStream
from mixveil.core.types import Encoder, Guess, KnownRecords, Mu, Scheme, Target, Tau, View
from mixveil.data.images import Images
from mixveil.data.opening import open_data
from mixveil.data.similarity import mse, ssim
from mixveil.encoders import calibration
from mixveil.encoders.identity import Identity
from mixveil.encoders.mixup import Mixup
from mixveil.encoders.singular import Singular
from mixveil.features.split.half import read_half
from mixveil.features.stacked.party import NO_DEFENCE, Defence
from mixveil.learn.local_update import LocalUpdate, linear
from mixveil.learn.split_training import SplitRecipe
from mixveil.releases import representations
from mixveil.releases.records import traced_in_memory
from mixveil.releases.updates import in_memory

SEED, ROWS, STEPS = 0, 300, 300
SHOWN = torch.tensor([0, 50, 60, 100, 120])  # of five classes; `known` does not know records whose number ends in 0
SETTINGS: dict[str, tuple[Scheme[Encoder], Target | None]] = {
    "mu = 1": (Singular(), Mu(1.0)),
    "tau = 0.01, energy": (Singular(), Tau(0.01, "energy")),
    "tau = 1, energy": (Singular(), Tau(1.0, "energy")),
    "mixed, no noise": (Mixup(), None),
    "no defence": (Identity(), None),
}
RELEASES = {
    "lmmse": 1,
    "lmmse-row": 1,
    "lowpass": 1,
    "lowpass-row": 1,
    "linear": 1,
    "known": 1,
    "unet": 1,
    "unet-strong": 1,
    "average": 4,
    "average-known": 4,
    "average-similar": 6,
    "inner-product-average": 4,
}
"""How many releases of the same records each attack on records sees."""

SMALL: dict[str, dict[str, int]] = {"unet": {"base": 16}, "unet-strong": {"base": 16, "rounds": 1}}
"""Networks of a third of their usual width, so that all pictures take some minutes of one core."""

OF_UPDATES = ("gradient-rows", "invgrad")
OF_REPRESENTATIONS = ("inversion-adaptive",)
ZOOM, GAP, HEAD, SIDE, FONT = 5, 3, 30, 62, 11


class Column(NamedTuple):
    """One setting: rows of pictures (m, 1, 8, 8) in [0, 1] by what they are. found, nothing: the SSIM of guesses and of
    the mean image; left: the squared error of guesses over that of the mean image."""

    title: str
    pictures: dict[str, Tensor]
    found: float
    nothing: float
    left: float


def column(title: str, truth: Tensor, released: Tensor | None, guess: Tensor, public: Images, shown: Tensor) -> Column:
    """truth, guess: of all records that the attacker does not have; released: what is shown of a release."""
    guess = guess.double().clamp(0, 1).view_as(truth)
    mean = public.take(torch.arange(len(public))).x.double().mean(0).expand_as(truth)
    rows = {"original": truth[shown], "released": released, "guess": guess[shown]}
    kept = {name: x for name, x in rows.items() if x is not None}
    left = float(mse(truth, guess).mean() / mse(truth, mean).mean())
    return Column(title, kept, float(ssim(truth, guess).mean()), float(ssim(truth, mean).mean()), left)


def attacked(name: str, view: View, stream: SeededStream) -> Tensor:
    attack = with_cache(mixveil.attacks()[name](**SMALL.get(name, {})), TrainingCache(max_steps=STEPS))
    if (why := attack.cannot(view)) is not None:
        raise SystemExit(f"{name}: {why}")
    guess: Guess = attack(view, stream=stream)
    if guess.images is None:
        raise SystemExit(f"{name} guesses no images")
    return guess.images


def of_records(name: str) -> Iterator[Column]:
    data, public = open_data("digits:train").part(torch.arange(ROWS)), open_data("digits:test")
    everything = data.take(torch.arange(ROWS)).x
    hidden = torch.arange(ROWS) % 10 == 0 if name == "known" else torch.ones(ROWS, dtype=torch.bool)
    place = hidden.cumsum(0) - 1
    for title, (scheme, target) in SETTINGS.items():
        stream = SeededStream(SEED).fork(title)
        encoder, _, _ = calibration.calibrate(scheme, target, data, stream=stream.fork("facts"))
        made = [
            traced_in_memory(data, encoder, (), party="gallery", stream=stream.fork(f"release {t}"))
            for t in range(RELEASES[name])
        ]
        view = View(tuple(release for release, _ in made), tuple(trace for _, trace in made), public)
        if name == "known":
            view = replace(view, known=KnownRecords((~hidden).nonzero()[:, 0], everything[~hidden]))
        guess = attacked(name, view, stream.fork("attack"))[hidden]
        first = encoder.restore(made[0][0].payload.take(SHOWN).x.double()).view(-1, *data.shape)
        yield column(title, everything[hidden].double(), first.clamp(0, 1), guess, public, place[SHOWN])


def of_updates(name: str) -> Iterator[Column]:
    data, public = open_data("digits:train").part(SHOWN[:4]), open_data("digits:test")
    net = started(linear(data.shape, 10), DeviceStream(SeededStream(SEED).fork("weights")), torch.device("cpu"))
    before = {weight: value.detach().contiguous() for weight, value in net.named_parameters()}
    ways: dict[str, tuple[AugMix | None, Defence]] = {
        "FedAvg": (None, NO_DEFENCE),
        "Fed-AugMix, s = 2": (AugMix(2.0), NO_DEFENCE),
        "clip 1, noise 0.1": (None, Defence(1.0, 0.1, None)),
        "clip 1, noise 0.5": (None, Defence(1.0, 0.5, None)),
    }
    truth, labels = data.take(torch.arange(4)).x.double(), data.labels
    for title, (views, defence) in ways.items():
        stream = SeededStream(SEED).fork(title)
        job = LocalUpdate(net, before, LocalTraining(4, 4, (0.1,), augmix=views), defence)
        after = job.after(data, stream.fork("party"))
        release = in_memory(data, before, after, method=job.method, training=job.training, net=net)
        guess = attacked(name, View((release,), public=public, labels=labels), stream.fork("attack"))
        yield column(title, truth, None, in_order(truth, guess.double().clamp(0, 1), 0.5), public, torch.arange(4))


def of_representations(name: str) -> Iterator[Column]:
    data, public = open_data("digits:train").part(torch.arange(ROWS)), open_data("digits:test")
    truth = data.take(torch.arange(ROWS)).x.double()
    for title, recipe in {
        "no penalty": SplitRecipe(penalty="none", epochs=10),
        "MixCon, weight 1": SplitRecipe(weight=1.0, beta=1e-4, epochs=10),
    }.items():
        net = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 10))
        with tempfile.TemporaryDirectory() as folder:
            mixveil.split_train(public, Path(folder) / "net", network=net, cut="1", recipe=recipe)
            half = read_half(Path(folder) / "net" / "client", "client")
        view = View((representations.in_memory(data, half),), public=public, client=half)
        guess = attacked(name, view, SeededStream(SEED).fork(title))
        yield column(title, truth, None, guess, public, SHOWN)


def drawn(columns: list[Column]) -> Image.Image:
    """All columns side by side, with what they are above and what rows are beside them."""
    rows, font = list(columns[0].pictures), ImageFont.load_default(FONT)
    side = columns[0].pictures["original"].shape[-1] * ZOOM
    wide = max(len(c.pictures["original"]) for c in columns) * (side + GAP) + 3 * GAP
    picture = Image.new("L", (SIDE + wide * len(columns), HEAD + len(rows) * (side + GAP)), 255)
    pen = ImageDraw.Draw(picture)
    for r, name in enumerate(rows):
        pen.text((2, HEAD + r * (side + GAP) + side // 2 - FONT // 2), name, font=font, fill=0)
    for c, of in enumerate(columns):
        left = SIDE + c * wide
        pen.text((left, 1), of.title, font=font, fill=0)
        pen.text((left, 15), f"SSIM {of.found:.2f} ({of.nothing:.2f}), error left {of.left:.0%}", font=font, fill=90)
        for r, name in enumerate(rows):
            for i, x in enumerate(of.pictures[name]):
                octets = x[0].mul(255).round().byte().contiguous()
                one = Image.frombytes("L", (octets.shape[1], octets.shape[0]), bytes(octets.flatten().tolist()))
                place = (left + i * (side + GAP), HEAD + r * (side + GAP))
                picture.paste(one.resize((side, side), Image.Resampling.NEAREST), place)
    return picture


def main() -> None:
    every = {**dict.fromkeys(RELEASES, of_records), **dict.fromkeys(OF_UPDATES, of_updates)}
    every |= dict.fromkeys(OF_REPRESENTATIONS, of_representations)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("attacks", nargs="*", metavar="ATTACK", help=", ".join(every))
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    chosen = parser.parse_args()
    if unknown := [name for name in chosen.attacks if name not in every]:
        parser.error(f"no picture is made of {', '.join(unknown)}")
    for name in chosen.attacks or every:
        columns = list(every[name](name))
        drawn(columns).save(chosen.out / f"{name}.png", optimize=True)
        figures = ", ".join(f"{c.title} {c.found:.2f} ({c.nothing:.2f}) {c.left:.0%}" for c in columns)
        sys.stdout.write(f"{name}: {figures}\n")


if __name__ == "__main__":
    main()
