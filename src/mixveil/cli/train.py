"""`mixveil train` and `mixveil predict`: from releases to a model, and from images to classes."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from mixveil.cli import _common
from mixveil.cli._common import AsJson, Cache, Data, DataDir, Depth, Grey, Size, escape, out, print_json

if TYPE_CHECKING:
    from mixveil.data import Images
    from mixveil.features import Features
    from mixveil.train import Job
    from mixveil.types import Progress

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

    A training of [bold]--head mlp[/] that was killed goes on when the same command is given again. On several GPUs of
    this machine: [bold]torchrun --nproc-per-node N -m mixveil train …[/]
    """
    from mixveil import files, projection
    from mixveil import train as training
    from mixveil.data import open_data
    from mixveil.errors import ArgumentError
    from mixveil.model import in_words, write_model
    from mixveil.train import together
    from mixveil.train.fit import Recipe

    files.check_new(out_dir)
    settings = {
        "epochs": epochs,
        "batch": batch,
        "optimiser": optimiser,
        "learning_rate": learning_rate,
        "seed": seed,
    }
    given: dict[str, Any] = {name: value for name, value in settings.items() if value is not None}
    if head == "discriminant" and (given or together.asked() > 1):
        option = f"--{next(iter(given)).replace('_', '-')}" if given else "torchrun"
        raise ArgumentError(f"{option} is for --head mlp: the discriminant is computed at once, by one process")
    job = training.opened(releases, None if projection_path is None else projection.read(projection_path))
    test_on: Features | None = None
    if test is not None and together.leads():
        images = open_data(test, data_dir=data_dir, size=size, grey=grey, depth=depth)
        test_on = _test_features(job, images, test, data_dir, cache)
    state = out_dir.with_name(f".{out_dir.name}.training")
    if head == "discriminant":
        trained = training.train(job)
    else:
        recipe = Recipe(**given)
        with together.joined(out_dir) as group, _progress(recipe.epochs * job.rows) as step:
            trained = training.train_mlp(job, recipe=recipe, group=group, state=state, progress=step)
    if not together.leads():
        return
    tested: dict[str, Any] | None = None
    if test_on is not None:
        right = trained.layers.named(test_on).eq(test_on.labels).double()
        tested = {"data": test, "rows": len(test_on), "accuracy": float(right.mean())}
    model = write_model(out_dir, trained, tested, _common.versions())
    state.unlink(missing_ok=True)
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


def _progress(rows: int) -> AbstractContextManager[Progress]:
    from mixveil.train import together

    return _common.progress("training", rows) if together.leads() else nullcontext(lambda _: None)


def _test_features(job: Job, images: Images, test: str, data_dir: Path | None, cache: Path | None) -> Features:
    """What a model of this job is tested on: looked at before a long training, not after."""
    from mixveil.errors import MismatchError

    if not set(images.classes) <= set(job.classes):
        raise MismatchError(f"{test} has classes that the releases do not have")
    features, weights = _common.open_features(images.listed(job.classes), job.extractor, data_dir, cache)
    _check_features(features, weights, job.inputs, job.weights)
    return features


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
    from mixveil.data import open_data
    from mixveil.data.folder import loose_files, loose_images
    from mixveil.model import read_model

    model = read_model(folder)
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
    right = float(named.eq(images.labels).double().mean()) if images.classes == model.classes else None
    classes = [model.classes[i] for i in named.tolist()]
    if as_json:
        told = {"model": str(folder), "data": data, "rows": len(images), "accuracy": right}
        print_json({**told, "names": names, "classes": classes})
        return
    for name, named_class in zip(names, classes, strict=True):
        out.print(f"{escape(name)}\t{escape(named_class)}", soft_wrap=True)
    if right is not None:
        _common.err.print(f"accuracy {right:.2%} of {len(images):,}")


def _check_features(features: Features, weights: str, inputs: int, wanted: str | None) -> None:
    """Refuse features that a model was not trained on."""
    from mixveil.errors import MismatchError

    if wanted is not None and weights != wanted:
        raise MismatchError(f"the model takes features of other weights ({wanted[:8]}) than these ({weights[:8]})")
    if features.shape[0] != inputs:
        raise MismatchError(
            f"the model takes {inputs} features, these images have {features.shape[0]}: their size or colours "
            f"are others"
        )
