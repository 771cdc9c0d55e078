"""Runs from several files as one table of results, and their learning curves beside it.

    python -m reproduce.instahide.gather FILE… [--out reproduce/instahide/accuracy.json]

FILE: what `reproduce.instahide.accuracy` wrote, on a GPU for example. `mixveil results` shows the tables: accuracies,
and speeds in a file of their own. Of runs with the same settings the last one counts.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from mixveil.report import results

HERE = Path(__file__).parent
Row = dict[str, Any]


def gathered(paths: list[Path], commit: str) -> list[Row]:
    found: dict[str, Row] = {}
    for path in paths:
        for row in json.loads(path.read_text())["runs"]:
            row["about"].setdefault("commit", commit)
            found[json.dumps(row["settings"], sort_keys=True)] = row
    return list(found.values())


def plain(row: Row) -> Row:
    """A row of results: settings and figures are plain values; what is not set is left out."""
    settings = {name: value for name, value in row["settings"].items() if value is not None}
    if settings.get("mode") == "release":
        settings["augment"] = False  # as it was, whatever an earlier file says
    about = row["about"]
    made = {"torch": about["torch"], "commit": about.get("commit", "unknown")}
    return {"settings": {**settings, "device": about["device"]}, "figures": {**row["figures"], **made}}


def curve(row: Row) -> list[Row]:
    """The epochs of a run after which its accuracy was measured."""
    settings = plain(row)["settings"]
    points = [point for point in row.get("curve", []) if "plain %" in point]
    return [
        {"settings": {**settings, "after": point["epoch"]}, "figures": {n: v for n, v in point.items() if n != "epoch"}}
        for point in points
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, default=HERE / "accuracy.json")
    parser.add_argument("--commit", default="unknown", help="that made runs which do not say it")
    chosen = parser.parse_args()
    rows = gathered(chosen.files, chosen.commit)
    speeds = [row for row in rows if row["settings"].get("what") in ("overhead", "trial")]
    learnt = [row for row in rows if row not in speeds]
    for path, title, part in (
        (chosen.out, "InstaHide: accuracy of training from scratch on encodings", learnt),
        (chosen.out.with_name("speed.json"), "InstaHide: seconds of an epoch", speeds),
    ):
        if part:
            device = ", ".join(sorted({row["about"]["device"] for row in part}))
            provenance = results.provenance({"accuracy": "of the last epoch"}, device=device)
            results.write_results(path, results.Results(title, provenance, tuple(map(plain, part))))
    curves = tuple(point for row in learnt for point in curve(row))
    path = chosen.out.with_name(f"{chosen.out.stem}-curves.json")
    provenance = results.provenance({"accuracy": "after every epoch that it was measured after"})
    results.write_results(path, results.Results("InstaHide: learning curves", provenance, curves))


if __name__ == "__main__":
    main()
