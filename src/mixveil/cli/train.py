"""`mixveil train` and `mixveil predict`: from releases to a model, and from images to classes."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from mixveil.cli import _common
from mixveil.cli._common import AsJson, Cache, Data, DataDir, Depth, Grey, Size, escape, out, print_json

if TYPE_CHECKING:
    from mixveil.data.opening import Images
    from mixveil.features.cache import Features
    from mixveil.learn.fit import TrainingRecipe
    from mixveil.learn.training import Job, Trained

Head = Annotated[
    Literal["discriminant", "mlp"],
    typer.Option(
        "--head",
        help="discriminant: in closed form, each release weighed by its noise; mlp: the paper's classifier, trained.",
    ),
]
Epochs = Annotated[int | None, typer.Option("--epochs", help="Of mlp. Default: 20.", show_default=False)]
BatchRows = Annotated[int | None, typer.Option("--batch", help="Rows of a step of mlp. Default: 128.")]
Optimiser = Annotated[
    Literal["adamw", "sgd"] | None,
    typer.Option("--optimiser", help="Of mlp: adamw (default) as the paper says, sgd as its code does."),
]
Rate = Annotated[float | None, typer.Option("--learning-rate", help="Of mlp, falling to zero. Default: 0.001.")]
TrainingSeed = Annotated[int | None, typer.Option("--seed", help="Of mlp: first weights, order, dropout. Default: 0.")]


def train(
    releases: Annotated[
        list[Path],
        typer.Argument(metavar="RELEASE…", help="Releases of records, or statistics, of one or more parties."),
    ],
    out_dir: Annotated[Path, typer.Option("--out", help="The folder of the model to make. It must not exist.")],
    projection_path: Annotated[
        Path | None, typer.Option("--projection", help="The projection that the releases went through, if any.")
    ] = None,
    head: Head = "discriminant",
    epochs: Epochs = None,
    batch: BatchRows = None,
    optimiser: Optimiser = None,
    learning_rate: Rate = None,
    seed: TrainingSeed = None,
    test: Annotated[str | None, typer.Option("--test", help="Labelled data to test the model on: as DATA.")] = None,
    data_dir: DataDir = None,
    size: Size = None,
    grey: Grey = False,
    depth: Depth = None,
    cache: Cache = None,
    as_json: AsJson = False,
) -> None:
    """Train one model on all releases.

    A training of [bold]--head mlp[/] keeps its state beside the model to come, in [bold].NAME.training[/], every 30
    seconds and when it is told to end; the same command goes on from there. On several GPUs of this machine:
    [bold]torchrun --nproc-per-node N -m mixveil train …[/] (docs/learning.md: how to keep torchrun off the network).
    """
    for folder in releases:
        _common.look_at_json(folder / "manifest.json", "a release")
    _common.look_at_projection(projection_path)
    from mixveil.core import checkpoint, files
    from mixveil.data.opening import open_data
    from mixveil.features import projection_file
    from mixveil.learn import distributed, training
    from mixveil.learn.model import in_words, write_model

    files.check_new(out_dir)
    files.check_writable(out_dir)
    recipe = _recipe(head, epochs=epochs, batch=batch, optimiser=optimiser, learning_rate=learning_rate, seed=seed)
    job = training.opened(releases, None if projection_path is None else projection_file.read(projection_path))
    images: Images | None = None
    if test is not None and distributed.leads():
        images = _checked(job, open_data(test, data_dir=data_dir, size=size, grey=grey, depth=depth), data_dir, cache)
    state = out_dir.with_name(f".{out_dir.name}.training")
    trained = training.train(job) if recipe is None else _mlp(job, recipe, out_dir, state)
    if not distributed.leads():
        return
    tested: dict[str, Any] | None = None
    if images is not None:
        features, _ = _common.open_features(images, trained.extractor, data_dir, cache)
        with _common.progress("testing", len(images)) as step:
            right = trained.layers.named(features, step).eq(images.labels).double()
        tested = {"data": test, "rows": len(images), "accuracy": float(right.mean())}
    model = write_model(out_dir, trained, tested, _common.versions())
    checkpoint.discard(state)
    if as_json:
        print_json({"model": str(out_dir), **model.card})
        return
    rows = sum(source.rows for source in trained.sources)
    out.print(
        f"[bold]{escape(str(out_dir))}[/]: {len(trained.classes)} classes, from {rows:,} records of "
        f"{len(trained.spent)} part(ies), on features of {escape(str(trained.extractor))}",
        soft_wrap=True,
    )
    if tested:
        out.print(f"  accuracy on {escape(tested['data'])}: {tested['accuracy']:.2%} of {tested['rows']:,}")
    out.print(f"  {escape(in_words(trained))}", soft_wrap=True)


def _recipe(head: str, **settings: Any) -> TrainingRecipe | None:
    """How the head mlp is trained, from what was given; None for the other head, which takes none of it."""
    from mixveil.core.errors import ArgumentError
    from mixveil.learn import distributed
    from mixveil.learn.fit import TrainingRecipe

    given = {name: value for name, value in settings.items() if value is not None}
    if head == "mlp":
        return TrainingRecipe(**given)
    if given or distributed.asked() > 1:
        option = f"--{next(iter(given)).replace('_', '-')}" if given else "torchrun"
        raise ArgumentError(f"{option} is for --head mlp: the discriminant is computed at once, by one process")
    return None


def _mlp(job: Job, recipe: TrainingRecipe, out_dir: Path, state: Path) -> Trained:
    """Train it, alone or among several processes. Told to end, it keeps its state first."""
    from mixveil.learn import distributed, training

    training.check_mlp(job)
    if distributed.leads() and distributed.exposed():
        _common.warn("torchrun listens on all interfaces of this machine; docs/learning.md says how to avoid that")
    leads = distributed.leads()
    watched = _common.progress("training", recipe.epochs * job.rows) if leads else nullcontext(lambda _: None)
    with distributed.joined(out_dir) as group, _told_to_end(group.size == 1) as stop, watched as step:
        return training.train_mlp(
            job,
            recipe=recipe,
            group=group,
            state=state,
            progress=step,
            note=lambda text: _common.err.print(escape(text)) if leads else None,
            stop=stop,
        )


@contextmanager
def _told_to_end(alone: bool) -> Iterator[Callable[[], bool]]:
    """Whether somebody asked this process to end (SIGTERM, or an interrupt), which it then does at its next step. Not
    among several processes: they would wait for one another."""
    told: list[int] = []

    def tell(number: int, _: object) -> None:
        if told:  # again: at once
            raise KeyboardInterrupt
        told.append(number)

    wanted = (signal.SIGTERM, signal.SIGINT) if alone else ()
    before = [signal.signal(number, tell) for number in wanted]
    try:
        yield lambda: bool(told)
    finally:
        for number, handler in zip(wanted, before, strict=True):
            signal.signal(number, handler)


def _checked(job: Job, images: Images, data_dir: Path | None, cache: Path | None) -> Images:
    """What a model of this job can be tested on, with its classes in their order. Looked at before a long training, by
    the features of two images."""
    import torch

    from mixveil.core.errors import MismatchError

    if unknown := sorted(set(images.classes) - set(job.classes)):
        raise MismatchError(f"{images.name} has classes that the releases do not have: {', '.join(unknown[:5])}")
    images = images.listed(job.classes)
    some = images.part(torch.arange(min(2, len(images))))
    features, weights = _common.open_features(some, job.extractor, data_dir, cache)
    _check_features(features, weights, job.inputs, job.weights)
    return images


def predict(
    folder: Annotated[Path, typer.Argument(metavar="MODEL", help="The folder of a model.", show_default=False)],
    data: Data,
    data_dir: DataDir = None,
    size: Size = None,
    grey: Grey = False,
    depth: Depth = None,
    cache: Cache = None,
    as_json: AsJson = False,
) -> None:
    """Name the class of every image of DATA, which may be a folder of images without labels; and the accuracy, where
    DATA has the model's classes."""
    _common.look_at_json(folder / "card.json", "a model")
    from mixveil.core.files import others
    from mixveil.data.folder import loose_files, loose_images
    from mixveil.data.opening import open_data
    from mixveil.learn.model import CARD, TENSORS, read_model

    model = read_model(folder)
    _common.warn_of_others(others(folder, {CARD, TENSORS}), "model")
    loose = loose_files(Path(data)) if Path(data).is_dir() else []
    if loose:
        images = loose_images(Path(data), size=size, grey=grey, depth=depth)
    else:
        images = open_data(data, data_dir=data_dir, size=size, grey=grey, depth=depth)
    names = [path.name for path in loose] or [str(row) for row in range(len(images))]
    features, weights = _common.open_features(images, model.extractor, data_dir, cache)
    _check_features(features, weights, model.layers.inputs, model.weights)
    with _common.progress("predicting", len(images)) as step:
        named = model.layers.named(features, step)
    right = None
    if not loose and set(images.classes) <= set(model.classes):
        right = float(named.eq(images.listed(model.classes).labels).double().mean())
    classes = [model.classes[i] for i in named.tolist()]
    if as_json:
        told = {"model": str(folder), "data": data, "rows": len(images), "accuracy": right}
        print_json({**told, "names": names, "classes": classes})
        return
    for name, named_class in zip(names, classes, strict=True):
        out.print(f"{escape(name)}\t{escape(named_class)}", soft_wrap=True)
    if right is not None:
        _common.err.print(f"accuracy {right:.2%} of {len(images):,}")
    elif not loose:
        _common.err.print("no accuracy: these data have classes that the model does not know")


def _check_features(features: Features, weights: str, inputs: int, wanted: str | None) -> None:
    """Refuse features that a model was not trained on."""
    from mixveil.core.errors import MismatchError

    if wanted is not None and weights != wanted:
        raise MismatchError(f"the model takes features of other weights ({wanted[:8]}) than these ({weights[:8]})")
    if features.shape[0] != inputs:
        raise MismatchError(
            f"the model takes {inputs} features, these images have {features.shape[0]}: their size or colours "
            f"are others"
        )
