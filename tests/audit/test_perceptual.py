"""LPIPS in an audit, on its page and from the command line, with made weights."""

from __future__ import annotations

import html
import json
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest
import torch

from mixveil.audit.auditing import PROFILES, audit
from mixveil.audit.figures import Figure
from mixveil.audit.perceptual import Perceptual
from mixveil.core.randomness import SeededStream
from mixveil.core.types import Mu, Tau, View
from mixveil.core.wording.notes import note
from mixveil.encoders.singular import Singular
from mixveil.features.lpips import KNOWN, Lpips, load
from mixveil.report.audit_page import write_audit
from tests.audited import PRIVATE, PUBLIC, made
from tests.command import Run
from tests.made import encoded, images, lpips_weights, range_facts
from tests.notes import holds, read


@pytest.fixture
def alex(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lpips:
    lpips_weights(tmp_path / "data", monkeypatch, "alex")
    return load("alex", tmp_path / "data", "cpu")


def test_an_audit_measures_lpips_on_some_records(alex: Lpips, tmp_path: Path) -> None:
    release, trace = made(Tau(1.0, "energy"))
    view = View((release,), (trace,), PUBLIC)
    found = audit(view, PRIVATE, names=["prior", "lmmse"], stream=SeededStream(0), perceptual=[alex])
    rows: dict[str, Figure] = {row.attack: row for row in found.figures if row.metric == "lpips-alex"}
    some = torch.linspace(0, 499, PROFILES["quick"].perceptual).long()
    assert len(some) == 200 and PROFILES["full"].perceptual == 2000
    values = alex(found.pixels[some], found.images["lmmse"][some] / 255)
    row = rows["lmmse"]
    assert (row.mean, row.std) == pytest.approx((float(values.mean()), float(values.std())), rel=0.02)
    assert row.worst == pytest.approx(min(values.tolist()), rel=0.02) and row.ceiling is None
    assert row.records == 200 and all(f.records is None for f in found.figures if f.metric != "lpips-alex")
    assert row.know_nothing == rows["prior"].know_nothing == pytest.approx(rows["prior"].mean)
    assert row.know_nothing is not None and row.worst is not None and row.worst < row.mean < row.know_nothing
    write_audit(tmp_path / "a", found, {"command": "", "mixveil": "0", "torch": "0", "seed": 0})
    whole = json.loads((tmp_path / "a" / "audit.json").read_text())
    jsonschema.validate(whole, json.loads((files("mixveil.report") / "audit.schema.json").read_text()))
    page = html.unescape((tmp_path / "a" / "report.html").read_text())
    assert f"{row.mean:.4g}" in page and str(note("metric-lpips-alex")) in page
    assert f'{note("metric-lpips-alex")} <span class="soft">of 200 records</span>' in page


def test_of_large_images_fewer_records_are_looked_at(alex: Lpips) -> None:
    looking = Perceptual([alex], most=200, work=3e10)
    small, large = (looking.records(alex, (3, side, side), 600) for side in (32, 256))
    assert 8 < large < small == 200
    assert large == int(3e10 / alex.work((3, 256, 256))) and looking.records(alex, (3, 4096, 4096), 600) == 8
    assert looking.records(alex, (3, 32, 32), 5) == 5
    assert looking.operations((3, 256, 256), 600) == large * alex.work((3, 256, 256)) <= 3e10
    assert looking.operations((12,), 600) == 0


@pytest.mark.parametrize(("shape", "measured"), [((3, 4, 4), True), ((2, 4, 4), False), ((12,), False)])
def test_only_what_looks_like_something_is_looked_at(alex: Lpips, shape: tuple[int, ...], measured: bool) -> None:
    data = images(20, shape)
    release, trace = encoded(Singular().calibrate(Mu(5.0), range_facts(data))[0], data, SeededStream(0))
    view = View((release,), (trace,))
    found = audit(view, data, names=["lmmse"], stream=SeededStream(0), perceptual=[alex])
    assert any(row.metric == "mse" for row in found.figures)
    assert any(row.metric == "lpips-alex" for row in found.figures) is measured


def test_the_command_takes_the_weights_that_are_there(
    run: Run, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("encode", small, "--mu", 1, "--out", "r")
    words = ("audit", "r", "--truth", small, "--attacks", "lmmse", "--json")
    told = run(*words, "--out", "a").json
    assert holds(read(told["verdict"]), "lpips-not-measured", nets=["alex", "vgg"])
    assert holds(read(told["verdict"]), "lpips-not-measured", files=[known.file for known in KNOWN.values()])
    assert not any(row["metric"].startswith("lpips") for row in told["figures"])
    assert "by the features of AlexNet" not in (tmp_path / "a" / "report.html").read_text()
    lpips_weights(tmp_path / "data", monkeypatch, "alex")
    told = run(*words, "--out", "b", "--data-dir", "data").json
    assert holds(read(told["verdict"]), "lpips-not-measured", nets=["vgg"])
    assert [row["metric"] for row in told["figures"] if row["metric"].startswith("lpips")] == ["lpips-alex"]
    (tmp_path / "data" / "weights" / KNOWN["vgg"].file).write_bytes(b"something else")
    assert run(*words, "--out", "c", "--data-dir", "data").json["error"]["type"] == "WeightsError"
