"""`mixveil data`: what data sets there are."""

from __future__ import annotations

import typer

from mixveil.cli._common import AsJson, DataDir, escape, out, print_json

app = typer.Typer(help="Look at data sets.", no_args_is_help=True)


@app.callback()
def group() -> None:
    """Look at data sets."""


@app.command("list")
def list_(data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """List the named data sets, and whether they can be opened here."""
    from mixveil.data import NAMED, open_data
    from mixveil.errors import MixveilError

    rows = []
    for name, known in NAMED.items():
        for split in known.splits:
            row: dict[str, object] = {"name": name, "split": split, "found": False}
            try:
                images = open_data(f"{name}:{split}", data_dir=data_dir)
                row |= {"found": True, "rows": len(images), "shape": list(images.shape), "classes": len(images.classes)}
            except MixveilError as error:
                row["why"] = str(error)
            rows.append(row)
    if as_json:
        print_json({"sets": rows})
        return
    from rich.table import Table

    table = Table("data set", "rows", "shape", "classes", "")
    for row in rows:
        shape = row.get("shape")
        size = "×".join(str(s) for s in shape) if isinstance(shape, list) else ""
        cells = [f"{row['name']}:{row['split']}", str(row.get("rows", "")), size, str(row.get("classes", ""))]
        table.add_row(*cells, "" if row["found"] else "[dim]not here[/]")
    out.print(table)
    for name in dict.fromkeys(str(row["name"]) for row in rows if not row["found"]):
        why = next(str(row["why"]) for row in rows if row["name"] == name and not row["found"])
        out.print(f"[dim]{escape(why)}[/]", soft_wrap=True)
    out.print("Besides these: any .npz file with arrays x and y, and any folder with one subfolder a class.")
