"""The sweep's part of the report: curves, panels, data."""

from __future__ import annotations

import html
import json
import re
import shutil
from functools import partial
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema
import pytest
import torch
from safetensors.torch import load_file

from mixveil.audit.auditing import audit
from mixveil.audit.sweep import Sweep, SweepPoint, Swept, calibrated, run
from mixveil.audit.thumbnails import Thumbnails
from mixveil.core.errors import DataFormatError
from mixveil.core.randomness import SeededStream
from mixveil.core.types import Mu, Tau, View
from mixveil.core.wording.sentences import sentence
from mixveil.report.audit_page import render, to_json, write_audit
from mixveil.report.lines import Curve, chart, plot, ticks
from mixveil.report.sweep_section import _level, section, to_pictures
from mixveil.report.sweep_section import to_json as sweep_json
from tests.audited import FEW as PRIVATE
from tests.audited import FEW_PUBLIC as PUBLIC
from tests.audited import OTHERS, template
from tests.browser import COUNT_PICTURES, HOW, browse

ATTACKS = ["prior", "lmmse", "lowpass", "linkage", "radius-labels", "membership", "labels"]
PICTURED = ["lmmse", "lowpass"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    release, trace = template(Tau(0.3, "energy"))
    attack = partial(audit, others=OTHERS.take(torch.arange(120)).x, names=ATTACKS)
    found = attack(View((release,), (trace,), PUBLIC), PRIVATE, stream=SeededStream(0))
    sweep = Sweep.parse("tau=1,0.1,0.001")
    out = tmp_path_factory.mktemp("report") / "a"
    ready = calibrated(sweep, release, PRIVATE, seed=0)
    write_audit(out, found, HOW, run(sweep, ready, found, PRIVATE, attack, seed=0))
    return out


def whole(folder: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((folder / "audit.json").read_text())
    return loaded


def test_a_sweep_fits_the_schema(folder: Path) -> None:
    schema = json.loads((files("mixveil.report") / "audit.schema.json").read_text())
    jsonschema.validate(whole(folder), schema)
    assert [point["value"] for point in whole(folder)["sweep"]["points"]] == [1, 0.1, 0.001]
    for wrong in ({"name": "sigma"}, {"points": whole(folder)["sweep"]["points"][:1]}, {"more": 1}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**whole(folder), "sweep": {**whole(folder)["sweep"], **wrong}}, schema)
    without = {name: value for name, value in whole(folder).items() if name != "sweep"}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(without, schema)


def test_the_page_with_a_sweep_can_be_made_anew(folder: Path) -> None:
    before = (folder / "report.html").read_text()
    (folder / "report.html").unlink()
    assert render(folder).read_text() == before


def test_curves_are_legible_on_a_narrow_screen(folder: Path) -> None:
    """A plot is no wider than a telephone, as its legend is below it: text that is shrunk to half is not read."""
    page = (folder / "report.html").read_text()
    widths = [int(width) for width in re.findall(r'<svg viewBox="0 0 (\d+) ', page)]
    assert len(widths) > 3 and max(widths) <= 440
    legends = re.findall(r'<text x="(\d+)" y="(\d+)">([^<]+)</text>', page.split('id="sweep"')[1])
    assert legends and all(int(x) + 7 * len(text) <= 440 + 7 for x, y, text in legends if int(y) > 300)


@pytest.mark.parametrize("wrong", [{"points": [{}]}, {"name": "sigma"}, {"points": None}, 3])
def test_a_sweep_that_is_not_whole_is_refused(folder: Path, tmp_path: Path, wrong: Any) -> None:
    shutil.copytree(folder, tmp_path / "a")
    audit = whole(folder)
    audit["sweep"] = {**audit["sweep"], **wrong} if isinstance(wrong, dict) else wrong
    (tmp_path / "a" / "audit.json").write_text(json.dumps(audit))
    with pytest.raises(DataFormatError, match="not whole"):
        render(tmp_path / "a")
    audit = whole(folder)
    audit["sweep"]["points"][0]["value"] = 0
    (tmp_path / "a" / "audit.json").write_text(json.dumps(audit))
    with pytest.raises(DataFormatError, match="not whole"):
        render(tmp_path / "a")


def test_the_page_shows_a_curve_a_metric_and_says_what_a_sweep_is(folder: Path) -> None:
    page = (folder / "report.html").read_text()
    titles = re.findall(r"<svg [^>]*><title>([^<]*)</title>", page)
    charts = ("mse", "snr-db", "ssim", "row-identified", "pair-found", "tpr-at-1-fpr")
    assert titles == [sentence(f"chart-{metric}") for metric in charts]
    assert "none of these encodings was written, none left, none is in the ledger" in page
    assert page.count(f"{sentence('ceiling-linear')}</text>") == 1 and page.count("knowing nothing</text>") == 6
    for point in whole(folder)["sweep"]["points"]:
        for row in point["figures"]:
            if row["metric"] in ("mse", "snr-db", "row-identified") and row["attack"] != "prior":
                assert f'<td class="n">{row["mean"]:.4g}</td>' in page


def test_panels_show_one_record_in_all_columns_and_then_the_best_of_each(folder: Path) -> None:
    page = (folder / "report.html").read_text()
    pictures = load_file(folder / "pictures.safetensors")
    assert {key.split("/")[1] for key in pictures if "/" in key} == set(PICTURED)
    for name in PICTURED:
        assert len(set(pictures[f"sweep/{name}/followed/records"].tolist())) == 1
        for place, label in enumerate(("1", "0.1", "0.001")):
            for kind in ("original", "released", "reconstruction"):
                for choice in ("followed", "best"):
                    record = int(pictures[f"sweep/{name}/{choice}/records"][place])
                    assert f'alt="{kind}, record {record}, τ {label}"' in page
    assert page.count("<img") == 8 * (2 + len(PICTURED)) + 2 * 3 * 3 * len(PICTURED)
    assert len(re.findall(r"<caption>(\w+), record \d+</caption>", page)) >= len(PICTURED)


def test_a_page_without_a_sweep_says_nothing_of_one() -> None:
    release, trace = template(Mu(1.0))
    found = audit(View((release,), (trace,)), PRIVATE, names=["prior"], stream=SeededStream(0))
    assert to_json(found, HOW)["sweep"] is None


def test_lpips_has_a_chart_a_network_and_other_figures_have_none(folder: Path) -> None:
    sweep = whole(folder)["sweep"]
    for point in sweep["points"]:
        mse = next(row for row in point["figures"] if (row["attack"], row["metric"]) == ("lmmse", "mse"))
        point["figures"] = [{**mse, "ceiling": None, "metric": name} for name in ("lpips-vgg", "ssim_x", "lpips-alex")]
    titles = re.findall(r"<title>([^<]*)<", "".join(section(sweep, {}).charts))
    assert titles == [sentence("chart-lpips-alex"), sentence("chart-lpips-vgg")]


def test_why_a_curve_has_a_gap_is_said(folder: Path) -> None:
    sweep = whole(folder)["sweep"]
    attacks = sweep["points"][1]["attacks"]
    attacks[:] = [
        {**item, "status": "skipped", "why": {"code": "no-number"}} if item["attack"] == "lmmse" else item
        for item in attacks
    ]
    (gap,) = section(sweep, {}).missing
    assert gap.code == "sweep-gap" and (gap.figures["attack"], gap.figures["value"]) == ("lmmse", 0.1)
    assert gap.figures["why"].code == "no-number"
    sweep["points"][0]["figures"][3].update(attack="lmmse", metric="mse", mean=0.01, ceiling=0.02, beaten=True)
    (beaten,) = section(sweep, {}).beaten
    assert beaten.code == "sweep-ceiling-beaten" and beaten.figures["figure"].code == "metric-mse"
    assert [beaten.figures[name] for name in ("value", "attack", "mean", "ceiling")] == [1, "lmmse", 0.01, 0.02]


def test_the_page_with_a_sweep_in_a_real_browser(folder: Path, tmp_path: Path) -> None:
    shown, said, asked = browse(folder / "report.html", tmp_path)
    assert "CONSOLE" not in said and asked == []
    assert "Sweep over τ" in html.unescape(shown)
    open_page = re.sub(r"<meta http-equiv[^>]*>", "", (folder / "report.html").read_text())
    (tmp_path / "counting.html").write_text(open_page.replace("</body>", COUNT_PICTURES + "</body>"))
    counted = re.search(r'data-seen="(\d+)/(\d+)"', browse(tmp_path / "counting.html", tmp_path)[0])
    assert counted and counted.group(1) == counted.group(2) == str(open_page.count("<img src="))


def test_large_pictures_leave_the_page_small() -> None:
    """Twelve values of six attacks in the largest pictures that are kept, all noise: what no PNG makes smaller."""
    noise = SeededStream(0).uniform(3, 96, 96).float()
    shown = {name: Thumbnails(0, noise, noise, noise) for name in "abcdef"}
    values = tuple(2.0**-place for place in range(12))
    points = tuple(SweepPoint(value, 1.0, (), (), shown, shown) for value in values)
    swept = Swept(Sweep("tau", values), 0, 2, 2, points)
    strips = section(sweep_json(swept), to_pictures(swept))
    total = sum(len(image) for strip in strips.followed + strips.best for _, row in strip.rows for image in row)
    assert 1e6 < total < 2.6e6


def test_a_plot_is_on_a_logarithmic_axis_and_its_curves_differ_without_colour() -> None:
    curves = [Curve(f"<{i}>", [(0.01, 0.0), (0.1, 0.5), (1.0, 1.0)], i) for i in range(9)]
    drawn = plot(
        "A & B", "τ", [1, 0.1, 0.01], [*curves, Curve("level", [(0.01, 0.2), (1, 0.2)], None, "8 5")], shares=True
    )
    assert drawn.count('points="76.0,246.0 231.0,143.0 386.0,40.0"') == 9  # evenly spaced
    assert "A &amp; B" in drawn and "&lt;0&gt;" in drawn and "<0>" not in drawn
    assert re.findall(r'text-anchor="end">([^<]*)<', drawn) == ["0 %", "20 %", "40 %", "60 %", "80 %", "100 %"]
    looks = re.findall(r'<polyline [^>]*?(?: stroke-dasharray="([^"]*)")?/>(<\w+ (?:d|cx)="[^"]*")?', drawn)
    assert [dashes for dashes, _ in looks] == [*[""] * 8, "9 3", "8 5"]
    assert len({mark for _, mark in looks[:8]}) == 8
    assert "&lt;0&gt; from 0 % at 0.01 to 100 % at 1" in drawn


def test_labels_below_a_plot_do_not_overlap() -> None:
    values = [1.0, 0.9, 0.5, 0.1, 0.01, 0.001]
    drawn = plot("t", "τ", values, [Curve("a", [(value, value) for value in values], 0)], shares=False)
    places = [(float(x), text) for x, text in re.findall(r'<text x="([\d.]+)" y="265" [^>]*>([^<]*)<', drawn)]
    assert [text for _, text in places] == ["0.001", "0.01", "0.1", "0.5"]
    assert drawn.count('y2="250"') == 6  # a mark at every value, also where there is no room for its label


@pytest.mark.parametrize("values", [[0.0], [5.0, 5.0], [-1e-4, 3e-4], [0.07, 0.031], [-999.0, 40.0]])
def test_ticks_are_round_and_hold_all_values(values: list[float]) -> None:
    found = ticks(values)
    assert found[0] <= min(values) and found[-1] >= max(values) and 2 <= len(found) <= 8
    assert all(later > earlier for earlier, later in pairwise(found))


def test_the_ceiling_is_the_least_of_those_who_have_no_records() -> None:
    def figure(attack: str, ceiling: float, known: float | None = None) -> dict[str, object]:
        return {"attack": attack, "metric": "mse", "ceiling": ceiling, "of": "record", "known": known}

    figures = [figure("lmmse", 0.1), figure("lmmse-row", 0.2), figure("known-90", 0.01, 0.9)]
    assert _level("mse", [{"value": 0.5, "figures": figures}], "ceiling", min) == [(0.5, 0.1)]


def test_a_chart_is_a_file_of_its_own_and_its_titles_are_escaped() -> None:
    drawn = chart("a < b", {"<x>": [(2.0, 0.5), (1.0, 0.25)]}, {"level & more": 0.4})
    assert drawn.startswith('<svg xmlns="http://www.w3.org/2000/svg"')
    inside = [element.tag.rpartition("}")[2] for element in ElementTree.fromstring(drawn)]  # noqa: S314
    assert inside[:2] == ["title", "rect"]
    assert "&lt;x&gt; from 25 % at 1 to 50 % at 2" in drawn and "level &amp; more" in drawn
