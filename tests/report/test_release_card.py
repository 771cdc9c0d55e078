"""Cards of releases: every kind of payload, nothing that the records decide, nothing that a party's names can do."""

from __future__ import annotations

import html
import json
import re
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from statistics import NormalDist
from typing import Any

import jsonschema
import pytest
import torch
from torch import Tensor

import mixveil
from mixveil.core import errors
from mixveil.core.randomness import SecureStream, SeededStream
from mixveil.core.wording.sentences import WORDS
from mixveil.data.images import from_tensors
from mixveil.features.projection import Projected
from mixveil.learn.rounds import head_digest
from mixveil.releases.ledger import Ledger
from mixveil.releases.representations import write_representations
from mixveil.releases.sums import ALONE, Sharing, write_residuals, write_statistics
from mixveil.report import release_card
from mixveil.report.pages import said
from tests.browser import browse
from tests.command import Run, flip
from tests.made import blobs, features_of, images
from tests.notes import codes, holds, read, shows
from tests.releases.test_representations import CLIENT
from tests.releases.test_residual_sums import head_of
from tests.releases.test_updates import written as write_update
from tests.sums import DIGEST, base

SCHEMA = json.loads((files("mixveil.report") / "card.schema.json").read_text())
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)>&\"'"
NORMAL = NormalDist()


def records(seed: int, **given: Any) -> Any:
    """Images whose mean and variance depend on the seed."""
    made = images(20, seed=seed)
    x, y = made.take(torch.arange(20))
    return from_tensors(x / seed, y.argmax(1), classes=4, **given)


def encoded(out: Path, which: int, **given: Any) -> None:
    mixveil.encode(replace(records(which), declared=True), out, party="a hospital", **given)


def summed(seed: int) -> Projected:
    return Projected(features_of(replace(blobs(60, seed), declared=True)), base())


def sums(out: Path, seed: int, sharing: Sharing = ALONE) -> None:
    write_statistics(out, summed(seed), DIGEST, 1.0, party="p", stream=SecureStream(), sharing=sharing)


def one_round(out: Path, seed: int) -> None:
    rows = summed(seed)
    head = head_of(rows)
    write_residuals(out, rows, DIGEST, head, head_digest(head), 0.1, 0.5, party="p", stream=SecureStream())


def weights(seed: int) -> dict[str, Tensor]:
    stream = SeededStream(seed)
    return {"scores.weight": stream.normal(4, 16).float(), "scores.bias": stream.normal(4).float()}


KINDS: dict[str, Callable[[Path, int], Any]] = {
    "certified": lambda out, seed: encoded(out, seed, mu=1.0),
    "gaussian": lambda out, seed: encoded(out, seed, mu=1.0, encoder="gaussian"),
    "tau": lambda out, seed: encoded(out, seed, tau=0.1),
    "not-kept": lambda out, seed: encoded(out, seed, tau=0.1, calibration="energy"),
    "seeded": lambda out, seed: encoded(out, seed, mu=1.0, seed=1),
    "laplace": lambda out, seed: encoded(out, seed, encoder="laplace"),
    "mixup": lambda out, seed: encoded(out, seed, encoder="mixup"),
    "labels-alone": lambda out, seed: encoded(out, seed, encoder="identity", label_epsilon=2.0),
    "instahide": lambda out, seed: encoded(out, seed, encoder="instahide"),
    "identity": lambda out, seed: encoded(out, seed, encoder="identity"),
    "sums": sums,
    "shared": lambda out, seed: sums(out, seed, Sharing(3, mask=lambda indices: indices + 7)),
    "round": one_round,
    "updates": lambda out, seed: write_update(out, records(seed).part(torch.arange(6)), weights(seed)),
    "representations": lambda out, seed: write_representations(
        out, images(20, seed=seed), CLIENT, labelled=False, party="p"
    ),
}


def both(tmp_path: Path, kind: str, **given: Any) -> tuple[dict[str, Any], str]:
    """The card of a release of this kind, as data and as a page without its markup."""
    KINDS[kind](tmp_path / "r", 1)
    made = mixveil.card(tmp_path / "r", tmp_path / "card", **given)
    assert made.page is not None and json.loads((tmp_path / "card" / "card.json").read_text()) == made.whole
    return dict(made.whole), html.unescape(re.sub(r"<[^>]+>", "", made.page.read_text()))


def told(whole: Any) -> Iterator[dict[str, Any]]:
    """All notes of a card."""
    if isinstance(whole, dict) and "code" in whole:
        yield whole
    elif isinstance(whole, dict | list):
        for inner in whole.values() if isinstance(whole, dict) else whole:
            yield from told(inner)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_payload_has_a_card(tmp_path: Path, kind: str) -> None:
    whole, text = both(tmp_path, kind, note="see the audit of 3 March")
    jsonschema.validate(whole, SCHEMA)
    stated = mixveil.verify(tmp_path / "r").stated
    said_so = list(told(whole))
    assert codes(read(said_so)) <= {*WORDS} and len(said_so) > 8
    assert all(said(item).casefold() in text.casefold() for item in said_so)
    assert stated.id in text and all(file.sha256 in text for file in stated.files) and whole["note"] in text
    unpromised = [item["code"] for item in whole["not_promised"]]
    assert unpromised[: len(stated.not_promised)] == list(stated.not_promised)
    assert whole["release"]["certified"] == stated.certified == (whole["state"]["code"] == "card-certified")
    assert [item["mu"] is not None for item in whole["promised"]] == [
        of.name.startswith("gdp") for of in stated.guarantees
    ]
    assert (whole["leaves"]["bytes"], whole["ledger"]) == (stated.bytes, None) and "mixveil 0" in text
    assert (whole["state"]["code"] == "card-nothing") == (whole["assumed"] == [{"code": "assumed-nothing"}])
    assert (whole["state"]["code"] == "card-labels-alone") == (kind == "labels-alone")
    assert (whole["labels"]["protected"] == "unprotected") == (stated.label_cost is None)
    for wrong in ({"more": 1}, {"cost": ["It costs nothing."]}):  # no English: codes and figures
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**whole, **wrong}, SCHEMA)


def differences(one: Any, other: Any, place: str = "") -> set[str]:
    """Where two cards differ."""
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        return {found for name in one for found in differences(one[name], other[name], f"{place}.{name}")}
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return {found for a, b in zip(one, other, strict=True) for found in differences(a, b, place)}
    return set() if one == other else {place}


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_on_a_card_follows_from_the_records(tmp_path: Path, kind: str) -> None:
    """Two data sets, the same settings: only what every recipient can compute of the bytes is another."""
    cards, manifests = [], []
    for seed in (1, 2):
        KINDS[kind](tmp_path / f"{seed}", seed)
        cards.append(dict(mixveil.card(tmp_path / f"{seed}", tmp_path / f"card{seed}").whole))
        manifests.append(json.loads((tmp_path / f"{seed}" / "manifest.json").read_text()))
    public = {".release.id", ".release.created", ".release.manifest_sha256", ".leaves.files.sha256", ".made.at"}
    assert {".release.id", ".leaves.files.sha256"} <= differences(cards[0], cards[1]) <= public
    pages = []
    for seed, whole in zip((1, 2), cards, strict=True):
        page, release = (tmp_path / f"card{seed}" / "card.html").read_text(), whole["release"]
        own = [release["id"], release["id"][:8], release["manifest_sha256"], release["created"], whole["made"]["at"]]
        for value in [*own, *(file["sha256"] for file in whole["leaves"]["files"])]:
            page = page.replace(value, "")
        pages.append(page)
    assert pages[0] == pages[1]
    if kind in ("tau", "not-kept", "laplace"):  # there the manifests tell of the records, and the test would see it
        found = {
            place for place in differences(manifests[0], manifests[1]) if place.startswith((".payload", ".guarantees"))
        }
        assert found


@pytest.mark.parametrize("kind", ["certified", "gaussian", "sums", "shared", "round"])
def test_members_are_told_from_outsiders_of_the_same_label_unless_mu_covers_labels(tmp_path: Path, kind: str) -> None:
    whole, text = both(tmp_path, kind)
    covered = whole["labels"]["protected"] == "covered"
    assert covered == (kind in ("sums", "shared", "round"))
    assert shows(text, "members-meaning" if covered else "members-meaning-of-label")
    said = codes(read([whole["promised"][0]["said"]]))
    assert ("card-gdp-record" if covered else "card-gdp-record-of-label") in said


@pytest.mark.parametrize("kind", ["certified", "gaussian", "sums", "shared", "round"])
def test_a_card_of_what_is_certified_says_what_is_never_promised_and_explains_its_terms(
    tmp_path: Path, kind: str
) -> None:
    whole, text = both(tmp_path, kind)
    told = codes(read(whole["not_promised"]))
    never = {"never-group", "never-at-several", "never-harm", "never-recalled", "never-law", "never-large-mu"}
    assert {*never, "never-hidden-records", "not-encryption", "unit-is-record"} <= told
    assert ("labels-shown" in told) == (kind in ("certified", "gaussian"))
    assert "-GDP" not in text and "Gaussian differential privacy" in text and shows(text, "epsilon-meaning")
    conditions = codes(read([item for of in whole["promised"] for item in of["conditions"]]))
    assert ("knows-all-else" in conditions) == (kind == "certified")
    assert ("knows-all-other-records" in conditions) == (kind != "certified")


@pytest.mark.parametrize("kind", ["tau", "seeded", "identity"])
def test_where_nothing_is_certified_there_is_no_list_of_what_is_never_promised(tmp_path: Path, kind: str) -> None:
    whole, _ = both(tmp_path, kind)
    assert not any(item["code"].startswith("never-") for item in whole["not_promised"])


def test_a_large_mu_is_warned_of_at_the_top_and_where_a_release_is_verified(tmp_path: Path, run: Run) -> None:
    encoded(tmp_path / "r", 1, mu=6.0)
    page = mixveil.card(tmp_path / "r", tmp_path / "card").page
    assert page is not None
    text = page.read_text()
    assert 0 < text.index('class="warning"') < text.index('<h2 id="leaves">') and text.count('class="warning"') == 1
    assert shows(run("verify", tmp_path / "r").err, "meaningless-mu", mu=6.0)
    assert holds(read(run("verify", tmp_path / "r", "--json").json["warnings"]), "meaningless-mu", mu=pytest.approx(6))
    encoded(tmp_path / "small", 1, mu=1.0)
    assert not run("verify", tmp_path / "small").err and not mixveil.verify(tmp_path / "small").warnings


def test_figures_of_a_promise(tmp_path: Path) -> None:
    whole, text = both(tmp_path, "certified", recipient="a server")
    promised = whole["promised"][0]
    assert promised["mu"] == 1.0 and promised["members_found"] == pytest.approx(NORMAL.cdf(NORMAL.inv_cdf(0.01) + 1))
    epsilon = promised["epsilon"]
    delta = NORMAL.cdf(0.5 - epsilon) - 2.718281828459045**epsilon * NORMAL.cdf(-0.5 - epsilon)
    assert delta == pytest.approx(1e-5, rel=1e-6) and promised["delta"] == 1e-5
    assert "4.38" in text and "9.24" in text and "party" not in whole["release"]["recipient"] and "→ a server" in text
    assert {"replace-record", "knows-all-else", "gaussian-exact", "facts-range"} == codes(read(promised["conditions"]))
    assert not promised["warnings"] and whole["leaves"]["unit"] == {"of": "record", "most_rows": 1}
    encoder = mixveil.verify(tmp_path / "r").stated.settings.encoder  # type: ignore[attr-defined]
    together = 2 * encoder.clip / encoder.sigma / (1 - encoder.alpha)
    cost = read(whole["cost"])
    assert holds(cost, "cost-mu", unit="record", mu=1.0, two=pytest.approx(2**0.5))
    assert holds(cost, "cost-several", two=pytest.approx(together * 2**0.5), ten=pytest.approx(together * 10**0.5))
    assert (whole["leaves"]["rows"], whole["leaves"]["values_per_row"]) == (20, 16)
    assert holds(read(whole["leaves"]["made"]), "made-singular", clip=encoder.clip, sigma=encoder.sigma)


def test_sums_units_labels_and_large_mu(tmp_path: Path) -> None:
    whole, _ = both(tmp_path, "sums")
    leaves, cost = whole["leaves"], read(whole["cost"])
    assert (leaves["rows"], leaves["values_per_row"], whole["labels"]["protected"]) == (3, 7, "covered")
    assert holds(cost, "cost-several", two=pytest.approx(2), ten=pytest.approx(10))
    assert "cost-labels-covered" in codes(cost)
    KINDS["shared"](tmp_path / "shared", 1)
    shared = mixveil.card(tmp_path / "shared").whole
    assert [item["mu"] for item in shared["promised"]] == [1.0, pytest.approx(3**0.5)]
    assert holds(read(shared["assumed"]), "assumed-honest", honest=3)
    assert "checked-masked" in codes(read(shared["checked"])) and "checked-sums" in codes(read(whole["checked"]))
    data = replace(records(1, units=[f"p{row // 2}" for row in range(20)]), declared=True)
    mixveil.encode(data, tmp_path / "u", mu=6.0, label_epsilon=2.0)
    of_units = mixveil.card(tmp_path / "u").whole
    assert of_units["leaves"]["unit"] == {"of": "unit", "most_rows": 2}
    assert of_units["labels"]["protected"] == "randomised" and of_units["labels"]["epsilon"] == 2.0
    assert holds(read(of_units["cost"]), "cost-mu", unit="unit") and "cost-several" not in codes(read(of_units["cost"]))
    assert holds(read(of_units["promised"][0]["warnings"]), "meaningless-mu", mu=6.0)
    assert "replace-unit-randomised" in codes(read(of_units["promised"][0]["conditions"]))
    assert "cost-with-labels" in codes(read(of_units["cost"])) and "assumed-units" in codes(read(of_units["assumed"]))
    assert "assumed-roster" in codes(read(shared["assumed"])) and "assumed-roster" not in codes(read(whole["assumed"]))


def test_randomised_labels_cost_beside_mu_and_are_not_called_public(tmp_path: Path) -> None:
    encoded(tmp_path / "r", 1, mu=1.0, label_epsilon=0.5)
    whole = mixveil.card(tmp_path / "r").whole
    conditions, cost = (codes(read(part)) for part in (whole["promised"][0]["conditions"], whole["cost"]))
    assert "replace-record-randomised" in conditions and "replace-record" not in conditions
    assert {"cost-labels-randomised", "cost-with-label", "cost-several", "cost-several-labels"} <= cost
    assert holds(read(whole["cost"]), "cost-several-labels", two=1.0, ten=5.0)
    KINDS["labels-alone"](tmp_path / "alone", 1)
    alone = mixveil.card(tmp_path / "alone").whole
    assert "cost-with-label" not in codes(read(alone["cost"])) and "cost-several-labels" in codes(read(alone["cost"]))


@pytest.mark.parametrize(
    "kind", ["certified", "gaussian", "tau", "seeded", "mixup", "labels-alone", "sums", "shared", "round", "updates"]
)
def test_what_a_signer_can_break_is_assumed_where_something_is_promised(tmp_path: Path, kind: str) -> None:
    """A choice by what was found on the records, and a machine that is watched, void every promise that is certified or
    of labels."""
    whole, _ = both(tmp_path, kind)
    promised = whole["release"]["certified"] or kind == "labels-alone"
    told = codes(read(whole["assumed"]))
    assert ({"assumed-not-chosen", "assumed-not-watched"} <= told) == promised
    assert ("assumed-roster" in told) == (kind == "shared") and "assumed-units" not in told


def test_a_tau_is_shown_as_what_was_asked_for_and_is_not_certified(tmp_path: Path) -> None:
    whole, text = both(tmp_path, "not-kept")
    (stated,) = whole["promised"]
    assert stated["certified"] is False and stated["said"]["code"] == "snr-asked-not-kept" and stated["mu"] is None
    assert "tau-is-no-epsilon" in codes(read(stated["conditions"])) and "realised" not in stated
    realised = mixveil.verify(tmp_path / "r").stated.guarantees[0].realised
    assert realised is not None and f"{realised:.3g}" not in text
    assert {"cost-unbounded", "cost-labels-unbounded"} <= codes(read(whole["cost"]))


def test_the_total_of_the_ledger_is_there_only_where_it_is_asked_for(tmp_path: Path) -> None:
    mixveil.encode(records(1), tmp_path / "r", mu=1.0, recipient="a server")
    mixveil.encode(records(2), tmp_path / "other", mu=1.0)
    plain = mixveil.card(tmp_path / "r", tmp_path / "plain")
    private = mixveil.card(tmp_path / "r", tmp_path / "private", ledger=Ledger())
    assert plain.whole["ledger"] is None and plain.whole["release"]["recipient"] is None
    assert private.whole["release"]["recipient"] == "a server"
    jsonschema.validate(private.whole, SCHEMA)
    found = private.whole["ledger"]
    assert (found["releases"], found["mu"]) == (2, pytest.approx(2**0.5))
    assert codes(read(found["said"])) == {"cost-ledger", "labels-shown-before", "cost-ledger-knows"}
    for made, mode in ((plain, 0o644), (private, 0o600)):
        assert made.page is not None and stat.S_IMODE(made.page.stat().st_mode) == mode
        assert (' class="private"' in made.page.read_text()) == (mode == 0o600)
    encoded(tmp_path / "open", 3, encoder="identity")
    elsewhere = mixveil.card(tmp_path / "open", ledger=Ledger(tmp_path / "none")).whole["ledger"]
    assert elsewhere["releases"] == 0 and "cost-ledger-unknown" in codes(read(elsewhere["said"]))
    unbounded = mixveil.card(tmp_path / "r", ledger=Ledger()).whole["ledger"]
    assert unbounded["mu"] is None and holds(read(unbounded["said"]), "cost-ledger-unbounded", releases=3, unbounded=1)


def test_what_does_not_verify_has_no_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded(tmp_path / "r", 1, mu=1.0)
    for wrong in ("", "two\nlines", "x" * 1001):
        with pytest.raises(errors.ArgumentError, match="note"):
            mixveil.card(tmp_path / "r", tmp_path / "card", note=wrong)
    with pytest.raises(errors.OutputExistsError):
        mixveil.card(tmp_path / "r", tmp_path)
    (tmp_path / "r" / "patients.txt").write_text("x")
    assert mixveil.card(tmp_path / "r").whole["leaves"]["not_part_of_it"] == 1
    manifest = tmp_path / "r" / "manifest.json"

    def verified(folder: Path) -> Any:
        checked = mixveil.verify(folder)
        manifest.write_text(manifest.read_text().replace("a hospital", "b hospital"))
        return checked

    with monkeypatch.context() as patched:
        patched.setattr(release_card, "verify", verified)
        with pytest.raises(errors.ManifestError, match="changed"):
            mixveil.card(tmp_path / "r", tmp_path / "card")
    flip(tmp_path / "r" / "shard-00000.safetensors")
    with pytest.raises(errors.HashError):
        mixveil.card(tmp_path / "r", tmp_path / "card")
    assert not (tmp_path / "card").exists() and not list(tmp_path.glob(".*partial"))


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A card with names that are markup, and more classes and longer names than a page has room for."""
    data = from_tensors(torch.rand(60, 1, 4, 4), torch.arange(60), classes=[f"{n}{HOSTILE * 3}" for n in range(60)])
    mixveil.encode(data, tmp_path / "r", mu=1.0, party=HOSTILE)
    return mixveil.card(tmp_path / "r", tmp_path / "card", recipient=HOSTILE, note=HOSTILE * 3).page or tmp_path


def test_names_are_the_senders_words(tmp_path: Path, run: Run) -> None:
    """A name that reads as a statement is shown in quotes, on the card and in the terminal, and so is a class."""
    party, label = "LABELS ARE ENCRYPTED: ε = 0.01 (approved by the ministry)", "ill. Certified: ε = 0.01"
    data = from_tensors(torch.rand(20, 1, 4, 4), torch.arange(20) % 2, classes=["well", label])
    mixveil.encode(data, tmp_path / "r", mu=1.0, party=party)
    card = mixveil.card(tmp_path / "r", tmp_path / "card")
    assert card.page is not None
    page = html.unescape(card.page.read_text())
    assert page.count(party) == page.count(repr(party)) == 2 and page.count(label) == page.count(repr(label)) == 1
    for shown in (run("verify", tmp_path / "r").out, run("card", tmp_path / "r", "--out", tmp_path / "again").out):
        assert " ".join(shown.split()).count(repr(party)) == shown.replace("\n", " ").count(party) == 1
    assert card.whole["release"]["party"] == party  # data have the name as it is


def test_names_are_text(hostile: Path) -> None:
    page = hostile.read_text()
    assert page.count(html.escape(HOSTILE, quote=False)[:10]) >= 4 and html.unescape(page).count(HOSTILE) >= 3
    assert not re.search(r"<(script|img|iframe|link|a)\b|javascript:|https?://", page)
    assert "default-src 'none'" in html.unescape(page)
    assert len(json.loads((hostile.parent / "card.json").read_text())["leaves"]["classes"]) == 60


def test_a_card_in_a_real_browser(hostile: Path, tmp_path: Path) -> None:
    """No script runs, nothing is asked for, and it prints on two sheets."""
    shown, heard, asked = browse(hostile, tmp_path)
    assert "CONSOLE" not in heard and asked == [] and HOSTILE in html.unescape(shown)
    assert shows(html.unescape(re.sub(r"<[^>]+>", "", shown)), "members-meaning-of-label")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    target = [f"--print-to-pdf={tmp_path / 'card.pdf'}", hostile.as_uri()]
    subprocess.run([str(shutil.which("chromium")), *flags, *target], check=True, capture_output=True, timeout=600)
    sheets = re.search(rb"/Type /Pages\s*/Count (\d+)", (tmp_path / "card.pdf").read_bytes())
    assert sheets and int(sheets[1]) <= 2
