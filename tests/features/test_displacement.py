"""How far image noise moves features, against its slow twin: one image at a time, by the plain formulas."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from mixveil.core.errors import ArgumentError, TooFewRowsError
from mixveil.core.randomness import SeededStream
from mixveil.data.images import Images
from mixveil.features import cache, displacement
from mixveil.features.backbones import loading
from mixveil.features.cache import Loaded
from mixveil.features.displacement import Normalisation, measure
from mixveil.features.extractor import Extractor
from tests.made import features_of, images, tiny_weights

A = (0.7 / 0.3) ** 2


@pytest.fixture
def loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Loaded:
    return cache.load(Extractor(("tiny",), "head", size=32), tiny_weights(tmp_path, monkeypatch), "cpu")


def named(name: str, channels: int, n: int = 10) -> Images:
    return replace(images(n, (channels, 8, 8)), name=name)


def twin(
    data: Images, loaded: Loaded, tau: float, mean: list[float], std: list[float], clamped: bool = True
) -> tuple[float, float, float, float]:
    """Radius of the image noise, mean displacement, mean norm and share of clamped values."""
    stream, size = SeededStream(3), loaded.extractor.side
    order = stream.fork("images").permutation(len(data)).tolist()
    noise = stream.fork("noise").sphere(len(data), 3 * size**2, 1.0)
    normalised = []
    for row in order:
        x = data.take(torch.tensor([row])).x
        x = torch.nn.functional.interpolate(x, size=(size, size), mode="bilinear")[0].double()
        normalised.append(torch.stack([(x[c % len(x)] - mean[c]) / std[c] for c in range(3)]))
    values = torch.stack(normalised).flatten()
    energy = 3 * size**2 * float((values - values.mean()).square().mean())
    radius, moved, norm, changed = math.sqrt(energy * (A / tau - 1)), 0.0, 0.0, 0
    for z, e in zip(normalised, noise, strict=True):
        noisy = z + radius * e.view(3, size, size)
        for c in range(3 if clamped else 0):
            low, high = (0 - mean[c]) / std[c], (1 - mean[c]) / std[c]
            changed += int(((noisy[c] < low) | (noisy[c] > high)).sum())
            noisy[c] = noisy[c].clamp(low, high)
        before, after = (
            loaded(torch.stack([image[c] * std[c] + mean[c] for c in range(3)])[None].float()).double()
            for image in (z, noisy)
        )
        moved, norm = moved + float((after - before).norm()), norm + float(before.norm())
    n = len(data)
    return radius, moved / n, norm / n, changed / (n * 3 * size**2)


@pytest.mark.parametrize(
    ("name", "channels", "normalisation", "mean", "std"),
    [
        ("made", 1, "imagenet", [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
        ("cifar10", 3, "imagenet", [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
        ("mnist", 1, "table7", [0.1307] * 3, [0.3081] * 3),
        ("cifar10", 3, "table7", [0.4914, 0.4822, 0.4465], [0.2470, 0.2435, 0.2616]),
        ("cifar100", 3, "table7", [0.5071, 0.4867, 0.4408], [0.2675, 0.2565, 0.2761]),
        ("tiny-imagenet", 3, "table7", [0.5071, 0.4867, 0.4408], [0.2675, 0.2565, 0.2761]),
    ],
)
def test_it_is_what_the_formulas_say(
    loaded: Loaded, name: str, channels: int, normalisation: Normalisation, mean: list[float], std: list[float]
) -> None:
    data = named(name, channels)
    found = measure(data, loaded, [0.5, 1e-3], alpha=0.7, normalisation=normalisation, stream=SeededStream(3))
    for item, tau in zip(found, (0.5, 1e-3), strict=True):
        radius, moved, norm, changed = twin(data, loaded, tau, mean, std)
        assert item.tau == tau and item.images == 10
        assert item.image_radius == pytest.approx(radius, rel=1e-5)
        assert item.radius == pytest.approx(moved, rel=1e-4) and item.feature_norm == pytest.approx(norm, rel=1e-5)
        assert item.clamped == pytest.approx(changed, abs=1e-4)


def test_the_clamp_makes_it_saturate(loaded: Loaded) -> None:
    """A million times less τ moves features hardly any further; without the clamp it would, about a thousand times."""
    data = named("made", 1)
    one, little = measure(data, loaded, [1.0, 1e-6], alpha=0.7, stream=SeededStream(3))
    assert little.image_radius > 1000 * one.image_radius
    assert one.radius < little.radius < 1.6 * one.radius
    assert 0.2 < one.clamped < 0.7 and little.clamped > 0.99
    scale = [list(values) for values in loading.IMAGENET]
    free = [twin(data, loaded, tau, scale[0], scale[1], clamped=False)[1] for tau in (1.0, 1e-6)]
    assert free[1] > 500 * free[0]


def test_so_many_images_and_no_more(loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(displacement, "MOST_IMAGES", 20)
    steps: list[int] = []
    data = named("made", 1, 50)
    (found,) = measure(data, loaded, [0.1], alpha=0.7, stream=SeededStream(0), progress=steps.append)
    assert found.images == 20 and sum(steps) == displacement.work(50, 1) == 50 + 20 * 2
    again = measure(data, loaded, [0.1], alpha=0.7, stream=SeededStream(0))
    assert again == [found] != measure(data, loaded, [0.1], alpha=0.7, stream=SeededStream(1))


def test_bad_inputs(loaded: Loaded) -> None:
    data, stream = named("fashion-mnist", 1), SeededStream(0)
    with pytest.raises(ArgumentError, match=r"table7 knows mnist, .* got the data set 'fashion-mnist'"):
        measure(data, loaded, [0.1], alpha=0.7, normalisation="table7", stream=stream)
    with pytest.raises(ArgumentError, match="normalisation must be imagenet or table7, got 'none'"):
        measure(data, loaded, [0.1], alpha=0.7, normalisation="none", stream=stream)  # type: ignore[arg-type]
    pixels = Loaded(features_of(data).extractor, (), torch.device("cpu"))
    with pytest.raises(ArgumentError, match="name a backbone"):
        measure(data, pixels, [0.1], alpha=0.7, stream=stream)
    with pytest.raises(ArgumentError, match="tau must be"):
        measure(data, loaded, [0.0], alpha=0.7, stream=stream)
    with pytest.raises(ArgumentError, match="without any noise"):
        measure(data, loaded, [1.0], alpha=0.5, stream=stream)
    with pytest.raises(ArgumentError, match="1 or 3 channels"):
        measure(images(4, (2, 8, 8)), loaded, [0.1], alpha=0.7, stream=stream)
    with pytest.raises(TooFewRowsError):
        measure(images(1, (1, 8, 8)), loaded, [0.1], alpha=0.7, stream=stream)
