"""The attacks that begin with demasking, on digits: what they must find, and what they must not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from mixveil.attacks.records.averaging import AverageKnown, AverageSimilar, _by_looks, _by_record
from mixveil.attacks.records.demask import Demask
from mixveil.attacks.records.demask_search import DemaskSearch
from mixveil.attacks.records.search_learned import _squares
from mixveil.attacks.shared.alike import Comparison
from mixveil.attacks.shared.base import CannotAttackError
from mixveil.attacks.shared.demasking import Demasking, Imitation, Signs
from mixveil.attacks.shared.training import Schedule, TrainingCache
from mixveil.audit.metrics import signs
from mixveil.core.randomness import SeededStream
from mixveil.core.types import Attack, Encoder, Mu, Trace, View
from mixveil.data.images import Images
from mixveil.data.similarity import mse, ssim
from mixveil.encoders.identity import Identity
from mixveil.encoders.instahide import CalibratedInstaHide
from mixveil.encoders.mixup import Mixup
from mixveil.encoders.singular import Singular
from tests.attacks.made import digits
from tests.made import encoded, images, range_facts
from tests.notes import holds

RECORDS, PUBLIC = digits(0, 100), digits(600, 1000)
HIDING = CalibratedInstaHide(k=4, c1=0.65, c2=0.3, covers=0, pad=0, values=64, centre=0.5)
Make = Callable[[type[Demasking]], Demasking]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """Attacks with a small network, which is trained once for all of them."""
    cache = TrainingCache(tmp_path_factory.mktemp("networks"), max_steps=200)
    schedule = Schedule(epochs=1000, batch=32, rate=3e-3, falling=True)
    return lambda kind: kind(base=8, schedule=schedule, cache=cache)


def view(encoder: Encoder, releases: int = 1, covers: Images | None = None) -> View:
    pairs = [encoded(encoder, RECORDS, SeededStream(seed), covers) for seed in range(releases)]
    return View(tuple(r for r, _ in pairs), tuple(t for _, t in pairs), PUBLIC, covers=covers)


def error(attack: Attack, seen: View) -> float:
    """Of knowing nothing's, the share that the attack leaves."""
    found = attack(seen, stream=SeededStream(0)).images
    truth, mean = (x.take(torch.arange(len(x))).x.double() for x in (RECORDS, PUBLIC))
    assert found is not None
    return float(mse(truth, found.clamp(0, 1)).mean() / mse(truth, mean.mean(0).expand_as(truth)).mean())


def true_signs(encoder: Encoder, trace: Trace) -> Tensor:
    return encoder.observation(trace).mixture(RECORDS, torch.arange(len(RECORDS))).x.sign()


def test_most_signs_of_mixed_digits_are_found(small: Make) -> None:
    seen = view(HIDING)
    truth, guess = true_signs(HIDING, (seen.traces or ())[0]), small(Demask)(seen, stream=SeededStream(0)).signs
    assert guess is not None and guess.dtype == torch.int8 and bool((guess.abs() == 1).all())
    assert float(signs.found(truth, guess).mean()) > 0.78 > signs.of_one_sign(truth) + 0.05


def test_attacks_on_the_same_encoder_share_one_network(small: Make, tmp_path: Path) -> None:
    folder = small(Demask).cache.folder
    small(Demask)(view(HIDING), stream=SeededStream(0))
    assert folder is not None and len(list((folder / "attacks").iterdir())) == 1
    small(AverageKnown)(view(HIDING, 2), stream=SeededStream(5))
    assert len(list((folder / "attacks").iterdir())) == 1


def test_values_are_believed_as_far_as_their_sign_is_known() -> None:
    class Says(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.tensor([0.0, 40.0, -40.0, 1.0]).expand_as(x)

    found = Signs(Says(), unit=1.0).demasked(torch.tensor([[[[-2.0, -2.0, 3.0, -1.0]]]]))
    chance = torch.sigmoid(torch.tensor(1.0, dtype=torch.float64))
    assert torch.allclose(found.flatten(), torch.tensor([0, 2, -3, 2 * float(chance) - 1], dtype=torch.float64))


def test_what_attackers_learn_from_is_not_what_they_try_it_on() -> None:
    known = Imitation(view(HIDING))
    everything = PUBLIC.take(torch.arange(len(PUBLIC))).x
    assert len(known.learnt) + len(known.held) == len(PUBLIC) and len(known.held) == len(PUBLIC) // 5
    rows = {tuple(row.flatten().tolist()) for row in everything}
    learnt, held = ({tuple(row.flatten().tolist()) for row in part} for part in (known.learnt, known.held))
    assert learnt | held == rows and not learnt & held
    with pytest.raises(CannotAttackError) as raised:
        Imitation(View(view(HIDING).releases, public=digits(600, 620)))
    assert holds([raised.value.why], "too-few-public-rows", rows=20)


def test_they_say_what_they_lack() -> None:
    covered = CalibratedInstaHide(k=4, c1=0.65, c2=0.3, covers=9, pad=0, values=64, centre=0.5)
    seen = view(covered, covers=images(9, (1, 8, 8), classes=10))
    for attack in (Demask(), AverageKnown(), AverageSimilar(), DemaskSearch()):
        assert attack.cannot(seen) is None
        blind = View(seen.releases, seen.traces, seen.public)
        assert holds([attack.cannot(blind)], "attack-needs", fields="covers")
        nothing = View(seen.releases, seen.traces, covers=seen.covers)
        assert holds([attack.cannot(nothing)], "attack-needs", fields="public")
    assert holds([Demask().cannot(view(Mixup()))], "attack-needs-mask", encoder="mixup")
    assert holds([DemaskSearch().cannot(view(Mixup()))], "attack-needs-covers", encoder="mixup")
    with pytest.raises(CannotAttackError):
        Demask()(view(Mixup()), stream=SeededStream(0))


def test_averages_of_known_rows_by_hand() -> None:
    rows = [SeededStream(seed).normal(3, 1, 2, 2) for seed in (1, 2)]
    partners = [torch.tensor([[1, 2], [2, 0], [0, 7]]), torch.tensor([[2, 5], [0, 6], [1, 1]])]
    found = _by_record(rows, [Trace(partner, torch.ones(3, 3)) for partner in partners])
    for record in range(3):
        holding = [
            x
            for release, partner in zip(rows, partners, strict=True)
            for row, x in enumerate(release)
            for source in [row, *partner[row].tolist()]
            if source == record
        ]
        assert torch.allclose(found[record], torch.stack(holding).mean(0))


def test_averages_of_similar_rows_by_hand() -> None:
    releases = [SeededStream(seed).uniform(4, 1, 8, 8) for seed in (1, 2, 3)]
    releases[2][1] = releases[0][1]  # the very same row: nothing is more similar
    rows, found = torch.cat(releases), _by_looks(releases, Comparison(0.0, 1.0))
    for row in range(4):
        others = [other for other in range(12) if other != row]
        alike = {other: float(ssim(rows[row : row + 1], rows[other : other + 1])) for other in others}
        nearest = sorted(others, key=lambda other: -alike[other])[:5]
        assert row != 1 or nearest[0] == 9
        assert torch.allclose(found[row], rows[[row, *nearest]].mean(0))


def test_averages_show_images_that_were_mixed_and_not_masked(small: Make) -> None:
    mixed = view(Mixup(k=4), 10)
    assert error(small(AverageKnown), mixed) < 0.4
    assert error(small(AverageKnown), view(Mixup(k=4), 1)) > error(small(AverageKnown), mixed) + 0.1
    assert error(small(AverageSimilar), mixed) < 0.9
    same = view(Identity(), 6)
    assert error(small(AverageKnown), same) < 1e-6 and error(small(AverageSimilar), same) < 1e-6


def test_a_mask_leaves_something_to_who_knows_the_rows(small: Make) -> None:
    """Without the demasking nothing is left: the mean of masked rows is zero everywhere."""
    masked = view(HIDING, 10)
    assert error(small(AverageKnown), masked) < 0.8
    rows = [release.payload.take(torch.arange(100)).x.double() for release in masked.releases]
    average = _by_record(rows, masked.traces or ())
    assert float(average.abs().mean()) < 0.3 * float(rows[0].abs().mean())


def test_of_a_certified_release_averages_show_next_to_nothing(small: Make) -> None:
    encoder, _ = Singular().calibrate(Mu(1.0), range_facts(RECORDS))
    seen = view(encoder, 6)
    for kind in (AverageKnown, AverageSimilar):
        assert 0.97 < error(small(kind), seen) < 1.03


def test_covers_are_found_in_mixtures_and_fewer_behind_a_mask(small: Make) -> None:
    covers, found = digits(1000, 1300), []
    hidden = CalibratedInstaHide(k=4, c1=0.65, c2=0.3, covers=300, pad=0, values=64, centre=0.5)
    for encoder in (Mixup(k=4, covers=300), hidden):
        seen = view(encoder, covers=covers)
        scores = small(DemaskSearch)(seen, stream=SeededStream(0)).covers
        assert scores is not None and scores.shape == (100, 300)
        right = (seen.traces or ())[0].partner[:, 1:] - 100
        found.append(float((scores.gather(1, right)[:, :, None] > scores[:, None]).double().mean()))
    assert found[0] > 0.75 > 0.7 > found[1] > 0.55, found  # the share of covers that score below the two in a row


def test_squares_are_cut_where_they_are_drawn() -> None:
    across = torch.linspace(0, 1, 16).expand(50, 1, 16, 16)
    cut = _squares(across, 0.5, SeededStream(1))
    width = cut[:, 0, 0, -1] - cut[:, 0, 0, 0]
    assert torch.allclose(cut[:, :, :1].expand_as(cut), cut, atol=1e-6)  # the ramp goes across only
    assert 0.45 < float(width.min()) < 0.6 and 0.9 < float(width.max()) <= 1
    assert float(cut[:, 0, 0, 0].max()) > 0.3 and float(cut[:, 0, 0, -1].min()) < 0.7
    assert _squares(across, 1.0, SeededStream(1)) is across
