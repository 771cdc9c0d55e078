"""Kinds of payload: updates and representations, and one that the package does not know."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.utils.data import DataLoader

from mixveil.core import errors
from mixveil.core.wording import sentences
from mixveil.releases import notes
from mixveil.releases.envelope import Envelope, parse
from mixveil.releases.kinds.catalogue import KINDS
from mixveil.releases.kinds.representations import RepresentationSettings
from mixveil.releases.kinds.updates import UpdateSettings
from mixveil.releases.ledger import Ledger
from mixveil.releases.reading import read_release, verify_release
from mixveil.releases.writing import write, write_tensors
from tests.command import Run
from tests.forged.forge import agreeing
from tests.made import images
from tests.made import write as write_records
from tests.plugins.toy_kind import Histogram


def written(out: Path, envelope: Envelope, tensors: Mapping[str, Tensor], rows: int | None = None) -> Envelope:
    name = envelope.settings.file_names(1)[0]
    return write(
        out, images(), envelope, lambda folder: ([write_tensors(folder / name, tensors, rows)], None), space=1000
    )


def changed(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    path = folder / "manifest.json"
    whole = json.loads(path.read_text())
    change(whole)
    path.write_text(json.dumps(whole))


def spoiled(folder: Path, name: str, change: Callable[[dict[str, Tensor]], Any]) -> None:
    """Other tensors, and a manifest that agrees with their file."""
    tensors = {key: tensor.clone() for key, tensor in load_file(folder / name).items()}
    change(tensors)
    (folder / name).unlink()
    file = write_tensors(folder / name, tensors)
    text = agreeing((folder / "manifest.json").read_text(), (folder / name).read_bytes(), "files", 0)
    assert file.bytes == (folder / name).stat().st_size
    (folder / "manifest.json").write_text(text)


CLASSES = ("a", "b", "c", "d")
WEIGHTS = {"layer.weight": torch.ones(3, 2), "layer.bias": torch.zeros(3), "scale": torch.tensor(2.0)}


def updates(out: Path) -> Envelope:
    settings = UpdateSettings("fedavg", {name: tuple(tensor.shape) for name, tensor in WEIGHTS.items()})
    return written(out, Envelope(settings, "p", CLASSES), WEIGHTS)


def test_updates_are_written_entered_and_read(tmp_path: Path) -> None:
    stated = updates(tmp_path / "u")
    again = read_release(tmp_path / "u")
    assert again.envelope == stated and {*again.payload} == {*WEIGHTS} and not again.certified
    assert all(torch.equal(again.payload[name], WEIGHTS[name]) for name in WEIGHTS)
    assert stated.not_promised == ("labels-in-updates", "not-encryption", "unit-not-stated", "nothing-promised")
    (entry,) = Ledger().entries()
    assert (entry.kind, entry.encoder, entry.cost, entry.stated, entry.rows) == ("updates", "fedavg", None, None, 20)
    assert entry.finished and Ledger().total().unbounded == (stated.id,)
    with pytest.raises(errors.MismatchError, match="holds updates"):
        again.encoder  # noqa: B018


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda whole: whole["payload"]["shapes"].update(scale=[1]), errors.ShapeError),
        (lambda whole: whole["payload"]["shapes"].update(more=[]), errors.ShapeError),
        (lambda whole: whole["payload"]["shapes"].update({"layer.bias": [-3]}), errors.ManifestError),
        (lambda whole: whole["payload"].update(shapes={}), errors.ManifestError),
        (lambda whole: whole["payload"].update(method="No method"), errors.ManifestError),
        (lambda whole: whole["payload"].update(more=1), errors.ManifestError),
        (lambda whole: whole.update(label_epsilon=1.0), errors.ManifestError),
        (lambda whole: whole["files"][0].update(rows=3), errors.ManifestError),
        (lambda whole: whole["not_promised"].remove("nothing-promised"), errors.FalseClaimError),
        (
            lambda whole: whole["guarantees"].append({"name": "gdp", "nominal": 1.0, "realised": 1.0, "assumes": {}}),
            errors.FalseClaimError,
        ),
        (
            lambda whole: whole.update(
                certified=True, guarantees=[{"name": "gdp", "nominal": 1.0, "realised": 1.0, "assumes": {}}]
            ),
            errors.FalseClaimError,
        ),
    ],
)
def test_lies_about_updates(tmp_path: Path, change: Callable[[Any], Any], error: type[Exception]) -> None:
    updates(tmp_path / "u")
    changed(tmp_path / "u", change)
    with pytest.raises(error):
        read_release(tmp_path / "u")


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda tensors: tensors["scale"].fill_(torch.nan), errors.NotFiniteError),
        (lambda tensors: tensors.update(scale=torch.tensor(2).short()), errors.ReleaseError),
        (lambda tensors: tensors.pop("scale"), errors.ShapeError),
    ],
)
def test_tensors_that_are_no_such_updates(tmp_path: Path, change: Callable[[Any], Any], error: type[Exception]) -> None:
    updates(tmp_path / "u")
    spoiled(tmp_path / "u", "updates.safetensors", change)
    with pytest.raises(error):
        verify_release(tmp_path / "u")


def test_updates_of_a_network_with_many_tensors_have_a_long_header(tmp_path: Path) -> None:
    many = {f"block.{number}.convolution.weight": torch.zeros(2) for number in range(200)}
    settings = UpdateSettings("fedavg", dict.fromkeys(many, (2,)))
    written(tmp_path / "u", Envelope(settings, "p", CLASSES), many)
    assert len(read_release(tmp_path / "u").payload) == 200


@pytest.mark.parametrize("labelled", [True, False])
def test_representations(tmp_path: Path, labelled: bool) -> None:
    x, y = torch.rand(20, 5), torch.eye(4)[torch.arange(20) % 4] if labelled else torch.empty(20, 0)
    envelope = Envelope(RepresentationSettings((5,), labelled), "p", CLASSES)
    stated = written(tmp_path / "r", envelope, {"x": x, "y": y}, 20)
    again = read_release(tmp_path / "r")
    assert torch.equal(again.payload.take(torch.arange(20)).x, x) and stated.rows == 20
    assert stated.not_promised[0] == ("labels-shown" if labelled else "labels-not-sent")
    assert ("rows-in-data-order" in stated.not_promised) is not labelled
    assert "nothing-promised" in stated.not_promised and Ledger().entries()[0].kind == "representations"
    with pytest.raises(errors.MismatchError, match="not records"):
        again.encoder  # noqa: B018
    changed(tmp_path / "r", lambda whole: whole["payload"].update(shape=[4]))
    with pytest.raises(errors.ShapeError):
        read_release(tmp_path / "r")
    changed(tmp_path / "r", lambda whole: whole["payload"].update(shape=[5], labelled=not labelled))
    with pytest.raises(errors.ReleaseError):
        read_release(tmp_path / "r")


@pytest.mark.parametrize("spoil", ["x", "y"])
def test_representations_that_are_not_finite(tmp_path: Path, spoil: str) -> None:
    tensors = {"x": torch.rand(20, 5), "y": torch.eye(4)[torch.arange(20) % 4]}
    written(tmp_path / "r", Envelope(RepresentationSettings((5,), True), "p", CLASSES), tensors, 20)
    spoiled(tmp_path / "r", "shard-00000.safetensors", lambda tensors: tensors[spoil][3].fill_(torch.inf))
    with pytest.raises(errors.NotFiniteError):
        read_release(tmp_path / "r")


# A kind from elsewhere


@pytest.fixture
def toy() -> Iterator[Envelope]:
    settings = Histogram(3, 2.0)
    with KINDS.including(Histogram):
        yield Envelope(settings, "p", CLASSES, tuple(settings.claims().values()))


def test_a_kind_from_elsewhere_is_written_verified_and_counted(
    tmp_path: Path,
    toy: Envelope,
    run: Run,
) -> None:
    stated = written(tmp_path / "t", toy, {"counts": torch.ones(3)})
    assert verify_release(tmp_path / "t") == stated and stated.certified
    (entry,) = Ledger().entries()
    assert entry.kind == "toy-histogram" and entry.stated == pytest.approx(2**-0.5) and entry.finished
    assert Ledger().total().mu == pytest.approx(2**-0.5)
    said = run("verify", tmp_path / "t")
    assert said.code == 0 and "toy-histogram" in said.out and "every byte" in said.out
    told = run("verify", tmp_path / "t", "--json").json
    assert told["kind"] == "toy-histogram" and (told["bins"], told["sigma"]) == (3, 2.0) and told["certified"]
    assert run("audit", tmp_path / "t", "--truth", "digits", "--out", tmp_path / "a").code == 2


def test_lies_of_a_kind_from_elsewhere(tmp_path: Path, toy: Envelope) -> None:
    written(tmp_path / "t", toy, {"counts": torch.ones(3)})
    text = (tmp_path / "t" / "manifest.json").read_text()
    lies: list[Callable[[Any], Any]] = [
        lambda whole: whole["payload"].update(sigma=1.0),
        lambda whole: whole["payload"].update(sigma="2"),
        lambda whole: whole["payload"].update(bins=1 << 60),
        lambda whole: whole["payload"].update(more=1),
        lambda whole: whole["guarantees"][0].update(nominal=0.1),
        lambda whole: whole["guarantees"][0]["assumes"].update(neighbours="replace-unit"),
        lambda whole: whole.update(assets={"projection": "0" * 64}),
        lambda whole: whole["files"][0].update(name="other.safetensors"),
    ]
    for lie in lies:
        whole = json.loads(text)
        lie(whole)
        with pytest.raises(errors.ReleaseError):
            parse(json.dumps(whole))
    changed(tmp_path / "t", lambda whole: whole["payload"].update(bins=2))
    with pytest.raises(errors.ShapeError):
        verify_release(tmp_path / "t")


def test_a_false_claim_is_not_written_and_the_try_counts(tmp_path: Path, toy: Envelope) -> None:
    half = replace(toy, guarantees=tuple(replace(g, nominal=g.nominal / 2) for g in toy.guarantees))
    with pytest.raises(errors.FalseClaimError):
        written(tmp_path / "t", half, {"counts": torch.ones(3)})
    assert not (tmp_path / "t").exists() and Ledger().entries()[0].finished is None


def test_an_unknown_kind_is_refused(tmp_path: Path, toy: Envelope, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path / "t", toy, {"counts": torch.ones(3)})
    monkeypatch.setattr(KINDS, "_registered", {})
    with pytest.raises(errors.ManifestError, match="kind of payload"):
        verify_release(tmp_path / "t")


# A release as a reader holds it


def test_a_release_of_records_is_a_data_set_of_torch(tmp_path: Path) -> None:
    release = read_release(write_records(tmp_path / "r"))
    (x, y), *rest = list(DataLoader(release, batch_size=8))  # type: ignore[arg-type]
    assert x.shape == (8, 1, 4, 4) and y.shape == (8, 4) and [len(batch[1]) for batch in rest] == [8, 4]
    assert torch.equal(x, release.payload.take(torch.arange(8)).x)
    assert len(release) == 20 and torch.equal(release[-1][0], release[19][0]) and len([*release]) == 20  # type: ignore[misc]
    with pytest.raises(IndexError):
        release[20]
    assert repr(release) == f"<Release {release.id[:8]}: records of a hospital, certified>"
    assert not release.with_(guarantees=()).certified and release.with_(shape=(16,)).shape == (16,)


def test_every_code_has_a_sentence(tmp_path: Path) -> None:
    envelopes = [verify_release(write_records(tmp_path / "r")), updates(tmp_path / "u")]
    for envelope in envelopes:
        told = [*notes.promises(envelope), *notes.not_promised(envelope), envelope.settings.note(envelope)]
        assert told and all(item.code in sentences.WORDS and str(item) for item in told)
        for stated in envelope.guarantees:
            codes = {*stated.assumes.values()} - {"public", "range", "private"}
            assert codes <= sentences.WORDS.keys()
