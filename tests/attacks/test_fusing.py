"""The rows of a record, and the networks that make one image of them: against slow loops."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from mixveil.attacks.shared import nets
from mixveil.attacks.shared.breaks.fusing import HEAVIEST, Fuser, RecordRows, Rows, gathered, loss
from mixveil.core.device_random import DeviceStream
from mixveil.core.randomness import SeededStream
from mixveil.data.similarity import ssim

RECORDS, CHANNELS, HEIGHT, WIDTH = 5, 2, 6, 5


def rows_of(count: int, seed: int = 1) -> Rows:
    """Record 0 is in almost every row, record 3 in few, record 4 in none; row 1 holds record 0 twice, row 2 one record
    alone, and row 3 nearly nothing of record 0."""
    stream = SeededStream(seed)
    partner = 1 + (stream.uniform(count) * 2.2).long().clamp(max=2)
    sources = torch.stack([torch.zeros(count, dtype=torch.int64), partner], dim=1)
    weights = stream.mixing_weights(count, 2)
    moves = torch.cat([stream.signs(count, 2, 1) > 0, (5 * stream.uniform(count, 2, 2)).floor() - 2], dim=2)
    sources[1], sources[2, 1], sources[:2, 0] = 0, -1, torch.tensor([3, 0])
    weights[3] = torch.tensor([0.01, 0.99])
    demasked, size = (stream.normal(count, CHANNELS, HEIGHT, WIDTH).float() for _ in range(2))
    return Rows(demasked, size.abs(), 0.5 * stream.uniform(count), sources, weights, moves.long())


def back(image: Tensor, move: Tensor) -> Tensor:
    """Pixel by pixel: where each of the record's pixels went, and nothing where it went out of the image."""
    mirror, down, right = move.tolist()
    found = torch.zeros_like(image)
    for i in range(HEIGHT):
        for j in range(WIDTH):
            row, column = i + down, (WIDTH - 1 - j if mirror else j) + right
            if 0 <= row < HEIGHT and 0 <= column < WIDTH:
                found[:, i, j] = image[:, row, column]
    return found


def shares(rows: Rows, record: int) -> dict[int, tuple[float, Tensor]]:
    """The weight of a record in every row that holds it, and how it was moved; where it is twice, as it was first."""
    found: dict[int, tuple[float, Tensor]] = {}
    for row, (sources, weights) in enumerate(zip(rows.sources.tolist(), rows.weights.tolist(), strict=True)):
        if record in sources:
            weight = sum(weight for source, weight in zip(sources, weights, strict=True) if source == record)
            found[row] = weight, rows.moves[row, sources.index(record)]
    return found


@pytest.mark.parametrize("count", [6, 40])
def test_gathered_rows_by_hand(count: int) -> None:
    rows = rows_of(count)
    found = gathered(rows, RECORDS)
    held = [shares(rows, record) for record in range(RECORDS)]
    most = min(HEAVIEST, max(len(each) for each in held))
    assert found.rows.shape == (RECORDS, most, 2 * CHANNELS + 2, HEIGHT, WIDTH) and held[4] == {}
    assert found.there.tolist() == [[place < len(each) for place in range(most)] for each in held]
    one = torch.ones(1, HEIGHT, WIDTH)
    for record, each in enumerate(held):
        total, weight = torch.zeros(CHANNELS, HEIGHT, WIDTH), 1.0
        for row, (share, move) in each.items():
            error = 0.2 + float(rows.errors[row])
            total += share / error * back(rows.demasked[row], move)
            weight += share**2 / error
        torch.testing.assert_close(found.mean[record], total / weight)
        heaviest = sorted(each, key=lambda row: -each[row][0])[:most]
        for place, row in enumerate(heaviest):
            (share, move), unit = each[row], float(1 + rows.errors[row]) ** 0.5
            over = max(share, 0.05)
            parts = [rows.demasked[row] / over / unit, rows.size[row] / over / unit, one]
            whole = torch.cat([*(back(part, move) for part in parts), over * one])
            torch.testing.assert_close(found.rows[record, place], whole)


def test_gathered_rows_hold_what_their_record_was_moved_from() -> None:
    """A row of one record that was moved into the image's corner shows the rest of it in its own place."""
    image = SeededStream(1).normal(1, CHANNELS, HEIGHT, WIDTH).float()
    moved = torch.zeros_like(image)
    moved[..., 2:, 1:] = image[..., :-2, :-1]
    move = torch.tensor([[[0, 2, 1]]])
    one = torch.ones(1, 1)
    found = gathered(Rows(moved, moved, torch.zeros(1), torch.zeros(1, 1, dtype=torch.int64), one, move), 1).rows[0, 0]
    torch.testing.assert_close(found[:CHANNELS, :-2, :-1], image[0, :, :-2, :-1])
    seen = torch.zeros(HEIGHT, WIDTH)
    seen[:-2, :-1] = 1
    assert torch.equal(found[-2], seen) and not found[:CHANNELS, -2:].any()


def given(rows: int, seed: int = 1) -> RecordRows:
    stream = SeededStream(seed)
    mean = stream.normal(4, CHANNELS, HEIGHT, WIDTH).float()
    drawn = stream.normal(4, rows, 2 * CHANNELS + 2, HEIGHT, WIDTH).float()
    there = torch.arange(rows) < torch.tensor([[rows], [rows - 1], [1], [0]])
    return RecordRows(mean, drawn, there)


def fuser(seed: int = 0) -> Fuser:
    return nets.started(Fuser(CHANNELS, 4), DeviceStream(SeededStream(seed)), torch.device("cpu"))


@pytest.mark.parametrize("rows", [3, 10, 11])
def test_a_network_begins_with_the_mean(rows: int) -> None:
    net, told = fuser(), given(rows)
    fused, image = net(told)
    assert not torch.allclose(fused, told.mean) and not torch.allclose(image, fused)
    net.begin()
    fused, image = net(told)
    assert torch.equal(fused, told.mean) and torch.equal(image, told.mean)


@pytest.mark.parametrize("rows", [3, 10, 11, 24])
def test_few_rows_are_fused_by_the_largest_value_and_many_by_the_mean(rows: int) -> None:
    net, told = fuser(), given(rows)
    fused, image = net(told)
    for record in range(3):
        maps = torch.stack([net.relaxed(row[None])[0] for row in told.rows[record][told.there[record]]])
        one = maps.amax(0) if rows <= 10 else maps.mean(0)
        assert one.shape == (8, 3, 3)  # half the resolution
        expected = told.mean[record] + net.raised(one[None])[0, :, :HEIGHT, :WIDTH]
        torch.testing.assert_close(fused[record], expected, rtol=1e-4, atol=1e-5)
        more = net.denoised(torch.cat([told.mean[record], expected])[None])[0]
        torch.testing.assert_close(image[record], expected + more, rtol=1e-4, atol=1e-5)
    assert bool(fused.isfinite().all()) and bool(image.isfinite().all())  # a record without rows too


@pytest.mark.parametrize("rows", [4, 12])
def test_rows_that_are_not_there_change_nothing(rows: int) -> None:
    net, told = fuser(), given(rows)
    nowhere = ~told.there.view(4, rows, 1, 1, 1)
    other = told._replace(rows=torch.where(nowhere, 5 + 3 * told.rows.flip(0), told.rows))
    for one, two in zip(net(told), net(other), strict=True):
        assert torch.equal(one, two)
    seen = told._replace(rows=torch.where(nowhere, told.rows, 5 + told.rows))
    assert not torch.allclose(net(told)[0][:3], net(seen)[0][:3])


def test_the_loss_is_as_published() -> None:
    truth, guess = (SeededStream(seed).uniform(3, 3, 12, 12).float() for seed in (1, 2))
    apart = sum(float((a - b).abs()) for a, b in zip(truth.flatten(), guess.flatten(), strict=True)) / truth.numel()
    alike = sum(float(ssim(truth[i : i + 1], guess[i : i + 1])) for i in range(3)) / 3
    assert float(loss(guess, truth)) == pytest.approx(0.3 * apart - 0.7 * alike, abs=1e-5)
    assert float(loss(truth, truth)) == pytest.approx(-0.7) and loss(guess, truth).dtype == torch.float32


def test_both_networks_learn_from_the_loss() -> None:
    net = fuser()
    net.begin()
    fused, image = net(given(4))
    truth = SeededStream(3).uniform(4, CHANNELS, HEIGHT, WIDTH).float()
    (loss(fused, truth) + loss(image, truth)).backward()  # type: ignore[no-untyped-call]
    slopes = dict(net.named_parameters())
    for last in ("raised.2.weight", "denoised.out.weight"):
        slope = slopes[last].grad
        assert slope is not None and float(slope.abs().sum()) > 0
