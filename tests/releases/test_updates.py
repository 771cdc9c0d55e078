"""Releases of updates on disk: written, entered, read, and refused where they are forged."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from mixveil.core import errors
from mixveil.core.local_training import AugMix, LocalTraining
from mixveil.data.images import Images, from_tensors
from mixveil.learn.local_update import linear
from mixveil.releases.envelope import Envelope
from mixveil.releases.kinds.updates import AFTER, BEFORE, UpdateSettings
from mixveil.releases.ledger import Ledger
from mixveil.releases.reading import read_release, verify_release
from mixveil.releases.updates import in_memory, payload, settings_of, weights_of, write_update
from mixveil.releases.writing import write_tensors
from tests.forged.forge import agreeing
from tests.made import images

ROWS = images(6)  # (1, 4, 4), four classes
TRAINING = LocalTraining(6, 4, (0.1, 0.1), momentum=0.5, proximal=0.2, augmix=AugMix(3.0))


def weights(value: float) -> dict[str, Tensor]:
    return {"scores.weight": torch.full((4, 16), value), "scores.bias": torch.full((4,), -value)}


def net() -> nn.Sequential:
    return linear((1, 4, 4), 4)


def written(
    out: Path,
    rows: Images = ROWS,
    after: dict[str, Tensor] | None = None,
    training: LocalTraining | None = TRAINING,
    network: nn.Sequential | None = None,
) -> Envelope:
    return write_update(
        out, rows, weights(1), after or weights(2), method="fedprox", training=training, net=network or net(), party="p"
    )


def test_what_is_written_is_entered_without_a_bound_and_read_again(tmp_path: Path) -> None:
    stated = written(tmp_path / "u")
    again = read_release(tmp_path / "u", "updates")
    assert again.envelope == stated and [file.name for file in stated.files] == ["updates.safetensors"]
    assert all(torch.equal(weights_of(again, BEFORE)[name], value) for name, value in weights(1).items())
    assert all(torch.equal(weights_of(again, AFTER)[name], value) for name, value in weights(2).items())
    settings = settings_of(again)
    assert settings.training == TRAINING and (settings.shape, settings.low, settings.high) == ((1, 4, 4), 0.0, 1.0)
    found = settings.network()
    assert found is not None and [*found._modules] == ["flat", "scores"]
    memory = in_memory(ROWS, weights(1), weights(2), method="fedprox", training=TRAINING, net=net(), party="p")
    assert memory.envelope.settings == settings and {*memory.payload} == {*again.payload}
    (entry,) = Ledger().entries()
    assert (entry.kind, entry.encoder, entry.cost, entry.rows) == ("updates", "fedprox", None, 6) and entry.finished
    assert Ledger().total().unbounded == (stated.id,) and "nothing-promised" in stated.not_promised
    assert not stated.certified


def test_an_update_of_any_network_may_leave_its_layers_and_its_training_out(tmp_path: Path) -> None:
    rows = from_tensors(torch.rand(3, 5), torch.arange(3), classes=3)
    given = {"method": "fedavg", "training": None, "net": None, "party": "p"}
    write_update(tmp_path / "u", rows, {"a": torch.ones(2)}, {"a": torch.zeros(2)}, **given)  # type: ignore[arg-type]
    settings = settings_of(read_release(tmp_path / "u"))
    assert settings.network() is None and settings.training is None and settings.shape == (5,)


def test_what_cannot_be_sent_is_refused_before_the_ledger_has_it(tmp_path: Path) -> None:
    nan = {**weights(2), "scores.bias": torch.full((4,), torch.nan)}
    lacking = {"scores.weight": torch.ones(4, 16)}
    with pytest.raises(errors.NotFiniteError, match="learning rate"):
        written(tmp_path / "u", after=nan)
    with pytest.raises(errors.MismatchError, match="one model"):
        written(tmp_path / "u", after=lacking)
    with pytest.raises(errors.MismatchError, match="6 rows, and there are 5"):
        written(tmp_path / "u", images(5))
    with pytest.raises(errors.ManifestError, match="layers"):
        written(tmp_path / "u", network=linear((1, 4, 4), 5))
    with pytest.raises(errors.ArgumentError, match="units"):
        written(tmp_path / "u", from_tensors(torch.rand(6, 1, 4, 4), torch.arange(6) % 4, classes=4, units=[*"aabbcc"]))
    with pytest.raises(errors.TooFewRowsError):
        written(tmp_path / "u", ROWS.part(torch.arange(0)))
    assert Ledger().entries() == [] and not (tmp_path / "u").exists()
    assert payload(weights(1), weights(2))["after.scores.bias"].dtype == torch.float32


def test_a_budget_refuses_what_has_no_bound(tmp_path: Path) -> None:
    given = {"method": "fedavg", "training": None, "net": net(), "party": "p"}
    with pytest.raises(errors.BudgetError):
        write_update(tmp_path / "u", ROWS, weights(1), weights(2), budget=1.0, **given)  # type: ignore[arg-type]
    assert not (tmp_path / "u").exists()


HUGE = {"name": "huge", "layer": "linear", "in_features": 1 << 16, "out_features": 1 << 16, "bias": 1}


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda s: s["shapes"].update({"after.scores.bias": [5]}), errors.ManifestError),
        (lambda s: s["shapes"].pop("after.scores.bias"), errors.ManifestError),
        (lambda s: s["shapes"].update({"before.more": [1]}), errors.ManifestError),
        (lambda s: s["shapes"].update({"more": [1]}), errors.ShapeError),
        (lambda s: s["shapes"].update({"a/../b": [1]}), errors.ManifestError),
        (lambda s: s["shapes"].update({"after.scores.bias": [1 << 30, 1 << 30]}), errors.ManifestError),
        (lambda s: s.update(shape=[1, 4, 5]), errors.ManifestError),
        (lambda s: s.update(shape=[-1]), errors.ManifestError),
        (lambda s: s.update(low=1.0), errors.ManifestError),
        (lambda s: s.update(method="Fed Avg"), errors.ManifestError),
        (lambda s: s.update(more=1), errors.ManifestError),
        (lambda s: s.pop("layers"), errors.ManifestError),
        (lambda s: s["layers"].append(HUGE), errors.ManifestError),
        (lambda s: s["layers"].clear(), errors.ManifestError),
        (lambda s: s.update(layers=[{"name": "a", "layer": "system"}]), errors.ManifestError),
        (lambda s: s.update(layers="layers"), errors.ManifestError),
        (lambda s: s["training"].update(rows=-1), errors.ManifestError),
        (lambda s: s["training"].update(batch=0), errors.ManifestError),
        (lambda s: s["training"].update(rates=[]), errors.ManifestError),
        (lambda s: s["training"].update(rates=["0.1"]), errors.ManifestError),
        (lambda s: s["training"].update(momentum=1.0), errors.ManifestError),
        (lambda s: s["training"].update(optimiser="other"), errors.ManifestError),
        (lambda s: s["training"]["augmix"].update(severity=11.0), errors.ManifestError),
        (lambda s: s["training"]["augmix"].update(views=1 << 40), errors.ManifestError),
        (lambda s: s["training"].pop("augmix"), errors.ManifestError),
    ],
)
def test_forged_settings_are_refused(tmp_path: Path, change: Callable[[Any], Any], error: type[Exception]) -> None:
    written(tmp_path / "u")
    path = tmp_path / "u" / "manifest.json"
    whole = json.loads(path.read_text())
    change(whole["payload"])
    path.write_text(json.dumps(whole))
    with pytest.raises(error):
        read_release(tmp_path / "u")


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda t: t["after.scores.bias"].fill_(torch.inf), errors.NotFiniteError),
        (lambda t: t.update({"after.scores.bias": torch.zeros(4).double()}), errors.ReleaseError),
        (lambda t: t.update({"after.scores.bias": torch.zeros(2, 2)}), errors.ShapeError),
        (lambda t: t.pop("before.scores.bias"), errors.ShapeError),
        (lambda t: t.update(more=torch.zeros(1)), errors.ReleaseError),
    ],
)
def test_forged_weights_are_refused(tmp_path: Path, change: Callable[[Any], Any], error: type[Exception]) -> None:
    """With a manifest that agrees with their file."""
    written(tmp_path / "u")
    path = tmp_path / "u" / "updates.safetensors"
    tensors = {key: tensor.clone() for key, tensor in load_file(path).items()}
    change(tensors)
    path.unlink()
    write_tensors(path, tensors)
    manifest = tmp_path / "u" / "manifest.json"
    manifest.write_text(agreeing(manifest.read_text(), path.read_bytes(), "files", 0))
    with pytest.raises(error):
        verify_release(tmp_path / "u")


def test_a_huge_network_takes_no_memory_to_refuse() -> None:
    """900 layers of 17 GB each."""
    many = [{**HUGE, "name": f"layer{number}"} for number in range(900)]
    settings = UpdateSettings("fedavg", {"before.a": (1,), "after.a": (1,)}, (1 << 16,), 0.0, 1.0, None, many)
    with pytest.raises(errors.MixveilError, match="multiply-adds"):
        settings.check_network()
