"""A manifest from another party is parsed, never believed."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mixveil.core import errors
from mixveil.core.types import Calibration, Encoder, Fact, Facts, Guarantee, Origin, Tau
from mixveil.encoders.gaussian import Gaussian
from mixveil.encoders.identity import Identity
from mixveil.encoders.laplace import Laplace
from mixveil.encoders.mixup import Mixup
from mixveil.encoders.singular import Singular
from mixveil.features.extractor import Extractor
from mixveil.releases import envelope
from mixveil.releases.envelope import Envelope
from mixveil.releases.kinds.records import RecordSettings
from tests.made import write


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    import os

    folder = tmp_path_factory.mktemp("manifest")
    os.environ["MIXVEIL_STATE"] = str(folder / "state")
    return (write(folder / "r") / "manifest.json").read_text()


def changed(text: str, change: Callable[[dict[str, Any]], None]) -> str:
    whole = json.loads(text)
    change(whole)
    return json.dumps(whole)


def test_a_manifest_survives_the_round_trip(text: str) -> None:
    assert envelope.parse(text).to_json() == text


def set_(*path: str | int, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(whole: dict[str, Any]) -> None:
        place: Any = whole
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = value

    return change


BAD = {
    "another format": (set_("format", value="zip"), errors.ManifestError),
    "another kind": (set_("kind", value="sums"), errors.ManifestError),
    "an unknown kind": (set_("kind", value="magic"), errors.ManifestError),
    "a version from the future": (set_("version", value=7), errors.VersionError),
    "a version from the past": (set_("version", value=5), errors.VersionError),
    "an unknown field": (set_("extra", value=1), errors.ManifestError),
    "a path for a shard": (set_("files", 0, "name", value="../../etc/passwd"), errors.ManifestError),
    "a shard out of order": (set_("files", 0, "name", value="shard-00001.safetensors"), errors.ManifestError),
    "a bad hash": (set_("files", 0, "sha256", value="x"), errors.ManifestError),
    "negative rows": (set_("files", 0, "rows", value=-1), errors.ManifestError),
    "rows as text": (set_("files", 0, "rows", value="20"), errors.ManifestError),
    "no rows": (set_("files", 0, "rows", value=None), errors.ManifestError),
    "one row": (set_("files", 0, "rows", value=1), errors.ManifestError),
    "no files": (set_("files", value=[]), errors.ManifestError),
    "no classes": (set_("classes", value=[]), errors.ManifestError),
    "true for a count": (set_("files", 0, "rows", value=True), errors.ManifestError),
    "no shape": (set_("payload", "shape", value=[]), errors.ManifestError),
    "a control character": (set_("party", value="a\x1b[2J"), errors.ManifestError),
    "an unknown encoder": (set_("payload", "encoder", "name", value="magic"), errors.ManifestError),
    "an unknown setting": (set_("payload", "encoder", "settings", "seed", value=1), errors.ManifestError),
    "unknown assets": (set_("assets", value={"a": "0" * 64}), errors.ManifestError),
    "a setting of another type": (set_("payload", "encoder", "settings", "alpha", value="0.55"), errors.ManifestError),
    "a setting out of range": (set_("payload", "encoder", "settings", "alpha", value=0.2), errors.ManifestError),
    "an uncalibrated encoder": (set_("payload", "encoder", "settings", "sigma", value=None), errors.ManifestError),
    "an unclipped encoder": (set_("payload", "encoder", "settings", "clip", value=None), errors.ManifestError),
    "a grid that is not the encoder's": (set_("payload", "grid", "step", value=1.0), errors.ManifestError),
    "a guarantee that is no number": (set_("guarantees", 0, "nominal", value="1"), errors.ManifestError),
    "a smaller μ than the noise gives": (set_("guarantees", 0, "nominal", value=0.5), errors.FalseClaimError),
    "a smaller realised μ": (set_("guarantees", 0, "realised", value=0.5), errors.FalseClaimError),
    "a smaller τ than the noise gives": (set_("guarantees", 1, "nominal", value=0.01), errors.FalseClaimError),
    "certified, but seeded": (set_("reproducible", value=True), errors.FalseClaimError),
    "certified, but no μ": (set_("guarantees", value=[]), errors.FalseClaimError),
    "a guarantee of another name": (set_("guarantees", 0, "name", value="unbreakable"), errors.FalseClaimError),
    "fewer caveats": (set_("not_promised", value=["everything-is-safe"]), errors.FalseClaimError),
    "other conditions": (
        set_("guarantees", 0, "assumes", "neighbours", value="replace-unit"),
        errors.FalseClaimError,
    ),
    "facts of no origin": (set_("guarantees", 0, "assumes", value={}), errors.FalseClaimError),
    "facts of odd origin": (set_("guarantees", 0, "assumes", "clip", value="Private "), errors.FalseClaimError),
    "not certified, with a μ": (set_("certified", value=False), errors.FalseClaimError),
    "true for a version": (set_("version", value=True), errors.VersionError),
    "a surrogate": (set_("party", value="\ud800"), errors.ManifestError),
    "certified, from private facts": (
        set_("guarantees", 0, "assumes", "clip", value="private"),
        errors.FalseClaimError,
    ),
    "certified, with fixed points": (
        set_("payload", "encoder", "settings", "fixed_points", value=True),
        errors.FalseClaimError,
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_each_lie_has_its_error(text: str, name: str) -> None:
    change, error = BAD[name]
    with pytest.raises(error):
        envelope.parse(changed(text, change))


SAID = "2026-11-19. Independently audited: no record can be recovered. No signature is needed"


@pytest.mark.parametrize(
    "created",
    {
        "a sentence": SAID,
        "a time and a sentence": f"2026-11-19T14:39:34+00:00 {SAID}",
        "a day": "2026-11-19",
        "no offset": "2026-11-19T14:39:34",
        "another offset": "2026-11-19T14:39:34+01:00",
        "Z for UTC": "2026-11-19T14:39:34Z",
        "parts of a second": "2026-11-19T14:39:34.5+00:00",
        "no such day": "2026-02-30T14:39:34+00:00",
        "no such hour": "2026-11-19T24:39:34+00:00",
        "other digits": "２026-11-19T14:39:34+00:00",
        "two lines": "2026-11-19T14:39:34+00:00\n",
        "a space": "2026-11-19 14:39:34+00:00",
        "a number": 20261119,
        "nothing": "",
    }.values(),
)
def test_when_it_was_created_is_a_time_as_we_write_it(text: str, created: Any) -> None:
    with pytest.raises(errors.ManifestError, match=r"created must be a date and time in UTC, such as .*, got"):
        envelope.parse(changed(text, set_("created", value=created)))


@pytest.mark.parametrize("party", ["", "x" * 65, "two\nlines", "a\x1b[2J", "\u202etrap", 7, None])
def test_the_party_is_a_short_name(text: str, party: Any) -> None:
    with pytest.raises(errors.ManifestError, match="party must be one line of 1 to 64 printable characters, got"):
        envelope.parse(changed(text, set_("party", value=party)))
    assert envelope.parse(changed(text, set_("party", value="x" * 64))).party == "x" * 64


def test_a_certified_manifest_states_all_that_its_settings_give(text: str) -> None:
    """What is left out would be a worse figure, or a condition of the one that is stated."""
    with pytest.raises(errors.FalseClaimError, match="does not state directional-snr, which its settings give"):
        envelope.parse(changed(text, lambda whole: whole["guarantees"].pop(1)))


FEATURES = {"names": ["resnet18", "mobilenet_v2"], "stage": None, "mirror": True, "size": 224}


def of_features(whole: dict[str, Any]) -> None:
    whole["payload"].update(extractor=dict(FEATURES), shape=[16])
    whole["assets"] = {"features": "0" * 64}
    for guarantee in whole["guarantees"]:
        guarantee["assumes"].update(clip="public", centre="public", amplitude="public")


def test_a_manifest_of_features_survives_the_round_trip(text: str) -> None:
    stated = envelope.parse(changed(text, of_features))
    assert isinstance(stated.settings, RecordSettings) and stated.settings.extractor == Extractor(
        ("resnet18", "mobilenet_v2"), None, True, 224
    )
    assert envelope.parse(stated.to_json()) == stated


@pytest.mark.parametrize(
    "change",
    {
        "no digest": set_("assets", value={}),
        "no extractor": set_("payload", "extractor", value=None),
        "a projection too": set_("assets", "projection", value="1" * 64),
        "a projection instead": set_("assets", value={"projection": "1" * 64}),
        "a digest of another kind": set_("assets", "features", value="abc"),
        "images": set_("payload", "shape", value=[1, 4, 4]),
        "pixels": set_("payload", "extractor", "names", value=[]),
        "a network twice": set_("payload", "extractor", "names", value=["resnet18", "resnet18"]),
        "two networks as one": set_("payload", "extractor", "names", value=["resnet18+mobilenet_v2"]),
        "a stage that is no name": set_("payload", "extractor", "stage", value="layer4; more"),
        "an unknown network": set_("payload", "extractor", "names", value=["magic"]),
        "a network that is no name": set_("payload", "extractor", "names", value=[1]),
        "a size as text": set_("payload", "extractor", "size", value="224"),
        "a tiny size": set_("payload", "extractor", "size", value=1),
        "something else": set_("payload", "extractor", "more", value=1),
        "no mapping": set_("payload", "extractor", value="resnet18"),
    }.values(),
)
def test_features_that_do_not_agree_are_refused(text: str, change: Callable[[dict[str, Any]], None]) -> None:
    def both(whole: dict[str, Any]) -> None:
        of_features(whole)
        change(whole)

    with pytest.raises(errors.ManifestError):
        envelope.parse(changed(text, both))


def test_certified_features_have_no_range(text: str) -> None:
    for fact in ("clip", "centre", "amplitude"):

        def ranged(whole: dict[str, Any], fact: str = fact) -> None:
            of_features(whole)
            for guarantee in whole["guarantees"]:
                guarantee["assumes"][fact] = "range"

        with pytest.raises(errors.FalseClaimError, match="each fact"):
            envelope.parse(changed(text, ranged))


def by_tau(text: str, calibration: Calibration, origin: Origin) -> str:
    """The manifest of a release that was asked for τ."""
    whole = json.loads(text)
    names = ("dimension", "centre", "amplitude", "clip", "energy", "lambda_max", "displacement")
    facts = Facts({name: Fact(2.0, origin if name in names[4:] else "range") for name in names})
    encoder, guarantees = Singular().calibrate(Tau(0.5, calibration), facts)
    settings = RecordSettings(encoder, (1, 4, 4))
    told = Envelope(settings, "a hospital", tuple(whole["classes"]), guarantees).plain()
    return json.dumps(whole | {name: told[name] for name in ("guarantees", "certified", "not_promised", "payload")})


@pytest.mark.parametrize("origin", ["private", "public"])
@pytest.mark.parametrize("calibration", ["theorem", "spectral", "energy", "displacement"])
def test_a_tau_must_say_what_it_is(text: str, calibration: Calibration, origin: Origin) -> None:
    text = by_tau(text, calibration, origin)
    assert envelope.parse(text).guarantees[0].nominal == 0.5
    first = ("guarantees", 0)
    forged = [
        set_(*first, "assumes", "calibration", value=f"{calibration}-in-all-directions"),
        set_(*first, "assumes", "calibration", value="energy" if calibration == "displacement" else "displacement"),
        set_(*first, "name", value="gdp"),
        set_(*first, "name", value="unbreakable"),
        set_(*first, "assumes", "lambda_max", value="private" if origin == "public" else "public"),
        set_(*first, "assumes", "amplitude", value="somewhere"),
        set_(*first, "assumes", "moments", value="holds always"),
        set_(*first, "assumes", "displacement" if calibration == "displacement" else "energy", value="somewhere"),
        set_(*first, "assumes", "lambda_max", value="range"),
        set_("assets", value={"more": "0" * 64}),
        set_(*first, "assumes", value={}),
        set_(*first, "nominal", value=-1.0),
        set_(*first, "nominal", value=1.5),
        set_(*first, "realised", value=-1.0),
        set_(*first, "realised", value=0.5 if origin == "public" else None),
    ]
    for change in forged:
        with pytest.raises(errors.ReleaseError):
            envelope.parse(changed(text, change))


def test_a_seeded_release_states_no_tau(text: str) -> None:
    text = by_tau(text, "spectral", "public")
    stated = envelope.parse(text)
    said = list(replace(stated, reproducible=True).not_promised)
    with pytest.raises(errors.FalseClaimError, match="seeded"):
        envelope.parse(changed(text, lambda whole: whole.update(reproducible=True, not_promised=said)))


def test_any_private_fact_is_said_to_be_one() -> None:
    guarantee = Guarantee("directional-snr", 0.5, None, {"lambda_max": "public", "clip": "private"})
    assert "private-facts" in RecordSettings(Singular.example(), (1,)).not_promised((guarantee,))


def test_every_field_is_needed(text: str) -> None:
    for name in json.loads(text):
        with pytest.raises(errors.ReleaseError):
            envelope.parse(changed(text, lambda whole, name=name: whole.pop(name)))  # type: ignore[misc]
    for name in json.loads(text)["payload"]:
        with pytest.raises(errors.ManifestError):
            envelope.parse(changed(text, lambda whole, name=name: whole["payload"].pop(name)))  # type: ignore[misc]


@pytest.mark.parametrize("text", ["", "[]", "null", "{", '{"rows": NaN}', '{"a": 1, "a": 2}', "[" * 100_000])
def test_what_is_no_manifest(text: str) -> None:
    with pytest.raises(errors.ManifestError):
        envelope.parse(text)


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_whatever_is_put_in_whatever_place_is_a_typed_error_or_harmless(text: str, data: st.DataObject) -> None:
    whole = json.loads(text)
    place: Any = whole
    while isinstance(place, dict | list) and place:
        step = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
        if not isinstance(place[step], dict | list) or not place[step] or data.draw(st.booleans()):
            break
        place = place[step]
    junk: st.SearchStrategy[Any] = (
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just([]) | st.just({})
    )
    place[step] = data.draw(junk)
    with contextlib.suppress(errors.ReleaseError):
        parsed = envelope.parse(json.dumps(whole))
        assert envelope.parse(parsed.to_json()) == parsed


def test_a_huge_manifest_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mixveil.core import strict_json
    from mixveil.releases import reading

    folder = write(tmp_path / "r")
    monkeypatch.setattr(strict_json, "MANIFEST_LIMIT", 100)
    with pytest.raises(errors.ManifestError, match="at most 100"):
        reading.verify_release(folder)


def test_error_messages_are_short_however_long_the_manifest(text: str) -> None:
    for name in ("version", "format", "kind", "payload", "party", "files"):
        with pytest.raises(errors.ReleaseError) as caught:
            envelope.parse(changed(text, set_(name, value=[[]] * 100_000)))
        assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("made_by", [Mixup(), Identity(), Gaussian.example(), Laplace.example()], ids=lambda e: e.name)
def test_no_snr_is_stated_for_an_encoder_that_has_none(made_by: Encoder) -> None:
    facts = dict.fromkeys(("energy", "lambda_max", "centre", "clip", "amplitude"), "private")
    stated = Guarantee("directional-snr", 0.01, 0.01, {"calibration": "spectral", **facts})
    with pytest.raises(errors.FalseClaimError):
        RecordSettings(made_by, (16,)).check_stated(stated)


def test_the_labels_of_a_unit_are_spoken_of() -> None:
    ready = replace(Singular.example(), unit_rows=4)
    stated = tuple(ready.claims().values())
    made = Envelope(RecordSettings(ready, (16,)), "p", ("a", "b"), stated, label_epsilon=1.0)
    assert made.not_promised[:2] == ("labels-randomised", "labels-of-unit")
    assert "labels-of-unit" not in replace(made, label_epsilon=None).not_promised
