"""Sentences about data sets, for their owners."""

from __future__ import annotations

WORDS: dict[str, str] = {
    "one-class-only": "the only class of {rows:n row} is {name!r}: nothing can be told apart from one class only",
    "classes-without-rows": "of {classes:n class|classes}, {empty:n has|have} no rows",
    # What keeps rows from being used
    "cells-empty": "no {column} in {places}",
    "cells-uneven": "not {cells} cells, as in its first line, in {places}",
    "file-unreadable": "{detail}",
    "file-unreadable-at": "{place}: {detail}",
    "sizes-differ": "{name}: images of {sizes} different sizes: {common}, …; {example} has a rare one; give "
    "one size (--size)",
    "faults-in-data": "{faults:n fault}. The rows above are those that can be used; a release is refused until all "
    "faults are mended, or their rows are taken out.",
    # What to know of the others
    "fewer-bits": "no pixel uses more than {bits} of the {room} bits that its file has room for. If the device that "
    "made the images has {bits} bits, give --depth {bits}; without it the images are dark, and noise drowns them",
    "files-left-out": "{files:n file was|files were} left out under {folder}: not in a class folder, or of no "
    "known image suffix",
    "files-named-again": "{table}: a file that was named before is named again in {places}",
    "unit-with-most-rows": "the unit {unit!r} has {most} of {rows:n row}, more than half: its rows cannot all be "
    "paired with rows of other units",
    "same-with-different-labels": "{groups:n group} of rows with the same image, and different labels",
    "same-in-different-units": "{groups:n group} of rows with the same image, in different units: is it one person?",
    "alike-with-different-labels": "{groups:n group} of rows that look alike, and have different labels",
    "alike-in-different-units": "{groups:n group} of rows that look alike, in different units: is it one person?",
    "classes-of-few-rows": "classes with fewer than {least} rows: {names}. An attacker who knows that a person is in "
    "these data, and one of few, can tell from the labels of a release of records which rows are of that person, and "
    "so the class; class sums cover labels",
    "labels-show-counts": "Labels: class sums (mixveil statistics) cover them. Records (mixveil encode) show them "
    "unless they are randomised first (--label-epsilon), and exactly how many records of each class there are.",
    "labels-show-pairs": "Each row of mixed records shows the two classes that it was mixed of.",
    "near-copies-by-looks": "found by their looks: some may be missed, and images that look alike need not be one "
    "person's",
    "all-grey": "all images are greyscale: with --grey a release would be a third as large",
}
