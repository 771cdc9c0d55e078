"""A paper's table beside ours: every row of the claims, with the difference and the set-up, or why there is none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from reproduce.rendering.figures import NONE, Figure, Value
from reproduce.rendering.rendered import Compared, Line, Notes
from reproduce.rendering.stored import Claim, Row, claims, matches, rows, texts


class MissingReasonError(Exception):
    """A row of the claims has neither a measurement nor a reason, or has both."""


@dataclass(frozen=True)
class Comparison:
    """A table of a paper, and where ours lie.

    Attributes:
        paper, table: As in the catalogue. claims: Its file.
        keys: Columns of the claims that name a row, by their heads.
        variants: Ways to make ours, a line each where there are several.
    """

    paper: str
    table: str
    claims: str
    keys: Mapping[str, str]
    figures: tuple[Figure, ...]
    variants: tuple[str, ...] = ("",)

    def compared(self) -> Compared:
        told = texts()["set-up"].get(self.paper, {}).get(self.table, {})
        notes, lines = Notes(), list[Line]()
        for number, claim in enumerate(claims(self.paper, self.claims)):
            lines += self._lines(number, claim, told.get("rows", []), notes)
        named = {letter: text for text, letter in notes.letters.items()}
        head = self._head()
        used = [n for n in range(len(head)) if any(line.cells[n] != NONE for line in lines)]
        lines = [line._replace(cells=tuple(line.cells[n] for n in used)) for line in lines]
        return Compared(tuple(head[n] for n in used), tuple(lines), named, tuple(told.get("everywhere", ())))

    def _head(self) -> tuple[str, ...]:
        head = [*self.keys.values(), *(["ours"] if self.variants != ("",) else [])]
        for figure in self.figures:
            if figure.claimed:
                head.append(f"{figure.title}: paper")
            for ours in figure.ours:
                title = f"{figure.title}: {ours.title or 'ours'}"
                head += [title, "difference"] if figure.claimed else [title]
        return (*head, "notes")

    def _lines(self, number: int, claim: Claim, told: Sequence[Row], notes: Notes) -> Iterator[Line]:
        found = {variant: self._found(claim, variant) for variant in self.variants}
        some = [variant for variant in self.variants if any(value for _, value in found[variant].values())]
        for variant in some or self.variants[:1]:
            missing = [
                figure
                for figure in self.figures
                if figure.claimed
                and figure.paper(claim) is not None
                and not any(found[variant][figure.title, ours.title][1] for ours in figure.ours)
            ]
            said = [letter for text in self._set_up(found[variant], told) for letter in [notes.letter(text)]]
            said += [notes.letter(self._why(claim, figure)) for figure in missing]
            for figure in self.figures:
                if figure not in missing:
                    self._check_no_reason(claim, figure)
            keys = [claim[name] for name in self.keys]
            named = [variant if some else NONE] if self.variants != ("",) else []
            cells = (*keys, *named, *self._cells(claim, found[variant]), ", ".join(dict.fromkeys(said)))
            yield Line(number, cells, bool(some), tuple(figure.title for figure in missing))

    def _found(self, claim: Claim, variant: str) -> dict[tuple[str, str], tuple[list[Row], Value | None]]:
        made = {}
        for figure in self.figures:
            for ours in figure.ours:
                runs = ours.rows(claim, variant)
                made[figure.title, ours.title] = (runs, ours.value(runs))
        return made

    def _cells(self, claim: Claim, found: Mapping[tuple[str, str], tuple[list[Row], Value | None]]) -> Iterator[str]:
        for figure in self.figures:
            paper = figure.paper(claim)
            if figure.claimed:
                yield figure.published(claim)
            for ours in figure.ours:
                value = found[figure.title, ours.title][1]
                yield NONE if value is None else value.shown(figure.digits)
                if figure.claimed:
                    yield NONE if value is None or paper is None else value.minus(paper, figure.digits)

    def _set_up(
        self, found: Mapping[tuple[str, str], tuple[list[Row], Value | None]], told: Sequence[Row]
    ) -> Iterator[str]:
        """What differs, of every run that a figure is made of."""
        for runs, value in found.values():
            for row in runs if value is not None else ():
                for item in told:
                    if matches(row, item["where"]):
                        yield str(item["say"]).format_map({**row, "runs": len(runs)})

    def _reasons(self, claim: Claim, figure: Figure) -> list[Row]:
        return [
            item
            for item in texts()["reasons"]
            if (item["paper"], item["table"]) == (self.paper, self.table)
            and matches(claim, item["where"])
            and figure.claimed[:1] and figure.claimed[0] in item.get("figures", figure.claimed)
        ]  # fmt: skip

    def _why(self, claim: Claim, figure: Figure) -> str:
        found = self._reasons(claim, figure)
        if len(found) != 1:
            raise MissingReasonError(
                f"{self.paper}, Table {self.table}, {dict(claim)}, {figure.title}: no measurement, and {len(found)} "
                f"reasons in reproduce/reasons.json; there must be one"
            )
        like = found[0].get("like")
        if like is None:
            return str(found[0]["why"])
        (row,) = rows(like["folder"], like["file"], **like["where"])
        return str(found[0]["why"]).format_map(row)

    def _check_no_reason(self, claim: Claim, figure: Figure) -> None:
        if figure.claimed and figure.paper(claim) is not None and self._reasons(claim, figure):
            raise MissingReasonError(
                f"{self.paper}, Table {self.table}, {dict(claim)}, {figure.title}: there is a measurement; take the "
                f"reason out of reproduce/reasons.json"
            )
