"""LPIPS against a twin that walks over every place, with made weights; and with the real ones, if they are at hand,
against figures of its authors' package."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional

from mixveil.core.errors import ArgumentError, WeightsError
from mixveil.core.randomness import SeededStream
from mixveil.features import lpips
from mixveil.features.lpips import KNOWN, Net, load
from tests.made import lpips_weights

DATA = Path(os.environ.get("MIXVEIL_DATA", ""))  # read here: no test sees the variable itself
REAL = bool(os.environ.get("MIXVEIL_DATA")) and len(lpips.found(DATA)) == len(KNOWN)

# Convolutions: number in the file, stride, padding; poolings: window, stride. A map is looked at where there is "tap".
WALKS: dict[Net, str] = {
    "alex": "c0,4,2 tap p3,2 c3,1,2 tap p3,2 c6,1,1 tap c8,1,1 tap c10,1,1 tap",
    "vgg": "c0,1,1 c2,1,1 tap p2,2 c5,1,1 c7,1,1 tap p2,2 c10,1,1 c12,1,1 c14,1,1 tap "
    "p2,2 c17,1,1 c19,1,1 c21,1,1 tap p2,2 c24,1,1 c26,1,1 c28,1,1 tap",
}


def maps(net: Net, weights: dict[str, Tensor], image: Tensor) -> list[Tensor]:
    """The tapped maps of one image (3, h, w) in [0, 1]."""
    shift, scale = torch.tensor([-0.030, -0.088, -0.188]), torch.tensor([0.458, 0.448, 0.450])
    x = ((2 * image - 1) - shift.double().view(3, 1, 1)) / scale.double().view(3, 1, 1)
    found = []
    for step in WALKS[net].split():
        numbers = [int(text) for text in step[1:].split(",")] if step != "tap" else []
        if step == "tap":
            found.append(x)
        elif step[0] == "p":
            x = functional.max_pool2d(x[None], numbers[0], numbers[1])[0]
        else:
            number, stride, padding = numbers
            weight, bias = (weights[f"features.{number}.{kind}"].double() for kind in ("weight", "bias"))
            x = functional.conv2d(x[None], weight, bias, stride, padding)[0].clamp(min=0)
    return found


def twin(net: Net, weights: dict[str, Tensor], one: Tensor, other: Tensor) -> float:
    """Place for place: squared differences of the unit vectors, weighted; the mean over places, summed over layers."""
    total = 0.0
    for i, (a, b) in enumerate(zip(maps(net, weights, one), maps(net, weights, other), strict=True)):
        head, places = weights[f"heads.{i}.weight"].double().flatten(), []
        for row in range(a.shape[1]):
            for column in range(a.shape[2]):
                u, v = (x[:, row, column] / x[:, row, column].norm().clamp(min=1e-30) for x in (a, b))
                places.append(float((head * (u - v) ** 2).sum()))
        total += sum(places) / len(places)
    return total


def tents(outside: int, inside: int) -> Tensor:
    """(outside, inside): how much of each pixel is in each of more pixels, bilinearly, centres upon centres."""
    found = torch.zeros(outside, inside, dtype=torch.float64)
    for i in range(outside):
        place = min(max((i + 0.5) * inside / outside - 0.5, 0), inside - 1)
        for j in range(inside):
            found[i, j] = max(0.0, 1 - abs(place - j))
    return found


def waves(n: int, shape: tuple[int, int, int]) -> tuple[Tensor, Tensor]:
    """Images made of sines, and others that are farther from them the higher their number."""
    channel, row, column = torch.meshgrid(*(torch.arange(side, dtype=torch.float64) for side in shape), indexing="ij")
    number = torch.arange(n, dtype=torch.float64).view(-1, 1, 1, 1)
    truth = 0.5 + 0.5 * torch.sin(0.3 * (number + 1) * row + 0.2 * column + channel)
    other = 0.5 + 0.5 * torch.cos(0.05 * row * column / (number + 1) - channel)
    share = (number + 1) / (n + 1)
    return truth, (1 - share) * truth + share * other


@pytest.mark.parametrize("net", ["alex", "vgg"])
def test_lpips_is_its_slow_twin(net: Net, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = lpips_weights(tmp_path, monkeypatch, net)
    measure = load(net, tmp_path, "cpu")
    assert measure.name == f"lpips-{net}"
    for shape, large in (((3, 35, 44), (35, 44)), ((1, 8, 10), (32, 40))):
        monkeypatch.setitem(lpips._PIXELS, "cpu", 2 * 2 * large[0] * large[1])  # two pairs at once: the last is alone
        truth, guess = waves(3, shape)
        found = measure(truth, guess)
        assert found.dtype == torch.float64 and found.shape == (3,)
        down, across = tents(large[0], shape[1]), tents(large[1], shape[2])
        for i in range(3):
            one, other = (down @ x[i] @ across.T for x in (truth, guess))
            expected = twin(net, weights, one.expand(3, -1, -1), other.expand(3, -1, -1))
            assert float(found[i]) == pytest.approx(expected, rel=1e-4) and expected > 0.01
    assert measure(truth, truth).tolist() == [0.0] * 3
    assert measure(truth[:0], guess[:0]).shape == (0,)


def test_maps_without_any_feature_are_equal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no unit answers there is no direction: nothing is divided by zero."""
    weights = lpips_weights(tmp_path, monkeypatch, "alex")
    save_file({key: torch.zeros_like(x) for key, x in weights.items()}, tmp_path / "weights" / KNOWN["alex"].file)
    assert load("alex", tmp_path, "cpu")(*waves(2, (3, 32, 32))).tolist() == [0.0, 0.0]


def test_files_that_are_missing_or_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in (None, tmp_path):
        with pytest.raises(WeightsError, match=r"lpips-alexnet\.safetensors into DIR/weights"):
            load("alex", folder)
        assert lpips.found(folder) == []
    lpips_weights(tmp_path, monkeypatch, "alex")
    assert lpips.found(tmp_path) == ["alex"]
    assert len(load("alex", tmp_path, "cpu").digest) == 64
    save_file({"features.0.weight": torch.zeros(1)}, tmp_path / "weights" / KNOWN["alex"].file)
    with pytest.raises(WeightsError, match="does not fit lpips-alex"):
        load("alex", tmp_path)
    monkeypatch.setitem(KNOWN, "alex", replace(KNOWN["alex"], digest="56bafe8d"))
    with pytest.raises(WeightsError, match=r"SHA-256 .* begins with 56bafe8d"):
        load("alex", tmp_path)
    with pytest.raises(ArgumentError, match="alex, vgg, got 'squeeze'"):
        load("squeeze", tmp_path)  # type: ignore[arg-type]


def test_bad_images_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lpips_weights(tmp_path, monkeypatch, "alex")
    measure, good = load("alex", tmp_path, "cpu"), SeededStream(0).uniform(2, 3, 32, 32)
    with pytest.raises(ArgumentError, match=r"\(2, 2, 32, 32\)"):
        measure(good[:, :2], good[:, :2])
    with pytest.raises(ArgumentError, match=r"\(1, 3, 32, 32\)"):
        measure(good, good[:1])
    for bad in (2 * good - 1, good + 0.5, good * torch.nan):
        with pytest.raises(ArgumentError, match=r"in \[0, 1\], guess has"):
            measure(good, bad)


# Made by the package lpips 0.1.4 (its own code and heads) from the images of `waves`.
PUBLISHED: dict[tuple[Net, tuple[int, int, int]], list[float]] = {
    ("alex", (3, 64, 64)): [0.0441162, 0.1070868, 0.1638323, 0.4048017],
    ("alex", (3, 33, 47)): [0.052622, 0.0366438, 0.1164189, 0.3900363],
    ("alex", (1, 40, 32)): [0.224785, 0.0660923, 0.1641502, 0.3636909],
    ("vgg", (3, 64, 64)): [0.2242368, 0.2932189, 0.3235538, 0.4550784],
    ("vgg", (3, 33, 47)): [0.2442744, 0.1756127, 0.2670679, 0.5383275],
    ("vgg", (1, 40, 32)): [0.3085448, 0.2292907, 0.2436526, 0.3557427],
}


@pytest.mark.skipif(not REAL, reason="MIXVEIL_DATA names no folder with weights/lpips-*.safetensors")
@pytest.mark.parametrize("net", ["alex", "vgg"])
def test_with_the_real_weights_lpips_is_that_of_its_authors(net: Net) -> None:
    measure = load(net, DATA, "cpu")
    for shape in ((3, 64, 64), (3, 33, 47), (1, 40, 32)):
        assert measure(*waves(4, shape)).tolist() == pytest.approx(PUBLISHED[net, shape], abs=1e-5)


def test_flags_are_as_before_however_many_threads_measure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lpips_weights(tmp_path, monkeypatch, "alex")
    measure, images, seen = load("alex", tmp_path, "cpu"), SeededStream(0).uniform(2, 3, 32, 32).float(), list[bool]()
    directions = measure.layers.directions

    def noted(given: Tensor) -> list[Tensor]:
        seen.append(torch.backends.cudnn.allow_tf32)
        return directions(given)

    monkeypatch.setattr(measure.layers, "directions", noted)
    before = torch.backends.cudnn.allow_tf32
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: measure(images, images), range(24)))
    assert len(seen) >= 24 and not any(seen)
    assert torch.backends.cudnn.allow_tf32 == before


@pytest.mark.parametrize("net", ["alex", "vgg"])
def test_originals_go_through_the_network_once(net: Net, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lpips_weights(tmp_path, monkeypatch, net)
    measure, draws = load(net, tmp_path, "cpu"), SeededStream(0)
    truth, first, second = (draws.uniform(5, 3, 32, 40).float() for _ in range(3))
    apart = measure.from_these(truth)
    for guess in (first, second, truth):
        assert apart(guess).tolist() == pytest.approx(measure(truth, guess).tolist(), abs=1e-6)
    assert apart(truth).tolist() == [0.0] * 5 != apart(first).tolist()
    with pytest.raises(ArgumentError, match="of the shape"):
        apart(first[:4])


@pytest.mark.parametrize(("net", "billions"), [("alex", 1.43), ("vgg", 30.7)])
def test_work_is_that_of_the_convolutions(
    net: Net, billions: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of an image of 224 × 224: 0.71 and 15.35 billion products, as their authors' tables have it (AlexNet's poolings
    and its first convolution leave a border out here and there)."""
    lpips_weights(tmp_path, monkeypatch, net)
    measure = load(net, tmp_path, "cpu")
    assert measure.work((3, 224, 224)) == pytest.approx(billions * 1e9, rel=0.15)
    assert measure.work((3, 8, 8)) == measure.work((1, 32, 32))
