"""The coordinator's side of rounds of sums by files, as whole jobs: a plan, then a step for each round of messages.

A step reads the releases of all parties that sent one, and writes a folder: `head.safetensors`, which parties get for
their next message, and `state.safetensors`, from which the next step goes on. At any step the head can be written as a
model too. All of it is post-processing of what parties released."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mixveil.core import files
from mixveil.core.errors import ArgumentError, MismatchError
from mixveil.core.types import Release
from mixveil.core.watching import Watch, unwatched
from mixveil.core.wording.notes import Note, note
from mixveil.data.images import Images
from mixveil.data.opening import DataOptions, DataSpec
from mixveil.features import projection_file
from mixveil.features.opening import FeatureOptions
from mixveil.features.projection import Projection
from mixveil.features.round_settings import nearest, noise_of
from mixveil.features.shipped import located
from mixveil.learn import rounds
from mixveil.learn.class_means import check_together
from mixveil.learn.layers import Layers
from mixveil.learn.model import write_model
from mixveil.learn.round_state import SavedRounds, read_state
from mixveil.learn.train import TrainedModel, testable, tested_on, versions
from mixveil.learn.training import Job, checked, trained_on
from mixveil.releases.kinds.sums import SumSettings
from mixveil.releases.reading import read_release
from mixveil.releases.round_plan import JointPlan, head_bytes, read_plan

HEAD, STATE = "head.safetensors", "state.safetensors"


def rounds_plan(
    out: Path | str, *, projection: Path | str, units: int, num_classes: int, parties: int, mu: float
) -> JointPlan:
    """Plan rounds of sums, and write the plan for all parties.

    Args:
        out: The file to make. It must not exist.
        projection: The file of the public projection that all parties use. It carries settings for rounds.
        units: About how many records (units, where parties name them) all parties have together.
        num_classes: How many classes there are.
        mu: About what each party will spend. Each party gives its own when it sends.
    """
    path = Path(out)
    files.check_new(path)
    found, digest = projection_file.read(located(projection))
    noise = noise_of(units=units, classes=num_classes, mu=mu, parties=parties)
    plan = JointPlan(digest, nearest(found.rounds, noise))
    plan.narrowed(found, digest)
    plan.write(path)
    return plan


@dataclass(frozen=True)
class RoundsStep:
    """A step of the coordinator.

    Attributes:
        folder: What it wrote; None where only a model was asked for.
        message: The number of the messages that it learnt from: 0 for class sums, then the rounds.
        rounds: How many rounds the plan has.
        head: The file that parties get for their next message; None after the last, or without a folder.
        model: The model, where one was asked for.
        warnings: Parties without class sums.
    """

    folder: Path | None
    message: int
    rounds: int
    parties: tuple[str, ...]
    head: Path | None
    model: TrainedModel | None
    warnings: tuple[Note, ...]


def rounds_step(
    folders: Sequence[Path | str],
    out: Path | str | None = None,
    *,
    plan: Path | str,
    projection: Path | str,
    state: Path | str | None = None,
    model: Path | str | None = None,
    test: DataSpec | None = None,
    options: DataOptions | None = None,
    cache: Path | str | None = None,
    watch: Watch = unwatched,
) -> RoundsStep:
    """Learn from the messages of all parties of one round.

    Args:
        folders: The releases, one of each party that takes part: class sums, or residual sums of the state's head.
        out: The folder to make, with the next head and the state. It must not exist.
        plan, projection: The files that the parties have.
        state: The folder of the step before; None: these are class sums, the first step.
        model: The folder of a model to make of the head as it is after this step.
        test: Labelled data to test the model on.
    """
    places = [Path(place) for place in (out, model) if place is not None]
    if not places:
        raise ArgumentError("a step writes a folder for the next one, or a model: give out, model, or both")
    if test is not None and model is None:
        raise ArgumentError("test is for a model: give model too")
    for place in places:
        files.check_new(place)
        files.check_writable(place)
    agreed, (wide, digest) = read_plan(Path(plan)), projection_file.read(located(projection))
    narrow = agreed.narrowed(wide, digest)
    before = None if state is None else read_state(Path(state) / STATE, agreed)
    parts = [read_release(Path(folder), SumSettings.name) for folder in folders]
    after = _learnt(parts, agreed, narrow, before)
    told = _strangers(after)
    trained = None
    if model is not None:
        job, features = (
            Job(tuple(parts), (narrow, digest)),
            FeatureOptions((options or DataOptions()).for_others, cache, watch),
        )
        trained = _model(Path(model), job, after, before, agreed, test, features)
    where = None if out is None else Path(out)
    head = None if where is None else _write(where, after, agreed)
    names = tuple(part.party for part in parts)
    return RoundsStep(where, after.message, agreed.settings.rounds, names, head, trained, tuple(told))


def _learnt(parts: Sequence[Release], plan: JointPlan, narrow: Projection, before: SavedRounds | None) -> SavedRounds:
    """What follows from one round's messages. Those that do not belong together, or to the round, are refused."""
    if before is not None and before.message >= plan.settings.rounds:
        raise ArgumentError(f"the plan has {plan.settings.rounds} rounds, and the state has learnt from all of them")
    clip = narrow.clip if before is None else plan.settings.clip * narrow.clip
    check_together(parts, narrow, plan.projection, content="classes" if before is None else "residuals", clip=clip)
    names = [part.party for part in parts]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise MismatchError(f"{twice[0]} is there twice: a step takes one message of each party")
    if any(part.envelope.settings.masked for part in parts if isinstance(part.envelope.settings, SumSettings)):
        raise MismatchError("these sums are masked: only the sum over all parties of a job can be read")
    earlier = () if before is None else before.sources
    if before is None:
        state = rounds.from_class_sums(parts, plan.settings)
    else:
        if parts[0].classes != before.classes:
            raise MismatchError(f"{parts[0].party} does not have the classes of the class sums, in the same order")
        state = rounds.from_residuals(before.state, parts, plan.settings, before.head)
    head = hashlib.sha256(head_bytes(state.head, plan, state.done + 1)).hexdigest()
    return SavedRounds(plan.id, state, head, parts[0].classes, (*earlier, tuple(map(trained_on, parts))))


def _strangers(after: SavedRounds) -> list[Note]:
    """Parties of the last message that sent no class sums."""
    first = {source.party for source in after.sources[0]}
    return [note("party-without-class-sums", party=s.party) for s in after.sources[-1] if s.party not in first]


def _write(out: Path, after: SavedRounds, plan: JointPlan) -> Path | None:
    """The folder of a step; the head in it, if parties are to answer it."""
    last = after.message == plan.settings.rounds
    with files.atomic_folder(out, plan.id[:8]) as folder:
        files.write_file(folder / STATE, after.to_bytes())
        if not last:
            files.write_file(folder / HEAD, head_bytes(after.state.head, plan, after.message + 1))
    return None if last else out / HEAD


def _model(
    out: Path,
    job: Job,
    after: SavedRounds,
    before: SavedRounds | None,
    plan: JointPlan,
    test: DataSpec | None,
    features: FeatureOptions,
) -> TrainedModel:
    earlier = [source for sources in (before.sources if before else ()) for source in sources]
    layers = Layers.of(rounds.discriminant_of(after.state.head), job.projection[0] if job.projection else None)
    how = {"head": "rounds", "rounds": after.message, "plan": plan.plain()}
    trained, tested = checked(layers, how, job, earlier), None
    if test is not None:
        images = testable(job, features.data.open(test), features)
        tested = tested_on(trained, images, test.name if isinstance(test, Images) else str(test), features)
    return TrainedModel(out, write_model(out, trained, tested, versions()), trained, tested)
