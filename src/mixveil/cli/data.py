"""`mixveil data`: what data sets and networks there are, and what is in a data set."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from mixveil.cli import _common
from mixveil.cli._common import AsJson, DataDir, escape, out, plain, print_json, say
from mixveil.core.wording.notes import note
from mixveil.core.wording.sentences import plural, sentence
from mixveil.data.opening import DataOptions

if TYPE_CHECKING:
    from mixveil.data.check import Check, Copies

app = typer.Typer(add_completion=False, help="Look at data sets.", no_args_is_help=True)


@app.command("list")
def list_(data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """List the named data sets, whether they can be opened here, and the public networks that are at hand."""
    from mixveil.core.errors import MixveilError
    from mixveil.data.opening import NAMED, open_data

    rows: list[dict[str, Any]] = []
    why: dict[str, str] = {}
    for name, known in NAMED.items():
        for split in known.splits:
            row: dict[str, Any] = {"name": name, "split": split, "found": False}
            try:
                images = open_data(f"{name}:{split}", data_dir=data_dir)
                row |= {"found": True, "rows": len(images), "shape": list(images.shape), "classes": len(images.classes)}
            except MixveilError as error:
                row["error"] = error.plain()
                why.setdefault(name, str(error))
            rows.append(row)
    networks = _networks(data_dir)
    if as_json:
        print_json({"sets": rows, "networks": networks})
        return
    from rich.table import Column, Table

    table = Table("data set", "rows", "shape", "classes", "here")
    for row in rows:
        figures = str(row.get("rows", "")), "×".join(map(str, row.get("shape", ()))), str(row.get("classes", ""))
        table.add_row(f"{row['name']}:{row['split']}", *figures, "yes" if row["found"] else "[dim]no[/]")
    out.print(table)
    for reason in why.values():
        say(f"[dim]{escape(reason)}[/]")
    out.print(
        "Besides these: any .npz file with arrays x and y, any .csv or .parquet table with the columns path and label, "
        "and any folder with one subfolder a class."
    )
    table = Table("network", Column("its file, or how to get it", overflow="fold"))
    for network in networks:
        table.add_row(
            network["name"], escape(network["path"]) if network["found"] else f"[dim]{escape(network['get'])}[/]"
        )
    out.print(table)


def _networks(data_dir: Path | None) -> list[dict[str, Any]]:
    """Every known network: where its file lies, or else what brings it."""
    from mixveil.data.opening import data_folder
    from mixveil.features.backbones import loading
    from mixveil.features.backbones.weight_files import how_to_get

    here = loading.at_hand(data_folder(data_dir))
    return [
        {
            "name": name,
            "found": name in here,
            "path": str(here[name]) if name in here else None,
            "get": how_to_get(known.file, known.package),
        }
        for name, known in loading.KNOWN.items()
    ]


@app.command("check")
@_common.data_options("unit", "classes")
def check_(data: _common.Data, *, options: DataOptions, as_json: AsJson = False) -> None:
    """Read all of a data set and say what is in it, what is there twice, and what its labels will show. All faults are
    named at once; a data set with faults ends in exit code 4."""
    from mixveil.data.checking import check_data

    found, refused = check_data(data, options, _common.progress)
    if as_json:
        told = {**asdict(found), "warnings": plain(found.warnings), "faults": plain(found.faults)}
        error = {} if refused is None else {"error": refused.plain()}
        print_json({**told, "labels_show": _LABELS_SHOW, **error})
    else:
        _print(found)
        for warning in found.warnings:
            _common.warn(warning)
        _print_faults(found)
    if refused is not None:
        raise typer.Exit(refused.exit_code)


def _print_faults(found: Check) -> None:
    for fault in found.faults[:_MOST]:
        _common.err.print(f"[red]fault:[/] {escape(str(fault))}", soft_wrap=True)
    if len(found.faults) > _MOST:
        _common.err.print(f"… and {len(found.faults) - _MOST:,} more: --json names all")
    if found.faults:
        _common.err.print(escape(str(note("faults-in-data", faults=len(found.faults)))), soft_wrap=True)


_LABELS_SHOW = ["labels-show-counts", "labels-show-pairs"]


def _print(found: Check) -> None:
    shape = "×".join(str(side) for side in found.shape)
    out.print(f"[bold]{escape(found.name)}[/]: {found.rows:,} rows of {shape}")
    (low, high), (darkest, brightest) = found.range, found.met
    out.print(f"  pixels: of [{low:g}, {high:g}], met {darkest:.4g} to {brightest:.4g}", markup=False)
    for what, counts in (("sizes", found.sizes), ("kinds", found.kinds), ("classes", found.classes)):
        if counts:
            most = ", ".join(f"{item.name} ({item.rows:,})" for item in counts[:_MOST])
            more = f", … and {len(counts) - _MOST} more" if len(counts) > _MOST else ""
            say(f"  {what}: {escape(most)}{more}")
    if found.units is not None:
        units = found.units
        say(f"  units: {units.count:,}, {units.least:,} to {units.most:,} rows each, median {units.median:g}")
    _print_copies("exact copies", found.exact)
    if found.near is not None:
        _print_copies("near copies", found.near)
        say(f"    [dim]{sentence('near-copies-by-looks')}[/]")
    out.print("  what the labels will show:")
    for code in _LABELS_SHOW:
        say(f"    {sentence(code)}")


def _print_copies(what: str, copies: Copies) -> None:
    if not copies.groups:
        out.print(f"  {what}: none")
        return
    differ = f"{copies.labels_differ:,} with different labels, {copies.units_differ:,} in different units"
    say(f"  {what}: {copies.copies:,}, in {plural(copies.groups, 'group')} ({differ})")
    for group in copies.examples:
        rows = ", ".join(str(row) for row in group.rows) + (", …" if group.size > len(group.rows) else "")
        marks = ["different labels"] * group.labels_differ + ["different units"] * group.units_differ
        say(f"    rows {rows}" + (f": {', '.join(marks)}" if marks else ""))
        for file in group.files:
            say(f"      {escape(file)}")


_MOST = 50
