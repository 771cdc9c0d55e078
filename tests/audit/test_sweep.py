from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from mixveil.audit.auditing import PROFILES, Profile, audit
from mixveil.audit.found import Audit
from mixveil.audit.sweep import Sweep, Swept, _encoded, calibrated, run, table
from mixveil.audit.thumbnails import shrunk
from mixveil.core.errors import ArgumentError, PrivateFactError
from mixveil.core.randomness import SeededStream
from mixveil.core.types import Mu, Tau, View
from mixveil.core.watching import Moment
from mixveil.data.images import from_tensors
from mixveil.data.row_views import Subset
from mixveil.encoders import calibration
from mixveil.encoders.gaussian import Gaussian
from mixveil.encoders.laplace import Laplace
from mixveil.encoders.mixup import Mixup
from mixveil.encoders.singular import Singular
from mixveil.releases.ledger import Ledger
from mixveil.releases.records import in_memory, traced_in_memory
from mixveil.releases.screening import Screen, Screened
from tests.audited import FEW as PRIVATE
from tests.audited import FEW_PUBLIC as PUBLIC
from tests.audited import OTHERS, template
from tests.audited import PRIVATE as MORE
from tests.made import images

ATTACK = partial(audit, others=OTHERS.take(torch.arange(120)).x, names=["prior", "lmmse", "linkage"])


def swept(text: str, target: Mu | Tau, encoder: Singular | None = None, attack: partial[Audit] = ATTACK) -> Swept:
    release, trace = template(target, encoder)
    sweep = Sweep.parse(text)
    found = attack(View((release,), (trace,), PUBLIC), PRIVATE, stream=SeededStream(0))
    return run(sweep, calibrated(sweep, release, PRIVATE, seed=3), found, PRIVATE, attack, seed=3)


def figures(found: Swept, attack: str, metric: str, part: str = "mean") -> list[float]:
    return [
        getattr(row, part)
        for point in found.points
        for row in point.figures
        if (row.attack, row.metric) == (attack, metric)
    ]


@pytest.mark.parametrize(
    "text, words",
    [
        ("tau", "got 'tau'"),
        ("sigma=1,2", "got 'sigma'"),
        ("tau=", "'' is no number"),
        ("tau=1,x", "'x' is no number"),
        ("tau=1,2", r"must be in \(0, 1\], got 2"),
        ("tau=1,nan", "got nan"),
        ("mu=1,-2", "got -2"),
        ("mu=1,inf", "got inf"),
        ("releases=1,2.5", "got 2.5"),
        ("releases=0,1", "got 0"),
        ("releases=1,65", "1 to 64, got 65"),
        ("mu=1", "got 1: 1"),
        ("mu=1,2,1.0", "1 is given twice"),
        ("mu=" + ",".join(map(str, range(1, 14))), "2 to 12 values make a curve, got 13"),
    ],
)
def test_what_makes_no_curve_is_refused_by_name(text: str, words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        Sweep.parse(text)


def test_the_most_revealing_value_is_first() -> None:
    assert Sweep.parse(" tau = 0.01, 1,0.1").values == (1, 0.1, 0.01)
    assert Sweep.parse("releases=1,4").values == (4, 1)


def test_curves_fall_with_tau_and_are_those_of_separate_audits(tmp_path: Path) -> None:
    found = swept("tau=0.01,1,0.1", Tau(0.3, "energy"))
    errors = figures(found, "lmmse", "mse")
    assert len(errors) == 3 and all(later > 1.05 * earlier for earlier, later in pairwise(errors))
    assert not Ledger().entries() and not list((tmp_path / "state").glob("traces/*"))
    for point in found.points:
        ready, guarantees, _ = calibration.calibrate(
            Singular(), Tau(point.value, "energy"), PRIVATE, stream=SeededStream(9)
        )
        assert point.sigma == pytest.approx(ready.sigma, rel=1e-9)
        stream = SeededStream(3).fork("sweep").fork("release")
        release, trace = traced_in_memory(PRIVATE, ready, guarantees, party="p", stream=stream)
        alone = ATTACK(View((release,), (trace,), PUBLIC), PRIVATE, stream=SeededStream(3))
        mine, theirs = ([(row.attack, row.metric) for row in of.figures] for of in (point, alone))
        assert mine == theirs
        for row, other in zip(point.figures, alone.figures, strict=True):
            assert row.mean == pytest.approx(other.mean, rel=1e-6, abs=1e-9)


def test_the_ceiling_of_members_found_grows_with_mu_and_with_releases() -> None:
    membership = partial(ATTACK, names=["membership"])
    by_mu = swept("mu=0.5,1,2", Mu(1.0), attack=membership)
    assert figures(by_mu, "membership", "tpr-at-1-fpr", "ceiling") == pytest.approx([0.372, 0.0924, 0.0339], abs=1e-3)
    by_count = swept("releases=4,1", Mu(1.0), attack=membership)
    ceilings = figures(by_count, "membership", "tpr-at-1-fpr", "ceiling")
    assert ceilings == pytest.approx([0.372, 0.0924], abs=1e-3)  # √4 releases of μ = 1 cost as much as one of 2
    assert by_mu.points[0].sigma == pytest.approx(by_mu.points[2].sigma / 4)
    assert by_count.points[0].sigma == by_count.points[1].sigma


def test_more_releases_show_more_and_share_the_first() -> None:
    found = swept("releases=1,4", Tau(0.3, "energy"), attack=partial(ATTACK, names=["lmmse"]))
    four, one = figures(found, "lmmse", "mse")
    assert four < 0.8 * one
    assert found.points[0].followed["lmmse"].number == found.points[1].followed["lmmse"].number
    shared = [point.followed["lmmse"].released for point in found.points]
    assert torch.equal(shared[0], shared[1])
    assert table(found)[0][:2] == ("lmmse", "snr-db") and len(table(found)[0][2]) == 2


def test_pictures_are_of_the_record_that_the_first_value_shows_best() -> None:
    found = swept("tau=1,0.001", Tau(0.3, "energy"), attack=partial(ATTACK, names=["prior", "lmmse"]))
    first, last = found.points
    assert set(first.followed) == {"lmmse"}
    assert first.followed["lmmse"].number == first.best["lmmse"].number == last.followed["lmmse"].number
    for shown in (first.followed["lmmse"], last.followed["lmmse"], last.best["lmmse"]):
        assert torch.allclose(shown.original, PRIVATE.take(torch.tensor([shown.number])).x[0].float(), atol=1e-6)
        assert float(shown.released.min()) == 0 and float(shown.released.max()) == 1
    errors = [
        float((shown.guess - shown.original).square().mean()) for shown in (p.followed["lmmse"] for p in (first, last))
    ]
    assert errors[0] < 0.3 * errors[1]


def test_of_a_large_release_the_part_that_was_attacked_is_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PROFILES, "quick", Profile(60, 1 << 23, (20, 60)))
    ready, guarantees, _ = calibration.calibrate(Singular(), Mu(4.0), MORE, stream=SeededStream(0))
    release, trace = traced_in_memory(MORE, ready, guarantees, party="p", stream=SeededStream(1))
    attack, sweep = partial(audit, names=["lmmse"]), Sweep.parse("tau=1,0.1")
    template = attack(View((release,), (trace,)), MORE, stream=SeededStream(0))
    encoders = calibrated(sweep, release, MORE, seed=0)
    seen: list[Subset] = []

    def spy(view: View, records: Subset, **options: Any) -> Audit:
        seen.append(records)
        return attack(view, records, **options)

    moments: list[Moment] = []
    found = run(sweep, encoders, template, MORE, spy, seed=0, watch=moments.append)
    told = [moment.doing for moment in moments]
    shares = [moment.done for moment in moments if moment.done is not None]
    assert shares == sorted(shares) and shares[0] == pytest.approx(1 / 3) and shares[-1] == pytest.approx(1.0)
    assert told[0] == "τ = 1 (1 of 2): encoding" and "τ = 0.1 (2 of 2): lmmse" in told
    assert (found.records, found.of) == (60, 500)
    assert all(torch.equal(part.index, template.numbers) for part in seen) and len(seen) == 2
    assert all(point.best["lmmse"].number in template.numbers for point in found.points)


@pytest.mark.parametrize("name", ["tau=1,0.1", "mu=1,2"])
def test_a_template_without_noise_of_its_own_is_refused(name: str) -> None:
    sweep = Sweep.parse(name)
    bare = in_memory(PRIVATE, Mixup(), (), party="p", stream=SeededStream(0))
    with pytest.raises(ArgumentError, match="mixup adds no noise"):
        calibrated(sweep, bare, PRIVATE, seed=0)
    with pytest.raises(ArgumentError, match="laplace promises nothing"):
        calibrated(sweep, bare.with_(encoder=Laplace.example()), PRIVATE, seed=0)


def test_a_template_that_cannot_keep_what_is_varied_is_refused() -> None:
    plain, _ = template(Mu(1.0), Gaussian())
    with pytest.raises(ArgumentError, match="gaussian mixes nothing"):
        calibrated(Sweep.parse("tau=1,0.1"), plain, PRIVATE, seed=0)
    sphere, _ = template(Tau(0.1), Singular(noise="sphere"))
    with pytest.raises(ArgumentError, match="sphere has no mu"):
        calibrated(Sweep.parse("mu=1,2"), sphere, PRIVATE, seed=0)
    energy, _ = template(Tau(0.3, "energy"))
    stated = energy.guarantees[0]
    assumes = {**stated.assumes, "calibration": "displacement"}
    moved = energy.with_(guarantees=(replace(stated, assumes=assumes),))
    with pytest.raises(ArgumentError, match="keeps no tau"):
        calibrated(Sweep.parse("tau=1,0.1"), moved, PRIVATE, seed=0)
    private = energy.with_(guarantees=(replace(stated, assumes={**stated.assumes, "clip": "private"}),))
    with pytest.raises(PrivateFactError, match="clip"):
        calibrated(Sweep.parse("mu=1,2"), private, PRIVATE, seed=0)


def test_units_and_randomised_labels_are_kept() -> None:
    data = images(60, classes=3)
    named = replace(data, units=tuple(str(row // 2) for row in range(60)), declared=True)
    ready, guarantees, _ = calibration.calibrate(Singular(), Mu(4.0), named, stream=SeededStream(0))
    release, trace = traced_in_memory(named, ready, guarantees, party="p", stream=SeededStream(1), label_epsilon=2.0)
    attack, sweep = partial(audit, names=["lmmse", "labels"]), Sweep.parse("mu=1,2")
    found = attack(View((release,), (trace,)), named, stream=SeededStream(0))
    result = run(sweep, calibrated(sweep, release, named, seed=0), found, named, attack, seed=0)
    assert result.points[1].sigma == pytest.approx(4 * ready.sigma)
    assert all(item.status == "ran" for point in result.points for item in point.attacks)


def test_rows_that_are_no_pictures_have_figures_only() -> None:
    rows = from_tensors(images(40, (6,)).take(torch.arange(40)).x, torch.arange(40) % 4, classes=4, name="rows")
    ready, guarantees, _ = calibration.calibrate(Singular(), Tau(0.5), rows, stream=SeededStream(0))
    release, trace = traced_in_memory(rows, ready, guarantees, party="p", stream=SeededStream(1))
    attack, sweep = partial(audit, names=["lmmse"]), Sweep.parse("tau=1,0.1")
    found = attack(View((release,), (trace,)), rows, stream=SeededStream(0))
    result = run(sweep, calibrated(sweep, release, rows, seed=0), found, rows, attack, seed=0)
    assert figures(result, "lmmse", "mse") and not any(point.best for point in result.points)


def test_pictures_shrink_in_proportion() -> None:
    image = torch.linspace(-0.5, 1.5, 200).expand(3, 100, 200)
    small = shrunk(image, 96)
    assert small.shape == (3, 48, 96) and float(small.min()) == 0 and float(small.max()) == 1
    assert torch.equal(shrunk(image, 200), image.clamp(0, 1))


@pytest.mark.parametrize("text", ["tau=1,0.1", "releases=1,2"])
def test_a_template_from_which_rows_were_dropped_is_refused(text: str) -> None:
    release = template(Tau(0.3))[0].with_(screened=Screened(Screen("snr", 3.0), 200))
    with pytest.raises(ArgumentError, match="rows were dropped"):
        calibrated(Sweep.parse(text), release, PRIVATE, seed=0)


def test_encodings_of_a_certified_template_are_judged_as_certified() -> None:
    """What is stated for the worst record is not called loose on these."""
    release, _ = template(Mu(1.0))
    sweep = Sweep.parse("mu=1,4")
    ready = calibrated(sweep, release, PRIVATE, seed=3)
    releases, _ = _encoded(release, *ready[4.0], PRIVATE, 2, 3)
    assert len(releases) == 2 and all(item.certified and item.guarantees for item in releases)
    plain, _ = template(Tau(0.5))
    ready = calibrated(Sweep.parse("tau=1,0.5"), plain, PRIVATE, seed=3)
    assert not _encoded(plain, *ready[0.5], PRIVATE, 1, 3)[0][0].certified
