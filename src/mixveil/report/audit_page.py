"""From an Audit to files for its owner: `audit.json`, the pictures, and one self-contained HTML page.

They show private pictures. They are written readable by their owner only, and are not for sending.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from jinja2 import TemplateError
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from mixveil.audit.answer import MILD
from mixveil.audit.figures import attack_title, caption, promise_caption
from mixveil.audit.found import Audit
from mixveil.audit.metrics.catalogue import METRICS
from mixveil.audit.metrics.detection import Roc
from mixveil.audit.own_releases import Audited
from mixveil.audit.sweep import Swept
from mixveil.audit.thumbnails import LARGEST, released, shrunk
from mixveil.core import files, strict_json, tensor_files
from mixveil.core.errors import DataFormatError, ReleaseError, UnreadableFileError
from mixveil.core.wording.sentences import plural
from mixveil.data.similarity import mse
from mixveil.report import sweep_section as sweeps
from mixveil.report.pages import environment
from mixveil.report.pictures import png, roc
from mixveil.theory.gdp import member_tpr

FORMAT = "mixveil-audit"
VERSION = 4
_SHOWN = 8
_CURVE_POINTS = 200
_DECADES = 5  # of false alarms, in a curve
_PICTURE = "picture "
_WITHOUT_ROWS = ("updates",)  # kinds of payload that have nothing to show for each record
BROKEN_FILE = (LookupError, TypeError, ValueError, ArithmeticError, RuntimeError, AttributeError, TemplateError)
"""What a page is stopped by where an audit's file does not hold what it should."""

_LPIPS = {metric.code for metric in METRICS if metric.needs == "lpips"}
_AUDIT, _PICTURES, _HEADER = 16 << 20, 512 << 20, 1 << 20  # bytes; audits with sweeps take less than 1 MB


def write_report(out: Path | str, audited: Audited, *, command: str = "") -> Path:
    """Write an audit of your own releases as a new folder that only you should see, and return the path of its page.

    command: what makes it again, for the page."""
    write_audit(Path(out), audited.audit, _provenance(audited, command), audited.swept)
    return Path(out) / "report.html"


def plain(audited: Audited, *, command: str = "") -> dict[str, Any]:
    """For JSON."""
    return to_json(audited.audit, _provenance(audited, command), audited.swept)


def _provenance(audited: Audited, command: str) -> dict[str, Any]:
    versions = {name: version(name) for name in ("mixveil", "torch")}
    return {"command": command, **versions, "seed": audited.seed}


def write_audit(out: Path, found: Audit, how: Mapping[str, Any], swept: Swept | None = None) -> None:
    """Write the audit and its report. how: what it takes to do it again; swept: the same at other settings."""
    pictures = _pictures(found) | ({} if swept is None else sweeps.to_pictures(swept))
    whole = to_json(found, how, swept)
    with files.atomic_folder(out, found.view.releases[0].id[:8], 0o700) as folder:
        files.write_file(folder / "audit.json", (json.dumps(whole, indent=2, allow_nan=False) + "\n").encode(), 0o600)
        files.write_file(folder / "pictures.safetensors", save(pictures), 0o600)
        files.write_file(folder / "report.html", _page(whole, pictures).encode(), 0o600)


def read_audit(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The figures and the pictures of an audit, as its files have them."""
    files.check_there(folder, "the folder of an audit")
    try:
        whole = strict_json.parsed(files.read_small(folder / "audit.json", _AUDIT))
        with files.opened(folder / "pictures.safetensors", _PICTURES) as file:
            tensor_files.check_header(file, folder / "pictures.safetensors", limit=_HEADER)
            pictures = load(file.read(_PICTURES))
    except (UnreadableFileError, ReleaseError, ValueError, SafetensorError) as error:
        raise DataFormatError(f"{folder} is not an audit: {error}") from None
    if not isinstance(whole, dict) or whole.get("format") != FORMAT or whole.get("version") != VERSION:
        raise DataFormatError(f"{folder}: not an audit of version {VERSION}")
    return whole, pictures


def render(folder: Path) -> Path:
    """Make the page of an audit from its files again."""
    whole, pictures = read_audit(folder)
    try:
        text = _page(whole, pictures)
    except BROKEN_FILE as error:
        raise DataFormatError(f"{folder}: its audit.json is not whole: {error}") from None
    page = folder / "report.html"
    files.write_whole(page, text.encode(), 0o600)
    return page


def to_json(found: Audit, how: Mapping[str, Any], swept: Swept | None = None) -> dict[str, Any]:
    """The audit as data, without pictures."""
    releases = found.view.releases
    curves = {name: _thinned(curve) for name, curve in found.curves.items()}
    of = {figure.attack: figure.of for figure in found.figures if figure.kind == "membership"}
    for name in curves:
        for promise in found.promised:
            if of.get(name) == promise.of:
                curves[name]["bound"] = _bound(promise.mu)
    return {
        "format": FORMAT,
        "version": VERSION,
        "kind": found.kind,
        "releases": [
            {"id": r.id, "party": r.party, "certified": r.certified, "reproducible": r.reproducible} for r in releases
        ],
        "records": {
            "rows": found.of,
            "encoded": found.encoded,
            "attacked": len(found.numbers),
            "shape": list(found.shape),
            "classes": list(releases[0].classes),
        },
        "unit": found.unit,
        "promised": [asdict(promise) for promise in found.promised],
        "how": dict(how),
        "figures": [asdict(figure) for figure in found.figures],
        "attacks": [run.plain() for run in found.attacks],
        "promises": [asdict(promise) for promise in found.promises],
        "warnings": [warning.plain() for warning in found.warnings],
        "verdict": [told.plain() for told in found.verdict],
        "curves": curves,
        "sweep": None if swept is None else sweeps.to_json(swept),
    }


def _bound(mu: float) -> list[list[float]]:
    """The most that μ permits, at many rates of false alarms."""
    rates = torch.logspace(-_DECADES, 0, 4 * _DECADES + 1, dtype=torch.float64)[:-1].tolist()
    return [*([fpr, member_tpr(mu, fpr)] for fpr in rates), [1.0, 1.0]]


def _thinned(curve: Roc) -> dict[str, list[list[float]]]:
    """A ROC as points, evenly spread on a logarithmic axis of false alarms."""
    wanted = torch.logspace(-_DECADES, 0, _CURVE_POINTS, dtype=torch.float64)
    index = torch.searchsorted(curve.fpr.contiguous(), wanted, right=True).sub_(1).clamp_(min=0)
    return {"points": [[float(curve.fpr[i]), float(curve.tpr[i])] for i in sorted(set(index.tolist()))]}


def _pictures(found: Audit) -> dict[str, Tensor]:
    """The records of which the best attack got most, worst case first: original, released, and every guess."""
    originals, span = found.pixels, found.high - found.low
    priors = {figure.attack for figure in found.figures if figure.kind == "prior"}
    attacks = {name: images for name, images in found.images.items() if name not in priors}
    errors = {name: found.errors[name] for name in attacks}
    if errors:
        best = min(errors, key=lambda name: float(errors[name].mean()))
        index = (errors[best] / found.spreads.clamp(min=1e-12)).argsort()[:_SHOWN]
    else:
        index = torch.arange(min(_SHOWN, len(originals)))
    pictures = {name: images[index] / 255 for name, images in attacks.items()}
    pictures["original"] = (originals[index] - found.low) / span
    if found.kind not in _WITHOUT_ROWS:
        pictures["released"] = released(found, index)
    kept = {name: _kept(images) for name, images in pictures.items()}
    return kept | {"index": found.numbers[index]} | _behind_features(found)


def _kept(images: Tensor) -> Tensor:
    """Records (n, …) in [0, 1]; pictures no larger than those that are shown."""
    if images.dim() != 4:
        return images.clamp(0, 1).float().contiguous()
    return torch.stack([shrunk(image, LARGEST) for image in images])


def _behind_features(found: Audit) -> dict[str, Tensor]:
    """The images behind features, where an attack guesses them: those of which it got most."""
    guesses = {name: images for name, images in found.pictures.items() if name != "original"}
    if not guesses:
        return {}
    truth = found.pictures["original"]
    errors = torch.stack([mse(truth, images) for images in guesses.values()]).amin(0)
    nothing = mse(truth, truth.mean(0).expand_as(truth))
    index = (errors / nothing.clamp(min=1e-12)).argsort()[:_SHOWN]
    chosen = {f"{_PICTURE}{name}": images[index].float().contiguous() for name, images in found.pictures.items()}
    return {**chosen, f"{_PICTURE}index": found.numbers[index]}


def kind_of(whole: Mapping[str, Any]) -> str:
    """Of the payload that was audited: audits of records did not always say so."""
    return str(whole.get("kind", "records"))


def strips(whole: Mapping[str, Any], pictures: Mapping[str, Tensor]) -> dict[str, list[str]]:
    """Pictures for a page: originals, released rows and then every attack's guesses; none where rows are no images."""
    own = [name for name in pictures if not name.startswith((_PICTURE, sweeps.PREFIX)) and name != "index"]
    own.sort(key=lambda name: (name not in ("original", "released"), name))
    shape = whole["records"]["shape"]
    return {name: _strip(pictures[name]) for name in own} if len(shape) == 3 and shape[0] in (1, 3) else {}


def _page(whole: Mapping[str, Any], pictures: Mapping[str, Tensor]) -> str:
    own = [name for name in pictures if not name.startswith((_PICTURE, sweeps.PREFIX)) and name != "index"]
    guessed = [name.removeprefix(_PICTURE) for name in pictures if name.startswith(_PICTURE)]
    guessed.sort(key=lambda name: "original" not in name)
    behind = {name: _strip(pictures[_PICTURE + name]) for name in guessed if name != "index"}
    text: str = (
        environment()
        .get_template("report.html.j2")
        .render(
            audit=whole,
            kind=kind_of(whole),
            mild=MILD,
            main={metric.code for metric in METRICS if metric.main},
            caption=caption,
            promise_caption=promise_caption,
            title=attack_title,
            behind=behind,
            behind_index=pictures[f"{_PICTURE}index"].tolist() if behind else [],
            strips=strips(whole, pictures),
            reconstructed=not {*own} <= {"original", "released"},
            plural=plural,
            index=pictures["index"].tolist(),
            curves={name: roc(curve) for name, curve in whole["curves"].items()},
            kinds={run["attack"]: run for run in whole["attacks"]},
            lpips=any(figure["metric"] in _LPIPS for figure in whole["figures"]),
            sweep=whole["sweep"],
            section=None if whole["sweep"] is None else sweeps.section(whole["sweep"], pictures, whole["unit"]),
        )
    )
    return text


def _strip(images: Tensor) -> list[str]:
    return [png(shrunk(image, LARGEST)) for image in images]
