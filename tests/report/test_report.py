from __future__ import annotations

import html
import json
import re
import shutil
import stat
from importlib.resources import files
from io import BytesIO
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from mixveil.core.errors import DataFormatError, OutputError, OutputExistsError
from mixveil.core.randomness import SeededStream
from mixveil.core.types import Mu, Tau, View
from mixveil.core.wording.sentences import WORDS
from mixveil.report.audit_page import render, to_json, write_audit
from mixveil.report.pages import said as sentence_of
from mixveil.report.pictures import png, roc
from tests.audited import OTHERS, PRIVATE, PUBLIC, audited, made
from tests.browser import COUNT_PICTURES, HOW, browse
from tests.notes import shows


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from mixveil.audit.auditing import audit

    release, trace = made(Tau(1.0, "energy"))
    view = View((release,), (trace,), PUBLIC)
    found = audit(view, PRIVATE, others=OTHERS.take(torch.arange(300)).x, stream=SeededStream(0))
    out = tmp_path_factory.mktemp("report") / "a"
    write_audit(out, found, HOW)
    return out


def whole(folder: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((folder / "audit.json").read_text())
    return loaded


def test_the_audit_fits_its_schema(folder: Path) -> None:
    schema = json.loads((files("mixveil.report") / "audit.schema.json").read_text())
    jsonschema.validate(whole(folder), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**whole(folder), "more": 1}, schema)
    for field in ("verdict", "warnings"):  # no English: codes and figures
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**whole(folder), field: ["The labels are not protected."]}, schema)
    told = [*whole(folder)["verdict"], *whole(folder)["warnings"]]
    assert all(note["code"] in WORDS for note in told)


def test_what_is_said_of_an_audit_has_words_for_every_code(folder: Path) -> None:
    audit = whole(folder)
    assert {f"metric-{figure['metric']}" for figure in audit["figures"]} <= WORDS.keys()
    assert {item["threat"] for item in audit["attacks"]} <= WORDS.keys()
    assert all(item["why"] is None or item["why"]["code"] in WORDS for item in audit["attacks"])


def test_every_word_and_figure_is_on_the_page(folder: Path) -> None:
    page = html.unescape((folder / "report.html").read_text())
    audit = whole(folder)
    for told in [*audit["verdict"], *audit["warnings"], *(item["threat"] for item in audit["attacks"])]:
        assert sentence_of(told) in page
    for row in audit["figures"]:
        assert f"{row['mean']:.4g}" in page
    assert "is not for sending" in page


def test_the_answer_comes_first_and_pictures_before_tables(folder: Path) -> None:
    page, audit = html.unescape((folder / "report.html").read_text()), whole(folder)
    assert f'<p class="answer">{sentence_of(audit["verdict"][0])}</p>' in page
    places = [
        page.index(f'id="{name}"') for name in ("verdict", "warnings", "pictures", "leaves", "promises", "figures")
    ]
    assert places == sorted(places)
    short, long = page.split('id="figures"')[1].split('id="attacks"')[0].split("<details>")
    assert 0 < short.count("<tr>") < long.count("<tr>") == len(audit["figures"]) + 1


def test_what_was_not_measured_is_no_loud_warning(tmp_path: Path) -> None:
    found = audited(made(Mu(1.0)), names=["prior"])
    assert "truth-not-shown" in {told.code for told in found.warnings}
    write_audit(tmp_path / "a", found, HOW)
    page = html.unescape((tmp_path / "a" / "report.html").read_text(encoding="utf-8"))
    loud, quiet = (re.findall(rf'<p class="{name}">([^<]+)</p>', page) for name in ("warning", "remark"))
    assert len(quiet) == 1 and shows(quiet[0], "truth-not-shown") and len(loud) == len(found.warnings) - 1


def test_the_page_loads_nothing_and_escapes_what_it_is_given(folder: Path) -> None:
    page = (folder / "report.html").read_text()
    assert "default-src 'none'" in page
    assert not re.search(r"(src|href)=\"(?!data:)", page) and "http://" not in page and "https://" not in page
    assert "<b>r</b>" not in page and "&lt;b&gt;r&lt;/b&gt;" in page


def test_only_the_owner_can_open_it(folder: Path) -> None:
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_pictures_are_the_originals_most_revealing_first(folder: Path) -> None:
    pictures = load_file(folder / "pictures.safetensors")
    index = pictures["index"]
    assert torch.allclose(pictures["original"], PRIVATE.take(index).x)
    errors = (pictures["lmmse"] - pictures["original"]).square().flatten(1).mean(1)
    assert len(index) == 8 and float(errors.mean()) < 0.03


def test_originals_encodings_and_guesses_stand_side_by_side(folder: Path) -> None:
    """A column a record: its original, its row as it was released, and what every attack recovered of it."""
    page, pictures = (folder / "report.html").read_text(), load_file(folder / "pictures.safetensors")
    table = page.split('id="pictures"')[1].split("</table>")[0]
    lines = re.findall(r'<th scope="row">([^<]+)</th>(.*)</tr>', table)
    assert [name for name, _ in lines[:2]] == ["original", "released"] and {"lmmse", "average"} <= dict(lines).keys()
    assert all(line.count("<img") == len(pictures["index"]) for _, line in lines)
    rows = made(Tau(1.0, "energy"))[0].payload.take(pictures["index"]).x
    low, high = (end((1, 2, 3), keepdim=True) for end in (rows.amin, rows.amax))
    assert torch.allclose(pictures["released"], (rows - low) / (high - low))


@pytest.mark.parametrize(("names", "first"), [(["labels"], True), (["lmmse-row"], False)])
def test_records_are_called_the_most_revealing_only_where_pictures_were_made(
    tmp_path: Path, names: list[str], first: bool
) -> None:
    write_audit(tmp_path / "a", audited(made(Mu(1.0)), names=names), HOW)
    page = (tmp_path / "a" / "report.html").read_text(encoding="utf-8")
    assert ("The first 8 records; no attack made pictures." in page) is first
    assert ("the most revealing first" in page) is ("the best attack got most" in page) is not first


def test_a_page_can_be_made_anew(folder: Path) -> None:
    before = (folder / "report.html").read_text()
    (folder / "report.html").unlink()
    assert render(folder).read_text() == before


def test_what_is_no_audit_is_refused(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(DataFormatError):
        render(tmp_path)
    shutil.copytree(folder, tmp_path / "a")
    (tmp_path / "a" / "audit.json").write_text(json.dumps({**whole(folder), "version": 1}))
    with pytest.raises(DataFormatError, match="version"):
        render(tmp_path / "a")


def test_what_others_put_in_an_audits_folder_is_a_typed_error(tmp_path: Path, folder: Path) -> None:
    out = tmp_path / "a"
    shutil.copytree(folder, out)
    (out / "report.html.partial").mkdir()
    assert render(out).read_text() == (folder / "report.html").read_text()
    (out / "report.html").unlink()
    (out / "report.html").mkdir()
    with pytest.raises(OutputError, match="could not be written"):
        render(out)
    text = (folder / "audit.json").read_text()
    for bad in (
        "[" * 100_000,
        text.replace('"figures": [', f'"figures": [{"[" * 900}{"]" * 900},', 1),
        '{"seed": ' + "9" * 4400,
    ):
        (out / "audit.json").write_text(bad)
        with pytest.raises(DataFormatError) as caught:
            render(out)
        assert str(caught.value).isprintable() and len(str(caught.value)) < 2000


def test_an_audit_larger_than_any_is_not_parsed(tmp_path: Path, folder: Path) -> None:
    shutil.copytree(folder, tmp_path / "a")
    assert (folder / "audit.json").stat().st_size < 1 << 20
    with (tmp_path / "a" / "audit.json").open("r+b") as file:
        file.truncate((16 << 20) + 1)
    with pytest.raises(DataFormatError, match="at most 16,777,216"):
        render(tmp_path / "a")


def test_an_existing_folder_is_refused(folder: Path) -> None:
    from mixveil.core.files import check_new

    with pytest.raises(OutputExistsError):
        check_new(folder)


@pytest.mark.parametrize("channels", [1, 3])
def test_png_is_read_back_as_it_was(channels: int) -> None:
    import base64

    image = SeededStream(0).uniform(channels, 5, 7)
    data = base64.b64decode(png(image).removeprefix("data:image/png;base64,"))
    read = torch.tensor(list(Image.open(BytesIO(data)).tobytes())).view(5, 7, channels).permute(2, 0, 1)
    assert torch.equal(read, (image * 255).round().long())


def test_a_roc_is_on_logarithmic_axes() -> None:
    axes = roc({"points": [[0.0, 0.5], [0.001, 0.001], [0.1, 0.0], [1.0, 1.0]], "bound": [[0.001, 0.1], [1, 1]]})
    assert axes.found == "44.0,256.0 225.3,256.0 316.0,44.0"
    assert axes.bound == "44.0,114.7 316.0,44.0"
    assert axes.across == [(316.0, "1"), (225.3, "0.1"), (134.7, "0.01"), (44.0, "0.001")]
    assert roc({"points": [[0.0, 0.0], [1.0, 1.0]]}).across[-1] == (44.0, "0.01")


def test_the_page_shows_both_curves_and_the_bound_where_one_is_stated(folder: Path) -> None:
    curves = whole(folder)["curves"]
    assert set(curves) == {"linkage", "membership"} and "bound" not in curves["membership"]
    for curve in curves.values():
        points = curve["points"]
        assert points == sorted(points) and points[-1] == [1.0, 1.0]
    assert min(fpr for fpr, _ in curves["linkage"]["points"] if fpr > 0) < 1e-4  # of 249,500 wrong rows
    assert shows((folder / "report.html").read_text(), "roc-rows")
    certified = to_json(audited(made(Mu(1.0)), names=["membership"]), HOW)["curves"]["membership"]["bound"]
    assert dict(map(tuple, certified))[1.0] == 1.0
    assert [round(tpr, 3) for fpr, tpr in certified if fpr == pytest.approx(0.01)] == [0.092]


def test_the_page_in_a_real_browser(folder: Path, tmp_path: Path) -> None:
    """No console error, no request leaves the page, pictures are visible, verdict and warnings are there as text."""
    page = (folder / "report.html").read_text()
    open_page = re.sub(r"<meta http-equiv[^>]*>", "", page)  # the page allows no script: a copy counts its pictures
    (tmp_path / "counting.html").write_text(open_page.replace("</body>", COUNT_PICTURES + "</body>"))
    (tmp_path / "leaking.html").write_text(open_page.replace("</body>", '<img src="http://127.0.0.1:9/x"></body>'))
    shown, said, asked = browse(folder / "report.html", tmp_path)
    text = html.unescape(re.sub(r"<[^>]+>", "", shown))
    for told in [*whole(folder)["verdict"], *whole(folder)["warnings"]]:
        assert sentence_of(told) in text
    assert "CONSOLE" not in said and asked == []
    counted = re.search(r'data-seen="(\d+)/(\d+)"', browse(tmp_path / "counting.html", tmp_path)[0])
    assert counted and counted.group(1) == counted.group(2) and int(counted.group(1)) >= 32
    assert browse(tmp_path / "leaking.html", tmp_path)[2] == ["http://127.0.0.1:9/x"]  # the check can fail
