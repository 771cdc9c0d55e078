"""Residual sums: their noise, what an attacker can tell of a record and its label, and what they say on disk."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from mixveil.core import errors
from mixveil.core.randomness import SecureStream, SeededStream
from mixveil.features.extractor import Extractor
from mixveil.features.projection import HeldRows, Projected
from mixveil.learn.layers import Layers
from mixveil.learn.rounds import head_digest
from mixveil.learn.training import Trained
from mixveil.releases import contributions
from mixveil.releases.contributions import LARGEST, Head
from mixveil.releases.kinds.sums import SumSettings, sums_of
from mixveil.releases.ledger import Ledger
from mixveil.releases.reading import read_release
from mixveil.releases.sums import ALONE, Sharing, residual_sums, write_residuals
from mixveil.theory import clipping, shared_noise
from tests.made import blobs, features_of
from tests.membership import DIRECTION, refutes
from tests.sums import DIGEST, LastIsBare, base, given, residual_sum, scores

OWN = 0.1  # the largest norm of a unit's residuals
REPETITIONS = 100_000


def head_of(rows: Projected, seed: int = 3) -> Head:
    k, classes, stream = rows.projection.dimension, len(rows.classes), SeededStream(seed)
    return Head(stream.normal(k, classes), stream.normal(classes), 0.1 * stream.normal(k))


def test_they_are_the_clipped_gradients_and_noise_of_the_stated_size() -> None:
    rows = Projected(features_of(blobs(300, 2)), base())
    head = head_of(rows)
    asked = (rows, DIGEST, head, head_digest(head), OWN, 0.5)
    drawn = [residual_sums(*asked, party="p", stream=SeededStream(seed)) for seed in range(300)]
    noise = torch.stack([part.payload for part in drawn]) - residual_sum(rows, head, OWN)
    sigma = 2 * OWN / 0.5
    assert float(noise.std()) == pytest.approx(sigma, rel=0.03)
    assert float(noise[:, :, -1].std()) == pytest.approx(sigma, rel=0.1)
    assert float(noise.mean().abs()) < 5 * sigma / math.sqrt(noise.numel())
    found = sums_of(drawn[0], "residuals")
    assert found.shape == (3, 7) and (found.per, found.units, found.clip) == ("record", 300, OWN)


# The guarantee, against the best attacker


FLAT = Head(torch.zeros(4, 2).double(), torch.zeros(2).double(), torch.zeros(4).double())
STEEP = replace(FLAT, weight=torch.zeros(4, 2).double())
STEEP.weight[0] = torch.tensor([LARGEST, -LARGEST])
"""A head that a malicious server sends: of two records that differ by a thousandth it names one 0 and the other 1."""

LEFT, RIGHT = (torch.tensor([sign * 1e-3, 0.5, 0.5, 0.5], dtype=torch.float64) for sign in (-1, 1))


def world(z: Tensor, label: int, each: int = 1, *, clip: float = 1.0, named: bool = True) -> HeldRows:
    """A person's records, `each` of them, of one label, beside a stranger's."""
    rows = torch.cat([z.expand(each, 4), 0.3 * DIRECTION.flip(0)[None]])
    labels, units = torch.tensor([label] * each + [0]), ["patient"] * each + ["stranger"]
    return given(rows, labels, units if named else None, clip=clip)


def stated(rows: HeldRows, mu: float, sharing: Sharing = ALONE) -> SumSettings:
    """What a release of these rows says of itself."""
    made = residual_sums(rows, DIGEST, FLAT, "c" * 64, OWN, mu, party="p", stream=SecureStream(), sharing=sharing)
    return sums_of(made, "residuals")


PAIRS = {
    "the same label": (FLAT, world(30 * DIRECTION, 0, clip=30.0), world(-30 * DIRECTION, 0, clip=30.0)),
    "another label": (STEEP, world(RIGHT, 1), world(LEFT, 0)),
    "the label alone": (FLAT, world(DIRECTION, 0), world(DIRECTION, 1)),
    "three records": (STEEP, world(RIGHT, 1, 3), world(LEFT, 0, 3)),
    "another number of records": (STEEP, world(RIGHT, 1, 3), world(LEFT, 0, 1)),
    "seven times too long": (FLAT, world(210 * DIRECTION, 0, clip=30.0), world(-210 * DIRECTION, 0, clip=30.0)),
}


@pytest.mark.parametrize("pair", PAIRS)
def test_the_optimal_test_against_residual_sums(pair: str) -> None:
    """Of image and label: each pair is a worst case, so the test comes near the bound, and stays within it."""
    head, one, other = PAIRS[pair]
    found = scores(residual_sum(one, head, OWN), residual_sum(other, head, OWN), stated(one, 1.0), REPETITIONS)
    assert not refutes(*found, mu=1.0)
    assert refutes(*found, mu=0.9)


def test_planted_lies_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    head, one, other = PAIRS["another label"]
    totals, honest = (residual_sum(one, head, OWN), residual_sum(other, head, OWN)), stated(one, 1.0)
    assert refutes(*scores(*totals, honest, REPETITIONS, LastIsBare()), mu=1.0)  # biases without noise
    assert refutes(*scores(*totals, stated(one, 2.0), REPETITIONS), mu=1.0)  # half the noise
    apart = [residual_sum(world(z, label, 3, named=False), head, OWN) for z, label in ((RIGHT, 1), (LEFT, 0))]
    assert refutes(*scores(apart[0], apart[1], honest, REPETITIONS), mu=1.0)  # three records that are clipped alone
    monkeypatch.setattr(contributions, "units_total", lambda joint, radius: clipping.units_total(joint, 1.2 * radius))
    longer = residual_sum(one, head, OWN), residual_sum(other, head, OWN)
    assert refutes(*scores(*longer, honest, REPETITIONS), mu=1.0)  # gradients that are clipped too late


def test_shared_noise_holds_for_the_sum_and_says_what_holds_alone() -> None:
    head, one, other = PAIRS["another label"]
    totals, shared = (residual_sum(one, head, OWN), residual_sum(other, head, OWN)), stated(one, 1.0, Sharing(3))
    together, alone = scores(*totals, shared, REPETITIONS, parties=3), scores(*totals, shared, REPETITIONS)
    assert not refutes(*together, mu=1.0) and refutes(*together, mu=0.9)
    assert not refutes(*alone, mu=math.sqrt(3)) and refutes(*alone, mu=1.5)


COPIES = [
    (1.0, 3, 3, 3),  # h parties are honest, and all of them have the record: m·μ
    (1.0, 3, 3, 2),
    (1.0, 2, 3, 3),  # more have it than are relied on: √(mh)·μ
    (1.0, 3, 2, 2),  # fewer are honest than are relied on, and all of those have it
    (0.25, 10, 10, 10),
]


@pytest.mark.parametrize(("mu", "honest", "parties", "having"), COPIES)
def test_a_record_at_several_parties_of_a_secure_sum(mu: float, honest: int, parties: int, having: int) -> None:
    """It moves one sum several times, under the noise of one: √Σμ² of its parties is far too little."""
    head, one, other = PAIRS["the label alone"]
    totals, shared = (residual_sum(one, head, OWN), residual_sum(other, head, OWN)), stated(one, mu, Sharing(honest))
    found = scores(*totals, shared, REPETITIONS, parties=parties, having=having)
    several = shared_noise.at_several(mu, honest, having, parties)
    assert not refutes(*found, mu=several) and refutes(*found, mu=0.9 * several)
    assert refutes(*found, mu=math.sqrt(having) * mu)
    alone = dict.fromkeys("abcdefghij"[:having], shared_noise.alone(mu, honest))
    card = model_card(dict.fromkeys(alone, mu), alone, honest)
    assert not refutes(*found, mu=card) and (parties > having or refutes(*found, mu=0.9 * card))


def test_a_record_at_several_parties_of_sums_in_the_clear_and_of_a_secure_sum() -> None:
    """The best test adds up what both say. The second party relies on as many as the first."""
    head, one, other = PAIRS["the label alone"]
    totals, honest = (residual_sum(one, head, OWN), residual_sum(other, head, OWN)), 3
    clear, shared = stated(one, 0.5), stated(one, 1.0, Sharing(honest))
    both = [scores(*totals, settings, REPETITIONS, parties=2, having=2) for settings in (clear, shared)]
    members, others = (a / clear.sigma**2 + b / shared.sigma**2 for a, b in zip(*both, strict=True))
    alone = dict.fromkeys("ab", math.hypot(0.5, shared_noise.alone(1.0, honest)))
    card = model_card(dict.fromkeys("ab", math.hypot(0.5, 1.0)), alone, honest)
    assert card == pytest.approx(math.sqrt(2 * 0.5**2 + 2 * 3))
    assert not refutes(members, others, mu=card) and refutes(members, others, mu=0.9 * card)


def model_card(spent: Mapping[str, float], alone: Mapping[str, float], honest: int) -> float:
    """What the card of a model says of a record that all these parties have."""
    layers = Layers(((torch.zeros(2, 2), torch.zeros(2)),))
    own = {"spent": spent, "label_epsilon": dict.fromkeys(spent, 0.0), "alone": alone, "honest": honest}
    trained = Trained(layers, {}, ("0", "1"), Extractor(), None, None, (), units=False, **own)  # type: ignore[arg-type]
    assert trained.together is not None
    return trained.together


# On disk


def written(folder: Path, rows: Projected | None = None, sharing: Sharing = ALONE) -> Head:
    rows = rows or Projected(features_of(blobs(600, 2)), base())
    head = head_of(rows)
    asked = (folder, rows, DIGEST, head, head_digest(head), OWN, 1.0)
    write_residuals(*asked, party="p", stream=SecureStream(), sharing=sharing)
    return head


def test_they_are_written_read_and_remembered(tmp_path: Path) -> None:
    head = written(tmp_path / "s")
    again = read_release(tmp_path / "s")
    assert again.certified and again.mu == 1.0 and again.assets == {"projection": DIGEST, "head": head_digest(head)}
    (entry,) = Ledger().entries()
    assert (entry.encoder, entry.stated, entry.label_epsilon) == ("residual-sums", 1.0, 0.0) and entry.finished
    assert again.guarantees[0].assumes["neighbours"] == "replace-record-and-label"
    with pytest.raises(errors.MismatchError, match="holds residual sums, not class sums"):
        sums_of(again)


def test_masked_sums_are_read_as_they_were_sent_and_promise_both_figures(tmp_path: Path) -> None:
    """The values say nothing alone: a mask turns them round, modulo 2⁶⁴."""
    masks: list[Tensor] = []

    def mask(indices: Tensor) -> Tensor:
        masks.append(SecureStream().words(indices.numel()).view_as(indices))
        return indices + masks[-1]

    rows = Projected(features_of(blobs(600, 2)), base())
    head = written(tmp_path / "s", rows, Sharing(3, mask=mask))
    again = read_release(tmp_path / "s")
    settings = sums_of(again, "residuals")
    told = {stated.name: (stated.nominal, stated.realised) for stated in again.guarantees}
    root = math.sqrt(3)
    assert told == {"gdp": pytest.approx((1.0, 1.0)), "gdp-alone": pytest.approx((root, root))}
    assert again.payload.dtype == torch.int64 and settings.sigma == pytest.approx(2 * OWN / root)
    assert "noise-is-shared" in again.envelope.not_promised
    left = settings.values(again.payload - masks[0]) - residual_sum(rows, head, OWN)
    assert float(left.abs().max()) < 8 * settings.sigma
    (entry,) = Ledger().entries()
    assert entry.encoder == "residual-sums-shared-3" and entry.stated == 1.0


def test_neither_figure_of_a_secure_sum_is_left_out(tmp_path: Path) -> None:
    """Of ten parties at μ = 0.316 together one promises μ = 1 whatever the others do, and a reader is told both."""
    rows = Projected(features_of(blobs(600, 2)), base())
    written(tmp_path / "s", rows, Sharing(10, mask=lambda indices: indices))
    path = tmp_path / "s" / "manifest.json"
    whole = json.loads(path.read_text())
    both = whole["guarantees"]
    assert [stated["name"] for stated in both] == ["gdp", "gdp-alone"]
    path.write_text(json.dumps({**whole, "guarantees": both[:1]}))
    with pytest.raises(errors.FalseClaimError, match="does not state gdp-alone"):
        read_release(tmp_path / "s")
    for certified in (True, False):
        path.write_text(json.dumps({**whole, "guarantees": both[1:], "certified": certified}))
        with pytest.raises(errors.FalseClaimError, match=r"certified if and only|no guarantee without a certificate"):
            read_release(tmp_path / "s")


def test_parties_that_share_noise_have_one_grid_and_an_odd_mu_is_refused() -> None:
    rows = Projected(features_of(blobs(60, 2)), base())
    head = head_of(rows)

    def made(mu: float, sharing: Sharing) -> SumSettings:
        asked = (rows, DIGEST, head, head_digest(head), OWN, mu)
        return sums_of(residual_sums(*asked, party="p", stream=SecureStream(), sharing=sharing), "residuals")

    assert made(1.0, Sharing(3)).step == made(math.sqrt(3), ALONE).step == OWN * 2.0**-31
    for mu in (1e-12, 1e12):
        with pytest.raises(errors.ArgumentError, match=r"does not suit contributions of 0\.1"):
            made(mu, ALONE)


LIES: dict[str, tuple[Callable[[Any], Any], type[Exception]]] = {
    "no head": (lambda whole: whole["assets"].pop("head"), errors.ManifestError),
    "class sums": (lambda whole: whole["payload"].update(what="classes"), errors.ManifestError),
    "a smaller mu": (lambda whole: whole["guarantees"][0].update(nominal=0.5), errors.FalseClaimError),
    "less noise": (lambda whole: whole["payload"].update(sigma=whole["payload"]["sigma"] / 2), errors.FalseClaimError),
    "less clipping": (lambda whole: whole["payload"].update(clip=1.0), errors.FalseClaimError),
    "fewer units": (lambda whole: whole["payload"].update(units=1), errors.GridError),
    "another head": (lambda whole: whole["assets"].update(head="no"), errors.ManifestError),
}


@pytest.mark.parametrize("lie", LIES)
def test_each_lie_has_its_error(lie: str, tmp_path: Path) -> None:
    written(tmp_path / "s", Projected(features_of(blobs(6000, 2)), base()))
    path = tmp_path / "s" / "manifest.json"
    whole = json.loads(path.read_text())
    LIES[lie][0](whole)
    path.write_text(json.dumps(whole))
    with pytest.raises(LIES[lie][1]):
        read_release(tmp_path / "s")


def test_an_honest_party_must_be_there() -> None:
    rows = Projected(features_of(blobs(60, 2)), base())
    head = head_of(rows)
    for mu, sharing, said in ((1.0, Sharing(0), "honest"), (-1.0, ALONE, "mu"), (math.nan, ALONE, "mu")):
        with pytest.raises(errors.ArgumentError, match=said):
            residual_sums(
                rows, DIGEST, head, head_digest(head), OWN, mu, party="p", stream=SecureStream(), sharing=sharing
            )
