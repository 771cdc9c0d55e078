"""Sentences about trainings, predictions and simulations."""

from __future__ import annotations

WORDS: dict[str, str] = {
    "torchrun-exposed": "torchrun listens on all interfaces of this machine; docs/learning.md says how to avoid that",
    "classes-unknown-to-model": "no accuracy: these data have classes that the model does not know",
    "rows-shared": "{rows:n row} of the {what} rows have a copy among the others",
    "method-not-run": "{title}: not run: {why}",
    "kept-already": "{kept} of {asked} are in {path} already",
    "one-seed": "One seed, tested on {rows:n row}: up to ± {points:.1f} points are chance. Several images of one "
    "person are not covered together.",
    "seeded-experiment": "Noise was seeded: this is an experiment, not a release. All figures here, accuracies and "
    "class counts too, were computed from the rows without protection: keep them as you keep the data.",
    "rows-played-public": "A quarter of the rows, with their labels, played the public data, which the methods with a "
    "μ and one-shot use: real public data are less like the private ones.",
}
