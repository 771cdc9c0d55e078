"""Makes the pages of docs/results.

    python -m reproduce.tables [--out DIR] [--check]

From stored results, the papers' figures (`claims/*.csv`) and `reasons.json` alone; nothing is measured. --check writes
nothing, and fails where a page is not what the data say.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from reproduce.rendering import pages

OUT = Path(__file__).parents[1] / "docs" / "results"


def stale(folder: Path) -> list[str]:
    """Files of the folder that are not what would be made."""
    made = pages.files()
    there = {path.name for path in folder.glob("*")} if folder.is_dir() else set()
    same = {name for name in made if name in there and (folder / name).read_text(encoding="utf-8") == made[name]}
    return sorted((set(made) | there) - same)


def write(folder: Path) -> None:
    """All pages; files that are no longer made are taken away."""
    folder.mkdir(parents=True, exist_ok=True)
    made = pages.files()
    for path in folder.glob("*"):
        if path.name not in made and path.suffix in (".md", ".svg"):
            path.unlink()
    for name, text in made.items():
        (folder / name).write_text(text, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--check", action="store_true")
    asked = parser.parse_args()
    if asked.check:
        if wrong := stale(asked.out):
            raise SystemExit(f"not what the data say: {', '.join(wrong)}; run python -m reproduce.tables")
    else:
        write(asked.out)
        sys.stdout.write(f"{asked.out}: {len(pages.files())} files\n")


if __name__ == "__main__":
    main()
