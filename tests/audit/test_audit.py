from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import pytest
import torch

from mixveil.attacks.catalogue import attacks
from mixveil.attacks.records.grid import Grid
from mixveil.attacks.shared.base import BaseAttack
from mixveil.attacks.shared.model import released
from mixveil.audit.auditing import audit, strangers
from mixveil.audit.figures import Figure
from mixveil.audit.found import Audit
from mixveil.audit.measuring import assigned
from mixveil.audit.sample import sample
from mixveil.audit.self_test import bare_rows, fails_on_bare_pairs, fails_on_bare_records
from mixveil.audit.verdict import verdict, warnings
from mixveil.core.errors import ArgumentError, WrongTruthError
from mixveil.core.randomness import SeededStream, Stream
from mixveil.core.types import Attack, AttackKind, Batch, Encoder, Guess, Mu, Rows, Tau, View
from mixveil.core.wording.notes import Note
from mixveil.core.wording.sentences import WORDS
from mixveil.data.images import Images, from_tensors
from mixveil.data.row_views import InMemoryRows, Subset
from mixveil.encoders import calibration
from mixveil.encoders.mixup import Mixup
from mixveil.encoders.singular import Singular
from mixveil.releases.kinds.records import Records
from tests.audited import OTHERS, PRIVATE, PUBLIC, audited, digits, figure, made
from tests.made import encoded, images, range_facts, with_moments
from tests.notes import codes, holds


@pytest.mark.parametrize("seed", range(4))
def test_on_a_certified_release_no_attack_beats_its_ceiling(seed: int) -> None:
    found = audited(made(Mu(1.0), seed), seed=seed)
    assert found.warnings[0].code == "audit-labels-shown"
    assert codes(found.warnings[1:]) <= {"truth-not-shown"}
    assert not any(row.beaten for row in found.figures)
    skipped = {"grid", "unit-membership", "kolmogorov-smirnov", "braverman", "braverman-whitened", "public-search"}
    skipped.add("chen")
    skipped |= {name for name, kind in attacks().items() if kind.trains and kind.payload == "records"}
    assert {item.attack: item.status for item in found.attacks if item.status != "ran"} == dict.fromkeys(
        skipped, "skipped"
    )
    mu = next(promise for promise in found.promises if promise.name == "gdp")
    assert mu.found is not None and 0.5 < mu.found <= mu.nominal
    assert "amount-next-to-nothing" in codes(found.verdict)


def test_weak_noise_is_called_weak() -> None:
    found = audited(made(Tau(1.0, "energy")))
    assert figure(found, "lmmse", "mse") < 0.6 * figure(found, "prior", "mse")
    assert figure(found, "linkage", "row-identified") > 0.1
    assert {"amount-a-great-deal"} <= codes(found.verdict) and "promise-broken" in codes(found.warnings)
    assert holds(found.warnings, "images-reconstructed", attack="lmmse")
    assert holds(found.warnings, "rows-recognised", attack="linkage")


def test_far_more_noise_than_was_asked_for_is_said() -> None:
    found = audited(made(Tau(0.1, "theorem")), names=["prior"])
    assert "promise-loose" in codes(found.warnings)


def test_the_ceiling_of_the_linear_attack_is_near_what_it_gets() -> None:
    found = audited(made(Tau(0.3, "energy")), names=["lmmse", "lmmse-row"])
    for row in found.figures:
        if row.metric == "mse":
            assert row.ceiling is not None and 0.95 * row.ceiling < row.mean < 1.1 * row.ceiling


def test_several_releases_of_the_same_data_give_more() -> None:
    pairs = [made(Tau(0.3, "energy"), seed) for seed in range(4)]
    one, four = audited(pairs[0], names=["lmmse"]), audited(*pairs, names=["lmmse"])
    assert figure(four, "lmmse", "mse") < 0.8 * figure(one, "lmmse", "mse")


def test_noise_that_is_not_what_the_release_says_is_found() -> None:
    """A lie that no reader can see: the settings say σ, the noise is 5 % less."""
    (release, trace) = made(Mu(1.0))
    truthful = release.encoder
    liar = replace(truthful, sigma=truthful.sigma * 0.95)  # type: ignore[type-var]
    lied, trace = encoded(liar, PRIVATE, SeededStream(0))
    lied = lied.with_(encoder=truthful, guarantees=release.guarantees, reproducible=False)
    found = audited((lied, trace), names=["prior"])
    assert "noise-false" in codes(found.warnings)


def replaced_noise(noise: torch.Tensor) -> Audit:
    """An honest manifest at μ = 1 over rows whose noise is something else."""
    release, trace = made(Mu(1.0))
    x = release.encoder.prepare(PRIVATE.take(torch.arange(500)).x)
    weight = trace.weight.double()
    rows = weight[:, :1] * x + weight[:, 1:] * (x[trace.partner[:, 0]] + release.encoder.sigma * noise)
    batch = Batch(rows.view(500, 1, 8, 8).float(), release.payload.take(torch.arange(500)).y)
    return audited((replace(release, payload=Records((batch,), None)), trace), names=["prior"])


def test_noise_of_every_wrong_kind_is_found() -> None:
    honest = SeededStream(4).normal(500, 64)
    assert len(replaced_noise(honest).warnings) <= 2  # labels, and that pixels do not show whose they are
    some_bare, one_value_bare = honest.clone(), honest.clone()
    some_bare[:5] = 0
    one_value_bare[:, 7] = 0
    wrong = {
        "noise-odd-rows": some_bare,
        "noise-odd-values": one_value_bare,
        "noise-shared-by-rows": honest[:1].expand(500, 64),
        "noise-shared-by-values": honest[:, :1].expand(500, 64),
        "noise-not-gaussian": honest.sign(),
    }
    for code, noise in wrong.items():
        assert code in codes(replaced_noise(noise).warnings)


def test_releases_under_the_same_noise_are_found() -> None:
    ready, guarantees, _ = calibration.calibrate(Singular(), Mu(1.0), PRIVATE, stream=SeededStream(0))
    pairs = []
    for plan in (1, 2):
        trace = ready.plan(500, stream=SeededStream(plan))
        batch = ready.encode(PRIVATE, torch.arange(500), trace, stream=SeededStream(9))
        release = made(Mu(1.0))[0].with_(id=f"{plan:032x}", payload=Records((batch,), ready.step))
        pairs.append((release.with_(guarantees=guarantees), trace))
    assert "noise-shared-by-releases" in codes(audited(*pairs, names=["prior"]).warnings)


def test_the_same_release_twice_is_refused() -> None:
    pair = made(Mu(1.0))
    with pytest.raises(ArgumentError, match="twice"):
        audited(pair, pair)


def test_a_certified_release_beside_a_weak_one_is_no_weaker_and_no_stronger() -> None:
    """Their centres and clip norms differ; together they show what the weak one shows."""
    weak = made(Tau(0.3, "energy"), 1)
    ready, guarantees, _ = calibration.calibrate(Singular(), Mu(1.0), PRIVATE, clip=2.0, stream=SeededStream(2))
    release, trace = encoded(ready, PRIVATE, SeededStream(2))
    certified = release.with_(id="2" * 32, guarantees=guarantees), trace
    alone, both = audited(weak, names=["lmmse"]), audited(certified, weak, names=["lmmse"])
    assert figure(both, "lmmse", "mse") == pytest.approx(figure(alone, "lmmse", "mse"), rel=0.02)


def test_a_manifest_that_claims_twice_the_noise_is_found() -> None:
    """Integers times a step: a doubled σ doubles the rows too, so it is the records in them that give it away."""
    release, trace = made(Tau(0.1, "energy"))
    doubled = replace(release.encoder, sigma=2 * release.encoder.sigma)  # type: ignore[type-var]
    payload = release.payload
    assert isinstance(payload, Records)
    lied = release.with_(encoder=doubled, payload=Records(payload.shards, doubled.step))
    with pytest.raises(WrongTruthError, match="with these settings"):
        audited((lied, trace))


def shifted(data: Images, low: float, gain: float) -> Images:
    read = data.read
    return replace(data, read=lambda rows: low + gain * read(rows))


@pytest.mark.parametrize("seed", [3, 4, 5])  # by how much they look different is a matter of the control's noise
def test_records_that_look_unlike_the_strangers_raise_no_false_alarm(seed: int) -> None:
    """Membership must speak of the release, not of what members look like."""
    dark = shifted(PRIVATE, 0.0, 0.2)
    ready, guarantees, _ = calibration.calibrate(Singular(), Mu(1.0), dark, clip=2.0, stream=SeededStream(seed))
    release, trace = encoded(ready, dark, SeededStream(seed))
    release = release.with_(guarantees=guarantees, reproducible=False)
    others = OTHERS.take(torch.arange(500)).x
    found = audit(
        View((release,), (trace,), PUBLIC), dark, others=others, names=["membership"], stream=SeededStream(seed)
    )
    assert not any(row.beaten for row in found.figures)
    assert found.attacks[0].status == "skipped" and codes([found.attacks[0].why]) == {"strangers-look-different"}
    assert holds(found.verdict, "verdict-untested", attacks="membership")


def test_a_release_that_claims_too_small_a_mu_is_refuted_by_membership() -> None:
    release, trace = made(Tau(1.0, "energy"))
    claimed = replace(made(Mu(1.0))[0].guarantees[0], nominal=0.1, realised=0.1)
    assert claimed.name == "gdp"
    found = audited((release.with_(guarantees=(claimed,)), trace), names=["membership"])
    beaten = next(row for row in found.figures if row.beaten)
    assert beaten.ceiling is not None and beaten.mean > beaten.ceiling
    assert holds(found.warnings, "ceiling-beaten", mean=beaten.mean, ceiling=beaten.ceiling)


def test_an_error_smaller_than_theory_permits_is_an_alarm() -> None:
    """Rows without noise under a manifest that states some."""
    release, trace = made(Tau(0.1, "energy"))
    x = release.encoder.prepare(PRIVATE.take(torch.arange(500)).x)
    rows = (trace.weight.double()[:, :1] * x + trace.weight.double()[:, 1:] * x[trace.partner[:, 0]]).float()
    batch = Batch(rows.view(500, 1, 8, 8), release.payload.take(torch.arange(500)).y)
    found = audited((replace(release, payload=Records((batch,), None)), trace), names=["lmmse"])
    assert any(row.beaten and row.metric == "mse" for row in found.figures)
    assert holds(found.warnings, "ceiling-beaten", attack="lmmse")


def test_rows_without_noise_are_found_outside_the_part_that_is_attacked(monkeypatch: pytest.MonkeyPatch) -> None:
    from mixveil.audit import auditing as module

    monkeypatch.setitem(module.PROFILES, "quick", module.Profile(200, 1 << 23, (20, 60)))
    release, trace = made(Mu(1.0))
    honest = audited((release, trace), names=["prior"])
    assert "noise-wrong" not in codes(honest.warnings)
    outside = next(i for i in range(500) if i not in set(honest.numbers.tolist()))
    x = release.encoder.prepare(PRIVATE.take(torch.tensor([outside, int(trace.partner[outside])])).x)
    batch = release.payload.take(torch.arange(500))
    batch.x[outside] = (trace.weight[outside].double() @ x).view(1, 8, 8).float()
    found = audited((replace(release, payload=Records((batch,), None)), trace), names=["prior"])
    assert holds(found.warnings, "noise-odd-rows", rows=1)


def test_an_attack_that_cannot_unmix_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    from mixveil.theory.rings import Rings

    monkeypatch.setattr(Rings, "solve", lambda rings, diagonal, coupling, target: torch.zeros_like(target))
    found = audited(made(Tau(1.0, "energy")), names=["lmmse"])
    assert found.attacks[0].status == "broken"


def test_links_that_are_too_many_for_a_matrix_are_counted_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    from mixveil.attacks.records import linkage

    whole = audited(made(Tau(1.0, "energy")), names=["linkage"])
    monkeypatch.setattr(linkage, "_MOST_LINKS", 0)
    found = audited(made(Tau(1.0, "energy")), names=["linkage"])
    assert found.attacks[0].status == "ran"
    best = figure(whole, "linkage", "row-identified")  # by the likeliest assignment, which needs the matrix
    assert 0.8 * best < figure(found, "linkage", "row-identified") <= best


def test_copies_are_said_and_found_as_one() -> None:
    copies = replace(PRIVATE, read=lambda rows: read(rows // 5), labels=PRIVATE.labels[torch.arange(500) // 5])
    read = PRIVATE.read
    ready, _, _ = calibration.calibrate(Singular(), Tau(1.0, "energy"), copies, stream=SeededStream(0))
    release, trace = encoded(ready, copies, SeededStream(0))
    others = OTHERS.take(torch.arange(300)).x
    found = audit(View((release,), (trace,), PUBLIC), copies, others=others, names=["linkage"], stream=SeededStream(0))
    assert holds(found.warnings, "records-copied", copies=400)
    assert found.attacks[0].status == "ran"


def test_a_mu_smaller_than_the_weights_give_is_found() -> None:
    release, trace = made(Mu(1.0))
    stated = tuple(replace(g, nominal=0.4, realised=0.4) if g.name == "gdp" else g for g in release.guarantees)
    found = audited((release.with_(guarantees=stated), trace), names=["prior"])
    assert next(promise for promise in found.promises if promise.name == "gdp").broken
    assert {"promise-broken", "promise-gdp"} <= codes(found.warnings)
    assert holds(found.warnings, "promise-broken", nominal=0.4)


def test_a_realised_figure_that_is_not_that_of_the_records_is_found() -> None:
    release, trace = made(Tau(0.1, "spectral"))
    edited = release.with_(guarantees=(replace(release.guarantees[0], nominal=0.07, realised=0.07),))
    assert "promise-broken" in codes(audited((edited, trace), names=["prior"]).warnings)
    assert "promise-broken" not in codes(audited((release, trace), names=["prior"]).warnings)


def test_without_public_data_few_rows_still_show_that_images_are_smooth() -> None:
    """One variance for all waves of a length is what a few noisy rows can tell; a whole covariance is not."""
    ramp = torch.linspace(-1, 1, 16)
    waves = torch.stack([ramp[:, None].expand(16, 16), ramp.expand(16, 16), ramp[:, None] * ramp])
    parts = SeededStream(1).normal(100, 3, 3).float() @ waves.flatten(1)
    x = (0.5 + 0.1 * parts.view(100, 3, 16, 16)).clamp(0, 1)
    data = from_tensors(x, torch.arange(100) % 4, classes=4)
    ready, _, _ = calibration.calibrate(Singular(), Tau(0.3, "energy"), data, stream=SeededStream(0))
    release, trace = encoded(ready, data, SeededStream(0))
    found = audit(View((release,), (trace,)), data, names=["lmmse"], stream=SeededStream(0))
    row = next(row for row in found.figures if row.metric == "mse")
    assert row.know_nothing is not None and row.mean < 0.7 * row.know_nothing


def test_attacks_that_do_worse_than_nothing_are_called_weak(monkeypatch: pytest.MonkeyPatch) -> None:
    from mixveil.attacks.shared import model

    monkeypatch.setattr(model, "_ENOUGH", 0)  # a covariance from far too few rows
    data = digits(0, 60)
    ready, _, _ = calibration.calibrate(Singular(), Tau(0.3, "energy"), data, stream=SeededStream(0))
    release, trace = encoded(ready, data, SeededStream(0))
    found = audit(View((release,), (trace,)), data, names=["lmmse"], stream=SeededStream(0))
    assert {"verdict-images-too-weak", "verdict-give-public-data"} <= codes(found.verdict)
    given = replace(found, view=replace(found.view, public=PUBLIC))
    assert "verdict-give-public-data" not in codes(verdict(given, 0))


def test_no_attack_on_pairs_speaks_for_another() -> None:
    """An attack that finds more than the others is not hidden behind one that guesses better."""
    found = audited(made(Mu(1.0)), names=["radius", "radius-labels"])
    weak = Figure("radius", "pairs", "pair-found", 0.0, know_nothing=0.0006, interval=(0.0, 0.1))
    strong = replace(weak, attack="radius-labels", mean=0.5, know_nothing=0.1, interval=(0.4, 0.6))
    found = replace(found, figures=(weak, strong))
    told = {of.figures["attack"]: of.figures["mean"] for of in verdict(found, 0) if of.code == "verdict-pairs"}
    assert told == {"radius": 0.0, "radius-labels": 0.5}
    assert holds(warnings(found), "pairs-recognised", attack="radius-labels")
    assert not holds(warnings(found), "pairs-recognised", attack="radius")


@pytest.mark.parametrize("given", [99, 100])
def test_few_rows_have_as_many_strangers_as_membership_needs(given: int) -> None:
    data = digits(0, 60)
    ready, _, _ = calibration.calibrate(Singular(), Mu(1.0), data, stream=SeededStream(0))
    release, trace = encoded(ready, data, SeededStream(0))
    others = OTHERS.take(torch.arange(given)).x
    found = audit(View((release,), (trace,)), data, others=others, names=["membership"], stream=SeededStream(0))
    (run,) = found.attacks
    short = holds([run.why], "attack-needs-strangers", least=100, strangers=given)
    assert short if given < 100 else run.status == "ran" and not short


def test_public_data_that_do_not_vary_do_not_stop_the_audit() -> None:
    release, trace = made(Mu(1.0))
    flat = from_tensors(torch.full((300, 1, 8, 8), 0.5), torch.arange(300) % 10, classes=10)
    found = audit(View((release,), (trace,), flat), PRIVATE, stream=SeededStream(0))
    why = {item.attack: item.why for item in found.attacks}
    assert codes([why["lmmse"]]) == {"known-records-do-not-vary"} and any(
        row.attack == "labels" for row in found.figures
    )


def test_a_few_records_without_public_data_are_not_called_reconstructed() -> None:
    few = replace(PRIVATE, labels=PRIVATE.labels[:5])
    ready, guarantees, _ = calibration.calibrate(Singular(), Mu(1.0), few, stream=SeededStream(0))
    release, trace = encoded(ready, few, SeededStream(0))
    found = audit(View((release.with_(guarantees=guarantees),), (trace,)), few, stream=SeededStream(0))
    assert not {"amount-a-great-deal", "amount-something"} & codes(found.verdict)
    assert holds(found.verdict, "verdict-untested", attacks="membership")


def test_a_release_whose_tau_was_edited_is_found() -> None:
    release, trace = made(Tau(0.1, "spectral"))
    edited = release.with_(guarantees=(replace(release.guarantees[0], nominal=1e-3, realised=1e-3),))
    assert "promise-broken" in codes(audited((edited, trace), names=["prior"]).warnings)


def test_sphere_noise_is_seen_through() -> None:
    found = audited(made(Tau(0.001, "energy"), encoder=Singular(noise="sphere")), names=["radius"])
    assert figure(found, "radius", "pair-found") > 0.6


def test_mixup_is_no_defence() -> None:
    encoder: Encoder = Mixup()
    release, trace = encoded(encoder, PRIVATE, SeededStream(0))
    found = audited((release, trace), names=["lmmse", "labels"])
    assert figure(found, "lmmse", "mse") < 0.3 * next(r.know_nothing or 0 for r in found.figures if r.metric == "mse")
    assert figure(found, "labels", "own-class-shown") == 1.0


def test_the_labels_show_the_class_counts_exactly() -> None:
    found = audited(made(Mu(1.0)), names=["labels"])
    assert figure(found, "labels", "class-counts-shown") == 1.0


def test_more_candidates_than_rows_are_assigned() -> None:
    """Two candidates like row 0 best; the one that fits nothing else gets it."""
    links = torch.tensor([[9.0, 8.0], [9.5, 0.0], [1.0, 1.0]], dtype=torch.float64)
    assert assigned(links).tolist() == [1, 0, -1]


def test_mixup_states_nothing() -> None:
    release, trace = encoded(Mixup(), PRIVATE, SeededStream(0))
    found = audited((release, trace), names=["prior"])
    assert "no-guarantee-stated" in codes(found.warnings)


def test_truth_that_is_not_the_releases_data_is_refused() -> None:
    release, trace = made(Mu(1.0))
    view = View((release,), (trace,), PUBLIC)
    with pytest.raises(WrongTruthError, match="500 rows"):
        audit(view, PUBLIC, stream=SeededStream(0))
    other = digits(600, 1100)
    with pytest.raises(WrongTruthError, match="labels"):
        audit(view, other, stream=SeededStream(0))
    same_labels = replace(other, labels=PRIVATE.labels)
    weaker, trace = made(Tau(0.1))
    with pytest.raises(WrongTruthError, match="was not made of these data"):
        audit(View((weaker,), (trace,), PUBLIC), same_labels, stream=SeededStream(0))
    # At μ = 0.3 the pixels of 500 digits cannot tell: that is what the noise is for, and it is said.
    strong, trace = made(Mu(0.3))
    found = audit(View((strong,), (trace,), PUBLIC), same_labels, names=["prior"], stream=SeededStream(0))
    assert "truth-not-shown" in codes(found.warnings)


def test_what_an_attack_lacks_is_said() -> None:
    release, _ = made(Mu(1.0))
    found = audit(View((release,)), PRIVATE, stream=SeededStream(0))
    skipped = {item.attack: item.why for item in found.attacks if item.status == "skipped"}
    for name, fields in {
        "lmmse": "traces",
        "lowpass": "public, traces",
        "membership": "traces",
        "known": "traces",
    }.items():
        assert holds([skipped[name]], "attack-needs", fields=fields)
    assert "verdict-noise-unmeasured" in codes(found.verdict)
    assert all(item.threat in WORDS for item in found.attacks)
    assert "average" not in skipped  # it needs nothing
    without = audit(View((release,)), PRIVATE, names=["lmmse", "lowpass"], stream=SeededStream(0))
    for name, fields in {"lmmse": "traces", "lowpass": "public, traces"}.items():
        (told,) = [told for told in without.verdict if told.figures.get("attacks") == name]
        assert told.code == "verdict-untested" and holds([told], "attack-needs", fields=fields)
    assert "images" in codes(without.verdict)


def test_an_attack_that_fails_without_a_defence_is_broken_not_a_defence(monkeypatch: pytest.MonkeyPatch) -> None:
    from mixveil.attacks.records import lmmse

    monkeypatch.setattr(lmmse, "unmixed", lambda mixings, seen, *_: torch.zeros_like(seen[0]))
    found = audited(made(Mu(1.0)), names=["lmmse"])
    assert found.attacks[0].status == "broken" and holds(found.warnings, "attack-broken", attack="lmmse")


class Blind(BaseAttack):
    """Says something of everything, and knows nothing."""

    name = "blind"
    threat = "threat-blind"

    def __init__(self, like: type[Attack]) -> None:
        self.kind, self.needs = like.kind, like.needs  # type: ignore[misc]

    def __call__(self, view: View, *, stream: Stream) -> Guess:
        n = len(view.releases[0].payload)
        assert view.candidates is not None
        return Guess(
            pairs=torch.zeros(n, 2, dtype=torch.int64),
            links=torch.zeros(len(view.candidates), n),
            scores=stream.uniform(len(view.candidates)),
        )


class HalfWay(BaseAttack):
    """Guesses records, and then scores where there are no strangers to compare with."""

    name, kind = "half-way", "reconstruction"

    def __call__(self, view: View, *, stream: Stream) -> Guess:
        release = view.releases[0]
        images = release.encoder.restore(released(release)).view(-1, *release.shape)
        return Guess(images=images, scores=torch.zeros(len(images)))


def test_an_attack_that_fails_half_way_leaves_no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mixveil.audit.auditing.known_attacks", lambda: {"half-way": HalfWay})
    release, trace = made(Mu(1.0))
    found = audit(View((release,), (trace,)), PRIVATE, stream=SeededStream(0))
    assert found.attacks[0].status == "skipped" and codes([found.attacks[0].why]) == {"attack-refused"}
    assert not found.figures and not found.images and not found.curves


ASKING = [name for name, of in attacks().items() if "candidates" in of.needs and "units" not in of.needs]


@pytest.mark.parametrize("name", ASKING)
def test_an_attack_without_eyes_is_called_broken(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    like = attacks()[name]

    class Made:
        payload = "records"

        def __new__(cls) -> Blind:  # type: ignore[misc]
            return Blind(like)

    monkeypatch.setattr("mixveil.audit.auditing.known_attacks", lambda: {"blind": Made})
    found = audited(made(Mu(1.0)))
    assert found.attacks[0].status == "broken" and holds(found.warnings, "attack-broken", attack="blind")


def test_the_grid_check_passes_its_own_test_where_rows_are_long_enough() -> None:
    data = images(24, (3, 32, 32), classes=6)
    facts = with_moments(range_facts(data), energy=256.0, lambda_max=1.0)
    release, _ = encoded(Singular().calibrate(Mu(0.5), facts)[0], data, SeededStream(0))
    assert not fails_on_bare_pairs(Grid(), View((release,)), data, SeededStream(0))


def test_unknown_attacks_are_refused_and_of_large_data_a_part_is_attacked(monkeypatch: pytest.MonkeyPatch) -> None:
    from mixveil.audit import auditing as module

    with pytest.raises(ArgumentError, match="'magic'"):
        audited(made(Mu(1.0)), names=["magic"])
    monkeypatch.setitem(module.PROFILES, "quick", module.Profile(200, 1 << 23, (20, 60)))
    release, trace = made(Tau(0.3, "energy"))
    part = audited((release, trace))
    assert len(part.numbers) == 200 and part.of == 500 and holds(part.verdict, "verdict-part", attacked=200, rows=500)
    assert {item.status for item in part.attacks} == {"ran", "skipped"}
    monkeypatch.undo()
    whole = audited((release, trace), names=["lmmse", "linkage"])
    assert figure(part, "lmmse", "mse") == pytest.approx(figure(whole, "lmmse", "mse"), rel=0.08)


@pytest.mark.parametrize("releases", [1, 2])
@pytest.mark.parametrize("known", [True, False])
def test_a_sample_is_rows_with_all_that_they_are_made_of(releases: int, known: bool) -> None:
    pairs = [made(Tau(0.3, "energy"), seed) for seed in range(releases)]
    view = View(tuple(r for r, _ in pairs), tuple(t for _, t in pairs) if known else None)
    seen, records, numbers = sample(view, PRIVATE, 60, SeededStream(1))
    assert len(set(numbers.tolist())) == 60 == len(seen.releases[0].payload)
    own = torch.arange(60)
    assert torch.equal(records.take(own).x, PRIVATE.take(numbers).x)
    for t, (release, trace) in enumerate(pairs):
        assert torch.equal(seen.releases[t].payload.take(own).x, release.payload.take(numbers).x)
        if seen.traces is not None:
            assert torch.equal(seen.traces[t].weight, trace.weight[numbers])
            partners = PRIVATE.take(trace.partner[numbers, 0]).x
            assert torch.equal(records.take(seen.traces[t].partner[:, 0]).x, partners)
    if known and releases == 1:
        assert len(records) <= 61  # one stretch of the pairing, or whole cycles of it
    assert sample(view, PRIVATE, 500, SeededStream(1)).view is view


def test_public_images_that_are_private_ones_are_said_and_are_no_strangers() -> None:
    release, trace = made(Mu(1.0))
    mine = PRIVATE.take(torch.arange(30)).x
    others = torch.cat([OTHERS.take(torch.arange(300)).x, mine])
    found = audit(
        View((release,), (trace,), digits(480, 700)),
        PRIVATE,
        others=others,
        names=["membership"],
        stream=SeededStream(0),
    )
    assert holds(found.warnings, "public-among-private", images=20)
    assert holds(found.warnings, "strangers-among-private", images=30)


def test_strangers_are_looked_for_until_there_are_enough() -> None:
    """Private images among the others take no place of a stranger."""
    mine, true = PRIVATE.take(torch.arange(400)).x, OTHERS.take(torch.arange(150)).x
    others = torch.cat([mine[:200], true[:75], mine[200:], true[75:]])
    for given in (others, InMemoryRows(Batch(others, torch.zeros(len(others), 10)))):
        found, said = looked_for(given, 120)
        assert len(found) == 120 and holds(said, "strangers-among-private")
        assert not (found[:, None] == mine[None]).flatten(2).all(2).any()
    found, said = looked_for(others, 500)
    assert torch.equal(found, true) and holds(said, "strangers-among-private", images=400)
    found, said = looked_for(true, 100)
    assert len(found) == 100 and not said and torch.equal(found[-1], true[-1])  # spread over all of them
    assert looked_for(true[:0], 100)[0].shape == (0, *PRIVATE.shape)
    assert looked_for(None, 0)[0].shape == (0, *PRIVATE.shape)


def looked_for(others: Rows | torch.Tensor | None, most: int) -> tuple[torch.Tensor, list[Note]]:
    found, said = strangers(PRIVATE, None, others, most)
    return found.take(torch.arange(len(found))).x, said


def test_an_attack_may_learn_more_from_the_release_than_from_foreign_public_data() -> None:
    release, trace = made(Tau(1.0, "energy"))
    foreign = from_tensors(SeededStream(3).uniform(600, 1, 8, 8).float(), torch.arange(600) % 10, classes=10)
    found = audit(View((release,), (trace,), foreign), PRIVATE, names=["lmmse"], stream=SeededStream(0))
    assert codes([found.attacks[0].why]) == {"better-without-public-data"}
    assert not audited((release, trace), names=["lmmse"]).attacks[0].why


def test_a_part_of_rows() -> None:
    part = Subset(PRIVATE, torch.tensor([4, 7]))
    assert len(part) == 2 and torch.equal(part.take(torch.tensor([1])).x, PRIVATE.take(torch.tensor([7])).x)


def test_attacks_are_tried_on_records_of_all_classes() -> None:
    """Folders are sorted by class; where all labels are alike, none shows a weight."""
    seen: list[torch.Tensor] = []

    class Looking(BaseAttack):
        name: ClassVar[str] = "looking"
        kind: ClassVar[AttackKind] = "reconstruction"

        def __call__(self, view: View, *, stream: Stream) -> Guess:
            seen.append(view.releases[0].payload.take(torch.arange(len(view.releases[0].payload))).y.sum(0))
            return Guess(images=HalfWay()(view, stream=stream).images)

    data = images(1000, (1, 64, 64), classes=10)
    order = torch.arange(1000) // 100
    data = from_tensors(data.take(torch.arange(1000)).x, order, classes=10)
    encoder, _, _ = calibration.calibrate(Singular(), Mu(1.0), data, stream=SeededStream(0))
    release, trace = encoded(encoder, data, SeededStream(0))
    assert bare_rows(1000, 64 * 64) < 1000
    fails_on_bare_records(Looking(), View((release,), (trace,)), data, data.take(order[:0]).x, SeededStream(0))
    assert len(seen) == 2 and all(bool((classes > 0).all()) for classes in seen)


def test_the_verdict_begins_with_an_answer() -> None:
    """It says what attacks found, and never that a release may be sent."""

    def first(found: Audit) -> str:
        assert [told for told in found.verdict if told.code.startswith("answer-")] == [found.verdict[0]]
        return found.verdict[0].code

    strong, (release, trace) = made(Mu(0.5)), made(Mu(1.0))
    assert first(audited(strong, names=["labels"])) == "answer-untested"
    assert first(audited(strong, names=["lmmse", "linkage", "membership"])) == "answer-little"
    assert first(audited(strong, names=["lmmse"])) == "answer-little-in-part"
    assert first(audited(made(Mu(6.0)), names=["lmmse"])) == "answer-some-in-part"
    assert first(audited(made(Mu(20.0)), names=["known"])) == "answer-known"
    assert first(audited(made(Mu(1000.0)), names=["lmmse", "linkage"])) == "answer-both"
    assert first(audited(made(Mu(1000.0)), names=["linkage"])) == "answer-recognised"
    stated = tuple(replace(g, nominal=0.4, realised=0.4) if g.name == "gdp" else g for g in release.guarantees)
    assert first(audited((release.with_(guarantees=stated), trace), names=["lmmse"])) == "answer-do-not-send"
    seeded = audited((release.with_(reproducible=True), trace), names=["lmmse"])
    assert first(seeded) == "answer-seeded" and codes([seeded.verdict[0].figures["said"]]) >= {"answer-little-in-part"}
    lying = audited((release.with_(reproducible=True, guarantees=stated), trace), names=["lmmse"])
    assert holds([lying.verdict[0]], "answer-do-not-send") and first(lying) == "answer-seeded"
