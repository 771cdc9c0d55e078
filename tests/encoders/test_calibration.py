from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from mixveil.core.errors import ArgumentError
from mixveil.core.randomness import SeededStream
from mixveil.core.types import Dataset, Facts, Mu, Tau
from mixveil.core.watching import unwatched
from mixveil.core.wording.notes import Note
from mixveil.data.images import from_tensors
from mixveil.data.opening import open_data
from mixveil.encoders import calibration, calibration_report
from mixveil.encoders.noisy import prepare
from mixveil.encoders.singular import Singular
from mixveil.theory import gdp
from mixveil.theory.moments import Moments
from tests.made import encoded, images


def moments_of(rows: Dataset, facts: Facts) -> Moments:
    return calibration.watched_moments(SeededStream(0), unwatched)(rows, facts)


def never(rows: Dataset, facts: Facts) -> Moments:
    raise AssertionError("a certified calibration looked at the rows")


class Untouchable:
    """A data set whose rows nobody may read."""

    shape, classes, low, high, units = (1, 4, 4), ("0", "1"), 0.0, 1.0, None

    def __len__(self) -> int:
        return 10

    def take(self, index: object) -> object:
        raise AssertionError("a certified calibration looked at the rows")


def codes(told: list[Note]) -> list[Note]:
    """Notes, and the notes within them."""
    return [*told, *(inside for item in told for inside in item.figures.values() if isinstance(inside, Note))]


def test_a_certified_calibration_looks_at_no_private_row() -> None:
    data: Dataset = Untouchable()  # type: ignore[assignment]
    facts = calibration.facts_for(Mu(1.0), data, public=None, clip=None, moments_of=never)
    origins = dict.fromkeys(("dimension", "centre", "amplitude", "clip", "height", "width"), "range")
    assert {name: fact.origin for name, fact in facts.known.items()} == origins | {"unit_rows": "public"}
    assert facts["centre"] == 0.5 and facts["clip"] == pytest.approx(0.5 * 4)
    facts = calibration.facts_for(Mu(1.0), data, public=images(), clip=None, moments_of=never)
    assert facts.origin("clip") == facts.origin("centre") == "public"
    facts = calibration.facts_for(Mu(1.0), data, public=None, clip=1.25, moments_of=never)
    assert facts["clip"] == 1.25 and facts.origin("clip") == "public"


def test_no_record_within_the_range_exceeds_the_clip_norm_that_the_range_implies() -> None:
    extreme = from_tensors(torch.tensor([[0.0, 0.0, 0.0], [1.0, 1.0, 1.0], [0.0, 1.0, 0.0]]), torch.tensor([0, 1, 0]))
    facts = calibration.settled_facts(extreme, certified=True, public=None, clip=None)
    x = extreme.take(torch.arange(3)).x.double()
    prepared = prepare(x, facts["centre"], facts["clip"])
    assert torch.allclose(prepared, x - 0.5)


def test_public_data_give_centre_and_median_norm() -> None:
    public = images(101, seed=5)
    facts = calibration.settled_facts(images(), certified=True, public=public, clip=None)
    x = public.take(torch.arange(101)).x.flatten(1).double()
    assert facts["centre"] == pytest.approx(float(x.mean()))
    assert facts["clip"] == pytest.approx(float((x - x.mean()).norm(dim=1).median()))


def test_tau_uses_private_moments_and_says_so_or_public_ones() -> None:
    data, public = images(), images(50, seed=2)
    facts = calibration.facts_for(Tau(0.1), data, public=None, clip=None, moments_of=moments_of)
    assert facts.origin("lambda_max") == "private"
    assert (
        calibration.facts_for(Tau(0.1), data, public=public, clip=None, moments_of=moments_of).origin("energy")
        == "public"
    )


def test_tau_with_a_clip_norm_is_calibrated_to_the_clipped_records() -> None:
    """Clipping turns records: their moments after it are what is released."""
    data = images(200)
    loose = calibration.facts_for(Tau(0.1), data, public=None, clip=None, moments_of=moments_of)
    tight = calibration.facts_for(Tau(0.1), data, public=None, clip=0.5, moments_of=moments_of)
    x = prepare(data.take(torch.arange(200)).x, 0.5, 0.5)
    assert tight["energy"] == pytest.approx(float((x - x.mean(0)).square().sum(1).mean()))
    assert tight["energy"] < loose["energy"]


def test_public_data_of_another_kind_are_refused() -> None:
    with pytest.raises(ArgumentError, match="shape"):
        calibration.settled_facts(images(), certified=True, public=images(shape=(1, 5, 5)), clip=None)


def test_the_survey_of_the_digits() -> None:
    digits = open_data("digits")
    found = calibration_report.survey(
        digits, Singular(), calibration_report.targets(1.0, 0.1), public=None, clip=None, seed=0
    )
    theorem, spectral, energy, certified = found
    assert [item.calibration for item in found] == ["theorem", "spectral", "energy", "certified"]
    assert spectral.realised_snr == pytest.approx(0.1)
    assert theorem.realised_snr < 0.1 < energy.realised_snr
    assert certified.mu == pytest.approx(1.0) and certified.epsilon == pytest.approx(4.377, abs=1e-3)
    assert certified.realised_snr < certified.nominal_tau
    assert certified.member_tpr == pytest.approx(0.0924, abs=1e-4)
    for item in found:
        assert item.radius == pytest.approx(item.sigma * 8)
        assert 0 < item.bayes_mse <= item.bayes_mse_single_row <= item.know_nothing_mse
        assert item.mu_median is not None and item.mu is not None and item.mu_median < item.mu
        low, middle = item.minimax_log10["q05"], item.minimax_log10["q50"]
        assert low is not None and middle is not None and low < middle
    (loud,) = [told for told in codes(calibration_report.warnings_of(found)) if told.code == "snr-exceeded"]
    assert loud.figures["factor"] == pytest.approx(8.2, abs=0.05)


def test_the_bayes_error_is_what_the_best_linear_attack_really_leaves() -> None:
    """Encode records of known moments, attack every row with the linear estimator, measure."""
    stream = SeededStream(6)
    scales = torch.tensor([0.06, 0.03, 0.01, 0.002], dtype=torch.float64)
    data = from_tensors((0.5 + stream.normal(20_000, 4) * scales).clamp(0, 1).float(), torch.arange(20_000) % 2)
    (figures,) = calibration_report.survey(data, Singular(), [Tau(0.5, "spectral")], public=None, clip=None, seed=0)
    encoder, _ = Singular().calibrate(Tau(0.5, "spectral"), Facts(figures.facts))
    trace = encoder.plan(len(data), stream=stream)
    rows = torch.arange(len(data))
    released = encoder.encode(data, rows, trace, stream=stream).x.double() * float(encoder.step or 0)
    own, other = trace.weight.double().T[:, :, None]
    x = data.take(rows).x.double() - 0.5
    variance = scales.square()
    gain = own * variance / ((own**2 + other**2) * variance + other**2 * figures.sigma**2)
    assert float((x - gain * released).square().mean()) == pytest.approx(figures.bayes_mse_single_row, rel=0.05)


def test_sphere_noise_has_no_mu_and_says_so() -> None:
    (item,) = calibration_report.survey(
        images(), Singular(noise="sphere"), [Tau(0.1, "energy")], public=None, clip=None, seed=0
    )
    assert item.mu is None and item.epsilon is None and item.member_tpr == 1.0
    assert "sphere-has-no-mu" in [told.code for told in codes(calibration_report.warnings_of([item]))]


def test_weights_of_one_half_show_infinite_minimax_errors_as_null() -> None:
    (item,) = calibration_report.survey(images(2), Singular(alpha=0.5), [Mu(1.0)], public=None, clip=None, seed=0)
    assert set(item.minimax.values()) == set(item.minimax_log10.values()) == {None}


def test_a_clip_norm_beyond_what_the_range_implies_is_that_of_the_range() -> None:
    facts = calibration.settled_facts(images(), certified=True, public=None, clip=100.0)
    assert facts["clip"] == 2.0 and facts.origin("clip") == "range"


def test_tau_with_public_data_clips_nothing_unless_asked_to() -> None:
    facts = calibration.settled_facts(images(), certified=False, public=images(50, seed=2), clip=None)
    assert facts["clip"] >= facts["amplitude"] * 4


def test_tau_from_public_moments_realises_nothing_and_the_owner_is_warned() -> None:
    """Public data that vary less than the private ones: the stated τ is not true of the release."""
    x = SeededStream(3).uniform(200, 1, 4, 4).float()
    quiet = from_tensors(0.5 + 0.1 * (x - 0.5), torch.arange(200) % 2)
    data = images(100)
    _, (guarantee,), warnings = calibration.calibrate(Singular(), Tau(0.1), data, public=quiet, stream=SeededStream(0))
    assert guarantee.realised is None and guarantee.assumes["moments"] == "no-more-varied-than-public"
    assert [told.code for told in warnings] == ["varies-more-than-public"] and warnings[0].figures["ratio"] > 50
    (item,) = calibration_report.survey(data, Singular(), [Tau(0.1)], public=quiet, clip=None, seed=0)
    assert item.realised_snr > 0.2
    told = [told.code for told in codes(calibration_report.warnings_of([item]))]
    assert "labels-not-protected" in told and "noise-from-private-moments" not in told
    same = calibration.calibrate(Singular(), Tau(0.1), quiet, public=data, stream=SeededStream(0))
    assert same[2] == []


def test_the_private_data_are_not_public() -> None:
    data = images()
    with pytest.raises(ArgumentError, match="are the private data"):
        calibration.calibrate(Singular(), Mu(1.0), data, public=data, stream=SeededStream(0))


def test_a_large_mu_is_called_meaningless() -> None:
    for mu, said in ((1.0, []), (5.0, ["meaningless-mu"])):
        warnings = calibration.calibrate(Singular(), Mu(mu), images(4000), stream=SeededStream(0))[2]
        assert [told.code for told in warnings] == said


def test_records_that_do_not_vary_can_be_certified_and_are_shown() -> None:
    flat = from_tensors(torch.full((6, 1, 2, 2), 0.5), torch.arange(6) % 2)
    (item,) = calibration_report.survey(flat, Singular(), [Mu(1.0)], public=None, clip=None, seed=0)
    assert item.realised_snr == 0.0 and item.radius_multiple is None


def test_the_noise_between_classes_is_what_least_squares_leave() -> None:
    """Class means by least squares on one release: the noise on their differences is as long as stated."""
    data = images(4000, (1, 8, 8), classes=20)
    facts = calibration.settled_facts(data, certified=True, public=None, clip=None)
    ready, _ = Singular().calibrate(Mu(1.0), facts)
    release, _ = encoded(ready, data, SeededStream(3))
    rows = release.payload.take(torch.arange(4000))
    clear = data.take(torch.arange(4000))
    means = torch.linalg.lstsq(rows.y.double(), rows.x.flatten(1).double()).solution
    means -= torch.stack([clear.x[data.labels == k].flatten(1).double().mean(0) for k in range(20)]) - facts["centre"]
    noise = float(torch.pdist(means).square().mean().sqrt()) / (2 * facts["clip"])
    stated = calibration.noise_between_classes(ready.sigma, facts["clip"], data)
    assert noise == pytest.approx(stated, rel=0.08)


def test_what_can_be_learnt_follows_from_public_figures() -> None:
    """The digits' pixels: 13 to 31 % at μ = 1, where guessing has 10 %; 81 % at μ = 4. Ten times the rows are better, a
    larger picture is worse, and a few numbers of each image teach something."""
    digits = open_data("digits:train")
    choices = calibration_report.choices(digits, Singular(), [0.5, 1.0, 2.0, 8.0], public=None, clip=None)
    assert [item.learnt for item in choices] == ["next-to-nothing", "next-to-nothing", "little", "something"]
    wide = calibration_report.choices(
        images(600, (3, 64, 64), classes=6), Singular(), [1.0, 4.0], public=None, clip=None
    )
    assert {item.learnt for item in wide} == {"next-to-nothing"} and wide[0].noise_between_classes > 10
    few = calibration_report.choices(images(2000, (9,), classes=10), Singular(), [1.0], public=None, clip=None)
    assert few[0].learnt == "something"
    warned = calibration.calibrate(Singular(), Mu(1.0), digits, stream=SeededStream(0))[2]
    assert [told.code for told in warned] == ["classes-drowned"]
    figures = warned[0].figures
    assert figures["much"].code == "next-to-nothing" and figures["what"].code == "pixels" and figures["apart"] == 8
    assert figures["factor"] == pytest.approx(1.2, abs=0.05)


def test_a_choice_says_what_theory_says() -> None:
    data = images(100)
    units = replace(data, units=tuple(str(i // 5) for i in range(100)))
    for rows, most in ((data, 1), (units, 5)):
        for item in calibration_report.choices(rows, Singular(), [0.5, 1.0, 2.0], public=None, clip=1.5):
            assert item.unit_rows == most and item.clip == 1.5
            assert item.sigma == pytest.approx(gdp.sigma_for(item.mu, 1.5, 0.55) * most**0.5)
            assert item.together == {k: pytest.approx(item.mu * int(k) ** 0.5) for k in ("2", "4", "10")}
            assert item.member_tpr == gdp.member_tpr(item.mu, 0.01) and item.epsilon == gdp.epsilon(item.mu, 1e-5)
            said = calibration_report.told(item)
            assert said.figures["found"] == 100 * item.member_tpr and said.figures["mu"] == item.mu
            assert said.figures["members"].code == ("members-with-units" if most == 5 else "members")
            assert said.figures["alike"].code == ("with-same-labels" if most == 5 else "of-same-label")
            assert said.figures["alarms"] == 1
