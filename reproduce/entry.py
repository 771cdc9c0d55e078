"""What is said of everything that can be made again: a table of a paper, or measurements that no paper has."""

from __future__ import annotations

from typing import NamedTuple

PAPERS = {
    "singular": (
        "Augmented Mixup Procedure for Privacy-Preserving Collaborative Training",
        "M. Plesa, F. Clérot, S. David, R. Poenaru (Orange), https://openreview.net/forum?id=1SrZyNgmpY",
    ),
    "instahide": (
        "InstaHide: Instance-hiding Schemes for Private Distributed Learning",
        "Y. Huang, Z. Song, K. Li, S. Arora, ICML 2020",
    ),
    "mixcon": (
        "MixCon: Adjusting the Separability of Data Representations for Harder Data Recovery",
        "X. Li, Y. Huang, B. Peng, Z. Song, K. Li",
    ),
    "fedaugmix": ("Fed-AugMix: Balancing Privacy and Utility via Data Augmentation", "H. Li, W. Chen, X. Zhang"),
}
NAMES = {"singular": "singularized mixup", "instahide": "InstaHide", "mixcon": "MixCon", "fedaugmix": "Fed-AugMix"}
Command = tuple[str, ...]
"""A module of the paper's folder, and its arguments. {out}: the file of results; {beside}: the same without its ending;
{data}: the folder of data sets."""


class Entry(NamedTuple):
    """A table or a figure of a paper.

    Attributes:
        full: What is run with --full, one after the other.
        needs: What that takes.
        quick: What --quick is made of.
        results: The stored files, in the paper's folder; the first has the figures.
        claims: The paper's own figures; none where it has no numbers.
    """

    paper: str
    table: str
    title: str
    full: tuple[Command, ...]
    needs: str
    quick: str
    results: tuple[str, ...] = ()
    claims: str | None = None

    @property
    def name(self) -> str:
        """As people call it."""
        return f"Figure {self.table.removeprefix('figure')}" if self.is_figure else f"Table {self.table}"

    @property
    def is_figure(self) -> bool:
        return self.table.startswith("figure")

    @property
    def downloads(self) -> bool:
        """Whether --full takes data sets."""
        return any(command[0] != "synthetic" for command in self.full)

    @property
    def command(self) -> str:
        return f"python -m reproduce.{self.paper} {self.table}"


class Beyond(NamedTuple):
    """Measurements that no paper has. folder: Where they lie."""

    folder: str
    title: str
    command: str
    results: str
