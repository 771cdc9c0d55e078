"""Rows whose values can be anything: what bounds them, and who may know it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from mixveil.core.errors import ArgumentError, MissingFactError
from mixveil.core.randomness import SecureStream, SeededStream
from mixveil.core.types import Batch, Fact, Mu, Tau
from mixveil.core.watching import unwatched
from mixveil.core.wording.sentences import times
from mixveil.encoders import calibration, calibration_report
from mixveil.encoders.catalogue import encoders
from mixveil.encoders.gaussian import Gaussian
from mixveil.encoders.identity import Identity
from mixveil.encoders.singular import Singular
from mixveil.features.cache import Features
from mixveil.features.extractor import Extractor
from mixveil.releases.ledger import Ledger
from mixveil.releases.reading import read_release, verify_release
from mixveil.releases.records import in_memory, write_release
from mixveil.theory import snr
from tests.made import blobs, features_of, images

ROWS, PUBLIC = features_of(images(60)), features_of(images(80, seed=2))
X = ROWS.take(torch.arange(60)).x.double()


def constant(value: float, index: torch.Tensor) -> torch.Tensor:
    return torch.full((len(index), 16), value)


def unreadable(rows: Features) -> Features:
    def read(index: torch.Tensor) -> torch.Tensor:
        raise AssertionError("a certified calibration looked at the rows")

    return replace(rows, read=read)


def test_certified_needs_a_bound_that_is_not_the_records() -> None:
    rows = unreadable(ROWS)
    for encoder in (Singular(), Gaussian()):
        with pytest.raises(MissingFactError, match="clip"):
            calibration.calibrate(encoder, Mu(1.0), rows, stream=SeededStream(0))
        for clip, public in ((2.0, None), (None, PUBLIC)):
            ready, guarantees, _ = calibration.calibrate(
                encoder, Mu(1.0), rows, clip=clip, public=public, stream=SeededStream(0)
            )
            assert ready.clip == ready.amplitude
            assert {guarantees[0].assumes[name] for name in ("clip", "centre", "amplitude")} == {"public"}
    facts = calibration.settled_facts(rows, certified=True, public=None, clip=2.0)
    assert facts["clip"] == facts["amplitude"] == 2.0 and facts["centre"] == 0.0
    facts = calibration.settled_facts(rows, certified=True, public=PUBLIC, clip=None)
    x = PUBLIC.take(torch.arange(80)).x.double()
    assert facts["centre"] == pytest.approx(float(x.mean()))
    assert facts["clip"] == pytest.approx(float((x - x.mean()).norm(dim=1).median()))


def test_a_certified_release_of_rows_without_a_range_verifies(tmp_path: Path) -> None:
    ready, guarantees, _ = calibration.calibrate(Singular(), Mu(1.0), ROWS, clip=1.5, stream=SeededStream(0))
    write_release(tmp_path / "r", ROWS, ready, guarantees, party="p", stream=SecureStream())
    stated = verify_release(tmp_path / "r")
    assert stated.certified and stated.guarantees[0].assumes["clip"] == "public"
    assert float(ready.prepare(X).norm(dim=1).max()) <= 1.5 * (1 + 1e-12)


def test_features_are_named_with_their_digest_or_not_at_all(tmp_path: Path) -> None:
    encoder, named = Identity(), Extractor(("tiny",), "head")
    for extractor, assets in ((named, {}), (None, {"features": "0" * 64})):
        with pytest.raises(ArgumentError, match="extractor = "):
            write_release(
                tmp_path / "r", ROWS, encoder, (), party="p", stream=SeededStream(0), assets=assets, extractor=extractor
            )
    assert not Ledger().entries()
    made = in_memory(
        ROWS, encoder, (), party="p", stream=SeededStream(0), assets={"features": "0" * 64}, extractor=named
    )
    assert made.extractor == named


@pytest.mark.parametrize("kind", ["theorem", "spectral", "energy", "displacement"])
def test_tau_clips_nothing_and_says_whose_figures_it_shows(kind: str) -> None:
    ready, (guarantee,), _ = calibration.calibrate(
        Singular(),
        Tau(0.1, kind),  # type: ignore[arg-type]
        ROWS,
        displacement=Fact(3.0, "private"),
        stream=SeededStream(0),
    )
    assert torch.allclose(ready.prepare(X), X, rtol=1e-12)
    assert ready.clip == pytest.approx(float(X.norm(dim=1).max()))
    assert ready.amplitude == pytest.approx(float(X.abs().max()))
    assert {guarantee.assumes[name] for name in ("clip", "amplitude", "lambda_max")} == {"private"}
    covariance = torch.cov(X.T, correction=0)
    largest = float(torch.linalg.eigvalsh(covariance)[-1])
    expected = (0.7 / 0.3) ** 2 * largest / (largest + ready.sigma**2)
    assert guarantee.realised == pytest.approx(expected, rel=1e-9)


def test_tau_from_public_rows_bounds_every_value_that_it_lets_in() -> None:
    """A private value beyond all public ones is still within the amplitude, once its row is clipped."""
    ready, (guarantee,), _ = calibration.calibrate(Singular(), Tau(0.1), ROWS, public=PUBLIC, stream=SeededStream(0))
    x = PUBLIC.take(torch.arange(80)).x.double()
    assert ready.clip == ready.amplitude == pytest.approx(float((x - x.mean()).norm(dim=1).max()))
    assert "private" not in guarantee.assumes.values()
    spike = torch.zeros(1, 16)
    spike[0, 0] = 1e6
    assert float(ready.prepare(spike).abs().max()) <= float(ready.amplitude or 0)


def test_rows_without_a_range_that_have_no_size_are_refused() -> None:
    for value in (0.0, float("nan"), float("inf")):
        flat = replace(ROWS, read=partial(constant, value))
        with pytest.raises(ArgumentError, match="largest"):
            calibration.calibrate(Singular(), Tau(0.1), flat, stream=SeededStream(0))


def test_a_survey_reads_rows_for_their_bound_only_once() -> None:
    looked = []

    def watch(what: str, total: int) -> object:
        looked.append(what)
        return unwatched(what, total)

    wanted = calibration_report.targets(None, 0.1, features=True)
    found = calibration_report.survey(
        ROWS,
        Singular(),
        wanted,
        public=None,
        clip=None,
        displacement=Fact(3.0, "private"),
        seed=0,
        watch=watch,  # type: ignore[arg-type]
    )
    assert [item.calibration for item in found] == ["theorem", "spectral", "energy", "displacement"]
    assert looked == ["norms", "moments"]
    told = [item.figures.get("what") for item in calibration_report.warnings_of(found)]
    assert "snr-exceeded-by-displacement" in [item.code for item in told if item is not None]


@pytest.mark.parametrize("name", sorted(encoders()))
def test_every_encoder_takes_rows_without_a_range(name: str, tmp_path: Path) -> None:
    scheme = encoders()[name]()
    target = Mu(1.0) if scheme.targets else None
    encoder, guarantees, _ = calibration.calibrate(scheme, target, ROWS, clip=3.0, stream=SeededStream(0))
    if encoder.law == "laplace":
        assert encoder.sigma == pytest.approx(2**0.5 * float(X.abs().mean()))
    write_release(tmp_path / "r", ROWS, encoder, guarantees, party="p", stream=SecureStream())
    batch: Batch = read_release(tmp_path / "r").payload.take(torch.arange(60))
    assert batch.x.shape == (60, 16) and bool(batch.x.isfinite().all())


def test_displacement_is_of_features() -> None:
    with pytest.raises(ArgumentError, match="name a backbone"):
        calibration.calibrate(Singular(), Tau(0.1, "displacement"), images(), stream=SeededStream(0))
    with pytest.raises(ArgumentError, match="mixes nothing"):
        calibration.calibrate(
            Gaussian(), Tau(0.1, "displacement"), ROWS, displacement=Fact(1.0, "private"), stream=SeededStream(0)
        )


def test_the_warning_names_both_figures_and_their_ratio() -> None:
    facts = Fact(1e-3, "private")
    _, (guarantee,), warnings = calibration.calibrate(
        Singular(), Tau(1e-6, "displacement"), ROWS, displacement=facts, stream=SeededStream(0)
    )
    assert guarantee.realised == pytest.approx(5.444, abs=1e-3)
    what = warnings[0].figures["what"]
    assert len(warnings) == 1 and what.code == "snr-exceeded-by-displacement"
    assert what.figures == pytest.approx(
        {"realised": 5.444, "nominal": 1e-6, "factor": 5.444e6, "without_noise": 5.444}, rel=1e-3
    )
    _, (guarantee,), warnings = calibration.calibrate(Singular(), Tau(0.1, "energy"), ROWS, stream=SeededStream(0))
    assert guarantee.realised is not None and guarantee.realised > 0.1
    assert warnings[0].figures["calibration"] == "energy"
    assert warnings[0].figures["what"].figures["factor"] == pytest.approx(guarantee.realised / 0.1)
    assert calibration.calibrate(Singular(), Tau(0.1), ROWS, stream=SeededStream(0))[2] == []


def test_public_displacement_warns_of_the_records_own_figure() -> None:
    _, (guarantee,), warnings = calibration.calibrate(
        Singular(),
        Tau(1e-6, "displacement"),
        ROWS,
        public=PUBLIC,
        displacement=Fact(1e-3, "public"),
        stream=SeededStream(0),
    )
    assert guarantee.realised is None and warnings[0].figures["what"].figures["factor"] > 1e6


@pytest.mark.parametrize(
    ("factor", "words"),
    [
        (1.04, "1.0 times"),
        (999.0, "999.0 times"),
        (1000.0, "about 1.0 thousand times"),
        (999_700.0, "about 1.0 million times"),
        (5.4e6, "about 5.4 million times"),
        (5.4e8, "about 540 million times"),
        (2e15, "about 2e+15 times"),
    ],
)
def test_factors_in_words(factor: float, words: str) -> None:
    assert times(factor) == words


def test_the_warning_speaks_of_the_records_and_not_of_the_public_data() -> None:
    assert calibration.exceeded("energy", 0.15, 0.1, 0.7) and not calibration.exceeded("energy", 0.1, 0.1, 0.7)
    ready, _, (warning,) = calibration.calibrate(
        Singular(),
        Tau(1e-6, "displacement"),
        ROWS,
        public=PUBLIC,
        displacement=Fact(3.0, "public"),
        stream=SeededStream(0),
    )
    z = ready.prepare(ROWS.take(torch.arange(len(ROWS))).x)
    largest = float(torch.linalg.eigvalsh(torch.cov(z.T, correction=0))[-1])
    realised = snr.directional_snr(largest, ready.sigma, 0.7)
    assert warning.figures["what"].figures["realised"] == pytest.approx(realised, rel=1e-6)


def test_no_value_is_larger_than_the_norm_it_is_clipped_to() -> None:
    facts = calibration.settled_facts(blobs(20, 1), certified=True, public=None, clip=0.1)
    assert Singular().calibrate(Mu(1.0), facts)[0].amplitude == 0.1
