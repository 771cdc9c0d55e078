"""Audits of releases by units: every promise is the unit's, and whole units are attacked."""

from __future__ import annotations

import html
import json
import math
import re
from dataclasses import replace
from functools import partial
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest
import torch

from mixveil.attacks.records.unit_membership import UnitMembership
from mixveil.audit.auditing import PROFILES, audit
from mixveil.audit.ceilings import membership_bounds
from mixveil.audit.found import Audit
from mixveil.audit.groups import groups
from mixveil.audit.sample import unit_sample
from mixveil.audit.sweep import Sweep, calibrated, run
from mixveil.core.randomness import SeededStream
from mixveil.core.types import Fact, Facts, Guess, Mu, Release, Tau, Trace, View
from mixveil.core.wording.notes import Note, note
from mixveil.data.images import Images, from_tensors
from mixveil.encoders.singular import Singular
from mixveil.releases.records import traced_in_memory
from mixveil.report.audit_page import to_json, write_audit
from mixveil.report.sweep_section import section
from mixveil.theory import gdp
from tests.notes import codes, holds, shows

TPR = "tpr-at-1-fpr"
HOW = {"command": "mixveil audit r", "mixveil": "0", "torch": "0", "seed": 0}


def rows(n: int, seed: int) -> Images:
    """Records of 16 values, all as long as the clip norm 1, in every direction."""
    x = SeededStream(seed).normal(n, 16)
    x = 0.5 + x / torch.linalg.vector_norm(x, dim=1, keepdim=True)
    made = from_tensors(x.float().view(n, 1, 4, 4), torch.arange(n) % 2)
    return replace(made, low=-2.0, high=3.0)


def patients(n: int, m: int) -> Images:
    return replace(rows(n, 1), units=tuple(str(i // m) for i in range(n)))


def facts(m: int) -> Facts:
    known = {"dimension": 16.0, "centre": 0.5, "amplitude": 1.0, "clip": 1.0, "unit_rows": float(m)}
    return Facts({name: Fact(value, "public") for name, value in known.items()})


def made(data: Images, mu: float, m: int, *, less: float = 1.0) -> tuple[Release, Trace]:
    """less: with so much less noise than is stated."""
    encoder, guarantees = Singular().calibrate(Mu(mu), facts(m))
    encoder = replace(encoder, sigma=encoder.sigma / less)
    release, trace = traced_in_memory(data, encoder, (), party="p", stream=SeededStream(7))
    return release.with_(guarantees=guarantees, reproducible=False), trace


def audited(pair: tuple[Release, Trace], data: Images, *names: str, others: int = 600) -> Audit:
    strangers = rows(max(others, 1), 2).take(torch.arange(others)).x
    view = View((pair[0],), (pair[1],), rows(1000, 3))
    return audit(
        view, data, others=strangers, names=names or [UnitMembership.name], stream=SeededStream(0), unit="patient"
    )


def figure(found: Audit, of: str, metric: str = TPR) -> tuple[float, float | None]:
    return next((row.mean, row.ceiling) for row in found.figures if (row.of, row.metric) == (of, metric))


def test_every_ceiling_is_of_whom_it_says() -> None:
    data = patients(240, 3)
    found = audited(made(data, 1.0, 3), data, "unit-membership", "membership", "known", "linkage")
    assert [item.status for item in found.attacks] == ["ran"] * 4
    assert found.unit == "patient" and not any(row.beaten for row in found.figures)
    assert figure(found, "unit")[1] == pytest.approx(gdp.member_tpr(1.0, 0.01))
    assert figure(found, "record")[1] == pytest.approx(gdp.member_tpr(1 / math.sqrt(3), 0.01))
    assert [(p.of, round(p.mu, 3), round(p.tpr, 3)) for p in found.promised] == [
        ("unit", 1.0, 0.092),
        ("record", 0.577, 0.04),
    ]
    whole, single = (told for told in found.verdict if told.code == "verdict-members-bounded")
    assert codes([whole]) >= {"membership-of-unit"} and round(whole.figures["tpr"], 3) == 0.092
    assert codes([single]) >= {"membership-of-single-image"} and round(single.figures["tpr"], 3) == 0.04
    assert holds(found.verdict, "verdict-known-of-unit", unit="patient") and "verdict-rows-single" in codes(
        found.verdict
    )
    stated = {p.name: p for p in found.promises}
    assert stated["gdp"].of == "unit" and stated["directional-snr"].of == "record"
    mu = stated["gdp"].found
    assert mu is not None and 0.8 < mu < stated["gdp"].nominal == 1.0  # of the patient with the worst weights


def test_mu_on_these_records_is_that_of_whole_units() -> None:
    """Not the worst record's times √m: no unit need have the worst record m times."""
    data = patients(60, 3)
    release, trace = made(data, 1.0, 3)
    found = audited((release, trace), data, "prior")
    mu = gdp.mu_records(1.0, release.encoder.sigma, trace.weight).view(20, 3).square().sum(1).sqrt().max()
    assert next(p.found for p in found.promises if p.name == "gdp") == pytest.approx(float(mu))
    bare = audited((release, trace), replace(data, units=None), "prior")  # not known: the worst that may be
    assert (next(p.found for p in bare.promises if p.name == "gdp") or 0) > float(mu)


def test_noise_for_single_images_is_found_out_by_whole_units() -> None:
    """Twenty-five images a patient under noise for one."""
    data = patients(2000, 25)
    found = audited(made(data, 1.0, 25, less=5.0), data, others=1000)
    beaten = next(row for row in found.figures if row.beaten)
    assert beaten.of == "unit" and beaten.ceiling is not None and beaten.mean > beaten.ceiling + 0.1
    assert holds(found.warnings, "ceiling-beaten", attack="unit-membership")
    assert holds(found.warnings, "figure-of-unit", unit="patient")
    honest = audited(made(data, 1.0, 25), data, others=1000)
    assert [item.status for item in honest.attacks] == ["ran"] and not any(row.beaten for row in honest.figures)


def test_why_units_are_not_attacked_is_said_and_their_ceiling_is_stated_all_the_same() -> None:
    data = patients(60, 3)
    release, trace = made(data, 1.0, 3)

    def why(truth: Images, pair: tuple[Release, Trace] = (release, trace), others: int = 600) -> Note | None:
        found = audited(pair, truth, others=others)
        assert found.attacks[0].status == "skipped" and not found.figures
        (told,) = [told for told in found.verdict if told.code == "verdict-members-untested-bounded"]
        assert round(told.figures["tpr"], 3) == 0.092 and holds([told], "membership-of-unit", unit="patient")
        return found.attacks[0].why

    assert codes([why(replace(data, units=None))]) == {"units-not-stated"}
    assert holds([why(data, others=50)], "attack-needs-strangers", least=100)
    few = patients(57, 3)
    assert holds([why(few, made(few, 1.0, 3))], "attack-needs-units", least=20, units=19)
    alone = rows(60, 1)
    skipped = audited(made(alone, 1.0, 1), alone)
    assert codes([skipped.attacks[0].why]) == {"no-units-promised"} and skipped.unit is None
    assert not {"membership-of-unit", "membership-of-single-image"} & codes(skipped.verdict)
    blind = audit(View((release,)), data, names=["unit-membership"], stream=SeededStream(0))
    assert holds([blind.attacks[0].why], "attack-needs", fields="traces")


def test_an_attack_on_units_without_eyes_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    def blind(self: UnitMembership, view: View, *, stream: SeededStream) -> Guess:
        assert view.units is not None
        return Guess(scores=stream.normal(int(view.units.group.max()) + 1))

    monkeypatch.setattr(UnitMembership, "__call__", blind)
    data = patients(120, 3)
    found = audited(made(data, 1.0, 3), data)
    assert found.attacks[0].status == "broken" and codes([found.attacks[0].why]) == {"bare-units-missed"}


def test_units_that_look_unlike_the_strangers_raise_no_false_alarm() -> None:
    """A candidate's score is that of its rows: that it is shorter than the strangers is no evidence."""
    data = patients(300, 3)
    x = 0.5 + (data.take(torch.arange(300)).x - 0.5) / 4
    dull = replace(from_tensors(x, torch.arange(300) % 2), low=-2.0, high=3.0, units=data.units)
    found = audited(made(dull, 1.0, 3), dull)
    assert found.attacks[0].status == "ran" and not any(row.beaten for row in found.figures)
    assert 0.4 < figure(found, "unit", "auc")[0] < 0.6


def test_of_a_large_release_whole_units_are_attacked(monkeypatch: pytest.MonkeyPatch) -> None:
    data = patients(400, 4)
    release, trace = made(data, 30.0, 4)
    whose = torch.arange(400) // 4
    part, asked = unit_sample(View((release,), (trace,)), data, whose, 250, SeededStream(0))
    assert len(part.numbers) <= 250 and len(asked) == len(part.numbers)
    assert part.view.traces is not None
    held = part.numbers.tolist()
    for unit in set(asked[asked >= 0].tolist()):
        own = [row for row in range(400) if row // 4 == unit]
        holders = [row for row in range(400) if int(trace.partner[row, 0]) in own]
        assert set(own) | set(holders) <= set(held)
    x = part.records.take(torch.arange(len(held))).x
    assert torch.equal(x, data.take(part.numbers).x)
    monkeypatch.setitem(PROFILES, "quick", replace(PROFILES["quick"], rows=250))
    found = audited((release, trace), data)
    assert found.attacks[0].status == "ran" and figure(found, "unit")[0] > 0.9


def test_strangers_take_the_places_of_units() -> None:
    whose = torch.tensor([1, 0, 1, -1, 0, 2])
    units, members = groups(whose, 6, 4, SeededStream(0), 50)
    assert members == 3 and int(units.group.max()) + 1 - members == 51
    places: dict[tuple[int, ...], list[list[int]]] = {}
    for group in range(int(units.group.max()) + 1):
        mine = units.group == group
        places.setdefault(tuple(units.row[mine].tolist()), []).append(units.candidate[mine].tolist())
    assert set(places) == {(1, 4), (0, 2), (5,)}
    for slot, candidates in places.items():
        assert candidates[0] == list(slot)
        assert all(min(c) >= 6 and max(c) < 10 and len(set(c)) == len(slot) for c in candidates[1:])


def test_releases_for_units_and_for_records_together() -> None:
    """A release that knew no units may have paired rows of one: its μ of three rows is larger than √3 times that of
    one."""
    data = patients(60, 3)
    units, plain = made(data, 1.0, 3)[0], made(replace(data, units=None), 1.0, 1)[0]
    cost = plain.encoder.cost()
    assert cost is not None
    both = {p.of: p.mu for p in membership_bounds([units, plain])}
    assert both["unit"] == pytest.approx(math.hypot(1.0, cost.mu_if_paired * math.sqrt(3)))
    assert both["unit"] > math.hypot(1.0, math.sqrt(3)) and both["record"] == pytest.approx(math.hypot(1 / 3**0.5, 1))
    assert membership_bounds([plain])[0].of == "record" and len(membership_bounds([plain])) == 1
    assert membership_bounds([units, plain.with_(guarantees=())]) == ()


def test_the_report_names_the_unit(tmp_path: Path) -> None:
    data = patients(240, 3)
    found = audited(made(data, 1.0, 3), data, "unit-membership", "membership")
    write_audit(tmp_path / "a", found, HOW)
    whole = json.loads((tmp_path / "a" / "audit.json").read_text())
    jsonschema.validate(whole, json.loads((files("mixveil.report") / "audit.schema.json").read_text()))
    assert whole["unit"] == "patient" and [p["of"] for p in whole["promised"]] == ["unit", "record"]
    bounds = {name: dict(map(tuple, curve["bound"])) for name, curve in whole["curves"].items()}
    at = {name: next(tpr for fpr, tpr in bound.items() if fpr == pytest.approx(0.01)) for name, bound in bounds.items()}
    assert round(at["unit-membership"], 3) == 0.092 and round(at["membership"], 3) == 0.04
    page = html.unescape((tmp_path / "a" / "report.html").read_text())
    assert shows(page, "promise-gdp", whom="patient") and not shows(page, "promise-gdp", whom="record")
    for code in ("figure-of-unit", "figure-of-single-image"):
        assert shows(page, code, figure=note("metric-tpr-at-1-fpr"))
    assert "<strong>9.2%</strong>" in page and "<strong>4.0%</strong>" in page
    assert shows(page, "roc-members-unit", unit="patient")
    captions = re.findall(r'<text x="(\d+)" y="(?:18|3\d)">([^<]*)</text>', page)
    assert captions and all(int(x) + 7 * len(text) <= 360 for x, text in captions)  # 12 px letters, 360 px in all


def test_a_tau_release_by_units_is_attacked_and_has_no_ceiling() -> None:
    data = patients(120, 3)
    known = facts(3).with_(energy=Fact(1.0, "private"), lambda_max=Fact(0.0625, "private"))
    encoder, guarantees = Singular().calibrate(Tau(1.0, "energy"), known)
    found = audited(traced_in_memory(data, encoder, guarantees, party="p", stream=SeededStream(0)), data)
    mean, ceiling = figure(found, "unit")
    assert mean > 0.9 and ceiling is None and found.promised == ()
    assert holds(found.warnings, "units-recognised", unit="patient")


def test_a_sweep_of_units_has_both_ceilings() -> None:
    data = patients(300, 3)
    pair = made(data, 1.0, 3)
    attack = partial(
        audit,
        others=rows(300, 2).take(torch.arange(300)).x,
        names=["unit-membership", "membership"],
        unit="patient",
    )
    found = attack(View((pair[0],), (pair[1],), rows(1000, 3)), data, stream=SeededStream(0))
    sweep = Sweep.parse("mu=1,8")
    swept = run(sweep, calibrated(sweep, pair[0], data, seed=0), found, data, attack, seed=0)
    figures = {(point.value, row.of): row for point in swept.points for row in point.figures if row.metric == TPR}
    assert figures[8.0, "unit"].ceiling == gdp.member_tpr(8.0, 0.01)
    assert figures[8.0, "record"].ceiling == pytest.approx(gdp.member_tpr(8.0 / math.sqrt(3), 0.01))
    assert figures[8.0, "unit"].mean > 0.5 > figures[8.0, "record"].mean
    whole = json.loads(json.dumps(to_json(found, HOW, swept)))
    jsonschema.validate(whole, json.loads((files("mixveil.report") / "audit.schema.json").read_text()))
    charts = " ".join(section(whole["sweep"], {}, whole["unit"]).charts)
    assert shows(charts, "ceiling-gdp-unit") and shows(charts, "ceiling-gdp-record")
