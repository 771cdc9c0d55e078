"""Releases that mix in public images: encoded, verified and audited as whole jobs."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import mixveil
from mixveil.audit.covers import with_covers
from mixveil.audit.sample import sample, unit_sample
from mixveil.core.errors import ArgumentError, PrivateFactError, SimplexError, WrongTruthError
from mixveil.core.randomness import SeededStream
from mixveil.core.types import View
from mixveil.core.wording.notes import note
from mixveil.data.covers import Covered
from mixveil.data.images import Images, from_tensors
from mixveil.data.row_views import Subset
from mixveil.releases.reading import read_release
from mixveil.releases.traces import load_trace
from tests.notes import codes


def pictures(n: int, seed: int, side: int = 8) -> Images:
    coarse = SeededStream(seed).uniform(n, 1, side // 2, side // 2).float()
    x = torch.nn.functional.interpolate(coarse, (side, side), mode="bilinear")
    return from_tensors(x, torch.arange(n) % 4, classes=4)


MINE, PUBLIC, OTHERS = pictures(40, 1), pictures(30, 2, side=16), pictures(60, 3)
CUT = {"public": PUBLIC, "patches": 25, "keypoints": 0}


def encode(out: str, encoder: str = "instahide", **more: object) -> Path:
    given = {"images_per_row": 4, "label_epsilon": None, **CUT, **more}
    return mixveil.encode(MINE, out, encoder=encoder, **given).folder  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("more", [{}, {"label_epsilon": 2.0}, {"screen": "snr:60"}, {"augmented": True}])
@pytest.mark.parametrize("encoder", ["instahide", "mixup"])
def test_the_truth_is_the_records_and_the_patches(encoder: str, more: dict[str, object]) -> None:
    if encoder == "mixup" and more.get("augmented"):
        return
    if encoder == "instahide" and more.get("screen"):  # it would compare masked rows with records
        with pytest.raises(ArgumentError, match="random signs hide rows"):
            encode("r", encoder, **more)
        return
    release = encode("r", encoder, **more)
    assert mixveil.verify(release) is not None
    found = mixveil.audit([release], MINE, covers=PUBLIC, public=OTHERS, attacks=["prior"]).audit
    assert found.view.covers is not None and len(found.view.covers) == 25
    with pytest.raises(ArgumentError, match="covers"):
        mixveil.audit([release], MINE, attacks=["prior"])
    with pytest.raises(WrongTruthError, match="or with these public images"):
        mixveil.audit([release], MINE, covers=pictures(30, 9, side=16), attacks=["prior"])
    with pytest.raises(WrongTruthError, match="patches of others"):
        mixveil.audit([release], MINE, covers=pictures(2, 2, side=16), attacks=["prior"])


def test_several_releases_have_their_patches_in_one_list() -> None:
    folders = [encode("a"), encode("b", "mixup"), encode("c", images_per_row=6)]
    opened = tuple(read_release(folder) for folder in folders)
    traces = tuple(load_trace(release.id, 40) for release in opened)
    view, mixed = with_covers(View(opened, traces), MINE, PUBLIC)  # type: ignore[arg-type]
    assert view.covers is not None and len(view.covers) == 75 and isinstance(mixed, Covered)
    for release, trace in zip(view.releases, view.traces or (), strict=True):
        rows = torch.arange(40)
        mean = release.encoder.observation(trace).mean(mixed, rows).x
        assert torch.allclose(mean, release.payload.take(rows).x.flatten(1).double(), atol=1e-6)
    part = sample(view, mixed, 15, SeededStream(0))
    for release, trace in zip(part.view.releases, part.view.traces or (), strict=True):
        mean = release.encoder.observation(trace).mean(part.records, torch.arange(15)).x
        assert torch.allclose(mean, release.payload.take(torch.arange(15)).x.flatten(1).double(), atol=1e-6)
    assert mixveil.audit(folders, MINE, covers=PUBLIC, attacks=["prior"]).audit.view.covers is not None


def test_covers_of_a_release_without_any_are_refused() -> None:
    mixveil.encode(MINE, "r", encoder="instahide")
    with pytest.raises(ArgumentError, match="without public images"):
        mixveil.audit(["r"], MINE, covers=PUBLIC, attacks=["prior"])


def test_public_data_may_have_other_classes() -> None:
    """Attacks that imitate a release mix public rows with the covers, whatever classes they have."""
    more = from_tensors(pictures(200, 3).take(torch.arange(200)).x, torch.arange(200) % 9, classes=9)
    for encoder in ("instahide", "mixup"):
        release = encode(encoder, encoder)
        found = mixveil.audit([release], MINE, covers=PUBLIC, public=more, attacks=["lowpass-row"])
        assert found.audit.attacks[0].status == ("ran" if encoder == "mixup" else "skipped")
        assert "no-noise" in codes(found.audit.verdict)


def test_a_sweep_mixes_in_the_same_patches() -> None:
    swept = mixveil.audit([encode("r")], MINE, covers=PUBLIC, attacks=["prior"], sweep="releases=1,3").swept
    assert swept is not None and [point.value for point in swept.points] == [3, 1]


def test_what_a_release_says_of_itself() -> None:
    told = mixveil.encode(MINE, "r", encoder="instahide", images_per_row=6, c1=0.5, c2=0.4, **CUT)  # type: ignore[arg-type]
    manifest = told.manifest
    assert not manifest.guarantees and {"no-noise", "instahide-broken"} <= set(manifest.not_promised)
    assert {"instahide-few-covers", "instahide-flat-covers"} <= set(codes(told.warnings))
    sums = read_release(told.folder).payload.take(torch.arange(40)).y.sum(1)
    assert float(sums.min()) >= 0.4 - 1e-6 and float(sums.max()) < 1
    release = read_release(told.folder)
    x, y = release.payload.take(torch.arange(40))
    with pytest.raises(SimplexError, match=r"sum to 0\.4 to 1"):  # less is not of this encoder
        release.envelope.settings.checked("here", {"x": x, "y": y * 0.1}, release.envelope.files[0], release.envelope)


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        ({"encoder": "instahide", "public": MINE}, ArgumentError, "private data"),
        ({"encoder": "instahide", "patches": 5}, ArgumentError, "patches = 5"),
        ({"encoder": "singular", "mu": 1.0, "keypoints": 5}, ArgumentError, "keypoints = 5"),
        ({"encoder": "identity", "public": PUBLIC}, ArgumentError, "public"),
        ({"encoder": "mixup", "c1": 0.5}, ArgumentError, "c1"),
        ({"encoder": "instahide", "images_per_row": 2, **CUT}, ArgumentError, "images_per_row must be 3 or more"),
        ({"encoder": "mixup", **CUT}, ArgumentError, "images_per_row must be 3 or more"),
        ({"encoder": "instahide", "c2": 0.5}, ArgumentError, "c2 = 0.5 is for rows that public"),
        ({"encoder": "instahide", "clip": 1.0}, ArgumentError, "clip"),
        ({"encoder": "instahide", "mu": 1.0}, ArgumentError, "promises nothing"),
    ],
)
def test_what_does_not_go_together_is_refused(given: dict[str, object], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        mixveil.encode(MINE, "r", **given)  # type: ignore[arg-type]
    assert not Path("r").exists() and not mixveil.Ledger().entries()


def test_public_images_that_are_private_too_are_refused() -> None:
    shared = Subset(MINE, torch.arange(3)).take(torch.arange(3)).x
    both = from_tensors(torch.cat([shared, pictures(5, 4).take(torch.arange(5)).x]), torch.zeros(8, dtype=torch.int64))
    with pytest.raises(PrivateFactError, match="3 of these 40"):
        mixveil.encode(MINE, "r", encoder="instahide", public=both, keypoints=0, patches=5)


def test_units_and_patches_are_sampled_together() -> None:
    """A unit's rows in one release, and rows with patches in another, of more rows than are attacked."""
    n = 60
    whose = torch.arange(n) // 2
    x, labels = pictures(n, 5).take(torch.arange(n)).x, torch.arange(n) % 4
    units = [f"person {number}" for number in whose.tolist()]
    persons = from_tensors(x, labels, classes=4, units=units)
    one = mixveil.encode(persons, "one", mu=2.0).folder
    two = mixveil.encode(from_tensors(x, labels, classes=4), "two", encoder="mixup", images_per_row=3, **CUT).folder  # type: ignore[arg-type]
    opened = tuple(read_release(folder) for folder in (one, two))
    traces = tuple(load_trace(release.id, n) for release in opened)
    view, mixed = with_covers(View(opened, traces), persons, PUBLIC)  # type: ignore[arg-type]
    part, left = unit_sample(view, mixed, whose, 30, SeededStream(0))
    assert len(part.numbers) <= 30 and int((left >= 0).sum()) > 0
    rows = torch.arange(len(part.numbers))
    for release, trace in zip(part.view.releases[:1], (part.view.traces or ())[:1], strict=True):
        assert release.encoder.covers == 25
        mean = release.encoder.observation(trace).mean(part.records, rows).x
        assert torch.allclose(mean, release.payload.take(rows).x.flatten(1).double(), atol=1e-6)


def test_covers_are_found_whatever_release_comes_first() -> None:
    folders = [mixveil.encode(MINE, "inside", encoder="mixup").folder, encode("cross", "mixup", images_per_row=3)]
    for order in (folders, folders[::-1]):
        found = mixveil.audit(order, MINE, covers=PUBLIC, attacks=["public-search", "prior"]).audit
        assert "cover-found" in {figure.metric for figure in found.figures}
        assert not [told for told in found.verdict if told.figures.get("what") == note("images")]  # it left pictures
