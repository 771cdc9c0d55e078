"""Sentences about trainings, models and what they show of records, predictions and simulations."""

from __future__ import annotations

WORDS: dict[str, str] = {
    "torchrun-exposed": "torchrun listens on all interfaces of this machine; docs/learning.md says how to avoid that",
    "classes-unknown-to-model": "no accuracy: these data have classes that the model does not know",
    "rows-shared": "of the {what} rows, {rows:n has|have} a copy among the others",
    "method-not-run": "{title}: not run: {why}",
    "kept-already": "{kept} of {asked} are in {path} already",
    "method-named": "{method}",
    "method-at-mu": "{method} at μ = {mu:g}",
    "method-done": "{which}: accuracy {accuracy:.1%}, {seconds:.1f} s",
    "best-at-mu": "Best at μ = {mu:g}: {method}, {accuracy:.1%}.",
    "best-at-mu-by-chance": "Best at μ = {mu:g}: {method}, {accuracy:.1%}. Within chance of it: {others}.",
    "best-without-guarantee": "Best without any guarantee: {method}, {accuracy:.1%}.",
    "best-without-guarantee-by-chance": "Best without any guarantee: {method}, {accuracy:.1%}. Within chance of it: "
    "{others}.",
    "worse-than-local": "{which} is {points:.1f} points worse than each party alone ({local:.1%}).",
    "as-local-by-chance": "Within chance of each party alone ({local:.1%}): {methods}.",
    "local-not-compared": "No method was compared with each party alone: add the method local.",
    "promises-differ": "Methods at one μ do not all promise the same. Read the guarantee of each.",
    "one-seed": "One seed, tested on {rows:n row}: up to ± {points:.1f} points are chance. Several images of one "
    "person are not covered together.",
    "seeded-experiment": "Noise was seeded: this is an experiment, not a release. All figures here, accuracies and "
    "class counts too, were computed from the rows without protection: keep them as you keep the data.",
    "rows-played-public": "A quarter of the rows, with their labels, played the public data, which the methods with a "
    "μ and one-shot use: real public data are less like the private ones.",
    "party-without-class-sums": "{party!r} sent no class sums for this plan: its records are in the rounds alone",
    "model-promises-nothing": "Nothing is promised: the model was trained on a release that promises nothing.",
    "model-mu": "An attacker who has the model and the messages that it was made of learns no more of any {of} "
    "than {mu:.4g}-GDP permits.",
    "model-record": "record",
    "model-unit": "unit (all rows of a person)",
    "model-record-of-one-party": "record of one party",
    "model-unit-of-one-party": "unit (all rows of a person) of one party",
    "model-mu-record-at-several": "A record that several of these {parties} parties have: up to {mu:.4g}-GDP.",
    "model-mu-unit-at-several": "A person whose records several of these {parties} parties have: up to {mu:.4g}-GDP.",
    "model-mu-record-at-several-shared": "A record that several of these {parties} parties have is in their sum "
    "several times: up to {mu:.4g}-GDP, if those that have it are honest and whatever the others do.",
    "model-mu-unit-at-several-shared": "A person whose records several of these {parties} parties have is in their "
    "sum several times: up to {mu:.4g}-GDP, if those that have them are honest and whatever the others do.",
    "model-mu-shared": "This holds if at least {honest} of the parties, that one included, are honest and the server "
    "saw their sums alone; whatever the others do, it is {mu:.4g}-GDP.",
    "model-records-single": "Several records of one person are not covered together: {mu:.4g}-GDP is for one of them.",
    "model-units-of-some": "Not all releases named units: several records of one person in the others are not covered "
    "together.",
    "model-labels-shown": "Labels are not protected.",
    "model-labels-covered": "Labels are covered by the same μ.",
    "model-labels-partly-covered": "Beside that, statistics show of labels what their own μ permits.",
    "model-labels-randomised": "Labels were randomised: the label of a {of} with ε = {epsilon:.4g} in all.",
    "model-labels-at-several": "The label of a record that several parties have: up to ε = {epsilon:.4g}.",
}
