"""A part of a release under a ceiling that is of all of its records: no false alarm."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from mixveil.audit.auditing import PROFILES, Profile, audit
from mixveil.core.randomness import SecureStream, SeededStream
from mixveil.core.types import Batch, Mu, Tau, View
from mixveil.data.images import Images, from_tensors
from mixveil.encoders.calibration import calibrate
from mixveil.encoders.singular import Singular
from mixveil.releases.kinds.records import Records
from mixveil.releases.records import traced_in_memory


def scans(n: int, seed: int, share: float) -> Images:
    """Dark, but for a share of bright ones."""
    stream = SeededStream(seed)
    bright = (stream.uniform(n) < share).float().view(-1, 1, 1, 1)
    x = (0.02 * stream.uniform(n, 1, 4, 4) + bright * stream.uniform(n, 1, 4, 4)).clamp(0, 1)
    return from_tensors(x.float(), torch.arange(n) % 3, classes=3)


@pytest.mark.parametrize("share", [0.004, 0.02])  # at the first, half of all parts have no bright one
@pytest.mark.parametrize("seed", range(4))
def test_a_part_without_the_bright_ones_is_no_reason_for_an_alarm(
    seed: int, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PROFILES, "quick", Profile(150, 1 << 23, (2, 6)))
    data = scans(1500, seed, share)
    encoder, guarantees, _ = calibrate(Singular(), Mu(1.0), data, stream=SeededStream(0))
    release, trace = traced_in_memory(data, encoder, guarantees, party="p", stream=SecureStream())
    names = ["lmmse", "lmmse-row", "known"]
    found = audit(View((release,), (trace,), scans(600, 99, share)), data, stream=SeededStream(seed), names=names)
    assert any(row.ceiling is not None for row in found.figures)
    assert not any(row.beaten for row in found.figures)


def test_a_part_whose_rows_have_no_noise_is_an_alarm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PROFILES, "quick", Profile(150, 1 << 23, (2, 6)))
    data = scans(1500, 0, 1.0)
    encoder, guarantees, _ = calibrate(Singular(), Tau(1.0, "energy"), data, stream=SeededStream(0))
    release, trace = traced_in_memory(data, encoder, guarantees, party="p", stream=SecureStream())
    x = encoder.prepare(data.take(torch.arange(1500)).x)
    rows = trace.weight.double()[:, :1] * x + trace.weight.double()[:, 1:] * x[trace.partner[:, 0]]
    payload = Records((Batch(rows.float().view(1500, 1, 4, 4), release.payload.take(torch.arange(1500)).y),), None)
    view = View((replace(release, payload=payload),), (trace,))
    found = audit(view, data, stream=SeededStream(0), names=["known"])
    assert any(row.beaten for row in found.figures)
