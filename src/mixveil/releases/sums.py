"""Releases of noisy sums: class sums, a party's first step of certified learning, and residual sums, one a round. The
whole job of the first, and both as files and in memory.

The guarantees: `kinds/sums.py`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Unpack, cast

from torch import Tensor

from mixveil.core import checks, randomness
from mixveil.core.errors import ArgumentError
from mixveil.core.types import Guarantee, Progress, Release
from mixveil.core.watching import Warn, Watch, unheard, unwatched
from mixveil.core.wording.notes import Note
from mixveil.data.opening import DataOptions, DataSpec
from mixveil.encoders.calibration import meaningless
from mixveil.features.opening import FeatureOptions
from mixveil.features.projection import Projected
from mixveil.releases import accounting
from mixveil.releases.contributions import Head, class_total, residual_total, unit_count
from mixveil.releases.encode import stream_for
from mixveil.releases.envelope import Envelope
from mixveil.releases.kinds.sums import COARSEST, FINEST, Content, Per, SumSettings
from mixveil.releases.ledger import Ledger
from mixveil.releases.records import check_labels_hidden
from mixveil.releases.spending import Standing
from mixveil.releases.writing import LedgerTerms, Produced, check_output, write, write_tensors
from mixveil.theory import clipping, gdp


@dataclass(frozen=True)
class Summed:
    """Class sums that were released, for their owner's eyes. standing: what the ledger says of these records now."""

    folder: Path
    sums: Envelope
    warnings: tuple[Note, ...]
    standing: Standing


def statistics(
    data: DataSpec,
    out: Path | str,
    *,
    projection: Path | str,
    mu: float,
    party: str = "party",
    recipient: str | None = None,
    budget: float | None = None,
    seed: int | None = None,
    options: DataOptions | None = None,
    cache: Path | str | None = None,
    ledger: Ledger | None = None,
    watch: Watch = unwatched,
    warn: Warn = unheard,
) -> Summed:
    """Release the noisy class sums of data through a public projection, every record (every unit) μ-GDP, its label with
    it. Arguments are those of `mixveil.encode`."""
    out, options, ledger = Path(out), options or DataOptions(), ledger or Ledger()
    check_output(out, party)
    stream = stream_for(seed)
    images = options.open(data)
    owners = accounting.owners_of(ledger, images, watch)
    features = FeatureOptions(options, cache, watch)
    rows, digest, told = features.open_projected(images, projection, certified=True, seeded=seed is not None)
    warnings = [
        *rows.warnings(),
        *told,
        *accounting.earlier_statistics(ledger, rows.projection, party),
        *accounting.copies(owners),
        *meaningless(mu),
    ]
    for item in warnings:
        warn(item)
    with watch("sums", len(rows)) as step:
        terms = LedgerTerms(recipient=recipient, budget=budget, owners=owners, ledger=ledger)
        written = write_statistics(out, rows, digest, mu, party=party, stream=stream, progress=step, **terms)
    return Summed(out, written, tuple(warnings), ledger.standing(owners))


@dataclass(frozen=True)
class Sharing:
    """Noise that parties share, where only the sum over them is seen.

    Attributes:
        honest: How many of them are honest, this one included; 1: the party adds all of the noise.
        mask: From (classes, k + 1) int64 indices to the same with masks that vanish in the sum.
    """

    honest: int = 1
    mask: Callable[[Tensor], Tensor] | None = None


ALONE = Sharing()


def write_statistics(
    out: Path,
    rows: Projected,
    digest: str,
    mu: float,
    *,
    party: str,
    stream: randomness.Stream,
    sharing: Sharing = ALONE,
    progress: Progress = lambda _: None,
    **terms: Unpack[LedgerTerms],
) -> Envelope:
    """Write the noisy class sums of all rows at μ. digest: of the rows' projection."""
    envelope = _planned(rows, "classes", rows.projection.clip, {"projection": digest}, mu, party, stream, sharing)
    total = partial(class_total, rows, rows.projection.clip, _bits(envelope), progress)
    return _written(out, rows, envelope, total, stream, sharing, terms)


def write_residuals(
    out: Path,
    rows: Projected,
    digest: str,
    head: Head,
    head_digest: str,
    clip: float,
    mu: float,
    *,
    party: str,
    stream: randomness.Stream,
    sharing: Sharing = ALONE,
    progress: Progress = lambda _: None,
    **terms: Unpack[LedgerTerms],
) -> Envelope:
    """Write the noisy residual sums of all rows at μ. clip: the largest norm of a unit's residuals; head: the server's,
    head_digest: of its file."""
    assets = {"projection": digest, "head": head_digest}
    envelope = _planned(rows, "residuals", clip, assets, mu, party, stream, sharing)
    total = partial(residual_total, rows, head, clip, _bits(envelope), progress)
    return _written(out, rows, envelope, total, stream, sharing, terms)


def class_sums(
    rows: Projected,
    digest: str,
    mu: float,
    *,
    party: str,
    stream: randomness.Stream,
    sharing: Sharing = ALONE,
) -> Release:
    """The same release of class sums in memory, entered in no ledger; its payload is (classes, k + 1) float64."""
    envelope = _planned(rows, "classes", rows.projection.clip, {"projection": digest}, mu, party, stream, sharing)
    return _in_memory(envelope, class_total(rows, rows.projection.clip, _bits(envelope)), stream, sharing)


def residual_sums(
    rows: Projected,
    digest: str,
    head: Head,
    head_digest: str,
    clip: float,
    mu: float,
    *,
    party: str,
    stream: randomness.Stream,
    sharing: Sharing = ALONE,
) -> Release:
    """The same release of residual sums in memory, entered in no ledger; its payload is (classes, k + 1) float64."""
    assets = {"projection": digest, "head": head_digest}
    envelope = _planned(rows, "residuals", clip, assets, mu, party, stream, sharing)
    return _in_memory(envelope, residual_total(rows, head, clip, _bits(envelope)), stream, sharing)


def _planned(
    rows: Projected,
    content: Content,
    clip: float,
    assets: Mapping[str, str],
    mu: float,
    party: str,
    stream: randomness.Stream,
    sharing: Sharing,
) -> Envelope:
    """All but the sums. σ makes every unit μ-GDP, with as many honest parties as share the noise. The list of classes
    must be public: it leaves as it is."""
    checks.enough_rows(len(rows))
    if not stream.reproducible:  # which promises nothing
        check_labels_hidden(rows)
    mu, honest = checks.finite_positive("mu", mu), sharing.honest
    checks.at_least("honest", honest, 1)
    sigma = checks.size("sigma", gdp.sigma_of(2 * checks.finite_positive("clip", clip), mu * math.sqrt(honest)))
    step = math.ldexp(clip, -clipping.grid_bits(clip, sigma))
    if not FINEST * sigma <= step <= COARSEST * sigma:
        raise ArgumentError(
            f"mu = {mu:g} gives sums a noise of {sigma:g}, which does not suit contributions of {clip:g}"
        )
    per: Per = "record" if rows.units is None else "unit"
    sizes = (clipping.check_units(unit_count(rows)), len(rows.classes), rows.projection.dimension)
    settings = SumSettings(content, per, *sizes, clip, sigma, step, honest, honest > 1)
    facts = dict.fromkeys(settings.fact_origins(), "public")
    stated = tuple(
        Guarantee(claim.name, mu if claim.name == "gdp" else claim.claim, claim.realised, {**claim.assumes, **facts})
        for claim in settings.claims().values()
    )
    return Envelope(
        settings=settings,
        party=party,
        classes=rows.classes,
        guarantees=() if stream.reproducible else stated,
        reproducible=stream.reproducible,
        assets=assets,
    )


def _written(
    out: Path,
    rows: Projected,
    envelope: Envelope,
    total: Callable[[], Tensor],
    stream: randomness.Stream,
    sharing: Sharing,
    terms: LedgerTerms,
) -> Envelope:
    settings = cast("SumSettings", envelope.settings)

    def produce(folder: Path) -> Produced:
        indices = _noisy(total(), settings, stream)
        if sharing.mask is not None:
            indices = sharing.mask(indices)
        return [write_tensors(folder / "sums.safetensors", {"sums": indices})], None

    return write(out, rows, envelope, produce, space=8 * math.prod(settings.shape), **terms)


def _in_memory(envelope: Envelope, total: Tensor, stream: randomness.Stream, sharing: Sharing) -> Release:
    settings = cast("SumSettings", envelope.settings)
    indices = _noisy(total, settings, stream)
    if sharing.mask is not None:
        return Release(envelope, sharing.mask(indices))
    return Release(envelope, settings.values(indices))


def _bits(envelope: Envelope) -> int:
    """The clip norm is 2ᵇⁱᵗˢ steps."""
    settings = cast("SumSettings", envelope.settings)
    return clipping.grid_bits(settings.clip, settings.sigma)


def _noisy(total: Tensor, settings: SumSettings, stream: randomness.Stream) -> Tensor:
    """(classes, k + 1) int64: sums and their noise, both in steps."""
    own = stream.fork("sums")  # only now: its key is as fresh as can be
    return total + own.rounded_normals(*total.shape, scale=settings.sigma / settings.step)
