"""`mixveil train` and `mixveil predict`: from releases to a model, and from images to classes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mixveil.cli import _common
from mixveil.cli._common import AsJson, Cache, Data, DataDir, Depth, Grey, Size, escape, out, print_json

if TYPE_CHECKING:
    from mixveil.features import Features
    from mixveil.train.linear import Linear


def train(
    releases: Annotated[
        list[Path],
        typer.Argument(metavar="RELEASE…", help="Releases of records, or statistics, of one or more parties."),
    ],
    out_dir: Annotated[Path, typer.Option("--out", help="The folder of the model to make. It must not exist.")],
    projection_path: Annotated[
        Path | None, typer.Option("--projection", help="The projection that the releases went through, if any.")
    ] = None,
    test: Annotated[str | None, typer.Option("--test", help="Labelled data to test the model on: as DATA.")] = None,
    data_dir: DataDir = None,
    size: Size = None,
    grey: Grey = False,
    depth: Depth = None,
    cache: Cache = None,
    as_json: AsJson = False,
) -> None:
    """Train one model on all releases, each weighed by how much noise it carries."""
    from importlib.metadata import version

    import torch

    from mixveil import files, projection
    from mixveil import train as training
    from mixveil.data import open_data
    from mixveil.errors import MismatchError
    from mixveil.model import in_words, write_model

    files.check_new(out_dir)
    known = None if projection_path is None else projection.read(projection_path)
    trained = training.train(releases, known)
    tested: dict[str, Any] | None = None
    if test is not None:
        images = open_data(test, data_dir=data_dir, size=size, grey=grey, depth=depth)
        if not set(images.classes) <= set(trained.classes):
            raise MismatchError(f"{test} has classes that the releases do not have")
        images = images.listed(trained.classes)
        features, weights = _common.open_features(images, trained.extractor, data_dir, cache)
        _check_features(features, weights, trained.linear, trained.weights)
        right = trained.linear.named(features).eq(images.labels).double()
        tested = {"data": test, "rows": len(images), "accuracy": float(right.mean())}
    about = {"mixveil": version("mixveil"), "torch": torch.__version__}
    model = write_model(out_dir, trained, tested, about)
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
    _check_features(features, weights, model.linear, model.weights)
    with _common.progress("predicting", len(images)) as step:
        named = model.linear.named(features, step)
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


def _check_features(features: Features, weights: str, linear: Linear, wanted: str | None) -> None:
    """Refuse features that a model was not trained on."""
    from mixveil.errors import MismatchError

    if wanted is not None and weights != wanted:
        raise MismatchError(f"the model takes features of other weights ({wanted[:8]}) than these ({weights[:8]})")
    if features.shape[0] != len(linear.weight):
        raise MismatchError(
            f"the model takes {len(linear.weight)} features, these images have {features.shape[0]}: their size or "
            f"colours are others"
        )
