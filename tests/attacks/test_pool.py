"""All rows of several releases together, and what is known of their order."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from mixveil.attacks.shared.base import CannotAttackError
from mixveil.attacks.shared.pool import Pool, out_of_order, private_sources
from mixveil.core.randomness import SeededStream
from mixveil.core.types import Encoder, Mu, View
from mixveil.encoders.identity import Identity
from mixveil.encoders.instahide import CalibratedInstaHide
from mixveil.encoders.mixup import Mixup
from mixveil.encoders.singular import Singular
from tests.attacks.made import several
from tests.made import encoded, images, range_facts
from tests.notes import holds

DATA, COVERS = images(12), images(30, seed=3)
NOISY = Singular().calibrate(Mu(1.0), range_facts(DATA))[0]


def hiding(k: int, covers: int = 0) -> CalibratedInstaHide:
    return CalibratedInstaHide(k=k, c1=0.65, c2=0.3, covers=covers, pad=0, values=16, centre=0.5)


def unequal() -> View:
    """A release of twelve rows and one of eight."""
    return View(tuple(encoded(Mixup(3), images(n), SeededStream(n))[0] for n in (12, 8)))


def test_rows_of_several_releases_come_one_release_after_another() -> None:
    view = several(Mixup(3), DATA, 3)
    pool = Pool.of(view)
    rows = [release.payload.take(torch.arange(12)) for release in view.releases]
    assert torch.equal(pool.x, torch.cat([batch.x.flatten(1).double() for batch in rows]))
    assert torch.equal(pool.y, torch.cat([batch.y.double() for batch in rows]))
    assert pool.x.dtype == pool.y.dtype == torch.float64 and pool.y.shape == (36, 4)
    assert pool.release.tolist() == [0] * 12 + [1] * 12 + [2] * 12
    assert pool.own is not None and pool.own.tolist() == 3 * list(range(12))
    assert (pool.records, pool.private, pool.shape) == (12, 3, (1, 4, 4))


def test_rows_of_a_grid_are_the_values_that_it_stands_for() -> None:
    release, _ = encoded(NOISY, DATA, SeededStream(1))
    assert release.encoder.step is not None and release.encoder.step != 1
    values = release.payload.shards[0].x.flatten(1).double() * release.encoder.step
    torch.testing.assert_close(Pool.of(View((release,))).x, values, rtol=1e-6, atol=0)


def test_rows_in_no_order_have_no_record_of_their_own() -> None:
    pool = Pool.of(replace(unequal(), records=7))
    assert pool.own is None and pool.records == 7
    assert len(pool.x) == len(pool.y) == 20 and pool.release.tolist() == [0] * 12 + [1] * 8


def test_releases_of_unequal_rows_are_refused_where_their_order_counts() -> None:
    with pytest.raises(CannotAttackError) as raised:
        Pool.of(unequal())
    assert holds([raised.value.why], "attack-needs-equal-rows")


def test_rows_of_different_encoders_hold_as_many_records_as_the_most_of_them() -> None:
    encoders: list[Encoder] = [Identity(), Mixup(3), hiding(2)]
    view = View(tuple(encoded(encoder, DATA, SeededStream(i))[0] for i, encoder in enumerate(encoders)))
    assert Pool.of(view).private == 3
    assert Pool.of(View(view.releases[:1])).private == 1


@pytest.mark.parametrize(
    ("encoder", "private"),
    [
        (Identity(), 1),
        (Mixup(3), 3),
        (Mixup(4, covers=30), 2),
        (hiding(4), 4),
        (hiding(4, covers=30), 2),
        (NOISY, 2),
    ],
)
def test_how_many_records_a_row_is_made_of(encoder: Encoder, private: int) -> None:
    """Whatever else is mixed in are public images."""
    assert private_sources(encoder) == private
    release, trace = encoded(encoder, DATA, SeededStream(1), COVERS if encoder.covers else None)
    assert Pool.of(View((release,))).private == 1 + int((trace.partner < 12).any(0).sum()) == private


def test_rows_are_out_of_order_where_labels_were_randomised() -> None:
    view = several(Mixup(3), DATA, 2)
    assert out_of_order(view) is None
    shown, hidden = view.releases[0], view.releases[1].with_(label_epsilon=1.0)
    seen = View((shown, hidden))
    assert holds([out_of_order(seen)], "attack-needs-row-order")
    assert out_of_order(replace(seen, records=12)) is None  # no order is counted on
