from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from skimage.metrics import peak_signal_noise_ratio, structural_similarity
from sklearn.metrics import roc_auc_score
from torch import Tensor

from mixveil.audit.metrics import detection
from mixveil.core.errors import ArgumentError
from mixveil.core.randomness import SeededStream
from mixveil.data import similarity

STREAM = SeededStream(0)
TRUTH = STREAM.uniform(4, 3, 16, 20)
GUESS = (TRUTH + 0.1 * STREAM.normal(4, 3, 16, 20)).clamp(0, 1)


def test_ssim_is_that_of_scikit_image() -> None:
    for i, value in enumerate(similarity.ssim(TRUTH, GUESS).tolist()):
        expected = structural_similarity(
            TRUTH[i].numpy(),
            GUESS[i].numpy(),
            channel_axis=0,
            gaussian_weights=True,
            sigma=1.5,
            use_sample_covariance=False,
            data_range=1.0,
        )
        assert value == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("shape", [(3, 16, 20), (1, 8, 8), (2, 4, 11)])
def test_ssim_of_all_pairs_is_that_of_each(shape: tuple[int, ...]) -> None:
    one, other = STREAM.uniform(5, *shape), STREAM.uniform(7, *shape)
    other[2], one[1], other[3] = one[0], 0.5, 0.25  # the same, and flat ones
    each = torch.stack([similarity.ssim(one, image.expand_as(one)) for image in other], dim=1)
    assert torch.allclose(similarity.ssim_of_all(one, other).double(), each, atol=1e-4)
    with pytest.raises(ArgumentError, match="one shape"):
        similarity.ssim_of_all(one, other[:, :, :3])


@pytest.mark.parametrize("published", [False, True])
def test_ssim_window_by_window(published: bool) -> None:
    c1, c2 = similarity.PUBLISHED_SSIM if published else (1e-4, 9e-4)
    assert not published or (c1, c2) == (0.012, 0.032)
    place = np.arange(11) - 5
    window = np.exp(-(place[:, None] ** 2 + place**2) / (2 * 1.5**2))
    window /= window.sum()
    values = []
    for x, y in zip(TRUTH[0].numpy(), GUESS[0].numpy(), strict=True):
        for row in range(x.shape[0] - 10):
            for column in range(x.shape[1] - 10):
                a, b = (plane[row : row + 11, column : column + 11] for plane in (x, y))
                mean_a, mean_b = (window * a).sum(), (window * b).sum()
                spread = (window * ((a - mean_a) ** 2 + (b - mean_b) ** 2)).sum()
                common = (window * (a - mean_a) * (b - mean_b)).sum()
                likeness = (2 * mean_a * mean_b + c1) / (mean_a**2 + mean_b**2 + c1)
                values.append(likeness * (2 * common + c2) / (spread + c2))
    found = similarity.ssim(TRUTH, GUESS, similarity.PUBLISHED_SSIM) if published else similarity.ssim(TRUTH, GUESS)
    assert float(found[0]) == pytest.approx(np.mean(values))


@pytest.mark.parametrize(
    "measure", [similarity.mse, similarity.snr_db, similarity.psnr_db, similarity.cosine, similarity.ssim]
)
def test_figures_are_computed_where_the_images_are(measure: Callable[[Tensor, Tensor], Tensor]) -> None:
    """What names no device of its own would lie on `meta` here, and have no values."""
    expected = measure(TRUTH, GUESS)
    with torch.device("meta"):
        found = measure(TRUTH, GUESS)
    assert found.device.type == "cpu" and found.tolist() == expected.tolist()


def test_psnr_is_that_of_scikit_image() -> None:
    for i, value in enumerate(similarity.psnr_db(TRUTH, GUESS).tolist()):
        assert value == pytest.approx(peak_signal_noise_ratio(TRUTH[i].numpy(), GUESS[i].numpy(), data_range=1.0))


def test_snr_mse_and_cosine_by_their_formulas() -> None:
    x, y = TRUTH.flatten(1).numpy(), GUESS.flatten(1).numpy()
    assert np.allclose(similarity.mse(TRUTH, GUESS), ((x - y) ** 2).mean(1))
    assert np.allclose(similarity.snr_db(TRUTH, GUESS), 10 * np.log10((x**2).sum(1) / ((x - y) ** 2).sum(1)))
    assert np.allclose(similarity.cosine(TRUTH, GUESS), (x * y).sum(1) / np.sqrt((x**2).sum(1) * (y**2).sum(1)))


def test_a_perfect_guess() -> None:
    assert similarity.ssim(TRUTH, TRUTH).tolist() == pytest.approx([1.0] * 4)
    assert bool(similarity.snr_db(TRUTH, TRUTH).isinf().all())


def test_ssim_of_small_images_and_of_none() -> None:
    small = STREAM.uniform(2, 1, 8, 8)
    assert similarity.ssim(small, small).tolist() == pytest.approx([1.0] * 2)
    assert float(similarity.ssim(small, 1 - small).max()) < 0.5
    with pytest.raises(ArgumentError, match="images"):
        similarity.ssim(torch.zeros(2, 4), torch.zeros(2, 4))


@settings(deadline=None)
@given(
    members=st.lists(st.integers(0, 6), min_size=1, max_size=30),
    others=st.lists(st.integers(0, 6), min_size=1, max_size=30),
)
def test_auc_is_that_of_scikit_learn_with_ties(members: list[int], others: list[int]) -> None:
    expected = roc_auc_score([1] * len(members) + [0] * len(others), members + others)
    found = detection.auc(torch.tensor(members, dtype=torch.float64), torch.tensor(others, dtype=torch.float64))
    assert found == pytest.approx(expected)


def test_tpr_at_fpr_by_trying_every_threshold() -> None:
    members, others = STREAM.normal(200) + 1, STREAM.normal(300)
    for fpr in (0.0, 0.01, 0.1, 1.0):
        tries = [
            float((members > t).double().mean())
            for t in [*torch.cat([members, others]).tolist(), -10.0]
            if float((others > t).double().mean()) <= fpr
        ]
        assert detection.tpr_at_fpr(members, others, fpr) == pytest.approx(max(tries))


@pytest.mark.parametrize(("hits", "trials"), [(0, 5), (5, 5), (3, 10), (20, 2000), (1999, 2000)])
def test_clopper_pearson_is_that_of_scipy(hits: int, trials: int) -> None:
    expected = stats.binomtest(hits, trials).proportion_ci(0.95, "exact")
    assert detection.clopper_pearson(hits, trials) == pytest.approx((expected.low, expected.high), abs=1e-9)


def test_bad_counts_are_named() -> None:
    with pytest.raises(ArgumentError, match="11 of 10"):
        detection.clopper_pearson(11, 10)
    with pytest.raises(ArgumentError, match="members and others"):
        detection.roc(torch.tensor([]), torch.tensor([1.0]))
