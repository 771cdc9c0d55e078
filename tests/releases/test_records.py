from __future__ import annotations

import hashlib
import json
import os
import pickle
import signal
import stat
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from mixveil.core import errors, files
from mixveil.core import tensor_files as tensors
from mixveil.core.randomness import SecureStream, SeededStream
from mixveil.core.types import Mu, Tau
from mixveil.data.images import from_tensors
from mixveil.encoders.gaussian import Gaussian
from mixveil.encoders.identity import Identity
from mixveil.encoders.mixup import Mixup
from mixveil.encoders.singular import Singular
from mixveil.releases import reading, records
from mixveil.releases.ledger import Ledger
from mixveil.releases.reading import read_release, verify_release
from mixveil.releases.records import write_release
from mixveil.releases.traces import load_trace, recorded_manifest, trace_path
from tests.made import images, range_facts, with_moments, write


def manifest_of(folder: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((folder / "manifest.json").read_text())
    return loaded


def edit(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    whole = manifest_of(folder)
    change(whole)
    (folder / "manifest.json").write_text(json.dumps(whole))


def rewrite_shard(folder: Path, data: bytes) -> None:
    """Replace the shard, and make the manifest agree with its size and hash: a liar who knows the format."""
    (folder / "shard-00000.safetensors").write_bytes(data)

    def agree(whole: dict[str, Any]) -> None:
        whole["files"][0] |= {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}

    edit(folder, agree)


def change_tensors(folder: Path, change: Callable[[dict[str, torch.Tensor]], None]) -> None:
    path = folder / "shard-00000.safetensors"
    tensors = {name: tensor.clone() for name, tensor in load_file(path).items()}
    change(tensors)
    save_file(tensors, path)
    rewrite_shard(folder, path.read_bytes())


def test_what_is_written_is_read(tmp_path: Path) -> None:
    read = read_release(write(tmp_path / "r"))
    assert read.certified and not read.reproducible
    assert read.party == "a hospital" and read.shape == (1, 4, 4) and read.classes == ("0", "1", "2", "3")
    batch = read.payload.take(torch.tensor([19, 0]))
    assert batch.x.shape == (2, 1, 4, 4) and batch.x.dtype == torch.float32
    assert torch.allclose(batch.y.sum(1), torch.ones(2))


def test_verifying_holds_one_file_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "SHARD_BYTES", 1000)
    out = write(tmp_path / "out", images(100))
    held: list[weakref.ref[torch.Tensor]] = []
    read = reading.read_file

    def watched(*given: Any) -> Any:
        assert all(before() is None for before in held)
        batch = read(*given)
        held.append(weakref.ref(batch.x))
        return batch

    monkeypatch.setattr(reading, "read_file", watched)
    assert verify_release(out).rows == 100 and len(held) > 2


def test_shards_hold_every_row_once_and_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = images(50)
    monkeypatch.setattr(records, "SHARD_BYTES", 1000)
    monkeypatch.setattr(records, "_BLOCK_ELEMENTS", 64)
    write_release(tmp_path / "r", data, Identity(), (), party="p", stream=SeededStream(0))
    assert len(manifest_of(tmp_path / "r")["files"]) > 3
    index = SeededStream(1).permutation(50)
    got, want = read_release(tmp_path / "r").payload.take(index), data.take(index)
    assert torch.equal(got.x, want.x) and torch.equal(got.y, want.y)


def test_the_trace_stays_with_its_owner(tmp_path: Path) -> None:
    written = verify_release(write(tmp_path / "r"))
    path = trace_path(written.id)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    trace = load_trace(written.id, 20)
    assert trace is not None and trace.partner.shape == (20, 1)
    names = sorted(p.name for p in (tmp_path / "r").iterdir())
    assert names == ["manifest.json", "shard-00000.safetensors"]
    assert load_trace("0" * 32, 20) is None


def test_a_damaged_trace_is_a_typed_error(tmp_path: Path) -> None:
    written = verify_release(write(tmp_path / "r"))
    assert recorded_manifest(written.id) == hashlib.sha256((tmp_path / "r" / "manifest.json").read_bytes()).hexdigest()
    with pytest.raises(errors.StateError, match="21 rows"):
        load_trace(written.id, 21)
    path = trace_path(written.id)
    path.write_bytes(path.read_bytes()[:-3])
    for read in (lambda: load_trace(written.id, 20), lambda: recorded_manifest(written.id)):
        with pytest.raises(errors.StateError, match="not a trace"):
            read()


def test_a_certified_manifest_says_nothing_of_the_private_data(
    tmp_path: Path, own_state_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two data sets of the same shape and labels, the same secure stream: manifests equal but for hashes, id, time."""
    monkeypatch.setattr(os, "urandom", lambda n: bytes(range(n)))
    labels = torch.arange(30) % 3
    dark, bright = torch.zeros(30, 1, 4, 4), SeededStream(0).uniform(30, 1, 4, 4).float()
    manifests = []
    for name, x in (("dark", dark), ("bright", bright)):
        whole = manifest_of(write(tmp_path / name, from_tensors(x, labels)))
        trace_path(whole["id"]).unlink()
        for left in own_state_folder.glob("ledger.*"):
            left.unlink()
        assert whole["certified"] is True and whole["reproducible"] is False
        for shard in whole["files"]:
            assert shard.pop("sha256")
        del whole["id"], whole["created"]
        manifests.append(whole)
    assert manifests[0] == manifests[1]


def test_a_seeded_release_is_never_certified_and_says_so(tmp_path: Path) -> None:
    whole = manifest_of(write(tmp_path / "r", seed=1))
    assert whole["reproducible"] is True and whole["certified"] is False and whole["guarantees"] == []
    assert "seeded" in whole["not_promised"]


def test_a_release_for_tau_is_not_certified_and_says_that_it_shows_private_figures(tmp_path: Path) -> None:
    data = images()
    facts = with_moments(range_facts(data), energy=1.3, lambda_max=0.2)
    encoder, guarantees = Singular().calibrate(Tau(0.1, "energy"), facts)
    write_release(tmp_path / "r", data, encoder, guarantees, party="p", stream=SecureStream())
    whole = manifest_of(tmp_path / "r")
    assert whole["certified"] is False
    assert {"private-facts", "average-only"} <= {*whole["not_promised"]}
    assert whole["guarantees"][0]["realised"] > whole["guarantees"][0]["nominal"]
    assert not verify_release(tmp_path / "r").certified


def test_without_noise_nothing_is_promised(tmp_path: Path) -> None:
    write_release(tmp_path / "r", images(), Mixup(3), (), party="p", stream=SecureStream())
    stated = verify_release(tmp_path / "r")
    assert not stated.certified and "no-noise" in stated.not_promised


def test_labels_are_named_as_unprotected_in_every_manifest(tmp_path: Path) -> None:
    assert manifest_of(write(tmp_path / "r"))["not_promised"][0] == "labels-shown"


# Writing: nothing is overwritten, nothing is left half done


def test_an_existing_output_is_refused(tmp_path: Path) -> None:
    (tmp_path / "r").mkdir()
    with pytest.raises(errors.OutputExistsError, match="exists already"):
        write(tmp_path / "r")
    assert list((tmp_path / "r").iterdir()) == []


def test_a_failure_leaves_nothing_behind(tmp_path: Path, own_state_folder: Path) -> None:
    x = torch.full((20, 1, 4, 4), 0.5)
    x[17, 0, 2, 2] = torch.nan
    with pytest.raises(errors.PixelError, match="row 17 has the pixel nan"):
        write(tmp_path / "a" / "b" / "r", from_tensors(x, torch.arange(20) % 2))
    assert not (tmp_path / "a").exists()
    assert not list(own_state_folder.rglob("*.safetensors"))


def test_a_full_disk_is_a_typed_error_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = files.write_file

    def full(path: Path, data: bytes, mode: int = 0o644) -> None:
        if path.suffix != ".safetensors":
            return real(path, data, mode)
        path.write_bytes(data[: len(data) // 2])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "write_file", full)
    with pytest.raises(errors.OutputError, match="No space left"):
        write(tmp_path / "out" / "r")
    assert not (tmp_path / "out").exists()


def test_a_state_folder_that_cannot_be_written_stops_the_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MIXVEIL_STATE", str(tmp_path / "file"))
    with pytest.raises(errors.StateError, match="MIXVEIL_STATE"):
        write(tmp_path / "r")
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize("where", ["write_file", "sync_folder"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_killed_process_leaves_no_release_that_verifies(tmp_path: Path, where: str, when: str) -> None:
    out, state, real = tmp_path / "r", tmp_path / "state", getattr(files, where)
    Ledger().set_budget(99)  # it is there already: what dies is the release

    def dying(path: Path, *args: Any) -> None:
        mine = state in (path, *path.parents)
        if when == "after" or mine:
            real(path, *args)
        if not mine:
            os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if child == 0:
        try:
            setattr(files, where, dying)
            write(out)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert not out.exists()
    (tmp_path / "link").symlink_to(next(tmp_path.glob(".*")))
    for left in (*tmp_path.glob(".*"), tmp_path / "link"):
        with pytest.raises(errors.ManifestError):
            verify_release(left)


@pytest.mark.parametrize("party", ["", "two\nlines", "x" * 65])
def test_a_bad_party_name_is_refused(tmp_path: Path, party: str) -> None:
    encoder, guarantees = Singular().calibrate(Mu(1.0), range_facts(images()))
    with pytest.raises(errors.ArgumentError, match="party"):
        write_release(tmp_path / "r", images(), encoder, guarantees, party=party, stream=SecureStream())
    assert not (tmp_path / "r").exists()


# Reading: every violation has its own error


def test_a_truncated_shard(tmp_path: Path) -> None:
    shard = write(tmp_path / "r") / "shard-00000.safetensors"
    shard.write_bytes(shard.read_bytes()[:-1])
    with pytest.raises(errors.ShardSizeError):
        read_release(tmp_path / "r")


def test_a_flipped_byte(tmp_path: Path) -> None:
    shard = write(tmp_path / "r") / "shard-00000.safetensors"
    data = bytearray(shard.read_bytes())
    data[-5] ^= 1
    shard.write_bytes(data)
    with pytest.raises(errors.HashError):
        read_release(tmp_path / "r")


def test_a_shard_replaced_by_a_pickle(tmp_path: Path) -> None:
    rewrite_shard(write(tmp_path / "r"), pickle.dumps({"x": [1, 2, 3]}))
    with pytest.raises(errors.ShardFormatError):
        read_release(tmp_path / "r")


def test_a_shard_that_is_replaced_between_hash_and_mapping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = write(tmp_path / "r")
    shard = out / "shard-00000.safetensors"
    right = {name: tensor.clone() for name, tensor in load_file(shard).items()}
    save_file(right | {"x": torch.zeros_like(right["x"])}, tmp_path / "other")
    check = tensors.check_header

    def replaced(*args: Any, **options: Any) -> None:
        check(*args, **options)
        (tmp_path / "other").rename(shard)

    monkeypatch.setattr(tensors, "check_header", replaced)
    read = read_release(out).payload
    assert not (tmp_path / "other").exists()
    assert torch.equal(read.shards[0].x, right["x"])


def test_a_missing_shard_and_a_link_for_a_shard(tmp_path: Path) -> None:
    shard = write(tmp_path / "r") / "shard-00000.safetensors"
    shard.rename(tmp_path / "elsewhere")
    with pytest.raises(errors.MissingShardError):
        read_release(tmp_path / "r")
    shard.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(errors.MissingShardError):
        read_release(tmp_path / "r")


def lie_about_shape(whole: dict[str, Any]) -> None:
    whole["payload"]["shape"] = [1, 2, 8]


def lie_about_classes(whole: dict[str, Any]) -> None:
    whole["classes"] = ["a", "b"]


def lie_about_rows(whole: dict[str, Any]) -> None:
    whole["files"][0]["rows"] = 21


@pytest.mark.parametrize("lie", [lie_about_shape, lie_about_classes, lie_about_rows])
def test_a_manifest_that_lies_about_shapes(tmp_path: Path, lie: Callable[[dict[str, Any]], None]) -> None:
    edit(write(tmp_path / "r"), lie)
    with pytest.raises(errors.ShapeError):
        read_release(tmp_path / "r")


def test_other_dtypes_than_the_encoder_releases(tmp_path: Path) -> None:
    def widen(tensors: dict[str, torch.Tensor]) -> None:
        tensors["x"] = tensors["x"].to(torch.int64)

    change_tensors(write(tmp_path / "r"), widen)
    with pytest.raises(errors.DtypeError):
        read_release(tmp_path / "r")


def test_other_tensors_than_x_and_y(tmp_path: Path) -> None:
    def add(tensors: dict[str, torch.Tensor]) -> None:
        tensors["more"] = torch.zeros(1)

    change_tensors(write(tmp_path / "r"), add)
    with pytest.raises(errors.ShapeError):
        read_release(tmp_path / "r")


def test_indices_off_the_grid(tmp_path: Path) -> None:
    def jump(tensors: dict[str, torch.Tensor]) -> None:
        tensors["x"][3, 0, 1, 1] = 32767

    change_tensors(write(tmp_path / "r"), jump)
    with pytest.raises(errors.GridError, match="32767"):
        read_release(tmp_path / "r")


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_values_and_labels_that_are_not_finite(tmp_path: Path, value: float) -> None:
    def spoil_x(tensors: dict[str, torch.Tensor]) -> None:
        tensors["x"][2, 0, 0, 0] = value

    def spoil_y(tensors: dict[str, torch.Tensor]) -> None:
        tensors["y"][2, 0] = value

    for name, spoil in (("x", spoil_x), ("y", spoil_y)):
        folder = tmp_path / name
        write_release(folder, images(), Identity(), (), party="p", stream=SecureStream())
        change_tensors(folder, spoil)
        with pytest.raises(errors.NotFiniteError):
            read_release(folder)


@pytest.mark.parametrize("label", [[0.5, 0.6, 0, 0], [1.5, -0.5, 0, 0]])
def test_labels_off_the_simplex(tmp_path: Path, label: list[float]) -> None:
    def spoil(tensors: dict[str, torch.Tensor]) -> None:
        tensors["y"][7] = torch.tensor(label)

    change_tensors(write(tmp_path / "r"), spoil)
    with pytest.raises(errors.SimplexError):
        read_release(tmp_path / "r")


@pytest.mark.parametrize("label", [[0.9, 0.1, 0, 0], [0.4, 0.3, 0.3, 0]])
def test_labels_that_prove_a_weight_beyond_the_cap(tmp_path: Path, label: list[float]) -> None:
    def spoil(tensors: dict[str, torch.Tensor]) -> None:
        tensors["y"][7] = torch.tensor(label)

    change_tensors(write(tmp_path / "r"), spoil)
    with pytest.raises(errors.SimplexError, match="cannot make"):
        read_release(tmp_path / "r")


def test_rows_that_do_not_exist(tmp_path: Path) -> None:
    payload = read_release(write(tmp_path / "r")).payload
    for row in (-1, 20):
        with pytest.raises(errors.ArgumentError, match="row numbers"):
            payload.take(torch.tensor([0, row]))


def test_a_folder_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(errors.ReleaseError):
        read_release(tmp_path / ("x" * 300))


def test_noise_never_repeats_between_blocks_and_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blank records leave nothing but noise: rows of different blocks must be uncorrelated."""
    monkeypatch.setattr(records, "SHARD_BYTES", 20_000)
    monkeypatch.setattr(records, "_BLOCK_ELEMENTS", 1024)
    blank = from_tensors(torch.full((400, 256), 0.5), torch.arange(400) % 2)
    payload = read_release(write(tmp_path / "r", blank)).payload
    rows = torch.nn.functional.normalize(payload.take(torch.arange(400)).x)
    correlation = (rows @ rows.T).fill_diagonal_(0)
    assert float(correlation.abs().max()) < 0.5  # 8 deviations of 1/16; a repeated row has 1


def test_a_release_is_never_left_without_its_trace(
    tmp_path: Path, own_state_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = files.sync_folder, iter([False, True])

    def fails_last(folder: Path) -> None:
        real(folder)
        if folder != own_state_folder and next(calls):
            raise KeyboardInterrupt

    Ledger().set_budget(99)  # it is there already
    monkeypatch.setattr(files, "sync_folder", fails_last)
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path / "r")
    assert load_trace(verify_release(tmp_path / "r").id, 20) is not None


def test_no_release_at_all(tmp_path: Path) -> None:
    with pytest.raises(errors.ManifestError, match="not a release"):
        read_release(tmp_path)


@pytest.mark.parametrize("kind", [Singular, Gaussian])
@pytest.mark.parametrize("figure", ["nominal", "realised"])
def test_a_certified_claim_is_recomputed_whatever_the_encoder(
    kind: type[Singular | Gaussian], figure: str, tmp_path: Path
) -> None:
    data = images(12)
    encoder, guarantees = kind().calibrate(Mu(1.0), range_facts(data))
    write_release(tmp_path / "r", data, encoder, guarantees, party="p", stream=SecureStream())
    path = tmp_path / "r" / "manifest.json"
    whole = json.loads(path.read_text())
    stated = next(item for item in whole["guarantees"] if item["name"] == "gdp")
    stated[figure] /= 2
    path.write_text(json.dumps(whole))
    with pytest.raises(errors.FalseClaimError):
        read_release(tmp_path / "r")
