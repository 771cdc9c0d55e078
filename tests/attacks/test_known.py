from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from mixveil.attacks.records.known_records import KnownRecordsAttack as Attack
from mixveil.attacks.records.lmmse import Lmmse
from mixveil.core.errors import ArgumentError
from mixveil.core.randomness import SeededStream
from mixveil.core.types import KnownRecords, Trace, View
from mixveil.data.similarity import mse
from mixveil.releases.kinds.records import Records
from mixveil.theory import bayes
from tests.attacks.made import SCALES, gaussian, weak
from tests.made import dense_posterior, encoded


def view(n: int, releases: int, tau: float, known: Tensor) -> tuple[View, Tensor]:
    data = gaussian(n, 1)
    made = [encoded(weak(data, tau), data, SeededStream(seed)) for seed in range(releases)]
    truth = data.take(torch.arange(n)).x
    seen = View(
        tuple(r for r, _ in made), tuple(t for _, t in made), gaussian(500, 2), known=KnownRecords(known, truth[known])
    )
    return seen, truth


@pytest.mark.parametrize("releases", [1, 3])
@pytest.mark.parametrize("tau", [1.0, 0.01])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 1.0])
def test_it_is_the_dense_posterior_given_the_known_records(releases: int, tau: float, share: float) -> None:
    seen, _ = view(40, releases, tau, SeededStream(5).permutation(40)[: round(share * 40)])
    images = Attack()(seen, stream=SeededStream(0)).images
    assert images is not None
    assert torch.allclose(images, dense_posterior(seen), atol=1e-6 * float(images.abs().max()))


@pytest.mark.parametrize("releases", [1, 2])
def test_known_records_come_back_and_nobody_known_is_lmmse(releases: int) -> None:
    seen, truth = view(30, releases, 0.5, torch.tensor([4, 7]))
    images = Attack()(seen, stream=SeededStream(0)).images
    assert images is not None and torch.equal(images[[4, 7]], truth[[4, 7]].double())
    none = replace(seen, known=KnownRecords(torch.empty(0, dtype=torch.int64), truth[:0]))
    one, other = Attack()(none, stream=SeededStream(0)).images, Lmmse()(seen, stream=SeededStream(0)).images
    assert one is not None and other is not None and torch.allclose(one, other, atol=1e-9)


def test_partners_without_a_row_may_be_known() -> None:
    """A part of a release: record 5 has no row, and is the partner in row 2."""
    seen, truth = view(6, 1, 0.5, torch.tensor([5]))
    weight = torch.full((3, 2), 0.5)
    trace = Trace(torch.tensor([[1], [2], [5]]), weight)
    release, _ = encoded(seen.releases[0].encoder, gaussian(6, 1), SeededStream(0))
    z = release.encoder.prepare(truth)
    rows = 0.5 * (z[:3] + z[[1, 2, 5]])
    batch = release.payload.take(torch.arange(3))._replace(x=rows.float().view(3, 1, 2, 3))
    part = release.with_(payload=Records((batch,), None), encoder=replace(release.encoder, sigma=1e-6))  # type: ignore[type-var]
    images = Attack()(replace(seen, releases=(part,), traces=(trace,)), stream=SeededStream(0)).images
    assert images is not None and images.shape == (3, 1, 2, 3)
    assert torch.allclose(images, truth[:3].double(), atol=1e-3)  # 2 from 5, 1 from 2, 0 from 1


def test_who_knows_all_others_leaves_what_theory_says() -> None:
    """Every third record is unknown, in pairings that never join two of them: the bound is what comes out."""
    n = 3000
    data = gaussian(n, 1)
    encoder = weak(data)
    order = torch.arange(n).roll(-1)[:, None]
    trace = Trace(order, SeededStream(1).capped_weights(n, 0.7))
    batch = encoder.encode(data, torch.arange(n), trace, stream=SeededStream(2))
    release = encoded(encoder, data, SeededStream(0))[0]
    release = replace(release, payload=Records((batch,), encoder.step))
    truth, known = data.take(torch.arange(n)).x, torch.arange(n)[torch.arange(n) % 3 != 0]
    seen = View((release,), (trace,), gaussian(5000, 2), known=KnownRecords(known, truth[known]))
    images = Attack()(seen, stream=SeededStream(0)).images
    assert images is not None
    shown = bayes.precisions(trace.partner[:, 0], trace.weight, encoder.sigma)
    risk = bayes.known_risk((SCALES.double() / 4).square(), shown)[::3].mean()
    assert float(mse(truth[::3], images[::3]).mean()) == pytest.approx(float(risk), rel=0.06)


def test_numbers_that_no_record_has_are_refused() -> None:
    seen, truth = view(10, 1, 0.5, torch.tensor([4]))
    for known in (KnownRecords(torch.tensor([10]), truth[:1]), KnownRecords(torch.tensor([-1]), truth[:1])):
        with pytest.raises(ArgumentError, match="0 to 9"):
            Attack()(replace(seen, known=known), stream=SeededStream(0))
    with pytest.raises(ArgumentError, match="an image each"):
        Attack()(replace(seen, known=KnownRecords(torch.tensor([1, 2]), truth[:1])), stream=SeededStream(0))
