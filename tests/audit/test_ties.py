"""Records that few numbers do not tell apart, and copies of images."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from mixveil.attacks.catalogue import ATTACKS
from mixveil.attacks.shared.base import BaseAttack
from mixveil.audit.auditing import audit, strangers
from mixveil.audit.found import Audit
from mixveil.audit.measuring import assigned
from mixveil.audit.metrics import sources
from mixveil.audit.ties import Ties, pairs_right
from mixveil.core.randomness import SeededStream, Stream
from mixveil.core.types import AttackKind, Batch, Encoder, Guess, Mu, Trace, View
from mixveil.data.row_views import InMemoryRows, RowsView, Subset
from mixveil.encoders.gaussian import Gaussian
from mixveil.encoders.identity import Identity
from mixveil.releases.records import traced_in_memory
from tests.audited import digits, figure
from tests.made import range_facts
from tests.notes import codes, holds


@dataclass(frozen=True)
class OneNumber(RowsView):
    """Of each image a number, which is clipped: many are equal."""

    clip: float = 0.5
    numbers: int = 1

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.numbers,)

    @property
    def low(self) -> float:
        return -self.clip

    @property
    def high(self) -> float:
        return self.clip

    def take(self, index: Tensor) -> Batch:
        x, y = self.rows.take(index)
        sides = x[:, 0, :, :4].sum((1, 2)) - x[:, 0, :, 4:].sum((1, 2))
        return Batch(sides.clamp(-self.clip, self.clip)[:, None].expand(-1, self.numbers), y)


FEW, PUBLIC = OneNumber(digits(0, 200)), OneNumber(digits(300, 700))


def audited(encoder: Encoder, names: list[str]) -> Audit:
    release, trace = traced_in_memory(FEW, encoder, (), party="p", stream=SeededStream(1))
    known, others = Subset(PUBLIC, torch.arange(0, 400, 2)), Subset(PUBLIC, torch.arange(1, 400, 2))
    return audit(View((release,), (trace,), known), FEW, others=others, names=names, stream=SeededStream(2))


def test_strangers_whose_one_number_is_the_same_are_not_found_for_each_other() -> None:
    """The row of one of them says which number it is, and no more."""
    values = FEW.take(torch.arange(200)).x
    different = len(set(values.flatten().tolist()))
    assert different < 50
    found = audited(Identity(), ["linkage"])
    assert abs(figure(found, "linkage", "row-identified") - different / 200) < 1e-9
    assert next(row.know_nothing for row in found.figures if row.metric == "row-identified") == 1 / 200
    drowned = audited(Gaussian().calibrate(Mu(0.1), range_facts(FEW))[0], ["linkage"])
    assert figure(drowned, "linkage", "row-identified") < 0.05


def test_strangers_whose_one_number_is_the_same_are_no_copies_and_no_members() -> None:
    found = audited(Identity(), ["linkage"])
    assert not codes(found.warnings) & {"records-copied", "public-among-private", "strangers-among-private"}
    assert holds(found.verdict, "verdict-few-numbers", numbers=1)


def test_copies_and_private_images_are_found_by_the_images_behind_rows() -> None:
    copied = OneNumber(Subset(digits(0, 200), torch.arange(200) // 2))
    _, said = strangers(copied, Subset(OneNumber(digits(50, 300)), torch.arange(200)), OneNumber(digits(90, 110)), 20)
    assert holds(said, "records-copied", copies=100)
    assert holds(said, "public-among-private", images=50) and holds(said, "strangers-among-private", images=10)


def test_where_no_images_are_there_few_equal_numbers_show_nothing() -> None:
    bare = InMemoryRows(PUBLIC.take(torch.arange(400)))
    assert not strangers(FEW, bare, bare, 20)[1]
    many = OneNumber(digits(0, 200), numbers=6)
    rows = InMemoryRows(many.take(torch.arange(20)))
    assert holds(strangers(many, rows)[1], "public-among-private", images=20)


def test_ties_if_a_slow_loop_says_so() -> None:
    values = torch.tensor([1.0, 2, 1, 1, 3, 2])[:, None]
    images = digits(0, 6)
    read = images.read
    first = torch.tensor([0, 1, 0, 3, 4, 5])  # the third image is a copy of the first
    copied = replace(images, read=lambda rows: read(first[rows]))
    ties, links = Ties.of(copied, values), SeededStream(4).uniform(6, 6).mul(3).floor()
    assert ties.chance == (2 + 1 + 2 + 1 + 1 + 1) / 36
    expected = 0.0
    for row in range(6):
        tied = [other for other in range(6) if links[row, other] == links[row].max()]
        for other in tied:
            equal = [one for one in range(6) if values[one] == values[row]]
            copies = [one for one in equal if first[one] == first[row]]
            expected += (other in equal) * len(copies) / len(equal) / len(tied)
    assert math.isclose(ties.likeliest(links.double()), expected)
    assert math.isclose(ties.right(torch.tensor([2, 1, 0, 0, -1, 4])), 2 / 3 + 1 / 2 + 2 / 3 + 1 / 3)


def test_equal_scores_are_assigned_by_chance() -> None:
    assert (assigned(torch.zeros(100, 100)) == torch.arange(100)).sum() < 10
    assert torch.equal(assigned(torch.eye(5)), torch.arange(5))


def test_a_pair_among_equal_ones_is_a_part_of_a_hit() -> None:
    values, labels = torch.tensor([1.0, 1, 2, 3, 1])[:, None], torch.tensor([0, 1, 0, 0, 0])
    truth = torch.tensor([[0, 2], [0, 3], [2, 3], [0, 4]])
    guess = torch.tensor([[2, 4], [1, 3], [-1, -1], [4, 0]])
    assert math.isclose(pairs_right(guess, truth, values, labels), 1 / 2 + 0 + 0 + 1)
    assert math.isclose(pairs_right(guess, truth, values, torch.zeros(5)), 1 / 3 + 1 / 3 + 0 + 1 / 3)


def test_of_equally_alike_rows_any_may_be_taken() -> None:
    trace = Trace(torch.tensor([[1], [0], [3], [2]]), torch.full((4, 2), 0.5))
    found = sources.shared(torch.zeros(4, 4), (trace,))
    assert found is not None and math.isclose(found.nearest, 4 / 3)


class Clipped(BaseAttack):
    """Guesses at ends of the range: of many records exactly."""

    name: ClassVar[str] = "clipped"
    kind: ClassVar[AttackKind] = "prior"

    def __call__(self, view: View, *, stream: Stream) -> Guess:
        return Guess(images=torch.full((200, 1), -9.0))


def test_decibels_stay_near_the_errors_where_some_records_are_guessed_exactly() -> None:
    with ATTACKS.including(Clipped):
        found = audited(Identity(), ["clipped"])
    x = (FEW.take(torch.arange(200)).x.double() + FEW.clip) / (2 * FEW.clip)
    assert int((x == 0).sum()) > 20
    snr = next(row for row in found.figures if row.metric == "snr-db")
    assert math.isclose(snr.mean, 10 * math.log10(float(x.var(correction=0) / x.square().mean())))
    assert snr.worst == 999 and snr.std is None and snr.know_nothing is not None and abs(snr.know_nothing) < 1
    assert math.isclose(figure(found, "clipped", "psnr-db"), -10 * math.log10(float(x.square().mean())))
