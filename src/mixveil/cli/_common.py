"""What the verbs share: options, tables, progress bars, JSON."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console

from mixveil.cli._log_progress import counted, observed
from mixveil.core.errors import one_line
from mixveil.core.watching import Moment, Observe
from mixveil.core.wording.notes import Note
from mixveil.data.opening import DataOptions

DATA_HELP = (
    "A named set (see `mixveil data list`; NAME:SPLIT for a split), an .npz file, a .csv or .parquet table with the "
    "columns path and label, or a folder of class folders."
)

Data = Annotated[str, typer.Argument(help=DATA_HELP)]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
DataDir = Annotated[
    Path | None, typer.Option("--data-dir", help="Where named sets lie; else the folder that MIXVEIL_DATA names.")
]
Size = Annotated[int | None, typer.Option("--size", min=1, help="Resize image files to this square.")]
Public = Annotated[
    str | None,
    typer.Option(
        "--public",
        help="PUBLIC data of the same shape, for the centre, the clip norm and the moments; for mixup and instahide "
        "images of any size, to mix in.",
    ),
]
CLIP_HELP = (
    "Norm C to which records are clipped, chosen WITHOUT looking at them. Default: from the pixel range; features have "
    "none."
)
Clip = Annotated[float | None, typer.Option("--clip", help=CLIP_HELP)]
Alpha = Annotated[
    float | None,
    typer.Option("--alpha", help="Cap on mixing weights, in [0.5, 1). Default: 0.55 with --mu, 0.7 with --tau."),
]
Grey = Annotated[bool, typer.Option("--grey", help="Read image files as greyscale, not as colour.")]
DEPTH_HELP = "How many bits a pixel really has, in image files with room for 16."
Depth = Annotated[int | None, typer.Option("--depth", metavar="BITS", min=1, max=16, help=DEPTH_HELP)]
UNIT_HELP = "The column of a table, or the array of an .npz file, that says whose each row is: the patient."
Unit = Annotated[str | None, typer.Option("--unit", metavar="COLUMN", help=UNIT_HELP)]
CLASSES_HELP = (
    "All classes there can be, with commas between, or a file with one per line. Default: the classes that have rows."
)
Classes = Annotated[str | None, typer.Option("--classes", metavar="NAMES", help=CLASSES_HELP)]
Noise = Annotated[
    Literal["gaussian", "sphere"] | None,
    typer.Option("--noise", help="gaussian (default), or sphere: to reproduce the paper only."),
]
PROJECTION_HELP = "its file, or photographs for the one that comes with mixveil."
ProjectionFile = Annotated[
    str | None, typer.Option("--projection", help=f"The public projection that features go through: {PROJECTION_HELP}")
]
SharedProjection = Annotated[
    str, typer.Option("--projection", help=f"The public projection that all parties share: {PROJECTION_HELP}")
]
BACKBONE_HELP = (
    "Features instead of pixels: of a public network, several with + between. `mixveil data list` names them, says "
    "which are here, and how to get the others."
)
Backbone = Annotated[str | None, typer.Option("--backbone", help=BACKBONE_HELP)]
STAGE_HELP = (
    "The whole map after this stage instead of the last one pooled: head (of mobilenet_v2 and efficientnet_lite…), "
    "layer4 (of a resnet), or an earlier one."
)
Stage = Annotated[str | None, typer.Option("--stage", help=STAGE_HELP)]
Mirror = Annotated[bool, typer.Option("--mirror", help="Average with the mirrored image's features.")]
CACHE_HELP = "Where features are kept, as private as the images; else MIXVEIL_CACHE, else ~/.cache/mixveil."
Cache = Annotated[Path | None, typer.Option("--cache", help=CACHE_HELP)]
Seed = Annotated[
    int | None, typer.Option("--seed", help="For experiments: anyone who knows the seed can remove the noise.")
]
Budget = Annotated[
    float | None,
    typer.Option("--budget", help="Refuse if any record would have spent more than this μ in all its releases."),
]
LABEL_BUDGET_HELP = (
    "Refuse if any record's labels (a unit's, with --unit) would have spent more than this ε in all releases, or if "
    "labels are shown as they are."
)
LabelBudget = Annotated[float | None, typer.Option("--label-budget", help=LABEL_BUDGET_HELP)]
Recipient = Annotated[str | None, typer.Option("--recipient", help="Who gets the release: a note for your own ledger.")]
LabelEpsilon = Annotated[
    float | None,
    typer.Option("--label-epsilon", help="Randomise the labels first: each is ε-DP. Default: labels are shown."),
]
NORMALISATION_HELP = (
    "Of the image noise behind `displacement`: imagenet (default), or the paper's table7 for the data set."
)
Normalisation = Annotated[
    Literal["imagenet", "table7"] | None, typer.Option("--normalisation", help=NORMALISATION_HELP)
]
Party = Annotated[str, typer.Option("--party", help="The party's name, as the manifest shows it.")]
NewFolder = Annotated[Path, typer.Option("--out", help="The folder to make. It must not exist.")]
NewFile = Annotated[Path, typer.Option("--out", help="The file to make. It must not exist.")]

_DATA_OPTIONS: dict[str, Any] = {
    "data_dir": DataDir, "size": Size, "grey": Grey, "depth": Depth, "unit": Unit, "classes": Classes
}  # fmt: skip


def data_options(*more: Literal["unit", "classes"]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a verb the options that say how data are read, as one argument `options`. more: those that not all have."""
    names = ("data_dir", "size", "grey", "depth", *more)
    kind = inspect.Parameter.KEYWORD_ONLY
    options = [
        inspect.Parameter(name, kind, default=False if name == "grey" else None, annotation=_DATA_OPTIONS[name])
        for name in names
    ]

    def decorate(verb: Callable[..., None]) -> Callable[..., None]:
        def called(**given: Any) -> None:
            verb(options=DataOptions(**{name: given.pop(name) for name in names}), **given)

        parameters: list[inspect.Parameter] = []
        for name, parameter in inspect.signature(verb, eval_str=True).parameters.items():
            parameters += options if name == "options" else [parameter]
        called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        called.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        called.__doc__ = verb.__doc__
        return called

    return decorate


_OTHERS = 5  # names of files that are shown

out = Console(highlight=False, emoji=False)
err = Console(stderr=True, highlight=False, emoji=False)


def print_json(value: Any) -> None:
    """In ASCII, so that nothing of it can steer a terminal."""
    sys.stdout.write(json.dumps(value, indent=2, allow_nan=False) + "\n")


def asked(given: dict[str, Any], *without: str) -> dict[str, Any]:
    """What a verb passes on: its options have the names of the library's arguments. given: the verb's `locals()`."""
    return {name: value for name, value in given.items() if name not in ("as_json", *without)}


def say(told: Note | str) -> None:
    """Print a line, unbroken, so that a program can read it too. A note becomes its sentence."""
    out.print(escape(str(told)) if isinstance(told, Note) else told, soft_wrap=True)


def warn(told: Note | str) -> None:
    err.print(f"[yellow]warning:[/] {escape(str(told))}", soft_wrap=True)


def warning(quiet: bool) -> Callable[[Note], None]:
    """How a job warns on the way; quiet: not at all, its warnings are in the JSON."""
    return (lambda told: None) if quiet else (lambda told: warn(told))


def telling(quiet: bool) -> Callable[[Note], None]:
    """How a long job says what is done: a plain line of standard error in a pipe. quiet: or it says nothing, as on a
    terminal, which has a progress bar."""
    return (
        (lambda told: None) if quiet or err.is_terminal else (lambda told: err.print(escape(str(told)), soft_wrap=True))
    )


def plain(notes: Sequence[Note]) -> list[dict[str, Any]]:
    """Notes for JSON."""
    return [told.plain() for told in notes]


def warn_of_others(names: Sequence[str], what: str) -> None:
    """Name the files that lie beside those that were checked."""
    if names:
        some, more = ", ".join(one_line(name, 60) for name in names[:_OTHERS]), len(names) - _OTHERS
        warn(f"not part of the {what}: {some}" + (f" and {more:,} more" if more > 0 else ""))


def escape(text: str) -> str:
    """Text from outside, safe to print in a line: no markup, no control characters, no line of its own."""
    from rich.markup import escape as escape_markup

    return escape_markup("".join(c if c.isprintable() else "?" for c in text))


def several_mus(text: str) -> list[float]:
    """μ, several with commas between."""
    from mixveil.core.errors import ArgumentError

    try:
        mus = [float(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise ArgumentError(f"mu = {text!r}: give numbers with commas between") from None
    if not mus:
        raise ArgumentError("mu: no number is given")
    return mus


def look_at_projection(projection: str | None) -> None:
    """`look_at` the file of a projection."""
    from mixveil.features.shipped import located

    if projection is not None:
        look_at(located(projection), "a projection")


def look_at(path: Path, what: str) -> None:
    """Refuse a file of others at once, before torch is loaded, where it is no plain file, or no JSON in a .json file:
    as the library would, only sooner. A file that is not there is refused later. what: what it should belong to."""
    from mixveil.core import files, strict_json
    from mixveil.core.errors import DataFormatError, ManifestError, UnreadableFileError

    if not (path.exists() or path.is_symlink()):
        return
    try:
        if path.suffix == ".json":
            strict_json.parsed(files.read_small(path, 16 << 20))
        else:
            with files.opened(path, 2 << 30):
                pass
    except (UnreadableFileError, ManifestError) as error:
        kind = ManifestError if path.name == "manifest.json" else DataFormatError
        raise kind(f"{path.parent if path.suffix == '.json' else path} is not {what}: {error}") from None


def _log(text: str) -> None:
    err.print(escape(text), soft_wrap=True)


@contextmanager
def attacking() -> Iterator[Callable[[str], None]]:
    """A line on a terminal's standard error that says what an attack is doing; a line now and then in a pipe."""
    if not err.is_terminal:
        watch = observed(_log)
        yield lambda text: watch(Moment(f"attacking: {text}"))
        return
    with err.status("attacking") as status:
        yield lambda text: status.update(f"attacking: {escape(text)}")


@contextmanager
def observing() -> Iterator[Observe]:
    """A bar on a terminal's standard error that says what a job of many steps is doing, and how far it is; a line now
    and then in a pipe. What is printed meanwhile appears above it."""
    if not err.is_terminal:
        yield observed(_log)
        return
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task("", total=1.0)
        yield lambda moment: bar.update(task, description=escape(moment.doing), completed=moment.done)


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A progress bar on a terminal's standard error; a line now and then in a pipe. Stopping a release that was begun
    is warned of: it is in the ledger."""
    try:
        with _bar(what, total) as step:
            yield step
    except (KeyboardInterrupt, SystemExit):
        if what in ("encoding", "sums"):
            warn("stopped: nothing is left of a release that was begun, but it counts in your ledger")
        raise


@contextmanager
def _bar(what: str, total: int) -> Iterator[Callable[[int], None]]:
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    if not err.is_terminal:
        yield counted(what, total, _log)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed:,}/{task.total:,}"))
    with Progress(*columns, TimeRemainingColumn(), console=err, transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda step: bar.update(task, advance=step)


def number(value: float | None) -> str:
    """A figure for a table: four digits, or a dash where there is none.

    >>> number(0.123456), number(12345.6), number(None)
    ('0.1235', '1.235e+04', '—')
    """
    return "—" if value is None else f"{value:.4g}"
