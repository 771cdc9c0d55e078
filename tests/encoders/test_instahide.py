"""InstaHide against slow twins: rows, masks, weights, moves, labels; inside the data set and with public patches."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

from mixveil.core.errors import ArgumentError, ManifestError, MissingFactError
from mixveil.core.randomness import SeededStream
from mixveil.core.types import Fact, Facts, Mu, Trace
from mixveil.data.covers import Covered, patches
from mixveil.data.images import Images, from_tensors
from mixveil.data.moves import moved
from mixveil.encoders.instahide import CalibratedInstaHide, InstaHide, signs
from mixveil.encoders.mixup import Mixup
from mixveil.releases.kinds.records import RecordSettings
from tests.notes import codes

N, SHAPE = 60, (3, 8, 8)
ROWS = torch.arange(N)


def pictures(n: int, shape: tuple[int, ...], seed: int) -> Images:
    return from_tensors(SeededStream(seed).uniform(n, *shape).float(), torch.arange(n) % 4, classes=4)


DATA = pictures(N, SHAPE, 1)
COVERS = patches(pictures(30, (3, 20, 14), 2), DATA, count=50, keypoints=0, stream=SeededStream(3))


def ready(scheme: InstaHide, covers: int = 0) -> CalibratedInstaHide:
    known = {"dimension": 192.0, "centre": 0.5, "height": 8.0, "width": 8.0} | ({"covers": covers} if covers else {})
    return scheme.calibrate(None, Facts({name: Fact(float(value), "range") for name, value in known.items()}))[0]


def made(encoder: CalibratedInstaHide, seed: int = 0) -> tuple[Tensor, Tensor, Trace]:
    trace = encoder.plan(N, stream=SeededStream(seed))
    rows = Covered(DATA, COVERS) if encoder.covers else DATA
    x, y = encoder.encode(rows, ROWS, trace, stream=SeededStream(9))
    return x, y, trace


@pytest.mark.parametrize("covers", [0, 50])
@pytest.mark.parametrize("k", [1, 2, 3, 4, 5, 6])
def test_a_row_is_its_images_weighed_moved_and_masked(k: int, covers: int) -> None:
    if covers and k <= 2:
        with pytest.raises(ArgumentError, match="k must be more than 2"):
            ready(InstaHide(k), covers)
        return
    encoder = ready(InstaHide(k, augmented=k % 2 == 0), covers)
    x, y, trace = made(encoder)
    everything = torch.cat([DATA.take(ROWS).x, COVERS.take(torch.arange(50)).x])
    mask = signs(trace.extra["signs"], 192)
    for i in range(0, N, 7):
        row, label = torch.zeros(SHAPE, dtype=torch.float64), torch.zeros(4)
        for j, source in enumerate([i, *trace.partner[i].tolist()]):
            image = everything[source].double()
            if "moves" in trace.extra:
                image = moved_slowly(image, trace.extra["moves"][i, j].tolist())
            row += float(trace.weight[i, j]) * (image - 0.5)
            if source < N:
                label[source % 4] += trace.weight[i, j]
        assert torch.allclose(x[i].double(), row * mask[i].view(SHAPE), atol=1e-6)
        assert torch.allclose(y[i], label, atol=1e-6)


def moved_slowly(image: Tensor, moves: list[int]) -> Tensor:
    mirror, down, right = moves
    image = image.flip(2) if mirror else image
    found = torch.full_like(image, 0.5)
    for row in range(image.shape[1]):
        for column in range(image.shape[2]):
            if 0 <= row - down < image.shape[1] and 0 <= column - right < image.shape[2]:
                found[:, row, column] = image[:, row - down, column - right]
    return found


def test_images_are_moved_by_all_steps_there_are() -> None:
    image = torch.arange(32.0).view(1, 2, 4, 4)
    for moves in ([0, 0, 0], [1, 0, 0], [0, 1, -2], [1, -1, 1]):
        assert torch.equal(moved(image, torch.tensor([moves]), 0.5)[0], moved_slowly(image[0], moves))
    trace = ready(InstaHide(4, augmented=True)).plan(2000, stream=SeededStream(0))
    drawn = trace.extra["moves"].flatten(0, 1)
    counts = torch.unique(drawn, dim=0, return_counts=True)[1]
    assert len(counts) == 2 * 3 * 3 and int(counts.min()) > 8000 / 18 * 0.8  # a pixel of eight, either way


@pytest.mark.parametrize(("k", "c1", "covers", "c2"), [(2, 0.65, 0, 0.3), (4, 0.4, 0, 0.3), (6, 0.65, 50, 0.5)])
def test_weights_follow_the_law_within_their_bounds(k: int, c1: float, covers: int, c2: float) -> None:
    """Against the law itself: uniform numbers over their sum, of which those within the bounds are kept."""
    encoder = ready(InstaHide(k, c1, c2), covers)
    weight = encoder.plan(20_000, stream=SeededStream(0)).weight.double()
    assert float(weight.max()) <= c1 and torch.equal(weight.sum(1), torch.ones(20_000, dtype=torch.float64))
    drawn = torch.rand(400_000, k, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    drawn /= drawn.sum(1, keepdim=True)
    kept = drawn.amax(1) <= c1
    if covers:
        kept &= drawn[:, :2].sum(1) >= c2
        assert float(weight[:, :2].sum(1).min()) >= c2 - 1e-6
    for one, two in zip(weight.T, drawn[kept].T, strict=True):
        quantiles = torch.linspace(0.05, 0.95, 10, dtype=torch.float64)
        assert torch.allclose(one.quantile(quantiles), two[:200_000].quantile(quantiles), atol=0.012)


def test_every_encoding_has_a_fresh_mask_of_fair_signs() -> None:
    encoder = ready(InstaHide(1))
    one, two = (made(encoder, seed)[2].extra["signs"] for seed in (1, 2))
    masks = torch.cat([signs(one, 192), signs(two, 192)]).double()
    alike = masks @ masks.T / 192
    assert float(alike.fill_diagonal_(0).abs().max()) < 0.4  # 5.5 deviations of independent signs
    assert abs(float(masks.mean())) < 0.03
    assert float(masks.mean(0).abs().max()) < 0.5


def test_labels_sum_to_the_private_share() -> None:
    encoder = ready(InstaHide(4), 50)
    _, y, trace = made(encoder)
    assert torch.allclose(y.sum(1), trace.weight[:, :2].sum(1)) and float(y.sum(1).max()) < 1
    assert encoder.label_share == 0.3 and ready(InstaHide(4)).label_share == 1.0
    assert int(trace.partner[:, 0].max()) < N <= int(trace.partner[:, 1:].min())
    mixed = Mixup(k=4, covers=50)
    trace = mixed.plan(N, stream=SeededStream(0))
    x, y = mixed.encode(Covered(DATA, COVERS), ROWS, trace, stream=SeededStream(0))
    mean = mixed.observation(trace).mean(Covered(DATA, COVERS), ROWS)
    assert torch.allclose(x.flatten(1).double(), mean.x, atol=1e-6) and torch.allclose(y, mean.y)
    assert torch.allclose(y.sum(1), trace.weight[:, :2].sum(1))


def test_settings_that_cannot_be_are_refused() -> None:
    for settings in ({"k": 0}, {"k": 4, "c1": 0.2}, {"c1": 1.5}, {"c1": 0.0}, {"k": 4, "c1": 0.4, "c2": 0.9}):
        with pytest.raises(ArgumentError, match=r"k must|c1 must|c2 must"):
            InstaHide(**settings)
    with pytest.raises(ArgumentError, match="promises nothing"):
        InstaHide().calibrate(Mu(1.0), Facts({}))
    with pytest.raises(MissingFactError, match="height"):  # rows that are no images cannot be moved
        facts = Facts({"dimension": Fact(16.0, "range"), "centre": Fact(0.5, "range")})
        InstaHide(augmented=True).calibrate(None, facts)


def test_settings_that_go_against_the_authors_advice_are_told() -> None:
    def told(encoder: CalibratedInstaHide, records: int) -> set[str]:
        return set(codes(encoder.advice(records)))

    assert told(ready(InstaHide(4)), 50_000) == set()
    assert told(ready(InstaHide(2)), 50_000) == {"instahide-k"}
    assert told(ready(InstaHide(4, c1=0.9)), 50_000) == {"instahide-heavy"}
    assert told(ready(InstaHide(4)), 500) == {"instahide-few-images"}
    assert told(ready(InstaHide(6), 50), 500) == {"instahide-few-covers"}
    assert told(ready(InstaHide(6), 10_000), 500) == set()


@pytest.mark.parametrize(("shape", "pad"), [((1, 8, 8), 4), ((1, 8, 8), 4096), ((64,), 1)])
def test_images_are_not_moved_out_of_sight(shape: tuple[int, ...], pad: int) -> None:
    """Of settings that others state: attacks would try every move."""
    encoder = CalibratedInstaHide(k=4, c1=0.65, c2=0.3, covers=0, pad=pad, values=64, centre=0.5)
    stated = RecordSettings(encoder, shape).plain()
    with pytest.raises(ManifestError, match="cannot be moved"):
        RecordSettings.parse(stated)
    near = RecordSettings(dataclasses.replace(encoder, pad=1), (1, 8, 8))
    assert RecordSettings.parse(near.plain()).encoder.moved == 1
