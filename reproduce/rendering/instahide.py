"""InstaHide's tables beside ours."""

from __future__ import annotations

import re

from reproduce.rendering.comparison import Comparison
from reproduce.rendering.figures import Figure, Ours
from reproduce.rendering.stored import Claim, Row, rows

PAPER = "instahide"
EPOCHS = {"mnist": 30, "cifar10": 200}
TITLES = {"mnist": "MNIST", "cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "imagenet": "ImageNet"}


def _ours(data: str) -> Ours:
    def found(claim: Claim, variant: str) -> list[Row]:
        """The training of a row, and whether it is tested on encodings, as the row is."""
        method, epochs = claim["method"], EPOCHS.get(data)
        if method == "dpsgd":
            return _tested(rows(PAPER, "accuracy.json", what="dpsgd", data=data, private=True), "plain %")
        if method == "vanilla":
            return _tested(rows(PAPER, "accuracy.json", data=data, mode="vanilla", epochs=epochs), "plain %")
        named = re.fullmatch(r"(inside|cross)_k(\d)(_in_inference)?", method)
        if named is None:
            raise ValueError(f"the claims have a method of an unknown kind: {method}")
        trained = rows(PAPER, "accuracy.json", data=data, mode=named[1], k=int(named[2]), epochs=epochs)
        return _tested(trained, "encoded %" if named[3] else "plain %")

    return Ours("", found, ("tested",))


def _tested(found: list[Row], name: str) -> list[Row]:
    return [{**row, "tested": row[name]} for row in found]


def _statistic(claim: Claim, variant: str) -> list[Row]:
    return rows(PAPER, "table4.json", image=int(claim["image"]), statistic=claim["statistic"])


COMPARISONS = (
    Comparison(
        PAPER,
        "2",
        "table2.csv",
        {"method": "method"},
        tuple(Figure(f"{title}, %", (data,), (_ours(data),), 1) for data, title in TITLES.items()),
    ),
    Comparison(
        PAPER,
        "4",
        "table4.csv",
        {"image": "image", "statistic": "statistic"},
        (
            Figure("p, all", ("p_all",), (Ours("", _statistic, ("p all",)),)),
            Figure("p, other", ("p_other",), (Ours("", _statistic, ("p other",)),)),
            Figure("p of one test of all encodings", (), (Ours("", _statistic, ("p of all encodings",)),), 4),
        ),
    ),
)
