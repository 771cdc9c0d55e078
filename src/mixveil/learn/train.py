"""From releases to a model on disk, and from images to classes, as whole jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from mixveil.core import checkpoint, files
from mixveil.core.errors import ArgumentError, MismatchError
from mixveil.core.types import Progress
from mixveil.core.watching import Warn, Watch, unheard, unwatched
from mixveil.core.wording.notes import note
from mixveil.data.folder import loose_files, loose_images
from mixveil.data.images import Images
from mixveil.data.opening import DataOptions, DataSpec
from mixveil.features import projection_file
from mixveil.features.cache import Features
from mixveil.features.opening import FeatureOptions
from mixveil.features.shipped import located
from mixveil.learn import distributed, model, training
from mixveil.learn.fit import TrainingRecipe
from mixveil.learn.image_head import ImageHead
from mixveil.learn.image_releases import check_images, train_images
from mixveil.learn.image_training import ImageRecipe
from mixveil.learn.layers import Layers
from mixveil.learn.model import Model
from mixveil.learn.training import Job, Trained, TrainedHead

HeadName = Literal["discriminant", "mlp", "resnet18"]
Stopping = Callable[[], AbstractContextManager[Callable[[], bool]]]
"""Inside its block, a function says whether the training was told to end."""


def never() -> AbstractContextManager[Callable[[], bool]]:
    return nullcontext(lambda: False)


@dataclass(frozen=True)
class TrainedModel:
    """A model that was trained and written.

    Attributes:
        model: Its card says what it was trained on.
        trained: What it was trained on, and what that cost the parties.
        tested: The data it was tested on, their rows and the accuracy; None where it was not tested.
    """

    folder: Path
    model: Model
    trained: Trained
    tested: dict[str, Any] | None


def train(
    releases: Sequence[Path | str] | Path | str,
    out: Path | str,
    *,
    projection: Path | str | None = None,
    head: HeadName = "discriminant",
    epochs: int | None = None,
    batch: int | None = None,
    optimiser: Literal["adamw", "sgd"] | None = None,
    learning_rate: float | None = None,
    width: int | None = None,
    seed: int | None = None,
    test: DataSpec | None = None,
    options: DataOptions | None = None,
    cache: Path | str | None = None,
    watch: Watch = unwatched,
    warn: Warn = unheard,
    say: Callable[[str], None] = lambda text: None,
    stopping: Stopping = never,
) -> TrainedModel | None:
    """Train one model on all releases, and write it. None in a process of `torchrun` that does not lead.

    Args:
        releases: The folders of releases of records, or of statistics, of one or more parties.
        out: The folder to make. It must not exist. The state of a long training is kept beside it, in `.NAME.training`:
            the same call continues from there.
        projection: The file of the projection that the releases went through, if any.
        head: `discriminant`, in closed form, each release weighed by its noise; `mlp`, the paper's classifier; or
            `resnet18`, a network on images, for releases of pixels.
        epochs, batch, learning_rate, seed: See `TrainingRecipe` for mlp, `ImageRecipe` for resnet18, whose rate falls
            to a tenth at half of the epochs and again at three quarters. optimiser: of mlp; width: of resnet18.
        test: Labelled data to test the model on, checked before a long training.
        say: Is told how a training of mlp or resnet18 goes on.
        stopping: Says whether to stop; the state is kept, and `TrainingStopped` raised.
    """
    out, options = Path(out), options or DataOptions()
    files.check_new(out)
    files.check_writable(out)
    given = {"epochs": epochs, "batch": batch, "optimiser": optimiser, "learning_rate": learning_rate}
    given |= {"width": width, "seed": seed}
    recipe = _recipe(head, {name: value for name, value in given.items() if value is not None})
    folders = files.as_paths(releases)
    job = training.opened(folders, None if projection is None else projection_file.read(located(projection)))
    features = FeatureOptions(options.for_others, cache, watch)
    images: Images | None = None
    if test is not None and distributed.leads():
        images = testable(job, features.data.open(test), features)
    state = out.with_name(f".{out.name}.training")
    if isinstance(recipe, ImageRecipe):
        trained = _resnet18(job, recipe, state, watch, say, stopping)
    else:
        trained = training.train(job) if recipe is None else _mlp(job, recipe, out, state, watch, warn, say, stopping)
    if not distributed.leads():
        return None
    tested = None
    if images is not None:
        shown = images.name if isinstance(test, Images) else str(test)
        tested = tested_on(trained, images, shown, features)
    written = model.write_model(out, trained, tested, versions())
    checkpoint.discard(state)
    return TrainedModel(out, written, trained, tested)


@dataclass(frozen=True)
class Predicted:
    """The class of every image.

    Attributes:
        names: Of the images: a file, or the number of a row.
        labels: The classes by the data; None where the images have no labels that the model knows.
        accuracy: None where there are no labels.
        loose: Whether these are image files without labels.
        others: Files in the model's folder that are not part of it.
    """

    names: tuple[str, ...]
    classes: tuple[str, ...]
    labels: tuple[str, ...] | None
    accuracy: float | None
    loose: bool
    others: tuple[str, ...]

    @property
    def confused(self) -> Mapping[tuple[str, str], int]:
        """How many images of a class, by the data, were named as which, the most frequent pairs first; empty where
        there are no labels."""
        return dict(Counter(zip(self.labels or (), self.classes, strict=False)).most_common())


def predict(
    folder: Path | str,
    data: DataSpec,
    *,
    encodings: int = 0,
    options: DataOptions | None = None,
    cache: Path | str | None = None,
    watch: Watch = unwatched,
) -> Predicted:
    """Name the class of every image of the data, which may be a folder of images without labels; and the accuracy,
    where the data have the model's classes.

    encodings: of a model that was trained on InstaHide: each image is encoded so many times, mixed with others of the
    data, and the predictions are averaged, as the paper does with 10. 0 takes images as they are, which was right more
    often for all k from 2 on that were measured here (`reproduce/instahide`).
    """
    folder, options = Path(folder), options or DataOptions()
    read = model.read_model(folder)
    place = None if isinstance(data, Images) or not Path(data).is_dir() else Path(data)
    loose = loose_files(place) if place is not None else []
    if place is not None and loose:
        images = loose_images(place, size=options.size, grey=options.grey, depth=options.depth)
    else:
        images = options.open(data)
    features, weights = FeatureOptions(options, cache, watch).open(images, read.extractor)
    _check_features(features, weights, read.head.inputs, read.weights)
    with watch("predicting", len(images)) as step:
        named = _named(read.head, features, encodings, step)
    labels, accuracy = None, None
    if not loose and set(images.classes) <= set(read.classes):
        truth = images.listed(read.classes).labels
        labels = tuple(read.classes[i] for i in truth.tolist())
        accuracy = float(named.eq(truth).double().mean())
    names = tuple(path.name for path in loose) or tuple(map(str, range(len(images))))
    others = tuple(files.others(folder, {model.CARD, model.TENSORS}))
    return Predicted(names, tuple(read.classes[i] for i in named.tolist()), labels, accuracy, bool(loose), others)


def _recipe(head: str, given: dict[str, Any]) -> TrainingRecipe | ImageRecipe | None:
    """How a head is trained; None for the discriminant, which has no such settings."""
    if head not in get_args(HeadName):
        raise ArgumentError(f"head must be {', '.join(get_args(HeadName))}, got {head!r:.60}")
    if head != "mlp" and ("optimiser" in given or distributed.asked() > 1):
        option = "optimiser" if "optimiser" in given else "torchrun"
        raise ArgumentError(f"{option} is for head = mlp: the head {head} is trained in one way, by one process")
    if head != "resnet18" and "width" in given:
        raise ArgumentError("width is for head = resnet18: the other heads have theirs")
    if head == "mlp":
        return TrainingRecipe(**given)
    if head == "resnet18":
        epochs = given.get("epochs", ImageRecipe.epochs)
        return ImageRecipe(**given, falls=(epochs // 2, epochs * 3 // 4))
    if given:
        option = next(iter(given))
        raise ArgumentError(f"{option} is for head = mlp or resnet18: the discriminant is computed at once")
    return None


def _named(head: TrainedHead, features: Features, encodings: int, step: Progress) -> Tensor:
    if not isinstance(head, Layers) and features.rows.shape != head.shape:
        raise MismatchError(f"the model takes images of {head.shape}, and these are of {features.rows.shape}")
    if isinstance(head, ImageHead):
        return head.named(features, step, encodings=encodings)
    if encodings:
        raise MismatchError("encodings are for a network on images that was trained on InstaHide: use 0 for this model")
    return head.named(features, step)


def _resnet18(
    job: Job, recipe: ImageRecipe, state: Path, watch: Watch, say: Callable[[str], None], stopping: Stopping
) -> Trained:
    check_images(job)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    with stopping() as stop, watch("training", recipe.epochs * job.rows) as step:
        return train_images(job, recipe=recipe, device=device, state=state, progress=step, note=say, stop=stop)


def _mlp(
    job: Job,
    recipe: TrainingRecipe,
    out: Path,
    state: Path,
    watch: Watch,
    warn: Warn,
    say: Callable[[str], None],
    stopping: Stopping,
) -> Trained:
    """Train the head mlp, alone or among several processes. Only a single process can be told to stop: several would
    wait for one another."""
    training.check_mlp(job)
    leads = distributed.leads()
    if leads and distributed.exposed():
        warn(note("torchrun-exposed"))
    watched = watch("training", recipe.epochs * job.rows) if leads else nullcontext(lambda _: None)
    alone = distributed.asked() == 1
    heard: Callable[[str], None] = say if leads else lambda text: None
    with distributed.joined(out) as group, stopping() if alone else never() as stop, watched as step:
        return training.train_mlp(job, recipe=recipe, group=group, state=state, progress=step, note=heard, stop=stop)


def tested_on(trained: Trained, images: Images, shown: str, features: FeatureOptions) -> dict[str, Any]:
    """The accuracy on test data that `testable` gave. shown: their name."""
    rows, _ = features.open(images, trained.extractor)
    with features.watch("testing", len(images)) as step:
        right = trained.head.named(rows, step).eq(images.labels).double()
    return {"data": shown, "rows": len(images), "accuracy": float(right.mean())}


def versions() -> dict[str, str]:
    """Of what makes a model, for its card."""
    return {name: version(name) for name in ("mixveil", "torch")}


def testable(job: Job, images: Images, features: FeatureOptions) -> Images:
    """The test data with the classes of the job, in their order. The features of two images are checked."""
    if unknown := sorted(set(images.classes) - set(job.classes)):
        raise MismatchError(f"{images.name} has classes that the releases do not have: {', '.join(unknown[:5])}")
    images = images.listed(job.classes)
    some = images.part(torch.arange(min(2, len(images))))
    rows, weights = features.open(some, job.extractor)
    _check_features(rows, weights, job.inputs, job.weights)
    return images


def _check_features(features: Features, weights: str, inputs: int, wanted: str | None) -> None:
    """Refuse features that a model was not trained on."""
    if wanted is not None and weights != wanted:
        raise MismatchError(f"the model takes features of other weights ({wanted[:8]}) than these ({weights[:8]})")
    if features.shape[0] != inputs:
        raise MismatchError(f"the model takes {inputs} features of an image, and these images have {features.shape[0]}")
