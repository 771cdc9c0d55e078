"""Units: all rows of one person, covered together."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mixveil.audit.auditing import audit
from mixveil.core import errors
from mixveil.core.randomness import SecureStream, SeededStream
from mixveil.core.types import ANY_ROWS, Fact, Facts, Mu, View
from mixveil.data import privacy_units as units
from mixveil.data.images import Images, from_tensors
from mixveil.encoders.gaussian import Gaussian
from mixveil.encoders.identity import Identity
from mixveil.encoders.laplace import Laplace
from mixveil.encoders.mixup import Mixup
from mixveil.encoders.singular import Singular
from mixveil.features.projection import Projected
from mixveil.features.projection_fit import fit
from mixveil.learn.model import in_words, read_model, write_model
from mixveil.learn.training import opened, train
from mixveil.releases import notes
from mixveil.releases.kinds.sums import sums_of
from mixveil.releases.ledger import Ledger
from mixveil.releases.reading import read_release, verify_release
from mixveil.releases.records import in_memory, write_release
from mixveil.releases.sums import class_sums, write_statistics
from mixveil.releases.traces import load_trace
from mixveil.theory import gdp
from tests.made import blobs, features_of, images, range_facts
from tests.membership import refutes, unit_scores
from tests.notes import codes

FACTS = Facts(
    {
        "dimension": Fact(4.0, "range"),
        "centre": Fact(0.5, "range"),
        "amplitude": Fact(0.5, "range"),
        "clip": Fact(0.2, "public"),
        "unit_rows": Fact(3.0, "public"),
    }
)
PATIENTS = torch.tensor([0, 0, 0, 1, 1, 2, 3])


# Pairing


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 6), min_size=2, max_size=40), st.integers(0, 1000))
def test_no_two_rows_of_a_unit_are_paired_wherever_that_can_be(names: list[int], seed: int) -> None:
    units_of = torch.tensor(names)
    if 2 * int(units_of.bincount().max()) > len(names):
        with pytest.raises(errors.TooFewRowsError, match="more than half"):
            SeededStream(seed).derangement_across_units(units_of)
        return
    partner = SeededStream(seed).derangement_across_units(units_of)
    assert sorted(partner.tolist()) == list(range(len(names)))
    assert not bool((units_of[partner] == units_of).any())


def test_where_swaps_do_not_get_there_a_shift_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mixveil.core.randomness._SWAPS", 0)
    for seed in range(50):
        units_of = torch.tensor([0] * 5 + [1] * 3 + [2] * 2)
        partner = SeededStream(seed).derangement_across_units(units_of)
        assert sorted(partner.tolist()) == list(range(10)) and not bool((units_of[partner] == units_of).any())


def test_all_pairs_that_may_be_come_about() -> None:
    met = torch.zeros(7, 7)
    stream = SeededStream(0)
    for _ in range(1000):
        met[torch.arange(7), stream.derangement_across_units(PATIENTS)] += 1
    allowed = PATIENTS[:, None] != PATIENTS[None]
    assert bool((met[allowed] > 66).all()) and not bool(met[~allowed].any())


def test_a_hundred_thousand_rows_of_units_of_a_thousand() -> None:
    units_of = torch.arange(100_000) // 1000
    assert not bool((units_of[SeededStream(0).derangement_across_units(units_of)] == units_of).any())


# What is stated


@pytest.mark.parametrize("encoder", [Singular(), Singular(alpha=0.7), Gaussian()])
def test_the_noise_grows_with_the_root_of_the_rows_of_a_unit(encoder: Singular | Gaussian) -> None:
    three, stated = encoder.calibrate(Mu(1.0), FACTS)
    one, _ = encoder.calibrate(Mu(1.0), FACTS.with_(unit_rows=Fact(1.0, "public")))
    assert three.unit_rows == 3 and three.sigma == pytest.approx(math.sqrt(3) * one.sigma)
    claim = next(g for g in stated if g.name == "gdp")
    assert claim.realised == pytest.approx(1) and claim.assumes["neighbours"] == "replace-unit"


def test_the_bound_for_any_pairing_is_that_of_the_literature() -> None:
    """(2C/σ)√m/(1 − α) covers pairs within a unit; kept apart, the same rows cost less."""
    encoder, _ = Singular().calibrate(Mu(1.0), FACTS)
    clip, sigma, alpha = encoder.clip, encoder.sigma, encoder.alpha
    cost = encoder.cost()
    assert cost is not None and cost.mu_if_paired == pytest.approx(2 * clip / sigma / (1 - alpha))
    assert cost.of(3) == pytest.approx(1) and cost.mu < cost.mu_if_paired
    for m in (1, 2, 5):  # every way to pair m rows: j of them within the unit
        for j in range(m + 1):
            worst = j / (1 - alpha) ** 2 + (m - j) * ((alpha / (1 - alpha)) ** 2 + 1)
            assert 2 * clip / sigma * math.sqrt(worst) <= cost.mu_if_paired * math.sqrt(m) * (1 + 1e-12)


def test_who_belongs_to_whom_must_be_said() -> None:
    plain, _ = Gaussian().calibrate(Mu(1.0), FACTS)
    with pytest.raises(errors.ArgumentError, match="a unit has 4 rows"):
        plain.plan(9, stream=SeededStream(0), units=torch.tensor([0, 0, 0, 0, 1, 2, 3, 4, 5]))
    encoder, guarantees = Singular().calibrate(Mu(1.0), FACTS)
    strangers = from_tensors(torch.rand(7, 4), torch.arange(7) % 2)
    with pytest.raises(errors.ArgumentError, match="units of 3 rows"):
        in_memory(strangers, encoder, guarantees, party="p", stream=SeededStream(0))
    with pytest.raises(errors.ArgumentError, match="a unit has 4 rows"):
        encoder.plan(9, stream=SeededStream(0), units=torch.tensor([0, 0, 0, 0, 1, 2, 3, 4, 5]))
    with pytest.raises(errors.ArgumentError, match="7 units are given for 9"):
        encoder.plan(9, stream=SeededStream(0), units=PATIENTS)
    named = replace(strangers, units=tuple("abcdefg"))
    for bare in (Mixup(), Identity(), Laplace.example()):
        with pytest.raises(errors.ArgumentError, match="promises nothing to units"):
            in_memory(named, bare, (), party="p", stream=SeededStream(0))


def test_a_release_of_units_says_so_and_the_ledger_counts_them(tmp_path: Path) -> None:
    names = (*(f"p{i // 3}" for i in range(18)), "q", "r")
    data = replace(images(20), units=names)
    encoder, guarantees = Singular().calibrate(Mu(1.0), range_facts(data))
    for name in "ab":
        write_release(tmp_path / name, data, encoder, guarantees, party="p", stream=SecureStream())
    written = verify_release(tmp_path / "a")
    assert "unit-is-named" in written.not_promised and written.unit_rows == 3
    found = Ledger().spent(Ledger().owners(data))
    assert len(found.mu) == 8 and found.most == pytest.approx(math.sqrt(2))
    assert sorted(found.mu)[:2] == pytest.approx([math.sqrt(2 / 3)] * 2)  # one row costs less than three
    # An image of the same person that is new: the person has spent what it has spent.
    new = replace(from_tensors(torch.rand(2, 1, 4, 4), torch.tensor([0, 1])), units=("p0", "z"))
    assert sorted(Ledger().spent(Ledger().owners(new)).mu) == pytest.approx([0.0, math.sqrt(2)])


@pytest.mark.parametrize("label_epsilon", [None, 1.0])
def test_no_release_pairs_rows_of_one_person(tmp_path: Path, label_epsilon: float | None) -> None:
    data = replace(images(60), units=tuple(f"p{i // 3}" for i in range(60)))
    encoder, guarantees = Singular().calibrate(Mu(1.0), range_facts(data))
    for number in range(5):
        out = tmp_path / str(number)
        written = write_release(
            out, data, encoder, guarantees, party="p", stream=SecureStream(), label_epsilon=label_epsilon
        )
        trace = load_trace(written.id, 60)
        assert trace is not None and (trace.order is None) == (label_epsilon is None)
        whose = torch.arange(60) // 3 if trace.order is None else trace.order // 3
        assert not bool((whose[trace.partner[:, 0]] == whose).any())
    two = replace(encoder, unit_rows=2)
    with pytest.raises(errors.ArgumentError, match="a unit has 3 rows"):
        write_release(tmp_path / "x", data, two, guarantees, party="p", stream=SecureStream())


def test_an_audit_finds_a_pairing_that_breaks_the_promise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = replace(images(60), units=tuple(f"p{i // 3}" for i in range(60)))
    encoder, guarantees = Singular().calibrate(Mu(1.0), range_facts(data))

    def warned(out: Path, truth: Images) -> set[str]:
        written = write_release(out, data, encoder, guarantees, party="p", stream=SecureStream())
        trace = load_trace(written.id, 60)
        assert trace is not None
        found = audit(View((read_release(out),), (trace,)), truth, names=["prior"], stream=SeededStream(0))
        return codes(found.warnings) & {"units-unchecked", "units-paired"}

    assert warned(tmp_path / "a", data) == set()
    assert warned(tmp_path / "b", replace(data, units=None)) == {"units-unchecked"}
    monkeypatch.setattr(SecureStream, "derangement_across_units", lambda _, units: torch.arange(len(units)).roll(1))
    assert warned(tmp_path / "c", data) == {"units-paired"}


# The guarantee itself


def test_the_optimal_test_against_a_patient_with_three_images_stays_under_mu() -> None:
    """With weights of one half the bound is tight: μ = 1 holds, 0.7 is refuted. What one record is promised, μ/√3,
    does not hold for three: that is what units are for."""
    encoder, _ = Singular(alpha=0.5).calibrate(Mu(1.0), FACTS)
    members, others = unit_scores(encoder, 8_000)
    assert not refutes(members, others, mu=1.0)
    assert refutes(members, others, mu=0.7)
    assert refutes(members, others, mu=1 / math.sqrt(3))


def test_a_patient_whose_images_are_paired_with_one_another_is_easier_to_find() -> None:
    """The three images of every patient in a circle: μ does not hold. It is the constraint on pairing that keeps it."""
    encoder, _ = Singular(alpha=0.5).calibrate(Mu(1.0), FACTS)
    place = torch.arange(240_000)
    within = torch.where(place % 30 < 3, place - place % 30 + (place + 1) % 30 % 3, place)
    members, others = unit_scores(encoder, 4_000, within)
    assert refutes(members, others, mu=1.0)
    assert float(members.mean() - others.mean()) == pytest.approx(2.0, rel=0.1)  # μ², where apart it is 1


def test_class_sums_cost_a_unit_once_whatever_its_rows(tmp_path: Path) -> None:
    """A unit is clipped as a whole: the noise is that of a record, and the number of rows is not told."""
    data = replace(blobs(60, 2), units=tuple(str(i % 20) for i in range(60)))
    base = fit(features_of(blobs(90, 1)), "a" * 64)
    rows = Projected(features_of(data), base)
    assert units.largest(rows) == 3
    found = class_sums(rows, "b" * 64, 1.0, party="p", stream=SeededStream(0))
    assert sums_of(found).sigma == pytest.approx(2 * base.clip) and sums_of(found).units == 20
    records = sums_of(
        class_sums(Projected(features_of(blobs(60, 2)), base), "b" * 64, 1.0, party="p", stream=SeededStream(0))
    )
    costs = [settings.cost().of(3) for settings in (sums_of(found), records)]
    assert costs == pytest.approx([1.0, 3.0])
    write_statistics(tmp_path / "s", rows, "b" * 64, 1.0, party="p", stream=SecureStream())
    again = read_release(tmp_path / "s")
    assert again.unit_rows == ANY_ROWS and again.mu == 1.0 and again.guarantees[0].realised == pytest.approx(1.0)
    assert again.guarantees[0].assumes["neighbours"] == "replace-unit-and-labels"
    path = tmp_path / "s" / "manifest.json"
    honest = path.read_text()
    assert "60" not in re.findall(r"\d+", re.sub(r'"(id|created|sha256)": "[^"]*"', "", honest))
    spent = Ledger().spent(Ledger().owners(rows))  # read again from the file: the entry is whole
    assert spent.most == pytest.approx(1.0) and len(spent.mu) == 20
    for change in ({"sigma": sums_of(again).sigma / 3}, {"per": "record"}):
        lie = json.loads(honest)
        lie["payload"].update(change)
        lie["payload"]["step"] = lie["payload"]["sigma"] / 1024
        lie["guarantees"][0]["realised"] = 1.0
        path.write_text(json.dumps(lie))
        with pytest.raises(errors.FalseClaimError):
            read_release(tmp_path / "s")


def test_rows_that_no_unit_names_pay_for_sums_one_by_one(tmp_path: Path) -> None:
    """The same rows, clipped alone: three of one person cost three times as much."""
    data, base = blobs(60, 2), fit(features_of(blobs(90, 1)), "a" * 64)
    write_statistics(
        tmp_path / "s", Projected(features_of(data), base), "b" * 64, 1.0, party="p", stream=SecureStream()
    )
    named = replace(data, units=tuple(str(i % 20) for i in range(60)))
    assert Ledger().spent(Ledger().owners(named)).most == pytest.approx(3.0)


def test_no_number_of_rows_is_told_of_units_that_were_clipped(tmp_path: Path) -> None:
    data = replace(blobs(60, 2), units=tuple(str(i % 20) for i in range(60)))
    base = fit(features_of(blobs(90, 1)), "a" * 64)
    made = write_statistics(
        tmp_path / "s", Projected(features_of(data), base), base.digest(), 1.0, party="p", stream=SecureStream()
    )
    told = [*notes.promises(made), *notes.not_promised(made), made.settings.note(made)]
    assert "unit-is-clipped" in made.not_promised and "over 20 units" in str(told[-1])
    trained = train(opened([tmp_path / "s"], (base, base.digest())))
    card = write_model(tmp_path / "m", trained, None, {}).card
    assert card["trained_on"][0]["unit_rows"] == "any" and card["label_epsilon"] == {"p": 0.0}
    assert read_model(tmp_path / "m").card["per"] == "unit"
    everything = " ".join([*map(str, told), *(str(note.plain()) for note in told), str(card), in_words(trained)])
    assert str(ANY_ROWS) not in everything and f"{ANY_ROWS:,}" not in everything
    assert "Labels are covered by the same μ." in in_words(trained)


def test_an_audit_of_a_release_for_units_skips_no_attack_for_it(tmp_path: Path) -> None:
    data = replace(images(150, (1, 8, 8)), units=tuple(str(i // 3) for i in range(150)))
    encoder, guarantees = Singular().calibrate(Mu(1.0), range_facts(data))
    write_release(tmp_path / "r", data, encoder, guarantees, party="p", stream=SecureStream())
    release = read_release(tmp_path / "r")
    trace = load_trace(release.id, 150)
    assert trace is not None
    others = images(150, (1, 8, 8), seed=5).take(torch.arange(150)).x
    public = images(200, (1, 8, 8), seed=6)
    found = audit(View((release,), (trace,), public), data, others=others, stream=SeededStream(0))
    ran = {item.attack for item in found.attacks if item.status == "ran"}
    assert {"lmmse", "lowpass", "lowpass-row", "linkage", "membership"} <= ran
    ceiling = next(row.ceiling for row in found.figures if row.metric == "tpr-at-1-fpr")
    assert ceiling == pytest.approx(gdp.member_tpr(1 / math.sqrt(3), 0.01))  # of one record
