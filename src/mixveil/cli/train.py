"""`mixveil train` and `mixveil predict`: from releases to a model, and from images to classes."""

from __future__ import annotations

import csv
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from mixveil.cli import _common
from mixveil.cli._common import AsJson, Cache, Data, escape, print_json, say
from mixveil.core.wording.sentences import plural, sentence
from mixveil.data.opening import DataOptions

if TYPE_CHECKING:
    from mixveil.learn.train import Predicted

Head = Annotated[
    Literal["discriminant", "mlp", "resnet18"],
    typer.Option(
        "--head",
        help="discriminant: in closed form, each release weighed by its noise; mlp: the paper's classifier, trained; "
        "resnet18: a network on images, trained from scratch on releases of pixels.",
    ),
]
Epochs = Annotated[int | None, typer.Option("--epochs", help="Of mlp (default: 20) or resnet18 (30).")]
BatchRows = Annotated[int | None, typer.Option("--batch", help="Rows of a step of mlp or resnet18. Default: 128.")]
Optimiser = Annotated[
    Literal["adamw", "sgd"] | None,
    typer.Option("--optimiser", help="Of mlp: adamw (default) as the paper says, sgd as its code does."),
]
Rate = Annotated[
    float | None,
    typer.Option(
        "--learning-rate",
        help="Of mlp, falling to zero (default: 0.001), or of resnet18, falling to a tenth after half of the epochs "
        "and again after three quarters (default: 0.1).",
    ),
]
Width = Annotated[
    int | None, typer.Option("--width", help="Of resnet18: channels of its first stage. Default: 64; fewer are faster.")
]
TrainingSeed = Annotated[
    int | None, typer.Option("--seed", help="Of mlp or resnet18: first weights, order, dropout. Default: 0.")
]


@_common.data_options()
def train(
    releases: Annotated[
        list[Path],
        typer.Argument(metavar="RELEASE…", help="Releases of records, or statistics, of one or more parties."),
    ],
    out: Annotated[Path, typer.Option("--out", help="The folder of the model to make. It must not exist.")],
    *,
    projection: Annotated[
        str | None,
        typer.Option(
            "--projection", help=f"The projection that the releases went through, if any: {_common.PROJECTION_HELP}"
        ),
    ] = None,
    head: Head = "discriminant",
    epochs: Epochs = None,
    batch: BatchRows = None,
    optimiser: Optimiser = None,
    learning_rate: Rate = None,
    width: Width = None,
    seed: TrainingSeed = None,
    test: Annotated[str | None, typer.Option("--test", help="Labelled data to test the model on: as DATA.")] = None,
    options: DataOptions,
    cache: Cache = None,
    as_json: AsJson = False,
) -> None:
    """Train one model on all releases.

    A training of [bold]--head mlp[/] or [bold]resnet18[/] keeps its state beside the model to come, in
    [bold].NAME.training[/], every 30 seconds and when it is told to end; the same command goes on from there. On
    several GPUs of this machine, for mlp: [bold]torchrun --nproc-per-node N -m mixveil train …[/] (docs/learning.md:
    how to keep torchrun off the network).
    """
    asked = _common.asked(locals())
    for folder in releases:
        _common.look_at(folder / "manifest.json", "a release")
    _common.look_at_projection(projection)
    import mixveil
    from mixveil.core.types import ANY_ROWS
    from mixveil.learn.model import in_words

    made = mixveil.train(
        **asked,
        watch=_common.progress,
        warn=_common.warn,
        say=lambda text: _common.err.print(escape(text)),
        stopping=told_to_end,
    )
    if made is None:  # another process leads, and prints
        return
    if as_json:
        print_json({"model": str(out), **made.model.card})
        return
    trained, tested = made.trained, made.tested
    rows, of_units = sum(s.rows for s in trained.sources), any(s.unit_rows == ANY_ROWS for s in trained.sources)
    noun = ("record or unit", "records or units") if of_units else ("record", "records")
    taken = f"features of {trained.extractor}" if trained.extractor.names else "pixels"
    taken = "images" if trained.how["head"] == "resnet18" else taken
    say(
        f"[bold]{escape(str(out))}[/]: {plural(len(trained.classes), 'class', 'classes')}, from "
        f"{plural(rows, *noun)} of {plural(len(trained.spent), 'party', 'parties')}, on {escape(taken)}"
    )
    if tested:
        say(f"  accuracy on {escape(tested['data'])}: {tested['accuracy']:.2%} of {tested['rows']:,}")
    say(f"  {escape(in_words(trained))}")


@contextmanager
def told_to_end() -> Iterator[Callable[[], bool]]:
    """Whether the user asked this process to end (SIGTERM, or an interrupt), which it then does at its next step."""
    told: list[int] = []

    def tell(number: int, _: object) -> None:
        if told:  # again: at once
            raise KeyboardInterrupt
        told.append(number)

    wanted = (signal.SIGTERM, signal.SIGINT)
    before = [signal.signal(number, tell) for number in wanted]
    try:
        yield lambda: bool(told)
    finally:
        for number, handler in zip(wanted, before, strict=True):
            signal.signal(number, handler)


@_common.data_options()
def predict(
    folder: Annotated[Path, typer.Argument(metavar="MODEL", help="The folder of a model.")],
    data: Data,
    *,
    out_file: Annotated[
        Path | None,
        typer.Option("--out", help="Write the classes to this CSV file and not to the terminal. It must not exist."),
    ] = None,
    encodings: Annotated[
        int,
        typer.Option(
            "--encodings",
            help="Of a model trained on InstaHide: encode each image so many times (the paper: 10), mixed with others "
            "of DATA, and average the predictions. Images as they are, 0, do better.",
        ),
    ] = 0,
    options: DataOptions,
    cache: Cache = None,
    as_json: AsJson = False,
) -> None:
    """Name the class of every image of DATA, which may be a folder of images without labels; where DATA has the model's
    classes also the accuracy, and which classes are taken for which."""
    _common.look_at(folder / "card.json", "a model")
    import mixveil
    from mixveil.core import files

    if out_file is not None:
        files.check_new(out_file)
    named = mixveil.predict(folder, data, encodings=encodings, options=options, cache=cache, watch=_common.progress)
    _common.warn_of_others(named.others, "model")
    if out_file is not None:
        files.write_whole(out_file, _as_csv(named).encode(), 0o600)
    if as_json:
        told = {"model": str(folder), "data": data, "rows": len(named.classes), "accuracy": named.accuracy}
        confused = [{"class": own, "named": other, "rows": rows} for (own, other), rows in named.confused.items()]
        lists = {"names": list(named.names), "classes": list(named.classes), "confused": confused}
        print_json({**told, **lists, "out": None if out_file is None else str(out_file)})
        return
    if out_file is not None:
        say(f"[bold]{escape(str(out_file))}[/]: the classes of {plural(len(named.classes), 'image')}")
    for name, named_class in zip(named.names, named.classes, strict=True) if out_file is None else ():
        say(f"{escape(name)}\t{escape(named_class)}")
    if named.accuracy is not None:
        _common.err.print(f"accuracy {named.accuracy:.2%} of {len(named.classes):,}")
        _show_confused(named)
    elif not named.loose:
        _common.err.print(sentence("classes-unknown-to-model"))


def _as_csv(named: Predicted) -> str:
    """A line an image: its name, its class as named, and by the data where they say it."""
    text = StringIO()
    lines = csv.writer(text, lineterminator="\n")
    labels = [[]] * len(named.names) if named.labels is None else [[label] for label in named.labels]
    lines.writerow(["image", "class", *([] if named.labels is None else ["label"])])
    lines.writerows([*row, *label] for *row, label in zip(named.names, named.classes, labels, strict=True))
    return text.getvalue()


def _show_confused(named: Predicted) -> None:
    """Which classes were taken for which: a table, or of many classes the most frequent mistakes."""
    from rich.table import Column, Table

    pairs = named.confused
    classes = sorted({name for pair in pairs for name in pair})
    if len(classes) > _MOST_CLASSES:
        mistakes = [(pair, rows) for pair, rows in pairs.items() if pair[0] != pair[1]][:_MOST_CLASSES]
        for (own, other), rows in mistakes:
            _common.err.print(f"  {rows:,} of {escape(own)} named {escape(other)}", soft_wrap=True)
        return
    columns = (Column(escape(name), justify="right") for name in classes)
    table = Table(Column("by the data", no_wrap=True), *columns, title="named as")
    for own in classes:
        table.add_row(escape(own), *(f"{pairs.get((own, other), 0):,}" for other in classes))
    _common.err.print(table)


_MOST_CLASSES = 12
