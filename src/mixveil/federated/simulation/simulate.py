"""The whole job of a simulation: the ways to learn together, side by side on one partition of one data set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from mixveil.core import checks, files
from mixveil.core.errors import ArgumentError, MixveilError, OutputError, TrainingError
from mixveil.core.randomness import SeededStream
from mixveil.core.types import Progress
from mixveil.core.watching import Warn, Watch, unheard, unwatched
from mixveil.core.wording.notes import Note, note
from mixveil.data.fingerprint import among, fingerprints
from mixveil.data.images import Images
from mixveil.data.opening import NAMED, DataOptions, DataSpec
from mixveil.data.partition import set_aside
from mixveil.features.cache import Features, Loaded
from mixveil.features.extractor import Extractor
from mixveil.features.opening import FeatureOptions, chosen_extractor
from mixveil.features.round_settings import RoundSettings
from mixveil.federated.algorithms import HeadName
from mixveil.federated.methods.base import IMAGE_HEADS
from mixveil.federated.methods.catalogue import chosen_methods, method_named
from mixveil.federated.simulation.results import Compared, Job, Kept, Row, compared, readable
from mixveil.federated.simulation.setup import PublicSetup, Simulation, SimulationConfig, prepared, set_up
from mixveil.federated.simulation.verdict import of_row, verdict
from mixveil.learn import public_tasks
from mixveil.releases.encode import measured
from mixveil.report.simulation_page import is_page, write_page

Sets = tuple[Images, Images, Images]
_RATES: dict[HeadName, float] = {"linear": 5e-3, "mlp": 1e-3, "lenet5": 1e-3, "convnet": 1e-3}


@dataclass(frozen=True)
class Simulated:
    """What a simulation found.

    Attributes:
        whole: Format, settings, counts and all rows, as its file holds them.
        verdict: Which method is best at which promise, and which are worse than each party alone.
        rows: Those of the methods that were asked for: accuracy, bytes, messages, seconds, guarantee.
        compared: Methods that send once or twice beside those with rounds.
        failed: The error of each method that could not be run.
        caveats: What a reader of the figures should know.
    """

    whole: dict[str, Any]
    verdict: tuple[Note, ...]
    rows: tuple[dict[str, Any], ...]
    compared: tuple[Compared, ...]
    failed: dict[str, MixveilError]
    caveats: tuple[Note, ...]


def simulate(
    data: DataSpec,
    *,
    parties: int = 10,
    beta: float | None = None,
    rho: float = 1.0,
    methods: str | Sequence[str] = "all",
    mu: float | Sequence[float] = 2.0,
    tau: float | None = None,
    head: HeadName = "linear",
    rounds: int = 50,
    epochs: int = 20,
    learning_rate: float | None = None,
    test: DataSpec | None = None,
    public: DataSpec | None = None,
    backbone: str | None = None,
    mirror: bool = False,
    seed: int = 0,
    severity: float = 2.0,
    out: Path | str | None = None,
    page: Path | str | None = None,
    options: DataOptions | None = None,
    cache: Path | str | None = None,
    watch: Watch = unwatched,
    warn: Warn = unheard,
    tell: Warn = unheard,
) -> Simulated:
    """Deal data to parties and let them learn together in many ways, in this process: an experiment with seeded noise.
    Nothing leaves, and nothing is entered in the ledger.

    Args:
        parties: Among how many the rows are dealt.
        beta: Label skew: each class is dealt in proportions from Dir(β). None: alike. rho: size skew, in (0, 1].
        methods: `all`, or names.
        mu: Guarantees to run the private methods at. tau: of one-shot and remixed; else 1e-6, and 0.1 of pixels.
        head: What methods with a gradient train; lenet5 and convnet are networks on images, without a backbone.
        rounds: Of methods with rounds, one epoch each; epochs: of the others.
        test: Rows to test on; else the set's test split, or a fifth of the data.
        public: Labelled public data; else a quarter of the data is set aside and plays them.
        seed: Of partition, noise and training.
        severity: Of the views of fed-augmix and fedprox-augmix, in (0, 10].
        out: A JSON file that keeps what is found; the same call continues with what is left. page: An .html page.
        tell: Is told of every method that is done.
    """
    options = options or DataOptions()
    names, mus = chosen_methods(methods if isinstance(methods, str) else ",".join(methods)), _several(mu)
    if head not in _RATES:
        raise ArgumentError(f"head must be one of {', '.join(_RATES)}, got {head!r:.60}")
    if head in IMAGE_HEADS and backbone is not None:
        raise ArgumentError(f"head {head} takes images, not features of a backbone: leave out backbone, got {backbone}")
    rate = _RATES[head] if learning_rate is None else learning_rate
    nominal = (0.1 if backbone is None else 1e-6) if tau is None else tau
    dealt = (parties, beta, rho, head, rounds, epochs)
    setting = SimulationConfig(*dealt, learning_rate=rate, tau=nominal, seed=seed, severity=severity)
    file, html = (None if path is None else Path(path) for path in (out, page))
    _check_outputs(file, html)
    sets = _sets(data, test, public, options)
    about = {
        "data": _shown(data),
        "test": _shown(test),
        "public": _shown(public),
        "backbone": backbone or "none",
        "mirror": mirror,
        "rows": [len(images) for images in sets],
        "classes": list(sets[0].classes),
        "digest": _digest(sets, warn),
        **asdict(setting),
    }
    wanted, kept = jobs(names, mus), Kept(file, about)
    todo = [job for job in wanted if not kept.has(job)]
    if len(todo) < len(wanted):
        warn(note("kept-already", kept=len(wanted) - len(todo), asked=len(wanted), path=str(file)))
    failed: dict[str, MixveilError] = {}
    if todo:
        extractor = chosen_extractor(backbone, None, mirror) or Extractor()
        failed = _run(kept, todo, setting, sets, extractor, FeatureOptions(options, cache, watch), warn, tell)
    rows = [row for job in wanted for row in kept.rows if (row["method"], row["mu"]) == job]
    beside, judged = compared(rows), verdict(rows, len(sets[1]))
    if html is not None:
        write_page(html, {**kept.whole(), "rows": readable(rows)}, [asdict(item) for item in beside], judged)
    if not rows:
        raise TrainingError("no method could be run: see the warnings")
    told = _caveats(len(sets[1]), public is None)
    return Simulated(kept.whole(), judged, tuple(rows), tuple(beside), failed, told)


def jobs(methods: Sequence[str], mus: Sequence[float]) -> list[Job]:
    """Every method, those with a μ at each."""
    found: list[Job] = []
    for name in methods:
        found += [(name, mu) for mu in mus] if method_named(name).simulated_at == "mu" else [(name, None)]
    return found


def work(simulation: Simulation, name: str) -> int:
    """How many rows a method goes over, for a progress bar."""
    return method_named(name).passes(simulation) * simulation.rows


def run_method(
    simulation: Simulation, name: str, mu: float | None = None, *, progress: Progress = lambda _: None
) -> Row:
    """Run one method."""
    return Row(name, mu, method_named(name).simulate(simulation, 0.0 if mu is None else mu, progress))


def _several(mu: float | Sequence[float]) -> list[float]:
    given = [mu] if isinstance(mu, int | float) else list(mu)
    if not given:
        raise ArgumentError("mu: no number is given")
    return [checks.finite_positive("mu", value) for value in dict.fromkeys(given)]


def _shown(data: DataSpec | None) -> str | None:
    return data.name if isinstance(data, Images) else None if data is None else str(data)


def _check_outputs(file: Path | None, page: Path | None) -> None:
    """Refuse what could not be written, before anything is computed."""
    if page is not None and page.suffix.lower() not in (".html", ".htm"):
        raise ArgumentError(f"page = {page}: a page is an .html file")
    if page is not None and page.is_file() and not is_page(page):
        raise OutputError(f"{page} exists, and is not the page of a simulation: it is not overwritten")
    for path in (file, page):
        if path is not None:
            files.check_parent(path)


def _sets(data: DataSpec, test: DataSpec | None, public: DataSpec | None, options: DataOptions) -> Sets:
    """Rows to deal, to test on, and public ones."""

    def parted(images: Images, share: int) -> tuple[Images, Images]:
        stay, aside = set_aside(images.labels, share, stream=SeededStream(0).fork(f"apart {share}"))
        return images.part(stay), images.part(aside)

    if isinstance(data, str) and data in NAMED and {"train", "test"} <= set(NAMED[data].splits):
        data, test = f"{data}:train", test or f"{data}:test"
    rows = options.open(data)
    rows, tested = parted(rows, 5) if test is None else (rows, options.open(test).listed(rows.classes))
    rows, known = parted(rows, 4) if public is None else (rows, options.open(public))
    return rows, tested, known


def _digest(sets: Sets, warn: Warn) -> str:
    """Of all images and labels: what was found for others is not taken for theirs. Refuses sets that share rows, but
    for the copies that data have by nature."""
    prints = [fingerprints(images) for images in sets]
    for one, other, what in ((0, 1, "test"), (0, 2, "public"), (2, 1, "test and public")):
        shared = among(prints[one], prints[other])
        if shared > 0.1 * min(len(sets[one]), len(sets[other])):
            raise ArgumentError(
                f"{shared:,} of the {what} rows are among the others: rows to deal, to test on and public ones must "
                f"not be the same"
            )
        if shared:
            warn(note("rows-shared", rows=shared, what=what))
    whole = sha256()
    for images, found in zip(sets, prints, strict=True):
        whole.update(found.numpy().tobytes() + images.labels.numpy().tobytes())
    return whole.hexdigest()


def _run(
    kept: Kept,
    todo: list[Job],
    setting: SimulationConfig,
    sets: Sets,
    extractor: Extractor,
    features: FeatureOptions,
    warn: Warn,
    tell: Warn,
) -> dict[str, MixveilError]:
    """Run what is left; why what could not be run could not."""
    loaded = features.load(extractor)
    train, test, known = (features.of(images, loaded) for images in sets)
    agreed = _agreed(known, loaded, sets[2], setting.tau, {name for name, _ in todo}, features.watch)
    simulation = set_up(train, test, agreed, setting)
    kept.counts = simulation.counts
    failed: dict[str, MixveilError] = {}
    for name, mu in todo:
        title = method_named(name).title + ("" if mu is None else f", μ = {mu:g}")
        try:
            with features.watch(title, work(simulation, name)) as step:
                row = run_method(simulation, name, mu, progress=step)
            kept.add(row)
            figures = {"accuracy": row.outcome.accuracy, "seconds": row.outcome.seconds}
            tell(note("method-done", which=of_row({"method": name, "mu": mu}), **figures))
        except OutputError:
            raise
        except MixveilError as error:
            failed[name] = error
            warn(note("method-not-run", title=title, why=str(error)))
    return failed


def _agreed(known: Features, loaded: Loaded, images: Images, tau: float, names: set[str], watch: Watch) -> PublicSetup:
    """What is public. The paper's noise on features is measured, and settings for rounds are found, where a method uses
    them."""
    radius, settings = None, tuple[RoundSettings, ...]()
    if loaded.nets and any(method_named(name).simulated_at == "tau" for name in names):
        radius = measured(images, loaded, [tau], stream=SeededStream(0), watch=watch)[-1].radius
    if any(method_named(name).needs_settings for name in names):
        with watch("settings", len(public_tasks.LEVELS)) as step:
            settings = public_tasks.find(known, step)
    return prepared(known, loaded.digest, tau=tau, radius=radius, settings=settings)


def _caveats(tested: int, set_aside: bool) -> tuple[Note, ...]:
    told = [note("one-seed", rows=tested, points=100 / tested**0.5), note("seeded-experiment")]
    return (*told, note("rows-played-public")) if set_aside else tuple(told)
