"""What rows of normal images show, each by itself and in pairs, and what they cannot be."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from mixveil.attacks.shared.base import CannotAttackError
from mixveil.attacks.shared.gaussian.mixture_rows import MixtureRows, Shown, by_energy
from mixveil.attacks.shared.gaussian.normal_values import neighbours, not_normal
from mixveil.attacks.shared.gaussian.pair_recovery import label_weights
from mixveil.attacks.shared.gaussian.row_gram import Measure
from mixveil.attacks.shared.gaussian.single_rows import grouped, least_squares
from mixveil.attacks.shared.gaussian.sparse_solve import Selection
from mixveil.attacks.shared.pool import Pool
from mixveil.core.randomness import SeededStream
from mixveil.core.types import Encoder, Mu, Tau, View
from mixveil.encoders.mixup import Mixup
from mixveil.encoders.singular import Singular
from tests.attacks.made import digits, instahide, normal_images, several, sources
from tests.made import encoded, images, range_facts, with_moments

VALUES = 6000
DATA = normal_images(12, VALUES)
COVERS = normal_images(20, VALUES, seed=7)


def noisy(tau: float) -> Encoder:
    facts = with_moments(range_facts(DATA), energy=float(VALUES), lambda_max=float(VALUES))
    return Singular().calibrate(Tau(tau, "energy"), facts)[0]


def weights(seen: View) -> Tensor:
    """(m, n) the true weights of private images."""
    found = torch.zeros(len(sources(seen.traces)), len(DATA), dtype=torch.float64)
    shares = torch.cat([trace.weight[:, :2] for trace in seen.traces or ()])
    return found.scatter_add_(1, sources(seen.traces), shares.double())


MEASURED = [(instahide(VALUES), 0.05), (instahide(VALUES, 4, 20), 0.05), (Mixup(), 0.06), (Mixup(4, 20), 0.06)]


@pytest.mark.parametrize(("encoder", "most"), [*MEASURED, (noisy(1.0), 0.15)])
def test_products_are_those_of_the_weights(encoder: Encoder, most: float) -> None:
    seen = several(encoder, DATA, 4, COVERS if encoder.covers else None)
    rows = MixtureRows.of(seen, Pool.of(seen))
    assert abs(rows.scale - 1) < 0.05
    measure = Measure.of(rows)
    gram, truth = measure.gram(rows.pair), weights(seen) @ weights(seen).T
    clear = measure.clarity(rows.pair[:, 1]) > 1
    off = ~torch.eye(len(truth), dtype=torch.bool)
    assert not ((gram.value > gram.least) & (truth == 0) & off).any()
    assert clear.double().mean() > 0.3
    both = clear[:, None] & clear & off
    assert float((gram.value - truth)[both & (gram.value > gram.least)].abs().max()) < most
    assert float((gram.touch == (truth > 0))[both].double().mean()) > 0.98


@pytest.mark.parametrize("classes", [4, 1])
def test_weights_show_in_labels_or_in_lengths(classes: int) -> None:
    data = normal_images(12, VALUES, classes=classes)
    seen = several(instahide(VALUES), data, 4)
    rows = MixtureRows.of(seen, Pool.of(seen))
    truth = weights(seen).topk(2, dim=1).values
    shown = (Pool.of(seen).y > 0).sum(1) == 2
    assert bool(shown.any()) == (classes > 1)
    assert torch.allclose(rows.pair[shown], truth[shown], atol=1e-6)
    assert float((rows.pair - truth).abs().max()) < 0.15 and torch.allclose(rows.total, torch.tensor(1.0).double())


def test_two_weights_follow_from_their_sum_and_their_squares() -> None:
    pair = torch.tensor([[0.7, 0.3], [0.5, 0.5], [1.0, 0.0], [0.2, 0.1]]).double()
    assert torch.allclose(by_energy(pair.square().sum(1), pair.sum(1)), pair, atol=1e-7)
    assert by_energy(torch.tensor([0.4, 9.0]), torch.tensor([1.0, 1.0])).tolist() == [[0.5, 0.5], [1, 0]]


def test_with_known_owners_labels_show_which_weight_is_the_own_one() -> None:
    seen = several(noisy(1.0), DATA, 4)
    pool = Pool.of(seen)
    shown, truth = Shown.of(pool), torch.cat([trace.weight for trace in seen.traces or ()]).double()
    assert shown.ordered and torch.allclose(shown.two[shown.row], truth[shown.row], atol=1e-6)
    rows, noise = MixtureRows.of(seen, pool), noisy(1.0).deviation(truth).square()
    assert torch.allclose((rows.noise * rows.scale**2)[shown.row], noise[shown.row], rtol=1e-4)
    unordered = Shown.of(replace(pool, own=None))
    assert not unordered.ordered and torch.equal(unordered.two, unordered.two.sort(1, descending=True).values)


def test_labels_show_weights_where_classes_differ() -> None:
    seen = several(Mixup(), DATA, 3)
    source, truth = sources(seen.traces), torch.cat([trace.weight for trace in seen.traces or ()]).double()
    none = torch.empty(len(source), 0)
    rough = Selection(source, torch.full_like(truth, 0.5), none.long(), none.double())
    told, fixed = label_weights(Pool.of(seen).y, rough, len(DATA))
    assert torch.equal(fixed, DATA.labels[source[:, 0]] != DATA.labels[source[:, 1]])
    assert torch.allclose(told[fixed], truth[fixed], atol=1e-6)


def test_noise_that_hides_how_much_images_vary_is_said() -> None:
    certified = Singular().calibrate(Mu(1.0), range_facts(DATA))[0]
    for encoder in (certified, noisy(1e-3)):
        seen = several(encoder, DATA, 4)
        with pytest.raises(CannotAttackError) as refused:
            MixtureRows.of(seen, Pool.of(seen))
        assert refused.value.why.code == "attack-drowned"


def test_normal_rows_are_told_from_others() -> None:
    for encoder in (instahide(VALUES), Mixup(), noisy(1.0)):
        assert not_normal(encoded(encoder, DATA, SeededStream(1))[0]) is None
    natural = not_normal(encoded(Mixup(), digits(0, 40), SeededStream(1))[0])
    assert natural is not None and natural.code == "attack-needs-independent-values"
    uniform = not_normal(encoded(Mixup(), images(40, (3, 40, 50)), SeededStream(1))[0])
    assert uniform is not None and uniform.code == "attack-needs-normal-values"
    masked = replace(instahide(VALUES), values=6000, centre=1.0)  # around another centre than the encoder's
    shifted = not_normal(encoded(masked, DATA, SeededStream(1))[0])
    assert shifted is not None and shifted.code == "attack-needs-normal-values"


def test_neighbours_are_those_along_every_axis() -> None:
    x = SeededStream(1).normal(5, 1, 60, 70)
    assert neighbours(x) < 0.02
    down, across = x + x.roll(1, dims=2), x + x.roll(1, dims=3)
    assert abs(neighbours(down) - 0.5) < 0.03 and abs(neighbours(across) - 0.5) < 0.03


def test_equal_rows_are_of_one_image_and_so_are_those_that_go_together_under_noise() -> None:
    x = SeededStream(1).normal(6, 900)
    order = torch.tensor([0, 1, 0, 2, 3, 1, 4, 5, 5])
    assert grouped(x[order], 0.0).tolist() == order.tolist()
    assert grouped(x[order] + SeededStream(2).normal(9, 900), 1.0).tolist() == order.tolist()


def test_least_squares_under_noise_are_the_posterior_mean() -> None:
    stream = SeededStream(1)
    weight, noise = stream.uniform(9, 4), 0.1 + stream.uniform(9)
    weight = weight / weight.sum(1, keepdim=True)
    x = weight @ stream.normal(4, 50) + stream.normal(9, 50) * noise[:, None].sqrt()
    gain = weight.T @ torch.linalg.inv(weight @ weight.T + torch.diag(noise))
    assert torch.allclose(least_squares(x, weight, noise), x.mean() + gain @ (x - x.mean()))
    exact = weight @ stream.normal(4, 50)
    assert torch.allclose(weight @ least_squares(exact, weight, 0 * noise), exact)
