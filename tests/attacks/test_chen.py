"""Images of normal values from rows of pairs: to the last digit without noise, and a clear message beyond reach."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from mixveil.attacks.records.chen import Chen
from mixveil.attacks.shared.base import CannotAttackError
from mixveil.core.randomness import SeededStream
from mixveil.core.types import Batch, Encoder, Guess, Mu, Tau, View
from mixveil.core.wording.notes import Note
from mixveil.data.images import Images
from mixveil.data.row_views import InMemoryRows
from mixveil.encoders.gaussian import Gaussian
from mixveil.encoders.identity import Identity
from mixveil.encoders.instahide import CalibratedInstaHide
from mixveil.encoders.laplace import Laplace
from mixveil.encoders.mixup import Mixup
from mixveil.encoders.singular import Singular
from tests.attacks.made import digits, instahide, normal_images, several, sources
from tests.made import encoded, in_memory, range_facts, with_moments

VALUES = 12_000
EXACT = 1e-5  # of values of about one: float32 leaves a tenth of it


def attacked(seen: View) -> Guess:
    return Chen()(replace(seen, traces=None), stream=SeededStream(0))


def refused(seen: View) -> Note:
    """Why the attack was not run, or ended."""
    with pytest.raises(CannotAttackError) as error:
        attacked(seen)
    return error.value.why


def error_of(guess: Guess, data: Images, *, signed: bool, order: Tensor | None = None) -> float:
    """The largest error. signed: whether the values at one place may not have one common sign; order: (n,) the record
    of each image."""
    truth = data.take(torch.arange(len(data)) if order is None else order).x.double()
    assert guess.images is not None and guess.images.shape == truth.shape
    sign = torch.tensor(1.0) if signed else (guess.images * truth).sum(0).sign()
    return float((guess.images * sign - truth).abs().max())


def pairs_right(guess: Guess, truth: Tensor, order: Tensor | None = None) -> bool:
    assert guess.sources is not None and bool((guess.sources >= 0).all())
    named = guess.sources if order is None else order[guess.sources]
    return torch.equal(named.sort(1).values, truth.sort(1).values)


def shuffled(seen: View, records: int, seed: int = 1, without: Tensor | None = None) -> tuple[View, Tensor]:
    """All rows, without some, as one release in no known order; and (m,) where each row was."""
    batches = [release.payload.take(torch.arange(len(release.payload))) for release in seen.releases]
    order = SeededStream(seed).permutation(sum(len(batch.y) for batch in batches))
    order = order if without is None else order[~without[order]]
    x, y = (torch.cat(parts)[order] for parts in zip(*batches, strict=True))
    release = seen.releases[0].with_(payload=InMemoryRows(Batch(x, y)))
    return View((release,), covers=seen.covers, records=records), order


def numbered(guess: Guess, truth: Tensor, records: int) -> Tensor:
    """(n,) the record of each image: that which is in most of its rows."""
    together = torch.zeros(records, records)
    for named, true in zip(torch.as_tensor(guess.sources).tolist(), truth.tolist(), strict=True):
        for image in set(named) - {-1}:
            together[image, true] += 1
    return together.argmax(1)


@pytest.mark.parametrize("n", [20, 30, 40])
def test_hidden_signs_and_random_weights_hide_nothing(n: int) -> None:
    data = normal_images(n, VALUES, seed=n)
    seen = several(instahide(VALUES), data, 6, seed=n)
    guess = attacked(seen)
    assert pairs_right(guess, sources(seen.traces)) and error_of(guess, data, signed=False) < EXACT
    assert guess.images is not None and bool((guess.images.mean(0) >= 0).all())  # the sign that is chosen


@pytest.mark.parametrize("classes", [4, 1])
def test_nor_does_another_order_of_rows(classes: int) -> None:
    data = normal_images(20, VALUES, classes=classes)
    seen = several(instahide(VALUES), data, 7)
    mixed, order = shuffled(seen, 20)
    guess, truth = attacked(mixed), sources(seen.traces)[order]
    who = numbered(guess, truth, 20)
    assert sorted(who.tolist()) == list(range(20)) and pairs_right(guess, truth, who)
    assert error_of(guess, data, signed=False, order=who) < EXACT


def test_nor_do_equal_weights() -> None:
    data, encoder = normal_images(24, VALUES), instahide(VALUES)
    releases, traces = [], []
    for seed in range(6):
        trace = encoder.plan(24, stream=SeededStream(seed))
        traces.append(replace(trace, weight=torch.full_like(trace.weight, 0.5)))
        batch = encoder.encode(data, torch.arange(24), traces[-1], stream=SeededStream(0))
        releases.append(in_memory(encoder, batch, None, data.classes))
    guess = attacked(View(tuple(releases)))
    assert pairs_right(guess, sources(tuple(traces))) and error_of(guess, data, signed=False) < EXACT


@pytest.mark.parametrize("encoder", [instahide(16_000, 4, 30), Mixup(4, 30)])
def test_public_images_give_the_signs_away_too(encoder: Encoder) -> None:
    data, covers = normal_images(16, 16_000), normal_images(30, 16_000, seed=7)
    seen = several(encoder, data, 7, covers)
    guess = attacked(seen)
    assert pairs_right(guess, sources(seen.traces)) and error_of(guess, data, signed=True) < EXACT


@pytest.mark.parametrize("ordered", [True, False])
def test_mixup_is_solved_with_every_sign(ordered: bool) -> None:
    data = normal_images(20, VALUES)
    seen = several(Mixup(), data, 3 if ordered else 7)
    if ordered:
        guess = attacked(seen)
        assert pairs_right(guess, sources(seen.traces)) and error_of(guess, data, signed=True) < EXACT
        return
    mixed, order = shuffled(seen, 20)
    guess, truth = attacked(mixed), sources(seen.traces)[order]
    who = numbered(guess, truth, 20)
    assert pairs_right(guess, truth, who) and error_of(guess, data, signed=True, order=who) < EXACT


def test_the_values_may_have_any_mean_and_deviation_where_signs_are_seen() -> None:
    x = 0.5 + 0.08 * SeededStream(1).normal(20, 4000).clamp(-6, 6)
    data = Images("made", lambda index: x[index].float(), torch.arange(20) % 3, ("a", "b", "c"), (4000,))
    assert error_of(attacked(several(Mixup(), data, 4)), data, signed=True) < EXACT


@pytest.mark.parametrize("encoder", [instahide(VALUES), Mixup()])
def test_a_record_that_its_rows_leave_open_is_not_made_up(encoder: Encoder) -> None:
    """Of one record a single row is left, of two records of one class: nothing tells its weight, or its signs."""
    data = normal_images(20, VALUES)
    seen = several(encoder, data, 8, seed=3)
    pairs = sources(seen.traces)
    without = (pairs == 19).any(1)
    alike = data.labels[pairs[:, 0]] == data.labels[pairs[:, 1]]
    without[(without & alike & (pairs[:, 0] != pairs[:, 1])).nonzero()[0, 0]] = False
    mixed, order = shuffled(seen, 20, without=without)
    guess, truth = attacked(mixed), pairs[order]
    assert guess.images is not None and guess.sources is not None
    told = guess.images.abs().amax(1) > 0.01
    said, who = (guess.sources >= 0).all(1), numbered(guess, truth, 20)[told]
    assert sorted(who.tolist()) == list(range(19)) and int((~said).sum()) <= 1
    assert error_of(replace(guess, images=guess.images[told]), data, signed=not encoder.masked, order=who) < EXACT
    others = said & ~(truth == 19).any(1)
    assert torch.equal(numbered(guess, truth, 20)[guess.sources[others]].sort(1).values, truth[others].sort(1).values)


def test_rows_of_one_image_are_grouped() -> None:
    data = normal_images(12, 500)
    seen = several(Identity(), data, 3)
    guess = attacked(seen)
    assert error_of(guess, data, signed=True) < 1e-6
    assert torch.as_tensor(guess.sources)[:, 0].tolist() == [*range(12)] * 3
    mixed, order = shuffled(seen, 12)
    guess = attacked(mixed)
    who = torch.tensor([int(order[torch.as_tensor(guess.sources)[:, 0] == i][0]) % 12 for i in range(12)])
    assert error_of(guess, data, signed=True, order=who) < 1e-6
    masked = CalibratedInstaHide(k=1, c1=1.0, c2=0.0, covers=0, pad=0, values=500, centre=0.0)
    images = attacked(several(masked, data, 2)).images
    assert images is not None and torch.allclose(images, data.take(torch.arange(12)).x.double().abs())


def noise_of(data: Images, tau: float) -> Encoder:
    facts = with_moments(range_facts(data), energy=float(data.shape[0]), lambda_max=float(data.shape[0]))
    return Singular().calibrate(Tau(tau, "energy"), facts)[0]


def test_under_weak_noise_pairs_are_found_and_images_in_part() -> None:
    data = normal_images(20, VALUES)
    truth, left = data.take(torch.arange(20)).x.double(), []
    for releases in (4, 8):
        seen = several(noise_of(data, 1.0), data, releases)
        guess = attacked(seen)
        assert guess.images is not None and pairs_right(guess, sources(seen.traces))
        left.append(float((guess.images - truth).square().mean()))
    assert 0.1 < left[1] < 0.8 * left[0] < 0.5


@pytest.mark.parametrize("encoder", ["certified", "tau", "gaussian"])
def test_under_strong_noise_it_says_that_it_sees_nothing(encoder: str) -> None:
    data = normal_images(20, VALUES)
    made: dict[str, Encoder] = {
        "certified": Singular().calibrate(Mu(1.0), range_facts(data))[0],
        "tau": noise_of(data, 1e-2),
        "gaussian": Gaussian().calibrate(Mu(1.0), range_facts(data))[0],
    }
    assert refused(several(made[encoder], data, 6)).code == "attack-drowned"


def test_under_noise_of_single_rows_it_averages() -> None:
    data = normal_images(20, 2000)
    seen = several(Laplace.example(), data, 4)
    images = attacked(seen).images
    assert images is not None and float((images - data.take(torch.arange(20)).x).square().mean()) < 0.05


def test_what_is_beyond_its_reach_it_says_before_it_runs() -> None:
    attack, data = Chen(), normal_images(20, 2000)

    def why(seen: View) -> str | None:
        told = attack.cannot(seen)
        return None if told is None else told.code

    assert why(several(instahide(2000, 4), data, 2)) == "attack-needs-pairs"
    assert why(several(Mixup(), digits(0, 40), 6)) == "attack-needs-independent-values"
    few = normal_images(20, 300)
    assert why(several(instahide(300), few, 6)) == "attack-needs-more-values"
    two = several(Mixup(), data, 1).releases + several(instahide(2000), data, 1).releases
    assert why(View(two)) == "attack-needs-one-encoder"
    randomised = tuple(release.with_(label_epsilon=1.0) for release in several(Mixup(), data, 4).releases)
    assert why(View(randomised)) == "attack-needs-row-order"
    assert why(several(Mixup(), normal_images(1001, 30), 2)) == "attack-needs-fewer-rows"
    covered = several(instahide(2000, 4, 101), data, 1, normal_images(101, 2000, seed=7))
    assert why(covered) == "attack-needs-fewer-covers"
    assert why(replace(covered, covers=None)) == "attack-needs"
    assert (
        why(several(Mixup(), normal_images(20, 4000), 4)) is None and why(several(Identity(), digits(0, 40), 1)) is None
    )


def test_what_shows_only_as_it_runs_it_says_then() -> None:
    data = normal_images(20, VALUES)
    assert refused(several(instahide(VALUES), data, 1)).code == "attack-needs-connected"
    assert refused(several(instahide(VALUES), normal_images(30, VALUES), 3)).code == "attack-needs-floral"
    mixed, _ = shuffled(several(Mixup(), data, 2), 20)
    assert refused(mixed).code == "attack-needs-floral"
    covers = normal_images(30, VALUES, seed=7)
    others = replace(several(instahide(VALUES, 4, 30), data, 2, covers), covers=normal_images(30, VALUES, seed=8))
    assert refused(others).code in ("attack-needs-more-values", "attack-drowned")


def test_images_that_change_from_row_to_row_are_not_made_up() -> None:
    """Half of the rows are of other images than their places say."""
    data, other = normal_images(20, VALUES), normal_images(20, VALUES, seed=2)
    seen = several(Mixup(), data, 3).releases + several(Mixup(), other, 3, seed=5).releases
    assert refused(View(seen)).code in ("attack-rows-unexplained", "attack-needs-connected")


def test_releases_of_other_sizes_are_refused() -> None:
    small, _ = encoded(Mixup(), normal_images(10, 2000), SeededStream(1))
    assert refused(View((several(Mixup(), normal_images(20, 2000), 1).releases[0], small))).code == (
        "attack-needs-equal-rows"
    )
