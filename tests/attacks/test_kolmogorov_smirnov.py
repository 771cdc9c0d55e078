"""Whether the rows of different records are told apart by their distribution: in one test, and one row at a time."""

from __future__ import annotations

import pytest
import torch
from scipy.stats import ks_2samp
from torch import Tensor

from mixveil.attacks.records.kolmogorov_smirnov import (
    KolmogorovSmirnov,
    p_of_one,
    p_values,
    paper_tables,
    statistics,
)
from mixveil.audit.metrics.sources import told_apart
from mixveil.core.errors import ArgumentError
from mixveil.core.randomness import SeededStream
from mixveil.core.types import Encoder, Mu, View
from mixveil.encoders.identity import Identity
from mixveil.encoders.instahide import CalibratedInstaHide
from mixveil.encoders.mixup import Mixup
from mixveil.encoders.singular import Singular
from tests.attacks.made import digits
from tests.made import encoded, range_facts

DATA = digits(0, 40)
INSTAHIDE = CalibratedInstaHide(k=4, c1=0.65, c2=0.3, covers=0, pad=0, values=64, centre=0.5)


def view(encoder: Encoder, releases: int = 20) -> View:
    return View(tuple(encoded(encoder, DATA, SeededStream(seed))[0] for seed in range(releases)))


def apart(encoder: Encoder, releases: int = 20) -> float:
    found = KolmogorovSmirnov()(view(encoder, releases), stream=SeededStream(0)).apart
    assert found is not None and found.shape == (40, 7)
    return told_apart(found) / 40


def drawn() -> Tensor:
    """(5, 21, 2): figures of five records, one of which differs; the second kind has many ties."""
    told = SeededStream(0).normal(5, 21, 2)
    told[0] += 0.5
    told[:, :, 1] = (2 * told[:, :, 1]).round()
    return told


def test_p_values_are_those_of_scipy() -> None:
    told = drawn()
    found = p_values(told)
    for record in range(5):
        for s in range(2):
            others = torch.cat([told[:record], told[record + 1 :]])[:, :, s].flatten()
            assert abs(float(found[record, s]) - ks_2samp(told[record, :, s], others, method="asymp").pvalue) < 1e-12


def test_p_values_of_a_single_figure_are_exact() -> None:
    told = drawn()
    found = p_of_one(told[0], told[1:].flatten(0, 1))
    for row in range(21):
        for s in range(2):
            expected = ks_2samp(told[0, row : row + 1, s], told[1:, :, s].flatten(), method="exact").pvalue
            assert abs(float(found[row, s]) - expected) < 1e-6


def test_statistics_are_those_of_the_paper() -> None:
    x = SeededStream(1).normal(2, 2, 3, 4)
    places = torch.tensor([5, 0, 23, 7])
    image, found = x[1], statistics(x, places)[1]
    variation = sum(
        float((image[c, h, w] - image[c, i, j]).abs())
        for c in range(2)
        for h in range(3)
        for w in range(4)
        for i, j in ((h + 1, w), (h, w + 1))
        if i < 3 and j < 4
    )
    expected = [float(image.mean()), float(image.std()), variation, *image.flatten()[places].tolist()]
    assert torch.allclose(found, torch.tensor(expected, dtype=torch.float64))


def test_rows_without_a_defence_are_told_apart_and_certified_ones_are_not() -> None:
    certified, _ = Singular().calibrate(Mu(1.0), range_facts(DATA))
    assert apart(Identity()) == 1 and apart(Mixup(2)) > 0.5 and apart(certified) <= 0.05


def test_more_rows_tell_more_of_instahide() -> None:
    assert apart(INSTAHIDE) < apart(INSTAHIDE, 100)
    assert apart(INSTAHIDE, 100) > 0.1


def test_single_rows_tell_nothing_whatever_the_defence() -> None:
    """The paper's table: its averages are about a half for mixtures that are told apart as for those that are not."""
    places = SeededStream(5).permutation(64)[:4]
    averages = {}
    for name, encoder in (("identity", Identity()), ("mixup", Mixup(2)), ("instahide", INSTAHIDE)):
        rows = [release.payload.take(torch.arange(10)).x for release in view(encoder, 60).releases]
        told = torch.stack([statistics(x, places)[:, :3] for x in rows], dim=1)
        tables = paper_tables(told, stream=SeededStream(0))
        assert tables.p_all.shape == tables.p_other.shape == (10, 3)
        averages[name] = tables.p_other
        assert 0.35 < float(tables.p_other.mean()) < 0.65
        if name == "mixup":
            assert told_apart(p_values(told)) >= 7 and float(tables.p_other.min()) > 0.15
    # A record without a defence is one value: far out it is seen, in the middle it is "the same" as all others.
    assert float(averages["identity"].min()) < 0.02 and float(averages["identity"].max()) > 0.8


def test_what_it_needs_it_says() -> None:
    seen = view(Identity(), 3)
    why = KolmogorovSmirnov().cannot(seen)
    assert why is not None and why.code == "attack-needs-releases" and why.figures == {"needed": 20, "releases": 3}
    shuffled = View(tuple(release.with_(label_epsilon=1.0) for release in seen.releases))
    why = KolmogorovSmirnov().cannot(shuffled)
    assert why is not None and why.code == "attack-needs-row-order"
    with pytest.raises(ArgumentError, match="one record"):
        p_values(drawn()[:1])
    with pytest.raises(ArgumentError, match="50 draws"):
        paper_tables(drawn(), stream=SeededStream(0))
