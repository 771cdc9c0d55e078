"""What is measured beside the records asks the encoder how rows come from them: also of an encoder whose rows are no
weighed sums."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from mixveil.attacks.catalogue import attacks
from mixveil.audit.auditing import Audit, audit
from mixveil.audit.guarantees_found import noise_faults, promises
from mixveil.audit.sample import sample
from mixveil.audit.truth import covered_in_pairs, in_record_order, inspect, rows_first
from mixveil.core.errors import ArgumentError, WrongTruthError
from mixveil.core.randomness import SeededStream
from mixveil.core.types import Encoder, Mu, Release, Trace, View
from mixveil.data.row_views import Subset
from mixveil.encoders.gaussian import Gaussian
from mixveil.encoders.identity import Identity
from mixveil.encoders.mixup import Mixup
from mixveil.encoders.singular import Singular
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
    assert not any(promise.broken for promise in audited.promises)


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
