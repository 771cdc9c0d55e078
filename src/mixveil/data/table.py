"""Tables of image files, CSV or Parquet, with the columns `path` and `label`, and others."""

from __future__ import annotations

import csv
import os
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from io import TextIOWrapper
from pathlib import Path
from typing import Any, NamedTuple

import torch

from mixveil.core.errors import DataFormatError, MissingDependencyError
from mixveil.core.wording.notes import Note, note
from mixveil.data.binary import plain_file
from mixveil.data.folder import file_fault, listed_images
from mixveil.data.images import Images

_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
_SHOWN = 20
_LIMIT = 256 << 20  # bytes of a table: some three million rows
_ROWS = 20_000_000


class _Columns(NamedTuple):
    """Cells by column, stripped. place: the name of a row in a message; faults: of lines that are no rows."""

    cells: dict[str, list[str]]
    place: Callable[[int], str]
    faults: Sequence[Note] = ()


def table_images(
    path: Path,
    *,
    unit: str | None = None,
    size: int | None = None,
    grey: bool = False,
    depth: int | None = None,
    faults: list[Note] | None = None,
) -> Images:
    """The images that a table names, relative to its own folder. unit: the column with the unit of each row. faults:
    where it is given, rows that cannot be used are left out, and what is wrong with them is added to it.

    The classes are the labels in alphabetical order; in the order of numbers where all are whole numbers.
    """
    wanted = list(dict.fromkeys(["path", "label", *([unit] if unit is not None else [])]))
    columns = (_parquet if path.suffix.lower() == ".parquet" else _csv)(path, wanted)
    wrong = [*columns.faults, *_empty(columns)]
    if wrong and faults is None:
        raise DataFormatError(f"{path}: {'; '.join(map(str, wrong))}")
    if faults is not None:
        faults += wrong
        columns = _usable(columns, path.parent, depth, faults)
    cells, place = columns.cells, columns.place
    if not cells["path"]:
        raise DataFormatError(f"{path}: the table has no rows")
    classes = _classes(cells["label"])
    number = {name: label for label, name in enumerate(classes)}
    labels = torch.tensor([number[label] for label in cells["label"]])
    named = [path.parent / cell for cell in cells["path"]]
    units = None if unit is None else tuple(cells[unit])
    how: dict[str, Any] = {"size": size, "grey": grey, "depth": depth, "units": units, "faults": faults}
    images = listed_images(path.stem, named, labels, classes, **how)
    first: dict[str, int] = {}
    again = [place(row) for row, file in enumerate(named) if first.setdefault(os.path.normpath(file), row) != row]
    told = [note("files-named-again", table=str(path), places=_list(again))] if again else []
    return replace(images, notes=(*images.notes, *told))


def _empty(columns: _Columns) -> list[Note]:
    """Where cells are empty, by column."""
    empty = {
        name: [columns.place(row) for row, cell in enumerate(cells) if not cell]
        for name, cells in columns.cells.items()
    }
    return [note("cells-empty", column=name, places=_list(places)) for name, places in empty.items() if places]


def _usable(columns: _Columns, folder: Path, depth: int | None, faults: list[Note]) -> _Columns:
    """The rows without an empty cell whose files can be read. What is wrong with the others' files is added to
    `faults`."""
    kept: list[int] = []
    for row, cells in enumerate(zip(*columns.cells.values(), strict=True)):
        detail = file_fault(folder / columns.cells["path"][row], depth) if columns.cells["path"][row] else None
        if detail is not None:
            faults.append(note("file-unreadable-at", place=columns.place(row), detail=detail))
        elif all(cells):
            kept.append(row)
    usable = {name: [cells[row] for row in kept] for name, cells in columns.cells.items()}
    return _Columns(usable, lambda row: columns.place(kept[row]))


def _classes(labels: Sequence[str]) -> tuple[str, ...]:
    """
    >>> _classes(["10", "9", "9"]), _classes(["10", "9", "x"])
    (('9', '10'), ('10', '9', 'x'))
    """
    names = set(labels)
    if all(_WHOLE.fullmatch(name) for name in names):
        return tuple(sorted(names, key=lambda name: (int(name), name)))
    return tuple(sorted(names))


def _csv(path: Path, wanted: Sequence[str]) -> _Columns:
    cells: dict[str, list[str]] = {name: [] for name in wanted}
    lines: list[int] = []
    uneven: list[str] = []
    try:
        with TextIOWrapper(plain_file(path, _LIMIT), encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            names = [name.strip() for name in next(reader, [])]
            where = _positions(path, names, wanted)
            for row in reader:
                if len(row) == len(names):
                    lines.append(reader.line_num)
                    for name, position in where.items():
                        cells[name].append(row[position].strip())
                elif row:
                    uneven.append(f"line {reader.line_num}")
    except UnicodeDecodeError as error:
        raise DataFormatError(f"{path}: not UTF-8 text: {error.reason}") from None
    except csv.Error as error:
        raise DataFormatError(f"{path}: not a CSV table: line {reader.line_num}: {error}") from None
    faults = [note("cells-uneven", cells=len(names), places=_list(uneven))] if uneven else []
    return _Columns(cells, lambda row: f"line {lines[row]}", faults)


def _parquet(path: Path, wanted: Sequence[str]) -> _Columns:
    """The columns of a Parquet file; only those that are wanted are read."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise MissingDependencyError("reading Parquet tables needs pyarrow: pip install 'mixveil[tables]'") from None
    try:
        with plain_file(path) as opened, parquet.ParquetFile(opened) as file:
            schema = file.schema_arrow
            _positions(path, schema.names, wanted)
            for name in wanted:
                _plain(path, pyarrow.types, name, schema.field(name).type)
            _check_unfolded(path, file.metadata, wanted)
            whole = parquet.ParquetFile(opened, metadata=file.metadata, read_dictionary=wanted)
            # One thread: those of pyarrow outlive the call, and crash an interpreter that traces memory.
            columns = {name: _cells(whole.read(columns=[name], use_threads=False).column(name)) for name in wanted}
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise DataFormatError(f"{path}: not a readable Parquet file: {error}") from None
    return _Columns(columns, lambda row: f"row {row + 1}")


def _check_unfolded(path: Path, stated: Any, wanted: Sequence[str]) -> None:
    """Refuse a table that is too large in memory: repeated cells take no room in a Parquet file."""
    if stated.num_rows > _ROWS:
        raise DataFormatError(f"{path}: {stated.num_rows:,} rows, and a table has at most {_ROWS:,}")
    groups = [stated.row_group(number) for number in range(stated.num_row_groups)]
    columns = [group.column(number) for group in groups for number in range(group.num_columns)]
    size = sum(column.total_uncompressed_size for column in columns if column.path_in_schema in wanted)
    if size > _LIMIT:
        raise DataFormatError(f"{path}: its columns unpack to {size:,} bytes, and a table has at most {_LIMIT:,}")


def _cells(column: Any) -> list[str]:
    """The cells of a column. A repeated text is in memory once."""
    cells: list[str] = []
    for chunk in column.chunks:
        encoded = chunk if hasattr(chunk, "dictionary") else chunk.dictionary_encode()
        values = [str(value).strip() for value in encoded.dictionary.to_pylist()]
        cells += ["" if number is None else values[number] for number in encoded.indices.to_pylist()]
    return cells


def _plain(path: Path, types: Any, name: str, kind: Any) -> None:
    """Refuse a column that is not of texts; columns other than `path` may be of whole numbers."""
    kind = kind.value_type if types.is_dictionary(kind) else kind
    text = types.is_string(kind) or types.is_large_string(kind)
    if not (text or (types.is_integer(kind) and name != "path")):
        what = "texts" if name == "path" else "texts or whole numbers"
        raise DataFormatError(f"{path}: the column {name!r} must be of {what}, it is of {kind}")


def _positions(path: Path, names: Sequence[str], wanted: Sequence[str]) -> dict[str, int]:
    """The positions of the wanted columns. Two columns with one name are refused."""
    if twice := sorted(name for name, count in Counter(names).items() if count > 1):
        raise DataFormatError(f"{path}: several columns have the name {twice[0]!r}")
    if missing := [name for name in wanted if name not in names]:
        has = ", ".join(repr(name) for name in names) or "none"
        raise DataFormatError(f"{path}: no column {missing[0]!r}; its columns are: {has}")
    return {name: names.index(name) for name in wanted}


def _list(places: Sequence[str]) -> str:
    more = f" and {len(places) - _SHOWN} more" if len(places) > _SHOWN else ""
    return ", ".join(places[:_SHOWN]) + more
