"""Labels under randomised response: nothing that leaves says more of them than ε allows, and the audit would see it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from mixveil.audit.auditing import audit
from mixveil.core import errors
from mixveil.core.randomness import SecureStream, SeededStream
from mixveil.core.types import Encoder, Mu, View
from mixveil.core.wording.notes import Note
from mixveil.data.images import Images, from_tensors
from mixveil.data.opening import open_data
from mixveil.encoders.gaussian import Gaussian
from mixveil.encoders.singular import Singular
from mixveil.features.projection import Projected
from mixveil.features.projection_fit import fit
from mixveil.releases.notes import not_promised
from mixveil.releases.reading import read_release, verify_release
from mixveil.releases.records import in_memory, write_release
from mixveil.releases.sums import write_statistics
from mixveil.releases.traces import load_trace
from mixveil.theory.response import keep_probability
from tests.made import blobs, features_of, range_facts
from tests.notes import codes, holds


def sorted_by_class(n: int = 900) -> Images:
    x = SeededStream(1).uniform(n, 1, 4, 4).float()
    return from_tensors(x, torch.arange(n) * 3 // n, classes=3)


@pytest.mark.parametrize("encoder", [Singular(), Gaussian()])
def test_the_order_of_rows_says_nothing_of_sorted_labels(encoder: Singular | Gaussian) -> None:
    """Data sorted by class: in the order of the data, thirds of the said labels would show their class at a glance."""
    data = sorted_by_class()
    ready, guarantees = encoder.calibrate(Mu(1.0), range_facts(data))
    release = in_memory(data, ready, guarantees, party="p", stream=SecureStream(), label_epsilon=0.5)
    said = release.payload.take(torch.arange(900)).y
    thirds = torch.stack([said[i : i + 300].mean(0) for i in (0, 300, 600)])
    keep = keep_probability(0.5, 3)
    assert float(thirds.diagonal().mean()) < (1 / 3 + keep) / 2  # keep, 0.45, if the order were that of the data
    shown = in_memory(data, ready, guarantees, party="p", stream=SecureStream()).payload.take(torch.arange(900)).y
    assert float(shown[:300, 0].mean()) > 0.5  # labels that are shown stay where they are


def test_a_list_of_classes_that_labels_made_is_refused(tmp_path: Path) -> None:
    data = from_tensors(torch.rand(30, 1, 4, 4), torch.arange(30) % 2)  # two classes, because no label is 2
    encoder, guarantees = Singular().calibrate(Mu(1.0), range_facts(data))
    with pytest.raises(errors.ArgumentError, match="--classes"):
        write_release(tmp_path / "r", data, encoder, guarantees, party="p", stream=SecureStream(), label_epsilon=1.0)
    listed = data.listed(("0", "rare", "1"))
    assert listed.labels.tolist() == [0, 2] * 15 and listed.declared
    write_release(tmp_path / "r", listed, encoder, guarantees, party="p", stream=SecureStream(), label_epsilon=1.0)
    assert verify_release(tmp_path / "r").classes == ("0", "rare", "1")
    with pytest.raises(errors.LabelError, match="'1'"):
        data.listed(("0", "2"))
    rows = Projected(features_of(replace(blobs(60, 2), declared=False)), fit(features_of(blobs(60, 1)), "a" * 64))
    with pytest.raises(errors.ArgumentError, match="--classes"):  # sums cover labels, and send the list as it is
        write_statistics(tmp_path / "s", rows, "b" * 64, 1.0, party="p", stream=SecureStream())
    assert not write_statistics(tmp_path / "s", rows, "b" * 64, 1.0, party="p", stream=SeededStream(0)).certified


def test_named_sets_and_listed_archives_have_their_classes_from_elsewhere(tmp_path: Path) -> None:
    import numpy as np

    assert open_data("digits").declared
    np.savez(tmp_path / "a", x=np.zeros((4, 1, 2, 2), np.uint8), y=np.arange(4) % 2)
    np.savez(tmp_path / "b", x=np.zeros((4, 1, 2, 2), np.uint8), y=np.arange(4) % 2, classes=np.array(["x", "y", "z"]))
    assert not open_data(str(tmp_path / "a.npz")).declared and open_data(str(tmp_path / "b.npz")).declared
    assert open_data(str(tmp_path / "a.npz"), classes=("1", "0")).labels.tolist() == [1, 0, 1, 0]


def audited(folder: Path, data: Images, encoder: Encoder) -> list[Note]:
    release = read_release(folder)
    trace = load_trace(release.id, len(data))
    assert trace is not None
    found = audit(View((release,), (trace,)), data, names=["lmmse", "labels"], stream=SeededStream(0))
    return list(found.warnings)


def test_an_audit_reads_the_release_in_the_order_of_the_records(tmp_path: Path) -> None:
    """At weak noise the linear attack recovers records: compared in the wrong order it would look harmless."""
    data = sorted_by_class(60)
    encoder, guarantees = Singular().calibrate(Mu(2000.0), range_facts(data))
    write_release(tmp_path / "r", data, encoder, guarantees, party="p", stream=SecureStream(), label_epsilon=1.0)
    warnings = audited(tmp_path / "r", data, encoder)
    assert holds(warnings, "images-reconstructed", attack="lmmse")
    assert holds(warnings, "audit-labels-randomised", epsilon=1.0)
    assert not {"labels-not-randomised", "noise-false", "noise-wrong"} & codes(warnings)
    with pytest.raises(errors.ArgumentError, match="trace"):
        audit(View((read_release(tmp_path / "r"),)), data, stream=SeededStream(0))


def test_labels_that_were_not_randomised_are_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = sorted_by_class(300)
    for name, encoder in (("s", Singular()), ("g", Gaussian())):
        ready, guarantees = encoder.calibrate(Mu(1.0), range_facts(data))
        with monkeypatch.context() as patched:
            patched.setattr("mixveil.releases.records.label_shifts", lambda n, *_: torch.zeros(n, dtype=torch.int64))
            write_release(tmp_path / name, data, ready, guarantees, party="p", stream=SecureStream(), label_epsilon=0.5)
        warnings = audited(tmp_path / name, data, ready)
        assert holds(warnings, "labels-not-randomised", found=1.0)


def test_a_seed_protects_no_label(tmp_path: Path) -> None:
    data = sorted_by_class(60)
    encoder, _ = Singular().calibrate(Mu(1.0), range_facts(data))
    write_release(tmp_path / "r", data, encoder, (), party="p", stream=SeededStream(0), label_epsilon=1.0)
    assert verify_release(tmp_path / "r").not_promised[0] == "labels-randomised-by-seed"


def test_of_labels_sums_say_only_what_is_noisy(tmp_path: Path) -> None:
    """All records of one class of ten, and the same records of all classes: both manifests say the same. The counts of
    classes that have no record are noisy as well."""
    listed, base = blobs(2000, 2).listed(tuple("0123456789")), fit(features_of(blobs(60, 1)), "a" * 64)
    told: list[Any] = []
    noise = []
    for labels in (torch.zeros(2000).long(), torch.arange(2000) % 10):
        rows = Projected(features_of(replace(listed, labels=labels)), base)
        out = tmp_path / str(len(told))
        write_statistics(out, rows, "b" * 64, 1.0, party="p", stream=SecureStream())
        whole = json.loads((out / "manifest.json").read_text())
        told.append({**whole, "id": "", "created": "", "files": [{**whole["files"][0], "sha256": ""}]})
        found = read_release(out)
        noise.append(found.payload[:, -1] / base.clip - labels.bincount(minlength=10))
    assert told[0] == told[1]
    assert float(torch.stack(noise).abs().min()) > 1e-6 and 0.9 < float(torch.stack(noise).std()) < 3.5  # 2/μ rows


def test_a_projection_that_was_fitted_on_the_labels_protects_none(tmp_path: Path) -> None:
    base = fit(features_of(blobs(60, 1)), "a" * 64, origin="private")
    rows = Projected(features_of(blobs(60, 2)), base)
    encoder, guarantees = Singular().calibrate(Mu(1.0), range_facts(rows))
    with pytest.raises(errors.PrivateFactError, match="shows them"):
        write_release(tmp_path / "r", rows, encoder, guarantees, party="p", stream=SecureStream(), label_epsilon=1.0)
    with pytest.raises(errors.PrivateFactError, match="shows them"):
        write_statistics(tmp_path / "s", rows, "b" * 64, 1.0, party="p", stream=SecureStream())


def test_the_labels_of_a_unit_together_are_spoken_of(tmp_path: Path) -> None:
    data = replace(sorted_by_class(60), units=tuple(str(i // 3) for i in range(60)))
    encoder, guarantees = Singular().calibrate(Mu(1.0), range_facts(data))
    write_release(tmp_path / "r", data, encoder, guarantees, party="p", stream=SecureStream(), label_epsilon=0.5)
    told = not_promised(verify_release(tmp_path / "r"))
    assert [item.code for item in told[:2]] == ["labels-randomised", "labels-of-unit"]
    assert told[1].figures["together"] == 1.5
