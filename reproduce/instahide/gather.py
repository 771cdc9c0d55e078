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

from mixveil.core import files
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
    curves = [{"settings": plain(row)["settings"], "curve": row["curve"]} for row in learnt if "curve" in row]
    data = json.dumps(curves, allow_nan=False).replace('{"settings"', '\n{"settings"')
    files.write_whole(chosen.out.with_name(f"{chosen.out.stem}-curves.json"), (data + "\n").encode())


if __name__ == "__main__":
    main()
