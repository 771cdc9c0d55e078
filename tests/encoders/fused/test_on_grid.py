"""Where rows lie on a GPU, an encoder releases the integers of its definition, under the keystream of its stream."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from mixveil.core.errors import MissingDependencyError
from mixveil.core.randomness import SecureStream, SeededStream, Stream
from mixveil.core.types import Fact, Facts, Mu
from mixveil.data.images import from_tensors
from mixveil.data.row_views import OnDevice
from mixveil.encoders import noisy
from mixveil.encoders.fused import encoding
from mixveil.encoders.fused.mixture import Keystream, Mixture
from mixveil.encoders.gaussian import CalibratedGaussian, Gaussian
from mixveil.encoders.noisy import Noisy, factors, on_grid
from mixveil.encoders.singular import CalibratedSingular, Singular
from tests.encoders.fused.twin import slow

M, D = 2, 120


class Known(SecureStream):
    """A secure stream whose keys are all the same, so that a test can follow it."""

    def key(self, name: str) -> bytes:
        return bytes(32)


@pytest.fixture
def there(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> torch.device:
    """A GPU; or the CPU, taken for one."""
    monkeypatch.setattr(noisy, "on_gpu", lambda where: where.type == device.type)
    return device


def encoder_of(scheme: Gaussian | Singular, clip: float) -> CalibratedGaussian | CalibratedSingular:
    known = {"dimension": float(D), "centre": 0.25, "amplitude": 0.5, "clip": clip}
    return scheme.calibrate(Mu(2.0), Facts({name: Fact(value, "public") for name, value in known.items()}))[0]


def definition(encoder: Noisy, x: list[Tensor], shares: list[Tensor], scale: Tensor, most: float) -> Mixture:
    """As `slow` takes it: two rows are a row and its partner."""
    assert encoder.step is not None and encoder.index_bound is not None
    by = [factors(z, encoder.centre, encoder.clip) for z in x]
    weights = torch.stack([share * b / encoder.step for share, b in zip(shares, by, strict=True)], dim=1)
    partner = torch.arange(M) if len(x) == 2 else None
    other = x[1] if len(x) == 2 else None
    return Mixture(x[0], other, partner, weights, scale * 1024, encoder.centre, most * 1024, None, encoder.index_bound)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("scheme", "spread", "stream"),
    [(Singular(), 0.5, Known), (Singular(), 40.0, lambda: SeededStream(5)), (Gaussian(), 0.5, lambda: SeededStream(5))],
    ids=["mixed in range", "mixed beyond", "alone"],
)
def test_integers_are_those_of_the_definition(
    there: torch.device, scheme: Gaussian | Singular, spread: float, stream: Callable[[], Stream]
) -> None:
    encoder, g = encoder_of(scheme, clip=2.0), torch.Generator().manual_seed(1)
    x = [torch.rand(M, D, generator=g) * spread for _ in range(encoder.sources)]
    share = torch.rand(M, generator=g, dtype=torch.float64) * 0.1 + 0.45
    shares = [1 - share, share] if len(x) == 2 else [torch.ones(M, dtype=torch.float64)]
    got = on_grid(encoder, [z.view(M, 2, 60).to(there) for z in x], shares, shares[-1], 1.0, stream())
    again = stream()
    keystream = Keystream(again.key("noise"), "philox" if again.reproducible else "chacha20")
    want, _ = slow(definition(encoder, x, shares, shares[-1], 1.0), keystream)
    assert got.device.type == "cpu" and got.shape == (M, 2, 60)
    assert (got.flatten(1).long() == want).all()


@pytest.mark.gpu
@pytest.mark.parametrize(("clip", "spread", "reach"), [(math.sqrt(D), 0.5, True), (2.0, 40.0, False)])
def test_bounds_follow_from_public_figures_alone(
    there: torch.device, monkeypatch: pytest.MonkeyPatch, clip: float, spread: float, reach: bool
) -> None:
    seen: list[tuple[float, float | None]] = []
    real = encoding.encoded

    def watched(made: Mixture, keystream: Keystream) -> Tensor:
        seen.append((made.most, made.reach))
        return real(made, keystream)

    monkeypatch.setattr(encoding, "encoded", watched)
    encoder, one = encoder_of(Gaussian(), clip), torch.ones(2, dtype=torch.float64)
    for factor in (1.0, 0.5):
        x = torch.full((2, D), 0.75 * factor) * spread / 0.5
        on_grid(encoder, [x.to(there)], [one], one, 1.0, SeededStream(1))
    assert seen[0] == seen[1]
    assert (seen[0][1] is not None) is reach


@pytest.mark.gpu
def test_an_encoder_gives_the_labels_that_it_gives_in_memory(there: torch.device) -> None:
    images = from_tensors(torch.rand(M, 1, 10, 12, generator=torch.Generator().manual_seed(2)), torch.arange(M))
    encoder = encoder_of(Singular(), clip=6.0)
    trace = encoder.plan(M, stream=SeededStream(3))
    brought = encoder.encode(OnDevice(images, there), torch.arange(M), trace, stream=SeededStream(4))
    plain = encoder.encode(images, torch.arange(M), trace, stream=SeededStream(4))
    assert torch.equal(brought.y, plain.y)
    assert brought.x.dtype == plain.x.dtype and brought.x.shape == plain.x.shape


def test_without_triton_the_kernels_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "available", lambda device: False)
    one = torch.ones(1, 1, dtype=torch.float64)
    with pytest.raises(MissingDependencyError, match="triton"):
        encoding.encoded(Mixture(torch.ones(1, 4), None, None, one, one[0], 0.0, 1.0, 1.0, 9), Keystream(bytes(32)))
