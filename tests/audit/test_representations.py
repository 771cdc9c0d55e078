"""The audit of representations: what it refuses, measures and says, and its pages."""

from __future__ import annotations

import html
import json
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, ClassVar

import jsonschema
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import mixveil
from mixveil.attacks.catalogue import ATTACKS
from mixveil.attacks.shared.base import BaseAttack
from mixveil.attacks.shared.training import NO_CACHE, TrainingCache
from mixveil.audit import auditing
from mixveil.audit.found import Audit
from mixveil.audit.representations import audit, check_truth
from mixveil.audit.self_test import bare_half
from mixveil.audit.thumbnails import mosaic
from mixveil.core.errors import ArgumentError, MismatchError, WrongTruthError
from mixveil.core.randomness import SeededStream, Stream
from mixveil.core.types import AttackKind, Batch, Guess, Release, View
from mixveil.core.wording.sentences import WORDS
from mixveil.data.images import from_tensors
from mixveil.data.similarity import mse
from mixveil.features.split.half import Half, halves, write_half
from mixveil.releases.kinds.records import Records
from mixveil.releases.representations import in_memory, split_encode
from mixveil.report.audit_page import render, to_json, write_audit, write_report
from mixveil.report.beside_page import write_beside
from tests.audited import digits
from tests.browser import HOW
from tests.made import images
from tests.notes import codes, holds, shows

DATA, PUBLIC = digits(0, 40), digits(500, 620)
NEEDS = frozenset({"client"})


def half(*layers: nn.Module, seed: int = 1) -> Half:
    """A client half of these layers with seeded weights, for digits."""
    net, draws = nn.Sequential(OrderedDict((f"l{i}", layer) for i, layer in enumerate(layers))), SeededStream(seed)
    for weight in net.parameters():
        weight.data = 0.4 * draws.normal(*weight.shape).float()
    with torch.no_grad():
        values = net.eval()(torch.zeros(1, 1, 8, 8)).numel()
    return halves(net, nn.Sequential(nn.Flatten(), nn.Linear(values, 10)), (1, 8, 8), DATA.classes)[0]


BARE = half(nn.Flatten())
MAPS = half(nn.Conv2d(1, 5, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))


class ReadOff(BaseAttack):
    """Takes representations for images, times one factor: right where the half hides nothing."""

    name: ClassVar[str] = "read-off"
    kind: ClassVar[AttackKind] = "reconstruction"
    payload: ClassVar[str] = "representations"
    linear: ClassVar[bool] = False
    needs: ClassVar[frozenset[str]] = NEEDS

    def __call__(self, view: View, *, stream: Stream) -> Guess:
        z = view.releases[0].payload.take(torch.arange(len(view.releases[0].payload))).x
        assert view.client is not None
        white = view.client.on(torch.device("cpu"))(torch.ones(1, *view.client.shape))
        wide = torch.zeros(len(z), 64)
        wide[:, : min(64, z.shape[1])] = (z / white.abs().mean())[:, :64]
        return Guess(images=wide.view(-1, *view.client.shape).double())


class Grey(ReadOff):
    """Looks at nothing."""

    name: ClassVar[str] = "grey"

    def __call__(self, view: View, *, stream: Stream) -> Guess:
        images = super().__call__(view, stream=stream).images
        assert images is not None
        return Guess(images=torch.full_like(images, 0.5))


@dataclass(frozen=True)
class Taught(ReadOff):
    """Would train on public images; keeps how many steps it was given."""

    name: ClassVar[str] = "taught"
    needs: ClassVar[frozenset[str]] = frozenset({"client", "public"})
    trains: ClassVar[bool] = True
    given: ClassVar[list[int | None]] = []
    cache: TrainingCache = NO_CACHE

    def __call__(self, view: View, *, stream: Stream) -> Guess:
        assert view.public is not None
        self.given.append(self.cache.max_steps)
        return super().__call__(view, stream=stream)


@pytest.fixture(autouse=True)
def toys(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The toys alone, beside the attacks on records."""
    with ATTACKS.including(ReadOff, Grey, Taught):
        known = {name: kind for name, kind in ATTACKS.all().items() if not name.startswith("inversion")}
        monkeypatch.setattr("mixveil.audit.auditing.known_attacks", lambda: known)
        Taught.given.clear()
        yield


def audited(client: Half = BARE, names: Sequence[str] | None = ("read-off",), **more: Any) -> Audit:
    release = in_memory(DATA, client, labelled=bool(more.pop("labelled", False)))
    return audit([release], DATA, client=client, names=names, stream=SeededStream(0), **more)


def statuses(found: Audit) -> Mapping[str, str]:
    return {run.attack: run.status for run in found.attacks}


# What is measured


def test_what_hides_nothing_is_recovered_and_said_to_be() -> None:
    found = audited(public=PUBLIC)
    truth = DATA.take(torch.arange(40)).x
    figures = {figure.metric: figure for figure in found.figures}
    assert figures.keys() == {"mse", "snr-db", "psnr-db", "ssim", "cosine"}
    mean = PUBLIC.take(torch.arange(120)).x.mean(0).expand_as(truth)
    assert figures["mse"].mean == 0 and figures["ssim"].mean == pytest.approx(1)
    assert figures["mse"].know_nothing == pytest.approx(float(mse(truth, mean).mean()))
    assert all(figure.ceiling is None and not figure.beaten for figure in found.figures)
    assert (
        not found.promises
        and not found.promised
        and found.spread == pytest.approx(float(truth.var(0, correction=0).mean()), rel=1e-5)
    )
    assert holds(found.verdict, "verdict-images", attack="read-off") and "amount-a-great-deal" in codes(found.verdict)
    assert holds(found.warnings, "images-reconstructed", attack="read-off")


def test_without_public_data_knowing_nothing_is_the_middle_of_the_range() -> None:
    truth = DATA.take(torch.arange(40)).x
    figure = next(figure for figure in audited(MAPS).figures if figure.metric == "mse")
    assert figure.know_nothing == pytest.approx(float((truth - 0.5).square().mean()))
    found = audited(MAPS)
    worst = (found.images["read-off"] / 255 - truth).square().flatten(1).mean(1)  # shown in 256 steps
    assert torch.allclose(found.errors["read-off"], worst.double(), atol=1e-6)
    assert (figure.mean, figure.worst) == pytest.approx((float(worst.mean()), float(worst.min())), rel=0.02)


def test_of_many_rows_a_part_is_attacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(auditing.PROFILES, "quick", auditing.Profile(2000, 1 << 23, (20, 60), inverted=12))
    found = audited()
    assert len(found.numbers) == 12 and found.of == 40 and float(found.best("mse")[1]) == 1
    assert torch.equal(found.pixels, DATA.take(found.numbers).x)
    assert holds(found.verdict, "verdict-part-inverted", attacked=12, rows=40)
    rows = found.view.releases[0].payload.take(torch.arange(12)).x
    assert torch.equal(rows, in_memory(DATA, BARE).payload.take(found.numbers).x)


def test_an_attack_that_fails_where_nothing_is_hidden_is_broken() -> None:
    found = audited(MAPS, ["grey", "read-off"])
    assert statuses(found) == {"grey": "broken", "read-off": "ran"}
    assert holds(found.warnings, "attack-broken", attack="grey")
    assert {"bare-representations-left"} <= codes(found.warnings) and "grey" not in found.images
    assert not [figure for figure in found.figures if figure.attack == "grey"]


class Small(ReadOff):
    """Is right where representations are as large as pixels, and not where they are larger."""

    name: ClassVar[str] = "small"

    def __call__(self, view: View, *, stream: Stream) -> Guess:
        images = super().__call__(view, stream=stream).images
        assert images is not None
        z = view.releases[0].payload.take(torch.arange(len(images))).x
        return Guess(images=images if float(z.max()) < 10 else torch.zeros_like(images))


def times(factor: float) -> Half:
    made = half(nn.Flatten(), nn.Linear(64, 64, bias=False))
    layer = made.net[1]
    assert isinstance(layer, nn.Linear)
    layer.weight.data = factor * torch.eye(64)
    return made


@pytest.mark.parametrize("factor", [1e-30, 1e-6, 1.0, 1e6])
def test_the_half_that_hides_nothing_is_as_large_as_the_attacked_one(factor: float) -> None:
    sent, bare = in_memory(DATA, times(factor)).payload.take(torch.arange(40)).x, bare_half(DATA, size_of(factor))
    pixels = in_memory(DATA, bare).payload.take(torch.arange(40)).x
    assert torch.allclose(pixels / factor, sent / factor, rtol=1e-5)
    vectors = from_tensors(DATA.take(torch.arange(40)).x.flatten(1), DATA.labels, classes=10)
    flat = in_memory(vectors, bare_half(vectors, size_of(factor))).payload.take(torch.arange(40)).x
    assert torch.allclose(flat / factor, sent / factor, rtol=1e-5)


def size_of(factor: float) -> float:
    return factor * float(DATA.take(torch.arange(40)).x.double().square().mean().sqrt())


def test_an_attack_that_fails_at_the_size_of_what_was_sent_is_broken() -> None:
    with ATTACKS.including(Small):
        known = {"small": Small}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("mixveil.audit.auditing.known_attacks", lambda: known)
            assert statuses(audited(times(1.0), ["small"])) == {"small": "ran"}
            assert statuses(audited(times(1e4), ["small"])) == {"small": "broken"}


def test_attacks_that_train_run_where_they_are_asked_for_and_are_tried_briefly() -> None:
    cache = TrainingCache(max_steps=777)
    quick = audited(names=None, public=PUBLIC, cache=cache)
    assert statuses(quick) == {"grey": "broken", "read-off": "ran", "taught": "skipped"} and not Taught.given
    assert "attack-trains" in codes(run.why for run in quick.attacks)
    assert holds(quick.verdict, "verdict-untrained", attacks="taught")
    named = audited(names=["taught"], public=PUBLIC, cache=cache)
    assert statuses(named) == {"taught": "ran"} and Taught.given == [150, 777]
    assert statuses(audited(names=None, public=PUBLIC, profile="full"))["taught"] == "ran"


# What is said


def test_the_verdict_begins_with_what_is_not_promised_and_says_what_labels_show() -> None:
    for labelled, code in ((False, "verdict-labels-not-sent"), (True, "verdict-labels-shown")):
        found = audited(labelled=labelled)
        assert found.verdict[0].code == "hardness-not-promised" and code in codes(found.verdict)
        assert ("audit-labels-shown" in codes(found.warnings)) is labelled
        assert "no-guarantee-stated" in codes(found.warnings)
        assert holds(found.verdict, "verdict-warnings-all", count=len(found.warnings))
        assert not codes(found.verdict) & {"verdict-noise-unmeasured", "verdict-unasked", "recognition", "membership"}
        assert codes([*found.verdict, *found.warnings]) <= WORDS.keys()


@pytest.mark.parametrize("client", [BARE, MAPS])
def test_without_attacks_that_learn_it_is_said_that_they_were_not_tried(client: Half) -> None:
    assert holds(audited(client).verdict, "verdict-inversion-only", attacks="read-off")
    assert "verdict-inversion-public" not in codes(audited(client).verdict)  # none was asked for
    told = audited(client, names=None).verdict
    assert {"verdict-inversion-only", "verdict-inversion-public"} <= codes(told)
    assert holds(told, "attack-needs", fields="public")
    assert "verdict-inversion-public" not in codes(audited(client, names=None, public=PUBLIC).verdict)


def test_little_is_never_called_safe() -> None:
    found = audited(MAPS, ["taught"], public=PUBLIC)
    assert found.best("mse")[1] < 0.2 and "verdict-inversion-little" in codes(found.verdict)
    assert "verdict-inversion-little" not in codes(audited(BARE, ["taught"], public=PUBLIC).verdict)
    assert {"verdict-rows-recomputed"} <= codes(found.verdict)


def test_where_no_attack_ran_that_is_said() -> None:
    found = audited(MAPS, ["grey"])
    assert holds(found.verdict, "verdict-untested", attacks="grey") and not found.figures


def test_private_images_among_public_ones_are_said() -> None:
    assert holds(audited(public=digits(30, 90)).warnings, "public-among-private", images=10)


# What is refused


def changed(release: Release, x: Tensor) -> Release:
    y = release.payload.take(torch.arange(len(x))).y
    return replace(release, payload=Records((Batch(x, y),), None))


def test_other_data_are_refused_and_another_device_s_rounding_is_not() -> None:
    release = in_memory(DATA, MAPS)
    x = release.payload.take(torch.arange(40)).x
    length = float(x.double().square().sum(1).mean().sqrt())
    noise = torch.nn.functional.normalize(SeededStream(2).normal(*x.shape), dim=1).float()
    assert check_truth([changed(release, x + 1e-3 * length * noise)], DATA, MAPS) == []
    one = x.clone()
    one[17] += 1e-2 * length * noise[17]
    with pytest.raises(WrongTruthError, match="1 of 40 rows"):
        check_truth([changed(release, one)], DATA, MAPS)
    with pytest.raises(WrongTruthError, match="not what the client half"):
        check_truth([release], digits(40, 80), MAPS)
    with pytest.raises(WrongTruthError, match="40 images"):
        check_truth([release], digits(0, 41), MAPS)
    with pytest.raises(ArgumentError, match="twice"):
        check_truth([release, release], DATA, MAPS)


def test_large_values_do_not_hide_that_small_ones_are_of_other_images() -> None:
    """Mirrored images have the same mean: beside 10⁷ times that, pixels have no length."""
    layer = nn.Conv2d(1, 2, 15, padding=7)
    client = half(layer)
    (copied,) = client.net
    assert isinstance(copied, nn.Conv2d) and copied.bias is not None
    copied.weight.data.zero_()
    copied.bias.data = torch.tensor([0.0, 1e7])
    copied.weight.data[0, 0, 7, 7], copied.weight.data[1] = 1.0, 1e7 / 64
    release = in_memory(DATA, client)
    assert check_truth([release], DATA, client) == []
    mirrored = replace(DATA, read=lambda index: DATA.read(index).flip(3))
    with pytest.raises(WrongTruthError, match="40 of 40 rows"):
        check_truth([release], mirrored, client)
    x = release.payload.take(torch.arange(40)).x
    assert (
        check_truth([changed(release, x * (1 + 1e-3 * SeededStream(2).normal(*x.shape).float()))], DATA, client) == []
    )
    with pytest.raises(WrongTruthError, match="40 of 40 rows"):
        check_truth([changed(release, torch.full_like(x, torch.nan))], DATA, client)


def test_labels_that_are_not_those_of_the_data_are_refused() -> None:
    others = replace(DATA, labels=DATA.labels.roll(1))
    with pytest.raises(WrongTruthError, match="labels"):
        check_truth([in_memory(DATA, MAPS, labelled=True)], others, MAPS)
    assert check_truth([in_memory(DATA, MAPS)], others, MAPS) == []


def test_a_half_that_makes_the_same_of_all_images_cannot_tell_the_data() -> None:
    flat = half(nn.Flatten(), nn.Linear(64, 4))
    layer = flat.net[1]
    assert isinstance(layer, nn.Linear)
    layer.weight.data *= 1e-6
    told = audit([in_memory(DATA, flat)], digits(40, 80), client=flat, names=["read-off"], stream=SeededStream(0))
    assert "representations-alike" in codes(told.warnings)


def test_another_half_and_attacks_on_records_are_refused() -> None:
    release = in_memory(DATA, MAPS)
    other = half(nn.Conv2d(1, 5, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), seed=2)
    with pytest.raises(MismatchError, match=MAPS.digest[:8]):
        audit([release], DATA, client=other, stream=SeededStream(0))
    with pytest.raises(ArgumentError, match="'lmmse'"):
        audited(names=["lmmse"])
    with pytest.raises(ArgumentError, match="profile"):
        audited(profile="slow")
    with pytest.raises(MismatchError, match="takes images"):
        audit([release], images(40), client=MAPS, stream=SeededStream(0))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    split_encode(DATA, tmp_path / "r", client=MAPS, labelled=True)
    write_half(tmp_path / "client", MAPS)
    return tmp_path


def test_the_whole_job_takes_folders_and_keeps_the_ledger_s_word(folder: Path) -> None:
    found = mixveil.audit([folder / "r"], DATA, client=folder / "client", public=PUBLIC, attacks=["read-off"])
    again = mixveil.audit([folder / "r"], DATA, client=MAPS, public=PUBLIC, attacks=["read-off"])
    assert found.audit.figures == again.audit.figures and found.swept is None
    assert "in-all" in codes(found.audit.verdict) and "for-knowing" not in codes(found.audit.verdict)
    assert found.audit.view.public is not None and len(found.audit.view.public) == 120


def test_what_does_not_belong_to_representations_is_refused(folder: Path) -> None:
    ours: dict[str, Any] = {"client": MAPS, "attacks": ["read-off"]}
    with pytest.raises(ArgumentError, match="client half"):
        mixveil.audit([folder / "r"], DATA)
    others: dict[str, Any] = {"sweep": "mu=1,2", "projection": folder / "p", "covers": DATA}
    for name, value in others.items():
        with pytest.raises(ArgumentError, match=f"{name}: this is for releases of records"):
            mixveil.audit([folder / "r"], DATA, **ours, **{name: value})
    mixveil.encode(DATA, folder / "rows", mu=1.0)
    with pytest.raises(MismatchError, match="records and representations"):
        mixveil.audit([folder / "r", folder / "rows"], DATA, **ours)
    with pytest.raises(ArgumentError, match="client: this is for releases of representations"):
        mixveil.audit([folder / "rows"], DATA, client=MAPS)
    with pytest.raises(ArgumentError, match="'read-off'"):
        mixveil.audit([folder / "rows"], DATA, attacks=["read-off"])
    with pytest.raises(WrongTruthError, match="other data"):  # by the ledger, before anything is computed
        mixveil.audit([folder / "r"], digits(40, 80), **ours)
    with pytest.raises(ArgumentError, match="public data"):
        mixveil.audit([folder / "r"], DATA, **ours, public=images(20))
    manifest = folder / "r" / "manifest.json"
    manifest.write_text(manifest.read_text().replace(MAPS.digest, BARE.digest))
    for client in (MAPS, BARE):  # the first is not the one that it names, the second makes something else
        with pytest.raises(MismatchError, match="did not make release"):
            mixveil.audit([folder / "r"], DATA, client=client)


# What is shown


def tiled(maps: Tensor, across: int) -> Tensor:
    """Slow and obvious: map i at line i // across, place i % across."""
    count, height, width = maps.shape
    whole = torch.zeros(-(-count // across) * height, across * width)
    for i in range(count):
        down, right = divmod(i, across)
        whole[down * height : (down + 1) * height, right * width : (right + 1) * width] = maps[i]
    return whole


@pytest.mark.parametrize(
    ("shape", "across"), [((5, 4, 4), 3), ((16, 5, 5), 4), ((7,), 3), ((1, 6, 2), 1), ((2, 2, 8), 1), ((2, 3, 2, 2), 5)]
)
def test_representations_are_pictures_of_their_maps_side_by_side(shape: tuple[int, ...], across: int) -> None:
    rows = SeededStream(3).uniform(2, int(torch.tensor(shape).prod())).float()
    maps = rows[1].view(shape) if len(shape) == 3 else rows[1].view(-1, 1, 1)
    assert torch.equal(mosaic(rows, shape)[1, 0], tiled(maps, across))


def plain(found: Audit) -> dict[str, Any]:
    whole: dict[str, Any] = json.loads(json.dumps(to_json(found, HOW)))
    jsonschema.validate(whole, json.loads((files("mixveil.report") / "audit.schema.json").read_text()))
    return whole


def test_the_page_shows_pictures_and_speaks_of_representations_alone(tmp_path: Path) -> None:
    found = audited(MAPS, ["read-off", "taught"], public=PUBLIC)
    whole = plain(found)
    assert whole["kind"] == "representations"
    assert whole["records"] == {
        "rows": 40, "encoded": 40, "attacked": 40, "shape": [1, 8, 8], "classes": list(DATA.classes)
    }  # fmt: skip
    write_audit(tmp_path / "a", found, HOW)
    pictures = load_file(tmp_path / "a" / "pictures.safetensors")
    assert {name: tuple(tensor.shape) for name, tensor in pictures.items()} == {
        "original": (8, 1, 8, 8), "released": (8, 1, 8, 12), "read-off": (8, 1, 8, 8), "taught": (8, 1, 8, 8),
        "index": (8,),
    }  # fmt: skip
    rows = in_memory(DATA, MAPS).payload.take(pictures["index"]).x[0].view(5, 4, 4)
    low, high = rows.amin((1, 2), keepdim=True), rows.amax((1, 2), keepdim=True)  # each map by itself
    assert torch.allclose(pictures["released"][0, 0], tiled((rows - low) / torch.where(high > low, high - low, 1), 3))
    text = (tmp_path / "a" / "report.html").read_text()
    assert text.count("data:image/png") == 4 * 8 and shows(text, "page-leaves-representations")
    for code in ("page-released", "page-stays", "page-figures", "page-unprotected", "page-labels"):
        assert shows(text, f"{code}-representations")
    assert not [word for word in ("paired", "encoder", "stated ε", "best linear") if word in html.unescape(text)]
    assert render(tmp_path / "a").read_text() == text


def test_an_audit_that_says_no_kind_is_of_records(tmp_path: Path) -> None:
    mixveil.encode(DATA, tmp_path / "r", mu=1.0)
    write_report(tmp_path / "a", mixveil.audit([tmp_path / "r"], DATA, attacks=["lmmse"]))
    before, path = (tmp_path / "a" / "report.html").read_text(), tmp_path / "a" / "audit.json"
    whole = json.loads(path.read_text())
    assert whole.pop("kind") == "records" and "who was paired with whom" in before
    path.write_text(json.dumps(whole))
    assert render(tmp_path / "a").read_text() == before


def test_records_and_representations_stand_side_by_side(folder: Path) -> None:
    mixveil.encode(DATA, folder / "rows", mu=1.0)
    write_report(folder / "one", mixveil.audit([folder / "rows"], DATA, attacks=["lmmse"]))
    two = mixveil.audit([folder / "r"], DATA, client=MAPS, attacks=["read-off"])
    write_report(folder / "two", two)
    text = write_beside([folder / "one", folder / "two"], folder / "page.html").read_text()
    assert text.count("data:image/png") == 2 * 3 * 8 and "released as representations" in text
    best = text.split('id="best"')[1].split("</table>")[0]
    for name, attack in {"one": "lmmse", "two": "read-off"}.items():
        whole = json.loads((folder / name / "audit.json").read_text())
        error = next(figure["mean"] for figure in whole["figures"] if figure["metric"] == "mse")
        line = next(line for line in best.splitlines() if f">{name}</th>" in line)
        assert f"<td>{attack}</td>" in line and f"<strong>{error:.4g}</strong>" in line
    assert shows(text, "page-released-records") and shows(text, "page-released-representations")
    alone = write_beside([folder / "one", folder / "one"], folder / "alone.html").read_text()
    assert 'id="best"' not in alone
