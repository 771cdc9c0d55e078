"""The table as Markdown: short for the README's first screen, whole for the docs. All words are here, the data have
codes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mixveil.core.wording.notes import note
from mixveil.report.results import Results

ROOT = Path(__file__).parents[2]
TITLES = {
    "public": "public images alone",
    "local": "each party alone",
    "centralised": "all images pooled",
    "fedavg": "FedAvg",
    "fedprox": "FedProx",
    "fed-augmix": "FedAvg + Fed-AugMix",
    "fedprox-augmix": "FedProx + Fed-AugMix",
    "dp-sgd": "FedAvg + DP-SGD",
    "mixup": "Mixup",
    "instahide": "InstaHide",
    "mixcon": "MixCon (inference)",
    "one-shot": "singular, τ = {tau:g}",
    "two-step": "**certified records**",
    "sums": "**class sums**",
}
METHODS = (*TITLES,)
SHORT = tuple(method for method in METHODS if method not in ("local", "fedprox-augmix"))
"""Of the README, whose first screen has room for twelve: the docs have all."""

WHY = {
    "nothing-sent": "nothing sent",
    "all-shown": "all shown",
    "not-measured": "not measured",
    "broken": "attacks fail their test",
    "no-rows": "no rows",
}
PROMISED = {
    "nothing-sent": "nothing sent",
    "every-record-sent": "nothing",
    "weights-unbounded": "nothing",
    "no-noise": "nothing",
    "halves-promise-nothing": "nothing",
    "nominal-tau": "nothing of a record",
    "epsilon-record-removed": "ε = {epsilon:.0f}",
    "epsilon-record-taken-out": "ε = {epsilon:.1f}",
    "mu-labels-by-row": "μ = {mu:g}, labels shown: members found ≤ {ceiling:.0%}",
    "mu-labels-as-counts": "μ = {mu:g}, labels shown as counts: members found ≤ {ceiling:.0%}",
    "mu-labels-covered": "μ = {mu:g}: members found ≤ {ceiling:.0%}",
}
Row = Mapping[str, Any]
Column = Callable[[Row], str]


def rows_of(found: Results) -> dict[str, Row]:
    """Settings and figures of each method, in the order of the table. All must be of one scale."""
    rows = {str(row["settings"]["method"]): {**row["settings"], **row["figures"]} for row in found.rows}
    scales = {tuple((k, v) for k, v in row["settings"].items() if k != "method") for row in found.rows}
    if len(scales) > 1:
        raise SystemExit("these rows are of several scales: a table is of one")
    return {method: rows[method] for method in METHODS if method in rows}


def short(found: Results) -> str:
    """Seven columns."""
    columns: dict[str, Column] = {
        "accuracy": _accuracy,
        "best picture (SSIM)": _picture,
        "rows linked": lambda row: _share(row, "linkage"),
        "members found (AUC)": _members,
        "sent": _sent,
        "promised": _promise,
    }
    return _table({method: row for method, row in rows_of(found).items() if method in SHORT}, columns)


def whole(found: Results) -> str:
    """All figures."""
    columns: dict[str, Column] = {
        "accuracy": _accuracy,
        "best picture (SSIM)": _picture,
        "by": lambda row: str(row.get("ssim attack", "")),
        "guessing": lambda row: _number(row.get("ssim nothing")),
        "of all a party's rows": _all_rows,
        "rows linked": lambda row: _share(row, "linkage"),
        "members found": lambda row: _share(row, "membership"),
        "AUC": lambda row: _number(row.get("membership auc")),
        "ceiling": lambda row: _percent(row.get("ceiling")),
        "up": _sent,
        "down": lambda row: _bytes(row.get("bytes down")),
        "seconds": lambda row: f"{row['seconds']:.0f}",
    }
    return _table(rows_of(found), columns)


def promises(found: Results) -> str:
    """What each promises, in the words of the package."""
    told: dict[str, list[str]] = {}
    for method, row in rows_of(found).items():
        figures = {k.removeprefix("promise "): v for k, v in row.items() if k.startswith("promise ")}
        told.setdefault(str(note(str(row["promise"]), **figures)), []).append(_title(method, row))
    return "".join(f"- {', '.join(titles)}: {text.rstrip('.')}.\n" for text, titles in told.items())


def remarks(found: Results) -> str:
    """Figures that have no column."""
    rows, told = rows_of(found), []
    for method, row in rows.items():
        title = _title(method, row)
        if "ssim why" not in row and f"ssim by {row.get('ssim attack')}" in row:
            each = sorted(key.removeprefix("ssim by ") for key in row if key.startswith("ssim by "))
            figures = ", ".join(f"`{name}` {row['ssim by ' + name]:.2f}" for name in each)
            told.append(f"{title}, SSIM by attack: {figures}.")
        if "broken" in row:
            told.append(f"{title}: {row['broken']} failed its test on an update without a defence: it is not counted.")
        if "accuracy encoded" in row:
            told.append(
                f"{title}: the accuracy is of the mean over ten encodings of each test image, as its paper tests; of "
                f"the images as they are it is {_percent(row['accuracy'])}."
            )
        if "grouped" in row:
            told.append(
                f"{title}: for {_percent(row['grouped'])} of the rows the row that looks nearest shares an image "
                f"(guessing: {_percent(row['grouped nothing'])})."
            )
        if "ssim label" in row:
            told.append(
                f"{title}: the mean of public images of the same class, which needs no sum, has an SSIM of "
                f"{row['ssim label']:.2f} with a row; what the sum shows has {row['ssim']:.2f}."
            )
    return "".join(f"- {line}\n" for line in told)


def write(found: Results) -> None:
    """Put the tables between their marks."""
    put(ROOT / "README.md", {"across": short(found)})
    put(ROOT / "docs" / "across.md", {"across": whole(found), "remarks": remarks(found), "promises": promises(found)})


def put(path: Path, parts: Mapping[str, str]) -> None:
    """Replace what is between the marks of each part."""
    text = path.read_text(encoding="utf-8")
    for name, part in parts.items():
        begin, end = marks(name)
        before, found, rest = text.partition(begin)
        _, closed, after = rest.partition(end)
        if not found or not closed:
            raise SystemExit(f"{path} has no place for {name}: {begin} … {end}")
        text = f"{before}{begin}\n{part}{end}{after}"
    path.write_text(text, encoding="utf-8")


def between(path: Path, name: str) -> str:
    """What a file has between the marks of a part."""
    begin, end = marks(name)
    return path.read_text(encoding="utf-8").partition(begin + "\n")[2].partition(end)[0]


def marks(name: str) -> tuple[str, str]:
    return f"<!-- {name}: python -m reproduce.across --write -->", f"<!-- {name}: end -->"


def _title(method: str, row: Row) -> str:
    return TITLES[method].format(**row)


def _promise(row: Row) -> str:
    figures = {k.removeprefix("promise "): v for k, v in row.items() if k.startswith("promise ")}
    return PROMISED[str(row["promise"])].format(**figures, ceiling=row.get("ceiling"))


def _accuracy(row: Row) -> str:
    """Of encodings of test images, where the method is tested with such."""
    return _percent(row.get("accuracy encoded", row["accuracy"]))


def _picture(row: Row) -> str:
    if "ssim why" in row:
        return WHY[row["ssim why"]]
    of = f", {row['attacked rows']} rows" if "attacked updates" in row else ""
    return f"{row['ssim']:.2f}{of}"


def _all_rows(row: Row) -> str:
    if "ssim why of all rows" in row:
        return WHY[row["ssim why of all rows"]]
    return _number(row.get("ssim of all rows"))


def _share(row: Row, cell: str) -> str:
    return WHY[row[f"{cell} why"]] if f"{cell} why" in row else _percent(row[cell])


def _members(row: Row) -> str:
    found = _share(row, "membership")
    return f"{found} ({row['membership auc']:.2f})" if "membership auc" in row else found


def _sent(row: Row) -> str:
    return f"{_bytes(row['bytes an image'])} an image" if "bytes an image" in row else _bytes(row["bytes up"])


def _bytes(count: float | None) -> str:
    if not count:
        return "" if count is None else "0"
    return f"{count / 1e6:.3g} MB" if count >= 1e5 else f"{count / 1e3:.3g} kB"


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f} %"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _table(rows: Mapping[str, Row], columns: Mapping[str, Column]) -> str:
    lines = [["", *columns], ["---"] * (len(columns) + 1)]
    lines += [[_title(method, row), *(cell(row) for cell in columns.values())] for method, row in rows.items()]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
