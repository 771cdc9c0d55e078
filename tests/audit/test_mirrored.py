"""Audits of encoders that mirror images at random: a mirror image is a recovered image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch

from mixveil.attacks.catalogue import ATTACKS
from mixveil.attacks.shared.base import BaseAttack
from mixveil.audit.auditing import audit
from mixveil.audit.found import Audit
from mixveil.core.randomness import SeededStream, Stream
from mixveil.core.types import AttackKind, Guess, View
from mixveil.data.similarity import mse
from mixveil.encoders.instahide import CalibratedInstaHide
from mixveil.encoders.mixup import Mixup
from tests.audited import digits, figure
from tests.made import encoded

DATA, PUBLIC = digits(0, 40), digits(300, 400)


@dataclass(frozen=True)
class Mirroring(BaseAttack):
    """Knows every record, and says every other one mirrored; of bare releases it says them as they are."""

    name: ClassVar[str] = "mirroring"
    kind: ClassVar[AttackKind] = "reconstruction"
    threat: ClassVar[str] = "threat-prior"
    needs: ClassVar[frozenset[str]] = frozenset({"candidates"})
    linear: ClassVar[bool] = False

    def __call__(self, view: View, *, stream: Stream) -> Guess:
        images = torch.as_tensor(view.candidates)[: len(view.releases[0].payload)].clone()
        if view.releases[0].encoder.masked:
            images[::2] = images[::2].flip(3)
        return Guess(images=images)


def audited(*pads: int | None) -> Audit:
    """pads: of each release; None for one by mixup."""
    encoders = [
        Mixup(2) if pad is None else CalibratedInstaHide(k=2, c1=0.65, c2=0.0, covers=0, pad=pad, values=64, centre=0.5)
        for pad in pads
    ]
    made = [encoded(encoder, DATA, SeededStream(seed)) for seed, encoder in enumerate(encoders)]
    releases = tuple(release.with_(id=f"{seed:032x}") for seed, (release, _) in enumerate(made))
    view = View(releases, tuple(trace for _, trace in made), PUBLIC)
    with ATTACKS.including(Mirroring):
        return audit(view, DATA, names=["mirroring", "prior"], stream=SeededStream(1))


@pytest.mark.parametrize("pads", [(1,), (0, 1), (1, None)])
def test_a_mirrored_guess_is_measured_as_the_image(pads: tuple[int | None, ...]) -> None:
    found = audited(*pads)
    assert figure(found, "mirroring", "mse") == 0 and figure(found, "mirroring", "ssim") == pytest.approx(1)
    assert torch.equal(found.images["mirroring"], (255 * found.pixels).round().byte())  # as pages show it
    assert "verdict-mirrored" in {told.code for told in found.verdict}


def test_where_nothing_is_mirrored_it_is_not() -> None:
    found = audited(0)
    assert figure(found, "mirroring", "mse") > 0.02
    assert not torch.equal(found.images["mirroring"], (255 * found.pixels).round().byte())
    assert "verdict-mirrored" not in {told.code for told in found.verdict}


def test_knowing_nothing_may_mirror_too() -> None:
    """Else mirroring alone would be taken for something that the release shows."""
    (plain,), (moved,) = (
        [f for f in audited(pad).figures if (f.attack, f.metric) == ("prior", "mse")] for pad in (0, 1)
    )
    mean = PUBLIC.take(torch.arange(len(PUBLIC))).x.double().mean(0).expand(40, 1, 8, 8)
    x = DATA.take(torch.arange(40)).x
    nearer = torch.minimum(mse(x, mean), mse(x, mean.flip(3))).mean()
    assert moved.know_nothing == pytest.approx(float(nearer)) == pytest.approx(moved.mean)
    assert plain.know_nothing == pytest.approx(float(mse(x, mean).mean())) and moved.mean < plain.mean
