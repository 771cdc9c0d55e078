"""Training a split network at many (λ, β), and what each leaves of accuracy, separability and of attackers' pictures.

A point of the sweep is a folder of its own, with both halves and its figures. A sweep that was stopped goes on: points
that are there are read, the others are trained. On a GPU several trainings take turns.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mixveil.attacks.catalogue import attacks as known_attacks
from mixveil.attacks.shared.training import TrainingCache, with_cache
from mixveil.core import checkpoint, checks, files, strict_json
from mixveil.core.errors import ArgumentError, DataFormatError, ManifestError, MixveilError
from mixveil.core.randomness import SeededStream
from mixveil.core.types import View
from mixveil.core.watching import Watch, unwatched
from mixveil.core.wording.notes import Note, note
from mixveil.data.images import Images
from mixveil.data.opening import DataOptions, DataSpec
from mixveil.data.similarity import mse, ssim
from mixveil.features.split.half import halves
from mixveil.learn.split import (
    SplitJob,
    SplitTrained,
    check_apart,
    digest,
    fitting,
    held,
    in_turns,
    measured,
    write_split,
)
from mixveil.learn.split_training import SplitRecipe
from mixveil.learn.train import Stopping, never
from mixveil.releases.representations import in_memory
from mixveil.report import split_page
from mixveil.report.split_page import AttackFigures, SweepPoint

WEIGHTS = (0.01, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 100.0)
BETAS = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8)
SETTINGS, PAGE, POINTS, FIGURES = "sweep.json", "sweep.html", "points", "figures.json"
_PICTURES = 8


@dataclass(frozen=True)
class SplitSweep:
    """A sweep that is finished. page: plots and pictures, for the owner of the data that were attacked; chosen: the
    number of the point of which attackers recover least, of those within `within` of the accuracy without a penalty;
    None where there is none, where the network learned nothing, or where the attacks recover nothing without a penalty
    either; warnings: what to know before figures or halves are used."""

    folder: Path
    page: Path
    points: tuple[SweepPoint, ...]
    chosen: int | None
    warnings: tuple[Note, ...] = ()


def split_sweep(
    data: DataSpec,
    out: Path | str,
    *,
    test: DataSpec,
    network: str = "lenet5",
    cut: str | None = None,
    weights: Sequence[float] = WEIGHTS,
    betas: Sequence[float] = BETAS,
    recipe: SplitRecipe | None = None,
    attacks: Sequence[str] = ("inversion",),
    attacked: int = 100,
    within: float = 0.01,
    steps: int | None = None,
    options: DataOptions | None = None,
    watch: Watch = unwatched,
    say: Callable[[str], None] = lambda text: None,
    stopping: Stopping = never,
) -> SplitSweep:
    """Train at every (λ, β) and without a penalty, attack what each client half makes of the first test images, and
    write a page. The same call continues a sweep that was stopped.

    Args:
        out: The folder to make, or that an earlier call with the same settings made.
        test: Data to measure accuracy on, and to attack; the training does not see them. What is chosen by a sweep was
            chosen on these data: measure it again on others.
        weights, betas: Of MixCon's loss.
        recipe: All other settings of the trainings.
        attacks: Names of attacks on representations. Those that need public data get the training data.
        attacked: How many test images are attacked, if there are so many.
        within: How much accuracy a setting may lose to be marked.
        steps: Attacks that train a network take at most so many.
        network, cut, options, watch, say, stopping: As for `split_train`.
    """
    out, options, recipe = Path(out), options or DataOptions(), recipe or SplitRecipe()
    recipes = points_of(weights, betas, recipe)
    _check(attacks, attacked, within, steps)
    files.check_writable(out)
    images = options.open(data)
    tested, _ = held(fitting(options.for_others.open(test), images))
    job = SplitJob.of(images, network, cut)
    rows = job.begun(recipes[0]).rows  # before anything is written: a training can begin
    attacked = min(attacked, len(tested))
    settings = {**job.about, "recipes": [asdict(each) for each in recipes], "attacks": [*attacks], "attacked": attacked}
    target = _Target(tested, attacked, tuple(attacks), job.images, TrainingCache(max_steps=steps))
    check_apart(tested, job)
    target.check(job)
    _begin(out, {**settings, "steps": steps, "tested": digest(tested)})
    with files.alone(out), stopping() as stop, watch("sweep", rows * len(recipes)) as step:
        points = _points(out, recipes, target)
        step(rows * len(points))
        missing = [number for number in range(len(recipes)) if number not in points]
        asked = [(recipes[number], _folder(out, number).with_name(f".{number:03d}.training")) for number in missing]
        for place, trained in in_turns(job, asked, progress=step, note=say, stop=stop):
            number = missing[place]
            found = replace(trained, figures=measured(trained, tested))
            points[number] = _written(_folder(out, number), found, recipes[number], *target.attacked(found))
            checkpoint.discard(asked[place][1])
        done = tuple(points[number] for number in range(len(recipes)))
        nothing, common, warnings = target.nothing(), target.commonest(), _warnings(attacks)
        judged = {"within": within, "nothing": nothing, "commonest": common}
        split_page.write_page(out / PAGE, done, about=settings, warnings=warnings, **judged)
    marked = split_page.chosen(done, within, nothing, common)
    return SplitSweep(out, out / PAGE, done, marked, (note("halves-warning"), *warnings))


def _warnings(attacks: Sequence[str]) -> tuple[Note, ...]:
    """What the figures do not show."""
    trains = any(known_attacks()[name].trains for name in attacks)
    untried = () if trains else (note("sweep-untrained", attacks=", ".join(attacks)),)
    return (note("sweep-warning"), *untried)


def _check(attacks: Sequence[str], attacked: int, within: float, steps: int | None) -> None:
    """Refuse settings that cannot be, before data are read."""
    checks.at_least("the number of images to attack", attacked, 2)
    if steps is not None:
        checks.at_least("steps", steps, 1)
    if not 0 <= within < math.inf:
        raise ArgumentError(f"within must be 0 or positive, and finite, got {within}")
    known = [name for name, attack in known_attacks().items() if attack.payload == "representations"]
    if wrong := [name for name in attacks if name not in known]:
        raise ArgumentError(f"attacks on representations are {', '.join(sorted(known))}; got {wrong[0]!r:.60}")
    if not attacks or len(set(attacks)) < len(attacks):
        raise ArgumentError(f"attacks must be different names, one at least, got {', '.join(attacks) or 'none'}")


def points_of(weights: Sequence[float], betas: Sequence[float], recipe: SplitRecipe) -> list[SplitRecipe]:
    """All settings of a sweep, the one without a penalty first."""
    if not weights or not betas:
        raise ArgumentError("a sweep needs a weight and a β at least")
    if recipe.penalty != "mixcon":
        raise ArgumentError(f"a sweep is over the settings of mixcon, got the penalty {recipe.penalty}")
    pairs = [(float(weight), float(beta)) for weight in weights for beta in betas]
    if len(set(pairs)) < len(pairs) or any(weight <= 0 for weight in weights):
        raise ArgumentError("weights must be positive, and no weight or β may be given twice")
    bare = replace(recipe, penalty="none", weight=0.0, beta=0.0)
    return [bare, *(replace(recipe, weight=weight, beta=beta) for weight, beta in pairs)]


def _begin(out: Path, settings: dict[str, Any]) -> None:
    """Make the folder of a sweep, or go on with it if it was made with the same settings."""
    text = json.dumps(settings, indent=2, sort_keys=True) + "\n"
    path = out / SETTINGS
    if path.exists():
        if files.read_small(path, strict_json.MANIFEST_LIMIT) != text.encode():
            raise ArgumentError(
                f"{out} is a sweep with other settings or data: finish that one, or take another folder"
            )
        return
    files.check_new(out)
    with files.atomic_folder(out, "sweep", 0o700) as part:
        (part / POINTS).mkdir(mode=0o700)
        files.write_file(part / SETTINGS, text.encode(), 0o600)


def _folder(out: Path, number: int) -> Path:
    return out / POINTS / f"{number:03d}"


@dataclass(frozen=True)
class _Target:
    """What is attacked, the same at every point. tested: in memory, its first `count` images are attacked; names: of
    attacks; public: what attackers may train on."""

    tested: Images
    count: int
    names: tuple[str, ...]
    public: Images
    cache: TrainingCache

    def check(self, job: SplitJob) -> None:
        """Refuse attacks that cannot be run, before anything is trained."""
        images = job.images
        client, _ = halves(*job.make(), images.shape, images.classes, low=images.low, high=images.high)
        view = View((in_memory(self.tested.part(torch.arange(2)), client),), public=self.public, client=client)
        for name in self.names:
            if (why := known_attacks()[name]().cannot(view)) is not None:
                raise ArgumentError(f"the attack {name} cannot be run here: {why}")

    @property
    def truth(self) -> Tensor:
        return self.tested.take(torch.arange(self.count)).x

    def scaled(self, x: Tensor) -> Tensor:
        """Pixels in [0, 1], in float64."""
        return (x.double() - self.tested.low) / (self.tested.high - self.tested.low)

    def nothing(self) -> float | None:
        """The mean SSIM of the mean training image; None where records are no images."""
        truth = self.scaled(self.truth)
        if truth.dim() != 4:
            return None
        mean = self.public.take(torch.arange(len(self.public))).x.double().mean(0)
        return float(ssim(truth, self.scaled(mean).expand_as(truth)).mean())

    def commonest(self) -> float:
        """The share of the commonest test class."""
        return float(self.tested.labels.bincount().max()) / len(self.tested)

    def originals(self) -> Tensor:
        """(m, …) the images that are shown."""
        return self.scaled(self.truth[:_PICTURES]).float()

    def attacked(self, trained: SplitTrained) -> tuple[dict[str, AttackFigures], dict[str, Tensor]]:
        """The figures of each attack, and a few of its pictures beside the originals. An attack whose guess is not
        finite failed: it has no figures and no pictures."""
        some, truth = self.tested.part(torch.arange(self.count)), self.scaled(self.truth)
        view = View((in_memory(some, trained.client),), public=self.public, client=trained.client)
        figures, pictures = {}, {"original": self.originals()}
        for name in self.names:
            attack = with_cache(known_attacks()[name](), self.cache)
            guess = attack(view, stream=SeededStream(0).fork(name)).images
            if guess is None:
                raise ArgumentError(f"the attack {name} guesses no images")
            if not bool(guess.isfinite().all()):
                figures[name] = AttackFigures(None, None, None, None, None)
                continue
            found = self.scaled(guess).clamp(0, 1)
            figures[name] = AttackFigures.of(ssim(truth, found) if truth.dim() == 4 else None, mse(truth, found))
            pictures[name] = found[:_PICTURES].float()
        return figures, pictures


def _written(
    folder: Path,
    trained: SplitTrained,
    recipe: SplitRecipe,
    figures: dict[str, AttackFigures],
    pictures: dict[str, Tensor],
) -> SweepPoint:
    """Write a point whole, and return it."""
    if trained.figures is None:
        raise ArgumentError("a point of a sweep has figures")
    tested = trained.figures
    point = SweepPoint(recipe.penalty, recipe.weight, recipe.beta, tested.accuracy, tested.separability, figures)
    with files.atomic_folder(folder, "point", 0o700) as part:
        write_split(part / "halves", trained, recipe)
        split_page.write_pictures(part, pictures)
        files.write_file(part / FIGURES, (json.dumps(point.plain(), indent=2, allow_nan=False) + "\n").encode(), 0o600)
    return replace(point, folder=folder)


def _points(out: Path, recipes: Sequence[SplitRecipe], target: _Target) -> dict[int, SweepPoint]:
    """The points that earlier calls finished, by number. What a killed one left of a point is removed."""
    for left in (out / POINTS).glob(f".*.point{files.PARTIAL}"):
        shutil.rmtree(left, ignore_errors=True)
    found = {number: _kept(_folder(out, number), each, target) for number, each in enumerate(recipes)}
    return {number: point for number, point in found.items() if point is not None}


def _kept(folder: Path, recipe: SplitRecipe, target: _Target) -> SweepPoint | None:
    """A point that an earlier call finished; None where it is not there."""
    if not folder.exists():
        return None
    try:
        item = strict_json.parsed(files.read_small(folder / FIGURES, strict_json.MANIFEST_LIMIT))
        point = SweepPoint.read(item, folder)
        settings = (point.penalty, point.weight, point.beta, *point.attacks)
        if settings != (recipe.penalty, recipe.weight, recipe.beta, *target.names):
            raise ManifestError("it is of other settings")
        if not torch.equal(split_page.read_pictures(point)["original"], target.originals()):
            raise ManifestError("its originals are not the images that this sweep attacks")
        images = target.truth.dim() == 4
        if any((figures.ssim is None) == images for figures in point.attacks.values() if not figures.failed):
            raise ManifestError("images have an SSIM, and other records have none")
    except MixveilError as error:
        raise DataFormatError(f"{folder} is not a point of this sweep ({error}): remove it to train it again") from None
    return point
