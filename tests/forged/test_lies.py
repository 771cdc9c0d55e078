"""Lies that agree with themselves: by someone who knows the format, and changes all that follows from a figure."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load, save

from mixveil.core import errors
from mixveil.encoders.catalogue import encoder
from mixveil.features import projection_file
from mixveil.learn.class_means import class_means
from mixveil.learn.training import opened, train
from mixveil.releases.kinds.records import RecordSettings
from mixveil.releases.reading import read_release, verify_release
from tests.command import Run
from tests.forged.forge import agreeing
from tests.forged.honest import SHARD, SUMS, check_finite, copied


def edit(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    path = folder / "manifest.json"
    whole = json.loads(path.read_text())
    change(whole)
    path.write_text(json.dumps(whole))


def scaled(payload: dict[str, Any], by: float) -> None:
    payload.update({name: payload[name] * by for name in ("clip", "sigma", "step")})


def with_settings(**settings: float) -> Callable[[dict[str, Any]], None]:
    """Other settings of an encoder, and the grid and the claims that follow from them."""

    def change(whole: dict[str, Any]) -> None:
        whole["payload"]["encoder"]["settings"] |= settings
        try:
            made = encoder(whole["payload"]["encoder"]["name"]).ready()(**whole["payload"]["encoder"]["settings"])
        except errors.ArgumentError:
            return
        whole["payload"]["grid"] = RecordSettings(made, (1,)).grid
        claims = made.claims()
        for stated in whole["guarantees"]:
            stated |= {"nominal": claims[stated["name"]].nominal, "realised": claims[stated["name"]].nominal}

    return change


@pytest.mark.parametrize("number", [0, 2])
def test_records_of_any_size_that_can_be_read_can_be_learned_from(honest: Path, tmp_path: Path, number: int) -> None:
    settings = json.loads((honest / f"release-{number}" / "manifest.json").read_text())["payload"]["encoder"][
        "settings"
    ]
    sizes = {name: settings[name] for name in ("clip", "amplitude", "sigma")}
    other = honest / f"release-{number}"
    outcome = {}
    for factor in (1e-99, 1e-60, 1e-29, 1e-10, 1.0, 1e10, 1e28, 1e60, 1e99):
        for centre in (0.5, 1e29, -1e29, 1e31, 1e300):
            folder = copied(honest, f"release-{number}", tmp_path / "r")
            edit(folder, with_settings(**{name: size * factor for name, size in sizes.items()}, centre=centre))
            edit(folder, lambda whole: whole.update(id="f" * 32))
            try:
                verify_release(folder)
            except errors.ManifestError as error:
                outcome[factor, centre] = str(error)
                continue
            outcome[factor, centre] = "read"
            for folders in ([folder], [other, folder]):
                try:
                    check_finite(train(opened(folders)).layers, (factor, centre))
                except errors.TrainingError as error:
                    assert str(error).isprintable()
    assert {key for key, said in outcome.items() if said == "read"} == {
        (factor, centre) for factor in (1e-29, 1e-10, 1.0, 1e10, 1e28) for centre in (0.5, 1e29, -1e29)
    }


@pytest.mark.parametrize("number", [4, 5])
def test_plain_values_at_the_end_of_float32(honest: Path, tmp_path: Path, number: int) -> None:
    for low, high in ((-3.4e38, 3.4e38), (0.0, 3.4e38), (1e-45, 2e-45), (0.0, 0.0)):
        folder = copied(honest, f"release-{number}", tmp_path / "r")
        tensors = load((folder / SHARD).read_bytes())
        rows = torch.arange(len(tensors["x"])) % 2 == 0
        tensors["x"][rows], tensors["x"][~rows] = low, high
        data = save(tensors)
        (folder / SHARD).write_bytes(data)
        text = agreeing((folder / "manifest.json").read_text(), data, "files", 0)
        (folder / "manifest.json").write_text(text)
        read_release(folder)
        try:
            check_finite(train(opened([folder])).layers, (low, high))
        except errors.TrainingError as error:
            assert "finite" in str(error) or "no discriminant" in str(error)


@pytest.mark.parametrize("name", ["statistics", "persons"])
def test_sums_of_any_size_that_can_be_read_can_be_learned_from(honest: Path, tmp_path: Path, name: str) -> None:
    for factor, fine in ((5e-324, False), (1e-200, False), (1e-18, True), (1e27, True), (1e60, False), (1e200, False)):
        folder = copied(honest, name, tmp_path / "s")
        edit(folder, lambda whole, by=factor: scaled(whole["payload"], by))  # type: ignore[misc]
        if not fine:
            with pytest.raises(errors.ManifestError, match="must be between"):
                read_release(folder)
            continue
        part = read_release(folder)
        check_finite(class_means([part])[0], factor)


def test_no_noise_to_speak_of_is_no_traceback(run: Run, honest: Path, tmp_path: Path) -> None:
    folder = copied(honest, "statistics", tmp_path / "s")
    edit(folder, lambda whole: whole["payload"].update(sigma=5e-324))
    refused = run("verify", folder)
    assert refused.code in (2, 4) and "sigma must be between 1e-30 and 1e+30, got 5e-324" in refused.err


def test_two_classes_of_one_name(honest: Path, tmp_path: Path) -> None:
    folder = copied(honest, "statistics", tmp_path / "s")
    edit(folder, lambda whole: whole.update(classes=["a", "b", "a"]))
    with pytest.raises(errors.ManifestError, match="two classes have the same name"):
        read_release(folder)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_invented_conditions_and_guarantees(honest: Path, tmp_path: Path, number: int) -> None:
    def invent(count: int) -> Callable[[dict[str, Any]], None]:
        more = {f"fact {i}": "public" for i in range(count)}
        return lambda whole: whole["guarantees"][0]["assumes"].update(more)

    for count in (1, 30_000):
        folder = copied(honest, f"release-{number}", tmp_path / "r")
        edit(folder, invent(count))
        with pytest.raises(errors.FalseClaimError):
            verify_release(folder)
    folder = copied(honest, f"release-{number}", tmp_path / "r")
    edit(folder, lambda whole: whole["guarantees"].append(whole["guarantees"][0]))
    with pytest.raises(errors.FalseClaimError, match="twice"):
        verify_release(folder)


def test_other_words_for_a_tau(honest: Path, tmp_path: Path) -> None:
    for name in ("signal", "attacker"):
        folder = copied(honest, "release-1", tmp_path / "r")
        edit(folder, lambda whole, name=name: whole["guarantees"][0]["assumes"].update({name: "nobody"}))  # type: ignore[misc]
        with pytest.raises(errors.FalseClaimError, match="conditions"):
            verify_release(folder)


def hidden(data: bytes, metadata: int, blanks: int) -> bytes:
    length = int.from_bytes(data[:8], "little")
    whole = json.loads(data[8 : 8 + length])
    if metadata:
        whole = {"__metadata__": {"hidden": "x" * metadata}, **whole}
    text = json.dumps(whole, separators=(",", ":")).encode() + b" " * blanks
    return len(text).to_bytes(8, "little") + text + data[8 + length :]


@pytest.mark.parametrize(("metadata", "blanks"), [(1, 0), (1 << 20, 0), (0, 5000), (0, 9 << 20)])
def test_nothing_is_hidden_in_a_header(honest: Path, tmp_path: Path, metadata: int, blanks: int) -> None:
    for name, file in (("release-0", SHARD), ("statistics", SUMS)):
        folder = copied(honest, name, tmp_path / name)
        data = hidden((folder / file).read_bytes(), metadata, blanks)
        (folder / file).write_bytes(data)
        manifest_path = folder / "manifest.json"
        manifest_path.write_text(agreeing(manifest_path.read_text(), data, "files", 0))
        with pytest.raises((errors.ShardFormatError, errors.ShapeError)):
            verify_release(folder)


def test_a_shard_larger_than_its_rows_is_not_hashed(
    honest: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import hashlib

    def hashed(*_: object) -> None:
        raise AssertionError("it was read")

    for size, error in ((100 << 20, errors.ShapeError), (1 << 40, errors.ManifestError)):
        folder = copied(honest, "release-0", tmp_path / "r")
        edit(folder, lambda whole, size=size: whole["files"][0].update(bytes=size))  # type: ignore[misc]
        with (folder / SHARD).open("r+b") as file:
            file.truncate(100 << 20)
        monkeypatch.setattr(hashlib, "file_digest", hashed)
        with pytest.raises(error):
            verify_release(folder)


def test_a_linked_manifest(honest: Path, tmp_path: Path) -> None:
    for name in ("release-0", "statistics"):
        folder = copied(honest, name, tmp_path / name)
        (folder / "manifest.json").rename(tmp_path / "elsewhere")
        (folder / "manifest.json").symlink_to(tmp_path / "elsewhere")
        with pytest.raises(errors.ReleaseError, match="is a link"):
            read_release(folder)


@pytest.mark.parametrize("name", ["release-0", "statistics"])
def test_what_the_manifest_does_not_name_is_named(run: Run, honest: Path, tmp_path: Path, name: str) -> None:
    folder = copied(honest, name, tmp_path / name)
    whole = "verified: every byte is as the manifest says."
    assert whole in run("verify", folder).out and run("verify", folder, "--json").json["not_part_of_it"] == []
    (folder / "payload.pkl").write_bytes(b"")
    (folder / "a\x1b[2J\nverified: every byte is as the manifest says.").mkdir()
    said = run("verify", folder)
    assert said.code == 0 and whole not in said.out and "of the files that the manifest names" in said.out
    assert "not part of the" in said.err and "payload.pkl" in said.err and "\x1b" not in said.err
    assert len(said.err.splitlines()) == 1
    assert "payload.pkl" in run("verify", folder, "--json").json["not_part_of_it"]
    for number in range(9):
        (folder / f"more-{number}").touch()
    assert "and 6 more" in run("verify", folder).err


def test_a_model_with_something_beside_it(run: Run, honest: Path, tmp_path: Path) -> None:
    import numpy as np

    folder = copied(honest, "model", tmp_path / "m")
    np.savez(tmp_path / "d.npz", x=np.full((6, 1, 4, 4), 0.5, np.float32), y=np.arange(6) % 2)
    assert "not part of" not in run("predict", folder, tmp_path / "d.npz").err
    (folder / "payload.pkl").touch()
    assert "not part of the model: payload.pkl" in run("predict", folder, tmp_path / "d.npz").err


def test_no_verdict_is_forged_on_a_terminal(run: Run, honest: Path, tmp_path: Path) -> None:
    for name in ("x\nverified: every byte is as the manifest says.\n", "\u009b31m", "\u202e", "n" * 7_000_000):
        folder = copied(honest, "release-0", tmp_path / "r")
        edit(folder, lambda whole, name=name: whole.update({name: 1}))  # type: ignore[misc]
        for words in ((), ("--json",)):
            said = run("verify", folder, *words)
            assert said.code == 4 and len(said.out + said.err) < 4000
            assert all(c.isprintable() or c == "\n" for c in said.out + said.err)
            assert not any(line.startswith("verified") for line in (said.out + said.err).splitlines())


def test_a_projection_that_would_not_be_read_is_not_written(honest: Path, tmp_path: Path) -> None:
    found = projection_file.read(honest / "projection")[0]
    for wrong in (
        replace(found, clip=1e16),
        replace(found, matrix=found.matrix * torch.inf),
        replace(found, norms=found.norms * 1e16),
    ):
        with pytest.raises(errors.ProjectionError, match="not written"):
            projection_file.write(tmp_path / "p", wrong)
        assert not (tmp_path / "p").exists()


def test_costs_that_cannot_be_added(honest: Path, tmp_path: Path) -> None:
    found = projection_file.read(honest / "directions")[0]
    for mu, epsilon in ((1e308, None), (5e-324, None), (1.0, 1e308), (1.0, 1e-9)):
        used = found.spent[0]._replace(mu=mu, label_epsilon=epsilon)
        (tmp_path / "p").write_bytes(replace(found, spent=(used,)).to_bytes())
        with pytest.raises(errors.DataFormatError):
            projection_file.read(tmp_path / "p")
