from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mixveil.attacks.records.average import Average
from mixveil.attacks.records.linkage import Linkage, Membership
from mixveil.attacks.records.lmmse import Lmmse, LmmseRow
from mixveil.attacks.shared import prior as module
from mixveil.attacks.shared.base import BaseAttack
from mixveil.attacks.shared.directions import Basis, Directions, Spanned, Waves, cosines
from mixveil.attacks.shared.model import entry_of
from mixveil.attacks.shared.prior import Prior, of_noisy, of_public
from mixveil.core.errors import ArgumentError
from mixveil.core.randomness import SeededStream
from mixveil.core.types import Guess, View
from mixveil.core.wording.sentences import sentence
from mixveil.data.images import Images, from_tensors
from tests.attacks.made import weak
from tests.made import basis_of, encoded


def flat(n: int, values: int = 40, seed: int = 1) -> Images:
    """Rows that vary ten times as much in some values as in others."""
    x = 0.5 + SeededStream(seed).normal(n, values) * torch.logspace(-2, -1, values) / 2
    return from_tensors(x.clamp(0, 1).float(), torch.arange(n) % 3, classes=3)


def pictures(n: int, seed: int = 1) -> Images:
    """(3, 8, 8) images of three waves a channel, and a little of all others."""
    stream = SeededStream(seed)
    waves = Waves((3, 8, 8), torch.device("cpu"))
    strength = torch.full((3, 8, 8), 0.02, dtype=torch.float64)
    strength[:, 0, 1], strength[:, 1, 0], strength[:, 1, 1] = 0.5, 0.3, 0.2
    x = 0.5 + waves.back(stream.normal(n, 192) * strength.flatten()).view(n, 3, 8, 8)
    return from_tensors(x.clamp(0, 1).float(), torch.arange(n) % 3, classes=3)


def raised(x: Tensor) -> Prior:
    """The slow twin: the whole covariance, its eigenvalues at least a hundredth of the average."""
    variance, basis = torch.linalg.eigh(torch.cov(x.T, correction=0))
    return Prior(x.mean(0), Basis(basis), variance.clamp(min=0.01 * float(variance.mean())))


def covariance(prior: Prior) -> Tensor:
    basis = basis_of(prior)
    return basis @ torch.diag(prior.variance) @ basis.T


@pytest.mark.parametrize("rows", [2, 15, 40])
def test_few_rows_have_the_whole_covariance_with_a_floor(rows: int) -> None:
    public = flat(rows)
    x = public.take(torch.arange(rows)).x.double()
    prior = of_public(public)
    assert isinstance(prior.directions, Spanned) and prior.directions.matrix.shape == (40, rows - 1)
    assert torch.allclose(covariance(prior), covariance(raised(x)), rtol=1e-9, atol=1e-15)
    assert prior.typical == pytest.approx(float(raised(x).variance.mean()))
    assert float(prior.directions.count.sum()) == pytest.approx(40)


@pytest.mark.parametrize(
    "attack", [Lmmse(), LmmseRow(), Linkage(), Membership(), Average()], ids=lambda attack: attack.name
)
def test_attacks_find_in_the_span_what_they_find_in_all_directions(
    attack: BaseAttack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From 15 public rows of 40 values: in 14 directions and a rest, and in 40."""
    data, public = flat(30, seed=2), flat(15)
    encoder = replace(weak(data), sigma=0.02)
    made = [encoded(encoder, data, SeededStream(seed)) for seed in range(attack.least_releases)]
    candidates = torch.cat([rows.take(torch.arange(10)).x for rows in (data, flat(10, seed=3))])
    seen = View(tuple(r for r, _ in made), tuple(t for _, t in made), public, candidates)

    def all_said(guess: Guess) -> Tensor:
        return next(said for said in (guess.images, guess.links, guess.scores) if said is not None)

    fast = all_said(attack(seen, stream=SeededStream(0)))
    monkeypatch.setattr(module, "_spanned", lambda rows, *_: raised(rows.take(torch.arange(15)).x.double()))
    slow = all_said(attack(replace(seen, public=flat(15)), stream=SeededStream(0)))
    assert torch.allclose(fast, slow, rtol=1e-7, atol=1e-7 * float(slow.abs().max()))


def test_what_clipping_does_where_public_rows_do_not_vary_is_taken_from_where_they_do() -> None:
    data, public = flat(30, seed=2), flat(15)
    release, trace = encoded(replace(weak(data), clip=0.1), data, SeededStream(0))
    view, prior = View((release,), (trace,), public), of_public(public)
    entry = entry_of(view, 0, prior)
    assert float(entry.gain.min()) > 0.1 and float(entry.gain.max()) < 1
    assert all(bool((of_rest[14:] == of_rest[14]).all()) for of_rest in (entry.gain, entry.spread))


def test_images_of_fewer_rows_than_values_have_a_variance_a_wave() -> None:
    """The slow twin: an explicit transform, and the mean of squares of every wave and of all waves of its length."""
    prior = of_public(pictures(50))
    assert isinstance(prior.directions, Waves)
    basis = basis_of(prior)
    assert torch.allclose(basis.T @ basis, torch.eye(192, dtype=torch.float64), atol=1e-12)
    x = pictures(50).take(torch.arange(50)).x.flatten(1).double()
    energy = ((x - x.mean(0)) @ basis).square().sum(0).view(3, 8, 8) / 49
    for channel, down, across in ((0, 0, 0), (1, 1, 0), (2, 7, 7), (0, 3, 4)):
        ring = [
            float(energy[channel, i, j])
            for i in range(8)
            for j in range(8)
            if round((i * i + j * j) ** 0.5) == round((down * down + across * across) ** 0.5)
        ]
        expected = (50 * float(energy[channel, down, across]) + 10 * sum(ring) / len(ring)) / 60
        assert float(prior.variance.view(3, 8, 8)[channel, down, across]) == pytest.approx(expected)


def test_waves_show_more_of_images_than_the_span_of_few_rows() -> None:
    data = pictures(60, seed=2)
    release, trace = encoded(replace(weak(data), sigma=0.02), data, SeededStream(0))
    truth, errors = data.take(torch.arange(60)).x.double(), []
    for public in (pictures(40), pictures(40).take(torch.arange(40)).x.flatten(1)):
        known = public if isinstance(public, Images) else from_tensors(public, torch.arange(40) % 3)
        images = Lmmse()(View((release,), (trace,), known), stream=SeededStream(0)).images
        assert images is not None
        errors.append(float((images.view_as(truth) - truth).square().mean()))
    assert errors[0] < 0.8 * errors[1]


@settings(deadline=None, max_examples=20)
@given(n=st.integers(1, 5), seed=st.integers(0, 10**6), kind=st.sampled_from(["basis", "span", "waves"]))
def test_directions_keep_inner_products_and_lead_back(n: int, seed: int, kind: str) -> None:
    stream = SeededStream(seed)
    turn = torch.linalg.qr(stream.normal(24, 24)).Q
    made: dict[str, Directions] = {
        "basis": Basis(turn),
        "span": Spanned(turn[:, :7]),
        "waves": Waves((2, 3, 4), torch.device("cpu")),
    }
    directions, x, y = made[kind], stream.normal(n, 24), stream.normal(n, 24)
    told = directions.coordinates(x)
    assert torch.allclose(directions.back(told), x)
    assert torch.allclose(told @ directions.coordinates(y).T, x @ y.T)
    anything = stream.normal(n, told.shape[1])
    assert torch.allclose((directions.back(anything) * y).sum(1), (anything * directions.coordinates(y)).sum(1))


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 7, 5), (2, 1, 6), (3, 32, 32)])
@pytest.mark.parametrize("kind", [torch.float64, torch.float32])
def test_fast_waves_are_products_with_cosines(shape: tuple[int, int, int], kind: torch.dtype) -> None:
    waves, x = Waves(shape, torch.device("cpu")), SeededStream(1).normal(4, math.prod(shape)).to(kind)
    turns = [cosines(size).to(kind) for size in shape]
    slow = torch.einsum("nchw,kc,ih,jw->nkij", x.view(4, *shape), *turns).flatten(1)
    assert waves.coordinates(x).dtype == kind
    close = 1e-12 if kind == torch.float64 else 1e-5
    assert torch.allclose(waves.coordinates(x), slow, atol=close)
    assert torch.allclose(waves.back(slow), x, atol=close)


def test_records_that_do_not_vary_are_refused() -> None:
    for shape in ((5, 1, 1, 3), (5, 8), (2, 3)):
        with pytest.raises(ArgumentError, match=sentence("known-records-do-not-vary")):
            of_public(from_tensors(torch.ones(*shape), torch.arange(shape[0])))


def test_a_release_of_many_rows_has_a_covariance_and_one_of_few_has_waves() -> None:
    many, few = pictures(192 * 2), pictures(192)
    kinds = [type(of_noisy(rows, (3, 8, 8), 0.01, 0.5, enough=2).directions) for rows in (many, few)]
    assert kinds == [Basis, Waves]
