"""What the verbs share: options, tables, progress bars, JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console

from mixveil.core.errors import one_line

if TYPE_CHECKING:
    from mixveil.core.randomness import Stream
    from mixveil.data.opening import Images
    from mixveil.features.cache import Features, Loaded
    from mixveil.features.extractor import Extractor
    from mixveil.features.projection import Projected

DATA_HELP = (
    "A named set (see `mixveil data list`; NAME:SPLIT for a split), an .npz file, a .csv or .parquet table with the "
    "columns path and label, or a folder of class folders."
)

Data = Annotated[str, typer.Argument(help=DATA_HELP, show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir", help="Where named sets lie; else the folder that MIXVEIL_DATA names.", show_default=False
    ),
]
Size = Annotated[
    int | None, typer.Option("--size", min=1, help="Resize image files to this square.", show_default=False)
]
Public = Annotated[
    str | None,
    typer.Option("--public", help="PUBLIC data of the same shape, for the centre, the clip norm and the moments."),
]
Clip = Annotated[
    float | None,
    typer.Option(
        "--clip",
        help="Norm C to which records are clipped, chosen WITHOUT looking at them. Default: from the pixel range; "
        "features have none.",
    ),
]
Alpha = Annotated[
    float | None,
    typer.Option("--alpha", help="Cap on mixing weights, in [0.5, 1). Default: 0.55 with --mu, 0.7 with --tau."),
]
Grey = Annotated[bool, typer.Option("--grey", help="Read image files as greyscale, not as colour.")]
Depth = Annotated[
    int | None,
    typer.Option(
        "--depth",
        metavar="BITS",
        min=1,
        max=16,
        help="How many bits a pixel really has, in image files with room for 16.",
        show_default=False,
    ),
]
Unit = Annotated[
    str | None,
    typer.Option(
        "--unit",
        metavar="COLUMN",
        help="The column of a table, or the array of an .npz file, that says whose each row is: the patient.",
        show_default=False,
    ),
]
Classes = Annotated[
    str | None,
    typer.Option(
        "--classes",
        metavar="NAMES",
        help="All classes there can be, with commas between, or a file with one a line. Else: those that have rows.",
        show_default=False,
    ),
]
Noise = Annotated[
    Literal["gaussian", "sphere"] | None,
    typer.Option("--noise", help="gaussian (default), or sphere: to reproduce the paper only.", show_default=False),
]
ProjectionFile = Annotated[
    Path | None,
    typer.Option("--projection", help="Encode features, through this public projection.", show_default=False),
]
Backbone = Annotated[
    str | None,
    typer.Option(
        "--backbone",
        help="Features instead of pixels: of resnet18, resnet34, resnet50, resnet50-keras, mobilenet_v2 or "
        "efficientnet_lite0, several with + between; weights lie in DIR/weights of --data-dir.",
        show_default=False,
    ),
]
Stage = Annotated[
    str | None,
    typer.Option(
        "--stage",
        help="The whole map after this stage instead of the last one pooled: head (of mobilenet_v2 and "
        "efficientnet_lite0), layer4 (of a resnet), or an earlier one.",
        show_default=False,
    ),
]
Mirror = Annotated[bool, typer.Option("--mirror", help="Average with the mirrored image's features.")]
Cache = Annotated[
    Path | None,
    typer.Option(
        "--cache",
        help="Where features are kept, as private as the images; else MIXVEIL_CACHE, else ~/.cache/mixveil.",
        show_default=False,
    ),
]
Seed = Annotated[
    int | None,
    typer.Option("--seed", help="A seeded stream, for experiments: whoever knows the seed removes the noise."),
]

_OTHERS = 5  # names of files that are shown

out = Console(highlight=False, emoji=False)
err = Console(stderr=True, highlight=False, emoji=False)


def print_json(value: Any) -> None:
    """In ASCII, so that nothing of it can steer a terminal."""
    sys.stdout.write(json.dumps(value, indent=2, allow_nan=False) + "\n")


def warn(text: str) -> None:
    err.print(f"[yellow]warning:[/] {escape(text)}", soft_wrap=True)


def warn_of_others(names: Sequence[str], what: str) -> None:
    """Name the files that lie beside those that were checked."""
    if names:
        some, more = ", ".join(one_line(name, 60) for name in names[:_OTHERS]), len(names) - _OTHERS
        warn(f"not part of the {what}: {some}" + (f" and {more:,} more" if more > 0 else ""))


def escape(text: str) -> str:
    """Text from outside, safe to print in a line: no markup, no control characters, no line of its own."""
    from rich.markup import escape as escape_markup

    return escape_markup("".join(c if c.isprintable() else "?" for c in text))


def class_names(text: str | None) -> tuple[str, ...] | None:
    """The list of classes, from names with commas between or from a file."""
    if text is None:
        return None
    if Path(text).is_file():
        lines = _lines(Path(text).resolve())
        return tuple(line.strip() for line in lines if line.strip())
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _lines(path: Path) -> list[str]:
    from mixveil.core.errors import DataFormatError
    from mixveil.core.files import read_small
    from mixveil.core.strict_json import MANIFEST_LIMIT

    try:
        return read_small(path, MANIFEST_LIMIT).decode("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise DataFormatError(f"{path}: not UTF-8: {error}") from None


def several_mus(text: str) -> list[float]:
    """μ, several with commas between."""
    from mixveil.core import checks
    from mixveil.core.errors import ArgumentError

    try:
        found = [float(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise ArgumentError(f"--mu {text!r}: numbers with commas between are wanted") from None
    if not found:
        raise ArgumentError("--mu: no number is given")
    return [checks.finite_positive("mu", value) for value in dict.fromkeys(found)]


def stream_for(seed: int | None) -> Stream:
    from mixveil.core.randomness import SecureStream, SeededStream

    return SecureStream() if seed is None else SeededStream(seed)


def open_both(
    data: str,
    public: str | None,
    *,
    data_dir: Path | None,
    size: int | None,
    grey: bool,
    depth: int | None,
    unit: str | None,
    classes: str | None = None,
) -> tuple[Images, Images | None]:
    """The private data and the public data, which must not be the same."""
    from mixveil.core.errors import ArgumentError
    from mixveil.data.opening import open_data

    rows = open_data(
        data, data_dir=data_dir, size=size, grey=grey, depth=depth, unit=unit, classes=class_names(classes)
    )
    if public is None:
        return rows, None
    same_file = Path(public).exists() and Path(data).exists() and Path(public).samefile(data)
    if public == data or same_file:
        raise ArgumentError(f"--public {public}: that is the private data itself; facts from it would not be public")
    return rows, open_data(public, data_dir=data_dir, size=size, grey=grey, depth=depth)


def open_features(
    images: Images, extractor: Extractor, data_dir: Path | None, cache: Path | None
) -> tuple[Features, str]:
    """The features of images, and the digest of what made them."""
    loaded = load_extractor(extractor, data_dir)
    return features_of(images, loaded, cache), loaded.digest


def chosen_extractor(backbone: str | None, stage: str | None, mirror: bool) -> Extractor | None:
    """The features that were asked for, if any were."""
    from mixveil.core.errors import ArgumentError
    from mixveil.features.extractor import Extractor

    if backbone is None:
        if stage is not None or mirror:
            raise ArgumentError("--stage and --mirror are of a network's features: name it with --backbone")
        return None
    found = Extractor.parse(backbone, stage=stage, mirror=mirror)
    if not found.names:
        raise ArgumentError("--backbone none are the pixels: leave it out for them")
    return found


def load_extractor(extractor: Extractor, data_dir: Path | None) -> Loaded:
    from mixveil.data.opening import data_folder
    from mixveil.features import cache as features

    return features.load(extractor, data_folder(data_dir))


def features_of(images: Images, loaded: Loaded, cache: Path | None) -> Features:
    from mixveil.features import cache as features

    with progress("features", len(images)) as step:
        return features.extract(images, loaded, cache or features.cache_folder(), step)


def look_at_json(path: Path, what: str) -> None:
    """Refuse a stranger's JSON at once, before torch is loaded, where it is no plain file or no JSON. One that is not
    there is missed later. what: the file should be that of."""
    from mixveil.core import files, strict_json
    from mixveil.core.errors import DataFormatError, ManifestError, UnreadableFileError

    if path.exists() or path.is_symlink():
        try:
            strict_json.parsed(files.read_small(path, 16 << 20))
        except (UnreadableFileError, ManifestError) as error:
            kind = ManifestError if path.name == "manifest.json" else DataFormatError
            raise kind(f"{path.parent} is not {what}: {error}") from None


def look_at_projection(path: Path | None) -> None:
    """The same of a projection, before any data are loaded."""
    from mixveil.core import files
    from mixveil.core.errors import DataFormatError, UnreadableFileError

    if path is not None and (path.exists() or path.is_symlink()):
        try:
            with files.opened(path, 2 << 30):
                pass
        except UnreadableFileError as error:
            raise DataFormatError(f"{path} is not a projection: {error}") from None


def open_projected(
    images: Images, path: Path, data_dir: Path | None, cache: Path | None, *, certified: bool, seeded: bool = False
) -> tuple[Projected, str]:
    """Images through a projection, and its digest. For a certified release, it must not be fitted on any of them:
    nobody but their owner sees that it is refused here. seeded: an experiment, which promises nothing."""
    from mixveil.core.errors import PrivateFactError
    from mixveil.features import projection, projection_file

    found, digest = projection_file.read(path)
    if certified and (shared := projection.shared(found, images)):
        said = f"it was fitted on {shared:,} of these {len(images):,} images, and is not public for them"
        if not seeded:
            raise PrivateFactError(
                f"--projection {path}: {said}: nothing could be certified. Use one that was fitted on other data. If "
                f"it came from somebody else, do not tell them why it was refused: they would learn that they hold "
                f"images of yours"
            )
        warn(f"--projection {path}: {said}")
    features, weights = open_features(images, found.extractor, data_dir, cache)
    return projection.projected(features, weights, found, certified=certified), digest


def shared_images(images: Images, public: Images | None) -> list[str]:
    """What to say where public data hold some of the private images, and nothing is certified by them."""
    from mixveil.data.fingerprint import among, fingerprints

    if public is None or not (shared := among(fingerprints(public), fingerprints(images))):
        return []
    return [f"{shared:,} of these images are in the public data as well: figures from those are not public for them"]


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A progress bar on a terminal's standard error; nothing in a pipe."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    if not err.is_terminal:
        yield lambda _: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed:,}/{task.total:,}"))
    with Progress(*columns, TimeRemainingColumn(), console=err, transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda step: bar.update(task, advance=step)


def versions() -> dict[str, str]:
    """Of the software, for what must be done again."""
    from importlib.metadata import version

    return {"mixveil": version("mixveil"), "torch": version("torch")}


def number(value: float | None) -> str:
    """A figure for a table: four digits, or a dash where there is none.

    >>> number(0.123456), number(12345.6), number(None)
    ('0.1235', '1.235e+04', '—')
    """
    return "—" if value is None else f"{value:.4g}"
