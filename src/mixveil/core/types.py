"""What every room shares: rows, facts, guarantees, releases, views; the Protocols of encoders and attacks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol, TypeVar, cast, runtime_checkable

from mixveil.core import checks
from mixveil.core.errors import MismatchError, MissingFactError, PrivateFactError

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from mixveil.core.local_training import LocalTraining
    from mixveil.core.randomness import Stream
    from mixveil.core.wording.notes import Note
    from mixveil.features.extractor import Extractor
    from mixveil.releases.envelope import Envelope
    from mixveil.releases.screening import Screened

Origin = Literal["public", "range", "private"]
Calibration = Literal["theorem", "spectral", "energy", "displacement"]
NoiseLaw = Literal["gaussian", "sphere", "laplace", "none"]
PublicUse = Literal["facts", "covers"]
"""What an encoder does with public data: it takes facts from them, or mixes them in."""

Progress = Callable[[int], None]
"""Called with the number of rows that were just done."""


class Batch(NamedTuple):
    """Rows and their soft labels: x is (m, …), y is (m, classes) with rows that sum to one."""

    x: Tensor
    y: Tensor


@runtime_checkable
class Rows(Protocol):
    """Labelled rows that may be larger than memory."""

    def __len__(self) -> int: ...
    def take(self, index: Tensor) -> Batch: ...


class Dataset(Rows, Protocol):
    """Rows that know their shape, their classes' names and the range [low, high] of a value.

    Attributes:
        declared: Whether the list of classes was fixed without looking at the labels.
        units: Whose each row is (a patient's number); None where every row is a unit of its own.
    """

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def classes(self) -> tuple[str, ...]: ...
    @property
    def low(self) -> float: ...
    @property
    def high(self) -> float: ...
    @property
    def declared(self) -> bool: ...
    @property
    def units(self) -> tuple[str, ...] | None: ...
    def originals(self, index: Tensor) -> Sequence[Tensor]:
        """The images of some rows as their files hold them, in [0, 1]: the ledger knows a record by its image."""


@dataclass(frozen=True)
class Trace:
    """What was drawn for each row, except the noise: trace and records give the rows up to noise. PRIVATE to the party.

    Attributes:
        partner: (n, k − 1) the records that are mixed with each row's own.
        weight: (n, k) the weights of own record and partners, in this order.
        order: (n,) the record that each row is of, where rows were put in another order; None: row i is of record i.
        kept: (n,) which of these rows were released, where some were dropped; None: all.
        extra: What else an encoder drew for each row, (n, …) each, by name: a mask of signs, for example; `moves`,
            (n, k, 3), where it moves images (`Observation.moves`).
        covers: (p, 4) the public patches that rows are mixed with, where they are: image, top, left, side. Patch i has
            the number of records plus i among partners.
    """

    partner: Tensor = field(repr=False)
    weight: Tensor = field(repr=False)
    order: Tensor | None = field(default=None, repr=False)
    kept: Tensor | None = field(default=None, repr=False)
    extra: Mapping[str, Tensor] = field(default_factory=dict, repr=False)
    covers: Tensor | None = field(default=None, repr=False)

    def part(self, rows: Tensor, renumbered: Tensor) -> Trace:
        """The trace of some rows, (m,) their numbers or (n,) booleans; record r is called `renumbered[r]` there. Covers
        keep their numbers, where `renumbered` ends before them."""
        covers = self.covers
        if covers is not None:
            import torch

            last = int(self.partner.max()) + 1
            renumbered = torch.cat([renumbered, torch.arange(len(renumbered), max(last, len(renumbered)))])
        extra = {name: drawn[rows] for name, drawn in self.extra.items()}
        return Trace(renumbered[self.partner[rows]], self.weight[rows], extra=extra, covers=covers)


@dataclass(frozen=True)
class Fact:
    """A number that a calibration uses, and its origin. `public`: given, or computed from public data; `range`: implied
    by the range of a pixel; `private`: computed from the records to protect."""

    value: float
    origin: Origin


@dataclass(frozen=True)
class Facts:
    """Facts by name: dimension, centre, amplitude, clip, energy (V), lambda_max, distance (D), displacement (how far
    image noise moves features), unit_rows (the most rows that one unit has; else 1), size (mean absolute value),
    height and width of images, covers (how many public patches are mixed in)."""

    known: Mapping[str, Fact]

    def __getitem__(self, name: str) -> float:
        return self._fact(name).value

    def origin(self, name: str) -> Origin:
        return self._fact(name).origin

    def certified(self, name: str) -> float:
        """The value, if it was fixed without looking at the private records."""
        fact = self._fact(name)
        if fact.origin == "private":
            raise PrivateFactError(
                f"{name} = {fact.value:g} was computed from the private records; a certified calibration takes it from "
                f"public data, from the pixel range, or as an argument"
            )
        return fact.value

    @property
    def unit_rows(self) -> int:
        return int(self.known["unit_rows"].value) if "unit_rows" in self.known else 1

    def with_(self, **facts: Fact) -> Facts:
        return Facts({**self.known, **facts})

    def _fact(self, name: str) -> Fact:
        try:
            return self.known[name]
        except KeyError:
            known = ", ".join(self.known) or "none"
            raise MissingFactError(f"this calibration needs {name}; known are {known}") from None


@dataclass(frozen=True)
class Mu:
    """Ask for a certified release: every record μ-GDP."""

    value: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", checks.finite_positive("mu", self.value))


@dataclass(frozen=True)
class Tau:
    """Ask for Theorem 2's directional SNR τ, by one of its three calibrations; or, for features, the noise of the
    paper's experiments, which does not keep τ (`displacement`)."""

    value: float
    calibration: Calibration = "spectral"

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", checks.fraction("tau", self.value))


Target = Mu | Tau


@dataclass(frozen=True)
class Guarantee:
    """A statement about a release.

    Attributes:
        name: A code: `gdp` or `directional-snr`.
        nominal: What was asked for.
        realised: What the settings give, which is the claim; None where it is not known.
        assumes: Every condition and every fact's origin that it rests on, by name, in codes.
    """

    name: str
    nominal: float
    realised: float | None
    assumes: Mapping[str, str]

    @property
    def claim(self) -> float:
        """The larger of both: a reader may not count on less."""
        return self.nominal if self.realised is None else max(self.nominal, self.realised)


ANY_ROWS = 1 << 40
"""Stands for any number of rows of a unit, where what a unit gives is clipped as a whole."""


@dataclass(frozen=True)
class Cost:
    """What a release costs the units whose rows it holds, in μ.

    A unit with m rows pays mu·m^group_exponent if its rows are not paired with one another, and
    mu_if_paired·m^group_exponent if some may be. An exponent of 0: the unit was clipped as a whole, and pays once.
    """

    mu: float
    mu_if_paired: float
    group_exponent: float

    def of(self, rows: int) -> float:
        """The cost of so many rows of one unit that are not paired with one another."""
        return self.mu * math.pow(rows, self.group_exponent)


class Observation(Protocol):
    """How the rows of one release come from records, given its trace: row = mean(records) + deviation · noise, where
    the noise follows the encoder's `law` with variance one in every value. Whether a release is made of some records,
    and whether its noise is as stated, is measured by this alone.
    """

    def mean(self, records: Rows, rows: Tensor) -> Batch:
        """What some rows, (m,) their numbers, would be without noise: x (m, d) float64 in the values that are released,
        and the soft labels y (m, classes) that are released with them. records: those that the trace numbers."""

    def mixture(self, records: Rows, rows: Tensor) -> Batch:
        """The same without the signs, where the encoder hides those; no reader sees it."""

    def mask(self, rows: Tensor) -> Tensor | None:
        """(m, d) int8 of ±1: the signs that hide those of the mixtures, mean = mask ∘ mixture; None where none do."""

    def moves(self, rows: Tensor) -> Tensor | None:
        """(m, k, 3) how every source of these rows was moved (`data.moves`): its own record first, then its partners;
        None where none was."""

    def deviation(self, rows: Tensor) -> Tensor:
        """(m,) float64: the standard deviation of the noise in one value of each of these rows."""


class Visible(NamedTuple):
    """What the labels of a release show of its mixing to a reader who does not have the trace. share: E[Σw²], the share
    of a variance that mixing leaves; noise: the variance of the noise in one value of a row."""

    share: float
    noise: float


class Encoder(Protocol):
    """One defence, ready to encode. A frozen dataclass whose fields ARE its public settings, plain values that JSON can
    hold; call arguments may be private. tests/conformance/test_encoders.py holds every encoder to this contract.

    Attributes:
        scheme: The configuration that it was calibrated from; itself, where there is nothing to calibrate.
        law: How the noise is distributed; `none`: a row equals its mean, up to float32 rounding.
        linear: Whether a row's mean is Σ_j weight[j] · prepare(source j), over its own record and its partners, with
            weights that sum to one. Attacks, bounds and the discriminant that rest on this refuse other encoders.
        masked: Whether the sign of every value is hidden by a random one: rows show absolute values alone.
        moved: By how many pixels every image is moved at most, at random, and mirrored or not, before it is mixed; 0
            where images enter as they are.
        sigma: The noise of one value of a partner, before it is weighed; 0 without noise.
        centre: What is subtracted from every value of a record.
        clip: The largest norm with which a record enters; None: records enter as they are.
        amplitude: The largest size of one value of a record that enters; None: it is not known.
        unit_rows: The most rows of one unit that the claims speak of.
        step: Released integers times this are the values; None where floats are released.
        index_bound: The largest size of a released integer; None where floats are released.
        covers: How many public patches it has to mix in; 0 where it mixes in none.
        label_share: The least that the shares of a row's label sum to: one, unless images without a label are mixed in.
        unpromised: Codes of what a manifest must say that these settings do not promise.
        tau_conditions: The conditions that a directional SNR without a certificate must state; empty where none can be
            stated.
    """

    @property
    def name(self) -> str: ...
    @property
    def scheme(self) -> Scheme[Encoder]: ...
    @property
    def law(self) -> NoiseLaw: ...
    @property
    def linear(self) -> bool: ...
    @property
    def masked(self) -> bool: ...
    @property
    def moved(self) -> int: ...
    @property
    def sigma(self) -> float: ...
    @property
    def centre(self) -> float: ...
    @property
    def clip(self) -> float | None: ...
    @property
    def amplitude(self) -> float | None: ...
    @property
    def unit_rows(self) -> int: ...
    @property
    def step(self) -> float | None: ...
    @property
    def index_bound(self) -> int | None: ...
    @property
    def covers(self) -> int: ...
    @property
    def label_share(self) -> float: ...
    @property
    def unpromised(self) -> tuple[str, ...]: ...
    @property
    def tau_conditions(self) -> Mapping[str, str]: ...

    def claims(self) -> Mapping[str, Guarantee]:
        """What these settings guarantee for any records at all, by the guarantee's name, and on what conditions.
        A certified manifest states all of it, and may not claim more, nor anything else."""

    def cost(self) -> Cost | None:
        """What any record pays for being released with these settings; None: there is no bound."""

    def directional_snr(self, lambda_max: float) -> float | None:
        """Of records with this largest variance in any direction; None where it is not defined."""

    def prepare(self, x: Tensor) -> Tensor:
        """(m, d) float64: records as they enter the mixture, each by itself. Never changes x."""

    def restore(self, z: Tensor) -> Tensor:
        """(m, d): records in the data's own values, from records as they enter the mixture; the inverse of `prepare`
        where that clips nothing."""

    def deviation(self, weight: Tensor) -> Tensor:
        """(m,) the standard deviation of the noise in one value of rows with these weights (m, k)."""

    def possible_labels(self, y: Tensor) -> Tensor:
        """(m,) whether a row with these soft labels can come from this encoder: true of all that it releases."""

    def plan(self, n: int, *, stream: Stream, units: Tensor | None = None) -> Trace:
        """Draw all but the noise for n rows, n ≥ 2. units: (n,) numbers; rows of the same unit are not mixed with one
        another. Where it mixes in covers, partners from n on are theirs."""

    def advice(self, records: int) -> list[Note]:
        """What the owner of so many records should know: where settings go against what the scheme's authors advise."""

    def observation(self, trace: Trace) -> Observation:
        """How rows with this trace come from records."""

    def visible(self, released: Rows) -> Visible | None:
        """What the labels of released rows show of their mixing; None where rows are not linear."""

    def encode(self, rows: Rows, index: Tensor, trace: Trace, *, stream: Stream) -> Batch:
        """The rows of these numbers (m,): x of the records' shape, integers on the grid or float32, and y (m, classes).
        They follow `observation(trace)`: equal to its mean without noise, whatever rows are encoded together. Neither
        records nor trace are changed, and all randomness comes from the stream."""


Ready = TypeVar("Ready", bound=Encoder, covariant=True)


class Scheme(Protocol[Ready]):
    """A defence by name, before anything of the data is known: a frozen dataclass of what its owner chooses. Where
    there is nothing else to set, it is an Encoder too.

    Attributes:
        targets: What can be asked of it; () where it promises nothing.
        needs_facts: Whether `calibrate` uses facts of the data; without, the scheme is ready as it is.
        public_use: What it does with public data; None where it has no use for them.
    """

    name: ClassVar[str]
    targets: ClassVar[tuple[type[Target], ...]]
    needs_facts: ClassVar[bool]
    public_use: ClassVar[PublicUse | None]

    @classmethod
    def ready(cls) -> type[Encoder]:
        """The class of the encoders that `calibrate` makes: a manifest's settings are its fields."""

    @classmethod
    def example(cls) -> Encoder:
        """A small encoder for rows of 16 values in [0, 1], for the conformance tests."""

    def calibrate(self, target: Target | None, facts: Facts) -> tuple[Ready, tuple[Guarantee, ...]]:
        """An encoder with the noise for a target, and what it guarantees. target: None where nothing is asked for."""


@runtime_checkable
class OfRecords(Protocol):
    """What the settings of a release of records have."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def encoder(self) -> Encoder: ...
    @property
    def extractor(self) -> Extractor | None: ...
    @property
    def screened(self) -> Screened | None: ...


@dataclass(frozen=True, repr=False)
class Release:
    """What leaves a party, as its reader sees it: an envelope, which says what it is, and its payload. A release of
    records is a data set for `torch.utils.data.DataLoader`; only it has the properties below `unit_rows`.

    Attributes:
        payload: What its files hold: `Rows` of records; of other kinds what `releases/kinds` says.
    """

    envelope: Envelope
    payload: Any

    def with_(self, **changes: Any) -> Release:
        """The same release with another payload, other fields of its envelope, or other settings of its payload."""
        settings, envelope = self.envelope.settings, self.envelope
        payload = changes.pop("payload", self.payload)
        own = {name: changes.pop(name) for name in [*changes] if name in vars(settings)}
        settings = replace(cast("Any", settings), **own)
        return Release(replace(envelope, settings=settings, **changes), payload)

    def __len__(self) -> int:
        return len(self.payload)

    def __getitem__(self, row: int) -> tuple[Tensor, Tensor]:
        """The values and the soft label of one row. Releases of other kinds than records have no rows."""
        import torch

        _ = self._of_records
        if not -len(self) <= row < len(self):
            raise IndexError(f"row {row} of a release of {len(self)} rows")
        batch: Batch = self.payload.take(torch.tensor([row % len(self)]))
        return batch.x[0], batch.y[0]

    def __repr__(self) -> str:
        certified = "certified" if self.certified else "not certified"
        return f"<Release {self.id[:8]}: {self.envelope.kind} of {self.party}, {certified}>"

    @property
    def id(self) -> str:
        return self.envelope.id

    @property
    def party(self) -> str:
        return self.envelope.party

    @property
    def classes(self) -> tuple[str, ...]:
        return self.envelope.classes

    @property
    def guarantees(self) -> tuple[Guarantee, ...]:
        return self.envelope.guarantees

    @property
    def certified(self) -> bool:
        return self.envelope.certified

    @property
    def mu(self) -> float | None:
        """The μ that every unit is promised; None where nothing is."""
        return self.envelope.mu

    @property
    def reproducible(self) -> bool:
        return self.envelope.reproducible

    @property
    def assets(self) -> Mapping[str, str]:
        return self.envelope.assets

    @property
    def label_epsilon(self) -> float | None:
        return self.envelope.label_epsilon

    @property
    def unit_rows(self) -> int:
        """The most rows that one unit has."""
        return self.envelope.unit_rows

    @property
    def shape(self) -> tuple[int, ...]:
        return self._of_records.shape

    @property
    def encoder(self) -> Encoder:
        return self._of_records.encoder

    @property
    def extractor(self) -> Extractor | None:
        """The network of its rows, where they are features themselves; None for pixels and for projections."""
        return self._of_records.extractor

    @property
    def screened(self) -> Screened | None:
        """The screen that dropped rows, if there was one."""
        return self._of_records.screened

    @property
    def records(self) -> int:
        """The number of records that rows were made of."""
        return len(self.payload) if self.screened is None else self.screened.records

    @property
    def _of_records(self) -> OfRecords:
        if not isinstance(self.envelope.settings, OfRecords):
            raise MismatchError(f"release {self.id[:8]} of {self.party} holds {self.envelope.kind}, not records")
        return self.envelope.settings


class ClientPart(Protocol):
    """The first part h of a split network, which a party runs on its images. Attackers have it too, weights and all.

    Attributes:
        shape: Of one image that it takes.
        low, high: The range of a pixel.
        all_values: How many values all of its layers together make of one image: attacks, which keep them for their
            gradients, work on fewer images at once where these are many.
    """

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def low(self) -> float: ...
    @property
    def high(self) -> float: ...
    @property
    def all_values(self) -> int: ...
    def on(self, device: torch.device) -> Callable[[Tensor], Tensor]:
        """The network on a device, from (m, *shape) images to (m, values) flat representations: float32 and
        differentiable in its argument; its own weights are fixed."""


@runtime_checkable
class OfUpdates(Protocol):
    """What the settings of a release of updates have. Server and attackers know it all.

    Attributes:
        shape: Of one row that was trained on.
        low, high: The range of a value of such a row.
        training: How the party trained; None where it is not said.
    """

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def low(self) -> float: ...
    @property
    def high(self) -> float: ...
    @property
    def training(self) -> LocalTraining | None: ...
    def network(self) -> nn.Sequential | None:
        """A new network as was trained, without its weights; None where it is not a plain sequence of layers."""


class KnownRecords(NamedTuple):
    """Records that an attacker already has: (k,) their numbers, and (k, …) images in the data's own values."""

    records: Tensor
    images: Tensor


class Units(NamedTuple):
    """Groups of candidates; each group may be a unit of the releases, all images of one person. Which rows belong
    together is public.

    Attributes:
        group: (s,) the number of the group, from 0.
        row: (s,) the row that would be the candidate's own.
        candidate: (s,) its number among the view's candidates.
    """

    group: Tensor
    row: Tensor
    candidate: Tensor


@dataclass(frozen=True)
class View:
    """All that an attacker sees: which fields are set IS the threat model.

    Attributes:
        releases: Of the same records.
        traces: Pairing and weights of each release. Partners beyond the rows are records without a row, or covers.
        covers: The public patches that rows are mixed with, where they are, or others like them.
        records: How many records the rows are of, where rows are in no known order, as in a challenge; None: row i of
            every release is of record i.
        public: Data like the private ones.
        candidates: (c, …) images; the attacker asks whether, and where, they are in the releases.
        candidate_labels: (c,) the classes of candidates.
        known: Some of the records themselves.
        pictures: The images behind public rows, where rows are features.
        units: Groups of candidates; the attacker asks whether they are units.
        client: The network that made representations, where releases hold those.
        labels: (n,) the classes of the records, where an attacker knows them beforehand.
    """

    releases: tuple[Release, ...]
    traces: tuple[Trace, ...] | None = None
    public: Rows | None = None
    candidates: Tensor | None = None
    candidate_labels: Tensor | None = None
    known: KnownRecords | None = None
    pictures: Rows | None = None
    units: Units | None = None
    covers: Rows | None = None
    records: int | None = None
    client: ClientPart | None = None
    labels: Tensor | None = None


@dataclass(frozen=True)
class Guess:
    """What an attack says; other fields stay None.

    Attributes:
        images: (n, …) a reconstruction of every record; in any order, where rows are in none.
        sources: (m, s) the records in each row, numbered as `images`; −1 where it does not say. Of all rows of all
            releases, one release after another.
        pairs: (n, 2) for each row its two sources among the candidates, own source first, −1 where it does not say.
        doubts: (n,) how badly each pair fits.
        links: (c, n) how much likelier each row is if a candidate is its own record.
        rows: (c,) the likeliest row of each candidate, where `links` would be too many to be held.
        scores: (c,) the same for being in the releases at all, or (g,) for groups of candidates.
        labels: (n, 2) for each row the two classes of its sources.
        pictures: (n, c, h, w) in [0, 1], the images that records were made of, where records are features.
        covers: (n, p) how much likelier each cover is in each row of the first release.
        signs: (n, d) ±1, the signs of the mixtures of the first release, which its rows hide.
        alike: (m, m) how much likelier two rows share a source: of all rows of all releases, one release after another.
        apart: (n, s) p-values: how likely the rows of each record look as different from the others' as they do.
        counts: (classes,) how many records of each class an update was made of.
    """

    images: Tensor | None = None
    sources: Tensor | None = None
    pairs: Tensor | None = None
    doubts: Tensor | None = None
    links: Tensor | None = None
    rows: Tensor | None = None
    scores: Tensor | None = None
    labels: Tensor | None = None
    pictures: Tensor | None = None
    covers: Tensor | None = None
    signs: Tensor | None = None
    alike: Tensor | None = None
    apart: Tensor | None = None
    counts: Tensor | None = None


AttackKind = Literal[
    "prior", "reconstruction", "linkage", "pairs", "membership", "labels", "covers", "signs", "grouping", "distribution"
]
"""What an attack guesses: nothing beyond the average, records, the row of a record, the two sources of a row, whether a
record is in a release, classes, the public images in a row, hidden signs, which rows share a source, or whether the
rows of different records are distributed differently."""

AttackBound = Literal["linear-row", "linear", "linear-known", "gdp"]
"""What theory bounds an attack by: the Bayes risk of a linear attacker who sees one row, all rows, or all rows and all
other records; or the membership that μ permits."""


class Sizes(NamedTuple):
    """What the work of an attack grows with.

    Attributes:
        rows: Of each release.
        values: Of a row.
        releases: How many.
        directions: In which records vary, as far as an attacker knows.
        candidates: Records that are compared with rows.
    """

    rows: int
    values: int
    releases: int
    directions: int
    candidates: int


class Attack(Protocol):
    """One attack: a frozen dataclass called on a View. An audit runs and judges it by what it declares.

    Attributes:
        needs: The fields of the View that must be set.
        payload: The kind of payload that it attacks.
        linear: Whether it needs rows that are weighed sums of records (`Encoder.linear`).
        trains: Whether it trains a network. Such an attack has a field `cache`, a TrainingCache.
        least_releases: The number of releases that it needs to show anything, even without a defence.
        bound: What theory bounds it by, if anything.
        learns: Whether it learns what records are like: from public data, or from the release where there are none.
        threat: The code of the sentence that says which attacker could do this.
    """

    name: ClassVar[str]
    kind: ClassVar[AttackKind]
    needs: ClassVar[frozenset[str]]
    payload: ClassVar[str]
    linear: ClassVar[bool]
    trains: ClassVar[bool]
    least_releases: ClassVar[int]
    bound: ClassVar[AttackBound | None]
    learns: ClassVar[bool]
    threat: ClassVar[str]

    def cannot(self, view: View) -> Note | None:
        """Why this attack cannot be run on a view; None if it can."""

    def work(self, sizes: Sizes) -> float:
        """Floating-point operations of one call, roughly: an audit says beforehand about how long it takes."""

    def __call__(self, view: View, *, stream: Stream) -> Guess: ...

    def knowing(self, view: View, *, stream: Stream) -> Callable[[KnownRecords, Tensor], Tensor]:
        """What the attack guesses of wanted records (m,), with others known: (m, …). An audit asks with many sets of
        them, one after another."""
