from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from mixveil.core.errors import (
    ArgumentError,
    MissingFactError,
    PixelError,
    PrivateFactError,
    TooFewRowsError,
)
from mixveil.core.randomness import NORMAL_BOUND, SeededStream
from mixveil.core.types import Batch, Fact, Mu, Origin, Tau, Trace
from mixveil.data.images import from_tensors
from mixveil.data.row_views import InMemoryRows
from mixveil.encoders.grid import GRID
from mixveil.encoders.noisy import prepare
from mixveil.encoders.singular import Singular
from mixveil.theory import gdp, snr
from tests.made import images, range_facts, with_moments
from tests.slow_normals import KeptStream, nearest

DATA = images(40)
FACTS = range_facts(DATA)
PRIVATE = with_moments(FACTS, energy=1.3, lambda_max=0.4)


def test_rows_are_mixtures_with_noise_rounded_to_the_grid() -> None:
    """The slow twin: the formula, value by value, with 200 bits and the noise of the same draws."""
    encoder, _ = Singular().calibrate(Mu(2.0), FACTS)
    trace = encoder.plan(40, stream=SeededStream(4))
    kept = KeptStream(5)
    got = encoder.encode(DATA, torch.arange(40), trace, stream=kept)
    x = DATA.take(torch.arange(40)).x.flatten(1).double() - 0.5
    assert encoder.step is not None
    for i in range(40):
        own, other = trace.weight[i].double().tolist()
        j = int(trace.partner[i, 0])
        for value in range(16):
            noise = encoder.sigma * kept.drawn.normal((16 * i + value) % 320, 16 * i + value >= 320)
            row = own * float(x[i, value]) + other * (float(x[j, value]) + noise)
            assert int(got.x[i].flatten()[value]) == nearest(row / encoder.step)
        label = torch.zeros(4)
        label[i % 4] += trace.weight[i, 0]
        label[j % 4] += trace.weight[i, 1]
        assert torch.equal(got.y[i], label)


@pytest.mark.parametrize("far", [1e3, 1e30, 3e38])
def test_records_outside_the_range_are_clipped_and_rounded_as_exactly(far: float) -> None:
    """Where values lie outside what public facts say, float64 takes over from float32."""
    encoder, _ = Singular().calibrate(Mu(2.0), FACTS)
    x = DATA.take(torch.arange(4)).x.clone()
    x[1, 0, 0, 0] = far
    batch = Batch(x, torch.eye(4))

    class Far:
        def __len__(self) -> int:
            return 4

        def take(self, index: torch.Tensor) -> Batch:
            return Batch(batch.x[index], batch.y[index])

    trace, kept = Trace(torch.tensor([[1], [2], [3], [0]]), torch.full((4, 2), 0.5)), KeptStream(1)
    got = encoder.encode(Far(), torch.arange(4), trace, stream=kept)
    z = encoder.prepare(x)
    assert float(z.norm(dim=1).max()) <= encoder.clip * (1 + 1e-12)
    assert encoder.step is not None
    for index in range(64):
        mean = float(z[index // 16, index % 16] + z[(index // 16 + 1) % 4, index % 16]) / 2 / encoder.step
        assert int(got.x.flatten()[index]) == nearest(mean + 512 * kept.drawn.normal(index % 32, index >= 32))


def test_what_becomes_of_a_record_does_not_depend_on_others() -> None:
    """A record beyond its range is clipped; those beside it in a block are released as they would be without it."""
    encoder, _ = Singular().calibrate(Mu(2.0), FACTS)
    trace = Trace(torch.tensor([[1], [0], [3], [2]]), torch.full((4, 2), 0.5))
    released = []
    for value in (1.0, 50.0):
        x = torch.ones(4, 1, 4, 4)
        x[0, 0, 0, 0] = value
        data = InMemoryRows(Batch(x, torch.eye(4)))
        released.append(encoder.encode(data, torch.arange(4), trace, stream=SeededStream(1)).x)
    assert torch.equal(released[0][2:], released[1][2:]) and not torch.equal(released[0][:2], released[1][:2])
    inside = [encoder.inside(data.take(torch.arange(4)).x.flatten(1)).tolist() for data in (data,)]
    assert inside == [[False, True, True, True]]


def test_encoding_block_by_block_is_encoding_at_once() -> None:
    encoder, _ = Singular().calibrate(Mu(1.0), FACTS)
    trace = encoder.plan(40, stream=SeededStream(1))
    whole = encoder.encode(DATA, torch.arange(40), trace, stream=SeededStream(2))
    stream = SeededStream(2)
    parts = [encoder.encode(DATA, torch.arange(i, i + 10), trace, stream=stream) for i in range(0, 40, 10)]
    # Box–Muller pairs the draws of a call, so values differ between blockings; mixtures and labels do not.
    assert torch.equal(torch.cat([part.y for part in parts]), whole.y)
    quiet = replace(encoder, sigma=1e-6 * encoder.sigma, noise="sphere")
    stream = SeededStream(2)
    parts = [quiet.encode(DATA, torch.arange(i, i + 10), trace, stream=stream) for i in range(0, 40, 10)]
    at_once = quiet.encode(DATA, torch.arange(40), trace, stream=SeededStream(2))
    assert torch.allclose(torch.cat([part.x for part in parts]), at_once.x, atol=1e-3)


def test_certified_noise_is_that_of_mu() -> None:
    encoder, guarantees = Singular().calibrate(Mu(0.5), FACTS)
    assert encoder.alpha == 0.55 and encoder.clip == pytest.approx(2.0) and encoder.centre == 0.5
    assert encoder.sigma == pytest.approx(gdp.sigma_for(0.5, 2.0, 0.55))
    by_name = {guarantee.name: guarantee for guarantee in guarantees}
    assert by_name["gdp"].nominal == 0.5 and by_name["gdp"].realised == pytest.approx(0.5)
    assert by_name["gdp"].assumes["clip"] == "range"
    assert by_name["directional-snr"].nominal == pytest.approx((0.55 / 0.45) ** 2 * 4.0 / (encoder.sigma or 0) ** 2)


@pytest.mark.parametrize(("calibration", "signal"), [("theorem", 1.3), ("spectral", 0.4), ("energy", 1.3 / 16)])
def test_tau_noise_is_that_of_theorem_2(calibration: str, signal: float) -> None:
    encoder, (guarantee,) = Singular().calibrate(Tau(0.1, calibration), PRIVATE)  # type: ignore[arg-type]
    assert encoder.alpha == 0.7
    assert encoder.sigma**2 == pytest.approx(signal * (snr.amplification(0.7) / 0.1 - 1))
    assert guarantee.nominal == 0.1
    assert guarantee.realised == pytest.approx(snr.directional_snr(0.4, encoder.sigma, 0.7))
    assert guarantee.assumes["lambda_max"] == "private"
    assert guarantee.assumes["calibration"] == calibration


@pytest.mark.parametrize("origin", ["private", "public"])
def test_displacement_noise_is_what_was_measured_and_claims_no_tau(origin: Origin) -> None:
    facts = PRIVATE.with_(displacement=Fact(6.0, origin), lambda_max=Fact(0.4, origin))
    for noise in ("gaussian", "sphere"):
        encoder, (guarantee,) = Singular(noise=noise).calibrate(Tau(1e-6, "displacement"), facts)
        assert encoder.sigma == pytest.approx(6 / 4) and guarantee.nominal == 1e-6
        realised = (0.7 / 0.3) ** 2 * 0.4 / (0.4 + 1.5**2)
        assert guarantee.realised == (pytest.approx(realised) if origin == "private" else None)
        assert guarantee.assumes["calibration"] == "displacement"
        assert guarantee.assumes["displacement"] == origin and "energy" not in guarantee.assumes
        assert guarantee.assumes.get("moments") in (None, "realised-not-stated")
    with pytest.raises(MissingFactError, match="displacement"):
        Singular().calibrate(Tau(1e-6, "displacement"), PRIVATE)
    with pytest.raises(ArgumentError, match="displacement must be positive"):
        Singular().calibrate(Tau(1e-6, "displacement"), facts.with_(displacement=Fact(0.0, origin)))


def test_a_private_fact_cannot_enter_a_certified_calibration() -> None:
    for name in ("centre", "clip", "amplitude"):
        with pytest.raises(PrivateFactError, match=name):
            Singular().calibrate(Mu(1.0), FACTS.with_(**{name: Fact(1.0, "private")}))


def test_a_missing_fact_is_named() -> None:
    with pytest.raises(MissingFactError, match="lambda_max"):
        Singular().calibrate(Tau(0.1), FACTS)


def test_only_what_is_calibrated_encodes() -> None:
    encoder, _ = Singular(noise="sphere", fixed_points=True).calibrate(Tau(0.1), PRIVATE)
    assert not hasattr(Singular(), "encode") and Singular.ready() is type(encoder)
    assert encoder.scheme == Singular(alpha=0.7, noise="sphere", fixed_points=True)
    assert encoder.scheme.calibrate(Tau(0.1), PRIVATE)[0] == encoder
    for settings in ({"alpha": 0.2}, {"noise": "pink"}, {"clip": 0.0}, {"sigma": math.inf}, {"unit_rows": 0}):
        with pytest.raises(ArgumentError, match=next(iter(settings))):
            replace(encoder, **settings)


def test_sphere_noise_and_fixed_points_have_no_mu() -> None:
    with pytest.raises(ArgumentError, match="sphere"):
        Singular(noise="sphere").calibrate(Mu(1.0), FACTS)
    with pytest.raises(ArgumentError, match="fixed_points"):
        Singular(fixed_points=True).calibrate(Mu(1.0), FACTS)
    for loose in (Singular(noise="sphere"), Singular(fixed_points=True)):
        encoder, _ = loose.calibrate(Tau(0.1), PRIVATE)
        assert "gdp" not in encoder.claims()


def test_fixed_points_are_excluded_unless_asked_for() -> None:
    encoder, _ = Singular().calibrate(Mu(1.0), FACTS)
    free, _ = Singular(fixed_points=True).calibrate(Tau(0.1), PRIVATE)
    rows = torch.arange(5)
    plans = [encoder.plan(5, stream=SeededStream(seed)).partner[:, 0] for seed in range(50)]
    assert not any(bool((plan == rows).any()) for plan in plans)
    assert any(bool((free.plan(5, stream=SeededStream(seed)).partner[:, 0] == rows).any()) for seed in range(50))


def test_long_records_are_clipped_and_short_ones_left_alone() -> None:
    x = torch.tensor([[3.0, 4.0], [0.3, 0.4]]) + 0.5
    z = prepare(x, 0.5, 1.0)
    assert torch.allclose(z, torch.tensor([[0.6, 0.8], [0.3, 0.4]], dtype=torch.float64))
    zero = prepare(torch.full((1, 2), 0.5), 0.5, 1.0)
    assert torch.equal(zero, torch.zeros(1, 2, dtype=torch.float64))


def test_the_index_bound_holds_for_the_largest_values_and_noise() -> None:
    encoder, _ = Singular().calibrate(Mu(1.0), FACTS)
    bound, step = encoder.index_bound, encoder.step
    assert bound is not None and step is not None
    extreme = (0.5 + 0.55 * NORMAL_BOUND * encoder.sigma) / step
    assert extreme <= bound < extreme + 3
    assert step == pytest.approx(encoder.sigma * GRID)


@pytest.mark.parametrize("mu", [1.0, 16.0])
def test_the_certified_snr_holds_for_the_worst_record_among_blank_ones(mu: float) -> None:
    """One record at the clip norm, all others at the centre, which cover nothing: its row at the largest weight."""
    encoder, guarantees = Singular(alpha=0.7).calibrate(Mu(mu), FACTS)
    claimed = next(g.nominal for g in guarantees if g.name == "directional-snr")
    x = torch.full((2, 1, 4, 4), 0.5)
    x[0] += 0.5
    data = from_tensors(x, torch.tensor([0, 1]))
    trace = Trace(partner=torch.tensor([[1], [0]]), weight=torch.tensor([[0.7, 0.3], [0.5, 0.5]]))
    stream, direction = SeededStream(0), torch.full((16,), 0.25, dtype=torch.float64)
    rows = [encoder.encode(data, torch.tensor([0]), trace, stream=stream).x.flatten() for _ in range(4000)]
    seen = torch.stack(rows).double() * float(encoder.step or 0) @ direction
    measured = (0.7 * 2.0) ** 2 / float(seen.var())
    assert measured == pytest.approx(claimed, rel=0.1)


def test_a_record_that_is_not_finite_never_comes_out_bare() -> None:
    class Own:
        """A user's own data set, with no range checks."""

        def __len__(self) -> int:
            return 3

        def take(self, index: torch.Tensor) -> Batch:
            x = torch.tensor([[0.5] * 16, [torch.inf] * 16, [0.5] * 16])[index]
            return Batch(x, torch.ones(len(index), 1))

    encoder = Singular.example()
    trace = encoder.plan(3, stream=SeededStream(0))
    with pytest.raises(PixelError, match="not finite"):
        encoder.encode(Own(), torch.arange(3), trace, stream=SeededStream(0))


def test_labels_that_show_a_weight_beyond_the_cap_are_impossible() -> None:
    encoder = Singular.example()
    y = torch.tensor([[1.0, 0, 0], [0.55, 0.45, 0], [0.5, 0, 0.5], [0.6, 0.4, 0], [0.4, 0.3, 0.3], [0, 0, 0]])
    assert encoder.possible_labels(y).tolist() == [True, True, True, False, False, False]


@pytest.mark.parametrize(("mu", "dtype"), [(1.0, torch.int16), (2000.0, torch.int32)])
def test_integers_are_as_small_as_they_can_be(mu: float, dtype: torch.dtype) -> None:
    encoder, _ = Singular().calibrate(Mu(mu), FACTS)
    trace = encoder.plan(40, stream=SeededStream(0))
    assert encoder.encode(DATA, torch.arange(40), trace, stream=SeededStream(0)).x.dtype == dtype


def test_noise_too_small_for_the_grid_is_refused() -> None:
    with pytest.raises(ArgumentError, match="too small"):
        Singular().calibrate(Mu(1e9), FACTS)
    with pytest.raises(ArgumentError, match="more noise"):
        Singular(noise="sphere").calibrate(Tau(1e-80), PRIVATE)


@pytest.mark.parametrize("alpha", [0.3, 1.0, math.nan])
def test_a_bad_alpha_is_named(alpha: float) -> None:
    with pytest.raises(ArgumentError, match="alpha must be in"):
        Singular(alpha=alpha)


def test_one_record_is_refused() -> None:
    with pytest.raises(TooFewRowsError):
        Singular.example().plan(1, stream=SeededStream(0))
