"""The pages of docs/results as text, by the name of the file."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping

from mixveil.report.results import Results
from reproduce import catalogue
from reproduce.across import tables as across
from reproduce.entries import BEYOND, ENTRIES
from reproduce.entry import NAMES, PAPERS, Entry
from reproduce.rendering import fedaugmix, instahide, mixcon, plots, singular
from reproduce.rendering.comparison import Comparison
from reproduce.rendering.rendered import Counts, counted, markdown
from reproduce.rendering.stored import results, texts

COMMAND = "make tables"
COMPARISONS = (*singular.COMPARISONS, *instahide.COMPARISONS, *mixcon.COMPARISONS, *fedaugmix.COMPARISONS)
MADE = (
    "<!-- Made by `make tables` (python -m reproduce.tables) from reproduce/**/*.json, reproduce/*/claims/*.csv and "
    "reproduce/reasons.json. Do not edit. -->\n"
)
SAID = (
    "This page is made by `make tables` (`python -m reproduce.tables`) from stored results and the papers' figures. "
    "Nothing in it is typed by hand.\n"
)
READ = (
    "*Paper*: as published. *Difference*: ours minus the paper's. ± is a standard deviation, and in brackets stands "
    "the best of what the figure is the mean of. – means that there is no figure; the notes say why. Letters name the "
    "notes below each table: what differs in the set-up.\n"
)
PICTURES = {
    ("singular", "2"): "singular-table2.svg",
    ("singular", "3"): "singular-table3.svg",
    ("fedaugmix", "2"): "fedaugmix-table2.svg",
}
FURTHER = {
    "singular": "[attacks.md](../attacks.md), [learning.md](../learning.md) and [federated.md](../federated.md)",
    "instahide": "[instahide.md](../instahide.md), [breaks.md](../breaks.md) and [attacks.md](../attacks.md)",
    "mixcon": "[mixcon.md](../mixcon.md)",
    "fedaugmix": "[fedaugmix.md](../fedaugmix.md)",
}


def files() -> dict[str, str]:
    """All pages and pictures."""
    pages = {"index.md": _index(), **{f"{paper}.md": _paper(paper) for paper in PAPERS}}
    return {**pages, "across.md": _across(), "certified.md": _certified(), **plots.files()}


def _entries(item: Comparison) -> list[Entry]:
    """A comparison can be of two tables that have one file of claims."""
    known = catalogue.of_paper(item.paper)
    return [known[table] for table in item.table.split(" and ")]


def _counts(paper: str) -> Counts:
    whole = Counts(0, 0, 0, 0)
    for item in COMPARISONS:
        if item.paper == paper:
            whole = whole.plus(counted(item.compared()))
    return whole


def _index() -> str:
    lines = []
    for paper in PAPERS:
        count = _counts(paper)
        lines.append([f"[{NAMES[paper]}]({paper}.md)", *(str(number) for number in count)])
    lines += [["[across the project](across.md)", *["–"] * 4], ["[certified learning](certified.md)", *["–"] * 4]]
    head = ["", "rows of the paper", "measured", "in part", "no figure, with the reason"]
    listed = [[_code(cell) if column == 3 else cell for column, cell in enumerate(line)] for line in catalogue.listed()]
    toctree = "```{toctree}\n:hidden:\n\n" + "\n".join([*PAPERS, "across", "certified"]) + "\n```\n"
    parts = [
        MADE,
        "# Results\n",
        SAID,
        "Every row of every table of figures is on these pages, with ours beside it or the reason why there is none.\n",
        markdown(head, lines),
        "## What can be made again\n",
        "Each command takes `--quick` or `--full`; `mixveil results FILE` prints what it wrote. `--quick` takes seconds"
        " to minutes on two cores and needs no downloads: it shows that the code runs, and its figures cannot be "
        "compared with the paper's. `--full` runs our scripts as near to the paper as they come; "
        "where the stored results were made with less, the notes say so. `make reproduce-quick` runs all quick ones.\n",
        markdown(listed[0], listed[1:]),
        toctree,
    ]
    return "\n".join(parts)


def _code(text: str) -> str:
    return f"`{text.replace(' --quick|--full', '')}`" if text.startswith("python") else text


def _paper(paper: str) -> str:
    title, authors = PAPERS[paper]
    parts = [MADE, f"# {NAMES[paper][0].upper()}{NAMES[paper][1:]}: the paper's figures and ours\n"]
    parts += [f"{title}: {authors}.\n", SAID, READ, f"What follows from the figures: {FURTHER[paper]}.\n"]
    for item in COMPARISONS:
        if item.paper == paper:
            parts += _table(item)
    others = [entry for entry in ENTRIES if entry.paper == paper and entry.claims is None]
    if others:
        parts += ["## Without figures in the paper\n", "".join(_other(entry) for entry in others)]
    return "\n".join(parts)


def _other(entry: Entry) -> str:
    kept = f"ours: `reproduce/{entry.paper}/{entry.results[0]}`" if entry.results else "its pictures are not kept here"
    return f"- {entry.name}, {entry.title}: `{entry.command} --quick` or `--full`; {kept}.\n"


def _table(item: Comparison) -> Iterator[str]:
    entries, compared = _entries(item), item.compared()
    count, first = counted(compared), entries[0]
    names = " and ".join([entries[0].name, *(entry.table for entry in entries[1:])]).replace(
        "Table", "Tables", len(entries) - 1
    )
    yield f"## {names}: {first.title if len(entries) == 1 else first.title.partition(':')[0]}\n"
    commands = ", ".join(f"`{entry.command} --full`" for entry in entries)
    yield f"{commands} ({first.needs}); {_origin(item.paper, first.results[0])}\n"
    part = f", {count.partly} in part" if count.partly else ""
    yield f"{count.rows} rows of the paper: {count.measured} measured{part}, {count.reasons} without a figure.\n"
    if compared.everywhere:
        yield "".join(f"- {text}\n" for text in compared.everywhere)
    yield markdown(compared.head, [line.cells for line in compared.lines])
    if compared.notes:
        yield "".join(f"- **{letter}**: {text}.\n" for letter, text in compared.notes.items())
    if (item.paper, item.table) in PICTURES:
        yield f"![{names}, the paper's and ours]({PICTURES[item.paper, item.table]})\n"


def _origin(folder: str, file: str) -> str:
    told = catalogue.provenance(folder, file)
    when, commit, device = told["time"][:10], told["commit"], told["device"]
    return f"`reproduce/{folder}/{file}`, last written {when} at commit `{commit}`, on {device}."


def _across() -> str:
    found = results("across", "across.json")
    parts = [MADE, "# Across the project\n", SAID, "What was run, and how to read it: [across.md](../across.md).\n"]
    parts += [f"`python -m reproduce.across`; {_origin('across', 'across.json')}\n"]
    parts += [across.whole(found), across.remarks(found), "What is promised:\n", across.promises(found)]
    return "\n".join(parts)


def _certified() -> str:
    parts = [MADE, "# Certified learning\n", SAID]
    parts += ["No paper has these figures. What was run: [learning.md](../learning.md), [rounds.md](../rounds.md).\n"]
    parts += ["".join(f"- {text}\n" for text in texts()["set-up"]["certified"]["everywhere"])]
    parts += ["![Rounds of sums on CIFAR-10, accuracy by μ](certified-rounds.svg)\n"]
    for item in BEYOND:
        if item.folder in ("certified", "labels"):
            found = results(item.folder, item.results)
            parts += [f"## {item.title[0].upper()}{item.title[1:]}\n", f"{found.title}.\n"]
            parts += [f"`{item.command}`; {_origin(item.folder, item.results)}\n", _grouped(found)]
    return "\n".join(parts)


def _grouped(found: Results) -> str:
    """One line for all runs that differ in noise alone. What was found on public data is not a result."""
    rows = [row for row in found.rows if row["settings"].get("method") != "settings"]
    left = {"seed", "repetition", "data"}
    settings = list(dict.fromkeys(name for row in rows for name in row["settings"] if name not in left))
    figures = list(
        dict.fromkeys(name for row in rows for name in row["figures"] if name.endswith("%") or name == "gain")
    )
    groups: dict[tuple[object, ...], list[Mapping[str, object]]] = {}
    for row in rows:
        groups.setdefault(tuple(row["settings"].get(name) for name in settings), []).append(row["figures"])
    lines = []
    for key, runs in groups.items():
        cells = [_mean([run[name] for run in runs if run.get(name) is not None]) for name in figures]
        lines.append([*(_plain(value) for value in key), *cells, str(len(runs))])
    return markdown([*settings, *figures, "runs"], lines)


def _plain(value: object) -> str:
    if value is None:
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _mean(values: list[object]) -> str:
    numbers = [float(str(value)) for value in values]
    if not numbers:
        return "–"
    spread = f" ± {statistics.stdev(numbers):.1f}" if len(numbers) > 1 else ""
    return f"{statistics.fmean(numbers):.1f}{spread}"
