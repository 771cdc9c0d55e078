"""What is measured beside the records asks the encoder how rows come from them: also of an encoder whose rows are no
weighed sums."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import ClassVar

import pytest
import torch

from mixveil.attacks.catalogue import attacks
from mixveil.audit.auditing import audit
from mixveil.audit.ceilings import record_mu, unit_mu
from mixveil.audit.found import Audit
from mixveil.audit.guarantees_found import label_faults, noise_faults, promises
from mixveil.audit.sample import sample
from mixveil.audit.truth import covered_in_pairs, in_record_order, inspect, rows_first
from mixveil.core.errors import ArgumentError, WrongTruthError
from mixveil.core.randomness import SeededStream
from mixveil.core.types import Cost, Encoder, Fact, Mu, Release, Trace, View
from mixveil.data.row_views import Subset
from mixveil.encoders.gaussian import Gaussian
from mixveil.encoders.identity import Identity
from mixveil.encoders.mixup import Mixup
from mixveil.encoders.singular import CalibratedSingular, Singular
from mixveil.learn.discriminant import from_records
from mixveil.releases.records import traced_in_memory
from mixveil.releases.screening import Screen, Screened
from mixveil.theory.moments import moments
from tests.audited import PRIVATE, PUBLIC
from tests.made import range_facts
from tests.notes import holds
from tests.plugins.toy_encoder import FittedSignMask, SignMask

MASKED = FittedSignMask(values=64, centre=0.5)
FEW = Subset(PRIVATE, torch.arange(120))


def made(encoder: Encoder, **more: float) -> tuple[Release, Trace]:
    return traced_in_memory(FEW, encoder, (), party="p", stream=SeededStream(0), **more)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def audited() -> Audit:
    release, trace = made(MASKED)
    return audit(View((release,), (trace,), PUBLIC), FEW, stream=SeededStream(0))


@pytest.mark.parametrize("encoder", [MASKED, Identity(), Mixup(), Mixup(k=4)], ids=str)
def test_rows_without_noise_are_compared_with_their_means(encoder: Encoder) -> None:
    release, trace = made(encoder)
    view = View((release,), (trace,))
    (found,) = inspect(view, FEW)
    assert found.telling and len(found.energies) == 0
    assert (
        noise_faults(view, FEW, [found]) == [] and promises(view, [found], moments(FEW, stream=SeededStream(0))) == []
    )
    with pytest.raises(WrongTruthError):
        inspect(view, Subset(PRIVATE, torch.arange(120, 240)))
    own = torch.arange(120)
    x = FEW.take(own).x.clone()
    x[17, 0, 3, 3] += 0.5
    changed = replace(PRIVATE, read=lambda index: x[index], labels=PRIVATE.labels[:120])
    with pytest.raises(WrongTruthError):  # one value of one record
        inspect(view, changed)


def test_what_else_was_drawn_counts() -> None:
    release, trace = made(MASKED)
    flipped = replace(trace, extra={"signs": -trace.extra["signs"]})
    with pytest.raises(WrongTruthError):
        inspect(View((release,), (flipped,)), FEW)


def test_what_else_was_drawn_goes_where_its_rows_go() -> None:
    release, trace = made(MASKED, label_epsilon=1.0)
    assert trace.order is not None
    ordered = in_record_order(View((release,), (trace,)))
    assert inspect(ordered, FEW)[0].telling
    release, trace = made(MASKED)
    kept = torch.arange(120) % 3 != 0
    left = release.with_(
        payload=Subset(release.payload, kept.nonzero()[:, 0]), screened=Screened(Screen("ssim", 0.5), 120)
    )
    view, records = rows_first(View((left,), (replace(trace, kept=kept),)), FEW)
    assert inspect(view, records)[0].telling
    part = sample(View((release,), (trace,)), FEW, 20, SeededStream(1))
    assert len(part.numbers) == 20 and inspect(part.view, Subset(part.records, torch.arange(len(part.records))))


def test_an_encoder_that_is_not_linear_gets_an_honest_audit(audited: Audit) -> None:
    """The attacks that need weighed sums say so; nothing is measured by them, and none is called broken."""
    ran = {item.attack: item for item in audited.attacks}
    assert {item.status for item in audited.attacks} <= {"ran", "skipped"}
    for name, kind in attacks().items():
        if kind.linear and kind.needs <= {"traces", "candidates", "candidate_labels", "known"}:
            assert holds([ran[name].why], "attack-needs-linear", encoder=SignMask.name)
    assert ran["labels"].status == "ran"
    untested = [told for told in audited.verdict if told.code == "verdict-untested"]
    for names in ({"lmmse", "known", "lowpass-row"}, {"linkage", "radius"}):  # signs blind all of them
        said = [told for told in untested if holds([told], "attack-needs-linear")]
        assert any(names <= set(told.figures["attacks"].split(", ")) for told in said)
    assert not any(figure.ceiling for figure in audited.figures)
    assert not any(promise.broken for promise in audited.promises)


class Bent(CalibratedSingular):
    """Says that its rows are no weighed sums."""

    linear: ClassVar[bool] = False


def test_nothing_that_rests_on_weighed_sums_is_said_of_other_rows() -> None:
    """That μ leaves a share of the variance unknown, and what μ the weights give, follows for Gaussian sums alone."""
    ready, guarantees = Singular().calibrate(Mu(1.0), range_facts(FEW))
    names = []
    for encoder in (ready, Bent(**asdict(ready))):
        release, trace = made(encoder)
        view = View((release.with_(guarantees=guarantees),), (trace,))
        said = promises(view, inspect(view, FEW), moments(FEW, stream=SeededStream(0)))
        names.append({promise.name for promise in said if promise.found is not None})
    assert names[0] - names[1] == {"gdp", "variance-left-unknown"}


def test_randomised_labels_that_rows_do_not_show_are_said_to_be_unchecked() -> None:
    for encoder, due in ((MASKED, True), (Mixup(k=3), True), (Mixup(), False)):
        release, trace = made(encoder, label_epsilon=1.0)
        found = inspect(in_record_order(View((release,), (trace,))), FEW)
        assert holds(label_faults(View((release,), (trace,)), found, 120), "labels-unchecked") == due


def test_the_mu_of_a_record_and_of_a_larger_unit_follow_from_the_cost() -> None:
    ready, guarantees = Singular().calibrate(Mu(1.0), range_facts(FEW).with_(unit_rows=Fact(4.0, "public")))
    release = made(MASKED)[0].with_(encoder=ready, guarantees=guarantees)
    assert record_mu(release) == pytest.approx(0.5) and unit_mu(release, 4) == 1.0
    assert unit_mu(release, 16) >= 2.0  # made for units of four rows
    together = Cost(1.0, 1.0, 0.0)  # all rows of a unit cost no more than one

    class Shared(CalibratedSingular):
        def cost(self) -> Cost | None:
            return together

    assert record_mu(release.with_(encoder=Shared(**asdict(ready)))) == 1.0


def test_the_discriminant_refuses_rows_that_are_no_weighed_sums() -> None:
    with pytest.raises(ArgumentError, match=SignMask.name):
        from_records([made(MASKED)[0]])


def test_bounds_of_pairs_are_for_pairs_alone() -> None:
    facts = range_facts(FEW)
    sphere = replace(Singular().calibrate(Mu(1.0), facts)[0], noise="sphere")
    for encoder, due in (
        (Singular().calibrate(Mu(1.0), facts)[0], True),
        (sphere, True),
        (Gaussian().calibrate(Mu(1.0), facts)[0], False),
        (Mixup(), False),
        (MASKED, False),
    ):
        assert covered_in_pairs(*made(encoder)) == due
