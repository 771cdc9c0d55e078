"""Whole jobs on split networks: train both halves and write them, and answer what a client sent.

`releases.representations.split_encode` is the client's job; `learn.split_sweep` trains at many settings.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from mixveil.core import checkpoint, files
from mixveil.core.checkpoint import Saved
from mixveil.core.errors import ArgumentError, MismatchError, NotFiniteError, TooFewRowsError
from mixveil.core.types import Progress, Release
from mixveil.core.watching import Watch, unwatched
from mixveil.core.wording.notes import Note, note
from mixveil.data.fingerprint import fingerprint
from mixveil.data.images import Images
from mixveil.data.opening import DataOptions, DataSpec
from mixveil.features.split import layers
from mixveil.features.split.half import Half, halves, read_half, write_half
from mixveil.features.split.networks import NETWORKS, cut, network
from mixveil.learn.image_training import ImageTraining
from mixveil.learn.split_training import SplitNetwork, SplitRecipe, begun, ended
from mixveil.learn.train import Stopping, never
from mixveil.releases.kinds.representations import RepresentationSettings
from mixveil.releases.reading import read_release
from mixveil.theory.moments import blocks
from mixveil.theory.separability import Separability, separability

CLIENT, SERVER, FIGURES = "client", "server", "training.json"
_ON_GPU = 8  # trainings that take turns
_COMPARED = 2000  # samples whose representations are compared, all with all


@dataclass(frozen=True)
class SplitFigures:
    """What both halves are like on data that they were not trained on.

    Attributes:
        rows: How many images of these data there are.
        accuracy: The share that is named right.
        separability: Of the representations, scaled to norm 1, of up to 2,000 of them.
    """

    rows: int
    accuracy: float
    separability: Separability

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        return {"rows": self.rows, "accuracy": self.accuracy, **self.separability._asdict()}


@dataclass(frozen=True)
class SplitTrained:
    """Both halves of a network that was trained. figures: on the data to test on, where such were given; curve: the
    loss after each epoch."""

    client: Half
    server: Half
    figures: SplitFigures | None
    curve: tuple[Mapping[str, Any], ...]

    @property
    def warnings(self) -> tuple[Note, ...]:
        """What to know before a half is given to others."""
        return (note("halves-warning"), note("halves-promise-nothing"))


def split_train(
    data: DataSpec,
    out: Path | str,
    *,
    network: str | nn.Sequential = "lenet5",
    cut: str | None = None,
    recipe: SplitRecipe | None = None,
    test: DataSpec | None = None,
    options: DataOptions | None = None,
    watch: Watch = unwatched,
    say: Callable[[str], None] = lambda text: None,
    stopping: Stopping = never,
) -> SplitTrained:
    """Train both halves of a network on data that the trainer holds, and write them: `out/client` is for parties,
    `out/server` stays with the server, `out/training.json` has the figures.

    Halves are trained without noise: their weights may show training images, and the client half goes to all parties.
    Train on public data, or on data that may be shown.

    Args:
        out: The folder to make. It must not exist. The state of a long training is kept beside it, in `.NAME.training`:
            the same call continues from there.
        network: A name of `NETWORKS`, or a sequence of layers of your own: a copy of it is trained.
        cut: The name of the block behind which it is cut; of your own network it must be given.
        recipe: How it is trained, and with which penalty; MixCon's, if none is given.
        test: Data to test on, which the training does not see.
        say, stopping: As for `mixveil.train`.
    """
    out, options, recipe = Path(out), options or DataOptions(), recipe or SplitRecipe()
    files.check_new(out)
    files.check_writable(out)
    images = options.open(data)
    tested = None if test is None else held(fitting(options.for_others.open(test), images))[0]
    job = SplitJob.of(images, network, cut)
    if tested is not None:
        check_apart(tested, job)
    state = out.with_name(f".{out.name}.training")
    with stopping() as stop:
        training = job.begun(recipe, state=state, note=say, stop=stop)
        with watch("training", training.rows) as step:
            for rows in training.steps():
                step(rows)
    trained = job.ended(training, recipe)
    if tested is not None:
        trained = replace(trained, figures=measured(trained, tested))
    write_split(out, trained, recipe)
    checkpoint.discard(state)
    return trained


@dataclass(frozen=True)
class SplitJob:
    """Images in memory, and the network to train on them.

    Attributes:
        images: They read from memory.
        x, labels: (n, …) on the device that trains, and (n,) class numbers.
        about: What the network is, and the digest of the data, for the state of a training.
        make: New halves, with any weights.
    """

    images: Images
    x: Tensor
    labels: Tensor
    about: Mapping[str, Any]
    make: Callable[[], tuple[nn.Sequential, nn.Sequential]]

    @classmethod
    def of(cls, images: Images, net: str | nn.Sequential, after: str | None) -> SplitJob:
        shape, classes = images.shape, len(images.classes)
        if len(set(images.labels.tolist())) < 2:
            raise ArgumentError(f"{images.name} has rows of one class only: a network learns to tell classes apart")
        if isinstance(net, str):
            behind = after or (NETWORKS[net].cut if net in NETWORKS else "")
            made: Callable[[], nn.Sequential] = partial(network, net, shape, classes)
        elif after is None:
            raise ArgumentError("cut must name the block behind which your network is cut")
        else:
            behind, made = after, lambda: layers.without_counters(copy.deepcopy(net))

        def make() -> tuple[nn.Sequential, nn.Sequential]:
            return cut(made(), behind)

        halves(*make(), shape, images.classes)  # before minutes of training: they fit, or are refused
        images, x = held(images)
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        named = net if isinstance(net, str) else repr(net)
        about = {"network": named, "cut": behind, "data": digest(images), "device": device.type}
        return cls(images, x.to(device), images.labels.to(device), about, make)

    def begun(
        self,
        recipe: SplitRecipe,
        *,
        state: Path | None = None,
        note: Callable[[str], None] = lambda text: None,
        stop: Callable[[], bool] = lambda: False,
    ) -> ImageTraining:
        """A training of new halves, whose `steps` train."""
        saved = None if state is None else Saved(state, {**self.about, **asdict(recipe)})
        classes = len(self.images.classes)
        return begun(*self.make(), self.x, self.labels, classes, recipe, saved=saved, note=note, stop=stop)

    def ended(self, training: ImageTraining, recipe: SplitRecipe) -> SplitTrained:
        """Both halves of a training that went through all its steps."""
        curve, both = ended(training), cast(SplitNetwork, training.model)
        images, named = self.images, {"network": str(self.about["network"])[:200], "cut": str(self.about["cut"])}
        said = {name: str(value) if isinstance(value, tuple) else value for name, value in asdict(recipe).items()}
        spans = {"low": images.low, "high": images.high}
        one, other = halves(both.client, both.server, images.shape, images.classes, **spans, how={**named, **said})
        return SplitTrained(one, other, None, tuple(curve))


def in_turns(
    job: SplitJob,
    asked: Sequence[tuple[SplitRecipe, Path | None]],
    *,
    together: int | None = None,
    progress: Progress = lambda _: None,
    note: Callable[[str], None] = lambda text: None,
    stop: Callable[[], bool] = lambda: False,
) -> Iterator[tuple[int, SplitTrained]]:
    """Train by several recipes, and give each number with its halves as they are finished. asked: each recipe with the
    file of its state, if one is kept, which the caller discards; together: how many trainings take turns, step by step:
    eight on a GPU, else one."""
    together = together or (_ON_GPU if job.x.device.type == "cuda" else 1)
    waiting, going = list(range(len(asked))), list[tuple[int, ImageTraining, Iterator[int]]]()
    while waiting or going:
        while waiting and len(going) < together:
            number = waiting.pop(0)
            recipe, state = asked[number]
            training = job.begun(recipe, state=state, note=note, stop=stop)
            going.append((number, training, training.steps()))
        for one in [*going]:
            number, training, steps = one
            if (rows := next(steps, None)) is not None:
                progress(rows)
            else:
                going.remove(one)
                yield number, job.ended(training, asked[number][0])


def check_apart(data: Images, job: SplitJob) -> None:
    """Refuse data to test on if most of them are images to train on. data: in memory."""
    parts = torch.split(job.x, 4096)
    seen = {fingerprint(row) for part in parts for row in part.flatten(1).double().cpu()}
    known = sum(fingerprint(row) in seen for block in blocks(data) for row in block)
    if known > len(data) / 2:
        told = f"{known:,} of its {len(data):,} images are among those to train on"
        raise MismatchError(f"{data.name}: {told}: test on others")


def fitting(data: Images, like: Images) -> Images:
    """Data to test on, with the classes of the others in their order."""
    if data.shape != like.shape:
        raise MismatchError(f"{data.name} has images of {data.shape}, and those to train on have {like.shape}")
    if (data.low, data.high) != (like.low, like.high):
        raise MismatchError(
            f"{data.name} has pixels in [{data.low:g}, {data.high:g}], and those to train on lie in "
            f"[{like.low:g}, {like.high:g}]"
        )
    if len(data) < 2:
        raise TooFewRowsError(f"{data.name}: two images or more are needed to test on, got {len(data)}")
    if unknown := sorted(set(data.classes) - set(like.classes)):
        raise MismatchError(f"{data.name} has classes that the training data do not have: {', '.join(unknown[:5])}")
    return data.listed(like.classes)


def held(data: Images) -> tuple[Images, Tensor]:
    """The same images in memory, as what is used many times is read once, and their pixels (n, …)."""
    x = torch.cat([data.take(part).x for part in torch.split(torch.arange(len(data)), 4096)])
    return replace(data, read=lambda index: x[index]), x


def digest(data: Images) -> str:
    """The SHA-256 of pixels, labels, the names of classes and the range."""
    found = sha256(json.dumps([data.classes, data.low, data.high]).encode() + data.labels.numpy().tobytes())
    for part in torch.split(torch.arange(len(data)), 4096):
        found.update(data.read(part).numpy().tobytes())
    return found.hexdigest()


def measured(trained: SplitTrained, data: Images) -> SplitFigures:
    """Accuracy and separability on data, with the classes of the halves."""
    right, parts, most = 0, list[Tensor](), _COMPARED
    for index in torch.split(torch.arange(len(data)), 4096):
        h = trained.client.in_batches(data.take(index).x)
        right += int((trained.server.in_batches(h).argmax(1) == data.labels[index]).sum())
        parts.append(h[:most])
        most = max(0, most - len(h))
    h = torch.cat(parts)
    return SplitFigures(len(data), right / len(data), separability(h, data.labels[: len(h)]))


def write_split(out: Path, trained: SplitTrained, recipe: SplitRecipe) -> None:
    """Both halves and their figures, whole or not at all."""
    figures = None if trained.figures is None else trained.figures.plain()
    whole = {"recipe": asdict(recipe), "tested": figures, "curve": [dict(point) for point in trained.curve]}
    with files.atomic_folder(out, "split") as folder:
        write_half(folder / CLIENT, trained.client)
        write_half(folder / SERVER, trained.server)
        files.write_file(folder / FIGURES, (json.dumps(whole, indent=2, allow_nan=False) + "\n").encode())


@dataclass(frozen=True)
class Answers:
    """What the server half says of representations. classes: the likeliest of each row; scores: (n, classes)."""

    classes: tuple[str, ...]
    scores: Tensor


def split_answer(release: Release | Path | str, server: Half | Path | str) -> Answers:
    """What the server half makes of a release of representations. One that another client half made is refused, and one
    of which the server half makes scores that are not finite."""
    opened = release if isinstance(release, Release) else read_release(Path(release), "representations")
    half = server if isinstance(server, Half) else read_half(server, "server")
    settings = opened.envelope.settings
    if not isinstance(settings, RepresentationSettings):
        raise MismatchError(f"release {opened.id[:8]} holds {opened.envelope.kind}, not representations")
    if half.role != "server":
        raise MismatchError("this is the client half of a network; representations go through the server half")
    if half.partner != opened.assets.get("client"):
        raise MismatchError("another client half made these representations: the server half does not belong to it")
    if half.shape != settings.shape:  # a forged release names any half
        raise MismatchError(f"the server half takes representations of {half.shape}, and these have {settings.shape}")
    parts = torch.split(torch.arange(len(opened.payload)), 4096)
    scores = torch.cat([half.in_batches(opened.payload.take(part).x) for part in parts])
    sound = scores.isfinite().all(1)
    if not bool(sound.all()):  # the likeliest of such scores is no answer
        row = int((~sound).nonzero()[0])
        raise NotFiniteError(f"release {opened.id[:8]}: of row {row} the server half makes scores that are not finite")
    return Answers(tuple(half.classes[number] for number in scores.argmax(1).tolist()), scores)
