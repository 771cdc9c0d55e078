"""The truth that stages of an attack are given: with the public patches it makes the encodings again, exactly."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

import mixveil
from mixveil.attacks.shared.stages import STAGES, Oracle
from mixveil.audit import challenge_truth, oracle
from mixveil.audit.challenge import Challenge
from mixveil.audit.challenge_truth import ChallengeTruth, read_truth
from mixveil.core.errors import ArgumentError, DataFormatError, MismatchError
from mixveil.core.randomness import SeededStream
from mixveil.core.types import Batch, Encoder, Mu, Trace, View
from mixveil.data.covers import Patches
from mixveil.data.images import from_tensors
from mixveil.data.moves import moved
from mixveil.data.row_views import InMemoryRows
from mixveil.encoders.instahide import CalibratedInstaHide, InstaHide
from mixveil.encoders.mixup import Mixup
from mixveil.encoders.singular import Singular
from mixveil.report.challenges import MadeChallenge
from tests.audited import digits
from tests.made import encoded, images, range_facts
from tests.plugins.toy_encoder import FittedSignMask

DIGITS = digits(0, 60)
PATTERNS = from_tensors(SeededStream(9).uniform(12, 1, 11, 10).float(), torch.zeros(12).long(), name="patterns")
COVERED: dict[str, Any] = {"public": PATTERNS, "patches": 20, "keypoints": 0}


def opened(made: MadeChallenge) -> tuple[Challenge, ChallengeTruth]:
    challenge = mixveil.open_challenge(made.folder)
    return challenge, read_truth(made.truth, challenge.card, (made.folder / "challenge.json").read_text())


def private_part(told: Oracle, encoder: Encoder, x: Tensor) -> Tensor:
    """(m, d) Σ weight · prepare(moved record), over the records that the oracle names."""
    whole = torch.zeros(len(told.sources), x[0].numel(), dtype=torch.float64)
    for j, (source, weight) in enumerate(zip(told.sources.T, told.weights.T, strict=True)):
        image = x[source.clamp(min=0)]
        if told.moves is not None:
            image = moved(image, told.moves[:, j], encoder.centre)
        whole += weight[:, None].double() * encoder.prepare(image)
    return whole


@pytest.mark.parametrize("augmented", [False, True])
@pytest.mark.parametrize("public", [False, True])
def test_of_a_challenge_it_makes_the_encodings(augmented: bool, public: bool, tmp_path: Path) -> None:
    made = mixveil.make_challenge(
        DIGITS, tmp_path / "c", images=12, encodings=4, augmented=augmented, **(COVERED if public else {})
    )
    challenge, truth = opened(made)
    encoder = challenge.card.settings.encoder
    told = oracle.of_challenge(challenge, truth, ["sources", "weights", "signs"])
    assert told.stages == {"sources", "weights", "signs"} and told.sources.shape == (48, 2 if public else 4)
    assert (told.moves is not None) == augmented and told.signs is not None and bool((told.signs.abs() == 1).all())
    assert torch.equal(told.sources, truth.sources[:, : told.sources.shape[1]])
    rest = torch.zeros(48, 64, dtype=torch.float64)
    if public:
        covers = Patches(PATTERNS, truth.more["covers"], DIGITS)
        for j in (2, 3):
            image = covers.take(truth.more["patches"][:, j]).x
            image = moved(image, truth.extra["moves"][:, j], encoder.centre) if augmented else image
            rest += truth.weights[:, j : j + 1].double() * encoder.prepare(image)
    x = challenge.rows().x.flatten(1).double()
    torch.testing.assert_close(
        told.signs * x.abs(), private_part(told, encoder, truth.images) + rest, rtol=0, atol=1e-6
    )


def test_the_encoder_makes_the_encodings_of_it(tmp_path: Path) -> None:
    """Through the encoder's own observation, of rows that each have a record of their own."""
    challenge, truth = opened(mixveil.make_challenge(DIGITS, tmp_path / "c", images=12, encodings=4, augmented=True))
    encoder, told = challenge.card.settings.encoder, oracle.of_challenge(challenge, truth, STAGES)
    assert told.moves is not None and told.signs is not None
    records = torch.cat([truth.images[told.sources[:, 0]], truth.images])
    again = Trace(48 + told.sources[:, 1:], told.weights, extra={**truth.extra, "moves": told.moves})
    rows, index = InMemoryRows(Batch(records, torch.zeros(len(records), 1))), torch.arange(48)
    observation, x = encoder.observation(again), challenge.rows().x.flatten(1)
    mixture = observation.mixture(rows, index).x
    assert torch.equal(mixture.sign()[mixture != 0], told.signs[mixture != 0].double())
    torch.testing.assert_close(mixture, told.signs * x.abs().double(), rtol=0, atol=1e-6)
    torch.testing.assert_close(encoder.encode(rows, index, again, stream=SeededStream(0)).x.flatten(1), x)


def test_of_releases_of_different_encoders_one_after_another() -> None:
    data, covers = images(10, (1, 4, 4)), images(30, (1, 4, 4), seed=3)
    noisy, _ = Singular().calibrate(Mu(1.0), range_facts(data))
    wide = CalibratedInstaHide(k=4, c1=0.65, c2=0.3, covers=30, pad=0, values=16, centre=0.5)
    encoders: list[Encoder] = [InstaHide.example(), Mixup(2), FittedSignMask(values=16, centre=0.5), wide, noisy]
    made = [encoded(e, data, SeededStream(i), covers if e.covers else None) for i, e in enumerate(encoders)]
    view = View(tuple(release for release, _ in made), tuple(trace for _, trace in made))
    told = oracle.of_releases(view, ["sources"])
    assert told.sources.shape == told.weights.shape == (50, 3) and told.sources.dtype == torch.int64
    assert told.signs is not None and told.signs.shape == (50, 16) and told.signs.dtype == torch.int8
    assert told.moves is not None and told.moves.shape == (50, 3, 3)
    part = private_part(told, encoders[0], data.take(torch.arange(10)).x)
    for t, (release, trace) in enumerate(made):
        here = slice(10 * t, 10 * t + 10)
        records, sources = trace.weight.shape[1] - (2 if encoders[t].covers else 0), told.sources[here]
        assert torch.equal(sources[:, 0], torch.arange(10)) and bool((sources[:, :records] >= 0).all())
        assert bool((sources[:, records:] == -1).all()) and bool((told.weights[here, records:] == 0).all())
        if encoders[t].covers or encoders[t].sigma:
            continue
        x = release.payload.take(torch.arange(10)).x.flatten(1).double()
        centre = 0.0 if encoders[t].masked else 0.5  # mixup's rows are not centred
        sign = told.signs[here] if encoders[t].masked else x.sign()
        torch.testing.assert_close(sign * x.abs() - centre, part[here], rtol=0, atol=1e-6)
    assert torch.equal(told.signs[10:20], torch.ones(10, 16, dtype=torch.int8))  # as mixup shows them


def test_unmasked_releases_have_no_signs_and_rows_in_another_order_their_records() -> None:
    data = images(12, (1, 4, 4))
    release, trace = encoded(Mixup(3), data, SeededStream(1))
    told = oracle.of_releases(View((release,), (trace,)), [])
    assert told.signs is None and told.moves is None
    assert torch.equal(told.sources[:, 1:], trace.partner) and torch.equal(told.weights, trace.weight)
    with pytest.raises(ArgumentError, match="signs"):
        oracle.of_releases(View((release,), (trace,)), ["signs"])
    order = SeededStream(2).permutation(12)
    told = oracle.of_releases(View((release,), (replace(trace, order=order),)), [])
    assert torch.equal(told.sources, torch.cat([order[:, None], order[trace.partner]], dim=1))


def test_public_images_may_stand_anywhere_but_first() -> None:
    """Hand-made: records move to the front, with their weights and moves."""
    data = images(3, (1, 4, 4))
    encoder = CalibratedInstaHide(k=3, c1=1.0, c2=0.0, covers=9, pad=1, values=16, centre=0.5)
    release, trace = encoded(encoder, data, SeededStream(1), images(9, (1, 4, 4), seed=2))
    weight = torch.tensor([[0.5, 0.3, 0.2]]).expand(3, 3)
    moves = torch.arange(27).view(3, 3, 3).to(torch.int16)
    drawn = {**trace.extra, "moves": moves}
    trace = replace(trace, partner=torch.tensor([[5, 1], [2, 4], [3, 7]]), weight=weight, extra=drawn)
    told = oracle.of_releases(View((release,), (trace,)), [])
    assert told.sources.tolist() == [[0, 1], [1, 2], [2, -1]] and told.moves is not None
    torch.testing.assert_close(told.weights, torch.tensor([[0.5, 0.2], [0.5, 0.3], [0.5, 0.0]]))
    assert told.moves.tolist() == [
        [[0, 1, 2], [6, 7, 8]],
        [[9, 10, 11], [12, 13, 14]],
        [[18, 19, 20], [0, 0, 0]],
    ]


def test_what_does_not_go_together_is_refused(tmp_path: Path) -> None:
    data = images(10, (1, 4, 4))
    release, trace = encoded(Mixup(2), data, SeededStream(1))
    with pytest.raises(ArgumentError, match="traces"):
        oracle.of_releases(View((release,)), [])
    with pytest.raises(MismatchError, match="10 rows"):
        oracle.of_releases(View((release,), (Trace(trace.partner[:9], trace.weight[:9]),)), [])
    challenge, truth = opened(mixveil.make_challenge(DIGITS, tmp_path / "c", images=12, encodings=2))
    for more in ({}, {"extra.signs": truth.extra["signs"][:5]}):
        with pytest.raises(DataFormatError, match="instahide"):
            oracle.of_challenge(challenge, replace(truth, more=more), [])


@pytest.mark.parametrize("spoil", ["float64", "inf"])
def test_weights_that_are_no_weights_are_refused(spoil: str, tmp_path: Path) -> None:
    made = mixveil.make_challenge(DIGITS, tmp_path / "c", images=12, encodings=2)
    challenge, _ = opened(made)
    path = made.truth / "truth.safetensors"
    tensors = load_file(path)
    weights = tensors["weights"]
    tensors["weights"] = weights.double() if spoil == "float64" else torch.full_like(weights, torch.inf)
    with pytest.raises(DataFormatError, match="weight"):
        challenge_truth._checked(path, tensors, challenge.card)
