"""From data to an encoder with its noise: the facts that a calibration may use, and where they came from.

Those computed from private records never enter a certified manifest.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeVar

import torch
from torch import Tensor

from mixveil.core import checks
from mixveil.core.errors import ArgumentError, MissingFactError, PrivateFactError
from mixveil.core.randomness import Stream
from mixveil.core.types import Batch, Dataset, Encoder, Fact, Facts, Guarantee, Mu, Origin, Scheme, Target, Tau
from mixveil.core.watching import Watch, unwatched
from mixveil.core.wording.notes import Note, note
from mixveil.data import fingerprint, privacy_units
from mixveil.data.row_views import RowsView
from mixveil.encoders.noisy import prepare
from mixveil.encoders.singular import NOT_KEPT, CalibratedSingular
from mixveil.theory import gdp, snr
from mixveil.theory.moments import Moments, blocks, moments, passes

DELTA = 1e-5

MEANINGLESS_MU = 4.0
"""From here on (ε = 24 at δ = 1e-5) μ-GDP is no meaningful guarantee."""

_PICTURES_APART = 0.25
"""How far apart classes of pictures are, of the distance 2C that two records can have at most: on average 0.26 for the
digits, 0.10 for the twenty classes of CIFAR-100."""

UNBOUNDED = (
    "these rows have no range that would bound them: a certified release needs a clip norm chosen without looking at "
    "them (clip) or public data (public)"
)

Learnt = Literal["next-to-nothing", "little", "something"]
MomentsOf = Callable[[Dataset, Facts], Moments]

E = TypeVar("E", bound=Encoder)


def calibrate(
    encoder: Scheme[E],
    target: Target | None,
    data: Dataset,
    *,
    public: Dataset | None = None,
    clip: float | Fact | None = None,
    displacement: Fact | None = None,
    covers: int | None = None,
    stream: Stream,
    watch: Watch = unwatched,
) -> tuple[E, tuple[Guarantee, ...], list[Note]]:
    """An encoder with the noise for a target, its guarantees, and what the owner should be warned of. Without a target
    the noise is as large as the records are on average: for encoders that promise nothing.

    displacement: how far image noise moves the features (`displacement.measure`), for the calibration of that name;
    covers: how many public patches are mixed in, where some are."""
    check_apart(data, public)
    moments_of = watched_moments(stream, watch)
    checks.enough_rows(len(data))
    mixed_in = {} if covers is None else {"covers": Fact(float(covers), "public")}
    if not encoder.needs_facts:
        ready, guarantees = encoder.calibrate(target, Facts(mixed_in))
        return ready, guarantees, ready.advice(len(data))
    facts = facts_for(
        target, data, public=public, clip=clip, moments_of=moments_of, displacement=displacement, watch=watch
    )
    ready, guarantees = encoder.calibrate(target, facts.with_(**mixed_in))
    warnings = ready.advice(len(data))
    if isinstance(target, Mu):
        warnings += meaningless(target.value)
        warnings += drowned(ready.sigma, facts["clip"], data) if ready.linear else []
    if isinstance(target, Tau) and isinstance(ready, CalibratedSingular):
        warnings += _unkept(ready, target, facts, moments_of(data, facts))
    return ready, guarantees, warnings


def _unkept(ready: CalibratedSingular, target: Tau, facts: Facts, private: Moments) -> list[Note]:
    """What to say where the records realise more than the τ that was asked for. private: their own moments."""
    kept = target.calibration not in NOT_KEPT
    if kept and facts.origin("lambda_max") == "public" and private.lambda_max > facts["lambda_max"]:
        return [note("varies-more-than-public", ratio=private.lambda_max / facts["lambda_max"])]
    return exceeded(target.calibration, ready.directional_snr(private.lambda_max), target.value, ready.alpha)


def exceeded(calibration: str, realised: float, nominal: float, alpha: float) -> list[Note]:
    """A warning where the directional SNR is larger than the nominal τ, with both figures and their ratio."""
    if realised <= 1.0001 * nominal:
        return []
    figures = {"realised": realised, "nominal": nominal, "factor": realised / nominal}
    if calibration == "displacement":
        what = note("snr-exceeded-by-displacement", **figures, without_noise=snr.amplification(alpha))
    else:
        what = note("snr-exceeded", **figures)
    return [note("by-calibration", calibration=calibration, what=what)]


def meaningless(mu: float) -> list[Note]:
    """A warning where μ is no meaningful guarantee."""
    if mu < MEANINGLESS_MU:
        return []
    return [note("meaningless-mu", mu=mu, epsilon=gdp.epsilon(mu, DELTA), delta=DELTA)]


def noise_between_classes(sigma: float, clip: float, data: Dataset) -> float:
    """How long the noise on the difference of two class means is, beside the distance 2C that two records, and so two
    classes, can have at most: F = σ √(d/n_c) / 2C, n_c = n/classes. That is of mixed rows; plain ones have √2 times as
    much. A direction that is learnt from this difference is the true one by a share of at most 1/(1 + F²).

    All of it is public: settings, and how many rows and classes there are."""
    return sigma * math.sqrt(math.prod(data.shape) * max(1, len(data.classes)) / len(data)) / (2 * clip)


def learnt(sigma: float, clip: float, data: Dataset) -> Learnt:
    """How much a certified release of these rows can teach, by the noise between two classes. Classes of pictures are
    nearer to one another than records can be."""
    noise = noise_between_classes(sigma, clip, data)
    if noise >= 1:
        return "next-to-nothing"
    return "little" if len(data.shape) == 3 and noise >= _PICTURES_APART else "something"


def drowned(sigma: float, clip: float, data: Dataset) -> list[Note]:
    """A warning where noise is longer than classes are apart: a certified release would cost μ and teach nothing."""
    much = learnt(sigma, clip, data)
    if much == "something":
        return []
    pictures, rows = len(data.shape) == 3, len(data) / max(1, len(data.classes))
    notes = {"much": note(much), "what": note("pixels" if pictures else "rows")}
    notes["usual"] = note("classes-of-pictures" if pictures else "classes-of-rows")
    factor, values = noise_between_classes(sigma, clip, data), math.prod(data.shape)
    return [note("classes-drowned", **notes, sigma=sigma, values=values, rows=rows, factor=factor, apart=2 * clip)]


def watched_moments(stream: Stream, watch: Watch) -> MomentsOf:
    """Moments of rows as they enter the mixture, each computed once."""
    known: dict[tuple[int, float, float], Moments] = {}

    def moments_of(rows: Dataset, facts: Facts) -> Moments:
        key = (id(rows), facts["centre"], facts["clip"])
        if key not in known:
            with watch("moments", passes(int(facts["dimension"])) * len(rows)) as progress:
                prepared = PreparedRows(rows, partial(prepare, centre=facts["centre"], clip=facts["clip"]))
                known[key] = moments(prepared, stream=stream.fork("moments"), progress=progress)
        return known[key]

    return moments_of


def check_apart(data: Dataset, public: Dataset | None) -> None:
    """Refuse public data that hold a private image: a manifest would call their figures public, and for that image they
    are not. This decides only whether something is made, never what. A copy that was changed is not found."""
    if public is None or public is data:  # the latter is refused for any target
        return
    shared = fingerprint.among(fingerprint.fingerprints(public), fingerprint.fingerprints(data))
    if shared:
        raise PrivateFactError(
            f"{shared:,} of these {len(data):,} images are in the public data as well: figures from those are not "
            f"public for them, and the release could not call them so. Give public data that were collected apart from "
            f"these, or none: a clip norm chosen without looking at the images (clip) can take their place"
        )


def facts_for(
    target: Target | None,
    data: Dataset,
    *,
    public: Dataset | None,
    clip: float | Fact | None = None,
    moments_of: MomentsOf,
    displacement: Fact | None = None,
    settled: Facts | None = None,
    watch: Watch = unwatched,
) -> Facts:
    """All that calibrating `data` for a target needs. For μ nothing is computed from the private rows; for τ second
    moments are, unless public data stand in for them; without a target, how large the rows are on average.

    settled: what `settled_facts` said, where it is known already."""
    if settled is None:
        settled = settled_facts(data, certified=isinstance(target, Mu), public=public, clip=clip, watch=watch)
    facts = settled
    if isinstance(target, Mu):
        return facts
    seen = data if public is None else public
    origin: Origin = "private" if public is None else "public"
    if target is None:
        total = sum(float((block - facts["centre"]).abs().sum()) for block in blocks(seen))
        size = total / (len(seen) * facts["dimension"])
        return facts.with_(size=Fact(size, origin))
    measured: dict[str, Fact] = {}
    if target.calibration == "displacement":
        if displacement is None:
            raise ArgumentError(
                "calibration = displacement is how far image noise moves features, and these rows are not known to be "
                "features: name a backbone"
            )
        measured = {"displacement": displacement}
    moments = moments_of(seen, facts)
    return facts.with_(
        energy=Fact(moments.energy, origin),
        lambda_max=Fact(moments.lambda_max, origin),
        distance=Fact(moments.distance, origin),
        **measured,
    )


def settled_facts(
    data: Dataset, *, certified: bool, public: Dataset | None, clip: float | Fact | None, watch: Watch = unwatched
) -> Facts:
    """What is settled before moments: dimension, centre, amplitude, clip norm, and how many rows a unit has (which rows
    belong together is public, as labels are). No record is looked at, but for one case: for τ, where rows have no range
    and there is neither a clip norm nor public data, norm and amplitude are the records' largest, and private.

    The centre is the middle of the range (0 where there is none), or the public data's mean value. The clip norm is the
    given one, else (certified only) the public data's median norm, else what the range implies, which clips nothing and
    is never exceeded. A clip norm that is given as a number is public; as a fact, it has the fact's origin.
    """
    dimension, ranged = math.prod(data.shape), math.isfinite(data.high - data.low)
    centre = Fact((data.low + data.high) / 2, "range") if ranged else Fact(0.0, "public")
    if public is not None:
        check_same_kind(data, public)
        total = sum(float(block.sum()) for block in blocks(public))
        centre = Fact(total / (len(public) * dimension), "public")
    if ranged:
        amplitude = Fact(max(data.high - centre.value, centre.value - data.low), centre.origin)
        bound = _norm_within(amplitude, dimension, public if certified else None, centre.value, clip)
    else:
        amplitude, bound = _unranged(data, certified, public, centre.value, clip, watch)
    known = {"dimension": Fact(float(dimension), "range"), "centre": centre, "amplitude": amplitude, "clip": bound}
    if len(data.shape) == 3:
        height, width = data.shape[1:]
        known |= {"height": Fact(float(height), "range"), "width": Fact(float(width), "range")}
    return Facts({**known, "unit_rows": Fact(float(privacy_units.largest(data)), "public")})


def _norm_within(
    amplitude: Fact, dimension: int, public: Dataset | None, centre: float, clip: float | Fact | None
) -> Fact:
    """The clip norm of rows whose values lie within ±amplitude of the centre."""
    bound = Fact(amplitude.value * math.sqrt(dimension), amplitude.origin)
    if clip is not None:
        return min(bound, _given(clip), key=lambda fact: fact.value)
    return bound if public is None else _median_norm(public, centre)


def _unranged(
    data: Dataset, certified: bool, public: Dataset | None, centre: float, clip: float | Fact | None, watch: Watch
) -> tuple[Fact, Fact]:
    """Amplitude and clip norm of rows whose values can be anything. No single value is larger than the clip norm; only
    where that is the private records' own is their largest value looked for, in the same pass."""
    if clip is not None:
        return _given(clip), _given(clip)
    if public is not None:
        bound = _median_norm(public, centre) if certified else Fact(_largest(public, centre, watch)[1], "public")
        return bound, bound
    if certified:
        raise MissingFactError(UNBOUNDED)
    value, norm = _largest(data, centre, watch)
    return Fact(value, "private"), Fact(norm, "private")


def _given(clip: float | Fact) -> Fact:
    given = clip if isinstance(clip, Fact) else Fact(clip, "public")
    return Fact(checks.finite_positive("clip", given.value), given.origin)


def _median_norm(public: Dataset, centre: float) -> Fact:
    norms = torch.cat([torch.linalg.vector_norm(block - centre, dim=1) for block in blocks(public)])
    return Fact(checks.finite_positive("the public data's median norm", float(norms.median())), "public")


def _largest(rows: Dataset, centre: float, watch: Watch) -> tuple[float, float]:
    """The largest absolute value and the largest norm of centred rows."""
    found = []
    with watch("norms", len(rows)) as progress:
        for block in blocks(rows, progress):
            block -= centre
            found.append(torch.stack([block.abs().amax(), torch.linalg.vector_norm(block, dim=1).amax()]))
    value, norm = torch.stack(found).amax(0).tolist()
    checks.finite_positive("the rows' largest value", value)
    return value, checks.finite_positive("the rows' largest norm", norm)


@dataclass(frozen=True)
class PreparedRows(RowsView):
    """Rows as they enter the mixture of an encoder."""

    prepare: Callable[[Tensor], Tensor]

    def take(self, index: Tensor) -> Batch:
        batch = self.rows.take(index)
        return Batch(self.prepare(batch.x), batch.y)


def check_same_kind(data: Dataset, public: Dataset) -> None:
    """Refuse public data that are not like the private ones, or are the private ones."""
    if public.shape != data.shape or (public.low, public.high) != (data.low, data.high):
        raise ArgumentError(
            f"the public data have the shape {public.shape} and values in {public.low:g}…{public.high:g}, the private "
            f"ones {data.shape} and {data.low:g}…{data.high:g}: give public data like the private ones"
        )
    if public is data:
        raise ArgumentError("the public data are the private data: facts from them would not be public")
