"""Which public images are in a row: by inner products where signs are shown, by squares where they are hidden."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from mixveil.attacks.records.braverman import Braverman, BravermanWhitened
from mixveil.attacks.records.inner_product_average import InnerProductAverage
from mixveil.attacks.records.public_search import PublicSearch
from mixveil.attacks.shared import covers as shared_covers
from mixveil.attacks.shared import model
from mixveil.attacks.shared.covers import CoverAttack
from mixveil.audit.metrics import sources
from mixveil.core.randomness import SeededStream
from mixveil.core.types import Encoder, View
from mixveil.data.images import Images, from_tensors
from mixveil.data.row_views import Subset
from mixveil.data.similarity import mse
from mixveil.encoders.instahide import CalibratedInstaHide
from mixveil.encoders.mixup import Mixup
from tests.attacks.made import digits
from tests.made import encoded

N = 300


def images(n: int, seed: int) -> Images:
    """Waves of falling strength, as in natural images: long ones are strong."""
    grid = torch.linspace(0, torch.pi, 16, dtype=torch.float64)
    waves = torch.stack([torch.cos(i * grid)[:, None] * torch.cos(j * grid) for i in range(12) for j in range(12)])
    size = torch.tensor([1 / (1 + i + j) ** 1.5 for i in range(12) for j in range(12)], dtype=torch.float64)
    x = 0.5 + 0.12 * torch.einsum("nk,khw->nhw", SeededStream(seed).normal(n, 144) * size, waves)
    return from_tensors(x.clamp(0, 1).float()[:, None], torch.arange(n) % 4, classes=4)


PRIVATE, PUBLIC = images(150, 1), images(N, 2)


def instahide(k: int, values: int = 256) -> CalibratedInstaHide:
    return CalibratedInstaHide(k=k, c1=0.65, c2=0.3, covers=N, pad=0, values=values, centre=0.5)


def view(encoder: Encoder, private: Images = PRIVATE, public: Images = PUBLIC) -> tuple[View, Tensor]:
    """The view, and (n, q) the covers in its rows."""
    release, trace = encoded(encoder, private, SeededStream(3), public)
    return View((release,), (trace,), covers=public), trace.partner[:, 1:] - len(private)


def named(attack: CoverAttack, encoder: Encoder) -> sources.Covers:
    seen, covered = view(encoder)
    scores = attack(seen, stream=SeededStream(0)).covers
    assert scores is not None and scores.shape == (150, N)
    return sources.covers(scores, covered)


@pytest.mark.parametrize("k", [4, 6])
def test_the_search_finds_the_covers_of_mixup_and_not_those_behind_signs(k: int) -> None:
    found = named(PublicSearch(), Mixup(k, N))
    assert found.hits > 0.97 * 150 and found.rank < 0.02
    found = named(PublicSearch(), instahide(k))
    assert found.hits < (found.chance + 0.1) * 150 and 0.4 < found.rank < 0.6


def test_squares_find_covers_behind_signs_and_better_where_they_vary_alike() -> None:
    plain, whitened = named(Braverman(), instahide(4)), named(BravermanWhitened(), instahide(4))
    assert plain.rank < 0.4 and whitened.rank < 0.5 * plain.rank
    assert plain.hits > 2 * plain.chance * 150 and whitened.hits > max(0.6 * 150, 1.3 * plain.hits)


def test_what_is_left_of_a_row_is_its_private_part() -> None:
    seen, _ = view(Mixup(4, N))
    left = PublicSearch()(seen, stream=SeededStream(0)).images
    alone, _ = encoded(Mixup(2), PRIVATE, SeededStream(3))
    two = InnerProductAverage()(View((alone,)), stream=SeededStream(0)).images
    whole = InnerProductAverage()(seen, stream=SeededStream(0)).images
    truth = PRIVATE.take(torch.arange(150)).x
    errors = [float(mse(truth, torch.as_tensor(images)).mean()) for images in (two, left, whole)]
    assert errors[1] < 1.25 * errors[0] and errors[1] < 0.9 * errors[2]  # nearly as if there were no covers
    hidden, _ = view(instahide(4))
    assert PublicSearch()(hidden, stream=SeededStream(0)).images is None


def test_braverman_is_the_formula() -> None:
    seen, _ = view(instahide(4))
    scores = Braverman()(seen, stream=SeededStream(0)).covers
    x = seen.releases[0].payload.take(torch.arange(150)).x.flatten(1)
    s = PUBLIC.take(torch.arange(N)).x.flatten(1) - 0.5
    for i, j in ((0, 0), (3, 200)):
        product = sum(float(x[i, v]) ** 2 * float(s[j, v]) ** 2 for v in range(256))
        lengths = float(x[i].double().square().sum() * s[j].double().square().sum())
        assert scores is not None and abs(float(scores[i, j]) - (product - lengths / 256)) < 1e-4


@pytest.mark.parametrize("attack", [PublicSearch(), Braverman(), BravermanWhitened()])
def test_blocks_of_covers_make_no_difference(attack: CoverAttack, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, _ = view(Mixup(4, N))
    whole = attack(seen, stream=SeededStream(0))
    monkeypatch.setattr(shared_covers, "_BLOCK_VALUES", 7 * 256)
    monkeypatch.setattr(shared_covers, "_KEPT_VALUES", 0)
    parts = attack(seen, stream=SeededStream(0))
    for one, other in ((whole.covers, parts.covers), (whole.images, parts.images)):
        assert (one is None) == (other is None)
        assert one is None or torch.allclose(one, torch.as_tensor(other), atol=1e-3)


def test_digits_show_their_covers_too() -> None:
    private, public = digits(0, 150), digits(300, 300 + N)
    for encoder, attack, share in ((Mixup(4, N), PublicSearch(), 0.85), (instahide(4, 64), BravermanWhitened(), 0.5)):
        seen, covered = view(encoder, private, public)
        found = sources.covers(torch.as_tensor(attack(seen, stream=SeededStream(0)).covers), covered)
        assert found.hits > share * 150 > 3 * found.chance * 150


def test_rows_without_covers_are_refused() -> None:
    release, _ = encoded(Mixup(2), PRIVATE, SeededStream(3))
    why = PublicSearch().cannot(View((release,), covers=PUBLIC))
    assert why is not None and why.code == "attack-needs-covers" and why.figures == {"encoder": "mixup"}


def test_an_attacker_who_holds_fewer_covers_repeats_them() -> None:
    """A release chooses from 300 patches; an attacker who cut 40 can still imitate it."""
    encoder = instahide(4)
    seen, _ = view(encoder)
    few = Subset(PUBLIC, torch.arange(40))
    rows, own = model.with_covers(replace(seen, covers=few), PRIVATE), len(PRIVATE)
    index = own + torch.tensor([0, 39, 40, 299])
    assert len(rows) == own + N and torch.equal(rows.take(index).x, PUBLIC.take(torch.tensor([0, 39, 0, 19])).x)
    trace = encoder.plan(own, stream=SeededStream(1))
    assert encoder.encode(rows, torch.arange(own), trace, stream=SeededStream(2)).x.shape == (own, 1, 16, 16)
    assert torch.equal(model.with_covers(seen, PRIVATE).take(index).x, PUBLIC.take(index - own).x)
