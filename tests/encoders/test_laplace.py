from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from mixveil.core import errors
from mixveil.core.randomness import SecureStream, SeededStream
from mixveil.core.types import Mu, Tau
from mixveil.data.images import from_tensors
from mixveil.encoders import calibration
from mixveil.encoders.laplace import CalibratedLaplace, Laplace
from mixveil.encoders.singular import Singular
from mixveil.releases.ledger import Ledger
from mixveil.releases.reading import verify_release
from mixveil.releases.records import in_memory, write_release
from tests.made import images


def calibrated(alpha: float = 0.5) -> CalibratedLaplace:
    return calibration.calibrate(Laplace(alpha=alpha), None, images(400), stream=SeededStream(0))[0]


@pytest.mark.parametrize("alpha", [0.3, 0.5, 0.8])
def test_the_noise_is_as_large_as_the_images_that_would_be_mixed_in(alpha: float) -> None:
    """E‖e‖₁ = E‖αz‖₁ in (1 − α)z + e, measured on what is released, which is that over 1 − α."""
    data, encoder = images(400), calibrated(alpha)
    z = data.take(torch.arange(400)).x.flatten(1).double() - 0.5
    released = in_memory(data, encoder, (), party="p", stream=SeededStream(1)).payload.take(torch.arange(400)).x
    noise = (1 - alpha) * (released.flatten(1).double() - z)
    wanted = alpha * z.abs().sum(1).mean()
    assert float(noise.abs().sum(1).mean()) == pytest.approx(float(wanted), rel=0.03)
    assert float(noise.square().mean()) == pytest.approx(2 * float(noise.abs().mean()) ** 2, rel=0.1)  # Laplace's law
    assert float(encoder.deviation(torch.ones(1, 1))) == pytest.approx(math.sqrt(2) * encoder.scale)


def test_laplace_draws_are_laplace() -> None:
    draws = SeededStream(0).laplace(200_000)
    assert float(draws.mean()) == pytest.approx(0, abs=0.02) and float(draws.abs().mean()) == pytest.approx(1, rel=0.02)
    for t in (0.5, 2.0, 5.0):
        assert float((draws > t).double().mean()) == pytest.approx(math.exp(-t) / 2, rel=0.15)


def test_it_promises_nothing_and_says_so(tmp_path: Path) -> None:
    write_release(tmp_path / "r", images(400), calibrated(), (), party="p", stream=SecureStream())
    written = verify_release(tmp_path / "r")
    assert not written.certified and not written.guarantees
    assert "noise-for-comparison" in written.not_promised
    assert Ledger().entries()[0].cost is None


@pytest.mark.parametrize("target", [Mu(1.0), Tau(0.1)])
def test_nothing_can_be_asked_of_it(target: Mu | Tau) -> None:
    with pytest.raises(errors.ArgumentError, match="promises nothing"):
        calibration.calibrate(Laplace(), target, images(), stream=SeededStream(0))
    with pytest.raises(errors.ArgumentError, match="say what to ask for"):
        calibration.calibrate(Singular(), None, images(), stream=SeededStream(0))


@pytest.mark.parametrize("alpha", [0.0, 1.0, -1.0])
def test_its_share_lies_between_nothing_and_all(alpha: float) -> None:
    with pytest.raises(errors.ArgumentError, match="alpha"):
        Laplace(alpha=alpha)


def test_its_size_can_come_from_public_data() -> None:
    public = from_tensors(0.5 + 0.1 * images(30).take(torch.arange(30)).x, torch.arange(30) % 4)
    found, _, _ = calibration.calibrate(Laplace(), None, images(), public=public, stream=SeededStream(0))
    assert found.scale < 0.2 * calibrated().scale
