"""Rows that show too much are dropped before anything is written, and nothing is promised that it would make false."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from mixveil.audit.guarantees_found import unit_faults
from mixveil.audit.truth import rows_first
from mixveil.core import errors
from mixveil.core.randomness import SecureStream, SeededStream, Stream
from mixveil.core.types import Encoder, Guarantee, Mu, Tau, View
from mixveil.data import similarity
from mixveil.data.images import Images
from mixveil.data.opening import open_data
from mixveil.data.row_views import Subset
from mixveil.encoders.calibration import calibrate
from mixveil.encoders.gaussian import Gaussian
from mixveil.encoders.identity import Identity
from mixveil.encoders.mixup import Mixup
from mixveil.encoders.singular import Singular
from mixveil.releases import records
from mixveil.releases.envelope import parse
from mixveil.releases.kinds.records import OVER_ALL, of_all_rows
from mixveil.releases.ledger import Ledger
from mixveil.releases.reading import read_release, verify_release
from mixveil.releases.records import write_release
from mixveil.releases.screening import Metric, Screen, Screening
from mixveil.releases.traces import load_trace, trace_path
from tests.made import encoded, features_of, images, range_facts

SSIM = Screen("ssim", 0.6)


def calibrated(data: Images, tau: float = 1.0) -> tuple[Encoder, tuple[Guarantee, ...]]:
    encoder, guarantees, _ = calibrate(Singular(), Tau(tau, "energy"), data, stream=SeededStream(0))
    return encoder, guarantees


def write(
    out: Path,
    data: Any,
    screen: Screen | None = SSIM,
    stream: Stream | None = None,
    lpips: Callable[[Tensor, Tensor], Tensor] | None = None,
) -> Path:
    encoder, guarantees = calibrated(data)
    write_release(
        out, data, encoder, guarantees, party="p", stream=stream or SecureStream(), screen=screen, lpips=lpips
    )
    return out


@pytest.mark.parametrize("text", ["lpips:0.7", "ssim:-0.25", "snr:20", "snr:-3.5", "lpips:0.1234567890123"])
def test_a_screen_is_written_as_it_is_read(text: str) -> None:
    assert str(Screen.parse(text)) == text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("lpips", "METRIC:THRESHOLD"),
        ("lpips:", "METRIC:THRESHOLD"),
        ("lpips:much", "METRIC:THRESHOLD"),
        ("psnr:3", "one of lpips, ssim, snr, got 'psnr'"),
        (":3", "one of lpips"),
        ("lpips:0", "must be positive"),
        ("lpips:inf", "must be positive"),
        ("ssim:1", r"in \(-1, 1\), got 1.0"),
        ("ssim:nan", r"in \(-1, 1\)"),
        ("snr:inf", "must be finite"),
        ("snr:nan", "must be finite"),
    ],
)
def test_a_screen_that_means_nothing_is_refused(text: str, said: str) -> None:
    with pytest.raises(errors.ArgumentError, match=said):
        Screen.parse(text)


def test_a_row_is_kept_only_by_a_figure_that_says_so() -> None:
    figures = torch.tensor([0.4, 0.5, 0.6, float("nan")])
    assert Screen("lpips", 0.5).keeps(figures).tolist() == [False, True, True, False]
    assert Screen("ssim", 0.5).keeps(figures).tolist() == [True, True, False, False]
    assert Screen("snr", 0.5).keeps(figures).tolist() == [True, True, False, False]


def apart(truth: Tensor, guess: Tensor) -> Tensor:
    """A distance in the place of LPIPS."""
    return (truth - guess).square().mean((1, 2, 3)).sqrt()


@pytest.mark.parametrize("k", [None, 2, 3])
@pytest.mark.parametrize("metric", ["lpips", "ssim", "snr"])
def test_every_row_is_compared_with_all_its_sources(k: int | None, metric: Metric) -> None:
    """Against one row and one source at a time, on values beyond [0, 1], at a threshold for half of them."""
    data = images(40, (1, 8, 8))
    wide = replace(data, read=lambda rows: 6 * data.read(rows) - 2, low=-2.0, high=4.0)
    encoder: Encoder = Singular().calibrate(Mu(20.0), range_facts(wide))[0] if k is None else Mixup(k=k)
    made, trace = encoded(encoder, wide, SeededStream(2))
    measure = {"lpips": apart, "ssim": similarity.ssim, "snr": similarity.snr_db}[metric]
    index, sign = torch.arange(40), 1 if metric == "lpips" else -1  # larger is safer
    figures = []
    for row in range(40):
        value = made.payload.take(index[row : row + 1]).x.double() + (1.0 if k is None else 0.0)  # the centre
        picture = (value.clamp(-2, 4) + 2) / 6
        sources = [wide.take(torch.tensor([i])).x.double() for i in (row, *trace.partner[row].tolist())]
        figures.append([sign * float(measure((source + 2) / 6, picture)) for source in sources])
    worst = torch.tensor([min(row) for row in figures])
    middle = float(worst.sort().values[19:21].mean())
    screening = Screening(Screen(metric, sign * middle), wide, encoder, apart)
    stored = made.payload.shards[0].x
    for part in (index[10:], index[:10]):
        assert torch.equal(screening.look(part, trace, stored[part]), worst[part] >= middle)
    assert torch.equal(screening.kept, worst >= middle)
    own = torch.tensor([row[0] for row in figures])
    assert not torch.equal(own >= middle, worst >= middle)  # partners are shown, too


def test_a_bare_record_shows_itself() -> None:
    data = images(10, (1, 8, 8))
    _, trace = encoded(Identity(), data, SeededStream(0))
    for screen in (Screen("ssim", 0.99), Screen("snr", 100.0), Screen("lpips", 1e-9)):
        kept = Screening(screen, data, Identity(), apart).look(torch.arange(10), trace, data.take(torch.arange(10)).x)
        assert not bool(kept.any())


def test_what_is_written_is_what_is_left_of_the_same_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same seed without a screen makes the same rows; a shard of which nothing is left does not count."""
    data = images(90, (1, 4, 4))
    monkeypatch.setattr(records, "SHARD_BYTES", 1000)
    monkeypatch.setattr(records, "_BLOCK_ELEMENTS", 64)
    x = data.take(torch.arange(90)).x.double()

    def distance(truth: Tensor, guess: Tensor) -> Tensor:
        """Whoever is made with one of the records 20 to 50 shows it."""
        assert truth.shape == guess.shape and truth.shape[1:] == (1, 4, 4)
        assert float(guess.min()) >= 0 and float(guess.max()) <= 1
        hidden = (truth[:, None] == x[None, 20:50]).flatten(2).all(2).any(1)
        return torch.where(hidden, 0.0, 1.0)

    whole = read_release(write(tmp_path / "whole", data, None, SeededStream(5))).payload
    screened = read_release(write(tmp_path / "left", data, Screen("lpips", 0.7), SeededStream(5), distance))
    trace = load_trace(screened.id, len(screened.payload))
    assert trace is not None and trace.kept is not None
    partner = trace.partner[:, 0]
    want = torch.tensor([not (20 <= i < 50 or 20 <= int(partner[i]) < 50) for i in range(90)])
    assert torch.equal(trace.kept, want)
    got, all_rows = screened.payload.take(torch.arange(int(want.sum()))), whole.take(torch.arange(90))
    assert torch.equal(got.x, all_rows.x[want]) and torch.equal(got.y, all_rows.y[want])
    stated = json.loads((tmp_path / "left" / "manifest.json").read_text())
    assert len(stated["files"]) == len(list((tmp_path / "left").glob("*.safetensors")))
    assert len(list((tmp_path / "left").iterdir())) < len(list((tmp_path / "whole").iterdir()))
    assert stated["payload"]["screened"] == {"metric": "lpips", "threshold": 0.7, "records": 90}
    assert screened.records == 90 and len(screened) == int(want.sum())


def test_a_reader_is_told(tmp_path: Path) -> None:
    data = images(60, (1, 8, 8))
    stated = verify_release(write(tmp_path / "r", data))
    assert 2 <= stated.rows < 60 and "rows-dropped" in stated.not_promised and not stated.certified
    assert [guarantee.assumes["rows"] for guarantee in stated.guarantees] == [OVER_ALL]
    entry = Ledger().entries()[0]
    assert entry.rows == 60 and entry.cost is None and entry.finished  # the dropped ones count: others' rows hold them


def test_too_few_rows_are_no_release_and_the_try_counts(tmp_path: Path) -> None:
    with pytest.raises(errors.ScreenedOutError, match=r"ssim:-0\.99 leaves 0 of 30.*the try counts"):
        write(tmp_path / "r", images(30, (1, 8, 8)), Screen("ssim", -0.99))
    (entry,) = Ledger().entries()
    assert entry.rows == 30 and not entry.finished
    assert not list(tmp_path.glob("*r*/*")) and not trace_path(entry.id).exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["state"]


def test_what_does_not_go_with_a_screen_is_refused_before_it_is_entered(tmp_path: Path) -> None:
    data = images(30, (1, 8, 8))

    def refused(
        match: str,
        rows: Any = data,
        encoder: Encoder | None = None,
        error: type[errors.MixveilError] = errors.ArgumentError,
        **more: Any,
    ) -> None:
        ready, guarantees = calibrated(data)
        arguments = {"guarantees": guarantees, "screen": SSIM, **more}
        with pytest.raises(error, match=match):
            write_release(tmp_path / "r", rows, encoder or ready, party="p", stream=SecureStream(), **arguments)
        assert not Ledger().entries() and not (tmp_path / "r").exists()

    for certified in (Singular(), Gaussian()):
        encoder, guarantees = certified.calibrate(Mu(1.0), range_facts(data))
        refused("with mu", encoder=encoder, guarantees=guarantees, error=errors.PrivateFactError)
    refused("with label_epsilon", label_epsilon=1.0, error=errors.PrivateFactError)
    refused("for pixels", rows=features_of(data))
    refused("needs the distance lpips", screen=Screen("lpips", 0.7))
    refused("two figures", screen=Screen("lpips", 0.7), lpips=lambda a, b: (a - b).mean())


Change = Callable[[dict[str, Any]], Any]
BAD: dict[str, tuple[Change, type[Exception], str]] = {
    "more rows than records": (
        lambda whole: whole["payload"]["screened"].update(records=3),
        errors.ManifestError,
        "screened.records is 3",
    ),
    "an unknown metric": (
        lambda whole: whole["payload"]["screened"].update(metric="mse"),
        errors.ManifestError,
        "one of lpips",
    ),
    "a threshold of nothing": (
        lambda whole: whole["payload"]["screened"].update(threshold=2),
        errors.ManifestError,
        r"in \(-1, 1\)",
    ),
    "one field more": (
        lambda whole: whole["payload"]["screened"].update(more=1),
        errors.ManifestError,
        "unknown 'more'",
    ),
    "no word of it": (lambda whole: whole["payload"].pop("screened"), errors.ManifestError, "missing screened"),
    "not screened after all": (
        lambda whole: whole["payload"].update(screened=None),
        errors.FalseClaimError,
        "assumes.rows",
    ),
    "an average of the rows that are left": (
        lambda whole: whole["guarantees"][0]["assumes"].pop("rows"),
        errors.FalseClaimError,
        "assumes.rows",
    ),
    "no caveat": (lambda whole: whole["not_promised"].remove("rows-dropped"), errors.FalseClaimError, "not_promised"),
    "features": (lambda whole: whole["payload"].update(shape=[64]), errors.ManifestError, "it is for pixels"),
    "randomised labels": (lambda whole: whole.update(label_epsilon=1.0), errors.FalseClaimError, "label_epsilon"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_manifest_that_does_not_say_it_is_refused(name: str, tmp_path: Path) -> None:
    text = (write(tmp_path / "r", images(60, (1, 8, 8))) / "manifest.json").read_text()
    assert parse(text).to_json() == text
    change, kind, said = BAD[name]
    whole = json.loads(text)
    change(whole)
    with pytest.raises(kind, match=said):
        parse(json.dumps(whole))


def test_a_certificate_with_dropped_rows_is_refused(tmp_path: Path) -> None:
    data = images(30, (1, 8, 8))
    encoder, guarantees = Singular().calibrate(Mu(1.0), range_facts(data))
    write_release(tmp_path / "r", data, encoder, guarantees, party="p", stream=SecureStream())
    whole = json.loads((tmp_path / "r" / "manifest.json").read_text())
    whole["payload"]["screened"] = {"metric": "ssim", "threshold": 0.5, "records": 40}
    whole["guarantees"] = [asdict(stated) for stated in of_all_rows(guarantees)]
    whole["not_promised"].insert(3, "rows-dropped")
    with pytest.raises(errors.FalseClaimError, match="mu cannot be certified"):
        parse(json.dumps(whole))


def test_a_trace_must_say_as_many_rows_as_the_release_has(tmp_path: Path) -> None:
    stated = verify_release(write(tmp_path / "r", images(60, (1, 8, 8))))
    assert load_trace(stated.id, stated.rows) is not None
    for rows in (60, stated.rows - 1):
        with pytest.raises(errors.StateError, match=f"release of {rows} rows"):
            load_trace(stated.id, rows)


def test_digits_that_show_less_are_what_is_left(tmp_path: Path) -> None:
    """What a screen is for: the rows that are left are less like their records, for all of them."""
    data = Subset(open_data("digits"), torch.arange(300))
    left = read_release(write(tmp_path / "r", data, Screen("ssim", 0.5)))
    trace = load_trace(left.id, len(left.payload))
    assert trace is not None and trace.kept is not None and 20 < len(left.payload) < 280
    rows = left.encoder.restore(left.payload.take(torch.arange(len(left.payload))).x.double()).clamp(0, 1)
    for source in (trace.kept.nonzero()[:, 0], trace.partner[trace.kept, 0]):
        assert float(similarity.ssim(data.take(source).x, rows).max()) <= 0.5 + 1e-6


def test_units_are_found_apart_in_what_is_left(tmp_path: Path) -> None:
    """Which record a row is of must not be lost where rows are dropped: a pair within a unit would be a false alarm."""
    data = replace(images(60, (1, 8, 8)), units=tuple(str(i // 2) for i in range(60)))
    left = read_release(write(tmp_path / "r", data))
    trace = load_trace(left.id, len(left.payload))
    assert trace is not None and trace.kept is not None and left.encoder.unit_rows == 2
    assert unit_faults(*rows_first(View((left,), (trace,)), data)) == []
    row = int(trace.kept.nonzero()[0])
    trace.partner[row] = row ^ 1
    (fault,) = unit_faults(*rows_first(View((left,), (trace,)), data))
    assert fault.code == "units-paired" and fault.figures["rows"] == 1
